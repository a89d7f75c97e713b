//! Diagnoses why the pods of a StreamsJob wait.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;

use super::conditions::{job_remedy, report_conditions};
use super::{check_pool, diagnose_scaling, pool};
use crate::api::condition::Status;
use crate::kubernetes::label;
use crate::placement::reason::Reason;
use crate::systems::check::words::counted;
use crate::systems::check::{Context, Diagnosis};
use crate::systems::streams::api::streams_job::ReservedNode;
use crate::systems::streams::keys::{JOB, PROCESSING_ELEMENT};
use crate::systems::streams::kinds::{HostPool, StreamsJob};
use crate::systems::streams::resources::STREAMS_JOB;
use crate::view::Name;

/// Finds all StreamsJobs.
pub(super) fn find_all(context: &Context<'_>) -> BTreeSet<Name> {
    context.cluster.view.streams_jobs().map(|(name, _)| name.clone()).collect()
}

/// The kind of the diagnosis of pods with the label of a job that does not exist.
const LABELLED: &str = "Pods with label";

/// Diagnoses why the pods of a job wait. `None`: there is neither a StreamsJob nor a pod of it.
pub(super) fn diagnose(context: &Context<'_>, key: &Name) -> Option<Diagnosis> {
    let Context { cluster, .. } = context;
    let Name { namespace, name } = key;
    let job = cluster.view.streams_job(key);
    let mut pods: Vec<&Pod> = cluster
        .in_namespace(namespace)
        .filter(|pod| label(&pod.metadata, JOB) == Some(&**name))
        .collect();
    pods.sort_by_key(|pod| {
        (label(&pod.metadata, PROCESSING_ELEMENT), pod.metadata.name.as_deref())
    });
    if job.is_none() && pods.is_empty() {
        return None;
    }
    let mut diagnosis = match job {
        Some(_) => Diagnosis::new(STREAMS_JOB.kind, key),
        None => Diagnosis::new(LABELLED, &Name::new(namespace, &format!("{JOB}={name}"))),
    };
    match job {
        None => diagnosis.asked.push(format!(
            "{} by their annotations: there is no StreamsJob {name}",
            counted(pods.len(), "pod")
        )),
        Some(job) => {
            if let Ok(spec) = &job.spec {
                let elements = counted(spec.processing_elements.len(), "processing element");
                let pools = counted(spec.pools.len(), "pool");
                diagnosis.asked.push(format!("{elements} and {pools}"));
            }
            let remedy = |reason: &str| job_remedy(reason, find_waiting_pool(context, key, job));
            let generation = job.identity.generation;
            report_conditions(&mut diagnosis, &job.status.conditions, generation, remedy);
            if lacks_nodes(job) {
                let nodes = cluster.view.nodes().map(|(node, _)| node).collect::<BTreeSet<_>>();
                pool::report_ways_out(&mut diagnosis, context, nodes);
            }
            for group in &job.status.groups {
                let host = group.host.as_deref().unwrap_or("no node yet");
                let elements = group.processing_elements.join(", ");
                diagnosis.decided.push(format!("group {}: {elements} on {host}", group.name));
            }
            let reserved = job.status.witness.iter().flat_map(|witness| &witness.nodes);
            diagnosis.decided.extend(reserved.map(ReservedNode::format));
            diagnosis.parts.extend(diagnose_scaling(context, namespace, &job.identity.uid));
        }
    }
    let is_own = |(pool, known): &(&Name, &HostPool)| {
        let owner = known.job.as_ref().map(|(owner, _)| &**owner);
        pool.namespace == *namespace && owner == Some(&**name)
    };
    let pools = cluster.view.host_pools().filter(is_own);
    let pools: BTreeSet<&Name> = pools.map(|(pool, _)| pool).collect();
    diagnosis.parts.extend(pools.into_iter().filter_map(|pool| pool::diagnose(context, pool)));
    diagnosis.parts.extend(pods.into_iter().filter_map(|pod| {
        let name = Name::new(namespace, pod.metadata.name.as_deref()?);
        Some((context.pods.diagnose)(context, &name, pod))
    }));
    Some(diagnosis)
}

/// Returns true if a condition of a job says that more nodes would help.
fn lacks_nodes(job: &StreamsJob) -> bool {
    let reasons = [Reason::InsufficientNodes, Reason::NoTaggedNode].map(Reason::as_str);
    job.status.conditions.iter().any(|of| {
        of.status == Status::False
            && reasons.contains(&&*of.reason)
            && of.observed_generation.is_none_or(|observed| observed >= job.identity.generation)
    })
}

/// The command that checks the first pool of a job that is not ready.
fn find_waiting_pool(context: &Context<'_>, key: &Name, job: &StreamsJob) -> Option<String> {
    let is_waiting = |name: &Name| {
        let pool = context.cluster.view.host_pool(name);
        pool.is_some_and(|pool| pool.ready_condition().is_none() || pool.unready_reason().is_some())
    };
    let pools = job.closure.pools.iter();
    let mut names = pools.map(|pool| Name::new(&key.namespace, &pool.host_pool));
    names.find(is_waiting).map(|name| check_pool(&name))
}
