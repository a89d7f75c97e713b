//! Diagnoses why a HostPool is not ready.

use std::collections::{BTreeMap, BTreeSet};

use super::conditions::{pool_remedy, report_conditions};
use super::diagnose_scaling;
use crate::api::condition::READY;
use crate::systems::check::closed::Closed;
use crate::systems::check::words::{SEE_CONTROLLER, node_remedy, nodes};
use crate::systems::check::{Cluster, Context, Diagnosis};
use crate::systems::fit::{self, Obstacle, PodNeeds, Question};
use crate::systems::streams::api::host_pool::{Member, MemberState};
use crate::systems::streams::guard::{find_current, is_refused};
use crate::systems::streams::kinds::{Form, HostPool, pool_label};
use crate::systems::streams::owners::{nodes_of, unmarked_hosts};
use crate::systems::streams::reasons::PoolReason;
use crate::systems::streams::resolve::{Resolved, format_host, resolve, suggest_node};
use crate::systems::streams::resources::HOST_POOL;
use crate::view::Name;

/// Diagnoses why a pool is not ready. `None`: there is no such pool.
pub(super) fn diagnose(context: &Context<'_>, name: &Name) -> Option<Diagnosis> {
    let cluster = context.cluster;
    let pool = cluster.view.host_pool(name)?;
    let mut diagnosis = Diagnosis::new(HOST_POOL.kind, name);
    diagnosis.asked.push(match &pool.form {
        Ok(form) => format!("{form}{}", if pool.exclusive { ", exclusive" } else { "" }),
        Err(problem) => format!("a pool that {problem}"),
    });
    let generation = pool.identity.generation;
    report_conditions(&mut diagnosis, &pool.status.conditions, generation, |reason| {
        pool_remedy(reason, name, pool)
    });
    if let Err(problem) = &pool.form
        // The controller says so too.
        && !diagnosis.obstacles.iter().any(|obstacle| obstacle.what.contains(problem))
    {
        diagnosis.report(format!("it {problem}"), "create another pool with a valid spec");
    }
    report_owners(&mut diagnosis, cluster, name, pool);
    report_closed(&mut diagnosis, context, pool);
    if let (Ok(Form::Literal(hosts)), false) = (&pool.form, cluster.has_no_nodes()) {
        let is_member = |index| pool.status.members.iter().any(|member| member.index == index);
        let others = (0..).zip(hosts).filter(|(index, _)| !is_member(*index));
        let others = others.map(|(index, host)| match resolve(&cluster.view, host) {
            Resolved::Node(node) => format!("[{index}] {node}, not a member"),
            Resolved::Unknown => {
                let near = suggest_node(&cluster.view, host);
                format!("[{index}] no node has the {}{near}", format_host(host))
            }
            Resolved::Ambiguous(found) => {
                format!("[{index}] {} have the {}", nodes(&found), format_host(host))
            }
        });
        diagnosis.placed.extend(others);
    }
    for member in &pool.status.members {
        let node = member.node.as_deref().unwrap_or("no node");
        diagnosis.placed.push(format!("[{}] {node}, {:?}", member.index, member.state));
        if let Some((what, remedy)) = find_problem(cluster, pool, member) {
            diagnosis.report(what, remedy);
        }
    }
    diagnosis.parts = diagnose_scaling(context, &name.namespace, &pool.identity.uid);
    Some(diagnosis)
}

/// Reports the pools that have nodes which this one could have otherwise: of two pools of which one is
/// exclusive, a node belongs to one.
fn report_owners(diagnosis: &mut Diagnosis, cluster: &Cluster, name: &Name, pool: &HostPool) {
    let view = &cluster.view;
    if matches!(pool.form, Ok(Form::Any))
        || (pool.is_labelled() && find_current(pool, READY).is_none())
    {
        return;
    }
    let wanted = wanted(pool, cluster);
    let others = view.host_pools().filter(|(other, of)| {
        *other != name
            && (pool.exclusive || of.exclusive)
            && !of.identity.deleting
            && !is_refused(of)
    });
    for (other, of) in others.collect::<BTreeMap<_, _>>() {
        let unmarked = unmarked_hosts(of, view);
        let marked = of.status.nodes().map(|(_, node)| node).filter(|_| of.is_labelled());
        let hosts: BTreeSet<&str> = unmarked.into_iter().chain(marked).collect();
        let hosts: Vec<&str> = hosts.intersection(&wanted).copied().collect();
        let verb = match (hosts.len(), of.exclusive) {
            (0, _) => continue,
            (1, true) => "is exclusive to",
            (1, false) => "belongs to",
            (_, true) => "are exclusive to",
            (_, false) => "belong to",
        };
        let Name { namespace, name } = other;
        diagnosis.decided.push(format!("{} {verb} HostPool {namespace}/{name}", nodes(&hosts)));
    }
}

