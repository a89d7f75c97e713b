//! Finds the group of its run that a pod belongs to.

use super::{Group, Groups};
use crate::systems::View;
use crate::systems::coschedule::policy::CoscheduleMode;
use crate::view::Name;

/// The relation of a pod to the groups of its run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Membership<'g> {
    /// It may run anywhere.
    Free,
    /// It belongs to this group.
    Of(&'g Group),
    /// Its claims are those of two groups, which cannot share a node.
    Several(&'g Group, &'g Group),
}

impl Groups {
    /// Finds the group of a pod of the run by its task, the claims that it mounts and its node selector.
    /// `needs_no_node`: whether a claim is known not to need one node.
    pub(crate) fn membership(
        &self,
        task: Option<&str>,
        claims: &[&str],
        node_selector: &[(&str, &str)],
        needs_no_node: impl Fn(&str) -> bool,
    ) -> Membership<'_> {
        let mut by_node = self.groups.iter().filter(|group| {
            claims.iter().any(|claim| group.claim(claim).is_some_and(|of| of.one_node))
        });
        match (by_node.next(), by_node.next()) {
            (Some(group), None) => return Membership::Of(group),
            (Some(first), Some(second)) => return Membership::Several(first, second),
            (None, _) => {}
        }
        let free = |claim: &str| self.free.iter().find(|of| *of.name == *claim);
        // Its users were left out of the group, because they ask for other nodes.
        if claims.iter().any(|claim| free(claim).is_some_and(|of| of.one_node)) {
            return Membership::Free;
        }
        let of_task = |group: &&Group| {
            task.is_some_and(|task| group.tasks.as_ref().is_some_and(|of| of.contains(task)))
        };
        // A claim that the run does not name comes from a task's result or a nested pipeline.
        if claims.iter().any(|claim| free(claim).is_none() && !needs_no_node(claim)) {
            let mut derived = self.groups.iter().filter(|group| group.derived);
            let named = derived.clone().find(of_task);
            if let Some(group) = named.or_else(|| derived.find(|group| group.tasks.is_none())) {
                return Membership::Of(group);
            }
        }
        if self.mode == CoscheduleMode::Workspaces {
            return Membership::Free;
        }
        let agrees = |group: &&Group| {
            let selected =
                |key: &str| group.node_selector.iter().find(|(known, _)| **known == *key);
            node_selector
                .iter()
                .all(|(key, value)| selected(key).is_none_or(|(_, wanted)| **wanted == **value))
        };
        let uses = |group: &&Group| claims.iter().any(|claim| group.has(claim));
        let groups = || self.groups.iter();
        let found = groups().find(of_task).or_else(|| groups().filter(agrees).find(uses));
        let found = found.or_else(|| groups().find(agrees));
        found.map_or(Membership::Free, Membership::Of)
    }
}

/// Returns whether a claim of this namespace is known not to need one node.
pub(in crate::systems::coschedule) fn needs_no_node<'v>(
    namespace: &'v str,
    view: &'v View,
) -> impl Fn(&str) -> bool + 'v {
    move |claim| {
        let known = view.claim(&Name::new(namespace, claim));
        known.is_some_and(|claim| !claim.access.needs_one_node())
    }
}
