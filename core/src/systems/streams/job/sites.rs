//! The nodes as jobs see them: which pods may go there, which pools may have them, and who has them.
//!
//! Read from the same tables in the webhook's View, in the controller's and in one made of files, so that
//! all of them judge a job alike. Built once, then asked about many jobs: nodes in the same state are one
//! [`Group`], so that a job costs as much as there are different nodes, not as there are nodes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::systems::View;
use crate::systems::policy::Policy;
use crate::systems::streams::guard::is_refused;
use crate::systems::streams::kinds::{Form, Limits, Tags, to_usize};
use crate::systems::streams::obstacle::Obstacle;
use crate::systems::streams::owners::unmarked_hosts;
use crate::view::Name;

/// A job: its namespace and its name.
pub(crate) type JobName<'v> = (&'v str, &'v str);

/// A node by itself, whatever pools and pods do with it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(crate) struct Site<'v> {
    pub(crate) tags: &'v [Box<str>],
    pub(crate) limits: Limits,
    /// True if the policy's `hostPools.nodeSelector` selects it, as far as its labels are known.
    is_selected: bool,
}

/// The state of a node.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(crate) struct State<'v> {
    pub(crate) site: Site<'v>,
    /// The hash of the exclusive pool that has it.
    pub(crate) exclusive: Option<&'v str>,
    /// The hashes of all pools that have it and mark their nodes.
    pub(crate) marked_for: BTreeSet<&'v str>,
    /// The hashes of the pools without marks that list it.
    pub(crate) listed_by: BTreeSet<&'v str>,
    /// True if it has as many pools as the policy allows.
    pub(crate) is_full: bool,
    /// The jobs with pods that run on it. Pods without a job count for a job without a name.
    pub(crate) runs: BTreeSet<JobName<'v>>,
    /// The jobs that name it, or for which it is reserved.
    pub(crate) named_by: BTreeSet<JobName<'v>>,
}

impl<'v> State<'v> {
    /// Records that a pool has the node and marks it.
    fn mark_for(&mut self, hash: &'v str, exclusive: bool) {
        self.marked_for.insert(hash);
        if exclusive {
            self.exclusive = Some(hash);
        }
    }
}

impl<'v> Site<'v> {
    pub(crate) fn new(node: &str, view: &'v View, policy: &Policy) -> Self {
        let marks = view.node_marks.get(node);
        let mut selector = policy.host_pools.node_selector.iter();
        Self {
            tags: marks.map_or(&[], |marks| &marks.tags),
            limits: marks.map(|marks| marks.limits).unwrap_or_default(),
            is_selected: selector.all(|(key, value)| {
                view.node_label(node, key).is_none_or(|own| own == Some(value))
            }),
        }
    }

    /// Returns true if a pod may be placed on it that tolerates no more than it has to.
    pub(crate) fn is_open(&self) -> bool {
        let Limits { deleted, not_ready, cordoned, .. } = self.limits;
        !(deleted || not_ready || cordoned)
    }

    /// Finds out why the controller may not choose it for a pool, whatever other pools and pods do with it.
    pub(crate) fn unfit(&self) -> Option<Obstacle<'static>> {
        let limits = self.limits;
        // In the order of [`Obstacle`].
        let obstacles = [
            (limits.deleted, Obstacle::Deleted),
            (limits.control_plane, Obstacle::ControlPlane),
            (!self.is_selected, Obstacle::NotSelected),
            (limits.not_ready, Obstacle::NotReady),
            (limits.cordoned, Obstacle::Cordoned),
            (limits.tainted, Obstacle::Tainted),
            (limits.nameless, Obstacle::Nameless),
        ];
        obstacles.into_iter().find(|(is_there, _)| *is_there).map(|(_, obstacle)| obstacle)
    }

    /// Finds out why a pool of this form may not have it, whatever other pools and pods do with it. The author
    /// of a list has asked for the node, and what makes it unfit may pass.
    pub(crate) fn obstacle_for(&self, form: &Result<Form, String>) -> Option<Obstacle<'static>> {
        let is_listed = matches!(form, Ok(Form::Literal(_)));
        let is_lasting = |obstacle: &Obstacle<'_>| {
            matches!(obstacle, Obstacle::Deleted | Obstacle::ControlPlane | Obstacle::NotSelected)
        };
        self.unfit().filter(|obstacle| !is_listed || is_lasting(obstacle))
    }
}

