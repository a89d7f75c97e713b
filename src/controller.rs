//! The controller: changes the cluster as the plan says.
//!
//! One of several processes leads at a time ([`lease`]). The leader makes a plan ([`Planner`])
//! whenever the View or the policy changes, or when the previous plan asked to be rechecked.
//! [`act`] carries the plan out, and [`events`] records the results for users. All state is in the
//! cluster: the next leader makes the same plan from it. The leader also keeps the webhook's
//! certificate ([`certificates`]).

pub(crate) mod act;
pub(crate) mod certificates;
pub(crate) mod events;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod lease;
pub(crate) mod report;

use std::error::Error;
use std::iter;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::OptionFuture;
use http_body_util::BodyExt as _;
use hyper::Request;
use hyper::body::Bytes;
use hyper::http::response::Parts;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::cluster::{Clock, Cluster};
use crate::telemetry::Metrics;
use act::{Executor, Limiter, Writer};
use certificates::Keeper;
use events::Events;
use lease::{Candidate, Leadership};
use stowplan_core::systems::View;
use stowplan_core::systems::plan::Plan;
use stowplan_core::systems::policy::Policy;

/// Makes a plan. The caller holds the View's lock, so the function must be quick, and its result
/// must be that of a pure one. The program passes one that skips systems without changes.
pub(crate) type Planner = Box<dyn FnMut(&View, &Policy, Timestamp) -> Plan + Send + Sync>;

/// The field manager of all writes.
const MANAGER: &str = "stowplan-controller";

/// Changes within this time are collected into one plan.
const GATHER: Duration = Duration::from_millis(20);

/// The longest time between two plans. A clock adjustment can bring a distant `recheck_at` close.
const LONGEST: Duration = Duration::from_secs(60);

/// How long writes in flight may take after a stop was requested.
const LAST_WRITES: Duration = Duration::from_secs(1);

/// A controller that has not started yet.
pub(crate) struct Controller {
    /// Sends every request. It must not retry requests itself: see [`Writer`].
    pub client: Client,
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of this candidate in the election, unique among all candidates.
    pub identity: String,
    /// The View for controllers, from [`Cluster::watching_all`].
    pub cluster: Arc<Cluster>,
    /// The policy; notified of every change.
    pub policy: watch::Receiver<Arc<Policy>>,
    pub planner: Planner,
    /// The webhook's certificate; `None`: others keep it.
    pub certificates: Option<certificates::Settings>,
    /// The most requests per second of the plans' writes, in the long run.
    pub writes_per_second: NonZeroU32,
    /// Counts plans, writes and events.
    pub metrics: Arc<Metrics>,
}

