//! Reads the cluster of a kubeconfig context once, for `plan --live` and `check`.

mod access;
mod lists;
pub(super) mod policy;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ApiResource;
use serde_json::Value;

use super::block_on;
use super::progress::Progress;
pub(super) use access::{Access, parse_namespace};
use lists::{Lists, WITHOUT_NODES};
use stowplan_core::systems;
use stowplan_core::systems::check::{Cluster, queue};
use stowplan_core::systems::policy::Policy;
use stowplan_core::systems::{Projected as _, TABLES, TableType, View};
use stowplan_core::view::resource::NODE;
use stowplan_core::view::{ControllerState, Scope};

/// The cluster, for `plan`.
pub(super) struct Live {
    pub(super) view: View,
    /// The policy of the cluster, unless one was given.
    pub(super) policy: Option<Policy>,
    /// The namespace of the kubeconfig context.
    pub(super) namespace: String,
    /// The part of the cluster that is not known and could change decisions.
    pub(super) unknown: Option<String>,
    /// The lists that could not be read, and what that means for the result.
    pub(super) warnings: Vec<String>,
}

/// The parts of the cluster that `plan` needs besides those that decisions depend on.
pub(super) struct Wanted<'k> {
    /// True if the policy is wanted.
    pub(super) policy: bool,
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
pub(super) fn read(
    access: &Access,
    namespace: Option<&str>,
    wanted: Wanted<'_>,
) -> anyhow::Result<Live> {
    block_on(read_for_plan(access, namespace, wanted))?.context("--live")
}

async fn read_for_plan(
    access: &Access,
    namespace: Option<&str>,
    Wanted { policy: with_policy, explanation, pods: with_pods, keep }: Wanted<'_>,
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
            if !with_pods {
                continue;
            }
            let mut document = serde_json::to_value(pod)?;
            document["apiVersion"] = "v1".into();
            document["kind"] = "Pod".into();
            keep(document);
        }
    }
    // Before the first installation a decision is shown as it would be after that.
    view.set_controller_present(lists.find_controller().await? != Some(ControllerState::Stopped));
    let policy = match with_policy {
        true => Some(policy::read(&mut lists).await?),
        false => None,
    };
    let unknown = (!lists.known.contains(NODE.kind))
        .then(|| format!("(nodes cannot be listed: {WITHOUT_NODES})"));
    Ok(Live { view, policy, namespace: of_context, unknown, warnings: lists.into_warnings() })
}

/// Adds a pod to the tables that explain decisions. The others have what the webhook knows.
fn apply_explaining(view: &mut View, pod: &Pod) {
    let explains = |table: &TableType| table.watches(Scope::Admission).is_empty();
    let tables: Vec<TableType> = TABLES.iter().copied().filter(explains).collect();
    let object = pod.project(&tables, Scope::Controller);
    object.into_iter().for_each(|object| view.apply(object));
}

/// The namespaces whose objects are asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Namespaces<'n> {
    All,
    /// The one of this name; `None`: that of the kubeconfig context.
    One(Option<&'n str>),
}

impl<'n> Namespaces<'n> {
    /// Returns the name of the one that is asked for, if the user has named one.
    pub(super) fn named(self) -> Option<&'n str> {
        match self {
            Self::All => None,
            Self::One(name) => name,
        }
    }
}

/// The part of a cluster that `check` reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'p> {
    pub(super) namespaces: Namespaces<'p>,
    /// True if the free capacity of nodes matters, and so the pods of other namespaces.
    pub(super) with_all_pods: bool,
    /// True if the policy is read, too.
    pub(super) with_policy: bool,
    /// Further kinds, with their plural names.
    pub(super) further: &'p [(ApiResource, &'static str)],
}

/// The cluster, for `check`.
pub(super) struct LiveCheck {
    pub(super) cluster: Cluster,
    /// The policy of the cluster, unless one was given.
    pub(super) policy: Option<Policy>,
    /// The namespace that was read.
    pub(super) namespace: String,
    /// The objects of the further kinds.
    pub(super) further: Vec<Value>,
    /// The lists that could not be read, and what that means for the result.
    pub(super) warnings: Vec<String>,
}

/// Reads the cluster for `check`: the objects of a namespace, and those without a namespace.
///
/// # Errors
/// Which list could not be read, and why.
pub(super) fn read_for_check(access: &Access, part: &Part<'_>) -> anyhow::Result<LiveCheck> {
    block_on(list_for_check(access, part))?
}

async fn list_for_check(access: &Access, part: &Part<'_>) -> anyhow::Result<LiveCheck> {
    let connection = access.connect().await?;
    let named = part.namespaces.named();
    let namespace = named.map_or_else(|| connection.namespace.clone(), str::to_owned);
    let all = matches!(part.namespaces, Namespaces::All);
    let mut cluster = Cluster::default();
    let mut lists = Lists::new(connection, namespace.clone(), all);
    let progress = Progress::begin("reading nodes");
    for node in lists.list_nodes().await?.into_iter().flatten() {
        cluster.add_node(node);
    }
    progress.step("reading pools, jobs, runs and volumes");
    lists.add_other_kinds(Scope::Controller, &mut cluster.view, &mut |_| {}).await?;
    let controller = lists.find_controller().await?;
    let is_present = controller.is_none_or(|state| state == ControllerState::Leads);
    cluster.view.set_controller_present(is_present);
    let mut further = Vec::new();
    for (resource, plural) in part.further {
        let without = "those without pods are not diagnosed";
        further.extend(lists.list_documents(resource, plural, without).await?);
    }
    let with_all_pods = part.with_all_pods || (systems::EXPLANATION.needs_all_pods)(&cluster.view);
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
    let policy = match part.with_policy {
        true => Some(policy::read(&mut lists).await?),
        false => None,
    };
    cluster.known.append(&mut lists.known);
    let warnings = lists.into_warnings();
    Ok(LiveCheck { cluster, policy, namespace, further, warnings })
}
