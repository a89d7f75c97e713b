//! The plan of a placeholder's pod: the nodes that it may be on, whether it is held to its members, the
//! claims that it mounts, and the room that it reserves while it has no node.
//!
//! The plan is recorded as JSON in an annotation of the pod template, so that the StatefulSet and its
//! pod both have it. Affinity and volumes are written from it and never read back: the pod is outdated
//! if its plan differs from its template's. Users can edit the annotation. If it is missing or
//! malformed, the template is written again.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::keys::{MEMBER, PLAN};
use crate::view::Resources;

/// The most nodes that a plan excludes. At about 80 bytes each, the object stays far below the limit of
/// the API server.
pub(crate) const MOST_EXCLUDED: usize = 4_096;

/// The most bytes of node names in a plan: the API server accepts 256 KiB of annotations.
const MOST_BYTES: usize = 192 * 1_024;

/// The most claims of a placeholder.
const MOST_CLAIMS: usize = 1_024;

/// The longest name of a node or a claim.
const LONGEST_NAME: usize = 253;

/// The plan of a placeholder's pod.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct PodPlan {
    /// The allowed nodes.
    pub nodes: Nodes,
    /// Whether it must be on the node of a running member, if there is one.
    pub held: bool,
    /// The claims that it mounts by name, in this order.
    pub claims: Vec<Box<str>>,
    /// What it requests until it has a node, so that its members fit there. `None`: no more than it keeps.
    pub room: Option<Room>,
}

/// What the pods request that a placeholder is to make room for.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Room {
    /// Processor time, in thousandths of a core.
    pub milli_cpu: i64,
    /// Memory, in bytes.
    pub memory: i64,
}

impl fmt::Display for Room {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "cpu {}m and memory {} MiB", self.milli_cpu, self.memory >> 20)
    }
}

impl Room {
    /// No room: nothing is reserved, because a quota leaves none or a node does not release it.
    pub(crate) const NONE: Self = Self { milli_cpu: 0, memory: 0 };

    /// Returns true if a pod that needs `other` fits in this room.
    #[must_use]
    pub(crate) fn covers(self, other: Self) -> bool {
        self.milli_cpu >= other.milli_cpu && self.memory >= other.memory
    }

    /// The sum.
    #[must_use]
    pub(crate) fn plus(self, more: Self) -> Self {
        Self {
            milli_cpu: self.milli_cpu.saturating_add(more.milli_cpu),
            memory: self.memory.saturating_add(more.memory),
        }
    }

    /// The larger amount of each resource.
    #[must_use]
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            milli_cpu: self.milli_cpu.max(other.milli_cpu),
            memory: self.memory.max(other.memory),
        }
    }

    /// The room for any one of these pods.
    #[must_use]
    pub(crate) fn of_any<'r>(pods: impl Iterator<Item = &'r Resources>) -> Self {
        pods.map(Self::of).fold(Self::NONE, Self::max)
    }

    /// The room for all of these pods.
    #[must_use]
    pub(crate) fn of_all<'r>(pods: impl Iterator<Item = &'r Resources>) -> Self {
        pods.map(Self::of).fold(Self::NONE, Self::plus)
    }

    /// The room for this pod.
    #[must_use]
    pub(crate) fn of(pod: &Resources) -> Self {
        Self { milli_cpu: pod.milli_cpu, memory: pod.memory }
    }
}

/// The allowed nodes of a placeholder, in addition to the requirements of its run's pod template.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum Nodes {
    #[default]
    Any,
    /// This node.
    Only(Box<str>),
    /// Any node except these, which are sorted.
    Except(Vec<Box<str>>),
}

/// The plan as JSON.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Recorded {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    only: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    except: Vec<Box<str>>,
    held: bool,
    claims: Vec<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    room: Option<Room>,
}

impl Nodes {
    /// Any node except these. Keeps the first `most` names, as far as they fit into the annotation.
    #[must_use]
    pub(crate) fn except<'n>(names: impl IntoIterator<Item = &'n str>, most: usize) -> Self {
        let mut bytes = 0;
        let fits = |name: &&str| {
            bytes += name.len() + 3;
            bytes <= MOST_BYTES
        };
        let names = names.into_iter().take(most).take_while(fits);
        let mut names: Vec<Box<str>> = names.map(Into::into).collect();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() { Self::Any } else { Self::Except(names) }
    }

    /// The only node that is allowed, if there is one.
    #[must_use]
    pub(crate) fn only(&self) -> Option<&str> {
        match self {
            Self::Only(node) => Some(node),
            Self::Any | Self::Except(_) => None,
        }
    }

    /// The excluded nodes, sorted.
    #[must_use]
    pub(crate) fn excluded(&self) -> &[Box<str>] {
        match self {
            Self::Except(nodes) => nodes,
            Self::Any | Self::Only(_) => &[],
        }
    }

    #[must_use]
    pub(crate) fn excludes(&self, node: &str) -> bool {
        self.excluded().binary_search_by(|excluded| (**excluded).cmp(node)).is_ok()
    }

    #[must_use]
    pub(crate) fn allows(&self, node: &str) -> bool {
        self.only().is_none_or(|only| only == node) && !self.excludes(node)
    }
}

impl PodPlan {
    /// Reads the plan of a pod, or of the pod template of the placeholder of this name. `None` if it is
    /// missing or malformed, or if the label of members is missing: without it the pod would not match its
    /// own required affinity, and could not be scheduled.
    #[must_use]
    pub(crate) fn read(metadata: &ObjectMeta, placeholder: &str) -> Option<Self> {
        let label = metadata.labels.as_ref()?.get(MEMBER)?;
        let text = metadata.annotations.as_ref()?.get(PLAN)?;
        (label == placeholder).then(|| Self::parse(text))?
    }

