//! Parses the value of an annotation into selectors, and writes it in its canonical form.
//!
//! Katalyst's agent and its scheduler plugin (katalyst-core, pull request 347) decode the value with Go's
//! `encoding/json`: keys in any case, duplicates and unknown keys are accepted, null ends the process, and
//! what is missing may be taken for something else. Here everything that two readers could understand
//! differently is refused, and everything that is left is written out.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::keys::AFFINITY;
use super::policy::MatchSemantics;
use crate::names::{is_dns_subdomain, is_label_name};
use crate::placement::reason::{Finding, Reason, Warning, quoted};
use crate::wire::{Item, Text, TextMap, optional_object};

/// The longest value, in bytes.
const LONGEST: usize = 16 * 1024;

/// The most selectors in a list, and the most labels in a selector.
const MOST: usize = 64;

/// The form of a value, for people.
const FORM: &str = r#"write it as {"required":[{"matchLabels":{"role":"ps"},"zone":"numa"}]}"#;

/// The part of a machine that pods share or avoid.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Zone {
    /// One NUMA node.
    Numa,
    /// All NUMA nodes of a socket.
    Socket,
}

impl Zone {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Numa => "numa",
            Self::Socket => "socket",
        }
    }
}

/// Selects the pods that have one of these labels, in a zone.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub(crate) struct Selector {
    /// Keys and values. Never empty.
    #[serde(rename = "matchLabels")]
    pub labels: BTreeMap<Box<str>, Box<str>>,
    pub zone: Zone,
}

impl Selector {
    /// Returns true if a pod with this label is selected.
    pub(crate) fn has(&self, key: &str, value: &str) -> bool {
        self.labels.get(key).is_some_and(|own| **own == *value)
    }

    /// The labels as texts.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter().map(|(key, value)| (&**key, &**value))
    }
}

/// A selector for people, as `role=ps (numa)`.
impl fmt::Display for Selector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (key, value)) in self.pairs().enumerate() {
            let or = if index == 0 { "" } else { " or " };
            write!(formatter, "{or}{key}={value}")?;
        }
        write!(formatter, " ({})", self.zone.as_str())
    }
}

/// The selectors of an annotation: sorted, each once.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub(crate) struct Selectors {
    /// No build of Katalyst reads these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preferred: Vec<Selector>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub required: Vec<Selector>,
}

impl Selectors {
    /// The canonical value: no spaces, sorted keys, sorted selectors, each with its zone.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("lists, texts and maps of texts are JSON")
    }

    /// The required selectors of a pod of the cluster, as the agents read them: keys in any case, and
    /// unknown keys do not matter. What cannot be read selects nothing.
    pub(crate) fn read_required(value: &str) -> Vec<Selector> {
        let Ok(value) = serde_json::from_str::<Value>(value) else { return Vec::new() };
        let items = member(&value, "required").and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Selector::read).collect()
    }
}

impl Selector {
    fn read(value: &Value) -> Option<Self> {
        let labels = member(value, "matchLabels")?.as_object()?.iter();
        let labels = labels.map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into())));
        let labels: BTreeMap<_, _> = labels.collect::<Option<_>>()?;
        let is_socket = member(value, "zone").and_then(Value::as_str) == Some("socket");
        let zone = if is_socket { Zone::Socket } else { Zone::Numa };
        (!labels.is_empty()).then_some(Self { labels, zone })
    }
}

/// A member of an object, by a key in any case, as Go's decoder finds it.
fn member<'v>(value: &'v Value, key: &str) -> Option<&'v Value> {
    let mut members = value.as_object()?.iter();
    members.find(|(own, _)| own.eq_ignore_ascii_case(key)).map(|(_, value)| value)
}

/// A value that is valid.
#[derive(Debug, Default)]
pub(crate) struct Parsed {
    pub selectors: Selectors,
    /// Warnings about the parts that were left out or have no effect.
    pub warnings: Vec<Warning>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSelectors<'a> {
    #[serde(borrow, default)]
    required: Option<Vec<Item<RawSelector<'a>>>>,
    #[serde(borrow, default)]
    preferred: Option<Vec<Item<RawSelector<'a>>>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSelector<'a> {
    #[serde(rename = "matchLabels", borrow, default)]
    match_labels: Option<TextMap<'a>>,
    #[serde(borrow, default)]
    zone: Option<Text<'a>>,
}

/// An object, or null as `None`.
#[derive(Deserialize)]
#[serde(transparent)]
struct Whole<'a>(#[serde(borrow, deserialize_with = "optional_object")] Option<RawSelectors<'a>>);