impl Controller {
    /// Competes for the lease and leads while holding it, until `stop`; then finishes the writes in
    /// flight and releases the lease.
    ///
    /// # Errors
    /// If the task that competes for the lease ended or panicked, which is a bug.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> Result<(), String> {
        let leadership = Leadership::none();
        let release = CancellationToken::new();
        // A separate task, so that a slow plan does not delay the renewal of the lease.
        let candidate = Candidate {
            client: self.client.clone(),
            namespace: self.namespace.clone(),
            identity: self.identity.clone(),
            leadership: leadership.clone(),
            metrics: Arc::clone(&self.metrics),
        };
        let mut campaign = tokio::spawn(candidate.campaign(release.clone()));
        let metrics = Arc::clone(&self.metrics);
        let events = Events::start(self.client.clone(), self.identity.clone(), metrics);
        let campaign_error = |ended: Result<(), _>| match ended {
            Ok(()) => "the task that competes for the lease has ended".to_owned(),
            Err(error) => format!("the task that competes for the lease panicked: {error}"),
        };
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                ended = &mut campaign => return Err(campaign_error(ended)),
                () = leadership.gained() => {}
            }
            let mut executor = Executor::new(Writer {
                client: self.client.clone(),
                cluster: Arc::clone(&self.cluster),
                leadership: leadership.clone(),
                events: events.clone(),
                metrics: Arc::clone(&self.metrics),
                limiter: Mutex::new(Limiter::new(self.writes_per_second)),
            });
            let keeper = self.keeper(&leadership, &events);
            tokio::select! {
                () = stop.cancelled() => {
                    // The next leader should not compete with writes that are still in flight.
                    if timeout(LAST_WRITES, executor.drain()).await.is_err() {
                        debug!("stopped although writes are in flight");
                    }
                    break;
                }
                ended = &mut campaign => return Err(campaign_error(ended)),
                // Dropping the executor aborts the writes in flight.
                () = leadership.lost() => {}
                () = self.lead(&mut executor) => {}
                Some(()) = OptionFuture::from(keeper.map(Keeper::keep)) => {}
            }
            self.metrics.controller_actions.set(0);
        }
        release.cancel();
        campaign.await.map_err(|error| campaign_error(Err(error)))
    }

    /// The keeper of the webhook's certificate. `None`: others keep it.
    fn keeper(&self, leadership: &Leadership, events: &Events) -> Option<Keeper> {
        self.certificates.clone().map(|settings| Keeper {
            settings,
            client: self.client.clone(),
            namespace: self.namespace.clone(),
            leadership: leadership.clone(),
            events: events.clone(),
            metrics: Arc::clone(&self.metrics),
            clock: Arc::new(Clock::new(Arc::clone(&self.metrics))),
            published: Mutex::default(),
        })
    }

    /// Makes plans and carries them out, until the future is dropped.
    async fn lead(&mut self, executor: &mut Executor) {
        let mut changes = self.cluster.changes();
        let mut versions = self.cluster.versions();
        let mut due = Instant::now();
        // The next plan is not made before this time, however much changes.
        let mut earliest = due;
        loop {
            let soon = |due: Instant| due.min((Instant::now() + GATHER).max(earliest));
            // Writes that have not been started may name a version that is outdated by now.
            let has_waiting = executor.has_waiting();
            tokio::select! {
                () = executor.next() => due = soon(due),
                // The senders live as long as the process. If one were dropped, only its own branch
                // would be disabled.
                Ok(()) = changes.changed() => due = soon(due),
                Ok(()) = versions.changed(), if has_waiting => due = soon(due),
                Ok(()) = self.policy.changed() => due = soon(due),
                () = sleep_until(due) => {
                    let began = Instant::now();
                    let next = self.plan(executor);
                    let took = began.elapsed();
                    // Planning takes at most a quarter of the time: while many writes finish, and
                    // many objects change, there is always a reason for another plan.
                    earliest = Instant::now() + 3 * took;
                    due = (Instant::now() + next).max(earliest);
                }
            }
        }
    }

    /// Makes a plan and passes it to the executor. Returns how long until the next plan is due even
    /// if nothing changes.
    fn plan(&mut self, executor: &mut Executor) -> Duration {
        if !self.cluster.is_synced() {
            // The watch that syncs last reports a change, which triggers a plan.
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

/// Sends a request, and returns the head and the body of the answer.
///
/// # Errors
/// Returns the reason why there is no answer.
async fn send(
    client: &Client,
    request: Request<Vec<u8>>,
    limit: Duration,
) -> Result<(Parts, Bytes), String> {
    let answer = async {
        let (head, body) = client.send(request.map(Body::from)).await?.into_parts();
        Ok((head, body.collect().await?.to_bytes()))
    };
    match timeout(limit, answer).await {
        Ok(answer) => answer.map_err(|error: kube::Error| format_causes(&error)),
        Err(_) => Err(format!("no answer within {} s", limit.as_secs())),
    }
}

/// Formats the error of a request for a log.
fn format_error(error: &kube::Error) -> String {
    match error {
        // The rest of the status repeats the message.
        kube::Error::Api(status) if !status.message.is_empty() => {
            format!("{} ({})", status.message, status.code)
        }
        error => format_causes(error),
    }
}

/// Formats an error with all of its causes.
fn format_causes(error: &(dyn Error + 'static)) -> String {
    let causes = iter::successors(Some(error), |&cause| cause.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use serde_json::json;

    use super::*;
    use crate::controller::fake::{Api, Objects, Reply, node};
    use stowplan_core::systems;
    use stowplan_core::systems::Object;
    use stowplan_core::systems::plan::{Action, Target, Write};
    use stowplan_core::view::Name;
    use stowplan_core::view::resource::NODE;

    const SECOND: Duration = Duration::from_secs(1);

    /// The node without labels, as the watch reports it.
    fn reported(version: u32) -> Object {
        let node = node("n1", version, &json!({})).to_string();
        systems::written(&NODE, node.as_bytes()).unwrap()
    }

    /// The answer to a deletion may come after the watch has shown another object of that name.
    #[test]
    fn an_answer_about_a_deleted_object_does_not_replace_its_successor() {
        let version_of = |uid: &str, version| {
            let mut node = node("n1", version, &json!({}));
            node["metadata"]["uid"] = json!(uid);
            systems::written(&NODE, node.to_string().as_bytes()).unwrap()
        };
        let mut view = View::default();
        let mut known_after = |object, is_answer| {
            match is_answer {
                true => _ = view.learn(object),
                false => view.apply(object),
            }
            let details = view.node("n1").and_then(|node| node.details.as_deref());
            details.map(|of| format!("{} {}", of.identity.uid, of.identity.resource_version))
        };
        for (uid, version, is_answer, known) in [
            ("old", 5, true, None),
            ("old", 5, false, Some("old 5")),
            ("new", 7, false, Some("new 7")),
            ("old", 6, true, Some("new 7")),
            ("new", 6, true, Some("new 7")),
            ("new", 8, true, Some("new 8")),
        ] {
            assert_eq!(known_after(version_of(uid, version), is_answer).as_deref(), known);
        }
    }

    /// Plans the label `x` for the node, until the View shows it.
    fn label(view: &View) -> Plan {
        let details = view.node("n1").and_then(|node| node.details.as_ref());
        if details.is_none_or(|details| details.labels.contains_key("x")) {
            return Plan::default();
        }
        let operations = json!([{"op": "add", "path": "/metadata/labels/x", "value": "y"}]);
        let target = Target::new(NODE, &Name::new("", "n1"), "uid-n1");
        let write = Write::Patch(serde_json::from_value(operations).unwrap());
        let actions = vec![Action::new(target, write, Vec::new())];
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
        /// While set, the API server does not answer requests for leases.
        silent: Arc<AtomicBool>,
        task: tokio::task::JoinHandle<Result<(), String>>,
    }

    /// A controller whose API server stores a Lease and the node n1, and answers patches with
    /// `patched`.
    fn bench(
        planner: impl Fn(&View) -> Plan + Send + Sync + 'static,
        patched: impl Fn() -> Reply + Send + 'static,
    ) -> Bench {
        let silent = Arc::new(AtomicBool::new(false));
        let muted = Arc::clone(&silent);
        let leases = Objects::default();
        let api = Api::new(move |call| match call.method.as_str() {
            _ if call.path.contains("leases") && muted.load(Ordering::SeqCst) => Reply::Hang,
            "PATCH" => patched(),
            _ => leases.answer(call),
        });
        let metrics = Arc::new(Metrics::new());
        let mut view = View::default();
        view.apply(reported(1));
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
            certificates: None,
            writes_per_second: NonZeroU32::new(50).unwrap(),
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
    async fn it_writes_until_the_view_shows_the_planned_state() {
        let version = AtomicU32::new(1);
        let mut bench = bench(label, move || {
            let version = version.fetch_add(2, Ordering::SeqCst) + 1;
            Reply::json(200, &node("n1", version, &json!({"x": "y"})))
        });
        tokio::time::sleep(SECOND).await;
        assert_eq!((bench.patches(), bench.plans()), (1, 2), "the second plan is empty");
        tokio::time::sleep(SECOND * 30).await;
        assert_eq!(bench.plans(), 2, "nothing changed");

        // Another client removes the label, and the watch reports it.
        bench.cluster.learn(reported(3));
        tokio::time::sleep(SECOND).await;
        assert_eq!(bench.patches(), 2);

        let before = bench.plans();
        bench.policy.send_replace(Arc::default());
        tokio::time::sleep(SECOND).await;
        assert_eq!(bench.plans(), before + 1, "the policy changed");
        tokio::time::sleep(LONGEST).await;
        assert_eq!(bench.plans(), before + 2, "at the latest after LONGEST");

        bench.stop.cancel();
        (&mut bench.task).await.unwrap().unwrap();
        assert_eq!(bench.metrics.controller_leader.get(), 0);
        let last = bench.api.calls().pop().unwrap();
        assert_eq!(last.body["spec"]["holderIdentity"], "", "the lease is released");
    }

    #[tokio::test(start_paused = true)]
    async fn many_changes_lead_to_few_plans() {
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
    async fn a_plan_is_made_again_at_its_recheck_time() {
        let start = Timestamp::now();
        let recheck_at = Some(start + jiff::SignedDuration::from_secs(3));
        let bench = bench(move |_| Plan { actions: Vec::new(), recheck_at }, || Reply::Hang);
        tokio::time::sleep(SECOND).await;
        assert_eq!(bench.plans(), 1);
        tokio::time::sleep(SECOND * 5 / 2).await;
        // Tokio's clock is paused, but the planner's clock is the real one.
        assert_eq!(bench.plans(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_lease_writes_are_dropped_and_none_is_started() {
        let bench = bench(label, || Reply::Hang);
        tokio::time::sleep(SECOND).await;
        assert_eq!((bench.patches(), bench.metrics.controller_leader.get()), (1, 1));
        bench.silent.store(true, Ordering::SeqCst);
        tokio::time::sleep(SECOND * 11).await;
        let metrics = &bench.metrics;
        let gauges = (metrics.controller_leader.get(), metrics.controller_actions.get());
        assert_eq!(gauges, (0, 0));
        let (patches, plans) = (bench.patches(), bench.plans());
        tokio::time::sleep(SECOND * 60).await;
        assert_eq!((bench.patches(), bench.plans()), (patches, plans));
        bench.silent.store(false, Ordering::SeqCst);
        tokio::time::sleep(SECOND * 10).await;
        assert_eq!(bench.metrics.controller_leader.get(), 1);
        assert!(bench.patches() > patches, "the writes resume");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_in_flight_may_finish_after_a_stop() {
        let mut bench = bench(label, || Reply::Late(200, node("n1", 2, &json!({"x": "y"}))));
        tokio::time::sleep(SECOND / 2).await;
        assert_eq!(bench.patches(), 1);
        let since = Instant::now();
        bench.stop.cancel();
        (&mut bench.task).await.unwrap().unwrap();
        assert!(since.elapsed() <= LAST_WRITES * 2, "{:?}", since.elapsed());
        let view = bench.cluster.view();
        assert!(view.node("n1").unwrap().details.as_ref().unwrap().labels.contains_key("x"));
    }
}
