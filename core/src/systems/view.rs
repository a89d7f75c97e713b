//! The View: the state of the cluster that decisions read, with one table for each projection of a kind.
//!
//! A kind is one resource of the API server. Several tables may read it: one system reads the job of a pod,
//! another the resources that the pod uses on its node. Watches (`cluster`) and files (`cli`) fill the View
//! by [`View::apply`], so that both read objects in the same way, and all tables of a kind show the same
//! state of an object.

mod object;
mod queries;

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_core::Resource as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::coschedule::kinds::NamespaceModes;
use super::coschedule::kinds::member::Members;
use super::coschedule::kinds::mounts::Mounts;
use super::coschedule::kinds::pipeline::{NamedPipeline, Pipelines};
use super::coschedule::kinds::pipeline_run::{PipelineRun, PipelineRuns};
use super::coschedule::kinds::placeholder::{PlaceholderPods, Placeholders};
use super::coschedule::kinds::storage::{Claims, StorageClasses, Volumes};
use super::coschedule::kinds::task::{Task, Tasks};
use super::coschedule::kinds::task_run::{TaskRun, TaskRuns};
use super::katalyst::kinds::node::{NodesInFull, NumaNodes};
use super::katalyst::kinds::pod::NumaPods;
use super::katalyst::kinds::topology::{Topologies, Topology};
use super::mpi::kinds::pod::MpiPods;
use super::mpi::kinds::service::{ClusterConfigMaps, ClusterServices, EndpointSlices};
use super::mpi::kinds::workload::{MpiJobs, MpiSets};
use super::streams::api;
use super::streams::kinds::companions::Companions;
use super::streams::kinds::host_pool::HostPools;
use super::streams::kinds::node_marks::NodeMarks;
use super::streams::kinds::scaling::{ScalingPods, ScalingSets};
use super::streams::kinds::streams_job::StreamsJobs;
use super::streams::kinds::streams_pod::StreamsPods;
use crate::view::document::Foreign;
use crate::view::rows::TableRow as _;
use crate::view::table::{ApiType, Watch};
use crate::view::{
    ControllerState, Identity, Kind, Name, Namespaces, Nodes, Resource, Scope, Table, Usages,
};
pub use object::Object;

/// Builds the View of these tables, by the types of the objects that they read.
macro_rules! tables {
    ($($object:ty { $($field:ident: $table:ident,)* })*) => {
        /// The known state of the cluster.
        ///
        /// Each object takes a few hundred bytes, for clusters of ten thousand nodes and ten times as many
        /// pods. Texts that many objects share (jobs, groups, sets of tags, node names) are stored once.
        #[derive(Debug, Default)]
        pub struct View {
            $($(pub(super) $field: $table,)*)*
            kinds: BTreeMap<Resource, KindState>,
            controller: ControllerState,
        }

        /// A table of the View, as a value.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum TableType { $($($table,)*)* }

        /// All tables of the View.
        pub static TABLES: &[TableType] = &[$($(TableType::$table,)*)*];

        /// The row of a table.
        #[derive(Clone, Debug)]
        enum Row { $($($table(<$table as Table>::Row),)*)* }

        $(impl Projected for $object {
            fn project(&self, tables: &[TableType], scope: Scope) -> Option<Object> {
                Object::of(self.meta(), tables, |table| match table {
                    $(TableType::$table => Some(
                        <$table as Table>::Row::from_object(self, scope).map(Row::$table),
                    ),)*
                    _ => None,
                })
            }
        })*

        impl TableType {
            /// The kind of the table's objects.
            #[must_use]
            pub fn kind(self) -> &'static Kind {
                match self { $($(Self::$table => <$table as Table>::Row::KIND,)*)* }
            }

            /// The watches that feed the table.
            #[must_use]
            pub fn watches(self, scope: Scope) -> Vec<Watch> {
                match self { $($(Self::$table => <$table as Table>::Row::watches(scope),)*)* }
            }

            /// Calls `visitor` with the type of the table's objects.
            pub fn visit(self, visitor: impl TypeVisitor) {
                match self { $($(Self::$table)|* => visitor.visit::<$object>(),)* }
            }

            fn counted_as(self) -> Option<&'static str> {
                match self { $($(Self::$table => <$table as Table>::Row::COUNTED_AS,)*)* }
            }

            fn unreadable(self, metadata: &ObjectMeta, problem: &str) -> Option<Row> {
                match self {
                    $($(Self::$table => {
                        <$table as Table>::Row::from_unreadable(metadata, problem).map(Row::$table)
                    })*)*
                }
            }

            /// Reads a document of the table's kind for all tables.
            fn decode(self, document: Value, scope: Scope) -> Result<Option<Object>, String> {
                match self {
                    $($(Self::$table)|* => object::decode::<$object>(self.kind(), document, scope),)*
                }
            }
        }

        impl View {
            /// Puts a row into its table; returns true if that then shows something else.
            fn put(&mut self, name: &Name, row: Row) -> bool {
                match row { $($(Row::$table(row) => self.$field.replace(name, Some(row)),)*)* }
            }

            /// Removes a row of a table; returns true if the table had it.
            fn remove(&mut self, table: TableType, name: &Name) -> bool {
                match table { $($(TableType::$table => self.$field.replace(name, None),)*)* }
            }

            fn version_in(&self, table: TableType, name: &Name) -> Option<&Identity> {
                match table { $($(TableType::$table => self.$field.version(name),)*)* }
            }

            fn count(&self, table: TableType) -> usize {
                match table { $($(TableType::$table => self.$field.count(),)*)* }
            }
        }
    };
}

