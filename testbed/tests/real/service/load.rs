//! Pods that are created at a fixed rate, whatever happens to the webhook meanwhile.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use testbed::wait::{Seen, until};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::world::{LIMIT, World};

/// Twenty a second.
const PERIOD: Duration = Duration::from_millis(50);

/// How long a pod exists that has its placement.
const LIFE: Duration = Duration::from_secs(1);

/// The pauses of a ReplicaSet after refusals: 5 ms, doubled each time; and a bound for tests.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(5));

/// The node that all pods request. It need not run: their gates are never removed.
const NODE: &str = "node-1";

/// A creation took longer: more than an answer of the webhook ever takes.
const SLOW: Duration = Duration::from_secs(1);

/// One client, in a namespace of its own. It does not wait for slow answers.
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    creations: JoinHandle<Result<Report>>,
}

/// One request for the creation of a pod.
struct Try {
    at: Instant,
    latency: Duration,
    failure: Option<String>,
}

#[must_use]
pub(crate) struct Report {
    namespace: String,
    client: Client,
    created: usize,
    tries: Vec<Try>,
    /// The names of the pods that exist without the placement that they request.
    unplaced: BTreeSet<String>,
    /// From a pod's turn to its creation, failures and pauses included.
    longest: Duration,
}

impl Load {
    /// Starts in a namespace `load-NAME-NUMBER`, which it creates: a case may run again while the
    /// namespace of the run before is being deleted.
    pub(crate) async fn start(client: &Client, name: &str) -> Result<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let namespace = format!("load-{name}-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let object = json!({"metadata": {"name": namespace}});
        Api::<Namespace>::all(client.clone())
            .create(&PostParams::default(), &serde_json::from_value(object)?)
            .await?;
        let is_over = Arc::new(AtomicBool::new(false));
        let creations = tokio::spawn(create_pods(client.clone(), namespace, Arc::clone(&is_over)));
        Ok(Self { is_over, creations })
    }

    /// Creates no further pods, and waits until those that were begun are created.
    pub(crate) async fn finish(self) -> Result<Report> {
        self.is_over.store(true, Ordering::Relaxed);
        self.creations.await?
    }
}

async fn create_pods(
    client: Client,
    namespace: String,
    is_over: Arc<AtomicBool>,
) -> Result<Report> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let mut turns = interval(PERIOD);
    turns.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut begun = JoinSet::new();
    while !is_over.load(Ordering::Relaxed) {
        turns.tick().await;
        begun.spawn(create_pod(pods.clone(), format!("pod-{}", begun.len())));
    }
    let mut report = Report {
        namespace,
        client,
        created: 0,
        tries: Vec::new(),
        unplaced: BTreeSet::new(),
        longest: Duration::ZERO,
    };
    while let Some(created) = begun.join_next().await {
        let (name, tries, is_placed) = created??;
        if let ([first, ..], [.., last]) = (&*tries, &*tries) {
            report.longest = report.longest.max(last.at + last.latency - first.at);
        }
        report.created += 1;
        report.tries.extend(tries);
        if !is_placed {
            report.unplaced.insert(name);
        }
    }
    report.tries.sort_by_key(|one| one.at);
    Ok(report)
}

