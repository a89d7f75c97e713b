//! Pods of a StreamsJob: finds the job of a pod and places the pod as its member.
//!
//! A pod belongs to the StreamsJob that its annotation names, and is refused if that does not
//! exist. A pod without the annotation belongs to the StreamsJob that its job label names, if that
//! exists. The constraints then come from the StreamsJob, and annotations must agree with them.
//!
//! Pods of a job that cannot be placed are refused. The controller runs [`check`] and writes the
//! result to the condition Accepted. If the condition is not set for the object's generation (a new
//! object, a file, or no controller), the same check runs here. So an admission usually costs one
//! look-up. The check takes time linear in the size of the job, and looks up each host once.

pub(crate) mod check;
pub(super) mod place;
pub(crate) mod placement;
pub(crate) mod sites;

use std::collections::BTreeSet;

use super::keys;
use super::request::{Request, Source, element_of};
use super::{NAME, Placing, format_cause};
use crate::api::condition::{ACCEPTED, Status, find};
use crate::names::is_dns_subdomain;
use crate::placement::object::Metadata;
use crate::placement::pod::Pod;
use crate::placement::reason::{Finding, Reason, quoted};
use crate::placement::record;
use crate::policy;
use crate::systems::View;
use crate::systems::policy::Policy;
use crate::systems::preview::ASSUMED_UID;
use crate::systems::streams::api::streams_job::Enforcement;
use crate::systems::streams::kinds::{Location, StreamsJob};
use crate::systems::streams::resources::STREAMS_JOB;
use crate::view::{Key, Name};
use place::Member;

/// The StreamsJob that a pod refers to.
pub(super) struct Reference<'p> {
    name: &'p str,
    /// True if the annotation names the job, and not only the job label.
    by_annotation: bool,
    /// The value of the pod's label for the processing element, unless empty.
    element: Option<&'p str>,
    /// True if an earlier round placed the pod as this element of this job.
    is_placed: bool,
}

/// Finds the StreamsJob that a pod refers to. `None` if the pod's own annotations apply: the pod
/// names no job, or only its job label names one, and that does not exist.
pub(super) fn find_reference<'p>(
    pod: &'p Pod<'_>,
    view: &View,
    policy: &Policy,
) -> Option<Reference<'p>> {
    let annotation = pod.annotation(keys::STREAMS_JOB);
    let name = annotation.or_else(|| pod.label(keys::JOB))?;
    let element = element_of(pod);
    // Without `recordPlacement` this round removes the record, so it must not use it either.
    let is_placed =
        policy.record_placement && element.is_some_and(|element| was_placed_as(pod, name, element));
    let by_annotation = annotation.is_some();
    let exists = || view.streams_job(&Name::new(pod.namespace, name)).is_some();
    let applies = by_annotation || is_placed || exists();
    applies.then_some(Reference { name, by_annotation, element, is_placed })
}

/// Returns true if a pod without any of stowplan's annotations may belong to a StreamsJob, or did so in
/// an earlier round. Reads only the pod's labels, its record and the table of jobs.
pub(crate) fn concerns(namespace: &str, metadata: &Metadata<'_>, view: &View) -> bool {
    let label = |key: &str| metadata.labels.as_ref().and_then(|labels| labels.get(key));
    let Some(job) = label(keys::JOB) else { return false };
    if view.streams_jobs().next().is_some()
        && view.streams_job(&Name::new(namespace, job)).is_some()
    {
        return true;
    }
    let annotation = |key: &str| metadata.annotations.as_ref().and_then(|map| map.get(key));
    annotation(record::KEY).is_some_and(|record| {
        let of_job = format_cause(keys::STREAMS_JOB, job) + ": ";
        record::entries(record, NAME).iter().any(|entry| entry.starts_with(&of_job))
    })
}

impl<'p> Placing<'p> {
    /// Places the pod as the member of the StreamsJob that it refers to.
    pub(super) fn place_by_job(&mut self, reference: &Reference<'p>) {
        match self.join(reference) {
            Some(member) => self.place_member(&member),
            None if self.outcome.keeps_record => {}
            None => {
                // So that the response also reports invalid annotations.
                Request::parse(self.pod, Source::Job, &mut self.outcome);
            }
        }
    }

