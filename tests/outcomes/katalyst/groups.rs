//! Groups whose affinity selects themselves: Katalyst has no exception for the first pod.

use std::sync::Arc;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use testbed::wait::{Seen, until};

use crate::katalyst::rig::{AFFINITY, LEADER_OF, LIMIT, Rig, annotation, has, is_gated, selector};
use crate::world::{World, same};

const FOUR: &[(usize, usize, &[&Pod])] = &[(0, 0, &[]), (0, 1, &[]), (1, 2, &[]), (1, 3, &[])];

async fn all(rig: &Rig) -> Result<Vec<Pod>> {
    Ok(rig.space.pods().list(&Default::default()).await?.items)
}

/// Waits until one of the pods is not gated; returns its name.
async fn leader(rig: &Rig) -> Result<String> {
    until("a leader", LIMIT, async || {
        let pods = all(rig).await?;
        let mut free = pods.iter().filter(|pod| !is_gated(pod));
        Ok(match (free.next(), free.next()) {
            (Some(leader), None) => Seen::Done(leader.metadata.name.clone().unwrap_or_default()),
            (None, _) => Seen::NotYet(format!("{} pods are gated", pods.len())),
            (Some(_), Some(_)) => anyhow::bail!("several pods were let go"),
        })
    })
    .await
}

/// The pod is the first of its group, with its affinity put aside.
async fn is_leader(rig: &Rig, name: &str) -> Result<()> {
    let pod = rig.space.pods().get(name).await?;
    let own = selector(&rig.role("peer"), "numa");
    same(&annotation(&pod, LEADER_OF), &Some(&*own))?;
    same(&annotation(&pod, AFFINITY), &None)?;
    let note = rig.event("NumaLeader", name).await?;
    has(&note, &["it starts first, without the affinity", &rig.role("peer")])
}

pub(crate) async fn the_leader_of_three_starts_first(world: Arc<World>) -> Result<()> {
    let rig = Rig::start(&world, "group", 2).await?;
    for node in 0..2 {
        rig.report(node, FOUR).await?;
        rig.labelled(node, Some("4")).await?;
    }
    let names = ["a", "b", "c"];
    for name in names {
        rig.create(name, "peer", &["peer"], &[]).await?;
    }
    let leader = leader(&rig).await?;
    is_leader(&rig, &leader).await?;
    let (pod, first) = rig.runs(&leader).await?;
    let others: Vec<_> = names.into_iter().filter(|name| *name != leader).collect();
    for name in &others {
        let note = rig.event("NumaWaiting", name).await?;
        has(&note, &["no pod that the affinity asks for is there"])?;
    }
    let gated = all(&rig).await?.iter().filter(|pod| is_gated(pod)).count();
    same(&gated, &2)?;
    let of_leader = rig.nodes.iter().position(|node| *node == first).unwrap_or_default();
    rig.report(of_leader, &[(0, 0, &[]), (0, 1, &[]), (1, 2, &[&pod]), (1, 3, &[])]).await?;
    for name in &others {
        let (pod, node) = rig.runs(name).await?;
        same(&node, &first)?;
        has(&rig.event("NumaFeasible", name).await?, &["NUMA node 2 of node"])?;
        same(&annotation(&pod, AFFINITY), &Some(&*selector(&rig.role("peer"), "numa")))?;
        same(&annotation(&pod, LEADER_OF), &None)?;
    }
    rig.withdraw(0).await?;
    rig.withdraw(1).await
}

pub(crate) async fn a_deleted_leader_is_replaced(world: Arc<World>) -> Result<()> {
    let rig = Rig::start(&world, "heir", 1).await?;
    rig.report(0, FOUR).await?;
    rig.labelled(0, Some("4")).await?;
    for name in ["a", "b"] {
        rig.create(name, "peer", &["peer"], &[]).await?;
    }
    let first = leader(&rig).await?;
    is_leader(&rig, &first).await?;
    rig.space.delete(&first).await?;
    let next = leader(&rig).await?;
    ensure!(next != first, "{first} was deleted");
    is_leader(&rig, &next).await?;
    rig.runs(&next).await?;
    rig.withdraw(0).await
}
