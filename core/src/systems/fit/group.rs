//! Decides whether a group fits on a node: its placeholder, and each of the pods that wait for it.

use super::{
    ALL, Before, Candidate, JOIN, Obstacle, PodNeeds, Question, STAY, Volumes, first_obstacle,
};

/// The pods of a group that shall be on one node.
#[derive(Debug, Default)]
pub(crate) struct Group<'g> {
    /// The placeholder's pod, which is assigned first and mounts the volumes.
    pub placeholder: PodNeeds<'g>,
    /// The pods that wait. Each must fit on the node together with the placeholder, not all at
    /// once.
    pub waiting: Vec<Joining<'g>>,
    /// The volumes of the group.
    pub volumes: Volumes<'g>,
}

/// A pod that joins a placeholder.
#[derive(Debug, Default)]
pub(crate) struct Joining<'g> {
    pub needs: PodNeeds<'g>,
    /// The volumes that it mounts. Those that the placeholder mounts too may be left out.
    pub volumes: Volumes<'g>,
}

impl<'g> Group<'g> {
    /// Finds an obstacle for the placeholder or one of the waiting pods on a node.
    /// `has_placeholder`: the placeholder is on the node already.
    #[must_use]
    pub(crate) fn obstacle<'q>(
        &'q self,
        candidate: Candidate<'q>,
        has_placeholder: bool,
    ) -> Option<Obstacle<'q>> {
        let mut waiting = self.waiting.iter();
        self.placeholder_obstacle(candidate, has_placeholder)
            .or_else(|| waiting.find_map(|pod| self.join_obstacle(pod, candidate, has_placeholder)))
    }

    /// Finds an obstacle for the placeholder on a node.
    #[must_use]
    pub(crate) fn placeholder_obstacle<'q>(
        &'q self,
        candidate: Candidate<'q>,
        has_placeholder: bool,
    ) -> Option<Obstacle<'q>> {
        let volumes = Some(&self.volumes);
        let question = Question { volumes, ..Question::new(candidate, &self.placeholder) };
        first_obstacle(&question, if has_placeholder { STAY } else { ALL })
    }

    /// Finds an obstacle for a pod of the group that joins the placeholder on a node which has none
    /// for the placeholder.
    #[must_use]
    pub(crate) fn join_obstacle<'q>(
        &'q self,
        pod: &'q Joining<'q>,
        candidate: Candidate<'q>,
        has_placeholder: bool,
    ) -> Option<Obstacle<'q>> {
        let requests = self.placeholder.requests.as_deref();
        let before = if has_placeholder { Before::default() } else { Before { pods: 1, requests } };
        let volumes = Some(&pod.volumes);
        let question = Question { before, volumes, ..Question::new(candidate, &pod.needs) };
        first_obstacle(&question, JOIN)
    }
}
