//! The volumes of a pod or group that not every node can mount.

use k8s_openapi::api::core::v1::NodeSelectorTerm;

use super::Candidate;
use crate::placement::intent::AnyOf;
use crate::systems::View;
use crate::view::selector;

/// A volume that not every node can mount.
#[derive(Clone, Debug)]
pub(crate) struct Volume<'v> {
    /// The name of the claim that is bound to the volume.
    pub claim: Box<str>,
    pub name: &'v str,
    /// The node affinity terms. A node must match one of them.
    pub terms: &'v [NodeSelectorTerm],
}

impl Volume<'_> {
    /// Returns true if a node can mount it.
    #[must_use]
    pub(crate) fn reaches(&self, node: Candidate<'_>) -> bool {
        selector::may_select(self.terms, None, |key| node.label(key))
    }
}

/// The volumes that not every node can mount, in the order of the claims.
#[derive(Clone, Debug, Default)]
pub struct Volumes<'v>(Vec<Volume<'v>>);

impl<'v> Volumes<'v> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Volume<'v>> {
        self.0.iter()
    }

    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if a node can mount all of them.
    #[must_use]
    pub(crate) fn all_reach(&self, node: Candidate<'_>) -> bool {
        self.0.iter().all(|volume| volume.reaches(node))
    }

    /// Returns true if any node can mount all of them.
    #[must_use]
    pub(crate) fn reach_a_node(&self, view: &View) -> bool {
        Candidate::all_empty(view).any(|node| self.all_reach(node))
    }

    /// Describes which nodes can mount each volume, by the volume's own requirements: names of nodes would
    /// make another event of each node that an autoscaler adds or removes. `None`: every node can mount all
    /// of them.
    #[must_use]
    pub(crate) fn describe_reach(&self, view: &View) -> Option<String> {
        let is_kept_out =
            |volume: &&Volume<'_>| !Candidate::all_empty(view).all(|node| volume.reaches(node));
        let described = self.0.iter().filter(is_kept_out).map(|volume| {
            let Volume { claim, name, terms } = volume;
            let terms = AnyOf(terms);
            format!("volume {name} of claim {claim} can be mounted only on nodes with {terms}")
        });
        let described: Vec<String> = described.collect();
        (!described.is_empty()).then(|| described.join(", "))
    }

    /// Names the volumes that no node but `node` can mount: one of them alone, or all of them
    /// together. `None`: another node can mount all of them.
    #[must_use]
    pub(crate) fn pin_to(&self, node: &str, view: &View) -> Option<String> {
        let others = || Candidate::all_empty(view).filter(|other| other.name != node);
        if self.0.is_empty() || others().any(|other| self.all_reach(other)) {
            return None;
        }
        let is_only_there = |volume: &&Volume<'v>| !others().any(|other| volume.reaches(other));
        let alone = self.0.iter().find(is_only_there);
        let named = |Volume { claim, name, .. }: &Volume<'_>| format!("{name} of claim {claim}");
        Some(match alone.map_or(self.0.as_slice(), std::slice::from_ref) {
            [volume] => format!("volume {} can be mounted on no node but {node}", named(volume)),
            all => {
                let named = all.iter().map(named).collect::<Vec<_>>().join(", ");
                format!("the volumes {named} can be mounted together on no node but {node}")
            }
        })
    }
}

impl<'v> FromIterator<Volume<'v>> for Volumes<'v> {
    fn from_iter<I: IntoIterator<Item = Volume<'v>>>(volumes: I) -> Self {
        Self(volumes.into_iter().collect())
    }
}
