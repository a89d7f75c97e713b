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

use super::causes;
use crate::systems::plan;
use crate::telemetry::shown;

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
    pub fn start(client: Client, identity: String) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        tokio::spawn(write(client, identity, waiting));
        Self { queue, once: Arc::default() }
    }

    /// Tells an event about an object.
    pub fn tell(&self, regarding: &ObjectReference, event: &plan::Event) {
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
            Ok(Err(error)) => causes(&error),
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
