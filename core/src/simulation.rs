//! A cluster in memory: an API server; the scheduler, the controllers of workloads and the kubelets, as far as
//! stowplan relies on them; and stowplan's own controller, which plans and acts.
//!
//! Nothing happens by itself. [`Simulation::possible`] lists the events that can happen next, and
//! [`Simulation::apply`] carries one out: the caller chooses the order. Each reader of the API server has a
//! View of its own, which shows a change only after its [`Event::Deliver`]. The time advances only when
//! nothing else is left to do ([`Simulation::run`]).
//!
//! [`store`]: objects, and the API server's rules for writes. [`reader`]: the Views. [`act`]: the actions of
//! plans. [`workloads`], [`scheduler`] and [`kubelet`]: the rest of Kubernetes. [`autoscaler`]: new nodes for
//! pods that wait.

mod act;
mod autoscaler;
mod kubelet;
pub(crate) mod reader;
mod scheduler;
pub(crate) mod store;
#[doc(hidden)]
#[allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "only tests call it, also those of the program"
)]
pub mod testing;
#[cfg(test)]
mod tests;
mod workloads;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::systems;
use crate::systems::View;
use crate::systems::plan::{self, Action, Plan, Target};
use crate::systems::policy::Policy;
use crate::view::Scope;
pub use act::{Outcome, Written};
pub use autoscaler::NodeGroup;
use reader::Reader;
use store::Document;
pub use store::{Answer, Edit, Id, Store, patch};

/// The reader that is stowplan's controller.
pub const CONTROLLER: usize = 0;

/// The most events of one [`Simulation::run`].
const MOST_EVENTS: usize = 200_000;

/// Makes a plan, as [`systems::plan()`] does.
pub type Planner = fn(&View, &Policy, Timestamp) -> Plan;

/// Changes a pod that its owner creates again, as the webhook would.
pub type Admit = fn(&Store, &mut Value);

/// A step of one of the programs of a cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// A reader sees the next change of an object of this kind.
    Deliver { reader: usize, kind: Arc<str> },
    /// stowplan's controller makes a plan, which replaces the one before.
    Plan,
    /// The controller carries out the action at this position of [`Simulation::actions`].
    Write(usize),
    /// The StatefulSet controller creates or deletes a pod of this StatefulSet.
    Scale(Id),
    /// The owner of a deleted pod creates it again.
    Recreate(Id),
    /// The kubelet reports that a pod runs.
    Start(Id),
    /// The kubelet reports the end of a pod that is being deleted.
    End(Id),
    /// The scheduler binds a pod to the node of this name.
    Bind(Id, String),
    /// The scheduler finds no node for a pod.
    Reject(Id),
    /// The garbage collector deletes an object without owners.
    Collect(Id),
    /// The autoscaler makes a node for a pod, in the group of this name.
    Grow(Id, String),
}

/// The programs of a cluster, by the events that they cause.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Part {
    Watches,
    Writes,
    Workloads,
    Kubelets,
    Scheduler,
    Planner,
    Collector,
    Autoscaler,
}

/// All programs, in an order in which each one finishes what it can before the next one begins, and a plan
/// is carried out as a whole.
pub const ALL: &[Part] = &[
    Part::Watches,
    Part::Writes,
    Part::Workloads,
    Part::Kubelets,
    Part::Scheduler,
    Part::Planner,
    Part::Collector,
    Part::Autoscaler,
];

/// stowplan's controller alone.
pub const CONTROLLER_ALONE: &[Part] = &[Part::Watches, Part::Writes, Part::Planner];

/// How much of a plan is carried out before the next one is made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pace {
    /// All of it.
    All,
    /// The first action, as if the controller stopped after each write and another one took over.
    First,
    /// The last action, likewise.
    Last,
}

impl Pace {
    /// Chooses the next event in the order of the parts.
    pub fn choose(
        self,
        simulation: &Simulation,
        mut events: &mut dyn Iterator<Item = Event>,
    ) -> Option<Event> {
        let count = simulation.actions.len();
        let is_write = |event: &Event| matches!(event, Event::Write(_));
        match self {
            Self::All => events.next(),
            Self::First | Self::Last if simulation.has_written => {
                Iterator::find(&mut events, |event| !is_write(event))
            }
            Self::First => events.next(),
            Self::Last => {
                let last = Event::Write(count.saturating_sub(1));
                Iterator::find(&mut events, |event| !is_write(event) || *event == last)
            }
        }
    }
}

