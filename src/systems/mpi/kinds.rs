//! The kinds of objects that MPI clusters read: for each the fields that are kept, and its table. Only
//! the controller keeps them: the webhook decides about a pod by the pod alone.

pub(crate) mod pod;
pub(crate) mod service;
pub(crate) mod workload;

use std::collections::BTreeSet;

use crate::view::{Name, View};
use pod::{MpiPod, MpiPods};
use service::{
    ClusterConfigMap, ClusterConfigMaps, ClusterService, ClusterServices, EndpointSlices, Endpoints,
};
use workload::{MpiJobs, MpiSets, Workload};

/// The queries of MPI clusters to a View. A cluster is a name in a namespace.
pub(crate) trait MpiView {
    /// All clusters with a workload or a pod.
    fn mpi_clusters(&self) -> BTreeSet<Name>;

    /// The workloads of a cluster, sorted by kind and name.
    fn workloads_of_cluster(&self, cluster: &Name) -> Vec<(&Name, &Workload)>;

    /// The pods of a cluster, sorted by name.
    fn pods_of_cluster(&self, cluster: &Name) -> Vec<(&Name, &MpiPod)>;

    /// A Service that stowplan made for a cluster.
    fn cluster_service(&self, name: &Name) -> Option<&ClusterService>;

    /// A ConfigMap that stowplan made for a cluster.
    fn cluster_config_map(&self, name: &Name) -> Option<&ClusterConfigMap>;

    /// The hostnames for which a Service has DNS records.
    fn hostnames_of_service(&self, service: &Name) -> BTreeSet<&str>;
}

impl MpiView for View {
    fn mpi_clusters(&self) -> BTreeSet<Name> {
        let pods = self.table::<MpiPods>().into_iter().flat_map(|table| table.iter());
        let of_pods = pods.map(|(name, pod)| Name::new(&name.namespace, &pod.cluster));
        let jobs = self.table::<MpiJobs>().into_iter().flat_map(|table| table.iter());
        let of_jobs = jobs.map(|(name, job)| job.0.cluster(name));
        let sets = self.table::<MpiSets>().into_iter().flat_map(|table| table.iter());
        let of_sets = sets.map(|(name, set)| set.0.cluster(name));
        of_pods.chain(of_jobs).chain(of_sets).collect()
    }

    fn workloads_of_cluster(&self, cluster: &Name) -> Vec<(&Name, &Workload)> {
        let jobs = self.table::<MpiJobs>().into_iter();
        let jobs = jobs.flat_map(|table| {
            let names = table.index().get(cluster);
            names.filter_map(|name| table.get_key_value(name)).map(|(name, job)| (name, &job.0))
        });
        let sets = self.table::<MpiSets>().into_iter();
        let sets = sets.flat_map(|table| {
            let names = table.index().get(cluster);
            names.filter_map(|name| table.get_key_value(name)).map(|(name, set)| (name, &set.0))
        });
        let pods = self.pods_of_cluster(cluster).into_iter();
        let alone = pods.filter_map(|(name, pod)| Some((name, pod.alone.as_deref()?)));
        let mut workloads: Vec<_> = jobs.chain(sets).chain(alone).collect();
        workloads.sort_unstable_by_key(|(name, of)| (of.resource.kind, *name));
        workloads
    }

    fn pods_of_cluster(&self, cluster: &Name) -> Vec<(&Name, &MpiPod)> {
        let Some(table) = self.table::<MpiPods>() else { return Vec::new() };
        let names = table.index().get(cluster);
        let mut pods: Vec<_> = names.filter_map(|name| table.get_key_value(name)).collect();
        pods.sort_unstable_by_key(|(name, _)| *name);
        pods
    }

    fn cluster_service(&self, name: &Name) -> Option<&ClusterService> {
        self.table::<ClusterServices>()?.get(name)
    }

    fn cluster_config_map(&self, name: &Name) -> Option<&ClusterConfigMap> {
        self.table::<ClusterConfigMaps>()?.get(name)
    }

    fn hostnames_of_service(&self, service: &Name) -> BTreeSet<&str> {
        let Some(table) = self.table::<EndpointSlices>() else { return BTreeSet::new() };
        let slices = table.index().get(service).filter_map(|name| table.get(name));
        slices.flat_map(|Endpoints { hostnames, .. }| hostnames).map(AsRef::as_ref).collect()
    }
}
