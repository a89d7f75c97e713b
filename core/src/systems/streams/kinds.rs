//! The kinds of objects that the Streams constraints read: a projection and a table for each, and
//! queries about them. Other modules of Streams import the types from here, not from the
//! submodules.

pub(crate) mod companions;
pub mod host_pool;
pub(crate) mod node_marks;
pub(crate) mod scaling;
pub mod streams_job;
pub mod streams_pod;
mod tags;

use crate::systems::View;
use crate::view::Name;
pub(crate) use host_pool::{Form, Host, HostPool, format_indices, pool_label, to_usize};
pub(crate) use node_marks::Limits;
pub(crate) use scaling::{NAME_PREFIX, ScalingPod, ScalingSet};
pub(crate) use streams_job::StreamsJob;
pub(crate) use streams_job::closure::{
    self, Claim, Closure, JobPool, Location, Operator, Unit, find_location, host_pool_spec,
    operators,
};
pub(crate) use streams_pod::{APP, APP_VALUE, PendingPod, PodDetails, is_colocation_key};
pub(crate) use tags::{TAG_KEY, TAG_PREFIX, Tags, has_tags};

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

    /// The number of nodes that have all of these tags (see [`Tags::keys`]). Without tags, the
    /// number of all nodes.
    pub(super) fn nodes_with_tags(&self, tags: &[Box<str>]) -> usize {
        if tags.is_empty() {
            return self.node_count();
        }
        self.node_marks.with_tags(tags)
    }

    /// The tags of a node (see [`Tags::keys`]).
    pub(super) fn node_tags(&self, node: &str) -> &[Box<str>] {
        self.node_marks.get(node).map_or(&[], |marks| &marks.tags)
    }

    /// The label `kubernetes.io/hostname` of a node; `None` if there is no such node, or no label.
    pub(super) fn hostname<'v>(&'v self, node: &'v str) -> Option<&'v str> {
        self.node(node)?;
        self.node_marks.hostname(node)
    }
}