// Kinds are listed and reported in this order. That of pods comes last, because its watches read the most
// objects.
tables! {
    core::Node {
        nodes: Nodes,
        node_marks: NodeMarks,
        numa_nodes: NumaNodes,
        nodes_in_full: NodesInFull,
    }
    core::Namespace {
        namespaces: Namespaces,
        namespace_modes: NamespaceModes,
    }
    api::HostPool { host_pools: HostPools, }
    api::StreamsJob { streams_jobs: StreamsJobs, }
    Foreign<TaskRun> { task_runs: TaskRuns, }
    Foreign<PipelineRun> { pipeline_runs: PipelineRuns, }
    Foreign<NamedPipeline> { pipelines: Pipelines, }
    Foreign<Task> { tasks: Tasks, }
    core::PersistentVolumeClaim { claims: Claims, }
    core::PersistentVolume { volumes: Volumes, }
    StorageClass { storage_classes: StorageClasses, }
    StatefulSet {
        placeholders: Placeholders,
        mpi_sets: MpiSets,
        scaling_sets: ScalingSets,
    }
    Job { mpi_jobs: MpiJobs, }
    core::Service { cluster_services: ClusterServices, }
    core::ConfigMap { cluster_config_maps: ClusterConfigMaps, }
    EndpointSlice { endpoint_slices: EndpointSlices, }
    Foreign<Topology> { topologies: Topologies, }
    core::Pod {
        mpi_pods: MpiPods,
        numa_pods: NumaPods,
        streams_pods: StreamsPods,
        scaling_pods: ScalingPods,
        companions: Companions,
        placeholder_pods: PlaceholderPods,
        members: Members,
        usages: Usages,
        mounts: Mounts,
    }
}

/// A type of the API server's objects that tables of the View read.
pub trait Projected:
    kube_core::Resource<DynamicType: ApiType> + DeserializeOwned + Clone + Debug + Send + Sync + 'static
{
    /// Reads the object for those of `tables` that read its type. `None`: no table keeps it, or it has no
    /// name, which never comes from an API server.
    fn project(&self, tables: &[TableType], scope: Scope) -> Option<Object>;
}

/// A generic function over the types of objects.
pub trait TypeVisitor {
    /// Called with the type of the objects.
    fn visit<K: Projected>(self);
}

