//! HostPools: their status as users see it.

use std::time::Duration;

use anyhow::Result;
use kube::Api;
use kube::api::DeleteParams;
use stowplan::testing::api::condition::{READY, Status, find};
use stowplan::testing::systems::streams::api::HostPool;
use testbed::wait::{Seen, until as wait_until};

use crate::world::Space;

pub(crate) fn api(space: &Space) -> Api<HostPool> {
    Api::namespaced(space.world.client.clone(), &space.name)
}

pub(crate) async fn get(space: &Space, name: &str) -> Result<HostPool> {
    Ok(api(space).get(name).await?)
}

pub(crate) async fn delete(space: &Space, name: &str) -> Result<()> {
    api(space).delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Waits until `holds` is true of the pool, and returns the pool.
pub(crate) async fn until(
    space: &Space,
    name: &str,
    what: &str,
    holds: impl Fn(&HostPool) -> bool,
) -> Result<HostPool> {
    let what = format!("HostPool {name}: {what}");
    wait_until(&what, Duration::from_secs(60), async || {
        let pool = get(space, name).await?;
        Ok(match holds(&pool) {
            true => Seen::Done(pool),
            false => Seen::NotYet(serde_json::to_string(&pool.status)?),
        })
    })
    .await
}

/// Waits until the pool is Ready.
pub(crate) async fn ready(space: &Space, name: &str) -> Result<HostPool> {
    until(space, name, "to be ready", is_ready).await
}

/// Waits until the pool is not Ready for this reason.
pub(crate) async fn unready(space: &Space, name: &str, reason: &str) -> Result<HostPool> {
    until(space, name, reason, |pool| {
        let conditions = pool.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|condition| {
            condition.type_ == READY
                && condition.status == Status::False
                && condition.reason == reason
        })
    })
    .await
}

pub(crate) fn is_ready(pool: &HostPool) -> bool {
    let ready = pool.status.as_ref().and_then(|status| find(&status.conditions, READY));
    ready.is_some_and(|condition| {
        condition.status == Status::True
            && condition.observed_generation == pool.metadata.generation
    })
}

pub(crate) fn message(pool: &HostPool) -> &str {
    let ready = pool.status.as_ref().and_then(|status| find(&status.conditions, READY));
    ready.map_or("", |condition| condition.message.as_str())
}

/// Index and node of each member that has one.
pub(crate) fn members(pool: &HostPool) -> Vec<(u32, String)> {
    let members = pool.status.iter().flat_map(|status| &status.members);
    members.filter_map(|member| Some((member.index, member.node.clone()?))).collect()
}

pub(crate) fn hash(pool: &HostPool) -> String {
    stowplan::testing::systems::streams::kinds::host_pool::hash(
        pool.metadata.uid.as_deref().unwrap_or_default(),
    )
}