/// Parses the value of the annotation `key`. An empty value has no selectors.
///
/// # Errors
/// The first thing that is wrong with it.
pub(crate) fn parse(key: &str, value: &str, semantics: MatchSemantics) -> Result<Parsed, Finding> {
    if value.is_empty() {
        return Ok(Parsed::default());
    }
    let refuse = |problem: String, remedy: &str| {
        Finding::new(Reason::InvalidNumaAffinity, key, problem, remedy)
    };
    if value.len() > LONGEST {
        let problem = format!("is {} bytes long, and at most {LONGEST} are read", value.len());
        return Err(refuse(problem, "use fewer selectors"));
    }
    let whole = serde_json::from_str(value);
    let raw = match whole {
        Ok(Whole(Some(raw))) => raw,
        Ok(Whole(None)) => {
            let problem = "null crashes Katalyst's agents and schedulers".to_owned();
            return Err(refuse(problem, "remove the annotation"));
        }
        Err(error) => {
            return Err(refuse(format!("{} is not valid: {error}", quoted(value)), FORM));
        }
    };
    let mut parser = Parser { key, semantics, warnings: Vec::new() };
    let required = parser.read_list("required", raw.required);
    let preferred = required.and_then(|required| {
        let preferred = parser.read_list("preferred", raw.preferred)?;
        Ok(Selectors { preferred, required })
    });
    let selectors = preferred.map_err(|(problem, remedy)| refuse(problem, &remedy))?;
    Ok(Parsed { selectors, warnings: parser.warnings })
}

/// The problem, and what to do about it.
type Wrong = (String, String);

struct Parser<'k> {
    key: &'k str,
    semantics: MatchSemantics,
    warnings: Vec<Warning>,
}

impl Parser<'_> {
    fn read_list(
        &mut self,
        list: &str,
        items: Option<Vec<Item<RawSelector<'_>>>>,
    ) -> Result<Vec<Selector>, Wrong> {
        let items = items.unwrap_or_default();
        if items.len() > MOST {
            let problem = format!("{list} has {} selectors, at most {MOST} are read", items.len());
            return Err((problem, "use fewer selectors".to_owned()));
        }
        let mut selectors = Vec::with_capacity(items.len());
        for (index, Item(item)) in items.into_iter().enumerate() {
            selectors.extend(self.read_selector(list, index, &item)?);
        }
        selectors.sort_unstable();
        selectors.dedup();
        Ok(selectors)
    }

    /// Reads a selector; `None`: it selects nothing and is left out.
    fn read_selector(
        &mut self,
        list: &str,
        index: usize,
        raw: &RawSelector<'_>,
    ) -> Result<Option<Selector>, Wrong> {
        let at = || format!("{list}[{index}]");
        let zone = match raw.zone.as_ref().map_or("", Text::as_str) {
            "" | "numa" => Zone::Numa,
            "socket" => Zone::Socket,
            other => {
                let problem = format!("{}.zone is {}", at(), quoted(other));
                return Err((problem, "write numa or socket, in lower case".to_owned()));
            }
        };
        let Some(raw) = &raw.match_labels else {
            let problem = format!("{} has no matchLabels, which Katalyst refuses", at());
            return Err((problem, FORM.to_owned()));
        };
        let mut labels = BTreeMap::new();
        for (key, value) in raw.iter() {
            check_label(key, value).map_err(|problem| {
                (format!("{}: {problem}", at()), "write a label that a pod can have".to_owned())
            })?;
            labels.insert(key.into(), value.into());
        }
        match labels.len() {
            0 if self.key == AFFINITY && list == "required" => {
                let problem = format!(
                    "{}.matchLabels is empty: it selects no pod, so the affinity could never be met",
                    at()
                );
                return Err((problem, "name a label, or remove the selector".to_owned()));
            }
            0 => {
                let text = format!("{} has no label, selects no pod and is left out", at());
                self.warnings.push(Warning::new(self.key, &text));
                return Ok(None);
            }
            1 => {}
            count if count > MOST => {
                let problem = format!("{} has {count} labels, at most {MOST} are read", at());
                return Err((problem, "use fewer labels".to_owned()));
            }
            count if self.semantics == MatchSemantics::Strict => {
                let problem = format!(
                    "{}.matchLabels has {count} labels: for Katalyst one of them is enough, for Kubernetes all must match",
                    at()
                );
                let remedy = "write a selector for each label if one is enough, else give the pods one label for both";
                return Err((problem, remedy.to_owned()));
            }
            _ => {}
        }
        Ok(Some(Selector { labels, zone }))
    }
}

