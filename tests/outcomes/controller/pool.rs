//! HostPools: their status as users see it.

use anyhow::Result;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use stowplan_core::api::condition::{Condition, READY, Status, find};
use stowplan_core::systems::streams::api::HostPool;
use stowplan_core::systems::streams::kinds::host_pool;

use crate::world::{Space, settled};

/// The spec of a pool of nodes with this tag, for itself alone.
pub(crate) fn exclusive(size: u32, tag: &str) -> Value {
    json!({"size": size, "tags": [tag], "exclusivity": "Exclusive"})
}

pub(crate) fn api(space: &Space) -> Api<HostPool> {
    space.api()
}

pub(crate) async fn get(space: &Space, name: &str) -> Result<HostPool> {
    Ok(api(space).get(name).await?)
}

pub(crate) async fn all(space: &Space) -> Result<Vec<HostPool>> {
    Ok(api(space).list(&ListParams::default()).await?.items)
}

pub(crate) async fn delete(space: &Space, name: &str) -> Result<()> {
    api(space).delete(name, &DeleteParams::default()).await?;
    Ok(())
}

pub(crate) async fn grow(space: &Space, name: &str, size: u32) -> Result<()> {
    space.change::<HostPool>(name, json!({"spec": {"size": size}})).await
}

/// Waits until `holds` is true of the pool, and returns the pool.
pub(crate) async fn until(
    space: &Space,
    name: &str,
    what: &str,
    holds: impl Fn(&HostPool) -> bool,
) -> Result<HostPool> {
    let read = async || get(space, name).await;
    settled(&format!("HostPool {name}: {what}"), read, holds).await
}

/// Waits until the pool is Ready.
pub(crate) async fn ready(space: &Space, name: &str) -> Result<HostPool> {
    until(space, name, "to be ready", is_ready).await
}

/// Waits until the pool is Ready with these nodes, in the order of their indices.
pub(crate) async fn ready_on(space: &Space, name: &str, nodes: &[&str]) -> Result<HostPool> {
    let is_on =
        |pool: &HostPool| members(pool).iter().map(|(_, node)| &**node).eq(nodes.iter().copied());
    let is_whole = |pool: &HostPool| members(pool).iter().zip(0..).all(|(of, index)| of.0 == index);
    let what = format!("to be ready on {nodes:?}");
    until(space, name, &what, |pool| is_ready(pool) && is_on(pool) && is_whole(pool)).await
}

/// Waits until the pool is not Ready for this reason, with these words in its message.
pub(crate) async fn unready(
    space: &Space,
    name: &str,
    reason: &str,
    words: &str,
) -> Result<HostPool> {
    until(space, name, reason, |pool| {
        readiness(pool).is_some_and(|it| {
            it.status == Status::False && it.reason == reason && it.message.contains(words)
        })
    })
    .await
}

fn readiness(pool: &HostPool) -> Option<&Condition> {
    find(&pool.status.as_ref()?.conditions, READY)
}

pub(crate) fn is_ready(pool: &HostPool) -> bool {
    readiness(pool).is_some_and(|condition| {
        condition.status == Status::True
            && condition.observed_generation == pool.metadata.generation
    })
}

/// Index and node of each member that has one.
pub(crate) fn members(pool: &HostPool) -> Vec<(u32, String)> {
    let members = pool.status.iter().flat_map(|status| &status.members);
    members.filter_map(|member| Some((member.index, member.node.clone()?))).collect()
}

/// The nodes of its members.
pub(crate) fn nodes(pool: &HostPool) -> Vec<String> {
    members(pool).into_iter().map(|(_, node)| node).collect()
}

pub(crate) fn hash(pool: &HostPool) -> String {
    host_pool::hash(pool.metadata.uid.as_deref().unwrap_or_default())
}
