//! Pods of a StreamsJob: which pod belongs to which job, and what the job says of it.
//!
//! A pod joins the StreamsJob that its annotation names, and is refused while there is none; else the
//! one that is there and is called as its job label says, for which nobody waits. From then on the
//! object speaks, and annotations may only agree with it.
//!
//! No pod of a job that cannot be placed is admitted. Whether it can is the controller's word, in the
//! condition Accepted of the object's present generation; where it has not spoken yet (the object was
//! made a moment ago, comes from a file, or the controller is away) the same [`check`] is made here.
//! So an admission costs a look-up, and the work of a check, which is linear in the job and asks about
//! each host once, only until the condition is there.

pub mod check;

use super::keys;
use super::request::{Request, is_object_name};
use super::token::Token;
use super::{NAME, Placing, cause};
use crate::api::condition::{ACCEPTED, Status, find};
use crate::api::streams_job::{Enforcement as Wanted, ProcessingElement, StreamsJobSpec};
use crate::placement::intent::Enforcement;
use crate::placement::pod::{Metadata, Pod};
use crate::placement::reason::{Finding, Reason, quoted};
use crate::placement::record;
use crate::view::streams_job::closure::{Claim, Operator, Place, Unit};
use crate::view::{Key, Name, StreamsJob, View};

/// A pod's place in its job.
pub(super) struct Member<'v> {
    /// The job's name.
    pub(super) name: &'v str,
    /// The job.
    pub(super) job: &'v StreamsJob,
    /// What it says.
    pub(super) spec: &'v StreamsJobSpec,
    /// The pod's processing element, by its place in the spec.
    pub(super) index: usize,
    /// The same.
    pub(super) element: &'v ProcessingElement,
    /// What shares a host with it.
    pub(super) unit: &'v Unit,
}

/// What a pod is to the StreamsJobs.
pub(super) enum Joined<'v> {
    /// It belongs to none.
    None,
    /// It belongs to this one.
    Member(Member<'v>),
    /// It was placed in an earlier round, and what it was placed by is gone: it stays as it is.
    Settled,
    /// It cannot be a member; findings tell why.
    Refused,
}

/// Whether a pod that carries no annotation of ours may belong to a StreamsJob, or did in an earlier
/// round: one look at its labels, and one at the jobs.
pub fn concerns(namespace: &str, metadata: &Metadata<'_>, view: &View) -> bool {
    let label = |key: &str| metadata.labels.as_ref().and_then(|labels| labels.get(key));
    let Some(job) = label(keys::JOB) else { return false };
    if view.streams_jobs().next().is_some()
        && view.streams_job(&Name::new(namespace, job)).is_some()
    {
        return true;
    }
    let annotation = |key: &str| metadata.annotations.as_ref().and_then(|map| map.get(key));
    annotation(record::KEY).is_some_and(|record| {
        let of_job = cause(keys::STREAMS_JOB, job) + ": ";
        record::entries(record, NAME).iter().any(|entry| entry.starts_with(&of_job))
    })
}

impl<'p> Placing<'p> {
    /// Finds the pod's job and its place in it.
    pub(super) fn join(&mut self) -> Joined<'p> {
        let (pod, view): (&'p Pod<'p>, &'p View) = (self.pod, self.view);
        let named = pod.annotation(keys::STREAMS_JOB);
        let Some(name) = named.or_else(|| pod.label(keys::JOB)) else { return Joined::None };
        if named.is_some() && !is_object_name(name) {
            self.find(
                Reason::InvalidJobReference,
                keys::STREAMS_JOB,
                format!("{} is no object name (lower case letters, digits, - and .)", quoted(name)),
                "write the name of a StreamsJob of the pod's namespace",
            );
            return Joined::Refused;
        }
        let element = pod.label(keys::PROCESSING_ELEMENT).filter(|element| !element.is_empty());
        // A record that is taken away in this round is not believed in the next one either.
        let settled = self.policy.record_placement
            && element.is_some_and(|element| is_settled(pod, name, element));
        let key = Name::new(pod.namespace, name);
        let Some(job) = view.streams_job(&key) else {
            return match named {
                _ if settled => self.settle(),
                None => Joined::None,
                Some(_) => {
                    self.outcome.awaited.push(Key::StreamsJob(key));
                    self.find(
                        Reason::UnknownJob,
                        keys::STREAMS_JOB,
                        format!("namespace {} has no StreamsJob {}", pod.namespace, quoted(name)),
                        "create it first (`kubectl get streamsjobs` lists those that are there)",
                    );
                    Joined::Refused
                }
            };
        };
        let Some(element) = element else {
            self.find(
                Reason::MissingLabel,
                keys::PROCESSING_ELEMENT,
                format!("the pod belongs to StreamsJob {name} and has no such label"),
                "label it with the name of its processing element in the job",
            );
            return Joined::Refused;
        };
        let place = job.closure.element(element);
        let unit = place.and_then(|place| job.closure.unit_of(place));
        let (Ok(spec), Some(index), Some(unit)) = (&job.spec, place, unit) else {
            if settled {
                return self.settle();
            }
            match &job.spec {
                Err(problem) => {
                    let reason = Reason::MalformedJob.as_str();
                    self.not_accepted(name, reason, problem, "mend the StreamsJob");
                }
                Ok(_) => self.find(
                    Reason::NotInJob,
                    keys::PROCESSING_ELEMENT,
                    format!("StreamsJob {name} has no processing element {}", quoted(element)),
                    "label the pod with one that is there, or add it to a new job",
                ),
            }
            return Joined::Refused;
        };
        // Placed as a member of a job that has been replaced since.
        if settled && unit.group.as_deref() != pod.label(keys::GROUP) {
            return self.settle();
        }
        if !settled && !self.accepts(&key, job) {
            return Joined::Refused;
        }
        let element = &spec.processing_elements[index];
        Joined::Member(Member { name, job, spec, index, element, unit })
    }

