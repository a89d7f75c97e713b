//! Reads the cluster for `check` and `map` from files.

use std::path::PathBuf;

use k8s_openapi::api::coordination::v1::Lease;
use serde_json::Value;

use super::workload::WORKLOADS;
use crate::cli::input::{self, Generator};
use crate::cli::plan::settle;
use crate::controller::lease;
use stowplan_core::systems;
use stowplan_core::systems::check::{Cluster, queue};

/// Reads the cluster of the objects in `paths`, and returns it with their documents. An object gets
/// what the API server adds to every such object, its name among that.
///
/// # Errors
/// As for [`input::read_objects`].
pub(super) fn read(paths: &[PathBuf]) -> anyhow::Result<(Cluster, Vec<Value>)> {
    let mut documents = Vec::new();
    let mut cluster = Cluster::default();
    input::read_objects(paths, &mut Generator::default(), |mut object| {
        settle::complete(&mut object);
        documents.push(object.clone());
        add(&mut cluster, object)
    })?;
    Ok((cluster, documents))
}

/// Adds an object to the cluster.
///
/// # Errors
/// The problem of an object that is invalid.
fn add(cluster: &mut Cluster, object: Value) -> Result<(), String> {
    let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text("apiVersion"), text("kind"));
    // If there is one object of a kind, the files have all objects of that kind.
    cluster.known.insert(kind.clone());
    let is_workload = WORKLOADS.iter().any(|of| of.is_document(&object));
    let is_core = matches!((&*version, &*kind), ("v1", "Node" | "Pod"));
    if (is_workload || is_core) && !object["metadata"]["name"].is_string() {
        return Err(format!("a {kind} without metadata.name"));
    }
    let added = match (&*version, &*kind) {
        ("v1", "Node") => serde_json::from_value(object).map(|node| cluster.add_node(node)),
        ("v1", "Pod") => serde_json::from_value(object).map(|pod| cluster.add_pod(pod)),
        ("v1", "Event") => serde_json::from_value(object).map(|event| cluster.add_event(event)),
        (version, queue::KIND)
            if queue::VERSIONS.iter().any(|of| version == format!("{}/{of}", queue::GROUP)) =>
        {
            serde_json::from_value(object).map(|workload| cluster.add_workload(workload))
        }
        ("coordination.k8s.io/v1", "Lease") => {
            serde_json::from_value(object).map(|lease| add_lease(&lease, cluster))
        }
        _ => {
            systems::object(object)?.into_iter().for_each(|object| cluster.view.apply(object));
            Ok(())
        }
    };
    added.map_err(|problem| format!("not a valid {kind}: {problem}"))
}

/// Reads a Lease from a file. The file may be old, so the time of renewal does not count: the
/// controller is absent only if the Lease has no holder.
fn add_lease(lease: &Lease, cluster: &mut Cluster) {
    if lease.metadata.name.as_deref() == Some(lease::NAME) {
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
        let is_held = holder.is_some_and(|holder| !holder.is_empty());
        cluster.view.set_controller_present(is_held);
    }
}
