//! Events (events.k8s.io/v1) about the objects that users know.
//!
//! They are told by a task of its own from a bounded queue: an event that cannot be written is
//! dropped with a line in the log, and no write ever waits for one.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::debug;

use super::problem;
use crate::systems::plan;
use crate::telemetry::{Metrics, shown};

/// The name under which the events are told.
const CONTROLLER: &str = "stowplan";

/// Events that wait to be written.
const QUEUE: usize = 256;

/// Events that are remembered, to be told again as the same, or not again.
const REMEMBERED: usize = 4096;

/// How long the writing of one may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The longest note that the API server takes, in bytes.
const LONGEST_NOTE: usize = 1024;

/// Tells events, for as long as one of its clones lives.
#[derive(Clone, Debug)]
pub struct Events {
    queue: mpsc::Sender<Told>,
    once: Arc<Mutex<Memory<()>>>,
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

    /// The same, unless this process has told it before.
    pub fn tell_once(&self, regarding: &ObjectReference, event: &plan::Event) {
        let mut once = self.once.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new = false;
        once.recall(key(regarding, event), || new = true);
        if new {
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
