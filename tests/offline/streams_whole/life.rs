//! The life of a job in a simulated cluster: its pods are created in a random order, a scheduler binds them
//! to any node that their specs allow, and the controller works in between.

use std::collections::BTreeSet;

use crate::streams_cases::node_name;
use crate::streams_oracle::Model;
use crate::streams_whole::world::{World, element_of};
use k8s_openapi::jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::Value;
use stowplan_core::simulation::Event;

/// Selects among things whose number is known later, by the remainder.
fn any_index() -> impl Strategy<Value = usize> {
    0..1_000_usize
}

/// The next event.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// The workload of an element without a pod creates one.
    Pod(usize),
    /// The controller makes a plan, and carries out this many of its actions, from this one on.
    Plan(usize, usize),
    /// The scheduler binds a pod.
    Bind(usize, usize),
}

#[derive(Clone, Debug)]
pub(crate) struct Life {
    steps: Vec<Step>,
    /// Before which step a node is lost, and which.
    lost: Option<(usize, usize)>,
}

pub(crate) fn any_life() -> impl Strategy<Value = Life> {
    let step = prop_oneof![
        2 => any_index().prop_map(Step::Pod),
        3 => (any_index(), 1..12_usize).prop_map(|(from, count)| Step::Plan(from, count)),
        2 => (any_index(), any_index()).prop_map(|(pod, node)| Step::Bind(pod, node)),
    ];
    let steps = proptest::collection::vec(step, 20..60);
    let lost = prop_oneof![2 => Just(None), 1 => (any_index(), any_index()).prop_map(Some)];
    (steps, lost).prop_map(|(steps, lost)| Life { steps, lost })
}

/// The events of a life that were seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) lost: bool,
    /// The rest could be placed after the loss.
    pub(crate) survived: bool,
    /// Nodes were reserved at some time.
    pub(crate) reserved: bool,
}

struct Living {
    world: World,
    model: Model,
    /// True if the rest can be placed beside what runs.
    is_possible: bool,
    /// True after an event that pods could not take into account, until the controller has finished with it.
    is_disturbed: bool,
    /// The pods that were let go to the scheduler before the controller was finished with that. Nobody can
    /// change where they may run.
    stale: BTreeSet<String>,
    history: Vec<String>,
    seen: Seen,
}

/// Lives through a life of a job that is possible.
///
/// # Errors
/// What went wrong, and what happened until then.
pub(crate) fn live(model: &Model, life: &Life) -> Result<Seen, String> {
    let mut world = World::new(model);
    world.create_job(model);
    let mut living = Living {
        world,
        model: model.clone(),
        is_possible: true,
        is_disturbed: false,
        stale: BTreeSet::new(),
        history: Vec::new(),
        seen: Seen::default(),
    };
    living.run(life).map_err(|why| format!("{why}\nafter:\n  {}", living.history.join("\n  ")))?;
    Ok(living.seen)
}

impl Living {
    fn run(&mut self, life: &Life) -> Result<(), String> {
        let lost = life.lost.map(|(when, node)| (when % life.steps.len(), node));
        for (number, step) in life.steps.iter().enumerate() {
            if let Some((_, node)) = lost.filter(|(when, _)| *when == number) {
                self.lose(node % self.model.nodes.len());
            }
            match step {
                Step::Pod(index) => self.create(*index),
                Step::Plan(from, count) => _ = self.control(*from, *count),
                Step::Bind(pod, node) => _ = self.bind(*pod, *node),
            }
            self.check()?;
        }
        self.finish()
    }

    fn note(&mut self, what: String) {
        self.history.push(what);
    }

    fn lose(&mut self, node: usize) {
        self.note(format!("{} is lost", node_name(node)));
        self.world.simulation.lose_node(&node_name(node));
        self.model.nodes[node].is_lost = true;
        self.is_possible = self.is_completable() && self.is_accepted();
        self.is_disturbed = true;
        self.seen.lost = true;
        self.seen.survived = self.is_possible;
    }