/// A cluster, and everything that runs in it.
#[derive(Clone, Debug)]
pub struct Simulation {
    pub store: Store,
    pub policy: Policy,
    planner: Planner,
    pub(crate) readers: Vec<Reader>,
    /// The actions of the latest plan that were not carried out.
    pub(crate) actions: VecDeque<Action>,
    /// When the latest plan asks for another one.
    pub(crate) recheck_at: Option<Timestamp>,
    /// `true` if another plan may differ from the latest one.
    pub(crate) is_stale: bool,
    /// `true` if a write was sent since the latest plan.
    has_written: bool,
    /// The writes of the controller, in order.
    pub writes: Vec<Written>,
    /// The events of the controller, in order, with the objects that they are about.
    pub events: Vec<(Target, plan::Event)>,
    /// `false` while a quota keeps the controllers of workloads from creating pods.
    pub makes_pods: bool,
    /// The kinds of objects that a quota or a policy keeps the controller from creating.
    pub forbidden: Vec<&'static str>,
    /// True if the API server refuses changes of pod templates, as Kueue's webhook does.
    pub keeps_templates: bool,
    /// `false` if the API server has no subresource `resize` of pods.
    pub resizes: bool,
    /// The pods that their owners create again by the same names.
    recreated: BTreeMap<Id, Value>,
    admit: Option<Admit>,
    /// The groups of nodes that the autoscaler manages; none: there is no autoscaler.
    pub node_groups: Vec<NodeGroup>,
    /// The labels of each pod at the latest attempt to schedule it, by the UID of the pod.
    pub(crate) attempts: HashMap<String, Value>,
}

impl Simulation {
    /// Makes an empty cluster with one reader, the [`CONTROLLER`].
    #[must_use]
    pub fn new(policy: Policy, now: Timestamp) -> Self {
        Self {
            store: Store::new(now),
            policy,
            planner: systems::plan,
            readers: vec![Reader::new(Scope::Controller)],
            actions: VecDeque::new(),
            recheck_at: None,
            is_stale: true,
            has_written: false,
            writes: Vec::new(),
            events: Vec::new(),
            makes_pods: true,
            forbidden: Vec::new(),
            keeps_templates: false,
            resizes: true,
            recreated: BTreeMap::new(),
            admit: None,
            node_groups: Vec::new(),
            attempts: HashMap::new(),
        }
    }

    /// Makes plans with `planner`, which may know only a part of stowplan.
    #[must_use]
    pub fn with_planner(self, planner: Planner) -> Self {
        Self { planner, ..self }
    }

    /// Changes pods that are created again with `admit`, as a webhook would.
    #[must_use]
    pub fn with_admission(self, admit: Admit) -> Self {
        Self { admit: Some(admit), ..self }
    }

    /// Adds a reader of the API server, which has seen nothing yet. Returns its number.
    pub fn add_reader(&mut self, scope: Scope) -> usize {
        self.readers.push(Reader::new(scope));
        self.readers.len() - 1
    }

    /// Returns the View of a reader.
    #[must_use]
    pub fn view_of(&self, reader: usize) -> &View {
        self.readers[reader].view()
    }

    /// Ends the simulation. Returns the View of a reader.
    #[must_use]
    pub fn into_view(mut self, reader: usize) -> View {
        self.readers.swap_remove(reader).into_view()
    }

    /// Shows a document to the controller alone: the store does not have it.
    pub fn show(&mut self, document: &Value) {
        self.readers[CONTROLLER].show(&Arc::new(Document::new(document.clone())));
        self.is_stale = true;
    }

    /// Delivers all changes to a reader.
    pub fn catch_up(&mut self, reader: usize) {
        self.is_stale |= self.readers[reader].catch_up(&self.store) && reader == CONTROLLER;
    }

    /// The plan that the controller would make now. Carries nothing out.
    #[must_use]
    pub fn make_plan(&self) -> Plan {
        (self.planner)(self.view_of(CONTROLLER), &self.policy, self.store.now)
    }

    /// The actions of the latest plan that were not carried out.
    #[must_use]
    pub fn actions(&self) -> &VecDeque<Action> {
        &self.actions
    }

    /// When the latest plan asks for another one.
    #[must_use]
    pub fn recheck_at(&self) -> Option<Timestamp> {
        self.recheck_at
    }

    /// Has the owner of a pod create it again whenever the pod is missing.
    pub fn recreate(&mut self, pod: Value) {
        self.recreated.insert(Id::of(&pod), pod);
    }