/// # Errors
/// Returns the reason why no pod can have this label.
fn check_label(key: &str, value: &str) -> Result<(), String> {
    let is_key = match key.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_label_name(name),
        None => is_label_name(key),
    };
    if !is_key {
        return Err(format!("{} is not the key of a label", quoted(key)));
    }
    if !value.is_empty() && !is_label_name(value) {
        return Err(format!("{} is not the value of a label", quoted(value)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::katalyst::keys::{ANNOTATIONS, ANTI_AFFINITY};

    fn canonical(key: &str, value: &str) -> String {
        let parsed = parse(key, value, MatchSemantics::Any);
        parsed.unwrap_or_else(|finding| panic!("{value}: {finding}")).selectors.to_json()
    }

    fn problem(key: &str, value: &str) -> String {
        let parsed = parse(key, value, MatchSemantics::Strict);
        parsed.map_or_else(|finding| finding.to_string(), |parsed| panic!("{value}: {parsed:?}"))
    }

    #[test]
    fn the_canonical_form_is_the_same_for_every_way_of_writing_it() {
        let wanted = r#"{"preferred":[{"matchLabels":{"app":"x"},"zone":"numa"}],"required":[{"matchLabels":{"role":"ps"},"zone":"numa"},{"matchLabels":{"role":"ps"},"zone":"socket"},{"matchLabels":{"role":"worker"},"zone":"numa"}]}"#;
        for value in [
            wanted,
            r#" { "required" : [ {"zone":"socket","matchLabels":{"role":"ps"}},
                {"matchLabels":{"role":"worker"}}, {"matchLabels":{"role":"ps"},"zone":""},
                {"matchLabels":{"role":"ps"},"zone":null}, {"matchLabels":{"role":"ps"},"zone":"numa"} ],
              "preferred" : [ {"matchLabels":{"app":"x"}} ] } "#,
            r#"{"preferred":[{"matchLabels":{"app":"x"}},{"matchLabels":{}}],"required":[
                {"matchLabels":{"role":"worker"}},{"matchLabels":{"ro\u006ce":"ps"}},
                {"zone":"socket","matchLabels":{"role":"ps"}}]}"#,
        ] {
            for key in ANNOTATIONS {
                assert_eq!(canonical(key, value), wanted, "{value}");
            }
        }
        let two = r#"{"required":[{"matchLabels":{"b":"2","a":"1"}}]}"#;
        let wanted = r#"{"required":[{"matchLabels":{"a":"1","b":"2"},"zone":"numa"}]}"#;
        assert_eq!(canonical(AFFINITY, two), wanted);
        let most = vec![r#"{"matchLabels":{"a":"b"}}"#; MOST].join(",");
        let one = r#"{"required":[{"matchLabels":{"a":"b"},"zone":"numa"}]}"#;
        assert_eq!(canonical(AFFINITY, &format!(r#"{{"required":[{most}]}}"#)), one);
        for empty in ["", "{}", r#"{"required":[]}"#, r#"{"required":null,"preferred":[]}"#] {
            assert_eq!(canonical(AFFINITY, empty), "{}", "{empty}");
        }
        let nothing = r#"{"required":[{"matchLabels":{}}]}"#;
        assert_eq!(canonical(ANTI_AFFINITY, nothing), "{}");
    }

    #[test]
    fn what_two_readers_could_understand_differently_is_refused() {
        let selector = |text: &str| format!(r#"{{"required":[{text}]}}"#);
        let long = format!(r#"{{"required":[{}]}}"#, " ".repeat(262_144));
        let many = vec![r#"{"matchLabels":{"a":"b"}}"#; 65].join(",");
        let labels: Vec<String> = (0..65).map(|n| format!(r#""k{n}":"v""#)).collect();
        let wide = format!(r#"{{"matchLabels":{{{}}}}}"#, labels.join(","));
        for value in ["x", " ", "[]", "[[],[]]", "7", r#""{}""#, r#"{"required":{}}"#] {
            assert!(problem(AFFINITY, value).contains("is not valid"), "{value}");
        }
        for (value, part) in [
            ("null", "null crashes Katalyst's"),
            (" null\n", "null crashes Katalyst's"),
            ("{}{}", "trailing characters"),
            (r#"{"Required":[]}"#, "unknown field `Required`, expected `required`"),
            (r#"{"required":[],"required":[]}"#, "duplicate field `required`"),
            (r#"{"required":"x"}"#, "is not valid"),
            (r#"{"required":[[{},"numa"]]}"#, "is not valid"),
            (r#"{"requird":[]}"#, "unknown field"),
            (&selector("null"), "required[0] has no matchLabels"),
            (&selector("{}"), "required[0] has no matchLabels"),
            (&selector(r#"{"matchLabels":null}"#), "required[0] has no matchLabels"),
            (&selector(r#"{"matchLabels":{}}"#), "required[0].matchLabels is empty"),
            (&selector(r#"{"matchLabels":[]}"#), "is not valid"),
            (&selector(r#"{"matchLabels":{"a":1}}"#), "a: invalid type: integer"),
            (&selector(r#"{"matchLabels":{"a":null}}"#), "is not valid"),
            (&selector(r#"{"matchLabels":{"a":"b","a":"c"}}"#), "duplicate key `a`"),
            (&selector(r#"{"matchlabels":{"a":"b"}}"#), "unknown field `matchlabels`"),
            (&selector(r#"{"matchExpressions":[]}"#), "unknown field `matchExpressions`"),
            (&selector(r#"{"matchLabels":{"a":"b"},"zone":"NUMA"}"#), r#"zone is "NUMA""#),
            (&selector(r#"{"matchLabels":{"a":"b"},"zone":"node"}"#), "numa or socket"),
            (&selector(r#"{"matchLabels":{"a":"b"},"zone":1}"#), "is not valid"),
            (&selector(r#"{"matchLabels":{"a b":"c"}}"#), r#""a b" is not the key"#),
            (&selector(r#"{"matchLabels":{"é":"c"}}"#), "is not the key"),
            (&selector(r#"{"matchLabels":{"":"c"}}"#), "is not the key"),
            (&selector(r#"{"matchLabels":{"a":"é"}}"#), "is not the value"),
            (&selector(r#"{"matchLabels":{"a":"\ud800"}}"#), "is not valid"),
            (&selector(r#"{"matchLabels":{"a":"1","b":"2"}}"#), "has 2 labels"),
            (&selector(&wide), "has 65 labels"),
            (&selector(&many), "has 65 selectors"),
            (r#"{"preferred":[{"matchLabels":{"a":"b"},"zone":"x"}]}"#, "preferred[0].zone"),
            (r#"{"preferred":[{}]}"#, "preferred[0] has no matchLabels"),
            (&long, "bytes long"),
        ] {
            let found = problem(AFFINITY, value);
            assert!(found.contains(part), "{value:.100}: {found}");
            assert!(found.starts_with(AFFINITY), "{found}");
        }
    }

    #[test]
    fn the_selectors_of_a_pod_of_the_cluster_are_read_as_the_agents_read_them() {
        let odd = r#"{"Required":[{"matchlabels":{"a":"b"},"Zone":"socket","x":1}],"y":[]}"#;
        for (value, wanted) in [
            (odd, "a=b (socket)"),
            (r#"{"required":[{"matchLabels":{}},{"matchLabels":{"a":"b"}},null]}"#, "a=b (numa)"),
            (r#"{"required":[{"matchLabels":{"a":1}},{}]}"#, ""),
            ("null", ""),
            ("[]", ""),
            ("", ""),
            (r#"{"required":7}"#, ""),
        ] {
            let selectors = Selectors::read_required(value);
            let shown: Vec<String> = selectors.iter().map(ToString::to_string).collect();
            assert_eq!(shown.join(", "), wanted, "{value}");
        }
    }

    #[test]
    fn a_selector_without_labels_is_left_out_of_an_anti_affinity_with_a_warning() {
        let value = r#"{"required":[{"matchLabels":{}},{"matchLabels":{"a":"b"}}]}"#;
        let parsed = parse(ANTI_AFFINITY, value, MatchSemantics::Strict).unwrap();
        assert_eq!(parsed.selectors.required.len(), 1);
        assert!(parsed.warnings[0].as_str().contains("required[0] has no label"));
    }
}
