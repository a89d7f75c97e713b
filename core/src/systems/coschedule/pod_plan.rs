//! The plan of a placeholder's pod: the node that it must be on and those that it had better not be on, whether
//! it is held to its members, the claims that it mounts, the room that it reserves while it has no node, and
//! what others have added to its members.
//!
//! The plan is recorded as JSON in an annotation of the pod template, so that the StatefulSet and its
//! pod both have it. Affinity, tolerations and volumes are written from it and never read back: the pod is outdated
//! if its plan differs from its template's. Users can edit the annotation. If it is missing or
//! malformed, the template is written again.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::keys::{MEMBER, PLAN};
use crate::names::{is_dns_subdomain, is_label_name};
use crate::view::Resources;
use crate::view::resources::thousandths;

/// The most nodes that a placeholder avoids: the last that it left.
pub(crate) const MOST_AVOIDED: usize = 8;

/// The most claims of a placeholder.
const MOST_CLAIMS: usize = 1_024;

/// The most labels, tolerations and node terms of a member.
const MOST_ADDED: usize = 256;

/// The longest text of these.
const LONGEST_ADDED: usize = 65_536;

/// The longest name of a node or a claim.
const LONGEST_NAME: usize = 253;

/// The plan of a placeholder's pod.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PodPlan {
    /// The only allowed node, in addition to the requirements of its run's pod template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Box<str>>,
    /// The last nodes that it left because members were unschedulable there, the latest last. It goes to others
    /// if these take it. Earlier releases excluded nodes, with the alias.
    #[serde(default, alias = "except", skip_serializing_if = "Vec::is_empty")]
    pub avoid: Vec<Box<str>>,
    /// True if it must be on the node of a running member, if there is one.
    pub held: bool,
    /// The claims that it mounts by name, in this order.
    pub claims: Vec<Box<str>>,
    /// The resources that it requests until it has a node, in addition to what it keeps, so that its members fit
    /// there. All zero: it cannot, because a quota leaves no room or the node does not release it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<Resources>,
    /// The node requirements of its members that its run's pod template does not have.
    #[serde(default, skip_serializing_if = "Added::is_empty")]
    pub added: Added,
}

/// The node requirements of a member beyond those of a pod template: all of a native group's, and what others, such as
/// Kueue, have added to a pod of a run when they released it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Added {
    /// The labels in its node selector that its run does not have.
    pub labels: BTreeMap<Box<str>, Box<str>>,
    /// The tolerations that come with them.
    pub tolerations: Vec<Value>,
    /// The terms of its required node affinity, of a native group's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub terms: Vec<Value>,
}

impl Added {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if an annotation can have them.
    pub(crate) fn fits(&self) -> bool {
        let counts = [self.labels.len(), self.tolerations.len(), self.terms.len()];
        let text = serde_json::to_string(self).unwrap_or_default();
        counts.iter().all(|count| *count <= MOST_ADDED) && text.len() <= LONGEST_ADDED
    }
}

/// Returns true if a pod can request this amount of a resource besides cpu and memory. The API server refuses others,
/// which authors of tasks can write.
pub(crate) fn can_request(resource: &str, amount: i64) -> bool {
    let is_valid = match (resource.split_once('/'), resource.strip_prefix("hugepages-")) {
        (Some((domain, name)), _) => is_dns_subdomain(domain) && is_label_name(name),
        (_, Some(size)) => {
            thousandths(size).is_some_and(|size| size > 0 && i128::from(amount) * 1_000 % size == 0)
        }
        _ => resource == "ephemeral-storage",
    };
    is_valid && amount > 0
}

impl PodPlan {
    /// Reads the plan of a pod, or of the pod template of the placeholder of this name. `None` if it is
    /// missing or malformed, or if the label of members is missing: without it the pod would not match its
    /// own required affinity, and could not be scheduled.
    pub(crate) fn read(metadata: &ObjectMeta, placeholder: &str) -> Option<Self> {
        let label = metadata.labels.as_ref()?.get(MEMBER)?;
        let text = metadata.annotations.as_ref()?.get(PLAN)?;
        (label == placeholder).then(|| Self::parse(text))?
    }

    /// Parses the annotation. `None` if it is malformed or too large.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut plan: Self = serde_json::from_str(text).ok()?;
        let Self { only, avoid, claims, room, added, .. } = &mut plan;
        let is_name = |name: &str| {
            let of_name = |c: u8| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
            (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(of_name)
        };
        // The API server checks no more of the names of claims in volumes than that they are not empty.
        let are_claims = claims.iter().all(|claim| (1..=LONGEST_NAME).contains(&claim.len()));
        let are_names = only.iter().chain(&*avoid).map(AsRef::as_ref).all(is_name) && are_claims;
        let is_room = room.as_ref().is_none_or(|room| {
            room.milli_cpu >= 0
                && room.memory >= 0
                && room.other.iter().all(|(name, amount)| can_request(name, *amount))
        });
        if !are_names || claims.len() > MOST_CLAIMS || !is_room || !added.fits() {
            return None;
        }
        avoid.drain(..avoid.len().saturating_sub(MOST_AVOIDED));
        Some(plan)
    }

    /// Returns the nodes to avoid once it has left `node`, too.
    pub(crate) fn avoiding(&self, node: &str) -> Vec<Box<str>> {
        let mut avoid = self.avoid.clone();
        avoid.retain(|other| **other != *node);
        avoid.push(node.into());
        avoid.drain(..avoid.len().saturating_sub(MOST_AVOIDED));
        avoid
    }

