//! Placements a second: the members of groups, bound by term and by node, and the same pods without
//! a group.
//!
//! The scheduler is paused while the pods are created, so that it finds all of them at once; the
//! controller is paused while they are placed, as if it had a machine of its own. A watch of placed
//! pods shows when each got its node.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;
use stowplan_core::systems::coschedule::keys::{GROUP, PLACEHOLDER};
use testbed::control_plane::NodeSpec;
use tokio::time::sleep;

use crate::Extent;
use crate::cluster::{
    Binding, CLASS, PLACED, SCHEDULER, has_node, has_term, is_gated, with_cluster,
};
use crate::plane::{CONTROLLER, Cluster, at_once};
use crate::table::{Table, count, ratio, spread};

/// The members of a group.
pub(crate) const SIZE: usize = 5;

/// The label of the pods that are placed.
const QUEUED: &str = "bench=queued";

/// The label of the pods that have placeholders made.
const FIRST: &str = "bench=first";

/// Before the scheduler goes on: until others have done what the pods made them do.
const REST: Duration = Duration::from_secs(2);

/// The pods that are placed: their row, and how they are bound to their placeholders; none, if they
/// have no group.
type Contender = (&'static str, Option<Binding>);

/// In a cluster without placeholders.
const WITHOUT: Contender = ("without coscheduling", None);

/// The contenders that are measured while placeholders are there.
const WITH_PLACEHOLDERS: [Contender; 3] = [
    ("without a group, beside placeholders", None),
    ("members, `binding: affinity`", Some(Binding::Affinity)),
    ("members, `binding: node`", Some(Binding::Node)),
];

/// Placements a second of one round.
type Round = HashMap<&'static str, f64>;

/// Counts on a control plane of its own.
pub(crate) async fn measure(extent: Extent) -> anyhow::Result<()> {
    let rounds = with_cluster(NodeSpec::numbered(extent.nodes), false, async |cluster| {
        Bench { cluster, groups: extent.groups }.rounds(extent).await
    })
    .await?;
    let mut table = Table::new("pods | pods/s | against without coscheduling, same round");
    for (label, _) in [WITHOUT].into_iter().chain(WITH_PLACEHOLDERS) {
        let against = rounds.iter().map(|round| round[label] / round[WITHOUT.0]).collect();
        let rates = rounds.iter().map(|round| round[label]).collect();
        table.row(label, [spread(rates, count), spread(against, ratio)]);
    }
    table.print(&format!(
        "Placements a second: {} pods in {} groups, {} nodes; median of {} rounds (range)",
        count((extent.groups * SIZE) as f64),
        extent.groups,
        count(f64::from(extent.nodes)),
        rounds.len()
    ));
    Ok(())
}

pub(crate) struct Bench<'c> {
    pub(crate) cluster: &'c Cluster<'c>,
    pub(crate) groups: usize,
}

impl Bench<'_> {
    async fn rounds(&self, extent: Extent) -> anyhow::Result<Vec<Round>> {
        let mut rounds = Vec::new();
        for number in 0..extent.rounds {
            let mut round = Round::new();
            let is_first = number.is_multiple_of(2);
            if is_first {
                self.turn(WITHOUT, &mut round).await?;
            }
            self.gather().await?;
            let mut contenders = WITH_PLACEHOLDERS;
            contenders.rotate_left(number % WITH_PLACEHOLDERS.len());
            for contender in contenders {
                self.turn(contender, &mut round).await?;
            }
            self.disperse().await?;
            if !is_first {
                self.turn(WITHOUT, &mut round).await?;
            }
            rounds.push(round);
        }
        Ok(rounds)
    }

    /// Has a placeholder made and placed for each group: by a first member, which goes again.
    pub(crate) async fn gather(&self) -> anyhow::Result<()> {
        self.cluster.bind_by(Binding::Affinity, CLASS).await?;
        at_once((0..self.groups).map(|group| self.create(group, 0, FIRST, true))).await?;
        let placed = ListParams::default().labels(PLACEHOLDER).fields(PLACED);
        self.cluster.pods_are(self.groups, &placed).await?;
        let first = ListParams::default().labels(FIRST);
        self.cluster.pods_are(self.groups, &first.clone().fields(PLACED)).await?;
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
    async fn turn(&self, (label, binding): Contender, round: &mut Round) -> anyhow::Result<()> {
        let cluster = self.cluster;
        if let Some(binding) = binding {
            cluster.bind_by(binding, CLASS).await?;
        }
        let pods = self.groups * SIZE;
        let placed = cluster.watch::<Pod>(QUEUED, Some(PLACED), |pod| Some(pod.name_any()));
        cluster.plane.pause(SCHEDULER).await?;
        let wanted = (0..pods).map(|pod| (pod % self.groups, pod / self.groups));
        let create = |(group, index)| self.create(group, index, QUEUED, binding.is_some());
        at_once(wanted.map(create)).await?;
        let queued = ListParams::default().labels(QUEUED);
        for pod in cluster.pods().list(&queued).await? {
            let wanted = [Binding::Affinity, Binding::Node].map(|of| binding == Some(of));
            let is_right = [has_term(&pod), has_node(&pod)] == wanted && !is_gated(&pod);
            ensure!(is_right, "{label}: a pod was admitted as {:?}", pod.spec);
        }
        sleep(REST).await;
        cluster.installation.pause_controller(CONTROLLER).await?;
        ensure!(placed.seen().is_empty(), "a pod was placed without a scheduler");

        cluster.plane.resume(SCHEDULER)?;
        let are_placed = cluster.are_placed(pods, &placed).await;
        cluster.installation.continue_controller(CONTROLLER).await?;
        are_placed.with_context(|| format!("pods {label}"))?;
        let times: Vec<_> = placed.seen().values().copied().collect();
        let (first, last) = (times.iter().min(), times.iter().max());
        let took = *last.context("no pod")? - *first.context("no pod")?;
        // From the first to the last of them.
        let rate = (pods - 1) as f64 / took.as_secs_f64();
        if binding.is_some() {
            cluster.groups_are_together(&queued, self.groups).await?;
        }
        self.delete(&queued).await?;
        cluster.leading().await?;
        eprintln!("{label}: {} pods/s", count(rate));
        round.insert(label, rate);
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
                "name": format!("{group}-{value}-{index}"), "labels": {key: value},
                "annotations": {key_of_group: group},
            },
            "spec": {"containers": [{
                "name": "task", "image": "example.com/task",
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
            }]},
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
