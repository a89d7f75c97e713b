use std::num::NonZeroU32;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use json_patch::PatchOperation;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::pause::SETTLE;
use super::writer::SHARED_FOR;
use super::*;
use crate::cluster::Cluster;
use crate::controller::events::Events;
use crate::controller::fake::{Api as FakeApi, Call, Reply, node};
use crate::controller::lease::{Leadership, WRITE_TIMEOUT};
use crate::telemetry::Metrics;
use stowplan_core::systems::View;
use stowplan_core::systems::plan::{
    Confirmation, Content, Creation, Event, IfTaken, Listed, Refusal,
};
use stowplan_core::view::Name;
use stowplan_core::view::resource::{NODE, POD, Resource};

/// A resource that the executor does not know.
const WIDGET: Resource = Resource {
    group: "example.com",
    version: "v1",
    kind: "Widget",
    plural: "widgets",
    namespaced: true,
};

fn target(resource: Resource, name: &str) -> Target {
    let namespace = if resource.namespaced { "ns" } else { "" };
    Target::new(resource, &Name::new(namespace, name), &format!("uid-{name}"))
}

/// The answer to a write to a node.
fn written(name: &str) -> Reply {
    Reply::json(200, &node(name, 2, &json!({})))
}

fn label(name: &str, value: &str) -> Action {
    let operations = json!([
        {"op": "test", "path": "/metadata/uid", "value": format!("uid-{name}")},
        {"op": "add", "path": "/metadata/labels/x", "value": value},
    ]);
    let write = Write::Patch(serde_json::from_value(operations).unwrap());
    let event = Event { warning: false, reason: "Labelled", note: "done".to_owned() };
    Action::new(target(NODE, name), write, vec![event])
}

/// An executor with a fake API server, which takes every event, and a View of the nodes n0 to n29.
struct Bench {
    api: FakeApi,
    cluster: Arc<Cluster>,
    leadership: Leadership,
    metrics: Arc<Metrics>,
    executor: Executor,
}

fn bench(mut answer: impl FnMut(&Call) -> Reply + Send + 'static) -> Bench {
    let mut view = View::default();
    for number in 0..30 {
        let node = node(&format!("n{number}"), 1, &json!({}));
        view.apply(stowplan_core::systems::written(&NODE, node.to_string().as_bytes()).unwrap());
    }
    let api = FakeApi::new(move |call| match call.path.contains("/events") {
        true => Reply::json(201, &call.body),
        false => answer(call),
    });
    let metrics = Arc::new(Metrics::new());
    let cluster = Arc::new(Cluster::fixed(view, Arc::clone(&metrics)));
    let leadership = Leadership::none();
    leadership.set(Some(Instant::now() + Duration::from_secs(1_000_000)));
    let events = Events::start(api.client(), "me".to_owned(), Arc::clone(&metrics));
    let executor = Executor::new(Writer {
        client: api.client(),
        cluster: Arc::clone(&cluster),
        leadership: leadership.clone(),
        events,
        metrics: Arc::clone(&metrics),
        limiter: Mutex::new(Limiter::new(NonZeroU32::new(50).unwrap())),
    });
    Bench { api, cluster, leadership, metrics, executor }
}

impl Bench {
    /// Plans these actions repeatedly for this time, as the controller does.
    async fn plan_for(&mut self, period: Duration, actions: impl Fn() -> Vec<Action>) {
        let end = Instant::now() + period;
        self.executor.take(actions());
        while timeout(end - Instant::now(), self.executor.next()).await.is_ok() {
            self.executor.take(actions());
        }
    }

    /// Plans these actions once, until a write has finished.
    async fn carry_out(&mut self, actions: Vec<Action>) {
        self.executor.take(actions);
        self.executor.next().await;
    }

    fn wrote(&self, kind: &'static str, verb: &'static str, outcome: &'static str) -> u64 {
        let labels = crate::telemetry::WriteLabels { kind, verb, outcome };
        self.metrics.controller_writes.get_or_create(&labels).get()
    }

    /// The requests of this method.
    fn sent(&self, method: &str) -> Vec<Call> {
        let calls = self.api.writes().into_iter();
        calls.filter(|call| call.method == method).collect()
    }

