//! The controller: makes the cluster what the plan says.
//!
//! One of several processes leads at a time ([`lease`]). While it does, a plan is made whenever the
//! View or the policy changes or the plan asked for it ([`systems::plan`](fn@crate::systems::plan), pure),
//! and [`act`] carries it out; [`events`] tells users what happened. All state is in the cluster: a
//! process that takes over makes the same plan from what it sees.

pub mod act;
pub mod events;
#[cfg(test)]
mod fake;
pub mod lease;
mod release;
pub mod report;

use std::error::Error;
use std::fmt;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::cluster::Cluster;
use crate::policy::Policy;
use crate::systems::plan::Plan;
use crate::telemetry::Metrics;
use crate::view::View;
use act::Executor;
use events::Events;
use lease::Leadership;

/// What makes a plan. It is called under the View's lock: pure, and quick.
pub type Planner = Box<dyn Fn(&View, &Policy, Timestamp) -> Plan + Send + Sync>;

/// How long changes are gathered before a plan is made of them.
const GATHER: Duration = Duration::from_millis(20);

/// The longest time without a plan. Clocks are set, and a time that was far away can be near.
const LONGEST: Duration = Duration::from_secs(60);

/// How long writes that are under way may take at a stop.
const LAST_WRITES: Duration = Duration::from_secs(1);

/// A controller that has not started yet.
pub struct Controller {
    /// Sends every request. Must not repeat any itself: see [`Executor::new`].
    pub client: Client,
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name that no other candidate has.
    pub identity: String,
    /// The View, as [`Cluster::watching_all`] keeps it.
    pub cluster: Arc<Cluster>,
    /// The policy, whenever it changes.
    pub policy: watch::Receiver<Arc<Policy>>,
    /// What makes a plan.
    pub planner: Planner,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

impl fmt::Debug for Controller {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Controller")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

impl Controller {
    /// Leads whenever it can, until `stop`; then ends what it has begun and gives the lease back.
    ///
    /// # Errors
    /// The task that runs for the lease has died, which is a bug.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), String> {
        let leadership = Leadership::none();
        let release = CancellationToken::new();
        // A task of its own: a plan that takes long must not keep the lease from being renewed.
        let mut campaign = tokio::spawn(lease::campaign(
            self.client.clone(),
            self.namespace.clone(),
            self.identity.clone(),
            leadership.clone(),
            Arc::clone(&self.metrics),
            release.clone(),
        ));
        let metrics = Arc::clone(&self.metrics);
        let events = Events::start(self.client.clone(), self.identity.clone(), metrics);
        let died = |ended: Result<(), _>| match ended {
            Ok(()) => "the task that runs for the lease has ended".to_owned(),
            Err(error) => format!("the task that runs for the lease has died: {error}"),
        };
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                ended = &mut campaign => return Err(died(ended)),
                () = leadership.gained() => {}
            }
            let mut executor = Executor::new(
                self.client.clone(),
                Arc::clone(&self.cluster),
                leadership.clone(),
                events.clone(),
                Arc::clone(&self.metrics),
            );
            tokio::select! {
                () = stop.cancelled() => {
                    // The next leader should not meet a write of ours that is on its way.
                    let _ = timeout(LAST_WRITES, executor.drain()).await;
                    break;
                }
                ended = &mut campaign => return Err(died(ended)),
                // What is under way is dropped with the executor.
                () = leadership.lost() => {}
                () = self.lead(&mut executor) => {}
            }
            self.metrics.controller_actions.set(0);
        }
        release.cancel();
        campaign.await.map_err(|error| died(Err(error)))
    }

    /// Plans and acts. Ends only by being dropped.
    async fn lead(&mut self, executor: &mut Executor) {
        let mut changes = self.cluster.changes();
        let mut due = Instant::now();
        // No sooner than this, however much changes.
        let mut earliest = due;
        loop {
            let soon = |due: Instant| due.min((Instant::now() + GATHER).max(earliest));
            tokio::select! {
                () = executor.next() => due = soon(due),
                // Both senders live as long as the process; without them only time goes on.
                Ok(()) = changes.changed() => due = soon(due),
                Ok(()) = self.policy.changed() => due = soon(due),
                () = sleep_until(due) => {
                    let began = Instant::now();
                    let next = self.plan(executor);
                    let took = began.elapsed();
                    // At most half of the time goes into plans.
                    earliest = Instant::now() + took;
                    due = Instant::now() + next;
                }
            }
        }
    }

    /// Makes a plan and hands it on. Returns when to make another even if nothing changes.
    fn plan(&mut self, executor: &mut Executor) -> Duration {
        if !self.cluster.is_synced() {
            // The watch that syncs last says so by a change.
            return LONGEST;
        }
        let policy = Arc::clone(&self.policy.borrow_and_update());
        let now = Timestamp::now();
        let began = Instant::now();
        let plan = (self.planner)(&self.cluster.view(), &policy, now);
        let took = began.elapsed();
        self.metrics.controller_plan_duration.observe(took.as_secs_f64());
        debug!(actions = plan.actions.len(), micros = took.as_micros(), "planned");
        executor.take(plan.actions);
        let ahead = plan.recheck_at.map(|at| at.duration_since(now).max(Default::default()));
        let ahead = ahead.and_then(|ahead| Duration::try_from(ahead).ok());
        ahead.map_or(LONGEST, |ahead| ahead.max(GATHER).min(LONGEST))
    }
}

