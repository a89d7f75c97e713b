//! Why a StreamsJob or a HostPool is not ready.

use k8s_openapi::api::core::v1::Pod;

use super::words::{SEE_CONTROLLER, counted};
use super::{Cluster, Diagnosis};
use crate::api::condition::{Condition, Status};
use crate::kubernetes::label;
use crate::systems::fit::{self, Obstacle, PodNeeds, Question};
use crate::systems::policy::Policy;
use crate::systems::streams::api::host_pool::{Member, MemberState};
use crate::systems::streams::kinds::StreamsView as _;
use crate::systems::streams::kinds::host_pool::HostPool;
use crate::systems::streams::kinds::host_pool::POOL_LABEL_PREFIX;
use crate::systems::streams::kinds::streams_pod::{JOB, PROCESSING_ELEMENT};
use crate::systems::streams::resources::{HOST_POOL, STREAMS_JOB};
use crate::view::Name;

/// Why the pods of a job wait. `None`: there is neither a StreamsJob nor a pod of it.
pub(super) fn job(
    cluster: &Cluster,
    policy: &Policy,
    namespace: &str,
    name: &str,
) -> Option<Diagnosis> {
    let job = cluster.view.streams_job(&Name::new(namespace, name));
    let mut pods: Vec<&Pod> = cluster
        .in_namespace(namespace)
        .filter(|pod| label(&pod.metadata, JOB) == Some(name))
        .collect();
    pods.sort_by_key(|pod| {
        (label(&pod.metadata, PROCESSING_ELEMENT), pod.metadata.name.as_deref())
    });
    if job.is_none() && pods.is_empty() {
        return None;
    }
    let mut diagnosis = Diagnosis {
        kind: STREAMS_JOB.kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..Diagnosis::default()
    };
    match job {
        None => diagnosis
            .asked
            .push(format!("no StreamsJob; {} by their annotations", counted(pods.len(), "pod"))),
        Some(job) => {
            if let Ok(spec) = &job.spec {
                diagnosis.asked.push(format!(
                    "{} and {}",
                    counted(spec.processing_elements.len(), "processing element"),
                    counted(spec.pools.len(), "pool")
                ));
            }
            report_conditions(&mut diagnosis, &job.status.conditions, job.identity.generation);
            for group in &job.status.groups {
                let host = group.host.as_deref().unwrap_or("no node yet");
                let elements = group.processing_elements.join(", ");
                diagnosis.decided.push(format!("group {}: {elements} on {host}", group.name));
            }
        }
    }
    let mut pools: Vec<&Name> = cluster
        .view
        .host_pools()
        .filter(|(pool, known)| {
            &*pool.namespace == namespace
                && known.job.as_ref().is_some_and(|(owner, _)| &**owner == name)
        })
        .map(|(pool, _)| pool)
        .collect();
    pools.sort();
    diagnosis
        .parts
        .extend(pools.into_iter().filter_map(|name| pool(cluster, namespace, &name.name)));
    let names = pods.iter().filter_map(|pod| pod.metadata.name.as_deref());
    diagnosis
        .parts
        .extend(names.filter_map(|name| super::pod::pod(cluster, policy, namespace, name)));
    Some(diagnosis)
}

/// Why a pool is not ready. `None`: there is no such pool.
pub(super) fn pool(cluster: &Cluster, namespace: &str, name: &str) -> Option<Diagnosis> {
    let pool = cluster.view.host_pool(&Name::new(namespace, name))?;
    let mut diagnosis = Diagnosis {
        kind: HOST_POOL.kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..Diagnosis::default()
    };
    diagnosis.asked.push(match &pool.form {
        Ok(form) => format!("{form}{}", if pool.exclusive { ", exclusive" } else { "" }),
        Err(problem) => format!("a pool that {problem}"),
    });
    if let Err(problem) = &pool.form {
        diagnosis.report(format!("it {problem}"), "create a pool with a valid spec");
    }
    report_conditions(&mut diagnosis, &pool.status.conditions, pool.identity.generation);
    for member in &pool.status.members {
        let node = member.node.as_deref().unwrap_or("no node");
        diagnosis.placed.push(format!("[{}] {node}, {:?}", member.index, member.state));
        if let Some((what, remedy)) = problem_of(cluster, pool, member) {
            diagnosis.report(what, remedy);
        }
    }
    Some(diagnosis)
}

