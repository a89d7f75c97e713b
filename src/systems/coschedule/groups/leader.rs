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
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::{Group, Groups, of_run};
use crate::systems::coschedule::kinds::CoscheduleView as _;
use crate::systems::coschedule::kinds::pipeline_run::PipelineRun;
use crate::systems::coschedule::kinds::placeholder::Placeholder;
use crate::systems::coschedule::{family, keys};
use crate::systems::policy::Policy;
use crate::view::{Name, View};

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
    rank: Rank,
}

/// The order of leaders: the least one leads.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Rank {
    /// Whether it has no placeholder yet.
    is_new: bool,
    /// True if it has no placeholder, and none of its claims has a volume.
    has_no_volume: bool,
    /// When its placeholder was created, or else the group itself.
    since: Option<Timestamp>,
    created: Option<Timestamp>,
    id: Arc<str>,
}

impl LiveGroup {
    /// The groups of a root run; none if the run is not active, or may never start.
    pub(crate) fn of_run(
        name: &Name,
        run: &PipelineRun,
        groups: &Groups,
        view: &View,
    ) -> impl Iterator<Item = Self> {
        let rank = rank_of_run(name, run, view);
        let live = rank.into_iter().flat_map(move |rank| {
            groups.groups.iter().map(move |group| {
                let one_node = group.claims.iter().filter(|claim| claim.one_node);
                let names = one_node.flat_map(|claim| {
                    let provisioned = || keys::provisioned(&claim.name, &group.name).into();
                    let own = claim.is_replaceable().then(provisioned);
                    own.into_iter().chain([claim.name.clone()])
                });
                let (placeholder, claims) =
                    (Name::new(&name.namespace, &group.name), names.collect());
                Self {
                    who: Who::Run(name.clone()),
                    run_uid: Some(run.identity.uid.clone()),
                    rank: rank.clone().with_volumes(&placeholder, &claims, view),
                    placeholder,
                    claims,
                }
            })
        });
        live.filter(|group| !is_failed(&group.placeholder, view))
    }

    /// The native groups that have a placeholder.
    pub(crate) fn of_placeholders(view: &View) -> impl Iterator<Item = Self> {
        view.placeholders().filter_map(|(name, placeholder)| {
            let Placeholder { identity, failed, run, group, .. } = placeholder;
            let group = group.as_deref().filter(|_| run.is_none() && !failed)?;
            if identity.deleting || *name.name != *keys::of_native(&name.namespace, group) {
                return None;
            }
            let since = identity.created;
            let rank = Rank { since, created: since, ..Rank::of(false, &name.name) };
            Some(Self {
                placeholder: name.clone(),
                who: Who::Group(group.into()),
                run_uid: None,
                claims: placeholder.mounted(name).map(|claim| (*claim.name).into()).collect(),
                rank,
            })
        })
    }

    /// A native group that has no placeholder yet. `since`: when its oldest pod was created.
    #[must_use]
    pub(crate) fn beginning(
        placeholder: &Name,
        group: &str,
        claims: &[&str],
        since: Option<Timestamp>,
        view: &View,
    ) -> Self {
        let rank = Rank { since, ..Rank::of(true, &placeholder.name) };
        let claims = claims.iter().map(|claim| (*claim).into()).collect();
        Self {
            who: Who::Group(group.into()),
            run_uid: None,
            rank: rank.with_volumes(placeholder, &claims, view),
            placeholder: placeholder.clone(),
            claims,
        }
    }
}

impl Rank {
    fn of(is_new: bool, id: &Arc<str>) -> Self {
        Self { is_new, has_no_volume: false, since: None, created: None, id: Arc::clone(id) }
    }

    fn with_volumes(self, placeholder: &Name, claims: &BTreeSet<Box<str>>, view: &View) -> Self {
        let mut claims = claims.iter();
        let has_none = claims.all(|claim| has_no_volume(&placeholder.namespace, claim, view));
        Self { has_no_volume: self.is_new && has_none, ..self }
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
    #[must_use]
    pub(crate) fn new(mut groups: Vec<LiveGroup>, view: &View) -> Self {
        groups.sort_by(|a, b| a.rank.cmp(&b.rank));
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
    #[must_use]
    pub(crate) fn of_group(&self, name: &Name, run: &PipelineRun, group: &Group) -> Vec<Leader> {
        let placeholder = Name::new(&name.namespace, &group.name);
        let claims = group.claims.iter().filter(|claim| claim.one_node).map(|claim| &*claim.name);
        self.before(&placeholder, Some(&run.identity.uid), claims)
    }

    /// The leaders of a native group whose pods mount these claims on one node.
    #[must_use]
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
        let own = self.by_placeholder.get(placeholder).map(|own| &self.groups[*own].rank);
        let is_before = |index: &&usize| {
            let group = &self.groups[**index];
            let is_of_run = run_uid.is_some() && group.run_uid.as_deref() == run_uid;
            let is_other = group.placeholder != *placeholder && !is_of_run;
            is_other && own.is_none_or(|own| group.rank < *own)
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

/// The leaders of a run's group, as [`Leaders::of_group`] finds them among the groups that the View knows.
#[must_use]
pub(crate) fn leaders(
    name: &Name,
    run: &PipelineRun,
    group: &Group,
    view: &View,
    policy: &Policy,
) -> Vec<Leader> {
    let mut live: Vec<LiveGroup> = LiveGroup::of_placeholders(view).collect();
    let is_candidate = |other: &PipelineRun| other.parent.is_none() && !other.done;
    let here = |other: &Name| other.namespace == name.namespace;
    for (other, run) in view.pipeline_runs().filter(|(of, run)| here(of) && is_candidate(run)) {
        if let Ok(groups) = of_run(other, run, view, policy) {
            live.extend(LiveGroup::of_run(other, run, &groups, view));
        }
    }
    Leaders::new(live, view).of_group(name, run, group)
}

fn is_failed(placeholder: &Name, view: &View) -> bool {
    view.placeholder(placeholder).is_some_and(|placeholder| placeholder.failed)
}

/// The rank of a root run; `None` if it is not active, or may never start.
fn rank_of_run(name: &Name, run: &PipelineRun, view: &View) -> Option<Rank> {
    let PipelineRun { identity, done, .. } = run;
    if *done || identity.deleting {
        return None;
    }
    let (created, id): (_, Arc<str>) = (identity.created, Arc::from(&*identity.uid));
    let usable = family::recorded(run, view)
        .filter(|(placeholder, _)| !placeholder.failed && !placeholder.identity.deleting);
    if let Some(since) = usable.map(|(placeholder, _)| placeholder.identity.created).min() {
        return Some(Rank { since, created, ..Rank::of(false, &id) });
    }
    let signs = family::signs(name, run, view);
    let is_starting = signs.has_started && !signs.is_assisted;
    is_starting.then(|| Rank { since: created, ..Rank::of(true, &id) })
}
