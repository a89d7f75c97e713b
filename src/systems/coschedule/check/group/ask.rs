//! Looks for what keeps pods of a group out of nodes: facts about pods and nodes, as `systems::fit`
//! finds them. What the controller does about them is the reconciler's decision (`explain`).

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;

use super::Facts;
use crate::kubernetes::node_name;
use crate::systems::check::cluster::first_obstacle;
use crate::systems::coschedule::reconcile::Step;
use crate::systems::fit::{self, Candidate, Obstacle, Question};

/// Why a node does not take a pod.
#[derive(Debug)]
pub(super) enum NodeWhy<'f> {
    /// There is no such node.
    Missing,
    /// Another group is there, and one of the two is isolated.
    Isolated,
    /// The node itself does not take it.
    Obstacle(Obstacle<'f>),
}

/// Why a placeholder's pod has no node.
#[derive(Debug)]
pub(super) enum Unplaced<'f> {
    /// Its node selector and its node affinity match none of so many nodes.
    NoNodeMatches { nodes: usize },
    /// Two claims, each with its nodes, of which none is common.
    VolumesApart([(&'f str, BTreeSet<&'f str>); 2]),
    /// Only these nodes can mount its volumes, and it does not match them.
    VolumesElsewhere { nodes: Vec<String> },
    /// This node could take it: only the scheduler knows why it does not.
    Unknown { node: &'f str },
    /// No node takes it. `claim`: one that not every node can mount.
    NoNode { nodes: Vec<(&'f str, NodeWhy<'f>)>, claim: Option<&'f str> },
}

/// Why a member is not beside its placeholder.
#[derive(Debug)]
pub(super) enum Outside<'f> {
    /// The controller deletes it for this reason, and its TaskRun creates it again.
    Released(&'f str),
    /// It can run nowhere: why.
    Stranded(&'f str),
    /// Its own node selector or node affinity leaves this node out.
    NotChosen(&'f str),
    /// This node is closed to it: in words.
    Closed(&'f str, String),
    /// This node has too little left: in words.
    NoCapacity(&'f str, String),
}

impl Facts<'_> {
    /// Why a node takes no more pods of the group.
    pub(super) fn closed<'f>(&'f self, node: &'f str) -> Option<NodeWhy<'f>> {
        match self.cluster.candidate(node) {
            None if self.cluster.has_no_nodes() => None,
            None => Some(NodeWhy::Missing),
            Some(candidate) => {
                let question = Question::new(candidate, &self.needs);
                first_obstacle(&question, fit::STAY).map(NodeWhy::Obstacle)
            }
        }
    }

    /// The node of a member that stowplan placed, and why it does not take the placeholder.
    pub(super) fn find_node_of_members(&self) -> Option<(&str, Option<NodeWhy<'_>>)> {
        let placed = self.running.iter().filter(|pod| self.is_placed(pod));
        let mut nodes = placed.filter_map(|pod| self.cluster.candidate(node_name(pod)?));
        nodes.next().map(|node| (node.name, self.refused_by(node)))
    }

    /// Why a node does not take the placeholder.
    fn refused_by<'f>(&'f self, candidate: Candidate<'f>) -> Option<NodeWhy<'f>> {
        let volumes = Some(&self.volumes);
        let question = Question { volumes, ..Question::new(candidate, &self.needs) };
        let obstacle = first_obstacle(&question, fit::ALL);
        let is_final = obstacle.as_ref().is_some_and(|found| !found.is_lack_of_capacity());
        if !is_final && self.is_isolated_from(candidate.name) {
            return Some(NodeWhy::Isolated);
        }
        obstacle.map(NodeWhy::Obstacle)
    }

    /// Why no node takes the placeholder.
    pub(super) fn ask_unplaced(&self) -> Unplaced<'_> {
        let matches = |candidate: &Candidate<'_>| {
            let question = Question::new(*candidate, &self.needs);
            !fit::obstacles(&question, fit::ALL).any(|found| found.is_chosen_by_pod())
        };
        let can_mount = |of: &Candidate<'_>| self.volumes.all_reach(of.name, of.view);
        let matching: Vec<_> = self.cluster.candidates().filter(matches).collect();
        if matching.is_empty() {
            return Unplaced::NoNodeMatches { nodes: self.cluster.candidates().count() };
        }
        if let Some(claims) = self.volumes_apart() {
            return Unplaced::VolumesApart(claims);
        }
        let usable: Vec<_> = matching.into_iter().filter(can_mount).collect();
        if usable.is_empty() {
            let nodes = self.cluster.candidates().filter(can_mount);
            let nodes = nodes.map(|of| of.name.to_owned()).collect();
            return Unplaced::VolumesElsewhere { nodes };
        }
        let mut nodes = Vec::new();
        for candidate in usable {
            match self.refused_by(candidate) {
                Some(why) => nodes.push((candidate.name, why)),
                None => return Unplaced::Unknown { node: candidate.name },
            }
        }
        let total = self.cluster.candidates().count();
        let claim = self.volumes.iter().find(|volume| self.reach(volume).len() < total);
        Unplaced::NoNode { nodes, claim: claim.map(|volume| &*volume.claim) }
    }

    /// The first two claims that no node can mount together, each with the nodes that can mount it.
    fn volumes_apart(&self) -> Option<[(&str, BTreeSet<&str>); 2]> {
        let volumes: Vec<_> = self.volumes.iter().map(|of| (&*of.claim, self.reach(of))).collect();
        let mut pairs = volumes
            .iter()
            .enumerate()
            .flat_map(|(index, one)| volumes[index + 1..].iter().map(move |other| (one, other)));
        let (one, other) = pairs.find(|((_, one), (_, other))| {
            !one.is_empty() && !other.is_empty() && one.is_disjoint(other)
        })?;
        Some([one.clone(), other.clone()])
    }

    /// What the reconciler would do with a member.
    pub(super) fn step(&self, pod: &Pod) -> Option<&Step> {
        let name = pod.metadata.name.as_deref()?;
        let members = &self.explained.as_ref()?.members;
        members.iter().find(|(member, _)| *member.name == *name).map(|(_, step)| step)
    }

    /// Why a waiting member is not beside the placeholder. `None`: it could be, or the placeholder
    /// is the one that waits.
    pub(super) fn ask_outside<'f>(&'f self, pod: &'f Pod) -> Option<Outside<'f>> {
        match self.step(pod) {
            Some(Step::Release(why)) => return Some(Outside::Released(why)),
            Some(Step::Strand(why)) => return Some(Outside::Stranded(why)),
            Some(Step::Admit(_) | Step::Wake) | None => {}
        }
        let node = self.node()?;
        let candidate = self.cluster.candidate(node)?;
        if self.closed(node).is_some() {
            return None;
        }
        let needs = self.needs_of(pod);
        let found = first_obstacle(&Question::new(candidate, &needs), fit::JOIN)?;
        Some(if found.is_chosen_by_pod() {
            Outside::NotChosen(node)
        } else if found.is_lack_of_capacity() {
            Outside::NoCapacity(node, found.to_string())
        } else {
            Outside::Closed(node, found.to_string())
        })
    }
}
