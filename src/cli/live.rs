//! Reads the cluster of a kubeconfig context once, for `plan --live`, and what `check` and `teardown` share with it.

mod access;
pub(super) mod lists;
pub(super) mod policy;

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::progress::Progress;
pub(super) use access::{Access, parse_namespace};
use lists::{Lists, WITHOUT_NODES};
use stowplan_core::systems;
use stowplan_core::systems::policy::Policy;
use stowplan_core::systems::{Projected as _, TABLES, TableType, View};
use stowplan_core::view::resource::NODE;
use stowplan_core::view::{ControllerState, Scope};

/// The cluster, for `plan`.
pub(super) struct Live {
    pub(super) view: View,
    pub(super) policy: Policy,
    /// The namespace of the kubeconfig context.
    pub(super) namespace: String,
    /// The part of the cluster that is not known and could change decisions.
    pub(super) unknown: Option<String>,
}

/// The parts of the cluster that `plan` needs besides those that decisions depend on.
pub(super) struct Wanted<'k> {
    /// The policy, if one was given.
    pub(super) policy: Option<Policy>,
    /// True if the objects that only explain decisions are wanted.
    pub(super) explanation: bool,
    /// True if all pods are wanted, as the controller sees them.
    pub(super) pods: bool,
    /// Gets each object.
    pub(super) keep: &'k mut dyn FnMut(Value),
}

/// Reads the cluster for `plan`. `namespace`: the one that is read where the user may not read all.
///
/// # Errors
/// Which list could not be read, and why.
pub(super) async fn read(
    access: &Access,
    namespace: Option<&str>,
    Wanted { policy, explanation, pods: with_pods, keep }: Wanted<'_>,
) -> anyhow::Result<Live> {
    let connection = access.connect().await?;
    let of_context = connection.namespace.clone();
    let own = namespace.map_or_else(|| of_context.clone(), str::to_owned);
    let mut lists = Lists::new(connection, own, true);
    let mut view = View::default();
    let progress = Progress::begin("reading nodes and pods");
    lists.add_nodes_and_pods(&mut view, keep).await?;
    progress.step("reading pools, jobs, runs and volumes");
    lists.add_other_kinds(Scope::Admission, &mut view, keep).await?;
    if explanation {
        lists.add_explaining_kinds(&mut view).await?;
    }
    let explains = explanation && (systems::EXPLANATION.needs_all_pods)(&view);
    if with_pods || explains {
        progress.step("reading all pods");
        let without = match with_pods {
            true => "the pools of the input may get nodes that other pods occupy",
            false => "the pods on NUMA nodes are not known",
        };
        for pod in lists.list_pods(true, without).await? {
            if explains {
                apply_explaining(&mut view, &pod);
            }
            if with_pods {
                keep(serde_json::to_value(pod)?);
            }
        }
    }
    // Before the first installation a decision is shown as it would be after that.
    view.set_controller_present(lists.find_controller().await? != Some(ControllerState::Stopped));
    let policy = match policy {
        Some(policy) => policy,
        None => policy::read(&mut lists).await?,
    };
    let unknown = (!lists.known.contains(NODE.kind))
        .then(|| format!("(nodes cannot be listed: {WITHOUT_NODES})"));
    drop(progress);
    lists.print_warnings();
    Ok(Live { view, policy, namespace: of_context, unknown })
}

/// Adds a pod to the tables that explain decisions. The others have what the webhook knows.
fn apply_explaining(view: &mut View, pod: &Pod) {
    let explains = |table: &TableType| table.watches(Scope::Admission).is_empty();
    let tables: Vec<TableType> = TABLES.iter().copied().filter(explains).collect();
    let object = pod.project(&tables, Scope::Controller);
    object.into_iter().for_each(|object| view.apply(object));
}
