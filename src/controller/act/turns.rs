//! The actions that wait. Namespaces take turns, so that one with thousands of actions does not
//! delay the others. Within a namespace, actions that free objects come first: deletions, and the
//! removal of marks from nodes. Cluster-scoped objects take turns as a namespace of their own.
//!
//! Every plan replaces the actions, so the namespace of the last turn is kept across plans:
//! otherwise the first namespaces would have a turn after each plan, and the last ones none.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use stowplan_core::systems::plan::{Action, Write};

#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The actions of each namespace; none is empty.
    waiting: BTreeMap<Box<str>, VecDeque<Action>>,
    /// The namespace that had the last turn.
    last: Box<str>,
}

impl Turns {
    /// Replaces all actions. Those of a namespace keep their order, behind those that free objects.
    pub(super) fn replace(&mut self, actions: Vec<Action>) {
        let (freeing, others): (Vec<_>, Vec<_>) = actions.into_iter().partition(is_freeing);
        self.waiting.clear();
        for action in freeing.into_iter().chain(others) {
            self.waiting.entry(action.target.namespace.clone()).or_default().push_back(action);
        }
    }

    /// Removes the next action: the first of the namespace that follows the one of the last turn.
    pub(super) fn next(&mut self) -> Option<Action> {
        let following = (Bound::Excluded(&*self.last), Bound::Unbounded);
        let next = self.waiting.range::<str, _>(following).next();
        let namespace = next.or_else(|| self.waiting.first_key_value())?.0.clone();
        let actions = self.waiting.get_mut(&namespace)?;
        let action = actions.pop_front();
        if actions.is_empty() {
            self.waiting.remove(&namespace);
        }
        self.last = namespace;
        action
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

fn is_freeing(action: &Action) -> bool {
    matches!(action.write, Write::Delete { .. }) || action.confirmation.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stowplan_core::systems::plan::Target;
    use stowplan_core::view::Name;
    use stowplan_core::view::resource::POD;

    fn action(name: &str, write: Write) -> Action {
        let (namespace, name) = name.split_once('/').unwrap();
        Action::new(Target::new(POD, &Name::new(namespace, name), "u"), write, Vec::new())
    }

    fn patches(names: &[&str]) -> Vec<Action> {
        names.iter().map(|name| action(name, Write::Patch(Vec::new()))).collect()
    }

    fn names(turns: &mut Turns, count: usize) -> Vec<String> {
        let taken = std::iter::from_fn(|| turns.next()).take(count);
        taken.map(|it| format!("{}/{}", it.target.namespace, it.target.name)).collect()
    }

    #[test]
    fn namespaces_take_turns_and_deletions_of_a_namespace_come_first() {
        let mut turns = Turns::default();
        let delete = |name| action(name, Write::Delete { grace: None, version: None });
        let mut actions = patches(&["b/1", "b/2", "a/1", "c/1", "c/2"]);
        actions.extend(["b/3", "b/4"].map(delete));
        turns.replace(actions);
        assert_eq!(names(&mut turns, 9), ["a/1", "b/3", "c/1", "b/4", "c/2", "b/1", "b/2"]);
        assert!(turns.is_empty());
    }

    /// The planner repeats a namespace's actions in every plan, and plans after every write.
    #[test]
    fn a_namespace_with_many_actions_has_one_turn_in_each_round_of_plans() {
        let mut turns = Turns::default();
        let mut served = Vec::new();
        for _ in 0..4 {
            turns.replace(patches(&["a/1", "a/2", "a/3", "b/1", "c/1"]));
            served.extend(names(&mut turns, 1));
        }
        assert_eq!(served, ["a/1", "b/1", "c/1", "a/1"]);
        // The namespace of the last turn is gone.
        turns.replace(patches(&["Z/1", "b/1"]));
        assert_eq!(names(&mut turns, 9), ["b/1", "Z/1"]);
    }
}
