//! The forms of texts in a policy: names, labels and images, as Kubernetes checks them.
//!
//! Each form has a pattern, for editors and for `helm upgrade`, and a check with words for people.

use schemars::{Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Period, Quantity};
use crate::names::{
    LONGEST_DIRECTORY, is_directory, is_dns_label, is_dns_subdomain, is_label_name,
};

/// The keyword of a schema that names the form of a text.
pub(super) const KEYWORD: &str = "x-form";

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const NAME: &str = "[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?";

/// A form of a text. Schemas have its name under [`KEYWORD`].
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) enum Form {
    Namespace,
    LabelKey,
    LabelValue,
    /// The name of most objects.
    ObjectName,
    /// The name of an object, or nothing.
    OptionalObjectName,
    /// The reference of an image, or nothing.
    Image,
    Period,
    /// A length of time of at least a second.
    Second,
    Quantity,
    /// An absolute path.
    Directory,
    /// A filter of log lines, or nothing.
    LogFilter,
}

impl Form {
    /// Describes a text of this form.
    pub(super) fn takes(self) -> &'static str {
        match self {
            Self::Namespace => {
                "the name of a namespace: at most 63 lower-case letters, digits and '-', with a letter or digit at both ends"
            }
            Self::LabelKey => {
                "the key of a label, as zone or example.com/zone: letters, digits, '-', '_' and '.', at most 63 after the prefix"
            }
            Self::LabelValue => {
                "the value of a label: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends"
            }
            Self::ObjectName | Self::OptionalObjectName => {
                "the name of an object: at most 253 lower-case letters, digits, '-' and '.', with a letter or digit at both ends"
            }
            Self::Image => "an image, as registry.example/team/stowplan:1.0",
            Self::Period => Period::FORM,
            Self::Second => "a whole number and a unit, as 30s or 5m, at least 1s",
            Self::Quantity => Quantity::FORM,
            Self::Directory => {
                "an absolute path of letters, digits, '.', '_' and '-', as /root/.ssh"
            }
            Self::LogFilter => {
                "a level (off, error, warn, info, debug or trace) or MODULE=LEVEL, as stowplan::server=debug"
            }
        }
    }

    pub(super) fn accepts(self, text: &str) -> bool {
        match self {
            Self::Namespace => is_dns_label(text),
            Self::LabelKey => match text.split_once('/') {
                Some((prefix, name)) => is_dns_subdomain(prefix) && is_label_name(name),
                None => is_label_name(text),
            },
            Self::LabelValue => text.is_empty() || is_label_name(text),
            Self::ObjectName => is_dns_subdomain(text),
            Self::OptionalObjectName => text.is_empty() || is_dns_subdomain(text),
            Self::Image => text.is_empty() || is_image(text),
            Self::Period => text.parse::<Period>().is_ok(),
            Self::Second => {
                text.parse::<Period>().is_ok_and(|period| period >= Period::from_secs(1))
            }
            Self::Quantity => text.parse::<Quantity>().is_ok(),
            Self::Directory => is_directory(text),
            Self::LogFilter => text.is_empty() || self.find_wrong_part(text).is_none(),
        }
    }

    /// The first part of a text with several parts that has not this form.
    pub(super) fn find_wrong_part(self, text: &str) -> Option<&str> {
        match self {
            Self::LogFilter => text.split(',').find(|part| !is_log_directive(part)),
            _ => None,
        }
    }

    fn pattern(self) -> String {
        match self {
            Self::Namespace => format!("^{LABEL}$"),
            Self::LabelKey => format!(r"^({LABEL}(\.{LABEL})*/)?{NAME}$"),
            Self::LabelValue => format!("^({NAME})?$"),
            Self::ObjectName => format!(r"^{LABEL}(\.{LABEL})*$"),
            Self::OptionalObjectName => format!(r"^({LABEL}(\.{LABEL})*)?$"),
            Self::Image => {
                r"^([A-Za-z0-9][-A-Za-z0-9_.:/]*(@[a-z0-9]+:[0-9a-f]{32,})?)?$".to_owned()
            }
            Self::Period => "^[0-9]+(ms|s|m|h)$".to_owned(),
            Self::Second => "^([1-9][0-9]{3,}ms|[1-9][0-9]*(s|m|h))$".to_owned(),
            Self::Quantity => r"^([0-9]+\.?[0-9]*|\.[0-9]+)([numkMGTPE]|[KMGTPE]i)?$".to_owned(),
            Self::Directory => r"^(/[A-Za-z0-9._-]+)+$".to_owned(),
            Self::LogFilter => {
                let level = LEVELS.join("|");
                let directive = format!("([A-Za-z0-9_:]+=)?({level})");
                format!("^({directive}(,{directive})*)?$")
            }
        }
    }

    fn max_length(self) -> usize {
        match self {
            Self::Namespace | Self::LabelValue => 63,
            Self::LabelKey => 253 + 1 + 63,
            Self::ObjectName | Self::OptionalObjectName => 253,
            Self::Image | Self::LogFilter => 512,
            Self::Directory => LONGEST_DIRECTORY,
            Self::Period | Self::Second | Self::Quantity => 32,
        }
    }

    /// The schema of a text of this form.
    pub(super) fn schema(self) -> Value {
        json!({
            "type": "string",
            "pattern": self.pattern(),
            "maxLength": self.max_length(),
            KEYWORD: self,
        })
    }
}

