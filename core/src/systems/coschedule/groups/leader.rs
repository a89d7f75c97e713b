//! Finds the leaders of a group: the earlier groups that share a claim with it, to whose node it goes.
//!
//! The list of live groups is built once, sorted by rank, and indexed by claim. Groups with a
//! placeholder come first, the oldest first, because the claim may be in use on their node. Groups
//! without one follow in the order of their creation, those with a volume first. A run that may never
//! start is not a leader.
//!
//! The volume of a claim without one is made where its first user runs. If that is in another zone than
//! a volume that a later user needs too, the later one can never run. So groups follow the first of all
//! groups that claims without volumes tie together: the first of a chain of them, too.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use k8s_openapi::jiff::Timestamp;

use super::Group;
use crate::systems::View;
use crate::systems::coschedule::kinds::{PipelineRun, Placeholder};
use crate::systems::coschedule::placeholder::Run;
use crate::systems::coschedule::{family, keys};
use crate::view::Name;

/// An earlier group with the same claim, whose node another group must share.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Leader {
    /// The owner of the group.
    pub who: Who,
    /// Its placeholder.
    pub placeholder: Name,
    /// The claim of the other group.
    pub claim: Box<str>,
    /// True if the leader uses that claim itself. Else claims without volumes tie the two together.
    pub shares: bool,
}

impl fmt::Display for Leader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { who, claim, .. } = self;
        match self.shares {
            true => write!(formatter, "claim {claim} is also used by the earlier {who}"),
            false => write!(
                formatter,
                "claim {claim}, which has no volume yet, is used together with claims of the earlier {who}"
            ),
        }
    }
}

/// The owner of a group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Who {
    /// A run.
    Run(Name),
    /// A native group.
    Group(Box<str>),
}

impl fmt::Display for Who {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(run) => write!(formatter, "PipelineRun {}", run.name),
            Self::Group(group) => write!(formatter, "group {group}"),
        }
    }
}

/// A group that can be a leader: one of a run, or a native one.
#[derive(Clone, Debug)]
pub(crate) struct LiveGroup {
    placeholder: Name,
    who: Who,
    /// The UID of its run: groups of one run do not follow each other.
    run_uid: Option<Box<str>>,
    claims: BTreeSet<Box<str>>,
    /// True if it has no placeholder yet.
    is_new: bool,
    /// When its placeholder was created, or else the group itself.
    since: Option<Timestamp>,
    created: Option<Timestamp>,
}

impl LiveGroup {
    /// The groups of an active root run; none if it has neither a placeholder nor begun, as it may never start. Nor may
    /// a group whose pods gates of others hold: a quota may release them only when a later group has ended.
    pub(crate) fn of_run(
        Run { name, run, groups, has_started }: &Run<'_>,
        view: &View,
    ) -> impl Iterator<Item = Self> {
        let usable = family::recorded(run, view)
            .filter(|(placeholder, _)| !placeholder.failed && !placeholder.identity.deleting);
        let placed = usable.map(|(placeholder, _)| placeholder.identity.created).min();
        let is_new = placed.is_none();
        let groups = groups.groups.iter().filter(move |_| !is_new || *has_started);
        let live = groups.map(move |group| {
            let one_node = group.claims.iter().filter(|claim| claim.one_node);
            let claims = one_node.flat_map(|claim| {
                let provisioned = || keys::provisioned(&claim.name, &group.name).into();
                let own = claim.is_replaceable().then(provisioned);
                own.into_iter().chain([claim.name.clone()])
            });
            Self {
                placeholder: Name::new(&name.namespace, &group.name),
                who: Who::Run((*name).clone()),
                run_uid: Some(run.identity.uid.clone()),
                claims: claims.collect(),
                is_new,
                since: placed.unwrap_or(run.identity.created),
                created: run.identity.created,
            }
        });
        live.filter(|of| match view.placeholder(&of.placeholder) {
            Some(made) => !made.failed,
            None => family::held_by(&of.placeholder, view).is_none(),
        })
    }

    /// The native groups that have a placeholder.
    pub(crate) fn of_placeholders(view: &View) -> impl Iterator<Item = Self> {
        view.placeholders().filter_map(|(name, placeholder)| {
            let Placeholder { identity, failed, run, group, .. } = placeholder;
            let group = group.as_deref().filter(|_| run.is_none() && !failed)?;
            if identity.deleting || *name.name != *keys::of_native(&name.namespace, group) {
                return None;
            }
            let claims = placeholder.mounted(name).map(|claim| (*claim.name).into()).collect();
            Some(Self { is_new: false, ..Self::native(name, group, claims, identity.created) })
        })
    }

    /// A native group without a placeholder. `since`: when its oldest pod was created.
    pub(crate) fn native(
        placeholder: &Name,
        group: &str,
        claims: BTreeSet<Box<str>>,
        since: Option<Timestamp>,
    ) -> Self {
        Self {
            placeholder: placeholder.clone(),
            who: Who::Group(group.into()),
            run_uid: None,
            claims,
            is_new: true,
            since,
            created: since,
        }
    }