/// The tables of a kind.
fn tables_of(resource: &Resource) -> impl Iterator<Item = TableType> {
    TABLES.iter().copied().filter(|table| table.kind().resource == *resource)
}

/// The state of a kind, apart from its objects.
#[derive(Debug, Default)]
struct KindState {
    /// Counts the changes of what the tables of the kind show.
    revision: u64,
    /// True if a watch has reported that the cluster does not serve the kind.
    is_unserved: bool,
}

impl View {
    /// Adds or replaces an object in every table of its kind.
    pub fn apply(&mut self, object: Object) {
        self.update(object);
    }

    /// Does what [`Self::apply`] does, and returns whether a table then shows something else than
    /// another version of the object.
    pub fn update(&mut self, object: Object) -> bool {
        let Object { kind, name, facets, .. } = object;
        let mut has_changed = false;
        for (table, row) in facets {
            has_changed |= match row {
                Some(row) => self.put(&name, row),
                None => self.remove(table, &name),
            };
        }
        self.count_change(&kind.resource, has_changed);
        has_changed
    }

    fn count_change(&mut self, resource: &Resource, has_changed: bool) {
        if has_changed {
            self.kinds.entry(*resource).or_default().revision += 1;
        }
    }

    /// Counts the changes of what the tables of these kinds show, except for the versions of objects.
    #[must_use]
    pub(crate) fn revision(&self, kinds: &[Resource]) -> u64 {
        kinds.iter().filter_map(|kind| self.kinds.get(kind)).map(|kind| kind.revision).sum()
    }

    /// Removes an object from all tables of its kind.
    pub fn forget(&mut self, resource: &Resource, name: &Name) {
        self.forget_in(tables_of(resource), name);
    }

    /// Removes an object from these tables, because it no longer matches what they read.
    pub fn forget_in(&mut self, tables: impl IntoIterator<Item = TableType>, name: &Name) {
        for table in tables {
            let has_changed = self.remove(table, name);
            self.count_change(&table.kind().resource, has_changed);
        }
    }

    /// Applies the object that the API server returned for one of stowplan's writes, so that the
    /// next plan contains it. Ignored if the object was deleted meanwhile, also if another one has
    /// its name by now, or a later version is known: no watch would correct that. Returns true if it was applied.
    pub fn learn(&mut self, object: Object) -> bool {
        let own = object.identity();
        let known = self.version(&object).filter(|known| known.uid == own.uid);
        let is_newer = known.is_some_and(|known| !own.is_older_than(known));
        if is_newer {
            self.apply(object);
        }
        is_newer
    }

    /// Returns true if a later version of `object` is known already, so that a watch reports an outdated
    /// one.
    #[must_use]
    pub fn outdates(&self, object: &Object) -> bool {
        self.version(object).is_some_and(|known| object.identity().is_older_than(known))
    }

    /// The known version of `object`.
    fn version(&self, object: &Object) -> Option<&Identity> {
        object.facets.iter().find_map(|(table, _)| self.version_in(*table, object.name()))
    }

    /// The number of objects of each table that metrics count, with the table's name in metrics.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, usize)> {
        TABLES.iter().filter_map(|table| Some((table.counted_as()?, self.count(*table))))
    }

    /// Records whether the cluster serves a kind; returns whether that has changed.
    pub fn set_served(&mut self, resource: &Resource, served: bool) -> bool {
        let kind = self.kinds.entry(*resource).or_default();
        let has_changed = kind.is_unserved == served;
        kind.is_unserved = !served;
        self.count_change(resource, has_changed);
        has_changed
    }

    /// Returns whether the cluster serves a kind. True until a watch reports otherwise.
    #[must_use]
    pub(crate) fn serves(&self, resource: &Resource) -> bool {
        !self.kinds.get(resource).is_some_and(|kind| kind.is_unserved)
    }
}

#[cfg(test)]
impl View {
    /// The number of objects in all tables.
    pub(crate) fn held(&self) -> usize {
        TABLES.iter().map(|table| self.count(*table)).sum()
    }
}
