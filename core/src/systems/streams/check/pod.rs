//! Adds the constraints of Streams to the diagnosis of a pod.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;

use super::check_pool;
use super::pool::find_problem;
use crate::kubernetes::{annotation, label, scheduler_name};
use crate::placement::record;
use crate::systems::check::words::some;
use crate::systems::check::{Cluster, Context, Diagnosis, PodReport};
use crate::systems::streams::NAME;
use crate::systems::streams::api::host_pool::Member;
use crate::systems::streams::job::placement::Restriction;
use crate::systems::streams::keys::{JOB, PROCESSING_ELEMENT};
use crate::systems::streams::kinds::{PodDetails, is_colocation_key};
use crate::systems::streams::owners::pool_of_hash;
use crate::view::Name;

/// Diagnoses a pod as far as Streams knows it.
pub(in crate::systems::streams) fn check(
    context: &Context<'_>,
    name: &Name,
    pod: &Pod,
) -> PodReport {
    let cluster = context.cluster;
    let mut report = PodReport::default();
    if let (Some(job), Some(element)) =
        (label(&pod.metadata, JOB), label(&pod.metadata, PROCESSING_ELEMENT))
    {
        report.asked.push(format!("processing element {element} of job {job}"));
    }
    report.bound_to = find_location(pod);
    report_schedulers(&mut report.unfinished, pod, name, cluster);
    if let Some(read) = PodDetails::read(pod) {
        for (hash, index) in &read.pools {
            report_pool_of(&mut report.pending, cluster, hash, *index);
        }
        report_reserved(&mut report.pending, cluster, name, &read);
    }
    report
}

/// Reports that the job of a pod has reserved other nodes since it was created.
fn report_reserved(diagnosis: &mut Diagnosis, cluster: &Cluster, name: &Name, read: &PodDetails) {
    let job = read.job.as_deref().map(|job| Name::new(&name.namespace, job));
    let Some(job) = job.and_then(|job| cluster.view.streams_job(&job)) else { return };
    let Some(pending) = read.pending.as_deref().filter(|of| of.gate.is_none()) else { return };
    let terms = pending.terms.as_deref().unwrap_or_default();
    let restriction = Restriction::of_element(job, read.element.as_deref());
    if let Some(difference) = restriction.and_then(|restriction| restriction.differs_from(terms)) {
        let remedy = match pending.is_created_again && pending.is_held {
            true => {
                "wait: if it stays unschedulable, the controller deletes it, and its workload creates it again"
            }
            false => "delete it, and create it again",
        };
        diagnosis.report(difference, remedy);
    }
}

/// Finds the constraint that decides about the nodes of the pod by itself, according to its record.
fn find_location(pod: &Pod) -> Option<&'static str> {
    let entries = record::entries(annotation(&pod.metadata, record::KEY)?, NAME);
    entries.iter().find_map(|entry| {
        let (cause, decision) = entry.split_once(": ")?;
        match cause.split_once('=')?.0 {
            "host" => Some("host"),
            "host-pool" if cause.ends_with(']') => Some("pool member"),
            // Every other node with the tags would do.
            "host-pool" if decision.starts_with("nodes tagged ") => None,
            "host-pool" => Some("pool"),
            _ => None,
        }
    })
}

/// Reports a group with several schedulers: they do not see each other's decisions.
fn report_schedulers(diagnosis: &mut Diagnosis, pod: &Pod, name: &Name, cluster: &Cluster) {
    let Some(labels) = &pod.metadata.labels else { return };
    for (key, value) in labels.iter().filter(|(key, _)| is_colocation_key(key)) {
        let mates = cluster.others(&name.namespace, pod).filter(|other| {
            label(&other.metadata, key) == Some(value)
                && label(&other.metadata, JOB) == label(&pod.metadata, JOB)
        });
        let schedulers: BTreeSet<&str> = mates.chain([pod]).map(scheduler_name).collect();
        if schedulers.len() > 1 {
            let names = Vec::from_iter(schedulers);
            diagnosis.report(
                format!("pods of its colocation group name different schedulers: {}", some(&names)),
                "give all pods of the group one spec.schedulerName: they do not see each other's",
            );
        }
    }
}

/// Reports why the members of the pool that a pod asks for are not usable.
fn report_pool_of(diagnosis: &mut Diagnosis, cluster: &Cluster, hash: &str, index: Option<u32>) {
    let Some((owner, pool)) = pool_of_hash(hash, &cluster.view) else {
        let what = format!("it asks for the members of pool {hash}, which does not exist");
        let remedy = "create the pod again: a HostPool that is created again is another one";
        return diagnosis.report(what, remedy);
    };
    let name = &owner.name;
    let wanted = |member: &&Member| index.is_none_or(|index| member.index == index);
    let members: Vec<&Member> = pool.status.members.iter().filter(wanted).collect();
    if members.is_empty() {
        diagnosis.report(format!("HostPool {name} has no such member yet"), check_pool(owner));
    }
    // One good member is enough.
    let problems: Vec<_> =
        members.iter().filter_map(|member| find_problem(cluster, pool, member)).collect();
    if problems.len() == members.len() {
        for (what, remedy) in problems {
            diagnosis.report(format!("HostPool {name}: {what}"), remedy);
        }
    }
}
