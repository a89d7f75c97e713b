//! The seed's job for every kind of user: stock sshd with `StrictModes yes` takes the keys.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use testbed::real::mpi_image::{Implementation, MpiImage};

use super::cluster::{Cluster, RING, UNBOUND_RING, World};

/// Programs other than `mpirun` start ssh without any options.
const PLAIN_SSH: &str = "ssh \"$(grep -o '^[^ :]*' /etc/mpi/hostfile | tail -n 1)\" true";

/// A kind of user: its name, the pods' security context, whether the image names it, and where its
/// keys are.
type User = (&'static str, Value, bool, Option<&'static str>);

fn users() -> [User; 5] {
    let home = Some("/home/mpiuser/.ssh");
    [
        ("root", json!({"runAsUser": 0}), false, None),
        ("root-with-group", json!({"runAsUser": 0, "fsGroup": 1337}), false, None),
        ("user", json!({"runAsUser": 1000}), false, home),
        ("user-with-group", json!({"runAsUser": 1000, "fsGroup": 1000}), false, home),
        ("image-user", json!({}), true, home),
    ]
}

/// Runs three workers with three slots and a launcher that succeeds at its first attempt, for each
/// user, two at once: the idle ranks of five programs poll so much that a small machine does nothing
/// else for minutes.
pub(crate) async fn every_user(world: Arc<World>, implementation: Implementation) -> Result<()> {
    let world = &*world;
    let runs = users().map(async |(name, security, user, dir)| {
        let namespace = format!("{}-{name}", implementation.name());
        let image = MpiImage { implementation, user };
        run(world, &namespace, image, security, dir).await.context(namespace)
    });
    stream::iter(runs).buffer_unordered(2).try_collect().await
}

async fn run(
    world: &World,
    namespace: &str,
    image: MpiImage,
    security: Value,
    dir: Option<&'static str>,
) -> Result<()> {
    let mut cluster = Cluster::new(world, namespace, image)?;
    cluster.security = security;
    cluster.annotations.extend(dir.map(|dir| ("ssh-dir", dir.to_owned())));
    let ring = match image.implementation {
        Implementation::OpenMpi5 => UNBOUND_RING,
        _ => RING,
    };
    // The launcher first: without its gate it would fail.
    cluster.launch("pi-launcher", &format!("{PLAIN_SSH} && {ring}"), 0)?;
    cluster.worker_set()?;
    cluster.runs_evenly("pi-launcher").await?;
    cluster.end()
}
