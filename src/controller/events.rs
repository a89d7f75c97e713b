//! Events (events.k8s.io/v1) about the objects that users know.
//!
//! They are told by a task of its own from a bounded queue: an event that cannot be written is
//! dropped with a line in the log, and no write ever waits for one.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tracing::debug;

use super::problem;
use crate::systems::plan;
use crate::telemetry::{Metrics, shown};

/// The name under which the events are told.
const CONTROLLER: &str = "stowplan";

/// Events that wait to be written.
const QUEUE: usize = 256;

/// Events that are remembered, to be told again as the same.
const REMEMBERED: usize = 4096;

/// Notes that stand and are remembered as told, some 60 bytes each. More than are offered in one plan, or
/// each of those would be new in each.
const STANDING: usize = 65_536;

/// How long a note rests that differs from the last one in nothing but its numbers: the scheduler counts
/// nodes in its own, and each of them would be another event.
const REST: Duration = Duration::from_secs(300);

/// How long the writing of one may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The longest note that the API server takes, in bytes.
const LONGEST_NOTE: usize = 1024;

/// Tells events, for as long as one of its clones lives.
#[derive(Clone, Debug)]
pub struct Events {
    queue: mpsc::Sender<Told>,
    once: Arc<Mutex<Standing>>,
    metrics: Arc<Metrics>,
}

/// What makes two events the same.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Key {
    kind: String,
    namespace: String,
    name: String,
    uid: String,
    reason: &'static str,
    note: String,
}

#[derive(Debug)]
struct Told {
    regarding: ObjectReference,
    event: plan::Event,
}

impl Events {
    /// Starts the task that writes them, in the name of `identity`.
    #[must_use]
    pub fn start(client: Client, identity: String, metrics: Arc<Metrics>) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        tokio::spawn(write(client, identity, waiting));
        Self { queue, once: Arc::default(), metrics }
    }

    /// Tells an event about an object.
    pub fn tell(&self, regarding: &ObjectReference, event: &plan::Event) {
        self.metrics.told(event.reason);
        let cut = plan::Event { note: cut(&event.note), ..event.clone() };
        let told = Told { regarding: regarding.clone(), event: cut };
        if self.queue.try_send(told).is_err() {
            let name = regarding.name.as_deref().unwrap_or_default();
            debug!(name, reason = event.reason, "an event is left out: too many wait");
        }
    }

    /// The same, unless this process has told it before: what stands is offered by each plan. A note that
    /// finds no place in the queue is not told yet.
    pub fn tell_once(&self, regarding: &ObjectReference, event: &plan::Event) {
        let mut once = self.once.lock().unwrap_or_else(PoisonError::into_inner);
        if self.queue.capacity() > 0 && once.is_news(regarding, event, Instant::now()) {
            self.tell(regarding, event);
        }
    }
}

