//! The AdmissionReview that the API server sends (admission.k8s.io/v1), borrowed from its bytes.
//!
//! Only what a decision reads is decoded. Objects that do not matter (`oldObject`, `userInfo`,
//! `options`, `managedFields`) are skipped in one scan.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::placement::pod::{Object, Text, null_is_default, object_or_default, optional_object};
use crate::placement::reason::shorten;

/// The only version that is answered.
pub const API_VERSION: &str = "admission.k8s.io/v1";

/// The longest uid that is echoed, in bytes. Kubernetes' own have 36.
const MAX_UID: usize = 128;

/// Why bytes are not a review. The caller answers 400, and the cluster's failurePolicy decides.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ParseError {
    /// Nothing was sent.
    #[error("the body is empty; send an AdmissionReview of {API_VERSION}")]
    Empty,
    /// Not JSON, or a field of the wrong type.
    #[error("not an AdmissionReview: {0}")]
    Json(String),
    /// Another kind or version.
    #[error("{0} is not served; send an AdmissionReview of {API_VERSION}")]
    Version(String),
    /// `request` is missing or null.
    #[error("the AdmissionReview has no request")]
    NoRequest,
    /// `request.uid` is missing, empty or too long, so that no answer could name it.
    #[error("request.uid is {0}")]
    Uid(&'static str),
    /// `request.object` is missing or null where an object is made or changed.
    #[error("the request has no object")]
    NoObject,
    /// The object in it is not what its kind says.
    #[error("request.object is not a valid {kind}: {problem}")]
    Object {
        /// What people call its kind.
        kind: &'static str,
        /// What is wrong with it.
        problem: String,
    },
}

/// A review.
#[derive(Debug)]
pub struct Review<'a> {
    /// What is asked.
    pub request: Request<'a>,
    /// All of it as it was sent: where an object of our own is read as a whole.
    text: &'a str,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    #[serde(borrow, default)]
    api_version: Option<Text<'a>>,
    #[serde(borrow, default)]
    kind: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "optional_object")]
    request: Option<Request<'a>>,
}

/// The request in a review.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request<'a> {
    /// Names this call; the answer echoes it.
    #[serde(borrow, default, deserialize_with = "null_is_default")]
    pub uid: Text<'a>,
    #[serde(borrow, default, deserialize_with = "object_or_default")]
    resource: Resource<'a>,
    #[serde(borrow, default, deserialize_with = "null_is_default")]
    sub_resource: Text<'a>,
    #[serde(borrow, default, deserialize_with = "null_is_default")]
    namespace: Text<'a>,
    #[serde(borrow, default, deserialize_with = "null_is_default")]
    operation: Text<'a>,
    /// The object as it would be stored.
    #[serde(borrow, default, deserialize_with = "optional_object")]
    pub object: Option<Object<'a>>,
}

#[derive(Debug, Default, Deserialize)]
struct Resource<'a> {
    #[serde(borrow, default, deserialize_with = "null_is_default")]
    group: Text<'a>,
    #[serde(borrow, default, deserialize_with = "null_is_default")]
    resource: Text<'a>,
}

impl<'a> Review<'a> {
    /// Reads a review.
    ///
    /// Invalid UTF-8 anywhere and text after the end are errors, as is a key that occurs twice in what
    /// is read. What is skipped need only be balanced.
    ///
    /// # Errors
    /// [`ParseError`]: no answer can be given.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Err(ParseError::Empty);
        }
        // Once for all: scanning text is cheaper than checking its parts.
        let text =
            std::str::from_utf8(bytes).map_err(|error| ParseError::Json(error.to_string()))?;
        let envelope = read(text).map_err(|error| ParseError::Json(brief(&error)))?;
        let kind = envelope.kind.unwrap_or_default();
        let version = envelope.api_version.unwrap_or_default();
        if kind.as_str() != "AdmissionReview" || version.as_str() != API_VERSION {
            let named = |text: &Text<'_>| match text.as_str() {
                "" => Cow::Borrowed("(none)"),
                text => Cow::Owned(text.chars().take(64).flat_map(char::escape_debug).collect()),
            };
            return Err(ParseError::Version(format!(
                "kind {} of {}",
                named(&kind),
                named(&version)
            )));
        }
        let request = envelope.request.ok_or(ParseError::NoRequest)?;
        match request.uid.as_str().len() {
            0 => Err(ParseError::Uid("missing or empty")),
            1..=MAX_UID => Ok(Self { request, text }),
            _ => Err(ParseError::Uid("longer than 128 bytes")),
        }
    }
}

impl<'a> Review<'a> {
    /// The object as it would be stored and as it is, undecoded. Read anew from the bytes, because
    /// nobody else looks at either.
    ///
    /// # Errors
    /// [`ParseError`]: the review holds none.
    pub(super) fn objects(&self) -> Result<(&'a RawValue, Option<&'a RawValue>), ParseError> {
        #[derive(Deserialize)]
        struct Whole<'a> {
            #[serde(borrow)]
            request: Objects<'a>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Objects<'a> {
            #[serde(borrow, default)]
            object: Option<&'a RawValue>,
            #[serde(borrow, default)]
            old_object: Option<&'a RawValue>,
        }
        let whole: Whole<'a> =
            serde_json::from_str(self.text).map_err(|error| ParseError::Json(brief(&error)))?;
        let Objects { object, old_object } = whole.request;
        Ok((object.ok_or(ParseError::NoObject)?, old_object))
    }
}

fn read(text: &str) -> Result<Envelope<'_>, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let envelope = object_or_default(&mut deserializer)?;
    deserializer.end()?;
    Ok(envelope)
}

/// What a JSON error says, without the megabytes that it may quote.
pub(super) fn brief(error: &serde_json::Error) -> String {
    shorten(&error.to_string(), 256)
}

impl Request<'_> {
    /// The namespace of the request; the object's own may be missing or false.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.namespace.as_str()
    }

    /// `CREATE`, `UPDATE`, `DELETE`, `CONNECT`, or what else was sent.
    #[must_use]
    pub fn operation(&self) -> &str {
        self.operation.as_str()
    }

    /// The plural name of what the request is about, as `pods`.
    #[must_use]
    pub fn resource(&self) -> &str {
        self.resource.resource.as_str()
    }

    /// Whether an object of this kind is made or changed: not one of its subresources, not deleted.
    #[must_use]
    pub fn changes(&self, group: &str, resource: &str) -> bool {
        self.resource.group.as_str() == group
            && self.resource.resource.as_str() == resource
            && self.sub_resource.as_str().is_empty()
            && matches!(self.operation.as_str(), "CREATE" | "UPDATE")
    }

    /// The plural name of what is created in this API group (empty for the core group): `None` where it
    /// is of another group, or one of an object's subresources, or where nothing is created.
    #[must_use]
    pub fn creates(&self, group: &str) -> Option<&str> {
        let creates = self.resource.group.as_str() == group
            && self.sub_resource.as_str().is_empty()
            && self.operation.as_str() == "CREATE";
        creates.then(|| self.resource())
    }
}