/// The nodes that a pool could have besides those that its status records.
fn wanted<'c>(pool: &'c HostPool, cluster: &'c Cluster) -> BTreeSet<&'c str> {
    let nodes = pool.form.iter().flat_map(|form| nodes_of(form, &cluster.view));
    let mut wanted: BTreeSet<&str> = nodes.collect();
    pool.status.nodes().for_each(|(_, node)| _ = wanted.remove(node));
    wanted
}

/// Reports the nodes that a pool without enough of them could have, and that are only closed.
fn report_closed(diagnosis: &mut Diagnosis, context: &Context<'_>, pool: &HostPool) {
    let lacks_nodes = find_current(pool, READY)
        .is_some_and(|ready| ready.reason == PoolReason::InsufficientNodes.as_str());
    if lacks_nodes {
        report_ways_out(diagnosis, context, wanted(pool, context.cluster));
    }
}

/// Reports those of `nodes` that are only closed, with what opens them.
pub(super) fn report_ways_out<'c>(
    diagnosis: &mut Diagnosis,
    context: &Context<'c>,
    nodes: impl IntoIterator<Item = &'c str>,
) {
    let pod = PodNeeds::default();
    let mut closed = Closed::default();
    for node in nodes {
        let Some(candidate) = context.cluster.candidate(node) else { continue };
        if let Some(found) = fit::first_obstacle(&Question::new(candidate, &pod), fit::POOL) {
            closed.add(context, node, &found);
        }
    }
    closed.report_ways_out(diagnosis, |_| true);
}

/// Finds the pools that no job owns.
pub(super) fn find_all(context: &Context<'_>) -> BTreeSet<Name> {
    let pools = context.cluster.view.host_pools().filter(|(_, pool)| pool.job.is_none());
    pools.map(|(name, _)| name.clone()).collect()
}

/// Finds what is wrong with a member of a pool, and the remedy.
pub(super) fn find_problem(
    cluster: &Cluster,
    pool: &HostPool,
    member: &Member,
) -> Option<(String, String)> {
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
        if cluster.has_no_nodes() {
            return None;
        }
        return Some((
            format!("member {index} is node {node}, which does not exist"),
            format!("{SEE_CONTROLLER}; it gives the pool another node"),
        ));
    };
    let pod = PodNeeds::default();
    let question = Question::new(candidate, &pod);
    // Which taints matter depends on the pods.
    let found = fit::obstacles(&question, fit::POOL).find(|of| !matches!(of, Obstacle::Taint(_)));
    let (why, remedy) = match found {
        Some(found @ (Obstacle::Cordoned | Obstacle::NoHostname)) => {
            (found.to_string(), node_remedy(&found, node))
        }
        Some(found) => {
            let describe = node_remedy(&found, node);
            let remedy =
                format!("repair the node (`{describe}`), or delete it: the pool gets another");
            (found.to_string(), remedy)
        }
        None if lacks_label(pool, index, candidate) => (
            "is without the pool's label".to_owned(),
            format!("{SEE_CONTROLLER}; it labels the node"),
        ),
        None => return None,
    };
    Some((format!("member {index}, node {node}, {why}"), remedy))
}

/// Returns true if a pool marks its nodes by a label, and this one does not have it.
fn lacks_label(pool: &HostPool, index: u32, candidate: fit::Candidate<'_>) -> bool {
    let hash = pool.hash.as_deref().filter(|_| pool.is_labelled());
    let labels = candidate.node.details.as_deref().map(|node| &node.labels);
    let carried = hash.zip(labels).and_then(|(hash, labels)| labels.get(pool_label(hash).as_str()));
    pool.is_labelled() && carried.is_none_or(|value| **value != *index.to_string())
}