    /// Whether the job can be placed; finds fault where it cannot.
    fn accepts(&mut self, name: &Name, job: &StreamsJob) -> bool {
        let spoken = find(&job.status.conditions, ACCEPTED).filter(|condition| {
            condition.observed_generation == Some(job.identity.generation)
                && condition.status != Status::Unknown
        });
        if let Some(condition) = spoken {
            if condition.status == Status::False {
                let remedy = "see its status (`kubectl describe streamsjob`)";
                self.not_accepted(&name.name, &condition.reason, &condition.message, remedy);
            }
            return condition.status == Status::True;
        }
        let findings = check::check(name, job, self.view, self.policy);
        if let Some(first) = findings.first() {
            let mut reason = first.reason.to_string();
            if findings.len() > 1 {
                reason.push_str(&format!(", and {} more", findings.len() - 1));
            }
            self.not_accepted(&name.name, &reason, &first.problem, &first.remedy);
        }
        findings.is_empty()
    }

    fn not_accepted(&mut self, job: &str, reason: &str, why: &str, remedy: &str) {
        self.outcome.findings.push(Finding::new(
            Reason::JobNotAccepted,
            format!("StreamsJob {job}"),
            format!("is not accepted ({reason}): {why}"),
            remedy,
        ));
    }

    /// Keeps all that an earlier round wrote.
    fn settle(&mut self) -> Joined<'p> {
        self.outcome.keeps_record = true;
        Joined::Settled
    }

    /// Finds fault with annotations that say something else than the job.
    pub(super) fn compare(&mut self, member: &Member<'_>, request: &Request) {
        let said = |place: &Place| member.said(place);
        let places: Vec<&Claim> = member.places().collect();
        if let Some((value, host)) = &request.host
            && !places.iter().any(|claim| claim.place == Place::Host(host.clone()))
        {
            let hosts = places.iter().filter(|claim| matches!(claim.place, Place::Host(_)));
            let hosts: Vec<String> = hosts.map(|claim| said(&claim.place)).collect();
            self.contradicts(member, keys::HOST, value, &hosts);
        }
        if let Some((value, reference)) = &request.pool {
            let same = |claim: &&&Claim| match claim.place {
                Place::Pool { pool, index } => {
                    let (own, made) = (&member.spec.pools[pool], &member.job.closure.pools[pool]);
                    index == reference.index
                        && (own.name == reference.name || *made.host_pool == *reference.name)
                }
                Place::Host(_) => false,
            };
            if places.iter().find(same).is_none() {
                let pools = places.iter().filter(|claim| matches!(claim.place, Place::Pool { .. }));
                let pools: Vec<String> = pools.map(|claim| said(&claim.place)).collect();
                self.contradicts(member, keys::HOST_POOL, value, &pools);
            }
        }
        let operators = || member.element.operators.iter();
        let own = |tokens: Vec<&String>| {
            let mut tokens: Vec<String> = tokens.into_iter().cloned().collect();
            tokens.sort_unstable();
            tokens.dedup();
            tokens
        };
        let colocation = own(operators().flat_map(|operator| &operator.host_colocation).collect());
        let exlocation = own(operators().flat_map(|operator| &operator.host_exlocation).collect());
        for (key, written, own) in [
            (keys::HOST_COLOCATION, &request.colocation, &colocation),
            (keys::HOST_EXLOCATION, &request.exlocation, &exlocation),
        ] {
            let same = written.iter().all(|token| own.iter().any(|o| o == token.as_str()))
                && written.len() == own.len();
            if let Some(value) = self.pod.annotation(key).filter(|_| !written.is_empty() && !same) {
                self.contradicts(member, key, value, own);
            }
        }
        if let Some(value) = &request.isolation {
            let isolated = operators().filter(|operator| operator.host_isolation);
            let isolated: Vec<String> = isolated.map(|operator| operator.name.clone()).collect();
            if !isolated.contains(value) {
                self.contradicts(member, keys::HOST_ISOLATION, value, &isolated);
            }
        }
        if let Some(value) = self.pod.annotation(keys::HOST_ENFORCEMENT)
            && request.enforcement != member.enforcement()
        {
            let own = match member.spec.enforcement {
                Wanted::Required => "required",
                Wanted::Preferred => "preferred",
            };
            self.contradicts(member, keys::HOST_ENFORCEMENT, value, &[own.to_owned()]);
        }
    }

    fn contradicts(&mut self, member: &Member<'_>, key: &str, value: &str, own: &[String]) {
        let own = match own {
            [] => "nothing of the kind".to_owned(),
            own => own.iter().map(|own| quoted(own)).collect::<Vec<_>>().join(", "),
        };
        self.outcome.findings.push(Finding::new(
            Reason::Contradiction,
            key,
            format!(
                "says {}, and StreamsJob {} says {own} of processing element {}",
                quoted(value),
                member.name,
                quoted(&member.element.name)
            ),
            "remove the annotation: the job says it all",
        ));
    }
}