    /// Parses the annotation. `None` if it is malformed or too large.
    #[must_use]
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let Recorded { only, mut except, held, claims, room } = serde_json::from_str(text).ok()?;
        let is_name = |name: &str| {
            let of_name = |c: u8| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
            (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(of_name)
        };
        let are_names = only.iter().chain(&except).chain(&claims).map(AsRef::as_ref).all(is_name);
        let are_few = except.len() <= MOST_EXCLUDED && claims.len() <= MOST_CLAIMS;
        let is_room = room.is_none_or(|room| room.milli_cpu >= 0 && room.memory >= 0);
        if !are_names || !are_few || !is_room {
            return None;
        }
        let nodes = match only {
            Some(_) if !except.is_empty() => return None,
            Some(node) => Nodes::Only(node),
            None if except.is_empty() => Nodes::Any,
            None => {
                except.sort_unstable();
                except.dedup();
                Nodes::Except(except)
            }
        };
        Some(Self { nodes, held, claims, room })
    }

    /// Whether a pod with the plan `pod` must leave `node` before it is as this plan of its template
    /// says. A hold matters only for a pod without a node. More room is asked for if this node has too little.
    #[must_use]
    pub(crate) fn is_to_leave(&self, pod: Option<&Self>, node: &str) -> bool {
        let Some(pod) = pod else { return true };
        let [needed, had] = [self, pod].map(|plan| plan.room.unwrap_or_default());
        pod != self
            && (!self.nodes.allows(node) || pod.claims != self.claims || !had.covers(needed))
    }

    /// Formats the annotation.
    #[must_use]
    pub(crate) fn text(&self) -> String {
        let recorded = Recorded {
            only: self.nodes.only().map(Into::into),
            except: self.nodes.excluded().to_vec(),
            held: self.held,
            claims: self.claims.clone(),
            room: self.room,
        };
        serde_json::to_string(&recorded).unwrap_or_default()
    }

    /// Whether it mounts this claim.
    #[must_use]
    pub(crate) fn mounts(&self, claim: &str) -> bool {
        self.claims.iter().any(|own| **own == *claim)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        let except = Nodes::except(["n2", "n1"], 9);
        for (nodes, text) in [
            (Nodes::Any, r#"{"held":true,"claims":["c.d"]}"#),
            (Nodes::Only("n1".into()), r#"{"only":"n1","held":true,"claims":["c.d"]}"#),
            (except, r#"{"except":["n1","n2"],"held":true,"claims":["c.d"]}"#),
        ] {
            let plan = PodPlan { nodes, held: true, claims: vec!["c.d".into()], room: None };
            assert_eq!(plan.text(), text);
            assert_eq!(PodPlan::parse(text), Some(plan));
        }
    }

    #[test]
    fn forged_malformed_and_oversized_plans_are_none() {
        let many = |count: usize| vec!["n"; count];
        let of = |except: &[&str], claims: &[&str]| {
            json!({"except": except, "held": true, "claims": claims}).to_string()
        };
        assert!(PodPlan::parse(&of(&many(MOST_EXCLUDED), &[])).is_some());
        let wrong = json!([
            null, [], {}, {"held": true}, {"held": "true", "claims": []}, {"held": true, "claims": [7]},
            {"held": true, "claims": [], "more": 1}, {"only": "n1", "except": ["n2"], "held": true, "claims": []},
            {"only": "", "held": true, "claims": []}, {"only": "N 1", "held": true, "claims": []},
        ]);
        let wrong = wrong.as_array().unwrap().iter().map(ToString::to_string);
        let wrong_claims = [&["é"][..], &["a/b"], &[&"c".repeat(254)], &many(MOST_CLAIMS + 1)];
        let wrong = wrong.chain(wrong_claims.map(|claims| of(&[], claims)));
        let large = [of(&many(MOST_EXCLUDED + 1), &[]), "[".repeat(262_144), String::new()];
        for text in wrong.chain(large) {
            assert_eq!(PodPlan::parse(&text), None, "{text:.60}");
        }
    }

    #[test]
    fn a_plan_needs_the_label_of_members() {
        for (label, is_read) in [(Some("p"), true), (Some("q"), false), (None, false)] {
            let labels = label.map(|label| [(MEMBER.to_owned(), label.to_owned())].into());
            let annotations = Some([(PLAN.to_owned(), PodPlan::default().text())].into());
            let metadata = ObjectMeta { labels, annotations, ..ObjectMeta::default() };
            let read = PodPlan::read(&metadata, "p");
            assert_eq!(read, is_read.then(PodPlan::default), "{metadata:?}");
        }
    }

    #[test]
    fn excluded_nodes_fit_into_the_annotation() {
        let names: Vec<String> = (0..10_000).map(|n| format!("{n:0200}")).collect();
        let plan = PodPlan {
            nodes: Nodes::except(names.iter().map(String::as_str), MOST_EXCLUDED),
            ..PodPlan::default()
        };
        assert!(plan.text().len() < 200 * 1_024);
        assert!(plan.nodes.excludes(&names[0]) && !plan.nodes.allows(&names[0]));
        assert!(plan.nodes.allows(&names[9_999]));
        assert_eq!(PodPlan::parse(&plan.text()), Some(plan));
        assert_eq!(Nodes::except(["a", "b", "c"], 2).excluded().len(), 2);
        assert_eq!(Nodes::except([], 2), Nodes::Any);
    }
}