    /// Returns true if it may be on this node.
    pub(crate) fn allows(&self, node: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == node)
    }

    /// Returns true if a pod with the plan `pod` must leave `node` before it is as this plan of its template
    /// says. A hold matters only for a pod without a node. More room is asked for if this node has too little.
    pub(crate) fn is_to_leave(&self, pod: Option<&Self>, node: &str) -> bool {
        let Some(pod) = pod else { return true };
        let [needed, had] = [self, pod].map(|plan| plan.room.clone().unwrap_or_default());
        let is_left = |plan: &Self| plan.avoid.last().is_some_and(|last| **last == *node);
        pod != self
            && (!self.allows(node)
                || pod.claims != self.claims
                || !had.covers(&needed)
                || is_left(self) && !is_left(pod))
    }

    /// Formats the annotation.
    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns true if it mounts this claim.
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
        let any = PodPlan { held: true, claims: vec!["c.d".into()], ..PodPlan::default() };
        let only = PodPlan { only: Some("n1".into()), ..any.clone() };
        let avoiding = PodPlan { avoid: vec!["n2".into(), "n1".into()], ..any.clone() };
        let with = |other: &[(Box<str>, i64)]| {
            let room = Resources { milli_cpu: 100, memory: 5, other: other.into() };
            PodPlan { room: Some(room), ..any.clone() }
        };
        for (plan, text) in [
            (with(&[]), r#"{"held":true,"claims":["c.d"],"room":{"milliCpu":100,"memory":5}}"#),
            (
                with(&[("example.com/gpu".into(), 2)]),
                r#"{"held":true,"claims":["c.d"],"room":{"milliCpu":100,"memory":5,"other":[["example.com/gpu",2]]}}"#,
            ),
            (any.clone(), r#"{"held":true,"claims":["c.d"]}"#),
            (only, r#"{"only":"n1","held":true,"claims":["c.d"]}"#),
            (avoiding, r#"{"avoid":["n2","n1"],"held":true,"claims":["c.d"]}"#),
        ] {
            assert_eq!(plan.text(), text);
            assert_eq!(PodPlan::parse(text).as_ref(), Some(&plan));
            assert_eq!(PodPlan::parse(&text.replace("avoid", "except")), Some(plan));
        }
    }

    #[test]
    fn forged_malformed_and_oversized_plans_are_none() {
        let many = |count: usize| vec!["n"; count];
        let of = |avoid: &[&str], claims: &[&str]| {
            json!({"avoid": avoid, "held": true, "claims": claims}).to_string()
        };
        let wrong = json!([
            null, [], {}, {"held": true}, {"held": "true", "claims": []}, {"held": true, "claims": [7]},
            {"held": true, "claims": [], "more": 1}, {"only": "", "held": true, "claims": []},
            {"only": "N 1", "held": true, "claims": []}, {"avoid": ["N"], "held": true, "claims": []},
            {"avoid": [], "except": [], "held": true, "claims": []},
            {"held": true, "claims": [], "room": {"milliCpu": 1}},
            {"held": true, "claims": [], "room": {"milliCpu": -1, "memory": 0}},
            {"held": true, "claims": [], "room": {"milliCpu": 0, "memory": 0, "other": [["", 1]]}},
            {"held": true, "claims": [], "room": {"milliCpu": 0, "memory": 0, "other": [["é", 1]]}},
            {"held": true, "claims": [], "room": {"milliCpu": 0, "memory": 0, "other": [["a/b", 0]]}},
            {"held": true, "claims": [], "room": {"milliCpu": 0, "memory": 0, "other": [["a/b"]]}},
            {"held": true, "claims": [], "room": {"milliCpu": 0, "memory": 0, "other": vec![("a", 1); 65]}},
        ]);
        let wrong = wrong.as_array().unwrap().iter().map(ToString::to_string);
        let wrong_claims = [&[""][..], &[&"c".repeat(254)], &many(MOST_CLAIMS + 1)];
        let wrong = wrong.chain(wrong_claims.map(|claims| of(&[], claims)));
        for text in wrong.chain(["[".repeat(262_144), String::new()]) {
            assert_eq!(PodPlan::parse(&text), None, "{text:.60}");
        }
    }

    /// A list of an earlier release may have thousands.
    #[test]
    fn a_plan_avoids_the_last_nodes_that_it_left() {
        let names: Vec<String> = (0..20_000).map(|n| format!("n{n}")).collect();
        let text = json!({"except": names, "held": true, "claims": []}).to_string();
        let mut plan = PodPlan::parse(&text).unwrap();
        assert_eq!(
            plan.avoid,
            names[19_992..].iter().map(|n| n.as_str().into()).collect::<Vec<_>>()
        );
        let before = plan.clone();
        plan.avoid = plan.avoiding("n19995");
        assert_eq!(plan.avoid.len(), MOST_AVOIDED);
        assert_eq!(plan.avoid.last().unwrap(), &"n19995".into());
        assert!(plan.allows("n19995") && plan.is_to_leave(Some(&before), "n19995"));
        assert!(!plan.is_to_leave(Some(&before), "n1") && !plan.is_to_leave(Some(&plan), "n19995"));
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
}
