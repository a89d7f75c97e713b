//! The binding of a pod to NUMA nodes by Katalyst, from its annotations `qos_level` and `memory_enhancement`.
//! It looks at the affinity of no other pods.

use super::keys::{MEMORY_ENHANCEMENT, QOS_LEVEL};
use crate::placement::reason::{Finding, Reason, quoted};
use crate::wire::{TextMap, optional_object};
use serde::Deserialize;

/// The level of the pods that get CPUs of their own.
pub(crate) const DEDICATED: &str = "dedicated_cores";

/// The levels that Katalyst knows. A pod without the annotation has the first one.
const LEVELS: [&str; 4] = ["shared_cores", DEDICATED, "reclaimed_cores", "system_cores"];

/// The CPUs and NUMA nodes that Katalyst gives a pod.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Qos {
    /// True if it gets CPUs of its own.
    pub is_dedicated: bool,
    /// True if it is bound to NUMA nodes.
    pub is_bound: bool,
    /// True if it has its NUMA nodes alone.
    pub is_exclusive: bool,
}

/// The fields of `memory_enhancement`.
#[derive(Deserialize)]
#[serde(transparent)]
struct Memory<'a>(#[serde(borrow, deserialize_with = "optional_object")] Option<TextMap<'a>>);

impl Qos {
    /// Reads the annotations of a pod of the cluster. A value that Katalyst cannot read counts as
    /// absent.
    pub(crate) fn read<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> Self {
        let memory = annotation(MEMORY_ENHANCEMENT).map(serde_json::from_str::<Memory<'_>>);
        let memory = memory.and_then(Result::ok).and_then(|Memory(memory)| memory);
        let is_true = |key| memory.as_ref().and_then(|memory| memory.get(key)) == Some("true");
        let is_bound = is_true(BINDING);
        Self {
            is_dedicated: annotation(QOS_LEVEL) == Some(DEDICATED),
            is_bound,
            is_exclusive: is_bound && is_true(EXCLUSIVE),
        }
    }

    /// Returns true if the affinity of the pod counts for Katalyst.
    pub(crate) fn takes_part(self) -> bool {
        self.is_dedicated && self.is_bound
    }

    /// Reads the annotations of a new pod with a NUMA affinity.
    ///
    /// # Errors
    /// Returns the reason why Katalyst would ignore the affinity, or fail. `subject` is its annotation.
    pub(crate) fn parse<'a>(
        annotation: impl Fn(&str) -> Option<&'a str>,
        subject: &'static str,
    ) -> Result<Self, Finding> {
        let refuse = |key: &str, problem: String, remedy: &str| {
            Err(Finding::new(Reason::InvalidNumaAffinity, key, problem, remedy))
        };
        let qos = Self::read(&annotation);
        if qos.takes_part() {
            return Ok(qos);
        }
        match annotation(QOS_LEVEL) {
            Some(DEDICATED) => {}
            Some(level) if !LEVELS.contains(&level) => {
                let problem = format!("{} is no QoS level of Katalyst", quoted(level));
                let remedy = format!("write one of {}", LEVELS.join(", "));
                return refuse(QOS_LEVEL, problem, &remedy);
            }
            level => {
                let level = level.unwrap_or(LEVELS[0]);
                let problem = format!("Katalyst ignores it on a pod of QoS level {level}");
                let remedy = format!("set {QOS_LEVEL}: {DEDICATED}, or remove the annotation");
                return refuse(subject, problem, &remedy);
            }
        }
        let text = annotation(MEMORY_ENHANCEMENT).unwrap_or("null");
        let memory = match serde_json::from_str(text) {
            Ok(Memory(memory)) => memory.unwrap_or_default(),
            Err(error) => {
                let problem = format!("{} is not an object of strings: {error}", quoted(text));
                let remedy =
                    format!(r#"write it as {{"{BINDING}":"true"}}, with quotes around true"#);
                return refuse(MEMORY_ENHANCEMENT, problem, &remedy);
            }
        };
        let Some(other) = memory.get(BINDING) else {
            let problem = "Katalyst ignores it on a pod without NUMA binding";
            return refuse(subject, problem.to_owned(), &bind());
        };
        let problem = format!(
            "{BINDING} is {}, which is not \"true\", so Katalyst ignores {subject}",
            quoted(other)
        );
        refuse(MEMORY_ENHANCEMENT, problem, &bind())
    }
}

/// The fields of `memory_enhancement`, whose values are texts.
const BINDING: &str = "numa_binding";
const EXCLUSIVE: &str = "numa_exclusive";

fn bind() -> String {
    format!(r#"set {MEMORY_ENHANCEMENT}: '{{"{BINDING}":"true"}}', or remove the annotation"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations<'a>(level: &'a str, memory: &'a str) -> impl Fn(&str) -> Option<&'a str> {
        move |key| match key {
            QOS_LEVEL => Some(level).filter(|level| *level != "-"),
            MEMORY_ENHANCEMENT => Some(memory).filter(|memory| *memory != "-"),
            _ => None,
        }
    }

    #[test]
    fn a_pod_takes_part_if_it_is_dedicated_and_bound() {
        for (level, memory, wanted) in [
            (DEDICATED, r#"{"numa_binding":"true"}"#, [true, true, false]),
            (DEDICATED, r#"{"numa_binding":"true","numa_exclusive":"true"}"#, [true, true, true]),
            (DEDICATED, r#"{"numa_binding":"true","numa_exclusive":"false"}"#, [true, true, false]),
            (DEDICATED, r#"{"numa_binding":"true","rss_overuse":"0.8"}"#, [true, true, false]),
            (DEDICATED, r#"{"numa_exclusive":"true"}"#, [true, false, false]),
            (DEDICATED, r#"{"numa_binding":true}"#, [true, false, false]),
            (DEDICATED, "null", [true, false, false]),
            (DEDICATED, "-", [true, false, false]),
            ("-", r#"{"numa_binding":"true"}"#, [false, true, false]),
        ] {
            let read = Qos::read(annotations(level, memory));
            let found = [read.is_dedicated, read.is_bound, read.is_exclusive];
            assert_eq!(found, wanted, "{level} {memory}");
            let parsed = Qos::parse(annotations(level, memory), "key");
            assert_eq!(parsed.is_ok(), read.takes_part(), "{level} {memory}");
            assert!(parsed.is_err() || parsed == Ok(read));
        }
    }

    #[test]
    fn a_pod_that_katalyst_would_ignore_is_refused_with_the_reason() {
        for (level, memory, subject, part) in [
            ("-", "-", "key", "of QoS level shared_cores"),
            ("reclaimed_cores", "-", "key", "of QoS level reclaimed_cores"),
            ("Dedicated_cores", "-", QOS_LEVEL, "write one of shared_cores, dedicated_cores"),
            ("", "-", QOS_LEVEL, "is no QoS level"),
            (DEDICATED, "-", "key", "without NUMA binding"),
            (DEDICATED, "{}", "key", "without NUMA binding"),
            (DEDICATED, "null", "key", "without NUMA binding"),
            (DEDICATED, "", MEMORY_ENHANCEMENT, "is not an object of strings"),
            (DEDICATED, r#"{"numa_binding":true}"#, MEMORY_ENHANCEMENT, "quotes around true"),
            (DEDICATED, r#"{"numa_binding":"True"}"#, MEMORY_ENHANCEMENT, r#"is "True""#),
            (DEDICATED, "[]", MEMORY_ENHANCEMENT, "is not an object"),
            (DEDICATED, r#"{"a":"b","a":"c"}"#, MEMORY_ENHANCEMENT, "duplicate key `a`"),
        ] {
            let finding = Qos::parse(annotations(level, memory), "key").unwrap_err();
            assert_eq!(finding.subject, subject, "{level} {memory}");
            assert!(finding.to_string().contains(part), "{finding}");
        }
    }
}