/// Creates a pod as a ReplicaSet would: again after each failure. Returns whether the pod that
/// exists then has its placement; one that has it is deleted.
async fn create_pod(pods: Api<Pod>, name: String) -> Result<(String, Vec<Try>, bool)> {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "labels": {"app": "load"},
            "annotations": {"streams.ibm.com/host": NODE},
        },
        "spec": {
            "schedulingGates": [{"name": "stow.test/never"}],
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "stow.test/none:1"}],
        },
    }))?;
    let mut tries = Vec::new();
    let mut pause = PAUSES.0;
    let begun = Instant::now();
    loop {
        let at = Instant::now();
        let answer = pods.create(&PostParams::default(), &pod).await;
        let latency = at.elapsed();
        let failure = match answer {
            Ok(_) => None,
            // An earlier request whose answer was lost.
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => None,
            Err(kube::Error::Api(status)) => Some(status.message.clone()),
            Err(error) => Some(error.to_string()),
        };
        let is_created = failure.is_none();
        tries.push(Try { at, latency, failure });
        if is_created {
            break;
        }
        if begun.elapsed() > LIMIT {
            let last = tries.pop().and_then(|last| last.failure).unwrap_or_default();
            bail!("{name} could not be created in {LIMIT:?}: {last}");
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
    sleep(LIFE).await;
    // As it is stored.
    let stored = pods.get(&name).await.with_context(|| format!("{name} was created"))?;
    let is_placed = is_placed(&stored)?;
    if is_placed {
        match pods.delete(&name, &DeleteParams::default()).await {
            // An earlier request whose answer was lost.
            Err(kube::Error::Api(status)) if status.reason == "NotFound" => {}
            answer => drop(answer?),
        }
    }
    Ok((name, tries, is_placed))
}

/// Returns whether a pod of the load has its placement: all of it, or nothing.
fn is_placed(pod: &Pod) -> Result<bool> {
    let pod = serde_json::to_value(pod)?;
    let is_recorded = !pod["metadata"]["annotations"]["stowplan.dev/placement"].is_null();
    let required = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    let terms = pod.pointer(required).map(|required| &required["nodeSelectorTerms"]);
    let values = terms.map(|terms| &terms[0]["matchFields"][0]["values"]);
    let is_bound = values == Some(&json!([NODE]));
    ensure!(is_recorded == is_bound, "half of a placement: {pod}");
    Ok(is_recorded)
}

impl Report {
    /// Prints what the client saw; `since` is the moment of the fault.
    pub(crate) fn print(&self, what: &str, since: Instant) {
        let mut latencies: Vec<_> = self.tries.iter().map(|one| one.latency).collect();
        latencies.sort_unstable();
        let at = |part: usize| latencies.get((latencies.len() - 1) * part / 1000).copied();
        let milliseconds = |of: Option<Duration>| of.unwrap_or_default().as_millis();
        let failures = self.tries.iter().filter(|one| one.failure.is_some()).count();
        let mut line = format!(
            "{what}: {} pods created in {} tries, {failures} failed, {} without placement; latency \
             p50 {} ms, p99 {} ms, max {} ms; longest until created {} ms",
            self.created,
            self.tries.len(),
            self.unplaced.len(),
            milliseconds(at(500)),
            milliseconds(at(990)),
            milliseconds(at(1000)),
            self.longest.as_millis(),
        );
        let slow: Vec<_> = self.tries.iter().filter(|one| one.latency > SLOW).collect();
        if let Some(last) = slow.last() {
            let last = (last.at + last.latency).duration_since(since).as_secs_f64();
            let _ = write!(line, "; {} over 1 s, the last until {last:.1} s after", slow.len());
        }
        eprintln!("{line}");
        // Each with another port.
        for failure in self.failures().into_iter().take(3) {
            eprintln!("  {failure}");
        }
    }

    fn failures(&self) -> BTreeSet<&str> {
        self.tries.iter().filter_map(|one| one.failure.as_deref()).collect()
    }

    /// No request was refused.
    pub(crate) fn none_failed(&self) -> Result<()> {
        let failures = self.failures();
        ensure!(failures.is_empty(), "creations failed: {failures:?}");
        Ok(())
    }

    pub(crate) fn all_placed(&self) -> Result<()> {
        ensure!(self.unplaced.is_empty(), "without placement: {:?}", self.unplaced);
        Ok(())
    }

    /// The controller counts the pods that have no placement, and says so of each.
    pub(crate) async fn unplaced_are_reported(&self, world: &World) -> Result<()> {
        until("the controller to count the pods without placement", LIMIT, async || {
            let metrics = world.metrics(&world.leader().await?).await?;
            let sample = "stowplan_controller_unplaced_pods ";
            let found = metrics.lines().find_map(|line| line.strip_prefix(sample));
            let expected = self.unplaced.len().to_string();
            Ok(Seen::when(found == Some(&*expected), || format!("{found:?}, not {expected}")))
        })
        .await?;
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let parameters = ListParams::default().fields("reason=NotPlaced");
        until("an event for each pod without placement", LIMIT, async || {
            let events = events.list(&parameters).await?.items;
            let named: BTreeSet<_> = events
                .into_iter()
                .filter_map(|event| event.regarding.and_then(|object| object.name))
                .collect();
            let missing: Vec<_> = self.unplaced.difference(&named).collect();
            ensure!(named.is_subset(&self.unplaced), "{named:?}, but not {:?}", self.unplaced);
            Ok(Seen::when(missing.is_empty(), || format!("none for {missing:?}")))
        })
        .await
    }

    /// Every request succeeded, and every pod has its placement.
    pub(crate) async fn end_without_failures(self) -> Result<()> {
        self.none_failed()?;
        self.all_placed()?;
        self.end().await
    }

    /// Deletes the pods that are left, and checks that there is no other.
    pub(crate) async fn end(self) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let left = pods.list(&ListParams::default()).await?.items;
        let left: BTreeSet<_> = left.into_iter().filter_map(|pod| pod.metadata.name).collect();
        ensure!(left == self.unplaced, "{left:?}, not {:?}", self.unplaced);
        pods.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        Api::<Namespace>::all(self.client)
            .delete(&self.namespace, &DeleteParams::default())
            .await?;
        Ok(())
    }
}
