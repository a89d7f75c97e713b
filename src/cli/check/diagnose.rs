//! From a cluster to what is in an object's way.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm};

use super::nodes::{is_about, is_ready, is_selected, obstacle, required_terms};
use super::{Cluster, Diagnosis, run};
use crate::admission::Decision;
use crate::admission::stored::{PODS, decide_creation};
use crate::api::condition::{Condition, Status};
use crate::api::host_pool::{Member, MemberState};
use crate::placement::record;
use crate::policy::Policy;
use crate::systems::SYSTEMS;
use crate::systems::coschedule::keys;
use crate::systems::vocabulary::{Meaning, meaning};
use crate::view::streams_pod::{COLOCATION_PREFIX, GROUP, JOB, PROCESSING_ELEMENT};
use crate::view::{HostPool, Name, PodEstate};

/// The most names that a sentence lists.
const LISTED: usize = 5;

/// Why a pod is where it is, or waits. `None`: there is no such pod.
pub(super) fn pod(
    cluster: &Cluster,
    policy: &Policy,
    namespace: &str,
    name: &str,
) -> Option<Diagnosis> {
    let pod = cluster.pod(namespace, name)?;
    let mut told = Diagnosis {
        kind: "Pod",
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        asked: asked(pod),
        decided: decided(pod),
        scheduler: scheduler(pod),
        ..Diagnosis::default()
    };
    let joined = run::joined(cluster, policy, pod, namespace);
    if let Some(joined) = &joined {
        told.asked.push(joined.asked.clone());
    }
    if told.asked.is_empty() {
        told.asked.push("nothing of stowplan".to_owned());
    }
    let node = node_of(pod);
    told.placed.extend(node.map(|node| format!("node {node}")));
    if is_finished(pod) {
        return Some(told);
    }
    missing(&mut told, pod, namespace, cluster, policy);
    several_schedulers(&mut told, pod, namespace, cluster);
    if node.is_some() {
        return Some(told);
    }
    gates(&mut told, pod);
    let estate = PodEstate::read(pod);
    for (hash, index) in estate.iter().flat_map(|estate| &estate.pools) {
        pool_of(&mut told, cluster, hash, *index);
    }
    let able = able_nodes(&mut told, pod, cluster);
    match joined {
        Some(run::Joined { placeholder, .. }) => {
            run::outside(&mut told, cluster, policy, pod, namespace);
            told.parts.push(placeholder);
        }
        None => group(&mut told, pod, namespace, cluster),
    }
    repelled(&mut told, pod, namespace, cluster, &able);
    if !told.has_obstacle() {
        let what = match &told.scheduler {
            None => "no scheduler has looked at it yet".to_owned(),
            Some(_) => "nothing that stowplan knows of: see what the scheduler says".to_owned(),
        };
        let name = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref());
        let name = name.unwrap_or("default-scheduler");
        told.object(what, format!("resources, volumes and ports are {name}'s business"));
    }
    Some(told)
}