/// The levels of a log filter.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Returns true if `text` is a part of a log filter. A word that is no level would be read as a module, so
/// that a misspelt level turned all lines off.
fn is_log_directive(text: &str) -> bool {
    let (module, level) = text.rsplit_once('=').unwrap_or(("stowplan", text));
    let is_module = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':');
    !module.is_empty() && module.bytes().all(is_module) && LEVELS.contains(&level)
}

/// Returns true if `text` names an image: `[HOST[:PORT]/]PATH[:TAG][@DIGEST]`.
fn is_image(text: &str) -> bool {
    let (text, digest) = text.split_once('@').map_or((text, None), |(a, b)| (a, Some(b)));
    let (path, tag) = match text.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (text, None),
    };
    let (host, path) = match path.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => {
            (Some(host), path)
        }
        _ => (None, path),
    };
    let is_part = |part: &str| {
        let is_edge = |byte: Option<&u8>| {
            byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        let bytes = part.as_bytes();
        let inner = |byte: &u8| is_edge(Some(byte)) || matches!(byte, b'.' | b'_' | b'-');
        is_edge(bytes.first()) && is_edge(bytes.last()) && bytes.iter().all(inner)
    };
    let is_tag = |tag: &str| {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        (1..=128).contains(&tag.len()) && !tag.starts_with(['.', '-']) && tag.bytes().all(inner)
    };
    let is_host = |host: &str| {
        let (name, port) = host.split_once(':').unwrap_or((host, "443"));
        is_dns_subdomain(&name.to_ascii_lowercase()) && port.parse::<u16>().is_ok()
    };
    let is_digest = |digest: &str| {
        digest.split_once(':').is_some_and(|(algorithm, hex)| {
            !algorithm.is_empty()
                && algorithm.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
                && hex.len() >= 32
                && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        })
    };
    host.is_none_or(is_host)
        && path.split('/').all(is_part)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest)
}

fn schema_of(schema: Value) -> Schema {
    Schema::try_from(schema).expect("a schema is an object")
}

/// The schema of a set of namespaces.
pub(crate) fn namespaces(_: &mut SchemaGenerator) -> Schema {
    schema_of(json!({
        "type": "array", "items": Form::Namespace.schema(), "uniqueItems": true,
    }))
}

/// The schema of a map of labels.
pub(crate) fn labels(_: &mut SchemaGenerator) -> Schema {
    schema_of(json!({
        "type": "object",
        "propertyNames": Form::LabelKey.schema(),
        "additionalProperties": Form::LabelValue.schema(),
    }))
}

/// The schema of a list of label keys.
pub(crate) fn label_keys(_: &mut SchemaGenerator) -> Schema {
    schema_of(json!({"type": "array", "items": Form::LabelKey.schema()}))
}

/// The schema of a map from StorageClass to StorageClass.
pub(crate) fn class_map(_: &mut SchemaGenerator) -> Schema {
    schema_of(json!({
        "type": "object",
        "propertyNames": Form::ObjectName.schema(),
        "additionalProperties": Form::ObjectName.schema(),
    }))
}

pub(crate) fn object_name(_: &mut SchemaGenerator) -> Schema {
    schema_of(Form::ObjectName.schema())
}

pub(crate) fn directory(_: &mut SchemaGenerator) -> Schema {
    schema_of(Form::Directory.schema())
}

pub(crate) fn optional_object_name(_: &mut SchemaGenerator) -> Schema {
    schema_of(Form::OptionalObjectName.schema())
}

pub(crate) fn log_filter(_: &mut SchemaGenerator) -> Schema {
    schema_of(Form::LogFilter.schema())
}

pub(crate) fn image(_: &mut SchemaGenerator) -> Schema {
    schema_of(Form::Image.schema())
}

pub(crate) fn second(_: &mut SchemaGenerator) -> Schema {
    schema_of(Form::Second.schema())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_checked_as_registries_name_them() {
        let valid = "stowplan stowplan:0.1.0 team/stowplan registry.example/team/stowplan:1.0_rc-1 \
                     localhost:5000/a/b a__b/c-d.e \
                     Registry.example:443/a@sha256:0123456789abcdef0123456789abcdef";
        for image in valid.split(' ') {
            assert!(Form::Image.accepts(image), "{image}");
        }
        let invalid = ["a b", "A", "a:", ":a", "a/", "/a", "a:b c", "a//b", "-a", "a.", "a:b:c/"];
        for image in invalid.into_iter().chain(["a@sha256:12"]) {
            assert!(!Form::Image.accepts(image), "{image}");
        }
    }

    #[test]
    fn a_log_filter_is_levels_and_modules_with_levels() {
        for filter in ["", "info", "off", "info,stowplan::server=debug", "hyper=warn,trace"] {
            assert!(Form::LogFilter.accepts(filter), "{filter}");
        }
        for (filter, wrong) in [
            ("debgu", "debgu"),
            ("info,stowplan=loud", "stowplan=loud"),
            ("info,,warn", ""),
            ("info, warn", " warn"),
            ("INFO", "INFO"),
            ("=info", "=info"),
            ("a=b=info", "a=b=info"),
            ("[span]=info,warn", "[span]=info"),
            ("é=info", "é=info"),
        ] {
            assert!(!Form::LogFilter.accepts(filter), "{filter}");
            assert_eq!(Form::LogFilter.find_wrong_part(filter), Some(wrong));
        }
    }
}