impl Member<'_> {
    /// How strongly colocation, exlocation and isolation hold.
    pub(super) fn enforcement(&self) -> Enforcement {
        match self.spec.enforcement {
            Wanted::Required => Enforcement::Required,
            Wanted::Preferred => Enforcement::Preferred,
        }
    }

    /// The hosts and pools that the pod is bound to.
    pub(super) fn places(&self) -> impl Iterator<Item = &Claim> {
        self.unit.places(self.index, self.spec.enforcement == Wanted::Required)
    }

    /// What a claim is called: the host as the job writes it, `P2`, `P2[5]`.
    pub(super) fn said(&self, place: &Place) -> String {
        match place {
            Place::Host(_) => {
                let claim = self.unit.claims.iter().find(|claim| claim.place == *place);
                let said = claim.and_then(|claim| self.operator(claim.by)?.host.as_ref());
                let said = said.and_then(|host| host.name.clone().or_else(|| host.address.clone()));
                said.unwrap_or_default()
            }
            Place::Pool { pool, index } => {
                let name = self.spec.pools.get(*pool).map_or("", |pool| pool.name.as_str());
                index.map_or_else(|| name.to_owned(), |index| format!("{name}[{index}]"))
            }
        }
    }

    /// An operator of the job.
    pub(super) fn operator(&self, by: Operator) -> Option<&crate::api::streams_job::Operator> {
        self.spec.processing_elements.get(by.element)?.operators.get(by.operator)
    }

    /// The element's own colocation tokens, each once.
    pub(super) fn colocation(&self) -> Vec<Token> {
        let mut tokens: Vec<Token> = Vec::new();
        for text in self.element.operators.iter().flat_map(|operator| &operator.host_colocation) {
            // A job with a token that is none is not accepted.
            if let Ok(token) = Token::of_operator(text)
                && !tokens.contains(&token)
            {
                tokens.push(token);
            }
        }
        tokens
    }

    /// The exlocation tokens of the element, which are those of its unit.
    pub(super) fn exlocation(&self) -> Vec<Token> {
        let tokens = self.unit.exlocations.iter();
        tokens.filter_map(|exlocation| Token::of_operator(&exlocation.token).ok()).collect()
    }
}

/// What the record says of a member: `streams-job=parallel: element parallel-0, group 3f9a2b…`.
pub(super) fn entry(job: &str, element: &str, group: Option<&str>) -> String {
    let group = group.map(|group| format!(", group {group}")).unwrap_or_default();
    format!("{}: element {element}{group}", cause(keys::STREAMS_JOB, job))
}

/// Whether an earlier round placed the pod as this element of this job: the record says so, and the
/// pod's group label bears it out. Who forges both has labelled the pod himself, and gains nothing
/// that leaving the job's name out would not give him.
fn is_settled(pod: &Pod<'_>, job: &str, element: &str) -> bool {
    let Some(record) = pod.annotation(record::KEY) else { return false };
    let wanted = entry(job, element, pod.label(keys::GROUP));
    record::entries(record, NAME).contains(&wanted)
}