/// What went wrong with a request, for a log.
fn problem(error: &kube::Error) -> String {
    match error {
        // Without the rest of the status, which says the same again.
        kube::Error::Api(status) if !status.message.is_empty() => {
            format!("{} ({})", status.message, status.code)
        }
        error => causes(error),
    }
}

/// An error with all of its causes.
fn causes(error: &(dyn Error + 'static)) -> String {
    let causes = iter::successors(Some(error), |&cause| cause.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use serde_json::{Value, json};

    use super::*;
    use crate::controller::fake::{Api, Reply};
    use crate::systems::plan::{Action, Kind, Target, Write};
    use crate::view::Object;

    const SECOND: Duration = Duration::from_secs(1);

    fn node(version: u32, labels: &Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": "n1", "uid": "u1", "labels": labels, "resourceVersion": version.to_string(),
            },
        })
    }

    /// Wants the label `x` on the node, until the View shows it.
    fn label(view: &View) -> Plan {
        let estate = view.node("n1").and_then(|node| node.estate.as_ref());
        if estate.is_none_or(|estate| estate.labels.contains_key("x")) {
            return Plan::default();
        }
        let operations = json!([{"op": "add", "path": "/metadata/labels/x", "value": "y"}]);
        let target =
            Target { kind: Kind::Node, namespace: "".into(), name: "n1".into(), uid: "u1".into() };
        let write = Write::Patch(serde_json::from_value(operations).unwrap());
        let actions = vec![Action { target, write, events: Vec::new() }];
        Plan { actions, recheck_at: None }
    }

    struct Bench {
        api: Api,
        cluster: Arc<Cluster>,
        metrics: Arc<Metrics>,
        policy: watch::Sender<Arc<Policy>>,
        stop: CancellationToken,
        /// How many plans were made.
        plans: Arc<AtomicU32>,
        /// Whether leases are answered at all.
        silent: Arc<AtomicBool>,
        task: tokio::task::JoinHandle<Result<(), String>>,
    }

    /// A controller whose API server has a Lease and the node n1, and answers patches with `patched`.
    fn bench(
        planner: impl Fn(&View) -> Plan + Send + Sync + 'static,
        patched: impl Fn() -> Reply + Send + 'static,
    ) -> Bench {
        let silent = Arc::new(AtomicBool::new(false));
        let muted = Arc::clone(&silent);
        let lease: Mutex<Option<Value>> = Mutex::default();
        let api = Api::new(move |call| {
            let mut lease = lease.lock().unwrap();
            match call.method.as_str() {
                _ if call.path.contains("leases") && muted.load(Ordering::SeqCst) => Reply::Hang,
                "PATCH" => patched(),
                "GET" => match &*lease {
                    Some(lease) => Reply::json(200, lease),
                    None => Reply::status(404, "NotFound"),
                },
                _ => {
                    *lease = Some(call.body.clone());
                    Reply::json(200, &call.body)
                }
            }
        });
        let metrics = Arc::new(Metrics::new());
        let mut view = View::default();
        let node = serde_json::from_value(node(1, &json!({}))).unwrap();
        view.apply(Object::whole_node(&node).unwrap());
        let cluster = Arc::new(Cluster::fixed(view, Arc::clone(&metrics)));
        let (policy, policies) = watch::channel(Arc::default());
        let plans = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&plans);
        let controller = Controller {
            client: api.client(),
            namespace: "ns".to_owned(),
            identity: "me".to_owned(),
            cluster: Arc::clone(&cluster),
            policy: policies,
            planner: Box::new(move |view, _, _| {
                counted.fetch_add(1, Ordering::SeqCst);
                planner(view)
            }),
            metrics: Arc::clone(&metrics),
        };
        let stop = CancellationToken::new();
        let task = tokio::spawn(controller.run(stop.clone()));
        Bench { api, cluster, metrics, policy, stop, plans, silent, task }
    }

    impl Bench {
        fn patches(&self) -> usize {
            self.api.calls().iter().filter(|call| call.method == "PATCH").count()
        }

        fn plans(&self) -> u32 {
            self.plans.load(Ordering::SeqCst)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_acts_until_the_view_shows_what_is_planned_and_then_rests() {
        let version = AtomicU32::new(1);
        let mut bench = bench(label, move || {
            let version = version.fetch_add(2, Ordering::SeqCst) + 1;
            Reply::json(200, &node(version, &json!({"x": "y"})))
        });
        tokio::time::sleep(SECOND).await;
        assert_eq!((bench.patches(), bench.plans()), (1, 2), "the second finds nothing to do");
        tokio::time::sleep(SECOND * 30).await;
        assert_eq!(bench.plans(), 2, "nothing changed");

        // Somebody takes the label away: the watch says so.
        let node = node(3, &json!({}));
        bench.cluster.learn(Object::whole_node(&serde_json::from_value(node).unwrap()).unwrap());
        tokio::time::sleep(SECOND).await;
        assert_eq!(bench.patches(), 2);

        let before = bench.plans();
        bench.policy.send_replace(Arc::default());
        tokio::time::sleep(SECOND).await;
        assert_eq!(bench.plans(), before + 1, "another policy");
        tokio::time::sleep(LONGEST).await;
        assert_eq!(bench.plans(), before + 2, "and once in a while");

        bench.stop.cancel();
        (&mut bench.task).await.unwrap().unwrap();
        let last = bench.api.calls().pop().unwrap();
        assert_eq!(last.body["spec"]["holderIdentity"], "", "the lease is given back");
    }

    #[tokio::test(start_paused = true)]
    async fn changes_are_gathered() {
        let bench = bench(|_| Plan::default(), || Reply::Hang);
        tokio::time::sleep(SECOND).await;
        let before = bench.plans();
        for _ in 0..1000 {
            bench.policy.send_replace(Arc::default());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let made = bench.plans() - before;
        assert!((10..=60).contains(&made), "{made}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_plan_is_made_again_when_it_says() {
        let start = Timestamp::now();
        let recheck_at = Some(start + jiff::SignedDuration::from_secs(3));
        let bench = bench(move |_| Plan { actions: Vec::new(), recheck_at }, || Reply::Hang);
        tokio::time::sleep(SECOND).await;
        assert_eq!(bench.plans(), 1);
        tokio::time::sleep(SECOND * 5 / 2).await;
        // The time of plans stands still here, while that of the loop goes on.
        assert_eq!(bench.plans(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_lease_work_is_dropped_and_nothing_is_begun() {
        let bench = bench(label, || Reply::Hang);
        tokio::time::sleep(SECOND).await;
        assert_eq!((bench.patches(), bench.metrics.controller_leader.get()), (1, 1));
        bench.silent.store(true, Ordering::SeqCst);
        tokio::time::sleep(SECOND * 11).await;
        assert_eq!(bench.metrics.controller_leader.get(), 0);
        assert_eq!(bench.metrics.controller_actions.get(), 0);
        let (patches, plans) = (bench.patches(), bench.plans());
        tokio::time::sleep(SECOND * 60).await;
        assert_eq!((bench.patches(), bench.plans()), (patches, plans));
        bench.silent.store(false, Ordering::SeqCst);
        tokio::time::sleep(SECOND * 10).await;
        assert_eq!(bench.metrics.controller_leader.get(), 1);
        assert!(bench.patches() > patches, "it goes on where it was");
    }

    #[tokio::test(start_paused = true)]
    async fn at_a_stop_a_write_that_is_under_way_may_end() {
        let mut bench = bench(label, || Reply::Late(200, node(2, &json!({"x": "y"}))));
        tokio::time::sleep(SECOND / 2).await;
        assert_eq!(bench.patches(), 1);
        let since = Instant::now();
        bench.stop.cancel();
        (&mut bench.task).await.unwrap().unwrap();
        assert!(since.elapsed() <= LAST_WRITES * 2, "{:?}", since.elapsed());
        let view = bench.cluster.view();
        assert!(view.node("n1").unwrap().estate.as_ref().unwrap().labels.contains_key("x"));
    }
}
