//! Diagnoses why the pods of workloads, such as a Deployment or a Job, wait or do not exist.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use crate::cli::input::Item;
use crate::cli::template;
use stowplan_core::admission::Decision;
use stowplan_core::admission::stored::Unreviewed;
use stowplan_core::kubernetes::{self, controller, own_refusal};
use stowplan_core::placement::reason::Stage;
use stowplan_core::systems::SYSTEMS;
use stowplan_core::systems::check::words::counted;
use stowplan_core::systems::check::{Context, Diagnosis};
use stowplan_core::view::Name;
use stowplan_core::view::resource::{POD, Resource};

/// A kind of objects that create pods.
#[derive(Debug)]
pub(in crate::cli) struct Workload {
    /// The names on the command line.
    pub(super) names: &'static [&'static str],
    pub(super) resource: Resource,
    count: Count,
}

/// The number of pods that an object has.
#[derive(Debug)]
enum Count {
    /// As many as it has at this path, or one.
    Stated(&'static str),
    /// As many as its status has at this path, once its controller has seen it.
    Observed(&'static str),
    /// It makes objects of this kind, which have them.
    OfMade(&'static str),
}

const fn resource(group: &'static str, kind: &'static str, plural: &'static str) -> Resource {
    Resource { group, version: "v1", kind, plural, namespaced: true }
}

/// The kinds that are diagnosed. Those that make others come first.
pub(super) static WORKLOADS: &[Workload] = &[
    Workload {
        names: &["deployment", "deployments", "deploy"],
        resource: resource("apps", "Deployment", "deployments"),
        count: Count::Stated("/spec/replicas"),
    },
    Workload {
        names: &["replicaset", "replicasets", "rs"],
        resource: resource("apps", "ReplicaSet", "replicasets"),
        count: Count::Stated("/spec/replicas"),
    },
    Workload {
        names: &["statefulset", "statefulsets", "sts"],
        resource: resource("apps", "StatefulSet", "statefulsets"),
        count: Count::Stated("/spec/replicas"),
    },
    Workload {
        names: &["daemonset", "daemonsets", "ds"],
        resource: resource("apps", "DaemonSet", "daemonsets"),
        count: Count::Observed("/status/desiredNumberScheduled"),
    },
    Workload {
        names: &["cronjob", "cronjobs", "cj"],
        resource: resource("batch", "CronJob", "cronjobs"),
        count: Count::OfMade("Job"),
    },
    Workload {
        // `job` is also the first name of another kind, which has precedence.
        names: &["job", "jobs.batch", "job.batch", "batchjob"],
        resource: resource("batch", "Job", "jobs"),
        count: Count::Stated("/spec/parallelism"),
    },
    Workload {
        names: &["replicationcontroller", "replicationcontrollers", "rc"],
        resource: resource("", "ReplicationController", "replicationcontrollers"),
        count: Count::Stated("/spec/replicas"),
    },
];

impl Workload {
    pub(super) fn kind(&self) -> &'static str {
        self.resource.kind
    }

    /// Returns true if a document is an object of this kind.
    pub(super) fn is_document(&self, document: &Value) -> bool {
        document["kind"] == self.resource.kind
            && document["apiVersion"] == self.resource.api_version().as_str()
    }

    /// Returns true if a diagnosis of this kind needs the objects of `other`.
    pub(super) fn needs(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
            || matches!(self.count, Count::OfMade(kind) if kind == other.resource.kind)
    }

    /// The objects of this kind in a namespace, without those that another one has made.
    pub(super) fn find_all<'d>(&self, documents: &'d [Value], namespace: &str) -> Vec<&'d str> {
        let names = documents
            .iter()
            .filter(|document| self.is_document(document) && namespace_of(document) == namespace)
            .filter(|document| !self.is_own(document) && !is_made(document, documents))
            .filter_map(|document| document["metadata"]["name"].as_str());
        names.collect()
    }

    /// Returns true if stowplan has created an object: such a one is a part of another diagnosis.
    fn is_own(&self, document: &Value) -> bool {
        let mut objects = SYSTEMS.iter().flat_map(|system| system.traces.objects);
        objects.any(|(resource, label)| {
            resource.kind == self.resource.kind
                && document["metadata"]["labels"].get(label).is_some()
        })
    }

