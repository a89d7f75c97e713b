//! Contradictions between the constraints of several pods: some put them on one node, others keep
//! them apart.
//!
//! One rule for annotations and for the groups of all systems: a pod that must be on the node of
//! others must not exclude one of them, nor be excluded. The intents of all systems show what the new
//! pod requires; labels and anti-affinity show it of the others. A StreamsJob is checked when it is
//! created; its pods are looked at here too, because they may be in a group of another system.
//!
//! Pods that are created at the same moment do not see each other; `check` then explains why one of
//! them waits.

use crate::placement::intent::{Change, Enforcement, Intent, Operator, Selector};
use crate::placement::pod::Pod;
use crate::placement::reason::{Finding, Reason};
use crate::systems::View;
use crate::systems::is_shared_by_node_mates;

/// Finds a pod that contradicts what `intents` require of a new pod.
pub(crate) fn find_contradictions(pod: &Pod<'_>, intents: &[Intent], view: &View) -> Vec<Finding> {
    let apart: Vec<(&Intent, &Selector)> = intents.iter().filter_map(required_apart).collect();
    let label = |key: &str| {
        let set = intents.iter().find_map(|intent| match &intent.change {
            Change::Label { key: own, value } if own == key => Some(value.as_str()),
            _ => None,
        });
        set.or_else(|| pod.label(key))
    };
    let own_name = pod.metadata.name.as_ref().map(|name| name.as_str());
    let mut findings = Vec::new();
    for (together, key, value) in intents.iter().filter_map(|intent| binds(intent, intents)) {
        let near: Vec<&Selector> = selectors(together, intents).collect();
        let mates = view.companions.of_group(pod.namespace, (key, value), apart.is_empty());
        for (name, mate) in mates.filter(|(name, _)| Some(&*name.name) != own_name) {
            // A pod of another job may have the same token.
            if !near.iter().all(|selector| matches(selector, |key| mate.label(key))) {
                continue;
            }
            let excluding =
                apart.iter().find(|(_, selector)| matches(selector, |key| mate.label(key)));
            let (subject, problem) = match excluding {
                Some((intent, _)) => {
                    let what = format!(
                        "keeps the pod off the node of pod {}, and {} puts both on one node",
                        name.name, together.key
                    );
                    (intent.key, what)
                }
                None if mate.excludes(label) => {
                    let what = format!(
                        "puts the pod on the node of pod {}, whose exlocation or isolation \
                         excludes it",
                        name.name
                    );
                    (together.key, what)
                }
                None => continue,
            };
            let remedy = "remove one of the two constraints from these pods";
            findings.push(Finding::new(Reason::Contradiction, subject, problem, remedy));
            break;
        }
    }
    findings
}

/// The intent's required anti-affinity.
fn required_apart(intent: &Intent) -> Option<(&Intent, &Selector)> {
    match &intent.change {
        Change::PodAntiAffinity(term) if term.enforcement == Enforcement::Required => {
            Some((intent, &term.selector))
        }
        _ => None,
    }
}

/// The selectors of the pods that the constraint of `intent` puts the pod with. Those of a placeholder
/// select no other member, and are left out.
fn selectors<'i>(intent: &Intent, all: &'i [Intent]) -> impl Iterator<Item = &'i Selector> {
    let key = intent.key;
    all.iter().filter_map(move |other| match &other.change {
        Change::PodAffinity(term)
            if other.key == key && matches!(term.selector, Selector::Expressions { .. }) =>
        {
            Some(&term.selector)
        }
        _ => None,
    })
}

/// The label (key and value) by which `intent` puts the pod on the node of others, if it is required.
fn binds<'i>(intent: &'i Intent, all: &[Intent]) -> Option<(&'i Intent, &'i str, &'i str)> {
    let Change::Label { key, value } = &intent.change else { return None };
    let is_required = |other: &Intent| {
        other.key == intent.key
            && match &other.change {
                Change::PodAffinity(term) => term.enforcement == Enforcement::Required,
                Change::NodeAffinity(_) | Change::Gate(_) => true,
                _ => false,
            }
    };
    let is_bound = is_shared_by_node_mates(key) && all.iter().any(is_required);
    is_bound.then_some((intent, key.as_str(), value.as_str()))
}

/// Returns true if a selector of stowplan matches a pod with these labels.
fn matches<'l>(selector: &Selector, label: impl Fn(&str) -> Option<&'l str>) -> bool {
    match selector {
        Selector::Labels(labels) => {
            labels.iter().all(|(key, own)| label(key) == Some(own.as_str()))
        }
        Selector::Expressions { identity, further, .. } => {
            identity.iter().chain(further).all(|rule| {
                let own = label(&rule.key);
                let is_same = rule.values.iter().flatten().any(|value| own == Some(value.as_str()));
                is_same == (rule.operator == Operator::In.as_str())
            })
        }
    }
}
