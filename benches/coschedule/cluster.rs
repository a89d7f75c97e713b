//! A control plane with stowplan and Tekton's definitions, and the queries of all parts.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, future};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;
use stowplan_core::systems::coschedule::keys::{GATE, GROUP};
use testbed::control_plane::{NodeSpec, Options};
use testbed::tekton;
use testbed::wait::{Seen, until};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::plane::{self, Cluster, LIMIT, NAMESPACE};

/// The priority class that the chart creates for placeholders.
pub(crate) const CLASS: &str = "stowplan-placeholder";

pub(crate) const SCHEDULER: &str = "kube-scheduler";

/// The field selector of pods with a node.
pub(crate) const PLACED: &str = "spec.nodeName!=";

/// How a member follows its placeholder: the policy's `coschedule.binding`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Binding {
    Affinity,
    Node,
}

/// Has `measure` measure on a control plane with these nodes, stowplan and a controller. Scheduler and
/// controller manager keep their own limits, or have none.
pub(crate) async fn with_cluster<T>(
    nodes: Vec<NodeSpec>,
    own_limits: bool,
    measure: impl AsyncFnOnce(&mut Cluster<'_>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    plane::with_plane(Options { nodes, own_limits, ..Options::default() }, async |plane| {
        // First: the controller looks for new definitions only from time to time.
        tekton::install(&plane.client().await?).await?;
        let mut cluster = Cluster::new(plane, plane::install()).await?;
        cluster.start_controller().await?;
        measure(&mut cluster).await
    })
    .await
}

impl Cluster<'_> {
    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub(crate) fn placeholders(&self) -> Api<StatefulSet> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Gives webhook and controller a policy with this binding and this priority class of
    /// placeholders, under which native groups stay for as long as the bench runs, and waits until
    /// pods are admitted by it.
    pub(crate) async fn bind_by(&self, binding: Binding, class: &str) -> anyhow::Result<()> {
        let word = if binding == Binding::Node { "node" } else { "affinity" };
        let policy = json!({"coschedule": {
            "binding": word, "groupTTL": "24h", "placeholder": {"priorityClassName": class},
        }});
        self.installation.set_policy(&policy.to_string()).await?;
        // A pod of a group without placeholder gets a gate, and under `affinity` the term.
        let trial = serde_json::from_value(json!({
            "metadata": {"name": "trial", "annotations": {GROUP: "trial"}},
            "spec": {"containers": [{"name": "trial", "image": "trial"}]},
        }))?;
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        until("the policy to be read", LIMIT, async || {
            let pod = self.pods().create(&dry_run, &trial).await?;
            let is_bound = is_gated(&pod) && has_term(&pod) == (binding == Binding::Affinity);
            Ok(Seen::when(is_bound, || format!("a pod of a group is given {:?}", pod.spec)))
        })
        .await
    }

    /// Waits until there are this many pods that `which` selects.
    pub(crate) async fn pods_are(&self, count: usize, which: &ListParams) -> anyhow::Result<()> {
        self.objects_are(count, &self.pods(), which).await
    }

    /// Waits until there are this many objects that `which` selects.
    pub(crate) async fn objects_are<K: Clone + Debug + DeserializeOwned + Resource>(
        &self,
        count: usize,
        api: &Api<K>,
        which: &ListParams,
    ) -> anyhow::Result<()> {
        let selectors = (&which.label_selector, &which.field_selector);
        let what = format!("objects at {} with {selectors:?}", api.resource_url());
        self.until_there_are(count, &what, async || Ok(api.list_metadata(which).await?.items.len()))
            .await
    }

    /// Waits until `placed` has this many pods.
    pub(crate) async fn are_placed(&self, pods: usize, placed: &Times) -> anyhow::Result<()> {
        let what = format!("placed pods of {NAMESPACE}");
        self.until_there_are(pods, &what, async || Ok(placed.seen().len())).await
    }

    /// How many of the pods that `which` selects are not on the node where most of their group
    /// (`group_of`) are. A pod without a group or a node is an error, and so is another number of
    /// groups.
    pub(crate) async fn apart(
        &self,
        which: &ListParams,
        wanted: usize,
        group_of: impl Fn(&Pod) -> Option<String>,
    ) -> anyhow::Result<usize> {
        let mut groups: HashMap<String, HashMap<String, usize>> = HashMap::new();
        for pod in self.pods().list(which).await? {
            let name = pod.metadata.name.clone().unwrap_or_default();
            let group = group_of(&pod).with_context(|| format!("pod {name} has no group"))?;
            let node = pod.spec.and_then(|spec| spec.node_name);
            let node = node.with_context(|| format!("pod {name} has no node"))?;
            *groups.entry(group).or_default().entry(node).or_default() += 1;
        }
        ensure!(groups.len() == wanted, "{} groups were placed", groups.len());
        let nodes = groups.values();
        Ok(nodes.map(|of| of.values().sum::<usize>() - of.values().max().unwrap_or(&0)).sum())
    }

    /// Checks that the members of each of so many native groups are on one node.
    pub(crate) async fn groups_are_together(
        &self,
        which: &ListParams,
        groups: usize,
    ) -> anyhow::Result<()> {
        let group_of = |pod: &Pod| pod.metadata.annotations.as_ref()?.get(GROUP).cloned();
        let apart = self.apart(which, groups, group_of).await?;
        ensure!(apart == 0, "{apart} pods are not with their group");
        Ok(())
    }

    /// Watches objects, and of them no more than the metadata: little to decode, so that it is not the
    /// watch that is measured. `name` is what an object is noted by; `None`: it is not.
    pub(crate) fn watch<K>(
        &self,
        labels: &str,
        fields: Option<&str>,
        name: impl Fn(&PartialObjectMeta<K>) -> Option<String> + Send + 'static,
    ) -> Times
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + Debug + Send + Sync + DeserializeOwned + 'static,
    {
        let mut config = watcher::Config::default().labels(labels);
        config.field_selector = fields.map(str::to_owned);
        let api = Api::<PartialObjectMeta<K>>::namespaced(self.client.clone(), NAMESPACE);
        let changes = watcher(api, config).default_backoff().touched_objects();
        let times = Arc::<Mutex<HashMap<String, Instant>>>::default();
        let mut watch = JoinSet::new();
        let noted = Arc::clone(&times);
        watch.spawn(changes.for_each(move |object| {
            if let Some(name) = object.ok().and_then(|object| name(&object)) {
                let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
                noted.entry(name).or_insert_with(Instant::now);
            }
            future::ready(())
        }));
        Times { times, _watch: watch }
    }
}

/// When a watch has first seen objects, by name.
pub(crate) struct Times {
    times: Arc<Mutex<HashMap<String, Instant>>>,
    _watch: JoinSet<()>,
}

impl Times {
    pub(crate) fn seen(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Returns true if a pod was given a required pod-affinity term.
pub(crate) fn has_term(pod: &Pod) -> bool {
    json!(pod)["spec"]["affinity"]["podAffinity"][REQUIRED].is_array()
}

/// Returns true if a pod was bound to a node by name.
pub(crate) fn has_node(pod: &Pod) -> bool {
    let required = &json!(pod)["spec"]["affinity"]["nodeAffinity"][REQUIRED];
    let terms = required["nodeSelectorTerms"].as_array();
    terms.is_some_and(|terms| {
        !terms.is_empty() && terms.iter().all(|term| term["matchFields"].is_array())
    })
}

/// Returns true if a pod waits until its placeholder has a node.
pub(crate) fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    gates.map(|gate| &*gate.name).any(|gate| gate == GATE)
}