/// Nodes in the same state.
#[derive(Debug)]
pub(crate) struct Group<'v> {
    pub(crate) state: State<'v>,
    /// The nodes in the order of their names. A group may have lost all of them.
    pub(crate) nodes: BTreeSet<&'v str>,
}

/// All nodes.
#[derive(Debug)]
pub(crate) struct Sites<'v> {
    pub(crate) groups: Vec<Group<'v>>,
    /// The group of each node.
    group_of: HashMap<&'v str, usize>,
    /// The group of each state.
    known: HashMap<State<'v>, usize>,
    /// The tags of each pool that is all nodes with them, and its hash. Not in the states: there may be
    /// many such pools, of many nodes.
    tagged: Vec<(&'v Tags, &'v str)>,
}

impl<'v> Sites<'v> {
    pub(crate) fn new(view: &'v View, policy: &Policy) -> Self {
        let mut states: BTreeMap<&str, State<'_>> = BTreeMap::new();
        for (name, _) in view.nodes() {
            let exclusive = view.node_marks.get(name).and_then(|marks| marks.exclusive.as_deref());
            let site = Site::new(name, view, policy);
            states.insert(name, State { site, exclusive, ..State::default() });
        }
        let mut tagged = Vec::new();
        for (_, pool) in view.host_pools().filter(|(_, pool)| !pool.identity.deleting) {
            let Some(hash) = pool.hash.as_deref() else { continue };
            if pool.is_labelled() {
                for (_, node) in pool.status.nodes() {
                    if let Some(state) = states.get_mut(node) {
                        state.mark_for(hash, pool.exclusive);
                    }
                }
            }
            if is_refused(pool) {
                continue;
            }
            if let Ok(Form::Tagged(tags)) = &pool.form {
                tagged.push((tags, hash));
                continue;
            }
            for node in unmarked_hosts(pool, view) {
                states.get_mut(node).map(|state| state.listed_by.insert(hash));
            }
        }
        let most = to_usize(policy.host_pools.max_pools_per_node);
        for state in states.values_mut().filter(|state| !state.marked_for.is_empty()) {
            state.is_full = state.marked_for.len() >= most;
        }
        for (name, job, node) in view.streams_pods.running() {
            if let Some(state) = states.get_mut(node) {
                state.runs.insert((&*name.namespace, job.unwrap_or_default()));
            }
        }
        let mut sites =
            Self { groups: Vec::new(), group_of: HashMap::new(), known: HashMap::new(), tagged };
        states.into_iter().for_each(|(node, state)| sites.put(node, state));
        sites
    }

    /// Puts a node into the group of its state.
    fn put(&mut self, node: &'v str, state: State<'v>) {
        let group = *self.known.entry(state.clone()).or_insert(self.groups.len());
        if group == self.groups.len() {
            self.groups.push(Group { state, nodes: BTreeSet::new() });
        }
        self.groups[group].nodes.insert(node);
        self.group_of.insert(node, group);
    }

    fn change(&mut self, node: &str, change: impl FnOnce(&mut State<'v>)) {
        let Some((node, group)) = self.find(node) else { return };
        let before = &self.groups[group].state;
        let mut state = before.clone();
        change(&mut state);
        if state != *before {
            self.groups[group].nodes.remove(node);
            self.put(node, state);
        }
    }

    /// Records that a job names a node, or that it is reserved for it: no exclusive pool of another job
    /// may have it.
    pub(crate) fn name_for(&mut self, node: &str, job: &'v Name) {
        self.change(node, |state| _ = state.named_by.insert((&job.namespace, &job.name)));
    }

    /// Records that a pool has a node.
    pub(crate) fn give(&mut self, node: &str, hash: &'v str, exclusive: bool) {
        self.change(node, |state| state.mark_for(hash, exclusive));
    }

    /// The hashes of the pools without marks that count a node in this state as one of their hosts.
    pub(crate) fn hosts_of<'s>(
        &'s self,
        state: &'s State<'v>,
    ) -> impl Iterator<Item = &'v str> + 's {
        let tagged = self.tagged.iter().filter(|(tags, _)| tags.are_among(state.site.tags));
        state.listed_by.iter().copied().chain(tagged.map(|(_, hash)| *hash))
    }

    /// The node of this name, and its group.
    pub(crate) fn find(&self, node: &str) -> Option<(&'v str, usize)> {
        self.group_of.get_key_value(node).map(|(node, group)| (*node, *group))
    }

    /// The state of a node.
    pub(crate) fn state(&self, node: &str) -> Option<&State<'v>> {
        let (_, group) = self.find(node)?;
        Some(&self.groups[group].state)
    }
}