    /// Finds the pod's element in the StreamsJob that it refers to. If the job or the element has been
    /// deleted since an earlier round placed the pod, keeps the record of that round; if the pod cannot
    /// be a member otherwise, reports why.
    fn join(&mut self, reference: &Reference<'p>) -> Option<Member<'p>> {
        let Reference { name, by_annotation, element, is_placed } = *reference;
        let (pod, view): (&'p Pod<'p>, &'p View) = (self.pod, self.view);
        if by_annotation && !is_dns_subdomain(name) {
            let quoted = quoted(name);
            let problem =
                format!("{quoted} is not an object name (lower case letters, digits, - and .)");
            let remedy = "write the name of a StreamsJob of the pod's namespace";
            return self.refuse(Reason::InvalidJobReference, keys::STREAMS_JOB, problem, remedy);
        }
        let key = Name::new(pod.namespace, name);
        let Some(job) = view.streams_job(&key) else {
            if is_placed {
                self.outcome.keeps_record = true;
                return None;
            }
            let jobs = view.streams_jobs().filter(|(job, _)| job.namespace == key.namespace);
            let near = policy::meant(name, jobs.map(|(job, _)| &*job.name));
            self.outcome.awaited.push(Key::new(STREAMS_JOB, key));
            let problem =
                format!("namespace {} has no StreamsJob {}{near}", pod.namespace, quoted(name));
            let remedy = "create it first (`kubectl get streamsjobs` lists the existing ones)";
            return self.refuse(Reason::UnknownJob, keys::STREAMS_JOB, problem, remedy);
        };
        let Some(element) = element else {
            let problem = format!("the pod belongs to StreamsJob {name} and has no such label");
            let remedy = "label it with the name of its processing element in the job";
            return self.refuse(Reason::MissingLabel, keys::PROCESSING_ELEMENT, problem, remedy);
        };
        let index = job.closure.element(element);
        let unit = index.and_then(|index| job.closure.unit_of(index));
        let (Ok(spec), Some(index), Some(unit)) = (&job.spec, index, unit) else {
            if is_placed {
                self.outcome.keeps_record = true;
                return None;
            }
            match &job.spec {
                Err(problem) => {
                    let reason = Reason::MalformedJob.as_str();
                    self.report_not_accepted(name, reason, problem, "mend the StreamsJob");
                }
                Ok(_) => self.report(
                    Reason::NotInJob,
                    keys::PROCESSING_ELEMENT,
                    format!("StreamsJob {name} has no processing element {}", quoted(element)),
                    "label the pod with an element of the job, or add it to a new job",
                ),
            }
            return None;
        };
        // It was placed as a member of an earlier job of this name.
        if is_placed && unit.group.as_deref() != pod.label(keys::GROUP) {
            self.outcome.keeps_record = true;
            return None;
        }
        if !is_placed && !self.require_accepted(&key, job) {
            return None;
        }
        let element = &spec.processing_elements[index];
        Some(Member { name, job, spec, index, element, is_placed, unit })
    }

    /// Returns whether the job can be placed, and reports a finding if it cannot.
    fn require_accepted(&mut self, name: &Name, job: &StreamsJob) -> bool {
        let decided = find(&job.status.conditions, ACCEPTED).filter(|condition| {
            condition.observed_generation == Some(job.identity.generation)
                && condition.status != Status::Unknown
                // One that does not exist yet has no status that its author could look at.
                && !job.identity.uid.starts_with(ASSUMED_UID)
        });
        if let Some(condition) = decided {
            if condition.status == Status::False {
                let remedy = "see its status (`kubectl describe streamsjob`)";
                self.report_not_accepted(&name.name, &condition.reason, &condition.message, remedy);
            }
            return condition.status == Status::True;
        }
        let findings = check::check(name, job, self.view, self.policy);
        if let Some(first) = findings.first() {
            let mut reason = first.reason.to_string();
            if findings.len() > 1 {
                reason.push_str(&format!(", and {} more", findings.len() - 1));
            }
            self.report_not_accepted(&name.name, &reason, &first.problem, &first.remedy);
        }
        findings.is_empty()
    }

    fn report_not_accepted(&mut self, job: &str, reason: &str, why: &str, remedy: &str) {
        let subject = format!("StreamsJob {job}");
        let problem = format!("is not accepted ({reason}): {why}");
        self.outcome.findings.push(Finding::new(Reason::JobNotAccepted, subject, problem, remedy));
    }

    /// Reports annotations that do not agree with the job.
    fn compare_annotations(&mut self, member: &Member<'_>, request: &Request) {
        let claims = || member.claims().map(|claim| &claim.location);
        let format = |location| member.format_location(location);
        let operators = || member.element.operators.iter();
        if let Some((_, host)) = &request.host {
            let hosts = claims().filter(|location| matches!(location, Location::Host(_)));
            let is_same = claims().any(|location| *location == Location::Host(host.clone()));
            self.report_unless_same(member, keys::HOST, is_same, hosts.map(format));
        }
        if let Some((_, reference)) = &request.pool {
            let pools = claims().filter(|location| matches!(location, Location::Pool { .. }));
            let is_meant = |location: &Location| {
                let Location::Pool { pool, index } = *location else { return false };
                let (own, made) = (&member.spec.pools[pool], &member.job.closure.pools[pool]);
                index == reference.index
                    && (own.name == reference.name || *made.host_pool == *reference.name)
            };
            let is_same = claims().any(is_meant);
            self.report_unless_same(member, keys::HOST_POOL, is_same, pools.map(format));
        }
        let colocation = operators().flat_map(|operator| &operator.host_colocation).cloned();
        let exlocation = operators().flat_map(|operator| &operator.host_exlocation).cloned();
        for (key, written, own) in [
            (keys::HOST_COLOCATION, &request.colocation, colocation.collect::<BTreeSet<_>>()),
            (keys::HOST_EXLOCATION, &request.exlocation, exlocation.collect()),
        ] {
            let is_same = written.len() == own.len()
                && written.iter().all(|token| own.contains(token.as_str()));
            self.report_unless_same(member, key, is_same || written.is_empty(), own);
        }
        if let Some(value) = &request.isolation {
            let isolated = operators().filter(|operator| operator.host_isolation);
            let isolated: Vec<String> = isolated.map(|operator| operator.name.clone()).collect();
            let is_same = isolated.contains(value);
            self.report_unless_same(member, keys::HOST_ISOLATION, is_same, isolated);
        }
        let own = match member.spec.enforcement {
            Enforcement::Required => "required",
            Enforcement::Preferred => "preferred",
        };
        let is_same = request.enforcement == member.enforcement();
        self.report_unless_same(member, keys::HOST_ENFORCEMENT, is_same, [own.to_owned()]);
    }

    /// Reports the pod's annotation with this key unless `is_same`; `own` are the values that the job has.
    fn report_unless_same(
        &mut self,
        member: &Member<'_>,
        key: &str,
        is_same: bool,
        own: impl IntoIterator<Item = String>,
    ) {
        let Some(value) = self.pod.annotation(key).filter(|_| !is_same) else { return };
        let own: Vec<String> = own.into_iter().map(|own| quoted(&own)).collect();
        let own = if own.is_empty() { "nothing".to_owned() } else { own.join(", ") };
        let problem = format!(
            "is {}, but StreamsJob {} has {own} for processing element {}",
            quoted(value),
            member.name,
            quoted(&member.element.name)
        );
        let remedy = "remove the annotation: the constraints come from the job";
        self.outcome.findings.push(Finding::new(Reason::Contradiction, key, problem, remedy));
    }
}

/// The record's entry about a member: `streams-job=parallel: element parallel-0, group 3f9a2b…`.
fn format_entry(job: &str, element: &str, group: Option<&str>) -> String {
    let group = group.map(|group| format!(", group {group}")).unwrap_or_default();
    format!("{}: element {element}{group}", format_cause(keys::STREAMS_JOB, job))
}

/// Returns true if an earlier round placed the pod as this element of this job, according to the pod's
/// record and its group label. An author who forges both gets no more than for a pod that names no
/// job.
fn was_placed_as(pod: &Pod<'_>, job: &str, element: &str) -> bool {
    let Some(record) = pod.annotation(record::KEY) else { return false };
    let expected = format_entry(job, element, pod.label(keys::GROUP));
    record::entries(record, NAME).contains(&expected)
}
