//! Rules of a definition between fields, and between an object and the one that it replaces: in CEL
//! for the API server, and as functions for the command `plan`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::ValidationRule;
use serde_json::Value;

use crate::names::is_label_name;

/// A rule of a definition.
#[derive(Debug)]
pub struct Rule {
    /// In CEL, as the API server evaluates it.
    pub cel: &'static str,
    /// The message if it is broken.
    pub(crate) message: &'static str,
    pub holds: Holds,
}

/// Decides whether a rule holds. It is given the part of an object that has the rule, without
/// fields that are null.
#[derive(Debug)]
pub enum Holds {
    /// By the object alone.
    Alone(fn(&Value) -> bool),
    /// By the object, and the one that it replaces. A new object keeps the rule.
    Since(fn(&Value, &Value) -> bool),
}

impl Rule {
    /// The rule for the API server.
    pub(crate) fn validation(&self) -> ValidationRule {
        ValidationRule {
            rule: self.cel.to_owned(),
            message: Some(self.message.to_owned()),
            ..ValidationRule::default()
        }
    }

    /// Returns true if `object`, in place of `old`, keeps the rule.
    pub fn is_kept(&self, object: &Value, old: Option<&Value>) -> bool {
        match (&self.holds, old) {
            (Holds::Alone(holds), _) => holds(object),
            (Holds::Since(holds), Some(old)) => holds(object, old),
            (Holds::Since(_), None) => true,
        }
    }
}

/// The rules for the API server.
pub(crate) fn validations(rules: &[Rule]) -> Vec<ValidationRule> {
    rules.iter().map(Rule::validation).collect()
}

/// Returns the number of items of a list; `None`: there is no list.
pub(crate) fn length(object: &Value, list: &str) -> Option<usize> {
    object.get(list).and_then(Value::as_array).map(Vec::len)
}

/// A pattern of texts.
#[derive(Debug)]
pub struct Pattern {
    /// The regular expression, for the API server.
    pub regex: &'static str,
    /// The texts that match it and are not too long for the field.
    pub matches: fn(&str) -> bool,
}

/// The form of label values and of names in labels.
pub(crate) const LABEL_NAME: Pattern =
    Pattern { regex: "^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$", matches: is_label_name };

/// The form of identifiers in SPL.
pub(crate) const IDENTIFIER: Pattern = Pattern {
    regex: "^[A-Za-z_][A-Za-z0-9_]*$",
    matches: |text| {
        text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && text.bytes().next().is_some_and(|first| !first.is_ascii_digit())
    },
};

/// The patterns of the definitions.
pub const PATTERNS: [&Pattern; 2] = [&LABEL_NAME, &IDENTIFIER];
