//! Reads the cluster for `check` and `map` from a kubeconfig context.

use serde_json::Value;

use super::workload::WORKLOADS;
use super::{Kind, Read, Sources};
use crate::cli::live::lists::Lists;
use crate::cli::live::policy;
use crate::cli::progress::Progress;
use stowplan_core::systems;
use stowplan_core::systems::check::{CheckedKind, Cluster, queue};
use stowplan_core::systems::policy::Policy;
use stowplan_core::view::{ControllerState, Scope};

/// Reads the objects of a namespace, or of all of them, and those without a namespace. `policy`: the
/// one that was given.
///
/// # Errors
/// Which list could not be read, and why.
pub(super) async fn read(sources: &Sources<'_>, policy: Option<Policy>) -> anyhow::Result<Read> {
    let Sources { access, namespace, all_namespaces: all, kinds, .. } = *sources;
    let asks = |is: &dyn Fn(&Kind) -> bool| kinds.is_none_or(|kinds| kinds.iter().any(is));
    let connection = access.connect().await?;
    let namespace = namespace.unwrap_or(&connection.namespace).to_owned();
    let mut cluster = Cluster::default();
    let mut lists = Lists::new(connection, namespace.clone(), all);
    let progress = Progress::begin("reading nodes");
    lists.list_nodes().await?.into_iter().for_each(|node| cluster.add_node(node));
    progress.step("reading pools, jobs, runs and volumes");
    lists.add_other_kinds(Scope::Controller, &mut cluster.view, &mut |_| {}).await?;
    let controller = lists.find_controller().await?;
    let is_present = controller.is_none_or(|state| state == ControllerState::Leads);
    cluster.view.set_controller_present(is_present);
    let mut workloads: Vec<Value> = Vec::new();
    for workload in WORKLOADS {
        if asks(&|kind| matches!(kind, Kind::Workload(of) if of.needs(workload))) {
            let without = "those without pods are not diagnosed";
            workloads.extend(lists.list_documents(&workload.resource, without).await?);
        }
    }
    // The free capacity of nodes depends on the pods of other namespaces.
    let of_all =
        |kind: &Kind| !matches!(kind, Kind::Checked(CheckedKind { needs_all_pods: false, .. }));
    let with_all_pods = asks(&of_all) || (systems::EXPLANATION.needs_all_pods)(&cluster.view);
    let without = match with_all_pods && !all {
        true => "the capacity that pods leave on nodes is not known",
        false => "no pod is diagnosed",
    };
    progress.step("reading pods");
    for pod in lists.list_pods(all || with_all_pods, without).await? {
        if all || pod.metadata.namespace.as_ref() == Some(&namespace) {
            cluster.add_pod(pod);
        } else {
            let object = systems::project(&pod, Scope::Controller);
            object.into_iter().for_each(|object| cluster.view.apply(object));
        }
    }
    lists.known.insert("Pod".to_owned());
    if cluster.pods.iter().any(queue::is_queued) {
        lists.list_workloads().await?.into_iter().for_each(|of| cluster.add_workload(of));
    }
    lists.list_events().await?.into_iter().for_each(|event| cluster.add_event(event));
    let policy = match policy {
        Some(policy) => policy,
        None => policy::read(&mut lists).await?,
    };
    drop(progress);
    lists.print_warnings();
    cluster.known = lists.known;
    Ok(Read { cluster, policy, workloads, documents: Vec::new(), namespace })
}