    fn reasons(&self) -> Vec<String> {
        let events = self.api.events();
        events.iter().map(|event| event["reason"].as_str().unwrap().to_owned()).collect()
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_state_is_reported_once_it_has_lasted() {
    let mut bench = bench(|_| Reply::Hang);
    let report = |reason: &'static str, note: &str| {
        let event = Event { warning: true, reason, note: note.to_owned() };
        Action::new(target(NODE, "n1"), Write::None, vec![event])
            .with_lasting(&["Passing", "Lasting"])
    };
    // A step is reported at once.
    bench.plan_for(SECOND, || vec![report("Step", "a")]).await;
    assert_eq!(bench.reasons(), ["Step"]);
    bench.plan_for(2 * SECOND, || vec![report("Passing", "a")]).await;
    bench.plan_for(2 * SECOND, Vec::new).await;
    bench.plan_for(2 * SECOND, || vec![report("Passing", "a")]).await;
    assert_eq!(bench.reasons(), ["Step"]);
    // Another text about the same reason has to last, too.
    bench.plan_for(2 * SECOND, || vec![report("Lasting", "a")]).await;
    bench.plan_for(2 * SECOND, || vec![report("Lasting", "b")]).await;
    assert_eq!(bench.reasons(), ["Step"]);
    bench.plan_for(20 * SECOND, || vec![report("Lasting", "b")]).await;
    assert_eq!(bench.reasons(), ["Step", "Lasting"], "once");
    bench.plan_for(2 * SECOND, || vec![report("Lasting", "passing")]).await;
    bench.plan_for(20 * SECOND, || vec![report("Lasting", "b")]).await;
    assert_eq!(bench.reasons(), ["Step", "Lasting"], "the text of a moment");
    assert_eq!(bench.api.events()[0]["type"], "Warning");
    assert!(bench.api.writes().is_empty());
    assert_eq!(bench.metrics.controller_actions.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_state_whose_text_goes_on_changing_is_reported() {
    let mut bench = bench(|_| Reply::Hang);
    let start = Instant::now();
    let report = || {
        let note = format!("after {} s", start.elapsed().as_secs());
        let event = Event { warning: true, reason: "Changing", note };
        let other = Event { warning: true, reason: "Changing", note: "another".to_owned() };
        vec![
            Action::new(target(NODE, "n1"), Write::None, vec![event, other])
                .with_lasting(&["Changing"]),
        ]
    };
    for _ in 0..14 {
        bench.plan_for(SECOND, report).await;
    }
    // One of several texts about one reason that does not change is reported as usual.
    assert_eq!(bench.reasons(), ["Changing"]);
    for _ in 0..4 {
        bench.plan_for(SECOND, report).await;
    }
    assert_eq!(bench.reasons(), ["Changing", "Changing"]);
}

#[tokio::test(start_paused = true)]
async fn the_view_shows_the_answer_before_events_are_recorded() {
    let mut bench = bench(|_| Reply::json(200, &node("n1", 2, &json!({"x": "y"}))));
    let mut changes = bench.cluster.changes();
    bench.executor.take(vec![label("n1", "y")]);
    assert_eq!(bench.metrics.controller_actions.get(), 1);
    bench.executor.next().await;
    assert!(changes.has_changed().unwrap(), "a new plan is due");
    changes.mark_unchanged();
    let labelled = bench.cluster.view().node("n1").unwrap().details.clone().unwrap();
    assert_eq!(labelled.labels.get("x").map(AsRef::as_ref), Some("y"));
    tokio::time::sleep(SECOND).await;
    let calls = bench.api.calls();
    let [patch, event] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!(patch.path, "/api/v1/nodes/n1");
    assert_eq!(patch.query, "&fieldManager=stowplan-controller");
    assert_eq!(patch.content_type, "application/json-patch+json");
    assert_eq!(patch.body[0], json!({"op": "test", "path": "/metadata/uid", "value": "uid-n1"}));
    assert_eq!(event.path, "/apis/events.k8s.io/v1/namespaces/default/events");
    let node = json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-n1"});
    let fields = ["reason", "regarding", "reportingController", "reportingInstance"];
    let recorded = fields.map(|field| event.body[field].clone());
    assert_eq!(recorded, [json!("Labelled"), node, json!("stowplan"), json!("me")]);
    assert_eq!(bench.wrote("nodes", "patch", "done"), 1);
    bench.executor.take(Vec::new());
    assert_eq!(bench.metrics.controller_actions.get(), 0);
}

/// The times at which writes were sent.
fn times(bench: &Bench, start: Instant) -> Vec<Duration> {
    bench.api.writes().iter().map(|call| call.at - start).collect()
}

#[tokio::test(start_paused = true)]
async fn pauses_grow_with_each_failure_of_a_kind() {
    type Fault = fn() -> Reply;
    // Jitter makes each pause up to twice as long.
    for (why, fault, range, outcome, first) in [
        ("soon", (|| Reply::status(409, "Conflict")) as Fault, 15..=40, None, 0..=250),
        ("later", || Reply::status(500, "InternalError"), 5..=9, Some("unsure"), 0..=60_000),
        ("the answer is lost", || Reply::Drop, 5..=9, Some("unsure"), 0..=60_000),
        ("one at a time", || Reply::Hang, 3..=7, None, WRITE_TIMEOUT.as_millis()..=60_000),
        ("something reverts it", || written("n1"), 6..=10, Some("done"), 0..=60_000),
        ("until the watch shows it", || Reply::status(404, "NotFound"), 29..=31, None, 0..=60_000),
        ("a person", || Reply::status(403, "Forbidden"), 5..=6, Some("refused"), 0..=60_000),
    ] {
        let start = Instant::now();
        let mut bench = bench(move |_| fault());
        bench.plan_for(SECOND * 60, || vec![label("n1", "y")]).await;
        let times = times(&bench, start);
        assert!(range.contains(&times.len()), "{why}: {times:?}");
        assert!(first.contains(&times[1].as_millis()), "{why}: {times:?}");
        let has_event = matches!(outcome, Some("done" | "refused"));
        assert_eq!(bench.reasons().is_empty(), !has_event, "{why}: no person has to act");
        if let Some(outcome) = outcome {
            assert_eq!(bench.wrote("nodes", "patch", outcome), times.len() as u64, "{why}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_reverted_once_is_repeated_at_once() {
    let mut bench = bench(|_| written("n1"));
    for _ in 0..5 {
        bench.carry_out(vec![label("n1", "y")]).await;
        // The View shows it.
        bench.executor.take(Vec::new());
    }
    assert_eq!(bench.api.writes().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_different_write_ends_a_pause_but_a_different_time_does_not() {
    let mut bench = bench(|_| Reply::status(403, "Forbidden"));
    let times = AtomicU32::new(0);
    let status = |status: &str| {
        let seconds = times.fetch_add(1, Ordering::SeqCst) % 60;
        let since = format!("2026-01-01T00:00:{seconds:02}Z");
        let status = json!({"state": status, "members": [{"since": since}]});
        // The version differs, too.
        let resource_version = (100 + seconds).to_string().into();
        let write = Write::Status { resource_version, status };
        let action = Action::new(target(WIDGET, "p"), write, Vec::new());
        vec![action.with_volatile(&["since"])]
    };
    bench.plan_for(SECOND / 2, || status("a")).await;
    for _ in 0..50 {
        bench.executor.take(status("a"));
        bench.executor.start_writes();
    }
    assert_eq!(bench.api.writes().len(), 1);
    bench.plan_for(SECOND / 2, || status("b")).await;
    let writes = bench.api.writes();
    assert_eq!(writes.len(), 2, "{writes:?}");
    assert_eq!(writes[1].path, "/apis/example.com/v1/namespaces/ns/widgets/p/status");
    let [test, replace, add] = [0, 1, 2].map(|index| writes[1].body[index].clone());
    assert_eq!(test, json!({"op": "test", "path": "/metadata/uid", "value": "uid-p"}));
    let version = json!({"op": "replace", "path": "/metadata/resourceVersion", "value": "152"});
    assert_eq!(replace, version);
    assert_eq!((&add["op"], &add["path"]), (&json!("add"), &json!("/status")));
    assert_eq!(add["value"]["state"], "b");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_while_the_api_server_is_busy() {
    let (start, mut is_busy) = (Instant::now(), true);
    let mut bench = bench(move |_| match std::mem::take(&mut is_busy) {
        true => Reply::Answer { code: 429, retry_after: Some("9"), body: b"later".to_vec() },
        false => written("n1"),
    });
    bench.plan_for(SECOND, || vec![label("n1", "y")]).await;
    bench.plan_for(SECOND * 7, || vec![label("n1", "y"), label("n2", "y")]).await;
    assert_eq!(times(&bench, start).len(), 1);
    bench.plan_for(SECOND * 3 / 2, || vec![label("n2", "y")]).await;
    let times = times(&bench, start);
    assert!(times.len() > 1 && times[1] >= SECOND * 9, "{times:?}");
    assert_eq!(bench.wrote("nodes", "patch", "throttled"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_creation_or_deletion_is_not_repeated_before_the_watch_shows_it() {
    let all = "/apis/example.com/v1/namespaces/ns/widgets";
    let one = format!("{all}/p");
    let create = Write::Create(json!({"metadata": {"name": "p"}}));
    let delete = |grace, version| Write::Delete { grace, version };
    for (write, path, preconditions, grace) in [
        (create, all, Value::Null, Value::Null),
        (delete(None, None), &one, json!({"uid": "uid-p"}), Value::Null),
        (
            delete(Some(0), Some("7".into())),
            &one,
            json!({"uid": "uid-p", "resourceVersion": "7"}),
            json!(0),
        ),
    ] {
        let mut bench = bench(|_| Reply::status(200, "Success"));
        let plan = || vec![Action::new(target(WIDGET, "p"), write.clone(), Vec::new())];
        bench.plan_for(SETTLE - Duration::from_millis(1), plan).await;
        let writes = bench.api.writes();
        assert_eq!(writes.len(), 1, "{writes:?}");
        assert_eq!(writes[0].path, path);
        assert_eq!(writes[0].body["preconditions"], preconditions);
        assert_eq!(writes[0].body["gracePeriodSeconds"], grace);
        bench.plan_for(SECOND, plan).await;
        assert_eq!(bench.api.writes().len(), 2, "then it is repeated");
    }
}

/// Two new groups that share a claim may each be the first, as long as a plan knows only one of them.
#[tokio::test(start_paused = true)]
async fn a_creation_waits_until_the_view_shows_those_of_earlier_plans() {
    let create = |name: &str| {
        let write = Write::Create(json!({"metadata": {"name": name}}));
        Action::new(target(WIDGET, name), write, Vec::new())
    };
    let named = |names: &str| names.split(' ').map(create).collect::<Vec<_>>();
    let start = |bench: &mut Bench, actions: Vec<Action>| {
        bench.executor.take(actions);
        bench.executor.start_writes();
        bench.executor.running.len()
    };
    let mut bench = bench(|_| Reply::Late(201, json!({})));
    let mut elsewhere = create("z");
    elsewhere.target.namespace = "other".into();
    // One plan knows the first ten, of which eight are in flight at once.
    let first = "a b c d e f g h p q";
    assert_eq!(start(&mut bench, named(first)), CONCURRENCY);
    let all = [named(first), named("r"), vec![label("n1", "y"), elsewhere]].concat();
    assert_eq!(start(&mut bench, all), CONCURRENCY);
    while bench.executor.has_waiting() || !bench.executor.running.is_empty() {
        bench.executor.next().await;
    }
    assert_eq!(bench.sent("POST").len(), 11);
    assert!(bench.sent("POST").iter().all(|call| call.body["metadata"]["name"] != "r"));
    assert_eq!(start(&mut bench, named("a r")), 0, "the View does not show a");
    assert_eq!(start(&mut bench, named("r")), 1);

    // A creation without an answer may have been carried out. A refused one holds up no other.
    for (answer, running) in [(500, 0), (403, 1)] {
        let mut bench = self::bench(move |_| Reply::status(answer, "no"));
        bench.carry_out(named("p")).await;
        assert_eq!(start(&mut bench, named("p r")), running, "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_creation_is_an_event_on_the_owner_or_on_the_objects_that_wait_for_it() {
    let job = json!({"apiVersion": "stowplan.dev/v1alpha1", "kind": "StreamsJob", "name": "j", "uid": "uid-j"});
    let mut owner = job.clone();
    owner["controller"] = json!(true);
    let object = json!({"metadata": {"name": "p", "ownerReferences": [owner]}});
    let mut owned = target(WIDGET, "p");
    owned.uid = "".into();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "uid-a"});
    // Nobody waits for it.
    let changed = target(WIDGET, "q");
    let own = json!({"apiVersion": WIDGET.api_version(), "kind": WIDGET.kind, "name": "q", "uid": &*changed.uid});
    let refusal = Refusal {
        reason: "NotChanged",
        note: "it stays as it is".to_owned(),
        waiting: vec![changed.clone()],
        instead: Vec::new(),
    };
    let explained =
        Action::new(changed, Write::Part("resize", Vec::new()), Vec::new()).with_refusal(refusal);
    let creation = Action::new(owned, Write::Create(object), Vec::new());
    let refused = "the write create widgets ns/p: because of exceeded quota; ";
    let not_made = "widget p cannot be made: because of exceeded quota";
    for (action, reason, note, mut regarding) in [
        (creation, "WriteRefused", refused, job),
        (awaited_creation(&[]), "WidgetNotMade", not_made, pod),
        (explained, "NotChanged", "it stays as it is: because of exceeded quota", own),
    ] {
        let mut bench = bench(|_| Reply::status(403, "exceeded quota"));
        bench.plan_for(SECOND * 30, || vec![action.clone()]).await;
        let events = bench.api.events();
        assert_eq!(events.len(), 1, "none about the missing object: {events:?}");
        assert_eq!(events[0]["reason"], reason);
        regarding["namespace"] = json!("ns");
        assert_eq!(events[0]["regarding"], regarding);
        assert!(events[0]["note"].as_str().unwrap().contains(note), "{events:?}");
    }
}

/// Its namespace is being deleted: nobody has to fix that, and the objects that wait end with it.
#[tokio::test(start_paused = true)]
async fn a_creation_in_a_namespace_that_ends_is_no_event_and_is_tried_again_after_pauses() {
    let mut bench = bench(|_| {
        let causes = [json!({"reason": "NamespaceTerminating", "field": "metadata.namespace"})];
        let details = json!({"kind": "widgets", "name": "p", "causes": causes});
        let status = json!({"kind": "Status", "reason": "Forbidden", "details": details});
        Reply::json(403, &status)
    });
    let done_instead = label("n1", "x");
    bench
        .plan_for(SECOND * 60, || vec![awaited_creation(std::slice::from_ref(&done_instead))])
        .await;
    assert_eq!(bench.reasons(), Vec::<String>::new());
    assert_eq!(bench.sent("PATCH").len(), 0);
    let tried = bench.wrote("widgets", "create", "conflict");
    assert!((10..60).contains(&tried), "{tried} in a minute");
}

/// The creation of an object that the pod `a` waits for, and what is done while it is refused.
fn awaited_creation(instead: &[Action]) -> Action {
    let mut target = target(WIDGET, "p");
    target.uid = "".into();
    let refusal = Refusal {
        reason: "WidgetNotMade",
        note: "widget p cannot be made".to_owned(),
        waiting: vec![Target::new(POD, &Name::new("ns", "a"), "uid-a")],
        instead: instead.to_vec(),
    };
    let write = Write::Create(json!({"metadata": {"name": "p"}}));
    Action::new(target, write, Vec::new()).with_refusal(refusal)
}

#[tokio::test(start_paused = true)]
async fn an_object_that_begins_to_wait_during_the_pause_is_told_of_the_refusal() {
    let mut bench = bench(|_| Reply::status(403, "exceeded quota"));
    let awaited = |names: &[&str]| {
        let mut action = awaited_creation(&[]);
        let refusal = action.refusal.as_mut().unwrap();
        let targets = names.iter().map(|name| Target::new(POD, &Name::new("ns", name), name));
        refusal.waiting = targets.collect();
        vec![action]
    };
    bench.carry_out(awaited(&["a"])).await;
    bench.executor.take(awaited(&["a", "b"]));
    bench.executor.take(awaited(&["b"]));
    bench.executor.take(awaited(&["b", "a"]));
    tokio::time::sleep(SECOND / 2).await;
    assert_eq!(bench.sent("POST").len(), 1, "in the same pause");
    let events = bench.api.events();
    let told: Vec<_> = events.iter().map(|event| &event["regarding"]["name"]).collect();
    assert_eq!(told, ["a", "b"], "each is told once");
    assert!(bench.api.notes().iter().all(|note| note.ends_with("exceeded quota")));
}

#[tokio::test(start_paused = true)]
async fn a_taken_name_is_an_event_and_is_retried_with_growing_pauses() {
    let mut bench = bench(|_| Reply::status(409, "AlreadyExists"));
    let action = awaited_creation(&[]);
    bench.plan_for(SECOND / 2, || vec![action.clone()]).await;
    assert!(bench.api.events().is_empty(), "it may be stowplan's own");
    bench.plan_for(SECOND * 60, || vec![action.clone()]).await;
    assert!((5..=7).contains(&bench.api.writes().len()), "{:?}", bench.api.writes());
    let notes = bench.api.notes();
    let [note] = &notes[..] else { panic!("{notes:?}") };
    assert!(note.starts_with("widget p cannot be made: "), "{note}");
    assert!(note.contains("is not stowplan's"), "{note}");
}

/// The watch may be late by more than two refusals, when it begins again after failures.
#[tokio::test(start_paused = true)]
async fn the_name_of_an_own_creation_is_not_taken() {
    let mut posts = 0;
    let mut bench = bench(move |call| match call.method.as_str() {
        "POST" => {
            posts += 1;
            if posts == 1 {
                Reply::json(201, &json!({}))
            } else {
                Reply::status(409, "AlreadyExists")
            }
        }
        _ => written("n1"),
    });
    let creation = || vec![awaited_creation(&[label("n1", "y")])];
    bench.plan_for(SECOND * 30, creation).await;
    assert!(
        bench.api.notes().iter().all(|note| !note.contains("not stowplan's")),
        "{:?}",
        bench.api.notes()
    );
    assert_eq!(bench.sent("PATCH").len(), 0, "nothing is done in its place");
    assert!((3..=30).contains(&bench.sent("POST").len()), "{:?}", bench.api.writes());
    // It was deleted before the View showed it, and the name is that of another object by now.
    bench.plan_for(SECOND * 60, creation).await;
    assert!(bench.api.notes().iter().any(|note| note.contains("not stowplan's")));
}

/// After the first AlreadyExists the object may be stowplan's own; after a lost answer, too.
#[tokio::test(start_paused = true)]
async fn actions_are_carried_out_instead_of_a_creation_that_is_refused_for_certain() {
    for (code, reason, after) in
        [(403, "Forbidden", 1), (422, "Invalid", 1), (409, "AlreadyExists", 2), (500, "Other", 0)]
    {
        // The number of creations before the other action.
        let (creations, before) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (count, found) = (Arc::clone(&creations), Arc::clone(&before));
        let mut bench = bench(move |call| match call.method.as_str() {
            "POST" => {
                count.fetch_add(1, Ordering::SeqCst);
                Reply::status(code, reason)
            }
            _ => {
                let count = count.load(Ordering::SeqCst);
                let _ = found.compare_exchange(0, count, Ordering::SeqCst, Ordering::SeqCst);
                written("n1")
            }
        });
        bench.plan_for(30 * SECOND, || vec![awaited_creation(&[label("n1", "y")])]).await;
        assert!(creations.load(Ordering::SeqCst) > 2, "{code}");
        assert_eq!(before.load(Ordering::SeqCst), after, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_creation_is_tried_again_and_further_actions_do_not_wait_for_that() {
    let mut creations = 0;
    let mut bench = bench(move |call| match call.method.as_str() {
        "POST" => {
            creations += 1;
            if creations < 3 {
                Reply::status(403, "Forbidden")
            } else {
                Reply::json(201, &json!({}))
            }
        }
        _ => written(call.path.trim_start_matches("/api/v1/nodes/")),
    });
    let counts = |bench: &Bench| (bench.sent("POST").len(), bench.sent("PATCH").len());
    let plan = |nodes: &[&str]| {
        let instead: Vec<_> = nodes.iter().map(|node| label(node, "y")).collect();
        vec![awaited_creation(&instead)]
    };
    bench.carry_out(plan(&["n1"])).await;
    assert_eq!(counts(&bench), (1, 0));
    bench.carry_out(plan(&["n1"])).await;
    // The View shows that.
    bench.executor.take(plan(&[]));
    assert!(!bench.executor.has_waiting());
    bench.carry_out(plan(&["n2"])).await;
    assert_eq!(counts(&bench), (1, 2), "in the same pause");
    bench.plan_for(20 * SECOND, || plan(&[])).await;
    assert!(counts(&bench).0 > 2, "{:?}", counts(&bench));
    // The last one succeeded.
    bench.executor.take(plan(&["n3"]));
    assert!(!bench.executor.has_waiting());
}

#[tokio::test(start_paused = true)]
async fn an_action_instead_of_another_is_paused_and_gives_way_like_any() {
    let mut bench = bench(|_| Reply::status(403, "Forbidden"));
    bench.plan_for(60 * SECOND, || vec![awaited_creation(&[label("n1", "y")])]).await;
    let tried = bench.sent("PATCH").len();
    assert!((5..=7).contains(&tried), "{tried}");
    // The plan's own action for the object is another one.
    let own = || vec![awaited_creation(&[label("n1", "y")]), label("n1", "own")];
    bench.plan_for(60 * SECOND, own).await;
    let patches = bench.sent("PATCH").split_off(tried);
    assert!(!patches.is_empty() && patches.iter().all(|call| call.body[1]["value"] == "own"));
}

/// Where the same object refuses both, neither is tried again and again.
#[tokio::test(start_paused = true)]
async fn an_action_instead_of_another_one_on_the_same_object_is_carried_out() {
    for is_taken in [true, false] {
        let mut bench = bench(move |call| match call.body[1]["value"] == "aside" && is_taken {
            true => written("n1"),
            false => Reply::status(403, "Forbidden"),
        });
        let refusal = Refusal {
            reason: "NotChanged",
            note: "it cannot be changed".to_owned(),
            waiting: Vec::new(),
            instead: vec![label("n1", "aside")],
        };
        let action = label("n1", "own").with_refusal(refusal);
        bench.plan_for(2 * SECOND, || vec![action.clone()]).await;
        let values: Vec<_> =
            bench.sent("PATCH").iter().map(|call| call.body[1]["value"].clone()).collect();
        assert_eq!(values[..2], [json!("own"), json!("aside")], "{is_taken}");
        if is_taken {
            // The View shows it at once, and the next plan is another one.
            continue;
        }
        bench.plan_for(60 * SECOND, || vec![action.clone()]).await;
        let tried = bench.sent("PATCH").len();
        assert!((4..=60).contains(&tried), "{tried} in a minute");
    }
}

/// Removes these labels from a node, unless a listed widget names both node and label.
fn release(name: &str, labels: &[&str]) -> Action {
    let reduce = |widgets: &[Value], node: &Target, operations: &[PatchOperation]| {
        let is_held = |operation: &&PatchOperation| {
            widgets.iter().any(|widget| {
                let label = widget["label"].as_str().unwrap();
                widget["node"] == *node.name && operation.path().as_str().ends_with(label)
            })
        };
        let left: Vec<_> = operations.iter().filter(|it| !is_held(it)).cloned().collect();
        (!left.is_empty()).then_some(left)
    };
    let remove =
        |label: &&str| json!({"op": "remove", "path": format!("/metadata/labels/{label}")});
    let operations: Vec<Value> = labels.iter().map(remove).collect();
    let write = Write::Patch(serde_json::from_value(json!(operations)).unwrap());
    Action::new(target(NODE, name), write, Vec::new())
        .with_confirmation(Confirmation::List(Listed { verb: "release", resource: WIDGET, reduce }))
}

#[tokio::test(start_paused = true)]
async fn only_operations_that_a_fresh_list_confirms_are_sent() {
    let widgets = ["n1", "n2"].map(|node| json!({"node": node, "label": "held"}));
    let mut bench = bench(move |call| match call.method.as_str() {
        "GET" => Reply::list(&widgets),
        _ => written("n2"),
    });
    bench.executor.take(vec![
        release("n1", &["held"]),
        release("n2", &["held", "free"]),
        release("n3", &["free"]),
    ]);
    for _ in 0..3 {
        bench.executor.next().await;
    }
    let lists = bench.sent("GET");
    assert_eq!(lists.len(), 1, "one shared list: {lists:?}");
    assert_eq!(lists[0].path, "/apis/example.com/v1/widgets");
    assert!(!lists[0].query.contains("resourceVersion"), "{}", lists[0].query);
    let patches = bench.sent("PATCH");
    let sent: Vec<_> = patches.iter().map(|call| (call.path.as_str(), &call.body)).collect();
    let free = json!([{"op": "remove", "path": "/metadata/labels/free"}]);
    assert_eq!(sent, [("/api/v1/nodes/n2", &free), ("/api/v1/nodes/n3", &free)]);
    assert_eq!(bench.wrote("nodes", "release", "kept"), 1);
    assert_eq!(bench.wrote("nodes", "release", "done"), 2);
    for (node, pause, lists) in [("n4", SHARED_FOR / 2, 1), ("n5", SHARED_FOR / 2, 2)] {
        tokio::time::sleep(pause).await;
        bench.carry_out(vec![release(node, &["free"])]).await;
        assert_eq!(bench.sent("GET").len(), lists, "while the lists are shared, and after it");
    }
}

/// Labels a node after the creation of a widget with generated keys.
fn label_after(name: &str, is_trial: bool, if_taken: IfTaken) -> Action {
    let record = |created: Option<&Value>, operations: &[PatchOperation]| {
        let mut operations = operations.to_vec();
        if let (Some(created), Some(PatchOperation::Add(add))) = (created, operations.last_mut()) {
            add.value = created["metadata"]["uid"].clone();
        }
        operations
    };
    let creation = Creation {
        resource: NODE,
        object: json!({"kind": "Node", "metadata": {"name": "other"}}),
        content: (!is_trial).then_some(Content::SshKeys),
        is_trial,
        if_taken,
        record: Some(record),
    };
    label(name, "made").with_confirmation(Confirmation::Creation(Box::new(creation)))
}

#[tokio::test(start_paused = true)]
async fn a_creation_comes_before_the_write_that_depends_on_it() {
    let mut bench = bench(|call| match call.method.as_str() {
        "POST" => Reply::json(201, &json!({"metadata": {"uid": "of-other"}})),
        _ => written("n1"),
    });
    for (name, is_trial) in [("n1", true), ("n2", false)] {
        bench.carry_out(vec![label_after(name, is_trial, IfTaken::Send)]).await;
    }
    let calls = bench.api.writes();
    let sent: Vec<_> = calls.iter().map(|call| (call.method.as_str(), &*call.path)).collect();
    let (all, one, two) = ("/api/v1/nodes", "/api/v1/nodes/n1", "/api/v1/nodes/n2");
    assert_eq!(sent, [("POST", all), ("PATCH", one), ("POST", all), ("PATCH", two)]);
    assert!(calls[0].query.contains("dryRun=All"), "{}", calls[0].query);
    assert_eq!(calls[0].body["stringData"], Value::Null, "a trial has no keys");
    assert!(!calls[2].query.contains("dryRun"), "{}", calls[2].query);
    let key = calls[2].body["stringData"]["ssh-privatekey"].as_str().unwrap();
    assert!(key.starts_with("-----BEGIN OPENSSH PRIVATE KEY-----"));
    assert_eq!(calls[3].body[1]["value"], "of-other");
    assert_eq!(bench.wrote("nodes", "try", "done"), 1);
    assert_eq!(bench.wrote("nodes", "create", "done"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_taken_name_confirms_refuses_or_makes_a_write_needless() {
    for (if_taken, is_trial, patches, outcome) in [
        (IfTaken::Send, false, 1, "done"),
        (IfTaken::Refuse, true, 0, "refused"),
        (IfTaken::Keep, true, 0, "kept"),
    ] {
        let mut bench = bench(|call| match call.method.as_str() {
            "POST" => Reply::status(409, "AlreadyExists"),
            _ => written("n1"),
        });
        bench.carry_out(vec![label_after("n1", is_trial, if_taken)]).await;
        let sent = bench.sent("PATCH");
        assert_eq!(sent.len(), patches, "{if_taken:?}");
        assert!(sent.iter().all(|call| call.body[1]["value"] == "made"), "{if_taken:?}");
        assert_eq!(bench.wrote("nodes", "patch", outcome), 1, "{if_taken:?}");
    }
    // Anything else is no answer to whether the name is free.
    for (code, outcome) in [(403, "refused"), (422, "refused"), (500, "unsure")] {
        let mut bench = bench(move |_| Reply::status(code, "Other"));
        bench.carry_out(vec![label_after("n1", true, IfTaken::Keep)]).await;
        assert_eq!(bench.wrote("nodes", "patch", outcome), 1, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_list_nothing_is_sent() {
    for reply in [
        || Reply::status(500, "InternalError"),
        || Reply::json(200, &json!("no list")),
        || Reply::Drop,
    ] {
        let mut bench = bench(move |_| reply());
        bench.plan_for(SECOND * 20, || vec![release("n1", &["free"])]).await;
        assert!((2..10).contains(&bench.sent("GET").len()), "{:?}", bench.api.calls());
        assert_eq!(bench.sent("GET").len(), bench.api.calls().len());
    }
}

#[tokio::test(start_paused = true)]
async fn eight_writes_at_once_and_one_per_object() {
    let mut bench = bench(|call| {
        Reply::Late(200, node(call.path.trim_start_matches("/api/v1/nodes/"), 2, &json!({})))
    });
    let all = || (0..30).map(|number| label(&format!("n{number}"), "y")).collect::<Vec<_>>();
    bench.executor.take(all());
    for _ in 0..30 {
        // Planned again meanwhile: an object with a write in flight is skipped.
        assert!(bench.executor.running.len() <= CONCURRENCY);
        bench.executor.next().await;
    }
    assert!(bench.executor.running.is_empty() && bench.executor.waiting.is_empty());
    // One event may be sent at the same time.
    let most = bench.api.max_concurrency();
    assert!((CONCURRENCY..=CONCURRENCY + 1).contains(&most), "{most}");
    let paths: HashSet<_> = bench.api.writes().into_iter().map(|call| call.path).collect();
    assert_eq!((paths.len(), bench.api.writes().len()), (30, 30));

    bench.executor.take(all());
    bench.executor.start_writes();
    bench.executor.take(all());
    assert_eq!(bench.executor.running.len(), CONCURRENCY);
    let waiting = std::iter::from_fn(|| bench.executor.waiting.next()).count();
    assert_eq!(waiting, 30 - CONCURRENCY, "an object with a write in flight is not queued again");

    // Nor are two writes to one object in flight at once.
    let mut bench = self::bench(|_| Reply::Hang);
    bench.executor.take(vec![label("n1", "a"), label("n1", "b"), label("n2", "c")]);
    bench.executor.start_writes();
    assert_eq!(bench.executor.running.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn without_the_lease_nothing_is_written() {
    let mut bench = bench(|_| written("n1"));
    bench.leadership.set(Some(Instant::now() + SECOND));
    tokio::time::advance(SECOND).await;
    bench.carry_out(vec![label("n1", "y")]).await;
    assert!(bench.api.calls().is_empty());
    assert_eq!(bench.wrote("nodes", "patch", "unsent"), 1);
    bench.leadership.set(Some(Instant::now() + SECOND));
    bench.carry_out(vec![label("n1", "y")]).await;
    assert_eq!(bench.wrote("nodes", "patch", "done"), 1);
}
