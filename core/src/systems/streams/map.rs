//! Contributes to the map of a cluster: the pods of each job, the nodes that are reserved for its
//! elements, and the members of pools.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::api::core::v1::Pod;

use super::api::host_pool::MemberState;
use super::keys::{JOB, PROCESSING_ELEMENT};
use super::resources::{HOST_POOL, STREAMS_JOB};
use crate::kubernetes::{is_finished, label, node_name};
use crate::systems::check::Context;
use crate::systems::check::words::counted;
use crate::systems::map::{Group, MapBadge, MapReserved, Member, Part};
use crate::view::Name;

/// The kind of a job that only the labels of pods name.
const LABELLED: &str = "Streams job";

/// The jobs, each as a group.
pub(super) fn map(context: &Context<'_>) -> Part {
    let mut part = Part::default();
    let view = &context.cluster.view;
    let mut pods: BTreeMap<Name, Vec<&Pod>> = BTreeMap::new();
    for pod in &context.cluster.pods {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        if let Some(job) = label(&pod.metadata, JOB) {
            pods.entry(Name::new(namespace, job)).or_default().push(pod);
        }
    }
    let mut jobs: BTreeSet<Name> = pods.keys().cloned().collect();
    jobs.extend(view.streams_jobs().map(|(name, _)| name.clone()));
    let mut index_of: HashMap<Name, usize> = HashMap::new();
    for job in jobs {
        let own = pods.remove(&job).unwrap_or_default();
        index_of.insert(job.clone(), part.groups.len());
        add_job(context, job, &own, &mut part);
    }
    add_members(context, &index_of, &mut part);
    part
}

/// Adds a job, with the reserved nodes that none of its pods is on yet.
fn add_job(context: &Context<'_>, name: Name, pods: &[&Pod], part: &mut Part) {
    let job = context.cluster.view.streams_job(&name);
    let group = part.groups.len();
    let is_there = |element: &str, node: &str| {
        pods.iter().any(|pod| {
            !is_finished(pod)
                && node_name(pod) == Some(node)
                && label(&pod.metadata, PROCESSING_ELEMENT) == Some(element)
        })
    };
    let witness = job.and_then(|job| job.status.witness.as_ref());
    for node in witness.into_iter().flat_map(|witness| &witness.nodes) {
        let missing =
            node.processing_elements.iter().filter(|element| !is_there(element, &node.name));
        let reserved = missing.map(|element| MapReserved { group, label: element.clone() });
        part.reserved.extend(reserved.map(|reserved| (node.name.clone(), reserved)));
    }
    let spec = job.and_then(|job| job.spec.as_ref().ok());
    // Pools are on the nodes.
    let detail = spec.map(|spec| counted(spec.processing_elements.len(), "element"));
    let of_pod = |pod: &&Pod| {
        let pod = pod.metadata.name.as_deref().unwrap_or_default();
        Member::plain(Name::new(&name.namespace, pod))
    };
    let pools = job.iter().flat_map(|job| &job.status.pools);
    let pools = pools.map(|pool| (HOST_POOL.kind, Name::new(&name.namespace, &pool.host_pool)));
    let objects = [(STREAMS_JOB.kind, name.clone())].into_iter().chain(pools).collect();
    part.groups.push(Group {
        kind: if job.is_some() { STREAMS_JOB.kind } else { LABELLED },
        members: pods.iter().map(of_pod).collect(),
        detail: detail.unwrap_or_default(),
        objects,
        name,
    });
}

/// Adds the members of all pools to their nodes.
fn add_members(context: &Context<'_>, jobs: &HashMap<Name, usize>, part: &mut Part) {
    let view = &context.cluster.view;
    for (name, pool) in view.host_pools() {
        let owner = pool.job.as_ref().map(|(job, _)| Name::new(&name.namespace, job));
        let group = owner.as_ref().and_then(|job| jobs.get(job)).copied();
        // The name that the job gives its pool is shorter than that of the object.
        let job = owner.as_ref().and_then(|job| view.streams_job(job));
        let mut owned = job.into_iter().flat_map(|job| &job.status.pools);
        let own_name = owned.find(|owned| *owned.host_pool == *name.name).map(|owned| &*owned.name);
        for member in &pool.status.members {
            let Some(node) = member.node.as_ref() else { continue };
            let state = match member.state {
                MemberState::Ready => String::new(),
                MemberState::Vacant => continue,
                state => format!(" {state:?}"),
            };
            let exclusive = if pool.exclusive { " exclusive" } else { "" };
            let pool = own_name.unwrap_or(&name.name);
            let label = format!("{pool}[{}]{exclusive}{state}", member.index);
            part.badges.push((node.clone(), MapBadge { group, label }));
        }
    }
}