async fn write(client: Client, identity: String, mut waiting: mpsc::Receiver<Told>) {
    // A Recorder takes two events about one object and of one reason for the same, and would show the
    // first note again. So each note has its own.
    let mut recorders: Memory<Recorder> = Memory::default();
    let reporter = Reporter { controller: CONTROLLER.to_owned(), instance: Some(identity) };
    while let Some(Told { regarding, event }) = waiting.recv().await {
        let recorder = recorders
            .recall(key(&regarding, &event), || Recorder::new(client.clone(), reporter.clone()));
        let name = regarding.name.as_deref().unwrap_or_default();
        let told = Event {
            type_: if event.warning { EventType::Warning } else { EventType::Normal },
            reason: event.reason.to_owned(),
            note: Some(event.note),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        let problem = match timeout(TIMEOUT, recorder.publish(&told, &regarding)).await {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => problem(&error),
            Err(_) => "no answer".to_owned(),
        };
        debug!(name, reason = event.reason, problem = &*shown(&problem), "an event is not written");
    }
}

fn key(regarding: &ObjectReference, event: &plan::Event) -> Key {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Key {
        kind: text(&regarding.kind),
        namespace: text(&regarding.namespace),
        name: text(&regarding.name),
        uid: text(&regarding.uid),
        reason: event.reason,
        note: cut(&event.note),
    }
}

/// `note` at the length that an event can have.
fn cut(note: &str) -> String {
    if note.len() <= LONGEST_NOTE {
        return note.to_owned();
    }
    let end = note.floor_char_boundary(LONGEST_NOTE - "…".len());
    format!("{}…", &note[..end])
}

/// The notes that this process has told and that may stand still; the oldest is forgotten first.
#[derive(Debug, Default)]
struct Standing {
    /// By object, reason and what the note says besides numbers. Two notes of one reason may stand at once.
    held: HashMap<u64, Last>,
    order: VecDeque<u64>,
    hasher: RandomState,
}

/// What was told last.
#[derive(Clone, Copy, Debug)]
struct Last {
    /// The whole note, as a hash.
    note: u64,
    at: Instant,
}

impl Standing {
    /// Whether an event is to be told now. It counts as told then.
    fn is_news(&mut self, regarding: &ObjectReference, event: &plan::Event, now: Instant) -> bool {
        let ObjectReference { kind, namespace, name, uid, .. } = regarding;
        let words = event.note.split(|letter: char| letter.is_ascii_digit());
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        let key = self.hasher.hash_one((kind, namespace, name, uid, event.reason, words));
        let last = Last { note: self.hasher.hash_one(&event.note), at: now };
        if let Some(known) = self.held.get_mut(&key) {
            let is_new = known.note != last.note && REST <= now.duration_since(known.at);
            if is_new {
                *known = last;
            }
            return is_new;
        }
        if self.order.len() >= STANDING
            && let Some(oldest) = self.order.pop_front()
        {
            self.held.remove(&oldest);
        }
        self.order.push_back(key);
        self.held.insert(key, last);
        true
    }
}

/// What belongs to the last events; the oldest is forgotten first.
#[derive(Debug)]
struct Memory<T> {
    held: HashMap<Key, T>,
    order: VecDeque<Key>,
}

impl<T> Default for Memory<T> {
    fn default() -> Self {
        Self { held: HashMap::new(), order: VecDeque::new() }
    }
}

impl<T> Memory<T> {
    /// What is held for `key`, made where nothing is.
    fn recall(&mut self, key: Key, make: impl FnOnce() -> T) -> &mut T {
        if !self.held.contains_key(&key) {
            if self.order.len() >= REMEMBERED
                && let Some(oldest) = self.order.pop_front()
            {
                self.held.remove(&oldest);
            }
            self.order.push_back(key.clone());
        }
        self.held.entry(key).or_insert_with(make)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::controller::fake::{Api, Reply};

    fn event(note: &str) -> plan::Event {
        plan::Event { warning: true, reason: "MemberLost", note: note.to_owned() }
    }

    fn pool() -> ObjectReference {
        ObjectReference {
            api_version: Some("stowplan.dev/v1alpha1".to_owned()),
            kind: Some("HostPool".to_owned()),
            namespace: Some("ns".to_owned()),
            name: Some("p".to_owned()),
            uid: Some("u".to_owned()),
            ..ObjectReference::default()
        }
    }

    async fn told(notes: &[&str]) -> Vec<Value> {
        let api = Api::new(|call| Reply::json(200, &call.body));
        let events = Events::start(api.client(), "me".to_owned(), Arc::default());
        for note in notes {
            events.tell(&pool(), &event(note));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        api.events()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_repeated_is_counted_and_another_note_is_another_event() {
        let events = told(&["place 3", "place 5", "place 3"]).await;
        let notes: Vec<_> = events.iter().map(|event| event["note"].as_str().unwrap()).collect();
        assert_eq!(notes, ["place 3", "place 5", "place 3"]);
        let names: Vec<_> = events.iter().map(|event| &event["metadata"]["name"]).collect();
        assert_eq!(names[0], names[2]);
        assert_ne!(names[0], names[1]);
        assert_eq!(events[2]["series"]["count"], 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_note_is_cut_to_what_the_api_server_takes() {
        let long = "é".repeat(2000);
        let events = told(&[&long]).await;
        let note = events[0]["note"].as_str().unwrap();
        assert!((1020..=1024).contains(&note.len()), "{}", note.len());
        assert!(note.ends_with("é…"));
        let (fits, not) = ("x".repeat(1024), "x".repeat(1025));
        assert_eq!(cut(&fits), fits);
        assert_eq!(cut(&not).len(), 1024);
    }

    #[tokio::test(start_paused = true)]
    async fn events_that_cannot_be_written_hold_up_nobody() {
        let api = Api::new(|_| Reply::Hang);
        let metrics = Arc::new(Metrics::new());
        let events = Events::start(api.client(), "me".to_owned(), Arc::clone(&metrics));
        for number in 0..10 * QUEUE {
            events.tell(&pool(), &event(&number.to_string()));
        }
        tokio::time::sleep(TIMEOUT * 3).await;
        assert!(api.events().len() >= 3, "the next has its turn");
        let text = metrics.to_text();
        let all =
            format!("stowplan_controller_events_total{{reason=\"MemberLost\"}} {}", 10 * QUEUE);
        assert!(text.contains(&all), "those that are left out are counted, too: {text}");
    }

    /// How often each note is told, when all of them are offered each second for so long.
    async fn told_while_offered(seconds: u64, notes: impl Fn(u64) -> Vec<String>) -> Vec<String> {
        let api = Api::new(|call| Reply::json(200, &call.body));
        let events = Events::start(api.client(), "me".to_owned(), Arc::default());
        for second in 0..seconds {
            for note in notes(second) {
                events.tell_once(&pool(), &event(&note));
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let told = api.events();
        told.iter().map(|event| event["note"].as_str().unwrap().to_owned()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_note_whose_numbers_change_is_told_every_five_minutes() {
        let notes = told_while_offered(901, |second| vec![format!("0/{second} nodes fit")]).await;
        let expected = [0, 300, 600, 900].map(|second| format!("0/{second} nodes fit"));
        assert_eq!(notes, expected);
        // The same is not told again, however long it stands.
        let notes = told_while_offered(2_000, |_| vec!["0/7 nodes fit".to_owned()]).await;
        assert_eq!(notes, ["0/7 nodes fit"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_note_that_says_something_else_is_told_at_once_and_both_may_stand() {
        let both = |_| vec!["claim a".to_owned(), "claim b".to_owned()];
        assert_eq!(told_while_offered(1_000, both).await, ["claim a", "claim b"]);
        let turns = |second: u64| vec![["full", "cordoned"][second as usize % 2].to_owned()];
        assert_eq!(told_while_offered(1_000, turns).await, ["full", "cordoned"]);
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_notes_that_stand_each_is_told_once() {
        let many = 3 * REMEMBERED;
        let of = |number: usize| {
            let mut about = pool();
            about.uid = Some(format!("uid-{number}"));
            about
        };
        let mut standing = Standing::default();
        for round in 0..3 {
            for number in 0..many {
                let is_news = standing.is_news(&of(number), &event("full"), Instant::now());
                assert_eq!(is_news, round == 0, "{number}");
            }
        }
        for number in many..=STANDING {
            assert!(standing.is_news(&of(number), &event("full"), Instant::now()));
        }
        assert_eq!((standing.held.len(), standing.order.len()), (STANDING, STANDING));
        assert!(!standing.is_news(&of(1), &event("full"), Instant::now()));
        assert!(standing.is_news(&of(0), &event("full"), Instant::now()), "forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn what_finds_no_place_in_the_queue_is_told_later() {
        let api = Api::new(|call| Reply::json(200, &call.body));
        let events = Events::start(api.client(), "me".to_owned(), Arc::default());
        for _ in 0..4 {
            for number in 0..2 * QUEUE {
                let about = ObjectReference { uid: Some(number.to_string()), ..pool() };
                events.tell_once(&about, &event("full"));
            }
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        assert_eq!(api.events().len(), 2 * QUEUE);
    }

    #[test]
    fn the_memory_has_an_end_and_forgets_the_oldest() {
        let mut memory = Memory::default();
        let of = |number: usize| key(&pool(), &event(&number.to_string()));
        for number in 0..=REMEMBERED {
            memory.recall(of(number), || number);
        }
        assert_eq!((memory.held.len(), memory.order.len()), (REMEMBERED, REMEMBERED));
        assert_eq!(*memory.recall(of(1), || 7), 1);
        assert_eq!(*memory.recall(of(0), || 7), 7, "forgotten");
        assert_eq!((memory.held.len(), memory.order.len()), (REMEMBERED, REMEMBERED));
    }
}