/// Why a job's pods are where they are. `None`: there is neither a StreamsJob nor a pod of it.
pub(super) fn job(
    cluster: &Cluster,
    policy: &Policy,
    namespace: &str,
    name: &str,
) -> Option<Diagnosis> {
    let job = cluster.view.streams_job(&Name::new(namespace, name));
    let mut pods: Vec<&Pod> =
        cluster.in_namespace(namespace).filter(|pod| label(pod, JOB) == Some(name)).collect();
    pods.sort_by_key(|pod| (label(pod, PROCESSING_ELEMENT), pod.metadata.name.as_deref()));
    if job.is_none() && pods.is_empty() {
        return None;
    }
    let mut told = Diagnosis {
        kind: "StreamsJob",
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..Diagnosis::default()
    };
    match job {
        None => told
            .asked
            .push(format!("no StreamsJob; {} by their annotations", counted(pods.len(), "pod"))),
        Some(job) => {
            if let Ok(spec) = &job.spec {
                told.asked.push(format!(
                    "{} and {}",
                    counted(spec.processing_elements.len(), "processing element"),
                    counted(spec.pools.len(), "pool")
                ));
            }
            conditions(&mut told, &job.status.conditions, job.identity.generation);
            for group in &job.status.groups {
                let host = group.host.as_deref().unwrap_or("no node yet");
                let elements = group.processing_elements.join(", ");
                told.decided.push(format!("group {}: {elements} on {host}", group.name));
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
    told.parts.extend(pools.into_iter().filter_map(|name| pool(cluster, namespace, &name.name)));
    let names = pods.iter().filter_map(|pod| pod.metadata.name.as_deref());
    told.parts.extend(names.filter_map(|name| pod(cluster, policy, namespace, name)));
    Some(told)
}

/// Why a pool is as it is. `None`: there is no such pool.
pub(super) fn pool(cluster: &Cluster, namespace: &str, name: &str) -> Option<Diagnosis> {
    let pool = cluster.view.host_pool(&Name::new(namespace, name))?;
    let mut told = Diagnosis {
        kind: "HostPool",
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..Diagnosis::default()
    };
    told.asked.push(match &pool.form {
        Ok(form) => format!("{form}{}", if pool.exclusive { ", exclusive" } else { "" }),
        Err(problem) => format!("a pool that {problem}"),
    });
    if let Err(problem) = &pool.form {
        told.object(format!("it {problem}"), "make a pool that says what it means");
    }
    conditions(&mut told, &pool.status.conditions, pool.identity.generation);
    for member in &pool.status.members {
        let node = member.node.as_deref().unwrap_or("no node");
        told.placed.push(format!("[{}] {node}, {:?}", member.index, member.state));
        if let Some((what, remedy)) = trouble(cluster, pool, member) {
            told.object(what, remedy);
        }
    }
    Some(told)
}

/// What conditions say. One that is missing or old says that nobody has looked yet.
fn conditions(told: &mut Diagnosis, conditions: &[Condition], generation: i64) {
    let current = |condition: &&Condition| {
        condition.observed_generation.is_none_or(|observed| observed >= generation)
    };
    let mut any = false;
    for condition in conditions.iter().filter(current) {
        any = true;
        let Condition { type_, status, reason, message, .. } = condition;
        told.decided.push(format!("{type_}={status:?}, {reason}: {message}"));
        // What is in Ready's way is in Accepted's already.
        if *status == Status::False && !told.obstacles.iter().any(|o| o.what == *message) {
            told.object(message.clone(), remedy(reason));
        }
    }
    if !any {
        told.object(
            "no controller has looked at it yet",
            "see that stowplan's controller runs: `kubectl get lease -A | grep stowplan`",
        );
    }
}

/// What to do about a condition's reason.
fn remedy(reason: &str) -> &'static str {
    match reason {
        "InsufficientNodes" => {
            "add or free nodes; `kubectl describe hostpool` counts what is in the way"
        }
        "UnknownHost" => {
            "name nodes that are there (`kubectl get nodes -o wide`), or make a new pool"
        }
        "Reserving" => "wait: the nodes are being prepared",
        "NotAllowed" | "TooManyExclusiveNodes" => {
            "ask the cluster's administrator: the policy says so"
        }
        _ => "change what it says, or make it anew",
    }
}

fn trouble(cluster: &Cluster, pool: &HostPool, member: &Member) -> Option<(String, String)> {
    let index = member.index;
    let node = member.node.as_deref().unwrap_or_default();
    match member.state {
        MemberState::Vacant => {
            return Some((
                format!("member {index} is vacant: node {node} was lost"),
                "add a node that the pool can use; the place is filled by itself".to_owned(),
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
    let Some(known) = cluster.nodes.get(node) else {
        return Some((
            format!("member {index} is node {node}, which is gone"),
            "see that stowplan's controller runs: it gives the place to another node".to_owned(),
        ));
    };
    let cordoned = known.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default();
    let state = match (cordoned, is_ready(known)) {
        (true, _) => "cordoned",
        (false, false) => "not Ready",
        (false, true) if pool.is_labelled() => {
            let label = pool
                .hash
                .as_deref()
                .map(|hash| format!("{}{hash}", crate::view::host_pool::POOL_LABEL_PREFIX));
            let carried =
                known.metadata.labels.as_ref().zip(label).and_then(|(l, key)| l.get(&key));
            if carried.is_some_and(|value| *value == index.to_string()) {
                return None;
            }
            "without the pool's label"
        }
        (false, true) => return None,
    };
    Some((
        format!("member {index}, node {node}, is {state}"),
        format!(
            "mend the node (`kubectl describe node {node}`), or delete it: the place is given to another"
        ),
    ))
}

fn pool_of(told: &mut Diagnosis, cluster: &Cluster, hash: &str, index: Option<u32>) {
    let owner = cluster.view.host_pools().find(|(_, pool)| pool.hash.as_deref() == Some(hash));
    let Some((name, pool)) = owner else {
        told.object(
            format!("it asks for the members of pool {hash}, which is gone"),
            "make the pod anew: a HostPool that is made again is another one",
        );
        return;
    };
    let Name { namespace, name } = name;
    let wanted = |member: &&Member| index.is_none_or(|index| member.index == index);
    let members: Vec<&Member> = pool.status.members.iter().filter(wanted).collect();
    if members.is_empty() {
        told.object(
            format!("HostPool {name} has no such member yet"),
            format!("stowplan check pool/{name} -n {namespace}"),
        );
    }
    // One good member is enough.
    let troubles: Vec<_> =
        members.iter().filter_map(|member| trouble(cluster, pool, member)).collect();
    if troubles.len() == members.len() {
        for (what, remedy) in troubles {
            told.object(format!("HostPool {name}: {what}"), remedy);
        }
    }
}

/// What the pod asks for.
fn asked(pod: &Pod) -> Vec<String> {
    let annotations = pod.metadata.annotations.iter().flatten();
    let mut asked: Vec<String> = annotations
        .filter(|(key, _)| matches!(meaning(key), Meaning::Known(_)))
        .map(|(key, value)| format!("{key}: {value}"))
        .collect();
    if let (Some(job), Some(element)) = (label(pod, JOB), label(pod, PROCESSING_ELEMENT)) {
        asked.push(format!("processing element {element} of job {job}"));
    }
    asked
}

/// What the pod's record says.
fn decided(pod: &Pod) -> Vec<String> {
    let record = pod.metadata.annotations.as_ref().and_then(|all| all.get(record::KEY));
    let Some(record) = record else { return vec!["nothing: it bears no record".to_owned()] };
    let mut decided: Vec<String> =
        SYSTEMS.iter().flat_map(|system| record::entries(record, system.name)).collect();
    if decided.is_empty() {
        decided.push(format!("a record that cannot be read: {record}"));
    }
    decided
}

pub(super) fn scheduler(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let condition = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status != "True")?;
    let reason = condition.reason.as_deref().unwrap_or_default();
    let message = condition.message.as_deref().unwrap_or_default();
    let since = condition.last_transition_time.as_ref().map(|time| time.0.to_string());
    Some(format!("{reason} since {}: {message}", since.as_deref().unwrap_or("an unknown time")))
}

/// What the pod would be given, were it made now.
pub(super) fn missing(
    told: &mut Diagnosis,
    pod: &Pod,
    namespace: &str,
    cluster: &Cluster,
    policy: &Policy,
) {
    let Ok(document) = serde_json::to_value(pod) else { return };
    let decision = decide_creation(PODS, namespace, &document, &cluster.view, policy);
    match decision {
        Ok(Decision::Refuse(refusal)) => {
            let first = refusal.first();
            told.object(format!("made now, it would be refused: {}", first.problem), &first.remedy);
        }
        Ok(Decision::Admit(admission))
            if !admission.patch.is_empty()
                && !admission.intents.is_empty()
                && admission.findings.is_empty() =>
        {
            let wishes = admission.intents.iter().map(|intent| intent.wish.to_string());
            let lacks = some(&wishes.collect::<Vec<_>>());
            told.object(
                format!("it was admitted without stowplan, and may lack: {lacks}"),
                "delete the pod, so that it is made again",
            );
        }
        _ => {}
    }
}

fn gates(told: &mut Diagnosis, pod: &Pod) {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    let names: Vec<String> = gates.into_iter().flatten().map(|gate| gate.name.clone()).collect();
    let (own, others): (Vec<String>, Vec<String>) =
        names.into_iter().partition(|name| name == keys::GATE);
    if !own.is_empty() {
        told.object(
            format!("the gate {} holds it until its placeholder has a node", keys::GATE),
            "see the placeholder, below; stowplan's controller lifts the gate",
        );
    }
    if !others.is_empty() {
        told.object(
            format!("scheduling gates hold it: {}", some(&others)),
            "whoever set them lifts them",
        );
    }
}

/// The nodes that the pod may go to by its own words. If there is none, why.
fn able_nodes<'c>(told: &mut Diagnosis, pod: &Pod, cluster: &'c Cluster) -> Vec<&'c str> {
    let mut able = Vec::new();
    let mut selected: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, node) in &cluster.nodes {
        match obstacle(pod, name, node) {
            None => able.push(name.as_str()),
            Some(why) if is_selected(pod, name, node) => {
                selected.entry(why).or_default().push(name.clone());
            }
            Some(_) => {}
        }
    }
    if !able.is_empty() || cluster.nodes.is_empty() {
        return able;
    }
    if selected.is_empty() {
        told.object(
            format!("its node affinity selects none of {}", counted(cluster.nodes.len(), "node")),
            "see what was decided, and the pod's own nodeSelector and nodeAffinity",
        );
    }
    for (why, names) in selected {
        let remedy = match why.as_str() {
            "cordoned" => format!("kubectl uncordon {}", names[0]),
            _ => format!("kubectl describe node {}", names[0]),
        };
        told.object(format!("node {}: {why}", some(&names)), remedy);
    }
    able
}

/// The pods that the pod must be near to.
fn group(told: &mut Diagnosis, pod: &Pod, namespace: &str, cluster: &Cluster) {
    let (to, _) = required_terms(pod);
    for term in to {
        let mates = living(cluster, namespace, pod).filter(|other| is_about(term, other));
        let there: BTreeMap<&str, &Pod> =
            mates.filter_map(|other| Some((node_of(other)?, other))).collect();
        for (node, mate) in there {
            let mate = mate.metadata.name.as_deref().unwrap_or_default();
            let why = match cluster.nodes.get(node) {
                None => Some("gone".to_owned()),
                Some(known) => obstacle(pod, node, known),
            };
            if let Some(why) = why {
                told.object(
                    format!("its colocation group ({mate}) is on node {node}: {why}"),
                    "free that node, or move the whole group",
                );
            }
        }
    }
}

/// The pods that keep the pod away from every node that it could go to.
fn repelled(told: &mut Diagnosis, pod: &Pod, namespace: &str, cluster: &Cluster, able: &[&str]) {
    let (_, from) = required_terms(pod);
    let by = |term: &PodAffinityTerm, other: &Pod| is_about(term, other);
    let mut taken: BTreeMap<&str, String> = BTreeMap::new();
    for other in living(cluster, namespace, pod) {
        let Some(node) = node_of(other) else { continue };
        let (_, others) = required_terms(other);
        if from.iter().any(|term| by(term, other)) || others.iter().any(|term| by(term, pod)) {
            taken.insert(node, other.metadata.name.clone().unwrap_or_default());
        }
    }
    if !able.is_empty() && able.iter().all(|node| taken.contains_key(node)) {
        let rows: Vec<String> =
            able.iter().map(|node| format!("{} on {node}", taken[node])).collect();
        told.object(
            format!(
                "every node that it may go to has a pod that it must not be with: {}",
                some(&rows)
            ),
            "add a node, or let one of those pods go",
        );
    }
}

/// Two schedulers do not see each other's decisions, so a group must have one.
fn several_schedulers(told: &mut Diagnosis, pod: &Pod, namespace: &str, cluster: &Cluster) {
    let Some(labels) = &pod.metadata.labels else { return };
    let ours = |key: &str| key.starts_with(COLOCATION_PREFIX) || key == GROUP;
    for (key, value) in labels.iter().filter(|(key, _)| ours(key)) {
        let mates = living(cluster, namespace, pod).filter(|other| {
            label(other, key) == Some(value) && label(other, JOB) == label(pod, JOB)
        });
        let schedulers: BTreeSet<&str> = mates.chain([pod]).map(scheduler_name).collect();
        if schedulers.len() > 1 {
            let names: Vec<String> = schedulers.into_iter().map(str::to_owned).collect();
            told.object(
                format!("pods of its colocation group name different schedulers: {}", some(&names)),
                "give all pods of the group one spec.schedulerName: they do not see each other's",
            );
        }
    }
}

fn scheduler_name(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref()).unwrap_or("default-scheduler")
}

/// The pods of a namespace, but for `pod`, that hold a place or want one.
pub(super) fn living<'c>(
    cluster: &'c Cluster,
    namespace: &'c str,
    pod: &'c Pod,
) -> impl Iterator<Item = &'c Pod> {
    cluster
        .in_namespace(namespace)
        .filter(|other| other.metadata.name != pod.metadata.name && !is_finished(other))
}

pub(super) fn label<'p>(pod: &'p Pod, key: &str) -> Option<&'p str> {
    pod.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

pub(super) fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|node| !node.is_empty())
}

pub(super) fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

pub(super) fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// The first of several, and how many more there are.
pub(super) fn some(names: &[String]) -> String {
    let listed = names[..names.len().min(LISTED)].join(", ");
    match names.len().saturating_sub(LISTED) {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}
