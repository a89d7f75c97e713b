//! The Service, the ConfigMap and the Secret of a cluster. See the module above for their order.

use std::collections::BTreeMap;

use json_patch::PatchOperation;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Cluster, Planner, reason, target_of};
use crate::systems::mpi::config::Host;
use crate::systems::mpi::keys::{
    self, CLUSTER, KEY_IN_THE_MAKING, KEY_IN_THE_MAKING_AGAIN, KEY_MADE, KEY_STATE, MADE_FOR,
};
use crate::systems::mpi::kinds::service::ClusterConfigMap;
use crate::systems::mpi::request::Role;
use crate::systems::mpi::resources::{CONFIG_MAP, SECRET, SERVICE};
use crate::systems::plan::operation::{add, test, test_uid};
use crate::systems::plan::{
    Action, Confirmation, Content, Creation, IfTaken, Refusal, Target, Write,
};
use crate::view::Name;
use crate::view::resource::{POD, Resource};

/// How long a pod may have a node and no started container before the Secret is looked for. It is doubled
/// after each attempt.
const PATIENCE: SignedDuration = SignedDuration::from_secs(20);

/// The length of an attempt, so that one that failed is repeated.
const ATTEMPT: SignedDuration = SignedDuration::from_secs(5);

impl Planner<'_, '_> {
    /// Makes the objects of a cluster, and keeps them as they must be.
    pub(super) fn make_objects(&mut self, hosts: &[Host], files: &BTreeMap<String, String>) {
        let cluster = self.cluster;
        let owners: Vec<Value> = cluster
            .workloads
            .iter()
            .map(|(name, of)| owner(name, &of.resource, &of.identity.uid))
            .collect();
        self.make_service(hosts, &owners);
        let name = cluster.config_map();
        let Some(map) = cluster.view.cluster_config_map(&name) else {
            return self.act(create_config_map(cluster, &name, &owners, files));
        };
        let mut operations = vec![test_uid(&map.identity.uid)];
        if map.data != *files {
            operations.push(add(&["data"], json!(files)));
        }
        operations.extend(adopt(cluster, &map.owners, owners));
        let target = Target::new(CONFIG_MAP, &name, &map.identity.uid);
        if operations.len() > 1 {
            self.act(Action::new(target, Write::Patch(operations), Vec::new()));
        } else if cluster.policy.mpi.secrets {
            self.make_secret(target, map);
        }
    }

    fn make_service(&mut self, hosts: &[Host], owners: &[Value]) {
        let cluster = self.cluster;
        let name = &cluster.name;
        let target = |uid| Target::new(SERVICE, name, uid);
        let selector = json!({CLUSTER: &*name.name});
        let Some(service) = cluster.view.cluster_service(name) else {
            let port = hosts.iter().find_map(|host| host.port).unwrap_or(22);
            let object = json!({
                "apiVersion": SERVICE.api_version(),
                "kind": SERVICE.kind,
                "metadata": metadata(cluster, name, owners),
                "spec": {
                    "clusterIP": "None",
                    // The launcher and its workers must find each other before they are Ready.
                    "publishNotReadyAddresses": true,
                    "selector": selector,
                    // Service meshes need a named port.
                    "ports": [{"name": "tcp-ssh", "port": port}],
                },
            });
            let action = Action::new(target(""), Write::Create(object), Vec::new());
            return self.act(action.with_refusal(refusal(cluster, "Service", name)));
        };
        let mut operations = vec![test_uid(&service.identity.uid)];
        if !service.is_as_made {
            operations.push(add(&["spec", "selector"], selector));
            operations.push(add(&["spec", "publishNotReadyAddresses"], true));
        }
        operations.extend(adopt(cluster, &service.owners, owners.to_vec()));
        if operations.len() > 1 {
            let write = Write::Patch(operations);
            self.act(Action::new(target(&service.identity.uid), write, Vec::new()));
        }
    }