    /// The order of leaders: the least one leads. Groups of one run have the same rank.
    fn rank(&self, view: &View) -> impl Ord + use<> {
        let mut claims = self.claims.iter();
        let namespace = &self.placeholder.namespace;
        let has_no_volume =
            self.is_new && claims.all(|claim| has_no_volume(namespace, claim, view));
        let id: Box<str> = self.run_uid.as_deref().unwrap_or(&self.placeholder.name).into();
        (self.is_new, has_no_volume, self.since, self.created, id)
    }
}

/// The live groups, sorted by rank.
#[derive(Debug, Default)]
pub(crate) struct Leaders {
    groups: Vec<LiveGroup>,
    by_claim: HashMap<Name, Vec<usize>>,
    by_placeholder: HashMap<Name, usize>,
    /// For each claim without a volume, the first of the groups that it ties together with others.
    first_tied: HashMap<Name, usize>,
}

impl Leaders {
    /// Sorts and indexes the live groups.
    pub(crate) fn new(mut groups: Vec<LiveGroup>, view: &View) -> Self {
        groups.sort_by_cached_key(|group| group.rank(view));
        let mut by_claim: HashMap<Name, Vec<usize>> = HashMap::new();
        let mut by_placeholder = HashMap::new();
        for (index, group) in groups.iter().enumerate() {
            by_placeholder.insert(group.placeholder.clone(), index);
            for claim in &group.claims {
                let claim = Name::new(&group.placeholder.namespace, claim);
                by_claim.entry(claim).or_default().push(index);
            }
        }
        let first_tied = first_tied(&groups, &by_claim, view);
        Self { groups, by_claim, by_placeholder, first_tied }
    }

    /// The leaders of a run's group, the earliest first.
    pub(crate) fn of_group(&self, name: &Name, run: &PipelineRun, group: &Group) -> Vec<Leader> {
        let placeholder = Name::new(&name.namespace, &group.name);
        let claims = group.claims.iter().filter(|claim| claim.one_node).map(|claim| &*claim.name);
        self.before(&placeholder, Some(&run.identity.uid), claims)
    }

    /// The leaders of a native group whose pods mount these claims on one node.
    pub(crate) fn of_native(&self, placeholder: &Name, claims: &[&str]) -> Vec<Leader> {
        self.before(placeholder, None, claims.iter().copied())
    }

    /// For each of the claims the first group that uses it, and the first of those that it is tied to, if their
    /// ranks are before that of `placeholder`'s group. A group that is not live ranks last.
    fn before<'c>(
        &self,
        placeholder: &Name,
        run_uid: Option<&str>,
        claims: impl Iterator<Item = &'c str>,
    ) -> Vec<Leader> {
        let own = self.by_placeholder.get(placeholder);
        let is_before = |index: &&usize| {
            let group = &self.groups[**index];
            let is_of_run = run_uid.is_some() && group.run_uid.as_deref() == run_uid;
            let is_other = group.placeholder != *placeholder && !is_of_run;
            is_other && own.is_none_or(|own| *index < own)
        };
        let mut first: BTreeMap<usize, (&str, bool)> = BTreeMap::new();
        for claim in claims {
            let name = Name::new(&placeholder.namespace, claim);
            let users = self.by_claim.get(&name);
            if let Some(index) = users.and_then(|users| users.iter().find(is_before)) {
                first.insert(*index, (claim, true));
            }
            if let Some(index) = self.first_tied.get(&name).filter(is_before) {
                first.entry(*index).or_insert((claim, false));
            }
        }
        let leader = |(index, (claim, shares)): (usize, (&str, bool))| {
            let LiveGroup { who, placeholder, .. } = &self.groups[index];
            let (who, placeholder) = (who.clone(), placeholder.clone());
            Leader { who, placeholder, claim: claim.into(), shares }
        };
        first.into_iter().map(leader).collect()
    }
}

/// Finds the first group for each claim without a volume: of those that use the claim, or one that a group uses
/// together with it, and so on.
fn first_tied(
    groups: &[LiveGroup],
    by_claim: &HashMap<Name, Vec<usize>>,
    view: &View,
) -> HashMap<Name, usize> {
    let claims = |index: usize| {
        let LiveGroup { placeholder: Name { namespace, .. }, claims, .. } = &groups[index];
        let open = claims.iter().filter(|claim| has_no_volume(namespace, claim, view));
        open.map(|claim| Name::new(namespace, claim))
    };
    let mut first = HashMap::new();
    for index in 0..groups.len() {
        let mut left: Vec<Name> = claims(index).collect();
        while let Some(claim) = left.pop() {
            let users = by_claim.get(&claim).into_iter().flatten();
            if let Entry::Vacant(entry) = first.entry(claim) {
                left.extend(users.flat_map(|of| claims(*of)));
                entry.insert(index);
            }
        }
    }
    first
}

/// Returns true if a claim has no volume, so that its first user decides where that is made.
fn has_no_volume(namespace: &str, claim: &str, view: &View) -> bool {
    view.claim(&Name::new(namespace, claim)).is_none_or(|claim| claim.volume.is_none())
}