    /// Removes a pod at once and for good: its owner does not create it again.
    pub fn remove_pod(&mut self, id: &Id) {
        self.store.remove(id);
        self.recreated.remove(id);
    }

    /// The events of these parts that can happen now, part by part.
    pub fn possible<'s>(&'s self, parts: &'s [Part]) -> impl Iterator<Item = Event> + 's {
        parts.iter().flat_map(|part| -> Box<dyn Iterator<Item = Event> + 's> {
            match part {
                Part::Watches => Box::new(self.deliveries()),
                Part::Writes => Box::new((0..self.actions.len()).map(Event::Write)),
                Part::Workloads => Box::new(self.workload_events()),
                Part::Kubelets => Box::new(self.kubelet_events()),
                Part::Scheduler => Box::new(self.scheduler_events()),
                Part::Planner => Box::new(self.is_stale.then_some(Event::Plan).into_iter()),
                Part::Collector => Box::new(self.orphans().map(Event::Collect)),
                Part::Autoscaler => Box::new(self.autoscaler_events()),
            }
        })
    }

    /// Carries out an event. One that is not possible any more changes nothing.
    pub fn apply(&mut self, event: Event) {
        match event {
            Event::Deliver { reader, kind } => {
                self.readers[reader].deliver(&self.store, &kind);
                self.is_stale |= reader == CONTROLLER;
            }
            Event::Plan => self.renew_plan(),
            Event::Write(at) => {
                if let Some(action) = self.actions.remove(at) {
                    self.carry_out(action);
                }
            }
            Event::Scale(set) => self.scale(&set),
            Event::Recreate(pod) => self.create_again(&pod),
            Event::Start(pod) => self.start(&pod),
            Event::End(pod) => _ = self.store.remove(&pod),
            Event::Bind(pod, node) => self.bind(&pod, &node),
            Event::Reject(pod) => self.reject(&pod),
            Event::Collect(id) => self.store.delete(&id),
            Event::Grow(pod, group) => self.grow(&pod, &group),
        }
    }

    /// Applies the events of these parts that `choose` takes from the possible ones, until it takes none.
    /// Then the time advances to the next plan that the controller has asked for, if that is not after
    /// `end`. Returns when nothing is left to do until then.
    ///
    /// # Errors
    /// If there is no end.
    pub fn run(
        &mut self,
        parts: &[Part],
        end: Timestamp,
        mut choose: impl FnMut(&Self, &mut dyn Iterator<Item = Event>) -> Option<Event>,
    ) -> Result<(), String> {
        self.is_stale = true;
        for _ in 0..MOST_EVENTS {
            let event = choose(self, &mut self.possible(parts));
            match event {
                Some(event) => self.apply(event),
                None => match self.recheck_at.filter(|at| *at <= end) {
                    None => return Ok(()),
                    Some(at) if at <= self.store.now => {
                        return Err("a plan asks for another one at once".to_owned());
                    }
                    Some(at) => {
                        self.store.now = at;
                        self.is_stale = true;
                    }
                },
            }
        }
        Err(format!("no end after {MOST_EVENTS} events: {:#?}", self.actions))
    }

    fn deliveries(&self) -> impl Iterator<Item = Event> {
        self.readers.iter().enumerate().flat_map(|(reader, of)| {
            of.unseen(&self.store)
                .map(move |kind| Event::Deliver { reader, kind: Arc::clone(kind) })
        })
    }

    fn renew_plan(&mut self) {
        let Plan { actions, recheck_at } = self.make_plan();
        let is_report = |of: &Action| of.write == plan::Write::None;
        actions.iter().filter(|of| is_report(of)).for_each(|of| self.record_once(of));
        self.actions = actions.into_iter().filter(|of| !is_report(of)).collect();
        self.recheck_at = recheck_at;
        self.is_stale = false;
        self.has_written = false;
    }

    /// The objects whose owners all existed and were deleted.
    fn orphans(&self) -> impl Iterator<Item = Id> {
        self.store.everything().filter_map(|(id, object)| {
            let owners = object["metadata"]["ownerReferences"].as_array()?;
            let is_gone = |of: &Value| self.store.is_gone(of["uid"].as_str().unwrap_or_default());
            let is_orphan = !owners.is_empty() && owners.iter().all(is_gone);
            (is_orphan && object["metadata"]["deletionTimestamp"].is_null()).then(|| id.clone())
        })
    }
}
