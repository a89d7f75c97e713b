//! The parts that all sections of the administrator's policy share: the parser, and types of
//! values.
//!
//! Each system defines its section in its folder; `systems::policy` combines the sections.

mod check;
pub(crate) mod form;

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_saphyr::UserMessageFormatter;

pub use check::{meant, suggest};

/// The largest accepted policy file in bytes: the limit of a ConfigMap.
pub const MAX_BYTES: usize = 1024 * 1024;

/// Parses a policy file, which `schema` describes. An empty file is the default policy.
///
/// # Errors
/// If the text is too long, no YAML, or not a valid policy: then each field that is wrong, with what
/// it takes.
pub(crate) fn parse<P: DeserializeOwned + Default>(
    text: &str,
    schema: &serde_json::Value,
) -> Result<P, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("{} bytes long, and at most {MAX_BYTES} are read", text.len()));
    }
    let value: Option<serde_json::Value> =
        serde_saphyr::from_str(text).map_err(|error| match error.without_snippet() {
            serde_saphyr::Error::MultipleDocuments { .. } => {
                "several YAML documents, and a policy is one: remove the others".to_owned()
            }
            _ => format!("not YAML: {}", error.render_with_formatter(&UserMessageFormatter)),
        })?;
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(P::default()) };
    let mut problems = check::find_problems(&value, schema);
    let more = problems.len().saturating_sub(MAX_PROBLEMS);
    if more > 0 {
        problems.truncate(MAX_PROBLEMS);
        problems.push(format!("and {more} more"));
    }
    if !problems.is_empty() {
        return Err(problems.join("\n"));
    }
    serde_saphyr::from_str::<Option<P>>(text)
        .map(Option::unwrap_or_default)
        .map_err(|error| error.render_with_formatter(&UserMessageFormatter))
}

/// The most problems that a message lists.
const MAX_PROBLEMS: usize = 20;

/// What becomes of a pod that cannot be placed as it asks.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum OnInvalid {
    /// It is not created; its author reads why.
    #[default]
    Refuse,
    /// It is created without our placement; its author reads a warning.
    Warn,
}

/// What is done about pods that were admitted while the webhook was unavailable.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Repair {
    /// They are reported.
    #[default]
    Report,
    /// They are reported, and those still pending are created again.
    RecreatePending,
}

/// A length of time: an integer and its unit, such as `500ms`, `30s`, `5m` or `1h`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Period(Duration);

impl Period {
    /// The format in error messages.
    const FORM: &str = "a whole number and a unit, as 500ms, 30s or 5m";

    /// The units in milliseconds, the smallest first.
    const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    #[must_use]
    pub const fn length(self) -> Duration {
        self.0
    }
}

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(unit_at);
        let unit = Self::UNITS.iter().find(|(name, _)| *name == unit);
        number
            .parse::<u64>()
            .ok()
            .zip(unit)
            .and_then(|(number, (_, unit))| number.checked_mul(*unit))
            .map(|milliseconds| Self(Duration::from_millis(milliseconds)))
            .ok_or_else(|| format!("write {}", Self::FORM))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = self.0.as_millis();
        let mut units = Self::UNITS.iter().rev();
        let largest = units.find(|(_, unit)| milliseconds.is_multiple_of(u128::from(*unit)));
        match largest.filter(|_| milliseconds > 0) {
            Some((name, unit)) => write!(formatter, "{}{name}", milliseconds / u128::from(*unit)),
            None => formatter.write_str("0s"),
        }
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer.deserialize_str(Text(Self::FORM))?;
        text.parse().map_err(|_| de::Error::invalid_value(de::Unexpected::Str(&text), &Self::FORM))
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Period {
    fn schema_name() -> Cow<'static, str> {
        "Period".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A length of time: a whole number and its unit, as `500ms`, `30s`, `5m` or `1h`.",
            "type": "string",
            "pattern": "^[0-9]+(ms|s|m|h)$",
            "x-form": "Period",
        })
    }
}

/// An amount of a resource in Kubernetes' notation, not below zero: `10m`, `0.5`, `16Mi`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Quantity(String);

impl Quantity {
    /// The format in error messages.
    const FORM: &str = "an amount of a resource, as 10m, 0.5 or 16Mi";

    /// An amount that is not checked: the caller knows that it is valid.
    pub(crate) fn known(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The amount as written in the policy file.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Quantity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const SUFFIXES: [&str; 15] =
            ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi"];
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let is_number = number.parse::<f64>().is_ok() && number.len() <= 20;
        match is_number && (SUFFIXES.contains(&suffix) || suffix == "Ei") {
            true => Ok(Self(text.to_owned())),
            false => Err(format!("write {}", Self::FORM)),
        }
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer.deserialize_any(Text(Self::FORM))?;
        text.parse().map_err(|_| de::Error::invalid_value(de::Unexpected::Str(&text), &Self::FORM))
    }
}

impl JsonSchema for Quantity {
    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "An amount of a resource as Kubernetes writes it: `10m`, `0.5`, `16Mi`.",
            "type": ["string", "number"],
            "pattern": r"^([0-9]+\.?[0-9]*|\.[0-9]+)([numkMGTPE]|[KMGTPE]i)?$",
            "minimum": 0,
            "x-form": "Quantity",
        })
    }
}

/// Reads a string, or a number as a string; an error states the expected format.
struct Text(&'static str);

impl de::Visitor<'_> for Text {
    type Value = String;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<String, E> {
        Ok(number.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_written_in_their_largest_unit() {
        for (text, written) in [
            ("0h", "0s"),
            ("500ms", "500ms"),
            ("1000ms", "1s"),
            ("90s", "90s"),
            ("300s", "5m"),
            ("60m", "1h"),
        ] {
            assert_eq!(text.parse::<Period>().unwrap().to_string(), written);
        }
        for text in ["", "soon", "30", "-1s", "1m30s", "99999999999999999999h"] {
            assert!(text.parse::<Period>().is_err(), "{text}");
        }
    }

    #[test]
    fn amounts_are_kept_as_they_are_written() {
        for text in ["10m", "0.5", "16Mi", "1Gi", "1E", "1Ei"] {
            assert_eq!(text.parse::<Quantity>().unwrap().as_str(), text);
        }
        for text in ["", "much", "-1", "16MB", "1e", "é"] {
            assert!(text.parse::<Quantity>().is_err(), "{text}");
        }
    }
}