    /// The next step towards the Secret of a cluster with a ConfigMap.
    fn make_secret(&mut self, target: Target, map: &ClusterConfigMap) {
        let cluster = self.cluster;
        let uid = &map.identity.uid;
        let state = map.key_state.as_deref();
        let (next, creation) = match state {
            None => (KEY_IN_THE_MAKING, trial(cluster, uid, IfTaken::Refuse)),
            Some(KEY_IN_THE_MAKING | KEY_IN_THE_MAKING_AGAIN) => {
                if state == Some(KEY_IN_THE_MAKING_AGAIN) {
                    self.report_new_key();
                }
                let creation = Creation {
                    content: Some(Content::SshKeys),
                    is_trial: false,
                    if_taken: IfTaken::Send,
                    record: Some(record_uid),
                    ..trial(cluster, uid, IfTaken::Send)
                };
                (KEY_MADE, creation)
            }
            Some(_) if self.is_looked_for() => {
                (KEY_IN_THE_MAKING_AGAIN, trial(cluster, uid, IfTaken::Keep))
            }
            Some(_) => return,
        };
        let annotation = ["metadata", "annotations", KEY_STATE];
        let mut operations = vec![test_uid(uid)];
        if let Some(state) = state {
            operations.push(test(&annotation, state));
        }
        operations.push(match map.has_annotations {
            true => add(&annotation, next),
            false => add(&annotation[..2], json!({KEY_STATE: next})),
        });
        let action = Action::new(target, Write::Patch(operations), Vec::new())
            .with_confirmation(confirm(creation))
            .with_refusal(refusal(cluster, "Secret", &cluster.secret()));
        self.act(action);
    }

    /// Servers and launchers that run have the old keys.
    fn report_new_key(&mut self) {
        let name = &self.cluster.name;
        let note = format!(
            "Secret {} was deleted and is made again with other keys; restart the workers: kubectl delete pods -n {} -l {CLUSTER}={},{}=worker",
            keys::secret(&name.name),
            name.namespace,
            name.name,
            keys::ROLE,
        );
        for workers in self.cluster.of_role(Role::Worker) {
            self.warn(target_of(workers), reason::KEY_REPLACED, note.clone());
        }
    }

    /// Returns true if a pod hangs as it would without the Secret, and it is time to look for it.
    fn is_looked_for(&mut self) -> bool {
        let pods = self.cluster.pods.iter().map(|(_, pod)| pod);
        let hanging = pods.filter(|pod| !pod.started && !pod.finished && !pod.identity.deleting);
        // On a node that is not Ready, a pod waits for the kubelet.
        let hanging = hanging.filter(|pod| {
            pod.node.as_deref().is_some_and(|of| self.cluster.view.is_node_ready(of))
        });
        let Some(since) = hanging.filter_map(|pod| pod.bound_at).min() else { return false };
        let (is_due, next) = attempt(since, self.now);
        self.plan.recheck_by(next);
        is_due
    }
}

/// Creates the ConfigMap, if no other Secret has the name of the cluster's.
fn create_config_map(
    cluster: &Cluster<'_>,
    name: &Name,
    owners: &[Value],
    files: &BTreeMap<String, String>,
) -> Action {
    let mut metadata = metadata(cluster, name, owners);
    if cluster.policy.mpi.secrets {
        metadata["annotations"] = json!({KEY_STATE: KEY_IN_THE_MAKING});
    }
    let object = json!({
        "apiVersion": CONFIG_MAP.api_version(),
        "kind": CONFIG_MAP.kind,
        "metadata": metadata,
        "data": files,
    });
    let target = Target::new(CONFIG_MAP, name, "");
    let action = Action::new(target, Write::Create(object), Vec::new());
    match cluster.policy.mpi.secrets {
        true => action
            .with_confirmation(confirm(trial(cluster, "", IfTaken::Refuse)))
            .with_refusal(refusal(cluster, "ConfigMap or Secret", name)),
        false => action.with_refusal(refusal(cluster, "ConfigMap", name)),
    }
}

