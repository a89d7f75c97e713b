//! Diagnoses everything in a namespace, or in all of them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::checked_kinds;
use super::workload::{WORKLOADS, namespace_of};
use stowplan_core::kubernetes::{is_finished, label};
use stowplan_core::systems::check::{CheckedKind, Cluster, Context, Diagnosis};
use stowplan_core::systems::exclusion::IGNORE;
use stowplan_core::systems::{SYSTEMS, report_namespace};
use stowplan_core::view::Name;
use stowplan_core::view::resource::{NAMESPACE, POD};

/// The kind of the diagnosis of a namespace.
pub(super) const KIND: &str = "Namespace";

/// The namespace that every cluster has.
const DEFAULT: &str = "default";

/// The kind of the diagnosis of all namespaces.
pub(super) const ALL: &str = "Cluster";

/// Diagnoses everything in a namespace, or in all of them: the objects with an obstacle first.
///
/// # Errors
/// The namespace does not exist.
pub(in crate::cli) fn diagnose_everything(
    context: &Context<'_>,
    documents: &[Value],
    namespace: Option<&str>,
) -> anyhow::Result<Diagnosis> {
    let Some(namespace) = namespace else { return Ok(diagnose_all(context, documents)) };
    let found = find_objects(context).remove(namespace).unwrap_or_default();
    let diagnosis = diagnose_one(context, documents, namespace, found);
    let Cluster { view, .. } = context.cluster;
    // Files may have objects of a namespace without the namespace.
    let exists = !diagnosis.parts.is_empty()
        || namespace == DEFAULT
        || !context.cluster.knows(NAMESPACE.kind)
        || view.namespaces().any(|known| known == namespace);
    ensure!(exists, "namespace {namespace} does not exist");
    Ok(diagnosis)
}

/// Objects of kinds that systems diagnose.
type Objects = Vec<(&'static CheckedKind, Name)>;

/// Finds the objects of all kinds that systems diagnose, by their namespaces.
fn find_objects(context: &Context<'_>) -> BTreeMap<String, Objects> {
    let mut found: BTreeMap<String, Objects> = BTreeMap::new();
    for kind in checked_kinds() {
        for name in (kind.find_all)(context) {
            found.entry(name.namespace.to_string()).or_default().push((kind, name));
        }
    }
    found
}

/// Diagnoses a namespace, with the objects that were found there.
fn diagnose_one(
    context: &Context<'_>,
    documents: &[Value],
    namespace: &str,
    found: Objects,
) -> Diagnosis {
    let mut diagnosis = Diagnosis::new(KIND, &Name::cluster_wide(namespace));
    if context.cluster.view.namespace_has_annotation(namespace, IGNORE) {
        diagnosis.report(
            format!("its annotation {IGNORE} has no effect, because it must be a label"),
            format!("kubectl label namespace {namespace} {IGNORE}=true; kubectl annotate namespace {namespace} {IGNORE}-"),
        );
    }
    report_namespace(context, namespace, &mut diagnosis);
    let parts = &mut diagnosis.parts;
    let mut known = BTreeSet::new();
    // A pod is a part of one diagnosis. An object whose parts all others have needs none of its own.
    let mut add = |mut part: Diagnosis| {
        let is_of_others =
            part.remove_pods(&known) && part.parts.is_empty() && part.obstacles.is_empty();
        if !is_of_others {
            let pods = part.all().into_iter().filter(|part| part.kind == POD.kind);
            known.extend(pods.map(|pod| pod.name.clone()));
            parts.push(part);
        }
    };
    let objects = found.into_iter().filter_map(|(kind, name)| (kind.check)(context, &name));
    objects.for_each(&mut add);
    for workload in WORKLOADS {
        for name in workload.find_all(documents, namespace) {
            let name = Name::new(namespace, name);
            workload.diagnose(context, documents, &name).into_iter().for_each(&mut add);
        }
    }
    for pod in context.cluster.in_namespace(namespace).filter(|pod| !is_finished(pod)) {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        if is_part_of_own(pod, namespace, parts) {
            continue;
        }
        if !known.contains(name) {
            let pod = (context.pods.diagnose)(context, &Name::new(namespace, name), pod);
            parts.push(pod);
        }
    }
    parts.sort_by_key(|part| !part.has_obstacle());
    diagnosis
}

/// Returns true if a pod is that of an object of stowplan which one of the diagnoses covers.
fn is_part_of_own(pod: &Pod, namespace: &str, parts: &[Diagnosis]) -> bool {
    let mut objects = SYSTEMS.iter().flat_map(|system| system.traces.objects);
    objects.any(|(resource, key)| {
        let object = label(&pod.metadata, key);
        let covers = |name| parts.iter().any(|part| part.covers(resource.kind, namespace, name));
        object.is_some_and(covers)
    })
}

/// All namespaces that have a pod or another object that is diagnosed.
fn diagnose_all(context: &Context<'_>, documents: &[Value]) -> Diagnosis {
    let pods = context.cluster.pods.iter().filter_map(|pod| pod.metadata.namespace.clone());
    let of_documents = documents.iter().map(namespace_of);
    let mut found = find_objects(context);
    let mut namespaces: BTreeSet<String> = pods.chain(found.keys().cloned()).collect();
    namespaces.extend(of_documents.map(str::to_owned));
    namespaces.extend(context.cluster.view.namespaces().map(str::to_owned));
    let mut diagnosis = Diagnosis { kind: ALL, ..Diagnosis::default() };
    let parts = namespaces.iter().map(|namespace| {
        let found = found.remove(namespace).unwrap_or_default();
        diagnose_one(context, documents, namespace, found)
    });
    let is_shown = |part: &Diagnosis| !part.parts.is_empty() || part.has_obstacle();
    diagnosis.parts = parts.filter(is_shown).collect();
    diagnosis.parts.sort_by_key(|part| !part.has_obstacle());
    diagnosis
}