    /// Returns true if the controller has accepted the job, or would accept it. What names a node that does not exist
    /// any more is refused; a job that was accepted goes on with the nodes that are left.
    fn is_accepted(&mut self) -> bool {
        let conditions = self.world.job()["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        let is_accepted = conditions.any(|of| of["type"] == "Accepted" && of["status"] == "True");
        is_accepted || self.world.validate(&self.model).is_ok()
    }

    /// The elements without a pod.
    fn missing(&self) -> Vec<usize> {
        let present: Vec<usize> = self.world.pods().map(element_of).collect();
        (0..self.model.elements.len()).filter(|element| !present.contains(element)).collect()
    }

    fn create(&mut self, index: usize) {
        let missing = self.missing();
        if missing.is_empty() {
            return;
        }
        let element = missing[index % missing.len()];
        let what = match self.world.create_pod(element) {
            Ok(name) => format!("pod {name} is created"),
            Err(why) => format!("a pod of e{element} is not created: {why}"),
        };
        self.note(what);
    }

    /// Returns whether there was anything to do.
    fn control(&mut self, from: usize, count: usize) -> bool {
        let planned = self.world.plan();
        if planned == 0 {
            if std::mem::take(&mut self.is_disturbed) {
                self.stale = self.find_nodes().into_iter().map(|(name, _)| name).collect();
            }
            return false;
        }
        let from = from % planned;
        for left in (1..=planned).rev().take(count) {
            let next = if from < left { from } else { 0 };
            let action = &self.world.simulation.actions()[next];
            let (verb, target) = (action.verb(), &action.target);
            let what = format!("{verb} {} {}", target.resource.plural, target.name);
            self.note(what);
            self.world.simulation.apply(Event::Write(next));
        }
        let witness = &self.world.job()["status"]["witness"]["nodes"];
        self.seen.reserved |= witness.as_array().is_some_and(|nodes| !nodes.is_empty());
        true
    }

    /// The pods without a node and without a gate, and the nodes that they may be bound to.
    fn find_nodes(&self) -> Vec<(String, Vec<String>)> {
        let found = self.world.pods().filter_map(|pod| {
            let nodes = self.world.simulation.find_nodes(pod)?;
            Some((pod["metadata"]["name"].as_str()?.to_owned(), nodes))
        });
        found.collect()
    }

    /// Returns whether a pod was bound, or found to be unschedulable.
    fn bind(&mut self, pod: usize, node: usize) -> bool {
        let (free, stuck): (Vec<_>, Vec<_>) =
            self.find_nodes().into_iter().partition(|(_, nodes)| !nodes.is_empty());
        let is_known = |pod: &Value| pod["status"]["conditions"].is_array();
        let known = self.world.pods().filter(|pod| is_known(pod)).count();
        stuck.iter().for_each(|(name, _)| self.world.schedule(name, None));
        let is_new = known < self.world.pods().filter(|pod| is_known(pod)).count();
        if free.is_empty() {
            return is_new;
        }
        let (name, nodes) = &free[pod % free.len()];
        let node = &nodes[node % nodes.len()];
        self.note(format!("{name} is bound to {node}, of {nodes:?}"));
        self.world.schedule(name, Some(node));
        if self.is_disturbed || self.stale.contains(name) {
            self.is_disturbed = true;
            if self.is_possible && !self.is_completable() {
                self.is_possible = false;
                self.note("that pod was let go too early".to_owned());
            }
        }
        true
    }

    fn is_completable(&self) -> bool {
        self.model.complete(&self.world.placement(&self.model)).is_some()
    }

    /// Checks that elements that could be placed before a step still can.
    fn check(&self) -> Result<(), String> {
        if self.is_possible && !self.is_completable() {
            let placement = self.world.placement(&self.model);
            return Err(format!("the rest cannot be placed any more: {placement:?}"));
        }
        Ok(())
    }

    /// Lets everybody go on until nothing happens any more.
    fn finish(&mut self) -> Result<(), String> {
        let (first, mut turn) = (0, 1_usize);
        let end = self.world.simulation.store.now + SignedDuration::from_hours(2);
        loop {
            turn += 1;
            let mut is_over = !self.control(first, usize::MAX);
            self.check()?;
            is_over &= !self.bind(turn, first);
            self.check()?;
            if is_over {
                let missing = self.missing();
                (0..missing.len()).for_each(|_| self.create(first));
                is_over = self.missing().len() == missing.len();
            }
            if is_over {
                let at = self.world.simulation.recheck_at().filter(|at| *at < end);
                let is_done = self.world.pods().all(|pod| pod["spec"]["nodeName"].is_string());
                match at {
                    Some(at) if !is_done || !self.missing().is_empty() => {
                        self.note(format!("it is {at}"));
                        self.world.simulation.store.now = at;
                    }
                    _ => break,
                }
            }
        }
        let placement = self.world.placement(&self.model);
        if self.is_possible && placement.elements.contains(&None) {
            let job = &self.world.job()["status"];
            let waiting: Vec<_> =
                self.world.pods().filter(|pod| pod["spec"]["nodeName"].is_null()).collect();
            return Err(format!("not all run: {placement:?}; job: {job:#}; waiting: {waiting:#?}"));
        }
        match self.model.find_fault(&placement).filter(|_| self.is_possible) {
            Some(fault) => Err(format!("{fault} is wrong: {placement:?}")),
            None => Ok(()),
        }
    }
}
