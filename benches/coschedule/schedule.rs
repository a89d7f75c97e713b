//! Placements a second: the members of groups, bound by term and by node, and the same pods without
//! a group.
//!
//! The scheduler is paused while the pods are created, so that it finds all of them at once; the
//! controller is paused while they are placed, as if it had a machine of its own. A watch of placed
//! pods shows when each got its node.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use stowplan::testing::systems::coschedule::keys::GROUP;
use stowplan::testing::systems::coschedule::keys::PLACEHOLDER;
use testbed::control_plane::NodeSpec;
use testbed::wait::{Seen, until};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::Extent;
use crate::cluster::{Binding, Cluster, apart, has_node, has_term, is_gated};
use crate::plane::{CONTROLLER, LIMIT, NAMESPACE, at_once, leading};
use crate::table::{Table, count, ratio};

/// The members of a group.
pub(crate) const SIZE: usize = 5;

/// The label of the pods that are placed.
const QUEUED: &str = "bench=queued";

/// The label of the pods that have placeholders made.
const FIRST: &str = "bench=first";

const SCHEDULER: &str = "kube-scheduler";

/// Before the scheduler goes on: until others have done what the pods made them do.
const REST: Duration = Duration::from_secs(2);

/// Whose pods are placed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Contender {
    /// Pods without a group, in a cluster without placeholders.
    Without,
    /// The same, beside the placeholders of others.
    Beside,
    ByTerm,
    ByNode,
}

impl Contender {
    const ALL: [Self; 4] = [Self::Without, Self::Beside, Self::ByTerm, Self::ByNode];

    /// Those that are measured while placeholders are there.
    const WITH_PLACEHOLDERS: [Self; 3] = [Self::Beside, Self::ByTerm, Self::ByNode];

    fn label(self) -> &'static str {
        match self {
            Self::Without => "without coscheduling",
            Self::Beside => "without a group, beside placeholders",
            Self::ByTerm => "members, `binding: affinity`",
            Self::ByNode => "members, `binding: node`",
        }
    }

    /// How its pods are bound to their placeholders; none, if they have no group.
    fn binding(self) -> Option<Binding> {
        match self {
            Self::Without | Self::Beside => None,
            Self::ByTerm => Some(Binding::Affinity),
            Self::ByNode => Some(Binding::Node),
        }
    }
}

/// Starts a control plane, counts on it, and stops it even after an error.
pub(crate) async fn measure(extent: Extent) -> anyhow::Result<()> {
    let cluster = Cluster::start(NodeSpec::numbered(extent.nodes), false).await?;
    let measured = Bench { cluster: &cluster, groups: extent.groups }.rounds(extent).await;
    cluster.stop(measured.is_err()).await;
    print(extent, &measured?);
    Ok(())
}

/// Placements a second of one round.
type Round = HashMap<&'static str, f64>;

fn print(extent: Extent, rounds: &[Round]) {
    let mut table = Table::new(&["pods", "pods/s", "against without coscheduling, same round"]);
    for contender in Contender::ALL {
        let of = |contender: Contender| {
            rounds.iter().filter_map(move |round| round.get(contender.label()).copied())
        };
        let against = of(contender).zip(of(Contender::Without)).map(|(rate, base)| rate / base);
        table.row([
            contender.label().to_owned(),
            spread(of(contender).collect(), count),
            spread(against.collect(), ratio),
        ]);
    }
    table.print(&format!(
        "Placements a second: {} pods in {} groups, {} nodes; median of {} rounds (range)",
        count((extent.groups * SIZE) as f64),
        extent.groups,
        count(f64::from(extent.nodes)),
        rounds.len()
    ));
}

/// The median, and in brackets the lowest and the highest.
pub(crate) fn spread(mut values: Vec<f64>, shown: impl Fn(f64) -> String) -> String {
    values.sort_by(f64::total_cmp);
    let (Some(lowest), Some(highest)) = (values.first(), values.last()) else {
        return "-".to_owned();
    };
    let half = values.len() / 2;
    let median = match values.len().is_multiple_of(2) {
        true => f64::midpoint(values[half - 1], values[half]),
        false => values[half],
    };
    format!("{} ({}-{})", shown(median), shown(*lowest), shown(*highest))
}

pub(crate) struct Bench<'c> {
    pub(crate) cluster: &'c Cluster,
    pub(crate) groups: usize,
}