/// Decides if an attempt is due at `now` for a pod that hangs since `since`, and when that changes: attempts
/// come after 20 s, 40 s, 80 s and so on.
fn attempt(since: Timestamp, now: Timestamp) -> (bool, Timestamp) {
    let mut wait = PATIENCE;
    loop {
        let begin = since.saturating_add(wait).unwrap_or(now);
        let end = begin.saturating_add(ATTEMPT).unwrap_or(now);
        if now < begin {
            return (false, begin);
        }
        if now < end {
            return (true, end);
        }
        wait = wait.saturating_mul(2);
    }
}

/// The operations that add the workloads to the owners of an object, if one is missing.
fn adopt(
    cluster: &Cluster<'_>,
    present: &[Box<str>],
    owners: Vec<Value>,
) -> Option<PatchOperation> {
    let is_missing = |uid: &str| !present.iter().any(|owner| **owner == *uid);
    let mut uids = cluster.workloads.iter().map(|(_, of)| &*of.identity.uid);
    uids.any(is_missing).then(|| add(&["metadata", "ownerReferences"], owners))
}

fn metadata(cluster: &Cluster<'_>, name: &Name, owners: &[Value]) -> Value {
    json!({
        "name": &*name.name,
        "namespace": &*name.namespace,
        "labels": {MADE_FOR: &*cluster.name.name, "app.kubernetes.io/managed-by": "stowplan"},
        "ownerReferences": owners,
    })
}

fn owner(name: &Name, resource: &Resource, uid: &str) -> Value {
    json!({
        "apiVersion": resource.api_version(),
        "kind": resource.kind,
        "name": &*name.name,
        "uid": uid,
    })
}

/// The creation of the Secret, as a trial without its content. `map`: the UID of the ConfigMap.
fn trial(cluster: &Cluster<'_>, map: &str, if_taken: IfTaken) -> Creation {
    // Before there is a ConfigMap, the trial has no owner.
    let owners = [owner(&cluster.config_map(), &CONFIG_MAP, map)];
    let owners = if map.is_empty() { &owners[..0] } else { &owners };
    Creation {
        resource: SECRET,
        object: json!({
            "apiVersion": SECRET.api_version(),
            "kind": SECRET.kind,
            "metadata": metadata(cluster, &cluster.secret(), owners),
            "type": "kubernetes.io/ssh-auth",
            "immutable": true,
            // The type requires this field, and not empty.
            "stringData": {"ssh-privatekey": "generated later"},
        }),
        content: None,
        is_trial: true,
        if_taken,
        record: None,
    }
}

fn confirm(creation: Creation) -> Confirmation {
    Confirmation::Creation(Box::new(creation))
}

/// Records the UID of the Secret that was created.
fn record_uid(created: Option<&Value>, operations: &[PatchOperation]) -> Vec<PatchOperation> {
    let uid = created.and_then(|secret| secret.pointer("/metadata/uid")).and_then(Value::as_str);
    let Some(uid) = uid else { return operations.to_vec() };
    let mut operations = operations.to_vec();
    for operation in &mut operations {
        if let PatchOperation::Add(add) = operation
            && add.value == KEY_MADE
        {
            add.value = json!(uid);
        }
    }
    operations
}

/// The event about a name that belongs to another object, at the workloads and the launchers that wait.
fn refusal(cluster: &Cluster<'_>, kind: &str, name: &Name) -> Refusal {
    let workloads = cluster.workloads.iter().copied().map(target_of);
    let gated = cluster.pods.iter().filter(|(_, pod)| pod.gate.is_some());
    let gated = gated.map(|(name, pod)| Target::new(POD, name, &pod.identity.uid));
    let mut waiting: Vec<Target> = workloads.chain(gated).collect();
    waiting.sort();
    waiting.dedup();
    Refusal {
        reason: reason::OBJECT_NOT_MADE,
        note: format!(
            "the cluster needs a {kind} {}, which cannot be created; if another object has that name, delete it or name the cluster otherwise",
            name.name
        ),
        waiting,
        // Without the object no worker could be reached.
        instead: Vec::new(),
    }
}