    /// Diagnoses why the pods of an object wait. `None`: there is neither the object nor a pod of it.
    pub(super) fn diagnose(
        &self,
        context: &Context<'_>,
        documents: &[Value],
        key: &Name,
    ) -> Option<Diagnosis> {
        let Name { namespace, name } = key;
        let document = documents.iter().find(|document| {
            self.is_document(document)
                && namespace_of(document) == &**namespace
                && document["metadata"]["name"] == **name
        });
        let pods = context.cluster.in_namespace(namespace).filter(|pod| self.owns(name, pod));
        let mut pods: Vec<&Pod> = pods.collect();
        pods.sort_by_key(|pod| pod.metadata.name.as_deref());
        if document.is_none() && pods.is_empty() {
            return None;
        }
        let mut diagnosis = Diagnosis::new(self.resource.kind, key);
        if let Some(document) = document {
            let wanted = self.wanted(document);
            diagnosis.asked.extend(wanted.map(|wanted| {
                format!("{}, of which {} exist", counted(wanted, "pod"), pods.len())
            }));
            // A Job that has ended needs no pods.
            let is_done = document.pointer("/status/completionTime").is_some();
            if wanted.is_none_or(|wanted| pods.len() < wanted) && !is_done {
                report_template(&mut diagnosis, context, document, namespace);
            }
        }
        if let Count::OfMade(kind) = self.count {
            let made = documents.iter().filter(|of| {
                of["kind"] == kind
                    && namespace_of(of) == &**namespace
                    && maker_of(of) == Some((self.kind(), name))
            });
            let names: BTreeSet<&str> =
                made.filter_map(|of| of["metadata"]["name"].as_str()).collect();
            let workload = WORKLOADS.iter().find(|of| of.kind() == kind);
            diagnosis.parts.extend(names.into_iter().filter_map(|name| {
                workload?.diagnose(context, documents, &Name::new(namespace, name))
            }));
        }
        for pod in pods {
            let name = Name::new(namespace, pod.metadata.name.as_deref().unwrap_or_default());
            diagnosis.parts.push((context.pods.diagnose)(context, &name, pod));
        }
        Some(diagnosis)
    }

    /// The number of pods that an object should have, if it says so.
    fn wanted(&self, document: &Value) -> Option<usize> {
        let at = |path| {
            let count = document.pointer(path).and_then(Value::as_u64)?;
            Some(usize::try_from(count).unwrap_or(usize::MAX))
        };
        match self.count {
            Count::Stated(path) => at(path).or(Some(1)),
            Count::Observed(path) => at(path),
            Count::OfMade(_) => None,
        }
    }

    /// Returns true if the object of this name has created a pod.
    fn owns(&self, name: &str, pod: &Pod) -> bool {
        let made_by = Some((self.kind(), name));
        let of_maker = || controller(&pod.metadata).map(|of| (&*of.kind, &*of.name));
        kubernetes::workload(&pod.metadata) == made_by || of_maker() == made_by
    }
}

/// Returns the kind and the name of the controller that has made an object.
fn maker_of(document: &Value) -> Option<(&str, &str)> {
    let owners = document["metadata"]["ownerReferences"].as_array()?;
    let controller = owners.iter().find(|owner| owner["controller"] == true)?;
    Some((controller["kind"].as_str()?, controller["name"].as_str()?))
}

/// Returns true if one of `documents` has made an object: that one is diagnosed with it.
fn is_made(document: &Value, documents: &[Value]) -> bool {
    let maker = maker_of(document);
    maker.is_some_and(|(kind, name)| {
        documents.iter().any(|of| {
            of["kind"] == kind
                && of["metadata"]["name"] == name
                && namespace_of(of) == namespace_of(document)
        })
    })
}

/// The namespace of a document.
pub(super) fn namespace_of(document: &Value) -> &str {
    document["metadata"]["namespace"].as_str().unwrap_or("default")
}

/// Reports why a pod of the object's template cannot be created.
fn report_template(
    diagnosis: &mut Diagnosis,
    context: &Context<'_>,
    document: &Value,
    namespace: &str,
) {
    let text = |key: &str| document[key].as_str().unwrap_or_default().to_owned();
    let item = Item {
        version: text("apiVersion"),
        kind: text("kind"),
        pointer: String::new(),
        value: document,
    };
    let (cluster, policy) = (context.cluster, context.policy);
    let decided = template::find_template(&item)
        .and_then(|pointer| template::expand(&item, &diagnosis.name, pointer, namespace).ok())
        .and_then(|pod| {
            let (resource, object, view) = (&POD, &pod, &cluster.view);
            Unreviewed { resource, namespace, object, view, policy }.decide_creation().ok()
        });
    if let Some(Decision::Refuse(refusal)) = decided {
        let first = refusal.first();
        // Without nodes it is not known which hosts exist.
        if !(cluster.has_no_nodes() && first.reason.stage() == Stage::Cluster) {
            let what = format!("its pods are refused: {}: {}", first.subject, first.problem);
            return diagnosis.report(what, &first.remedy);
        }
    }
    let conditions = document.pointer("/status/conditions").and_then(Value::as_array);
    let holds = |kind: &str| {
        let mut conditions = conditions.into_iter().flatten();
        conditions.find(|condition| condition["type"] == kind && condition["status"] == "True")
    };
    let key = Name::new(namespace, &diagnosis.name);
    let uid = document["metadata"]["uid"].as_str();
    let message = holds("ReplicaFailure")
        .and_then(|failure| failure["message"].as_str())
        .or_else(|| cluster.not_created(diagnosis.kind, &key, uid));
    let Some(message) = message else { return };
    let kind = diagnosis.kind.to_lowercase();
    let describe = format!("kubectl describe {kind} {} -n {namespace}", diagnosis.name);
    match (own_refusal(message), holds("Failed")) {
        (None, _) => diagnosis.report(format!("its pods cannot be created: {message}"), describe),
        (Some(refusal), Some(_)) => diagnosis.report(
            format!("it has failed, and stowplan refused a pod of it: {refusal}"),
            format!("created now, its pods would be admitted: create the {} again", diagnosis.kind),
        ),
        (Some(refusal), None) => diagnosis.report(
            format!("stowplan refused a pod of it: {refusal}"),
            format!(
                "created now, it would be admitted: wait until its controller tries again ({describe})"
            ),
        ),
    }
}
