//! The kinds of objects that MPI clusters read: for each the fields that are kept, and its table. Only
//! the controller keeps them: the webhook decides about a pod by the pod alone.

pub(crate) mod pod;
pub(crate) mod service;
pub(crate) mod workload;

use std::collections::BTreeSet;

use crate::systems::View;
use crate::view::Name;
use crate::view::index::Sets;
use crate::view::rows::Rows;
use pod::MpiPod;
use service::{ClusterConfigMap, ClusterService, Endpoints};
use workload::Workload;

/// The clusters of the rows of a table.
fn clusters_of<R>(rows: &Rows<R, Sets<Name>>) -> impl Iterator<Item = Name> {
    rows.index().keys().cloned()
}

/// The rows of a cluster, sorted by name.
fn rows_of<'v, R>(
    rows: &'v Rows<R, Sets<Name>>,
    cluster: &Name,
) -> impl Iterator<Item = (&'v Name, &'v R)> {
    rows.index().get(cluster).filter_map(|name| rows.get_key_value(name))
}

/// The queries of MPI clusters to a View. A cluster is a name in a namespace.
impl View {
    /// All clusters with a workload or a pod.
    pub(super) fn mpi_clusters(&self) -> BTreeSet<Name> {
        let of_workloads = clusters_of(&self.mpi_jobs).chain(clusters_of(&self.mpi_sets));
        of_workloads.chain(clusters_of(&self.mpi_pods)).collect()
    }

    /// The workloads of a cluster, sorted by kind and name.
    pub(super) fn workloads_of_cluster(&self, cluster: &Name) -> Vec<(&Name, &Workload)> {
        let jobs = rows_of(&self.mpi_jobs, cluster).map(|(name, job)| (name, &job.0));
        let sets = rows_of(&self.mpi_sets, cluster).map(|(name, set)| (name, &set.0));
        let pods = rows_of(&self.mpi_pods, cluster);
        let alone = pods.filter_map(|(name, pod)| Some((name, pod.alone.as_deref()?)));
        let mut workloads: Vec<_> = jobs.chain(sets).chain(alone).collect();
        workloads.sort_unstable_by_key(|(name, of)| (of.resource.kind, *name));
        workloads
    }

    /// The pods of a cluster, sorted by name.
    pub(super) fn pods_of_cluster(&self, cluster: &Name) -> Vec<(&Name, &MpiPod)> {
        rows_of(&self.mpi_pods, cluster).collect()
    }

    /// A Service that stowplan made for a cluster.
    pub(super) fn cluster_service(&self, name: &Name) -> Option<&ClusterService> {
        self.cluster_services.get(name)
    }

    /// A ConfigMap that stowplan made for a cluster.
    pub(super) fn cluster_config_map(&self, name: &Name) -> Option<&ClusterConfigMap> {
        self.cluster_config_maps.get(name)
    }

    /// The hostnames for which a Service has DNS records.
    pub(super) fn hostnames_of_service(&self, service: &Name) -> BTreeSet<&str> {
        let slices = &self.endpoint_slices;
        let slices = slices.index().get(service).filter_map(|name| slices.get(name));
        slices.flat_map(|Endpoints { hostnames, .. }| hostnames).map(AsRef::as_ref).collect()
    }
}
