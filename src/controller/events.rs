//! Records Events (events.k8s.io/v1) about objects that users know.
//!
//! A separate task sends them from a bounded queue. An event that cannot be sent is logged and
//! dropped; no write ever waits for an event.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tracing::debug;

use super::format_error;
use crate::telemetry::{Metrics, shown};
use stowplan_core::systems::plan;

/// The name of the reporting controller in events.
const CONTROLLER: &str = "stowplan";

/// The capacity of the queue.
const QUEUE: usize = 256;

/// How many recent events are remembered: a repetition of one only increases its count.
const REMEMBERED: usize = 4096;

/// How many recorded notes are remembered, at about 60 bytes each. It must exceed the number of
/// notes in one plan; otherwise each note would count as new in each plan.
const RECORDED_NOTES: usize = 65_536;

/// The shortest time between two notes that differ only in their numbers: the scheduler's messages
/// contain counts of nodes, and each new count would be another event.
const SIMILAR_NOTE_INTERVAL: Duration = Duration::from_secs(300);

/// How long sending an event may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The longest note that the API server accepts, in bytes.
const LONGEST_NOTE: usize = 1024;

/// Records events. The sending task ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    queue: mpsc::Sender<Pending>,
    once: Arc<Mutex<Notes>>,
    metrics: Arc<Metrics>,
}

/// An event, and the object that it is about.
type Pending = (ObjectReference, plan::Event);

impl Events {
    /// Starts the task that sends events, with `identity` as the reporting instance.
    #[must_use]
    pub(crate) fn start(client: Client, identity: String, metrics: Arc<Metrics>) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        tokio::spawn(write(client, identity, waiting));
        Self { queue, once: Arc::default(), metrics }
    }

    pub(crate) fn record(&self, regarding: &ObjectReference, event: &plan::Event) {
        self.metrics.count_event(event.reason);
        let cut = plan::Event { note: cut(&event.note), ..event.clone() };
        if self.queue.try_send((regarding.clone(), cut)).is_err() {
            let name = regarding.name.as_deref().unwrap_or_default();
            debug!(name, reason = event.reason, "event dropped: the queue is full");
        }
    }

    /// Records an event unless this process has recorded it before: each plan repeats an event
    /// while its cause lasts. If the queue is full, a later repetition is recorded.
    pub(crate) fn record_once(&self, regarding: &ObjectReference, event: &plan::Event) {
        let mut once = self.once.lock().unwrap_or_else(PoisonError::into_inner);
        if self.queue.capacity() > 0 && once.admit(regarding, event, Instant::now()) {
            self.record(regarding, event);
        }
    }
}