/// Reports the conditions. Without a current one no controller has looked at the object yet.
fn report_conditions(diagnosis: &mut Diagnosis, conditions: &[Condition], generation: i64) {
    let current = |condition: &&Condition| {
        condition.observed_generation.is_none_or(|observed| observed >= generation)
    };
    let mut any = false;
    for condition in conditions.iter().filter(current) {
        any = true;
        let Condition { type_, status, reason, message, .. } = condition;
        diagnosis.decided.push(format!("{type_}={status:?}, {reason}: {message}"));
        // Accepted has reported what is wrong with Ready.
        if *status == Status::False && !diagnosis.obstacles.iter().any(|o| o.what == *message) {
            diagnosis.report(message.clone(), remedy(reason));
        }
    }
    if !any {
        diagnosis.report("no controller has looked at it yet", SEE_CONTROLLER);
    }
}

/// What to do about a condition's reason.
fn remedy(reason: &str) -> &'static str {
    match reason {
        "InsufficientNodes" => {
            "add or free nodes; `kubectl describe hostpool` counts the obstacles"
        }
        "UnknownHost" => {
            "name nodes that exist (`kubectl get nodes -o wide`), or create a new pool"
        }
        "Reserving" => "wait: the nodes are being prepared",
        "NotAllowed" | "TooManyExclusiveNodes" => {
            "ask the cluster's administrator: the policy says so"
        }
        _ => "change its spec, or create it again",
    }
}

/// What is wrong with a member of a pool, and the remedy.
fn problem_of(cluster: &Cluster, pool: &HostPool, member: &Member) -> Option<(String, String)> {
    let index = member.index;
    let node = member.node.as_deref().unwrap_or_default();
    match member.state {
        MemberState::Vacant => {
            return Some((
                format!("member {index} is vacant: node {node} was lost"),
                "add an eligible node; the controller gives it to the pool".to_owned(),
            ));
        }
        MemberState::Reserving => {
            return Some((
                format!("member {index}, node {node}, is being prepared"),
                "wait; if it lasts, see the events of the HostPool".to_owned(),
            ));
        }
        MemberState::Ready => {}
    }
    let Some(candidate) = cluster.candidate(node) else {
        return Some((
            format!("member {index} is node {node}, which does not exist"),
            format!("{SEE_CONTROLLER}; it gives the pool another node"),
        ));
    };
    let pod = PodNeeds::default();
    let question = Question::new(candidate, &pod);
    // Which taints matter depends on the pods.
    let found = fit::obstacles(&question, fit::POOL).find(|of| !matches!(of, Obstacle::Taint(_)));
    let why = match found {
        Some(found) => found.to_string(),
        None if lacks_label(pool, index, candidate) => "is without the pool's label".to_owned(),
        None => return None,
    };
    Some((
        format!("member {index}, node {node}, {why}"),
        format!(
            "repair the node (`kubectl describe node {node}`), or delete it: the pool gets another"
        ),
    ))
}

/// Whether a pool marks its nodes by a label, and this one does not have it.
fn lacks_label(pool: &HostPool, index: u32, candidate: fit::Candidate<'_>) -> bool {
    let hash = pool.hash.as_deref().filter(|_| pool.is_labelled());
    let labels = candidate.node.details.as_deref().map(|node| &node.labels);
    let carried = hash
        .zip(labels)
        .and_then(|(hash, labels)| labels.get(format!("{POOL_LABEL_PREFIX}{hash}").as_str()));
    pool.is_labelled() && carried.is_none_or(|value| **value != *index.to_string())
}

pub(super) fn report_pool_of(
    diagnosis: &mut Diagnosis,
    cluster: &Cluster,
    hash: &str,
    index: Option<u32>,
) {
    let owner = cluster.view.host_pools().find(|(_, pool)| pool.hash.as_deref() == Some(hash));
    let Some((name, pool)) = owner else {
        diagnosis.report(
            format!("it asks for the members of pool {hash}, which does not exist"),
            "create the pod again: a HostPool that is created again is another one",
        );
        return;
    };
    let Name { namespace, name } = name;
    let wanted = |member: &&Member| index.is_none_or(|index| member.index == index);
    let members: Vec<&Member> = pool.status.members.iter().filter(wanted).collect();
    if members.is_empty() {
        diagnosis.report(
            format!("HostPool {name} has no such member yet"),
            format!("stowplan check pool/{name} -n {namespace}"),
        );
    }
    // One good member is enough.
    let problems: Vec<_> =
        members.iter().filter_map(|member| problem_of(cluster, pool, member)).collect();
    if problems.len() == members.len() {
        for (what, remedy) in problems {
            diagnosis.report(format!("HostPool {name}: {what}"), remedy);
        }
    }
}
