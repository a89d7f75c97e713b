//! The kinds of objects that the Streams constraints read: a projection and a table for each, and
//! queries about them. The other modules of Streams name the types by this module.

pub(crate) mod companions;
pub mod host_pool;
pub(crate) mod node_marks;
pub(crate) mod scaling;
pub mod streams_job;
pub mod streams_pod;

use crate::systems::View;
use crate::systems::check::words::{nodes, some};
use crate::view::Name;
pub(crate) use host_pool::{
    Form, Host, HostPool, POOL_LABEL_PREFIX, format_indices, format_tagged, to_usize,
};
pub(crate) use node_marks::{
    Limits, TAG_KEY, TAG_PREFIX, has_tags, labels_of_tags, tag_keys, term_of_tags,
};
use node_marks::{one_of_tags, only_tag};
pub(crate) use scaling::{NAME_PREFIX, ScalingSet};
pub(crate) use streams_job::StreamsJob;
pub(crate) use streams_job::closure::{
    self, Claim, Closure, JobPool, Location, Operator, Unit, find_location, host_pool_spec,
    operators,
};
pub(crate) use streams_pod::{APP, APP_VALUE, PendingPod, PodDetails, is_colocation_key};

/// A function that formats a tag as nodes are indexed by it.
type FormatTag = fn(&str) -> Box<str>;

/// Says in brackets which tags nodes have in the form that does not count for a pool with these tags: one
/// key has one value, so a pool with several tags is found by other labels than one with one tag. Empty if
/// no node has any.
pub(crate) fn in_other_form(view: &View, tags: &[Box<str>]) -> String {
    let (own_form, other_form, counts): (FormatTag, FormatTag, _) = match tags.len() {
        1 => (only_tag, one_of_tags, "several tags"),
        _ => (one_of_tags, only_tag, "one tag"),
    };
    let other = tags.iter().filter_map(|name| {
        let other = [other_form(name)];
        if view.nodes_with_tags(&other) == 0 {
            return None;
        }
        let own = [own_form(name)];
        let is_other = |node: &&str| {
            let tags = view.node_tags(node);
            has_tags(tags, &other) && !has_tags(tags, &own)
        };
        let mut found: Vec<&str> = view.nodes().map(|(node, _)| node).filter(is_other).collect();
        found.sort_unstable();
        let [tag] = &other;
        (!found.is_empty()).then(|| format!("{tag} on {}", nodes(&found)))
    });
    let found: Vec<String> = other.collect();
    match found.as_slice() {
        [] => String::new(),
        found => format!(" ({} counts only for a pool with {counts})", some(found)),
    }
}

/// Queries about pools, jobs and the pods of jobs.
impl View {
    /// A HostPool, if the View has it.
    pub(super) fn host_pool(&self, name: &Name) -> Option<&HostPool> {
        self.host_pools.get(name)
    }

    pub(super) fn host_pools(&self) -> impl Iterator<Item = (&Name, &HostPool)> {
        self.host_pools.iter()
    }

    /// A StreamsJob, if the View has it.
    pub(super) fn streams_job(&self, name: &Name) -> Option<&StreamsJob> {
        self.streams_jobs.get(name)
    }

    pub(super) fn streams_jobs(&self) -> impl Iterator<Item = (&Name, &StreamsJob)> {
        self.streams_jobs.iter()
    }

    /// The Streams pods whose details are kept: all of them in the controller's View, none
    /// elsewhere.
    pub(super) fn pods(&self) -> impl Iterator<Item = (&Name, &PodDetails)> {
        self.streams_pods.iter()
    }

    /// The StatefulSets of scaling pods. Only in the controller's View.
    pub(super) fn scaling_sets(&self) -> impl Iterator<Item = (&Name, &ScalingSet)> {
        self.scaling_sets.iter()
    }

    /// The number of nodes that have all of these tags (see [`node_marks::tag_keys`]). Without tags, the
    /// number of all nodes.
    pub(super) fn nodes_with_tags(&self, tags: &[Box<str>]) -> usize {
        if tags.is_empty() {
            return self.node_count();
        }
        self.node_marks.with_tags(tags)
    }

    /// The tags of a node (see [`node_marks::tag_keys`]).
    pub(super) fn node_tags(&self, node: &str) -> &[Box<str>] {
        self.node_marks.get(node).map_or(&[], |marks| &marks.tags)
    }

    /// The label `kubernetes.io/hostname` of a node; `None` if there is no such node, or no label.
    pub(super) fn hostname<'v>(&'v self, node: &'v str) -> Option<&'v str> {
        self.node(node)?;
        self.node_marks.hostname(node)
    }
}