impl Bench<'_> {
    async fn rounds(&self, extent: Extent) -> anyhow::Result<Vec<Round>> {
        let mut rounds = Vec::new();
        for number in 0..extent.rounds {
            let mut round = Round::new();
            let is_first = number.is_multiple_of(2);
            if is_first {
                self.turn(Contender::Without, &mut round).await?;
            }
            self.gather().await?;
            let mut contenders = Contender::WITH_PLACEHOLDERS;
            let turn = number % contenders.len();
            contenders.rotate_left(turn);
            for contender in contenders {
                self.turn(contender, &mut round).await?;
            }
            self.disperse().await?;
            if !is_first {
                self.turn(Contender::Without, &mut round).await?;
            }
            rounds.push(round);
        }
        Ok(rounds)
    }

    /// Has a placeholder made and placed for each group: by a first member, which goes again.
    pub(crate) async fn gather(&self) -> anyhow::Result<()> {
        self.cluster.bind_by(Binding::Affinity).await?;
        at_once((0..self.groups).map(|group| self.create(group, 0, FIRST, true))).await?;
        let placed = ListParams::default().labels(PLACEHOLDER).fields("spec.nodeName!=");
        self.cluster.pods_are(self.groups, &placed).await?;
        let first = ListParams::default().labels(FIRST);
        self.cluster.pods_are(self.groups, &first.clone().fields("spec.nodeName!=")).await?;
        self.delete(&first).await
    }

    /// Removes the placeholders, whose groups would else stay for as long as the policy says.
    pub(crate) async fn disperse(&self) -> anyhow::Result<()> {
        let all = ListParams::default().labels(PLACEHOLDER);
        let placeholders = self.cluster.placeholders();
        placeholders.delete_collection(&DeleteParams::background(), &all).await?;
        self.cluster.pods_are(0, &all).await
    }

    /// Pods of a contender: created while the scheduler is paused, then placed.
    async fn turn(&self, contender: Contender, round: &mut Round) -> anyhow::Result<()> {
        let cluster = self.cluster;
        if let Some(binding) = contender.binding() {
            cluster.bind_by(binding).await?;
        }
        let pods = self.groups * SIZE;
        let placements = Placements::follow(cluster);
        cluster.plane.pause(SCHEDULER).await?;
        let grouped = contender.binding().is_some();
        let wanted = (0..pods).map(|pod| (pod % self.groups, pod / self.groups));
        at_once(wanted.map(|(group, index)| self.create(group, index, QUEUED, grouped))).await?;
        let queued = ListParams::default().labels(QUEUED);
        for pod in cluster.pods().list(&queued).await? {
            let got = match contender.binding() {
                None => !has_term(&pod) && !has_node(&pod),
                Some(Binding::Affinity) => has_term(&pod) && !has_node(&pod),
                Some(Binding::Node) => has_node(&pod) && !has_term(&pod),
            };
            ensure!(got && !is_gated(&pod), "{contender:?}: a pod was admitted as {:?}", pod.spec);
        }
        sleep(REST).await;
        cluster.installation.pause_controller(CONTROLLER).await?;
        ensure!(placements.count() == 0, "a pod was placed without a scheduler");

        cluster.plane.resume(SCHEDULER)?;
        let rate = placements.rate(pods).await;
        cluster.installation.continue_controller(CONTROLLER).await?;
        let rate = rate.with_context(|| format!("pods {}", contender.label()))?;
        if grouped {
            let group_of = |pod: &Pod| pod.metadata.annotations.as_ref()?.get(GROUP).cloned();
            let groups = cluster.groups(&queued, group_of).await?;
            ensure!(groups.len() == self.groups, "{} groups were placed", groups.len());
            ensure!(apart(&groups) == 0, "{} pods are not with their group", apart(&groups));
        }
        self.delete(&queued).await?;
        leading(&cluster.installation).await?;
        eprintln!("{}: {} pods/s", contender.label(), count(rate));
        round.insert(contender.label(), rate);
        Ok(())
    }

    /// Makes a pod of a group; without it, if it is not to have one, else the same.
    pub(crate) async fn create(
        &self,
        group: usize,
        index: usize,
        label: &str,
        grouped: bool,
    ) -> anyhow::Result<()> {
        let (key, value) = label.split_once('=').context("a label is KEY=VALUE")?;
        let group = format!("group-{group}");
        let key_of_group = if grouped { GROUP } else { "example.com/group" };
        let pod = serde_json::from_value(json!({
            "metadata": {
                "name": format!("{group}-{value}-{index}"),
                "labels": {key: value},
                "annotations": {key_of_group: group},
            },
            "spec": {
                "containers": [{
                    "name": "task", "image": "example.com/task",
                    "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
                }],
            },
        }))?;
        self.cluster.pods().create(&PostParams::default(), &pod).await?;
        Ok(())
    }

    pub(crate) async fn delete(&self, which: &ListParams) -> anyhow::Result<()> {
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.cluster.pods().delete_collection(&now, which).await?;
        self.cluster.pods_are(0, which).await
    }
}

/// When pods got their nodes, by name.
struct Placements {
    seen: Arc<Mutex<HashMap<String, Instant>>>,
    watch: JoinHandle<()>,
}

impl Placements {
    /// Watches pods that have a node, and of them no more than the metadata: little to decode, so
    /// that it is not the watch that is measured.
    fn follow(cluster: &Cluster) -> Self {
        let seen = Arc::<Mutex<HashMap<String, Instant>>>::default();
        let config = watcher::Config::default().labels(QUEUED).fields("spec.nodeName!=");
        let api = Api::<PartialObjectMeta<Pod>>::namespaced(cluster.client.clone(), NAMESPACE);
        let placed = watcher(api, config).default_backoff().touched_objects();
        let note = Arc::clone(&seen);
        let watch = tokio::spawn(placed.for_each(move |pod| {
            if let Ok(pod) = pod {
                let mut note = note.lock().unwrap_or_else(PoisonError::into_inner);
                note.entry(pod.name_any()).or_insert_with(Instant::now);
            }
            futures::future::ready(())
        }));
        Self { seen, watch }
    }

    fn count(&self) -> usize {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Placements a second, from the first to the last of so many pods.
    async fn rate(&self, pods: usize) -> anyhow::Result<f64> {
        until(&format!("{pods} pods of {NAMESPACE} to be placed"), LIMIT, async || {
            let placed = self.count();
            Ok(if placed == pods { Seen::Done(()) } else { Seen::NotYet(placed.to_string()) })
        })
        .await?;
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, last) = (seen.values().min(), seen.values().max());
        let took = *last.context("no pod")? - *first.context("no pod")?;
        Ok((pods - 1) as f64 / took.as_secs_f64())
    }
}

impl Drop for Placements {
    fn drop(&mut self) {
        self.watch.abort();
    }
}