async fn write(client: Client, identity: String, mut waiting: mpsc::Receiver<Pending>) {
    // A Recorder treats two events with the same object and reason as repetitions and resends the
    // first note. So each note has its own Recorder.
    let mut recorders: Recent<Recorder> = Recent::new(REMEMBERED);
    let reporter = Reporter { controller: CONTROLLER.to_owned(), instance: Some(identity) };
    while let Some((regarding, event)) = waiting.recv().await {
        let key = recorders.key((about(&regarding), event.reason, &event.note));
        let recorder = recorders.recall(key, || Recorder::new(client.clone(), reporter.clone()));
        let name = regarding.name.as_deref().unwrap_or_default();
        let event_to_send = Event {
            type_: if event.warning { EventType::Warning } else { EventType::Normal },
            reason: event.reason.to_owned(),
            note: Some(event.note),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        let problem = match timeout(TIMEOUT, recorder.publish(&event_to_send, &regarding)).await {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => format_error(&error),
            Err(_) => "no answer".to_owned(),
        };
        debug!(name, reason = event.reason, problem = &*shown(&problem), "event not sent");
    }
}

/// Returns the fields that identify an object among all events.
fn about(regarding: &ObjectReference) -> impl Hash {
    let ObjectReference { kind, namespace, name, uid, .. } = regarding;
    (kind, namespace, name, uid)
}

/// Cuts a note to [`LONGEST_NOTE`].
fn cut(note: &str) -> String {
    if note.len() <= LONGEST_NOTE {
        return note.to_owned();
    }
    let end = note.floor_char_boundary(LONGEST_NOTE - "…".len());
    format!("{}…", &note[..end])
}

/// The notes that this process has recorded, by the object, the reason, and the note without its digits: an
/// object can have two notes with the same reason at once.
///
/// For each of them: the hash of the last note with its digits, and when it was recorded.
#[derive(Debug)]
struct Notes(Recent<(u64, Instant)>);

impl Default for Notes {
    fn default() -> Self {
        Self(Recent::new(RECORDED_NOTES))
    }
}

impl Notes {
    /// Decides whether to record an event now, and remembers it if so.
    fn admit(&mut self, regarding: &ObjectReference, event: &plan::Event, now: Instant) -> bool {
        let words = event.note.split(|letter: char| letter.is_ascii_digit());
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        let key = self.0.key((about(regarding), event.reason, words));
        let own = self.0.key(&event.note);
        let is_new = !self.0.held.contains_key(&key);
        let (note, at) = self.0.recall(key, || (own, now));
        let is_due = *note != own && SIMILAR_NOTE_INTERVAL <= now.duration_since(*at);
        if is_due {
            (*note, *at) = (own, now);
        }
        is_new || is_due
    }
}

/// A value for each of the most recent keys, which are hashes; the oldest are forgotten first.
#[derive(Debug)]
struct Recent<T> {
    most: usize,
    held: HashMap<u64, T>,
    order: VecDeque<u64>,
    hasher: RandomState,
}

impl<T> Recent<T> {
    fn new(most: usize) -> Self {
        let (held, order, hasher) = (HashMap::new(), VecDeque::new(), RandomState::new());
        Self { most, held, order, hasher }
    }

    fn key(&self, of: impl Hash) -> u64 {
        self.hasher.hash_one(of)
    }

    /// Returns the value of `key`; a new one from `make` if there is none.
    fn recall(&mut self, key: u64, make: impl FnOnce() -> T) -> &mut T {
        if !self.held.contains_key(&key) {
            if self.order.len() >= self.most
                && let Some(oldest) = self.order.pop_front()
            {
                self.held.remove(&oldest);
            }
            self.order.push_back(key);
        }
        self.held.entry(key).or_insert_with(make)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::controller::fake::{Api, Reply};

    fn event(note: &str) -> plan::Event {
        plan::Event { warning: true, reason: "MemberLost", note: note.to_owned() }
    }

    fn pool() -> ObjectReference {
        let pool = json!({"kind": "HostPool", "namespace": "ns", "name": "p", "uid": "u"});
        serde_json::from_value(pool).unwrap()
    }

    fn start() -> (Api, Events) {
        let api = Api::new(|call| Reply::json(200, &call.body));
        let events = Events::start(api.client(), "me".to_owned(), Arc::default());
        (api, events)
    }

    async fn recorded(notes: &[&str]) -> Vec<Value> {
        let (api, events) = start();
        for note in notes {
            events.record(&pool(), &event(note));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        api.events()
    }

    #[tokio::test(start_paused = true)]
    async fn a_repetition_increases_the_count_and_another_note_is_another_event() {
        let events = recorded(&["place 3", "place 5", "place 3"]).await;
        let notes = ["place 3", "place 5", "place 3"];
        assert_eq!([0, 1, 2].map(|index| events[index]["note"].as_str().unwrap()), notes);
        let names: Vec<_> = events.iter().map(|event| &event["metadata"]["name"]).collect();
        assert_eq!(names[0], names[2]);
        assert_ne!(names[0], names[1]);
        assert_eq!(events[2]["series"]["count"], 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_note_is_cut_to_the_length_that_the_api_server_accepts() {
        let long = "é".repeat(2000);
        let cut_long = cut(&long);
        assert_eq!(recorded(&[&long]).await[0]["note"], cut_long);
        assert!(cut_long.len() == 1023 && cut_long.ends_with("é…"), "{cut_long}");
        let (fits, not) = ("x".repeat(1024), "x".repeat(1025));
        assert_eq!(cut(&fits), fits);
        assert_eq!(cut(&not).len(), 1024);
    }

    #[tokio::test(start_paused = true)]
    async fn events_that_cannot_be_sent_delay_nothing() {
        let api = Api::new(|_| Reply::Hang);
        let metrics = Arc::new(Metrics::new());
        let events = Events::start(api.client(), "me".to_owned(), Arc::clone(&metrics));
        for number in 0..10 * QUEUE {
            events.record(&pool(), &event(&number.to_string()));
        }
        tokio::time::sleep(TIMEOUT * 3).await;
        assert!(api.events().len() >= 3, "later events are tried");
        let text = metrics.to_text();
        let series = "stowplan_controller_events_total{reason=\"MemberLost\"}";
        let all = format!("{series} {}", 10 * QUEUE);
        assert!(text.contains(&all), "dropped events are counted, too: {text}");
    }

    /// The notes that are recorded if `notes` are repeated every second for so many seconds.
    async fn recorded_while_repeated(
        seconds: u64,
        notes: impl Fn(u64) -> Vec<String>,
    ) -> Vec<String> {
        let (api, events) = start();
        for second in 0..seconds {
            for note in notes(second) {
                events.record_once(&pool(), &event(&note));
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        api.notes()
    }

    #[tokio::test(start_paused = true)]
    async fn a_note_whose_numbers_change_is_recorded_every_five_minutes_and_another_at_once() {
        let fit = |second: u64| format!("0/{second} nodes fit");
        let notes = recorded_while_repeated(901, |second| vec![fit(second)]).await;
        assert_eq!(notes, [0, 300, 600, 900].map(fit));
        // The same note is not recorded again, however long its cause lasts.
        assert_eq!(recorded_while_repeated(2_000, |_| vec![fit(7)]).await, [fit(7)]);
        // Another one is, at once.
        let both = |_| vec!["claim a".to_owned(), "claim b".to_owned()];
        assert_eq!(recorded_while_repeated(1_000, both).await, ["claim a", "claim b"]);
        let turns = |second: u64| vec![["full", "cordoned"][second as usize % 2].to_owned()];
        assert_eq!(recorded_while_repeated(1_000, turns).await, ["full", "cordoned"]);
    }

    #[tokio::test(start_paused = true)]
    async fn each_of_many_notes_is_recorded_once() {
        let many = 3 * REMEMBERED;
        let pool = pool();
        let of = |number: usize| ObjectReference { uid: Some(number.to_string()), ..pool.clone() };
        let mut notes = Notes::default();
        for round in 0..3 {
            for number in 0..many {
                let is_new = notes.admit(&of(number), &event("full"), Instant::now());
                assert_eq!(is_new, round == 0, "{number}");
            }
        }
        for number in many..=RECORDED_NOTES {
            assert!(notes.admit(&of(number), &event("full"), Instant::now()));
        }
        assert_eq!((notes.0.held.len(), notes.0.order.len()), (RECORDED_NOTES, RECORDED_NOTES));
        assert!(!notes.admit(&of(1), &event("full"), Instant::now()));
        assert!(notes.admit(&of(0), &event("full"), Instant::now()), "forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn a_note_that_does_not_fit_into_the_queue_is_recorded_later() {
        let (api, events) = start();
        for _ in 0..4 {
            for number in 0..2 * QUEUE {
                let about = ObjectReference { uid: Some(number.to_string()), ..pool() };
                events.record_once(&about, &event("full"));
            }
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        assert_eq!(api.events().len(), 2 * QUEUE);
    }
}
