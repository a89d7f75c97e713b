//! Reads the cluster for `check` from files.

use std::path::PathBuf;

use k8s_openapi::api::coordination::v1::Lease;
use serde_json::Value;

use super::workload::WORKLOADS;
use crate::cli::input::{self, Generator, Problems};
use crate::controller::lease;
use stowplan_core::systems;
use stowplan_core::systems::check::Cluster;

/// The cluster of the objects in `paths`, and the documents of the workloads among them. An object without
/// a name gets one as from the API server; `complete` may change the document then, before it is read.
///
/// # Errors
/// [`Problems`]: everything that cannot be read or is not an object.
pub(super) fn read(
    paths: &[PathBuf],
    complete: &mut dyn FnMut(&mut Value),
) -> anyhow::Result<(Cluster, Vec<Value>)> {
    let mut workloads = Vec::new();
    let mut cluster = Cluster::default();
    let mut names = Generator::default();
    let mut problems = Problems::default();
    let documents = input::read_documents(paths, &mut problems);
    for document in &documents {
        for item in document.items(&mut problems) {
            let mut object = item.to_object();
            names.complete(&mut object);
            complete(&mut object);
            // If there is one object of a kind, the files have all objects of that kind.
            cluster.known.insert(item.kind.clone());
            let is_workload = WORKLOADS.iter().any(|of| of.is_of_kind(&item.version, &item.kind));
            let is_core = matches!((&*item.version, &*item.kind), ("v1", "Node" | "Pod"));
            if (is_workload || is_core) && !object["metadata"]["name"].is_string() {
                let kind = &item.kind;
                problems.push(format!("{}: a {kind} without metadata.name", document.location));
                continue;
            }
            if is_workload {
                workloads.push(object.clone());
            }
            let problem = match (item.version.as_str(), item.kind.as_str()) {
                ("v1", "Node") => {
                    serde_json::from_value(object).map(|node| cluster.add_node(node)).err()
                }
                ("v1", "Pod") => {
                    serde_json::from_value(object).map(|pod| cluster.add_pod(pod)).err()
                }
                ("v1", "Event") => {
                    serde_json::from_value(object).map(|event| cluster.add_event(event)).err()
                }
                ("coordination.k8s.io/v1", "Lease") => serde_json::from_value(object)
                    .map(|lease| add_lease(&lease, &mut cluster))
                    .err(),
                _ => match systems::object(object) {
                    Ok(object) => {
                        object.into_iter().for_each(|object| cluster.view.apply(object));
                        None
                    }
                    Err(problem) => {
                        problems.push(format!("{}: {problem}", document.location));
                        None
                    }
                },
            };
            if let Some(problem) = problem {
                let kind = &item.kind;
                problems.push(format!("{}: not a valid {kind}: {problem}", document.location));
            }
        }
    }
    problems.into_result()?;
    Ok((cluster, workloads))
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
