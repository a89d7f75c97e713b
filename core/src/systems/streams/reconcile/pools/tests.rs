//! Tests of pools on a simulated cluster.

#![allow(clippy::needless_pass_by_value, reason = "documents are written where they are given")]

mod acceptance;
mod exclusive;
mod former_taint;
mod members;
mod owners;
mod random;
mod release;
mod replacement;
mod simulator;
mod waiting;

use serde_json::{Value, json};

use self::simulator::World;
use crate::systems::policy::Policy;
use crate::systems::streams::resources::HOST_POOL;
use crate::view::resource::{NODE, Resource};

/// A merge patch that gives a node these labels.
fn labels(labels: Value) -> Value {
    json!({"metadata": {"labels": labels}})
}

/// A merge patch that gives a node one taint with this key.
fn tainted(key: &str, effect: &str) -> Value {
    json!({"spec": {"taints": [{"key": key, "effect": effect}]}})
}

/// The spec of a shared pool of so many nodes.
fn shared(size: u32) -> Value {
    json!({"size": size})
}

/// The spec of an exclusive pool of so many nodes.
fn exclusive(size: u32) -> Value {
    json!({"size": size, "exclusivity": "Exclusive"})
}

impl World {
    /// A cluster of the nodes `n00`, `n01` and so on, with these pools, settled.
    fn settled<const N: usize>(nodes: usize, pools: [(&str, Value); N]) -> Self {
        let mut world = Self::sized(nodes);
        world.add(pools);
        world
    }

    /// Creates these pools, and settles.
    fn add<const N: usize>(&mut self, pools: [(&str, Value); N]) -> &mut Self {
        pools.into_iter().for_each(|(name, spec)| _ = self.pool(name, spec));
        self.settle()
    }

    /// Changes the policy, and settles.
    fn govern(&mut self, policy: &str) -> &mut Self {
        self.set_policy(policy).settle()
    }

    fn set_policy(&mut self, policy: &str) -> &mut Self {
        self.policy = Policy::from_yaml(policy).unwrap();
        self
    }

    /// Carries out one plan.
    fn step(&mut self) -> &mut Self {
        self.plan().actions.into_iter().for_each(|action| _ = self.act(action));
        self
    }

    /// The nodes of a pool's members in the order of their indices, as `n00, n01 Vacant, 3: n02`:
    /// the state unless it is Ready, and the index if one before it is missing.
    fn nodes_of(&self, pool: &str) -> String {
        let members = self.document(pool)["status"]["members"].as_array().into_iter().flatten();
        let members = members.enumerate().map(|(at, member)| {
            let text = |key: &str| member[key].as_str().unwrap_or("-");
            let node = format!("{} {}", text("node"), text("state")).replace(" Ready", "");
            let index = &member["index"];
            if *index == json!(at) { node } else { format!("{index}: {node}") }
        });
        members.collect::<Vec<_>>().join(", ")
    }

    /// Checks the nodes of a pool.
    #[track_caller]
    fn expect_nodes(&mut self, pool: &str, nodes: &str) -> &mut Self {
        assert_eq!(self.nodes_of(pool), nodes, "{pool}: {}", self.ready(pool));
        self
    }

    /// Checks the nodes of a pool and its condition Ready, or the beginning of it before `…`.
    #[track_caller]
    fn expect(&mut self, pool: &str, nodes: &str, ready: &str) -> &mut Self {
        self.expect_nodes(pool, nodes);
        match ready.strip_suffix('…') {
            Some(begin) => assert!(self.ready(pool).starts_with(begin), "{}", self.ready(pool)),
            None => assert_eq!(self.ready(pool), ready),
        }
        self
    }

    /// Checks a pool that is refused: no members, both conditions False, and one event about it.
    #[track_caller]
    fn expect_refused(&mut self, pool: &str, reason: &str, message: &str) -> &mut Self {
        let condition = format!("False {reason}: {message}");
        self.expect(pool, "", &condition);
        assert_eq!(self.condition(pool, "Accepted"), condition);
        assert_eq!(self.event_reasons(pool), [reason]);
        self
    }

    /// Checks the reasons of all events about a pool.
    #[track_caller]
    fn expect_events(&mut self, pool: &str, reasons: &[&str]) -> &mut Self {
        assert_eq!(self.event_reasons(pool), reasons);
        self
    }

    /// Checks how often pools and nodes were written since the last call.
    #[track_caller]
    fn expect_counts(&mut self, pools: usize, nodes: usize) -> &mut Self {
        assert_eq!(self.take_counts(), (pools, nodes));
        self
    }

    /// Returns true if a node has neither labels of pools nor taints.
    fn is_unmarked(&self, node: &str) -> bool {
        self.labels(node).is_empty() && self.taints(node).is_empty()
    }

    /// How often pools and nodes were written since the last call.
    fn take_counts(&mut self) -> (usize, usize) {
        let writes = std::mem::take(&mut self.writes);
        let count = |of: Resource| writes.iter().filter(|it| it.target.resource == of).count();
        (count(HOST_POOL), count(NODE))
    }
}
