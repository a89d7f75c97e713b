//! The AdmissionReview that the API server sends (admission.k8s.io/v1), borrowed from its bytes.
//!
//! Only the fields that a decision reads are decoded. The others (`oldObject`, `userInfo`,
//! `options`, `managedFields`) are skipped in one scan.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::placement::object::Object;
use crate::placement::reason::shorten;
use crate::wire::{Text, null_is_default, object_or_default, optional_object};

/// The only version that stowplan answers.
pub(crate) const API_VERSION: &str = "admission.k8s.io/v1";

/// The longest uid that is accepted, in bytes. Those of Kubernetes have 36.
const MAX_UID: usize = 128;

/// The reason why the bytes are not a valid review. The server answers 400, and the cluster's failurePolicy
/// decides whether the object is admitted.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ParseError {
    /// The body is empty.
    #[error("the body is empty; send an AdmissionReview of {API_VERSION}")]
    Empty,
    /// The bytes are not JSON, or a field has the wrong type.
    #[error("not an AdmissionReview: {0}")]
    Json(String),
    /// The kind or the version is another.
    #[error("{0} is not served; send an AdmissionReview of {API_VERSION}")]
    Version(String),
    /// `request` is missing or null.
    #[error("the AdmissionReview has no request")]
    NoRequest,
    /// `request.uid` is missing, empty or too long, so the answer could not repeat it.
    #[error("request.uid is {0}")]
    Uid(&'static str),
    /// `request.object` is missing or null although an object is created or changed.
    #[error("the request has no object")]
    NoObject,
    /// The object is not valid for its kind.
    #[error("request.object is not a valid {kind}: {problem}")]
    Object {
        /// The name of the kind.
        kind: &'static str,
        /// The problem.
        problem: String,
    },
}

/// A review.
#[derive(Debug)]
pub struct Review<'a> {
    /// The request in it.
    pub request: Request<'a>,
    /// The complete text, from which stowplan's own objects are decoded.
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
    /// The identifier of this call; the answer repeats it.
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
    /// The object as the API server would store it.
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
    /// Parses a review.
    ///
    /// Invalid UTF-8 anywhere is an error, and so are text after the end and a key that occurs
    /// twice among the fields that are read. In fields that are skipped, only the brackets must
    /// match.
    ///
    /// # Errors
    /// [`ParseError`]: the bytes are not a review that can be answered.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Err(ParseError::Empty);
        }
        // Checked once here: that is cheaper than checking each string.
        let text =
            std::str::from_utf8(bytes).map_err(|error| ParseError::Json(error.to_string()))?;
        let envelope = parse_envelope(text).map_err(|error| ParseError::Json(brief(&error)))?;
        let kind = envelope.kind.unwrap_or_default();
        let version = envelope.api_version.unwrap_or_default();
        if kind.as_str() != "AdmissionReview" || version.as_str() != API_VERSION {
            let shown = |text: &Text<'_>| match text.as_str() {
                "" => Cow::Borrowed("(none)"),
                text => Cow::Owned(text.chars().take(64).flat_map(char::escape_debug).collect()),
            };
            return Err(ParseError::Version(format!(
                "kind {} of {}",
                shown(&kind),
                shown(&version)
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
    /// The object as it would be stored, and as it is stored now, undecoded. They are located by
    /// another scan of the text, because only the validation of stowplan's own objects needs them.
    ///
    /// # Errors
    /// [`ParseError`]: the review has no object.
    pub(super) fn objects(&self) -> Result<(&'a RawValue, Option<&'a RawValue>), ParseError> {
        #[derive(Deserialize)]
        struct Envelope<'a> {
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
        let envelope: Envelope<'a> =
            serde_json::from_str(self.text).map_err(|error| ParseError::Json(brief(&error)))?;
        let Objects { object, old_object } = envelope.request;
        Ok((object.ok_or(ParseError::NoObject)?, old_object))
    }
}

fn parse_envelope(text: &str) -> Result<Envelope<'_>, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let envelope = object_or_default(&mut deserializer)?;
    deserializer.end()?;
    Ok(envelope)
}

/// The text of a JSON error, shortened: it may quote megabytes of input.
pub(super) fn brief(error: &serde_json::Error) -> String {
    shorten(&error.to_string(), 256)
}

impl Request<'_> {
    /// The namespace of the request; the one in the object's metadata may be missing or wrong.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.namespace.as_str()
    }

    /// `CREATE`, `UPDATE`, `DELETE`, `CONNECT`, or any other text that was sent.
    #[must_use]
    pub fn operation(&self) -> &str {
        self.operation.as_str()
    }

    /// The plural name of the resource, for example `pods`.
    #[must_use]
    pub fn resource(&self) -> &str {
        self.resource.resource.as_str()
    }

    /// Returns true if the request creates or updates an object of this resource. Requests for subresources
    /// do not.
    #[must_use]
    pub fn changes(&self, group: &str, resource: &str) -> bool {
        self.resource.group.as_str() == group
            && self.resource.resource.as_str() == resource
            && self.sub_resource.as_str().is_empty()
            && matches!(self.operation.as_str(), "CREATE" | "UPDATE")
    }

    /// The plural name of the resource that the request creates in this API group (empty for the
    /// core group). `None` for another group, for a subresource, and for other operations.
    #[must_use]
    pub fn creates(&self, group: &str) -> Option<&str> {
        let creates = self.resource.group.as_str() == group
            && self.sub_resource.as_str().is_empty()
            && self.operation.as_str() == "CREATE";
        creates.then(|| self.resource())
    }
}
