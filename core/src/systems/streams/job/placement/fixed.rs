//! Knows what is fixed already about a job: its pools, where it runs, and what others have.

use std::collections::{BTreeMap, BTreeSet};

use crate::systems::View;
use crate::systems::streams::job::sites::{JobName, Sites, State};
use crate::systems::streams::kinds::{
    Closure, Form, Host, HostPool, JobPool, Location, StreamsJob,
};
use crate::systems::streams::obstacle::Obstacle;
use crate::systems::streams::owners::Owner;
use crate::view::Name;

/// The HostPool with the name that a pool of a job requires.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found<'v> {
    /// It does not exist.
    Nothing,
    /// The job owns it.
    Own(&'v HostPool),
    /// An earlier job of this name owns it, with which it will be deleted.
    Leaving(&'v HostPool),
    /// The job does not own it, so it is never changed.
    Foreign,
}

impl<'v> Found<'v> {
    /// Finds the HostPool of `pool`, a pool of the job `name`.
    pub(crate) fn new(name: &Name, job: &StreamsJob, pool: &JobPool, view: &'v View) -> Self {
        let found = view.host_pool(&Name::new(&name.namespace, &pool.host_pool));
        let Some(found) = found else { return Self::Nothing };
        match &found.job {
            Some((_, owner)) if *owner == job.identity.uid => Self::Own(found),
            Some((owner, _)) if **owner == *name.name => Self::Leaving(found),
            _ => Self::Foreign,
        }
    }
}

/// Returns the host of a location that is one host, by its name or as a listed member of a pool.
pub(super) fn host_of<'j>(closure: &'j Closure, location: &'j Location) -> Option<&'j Host> {
    match location {
        Location::Host(host) => Some(host),
        Location::Pool { pool, index } => closure.pools[*pool].listed((*index)?),
    }
}

/// Returns the hosts that a job names for its elements, and those that its exclusive pools list.
pub(crate) fn named_hosts(closure: &Closure) -> impl Iterator<Item = &Host> {
    let claims = closure.units.iter().flat_map(|unit| &unit.claims);
    let listed = closure.pools.iter().filter(|pool| pool.exclusive).filter_map(|pool| {
        let Ok(Form::Literal(hosts)) = &pool.form else { return None };
        Some(hosts)
    });
    claims.filter_map(|claim| host_of(closure, &claim.location)).chain(listed.flatten())
}

/// The facts about a job that its placement cannot change.
#[derive(Clone, Debug)]
pub(crate) struct Fixed<'f> {
    pub(crate) name: &'f Name,
    pub(crate) job: &'f StreamsJob,
    /// The View that hosts are looked up in.
    pub(crate) view: &'f View,
    /// The HostPools that the job owns, by the pool's index in the spec.
    pub(crate) pools: BTreeMap<usize, &'f HostPool>,
    /// The hashes of the HostPools of an earlier job of this name, which will be deleted.
    pub(crate) leaving: BTreeSet<&'f str>,
    /// The nodes of its pods, and those that are reserved for its elements or closed to them.
    pub(crate) pods: PodNodes<'f>,
    /// True if more nodes than there are count.
    pub(crate) with_more_nodes: bool,
}

/// The nodes that a job's pods have, and those that are reserved for its elements or closed to them. Elements
/// are referred to by their indices in the spec.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodNodes<'f> {
    /// The node of each element that runs.
    pub(crate) running: BTreeMap<usize, &'f str>,
    /// The nodes of pods with the job's label that are no elements of it.
    pub(crate) strangers: BTreeSet<&'f str>,
    /// The node that was reserved for an element.
    pub(crate) reserved: BTreeMap<usize, &'f str>,
    /// The nodes on which an element cannot be, although its constraints allow them.
    pub(crate) closed: BTreeMap<usize, BTreeSet<&'f str>>,
}

impl<'f> Fixed<'f> {
    /// The pools that a job owns. Where its pods run is not looked at, so the job is never judged to be
    /// impossible because of them.
    pub(crate) fn without_pods(name: &'f Name, job: &'f StreamsJob, view: &'f View) -> Self {
        let mut fixed = Self {
            name,
            job,
            view,
            pools: BTreeMap::new(),
            leaving: BTreeSet::new(),
            pods: PodNodes::default(),
            with_more_nodes: false,
        };
        for (number, pool) in job.closure.pools.iter().enumerate() {
            match Found::new(name, job, pool, view) {
                Found::Own(found) => _ = fixed.pools.insert(number, found),
                Found::Leaving(found) => fixed.leaving.extend(found.hash.as_deref()),
                Found::Nothing | Found::Foreign => {}
            }
        }
        fixed
    }

    /// Returns true if a pool of the job has this hash, or one of an earlier job of this name.
    pub(super) fn is_own(&self, hash: &str) -> bool {
        self.leaving.contains(hash)
            || self.pools.values().any(|pool| pool.hash.as_deref() == Some(hash))
    }

    /// Finds out why a pool of the job, by its index in the spec, cannot have a node in this state. `owner`
    /// is asked for the owner of a hash.
    pub(super) fn find_obstacle<'o>(
        &self,
        number: usize,
        sites: &Sites<'_>,
        state: &State<'_>,
        owner: &dyn Fn(&str) -> Owner<'o>,
    ) -> Option<Obstacle<'o>> {
        let pool = &self.job.closure.pools[number];
        if let Some(obstacle) = state.site.obstacle_for(&pool.form) {
            return Some(obstacle);
        }
        let hash = self.pools.get(&number).and_then(|pool| pool.hash.as_deref());
        let is_other = |of: &&str| Some(*of) != hash && !self.leaving.contains(of);
        if let Some(of) = state.exclusive.filter(is_other) {
            return Some(Obstacle::Exclusive(owner(of)));
        }
        if pool.exclusive {
            let mut marked = state.marked_for.iter().copied().filter(is_other);
            let mut unmarked = sites.hosts_of(state).filter(|of| !self.is_own(of));
            if let Some(of) = marked.next().or_else(|| unmarked.next()) {
                return Some(Obstacle::Shared(owner(of)));
            }
            let is_foreign = |of: &JobName<'_>| *of != (&*self.name.namespace, &*self.name.name);
            if state.runs.iter().any(is_foreign) {
                return Some(Obstacle::Occupied);
            }
            if state.named_by.iter().any(is_foreign) {
                return Some(Obstacle::Named);
            }
        }
        state.is_full.then_some(Obstacle::Full)
    }
}
