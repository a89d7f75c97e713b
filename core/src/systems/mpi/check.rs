//! Diagnoses for `check`: why the launcher of a cluster waits, worker by worker.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod, Volume};

use super::cluster::{Cluster, Problem, Worker};
use super::keys::{self, KEYS_CONTAINER};
use super::kinds::pod::MpiPod;
use super::kinds::workload::Workload;
use super::request::Role;
use crate::kubernetes::node_name;
use crate::systems::check::words::{SEE_CONTROLLER, counted};
use crate::systems::check::{CheckedKind, Context, Diagnosis};
use crate::view::Name;

/// The kind of the diagnosis: a cluster is no object of Kubernetes.
pub(super) const KIND: &str = "MpiCluster";

/// The kinds that MPI clusters add to those that are diagnosed.
pub(super) const KINDS: &[CheckedKind] = &[CheckedKind {
    names: &["mpi", "mpicluster", "mpiclusters"],
    missing: "MPI cluster",
    needs_all_pods: true,
    check: diagnose,
    find_all: |context| context.cluster.view.mpi_clusters(),
}];

/// Diagnoses why a cluster does not start. `None`: no workload and no pod is of it.
fn diagnose(context: &Context<'_>, key: &Name) -> Option<Diagnosis> {
    let view = &context.cluster.view;
    let cluster = Cluster::new(key.clone(), view, context.policy);
    if cluster.workloads.is_empty() && cluster.pods.is_empty() {
        return None;
    }
    let mut diagnosis = Diagnosis::new(KIND, key);
    diagnosis.asked.extend(cluster.workloads.iter().map(describe));
    if cluster.launcher().is_none() {
        diagnosis.decided.push("no launcher yet".to_owned());
    }
    let hosts = match cluster.hosts() {
        Ok(hosts) => hosts,
        Err(problem) => {
            diagnosis.report(problem.text, problem.remedy);
            return Some(diagnosis);
        }
    };
    let has_ended = cluster.launcher().is_some_and(|(_, of)| of.is_over);
    let suspended = cluster.workloads.iter().filter(|(_, of)| of.is_suspended && !of.is_over);
    // Clean-up leaves workers like that.
    let suspended = suspended.filter(|(_, of)| of.request.role == Role::Launcher || !has_ended);
    let suspended: Vec<Problem> = suspended.map(|(name, _)| Problem::suspended(name)).collect();
    let other = cluster.problem().filter(|of| !suspended.contains(of));
    for problem in other.into_iter().chain(suspended) {
        diagnosis.report(problem.text, problem.remedy);
    }
    if has_ended {
        diagnosis.decided.push("the launcher has ended".to_owned());
        return Some(diagnosis);
    }
    let is_used = !hosts.is_empty();
    if is_used && context.cluster.knows("Service") && view.cluster_service(key).is_none() {
        let what = format!("Service {} does not exist, or is not stowplan's", key.name);
        diagnosis.report(what, format!("kubectl describe {}; {SEE_CONTROLLER}", first(&cluster)));
    }
    let workers = cluster.workers(&hosts);
    let reachable = workers.iter().filter(|worker| worker.is_reachable()).count();
    diagnosis.decided.push(format!(
        "{reachable} of {} Ready and with a DNS name",
        counted(workers.len(), "worker")
    ));
    let is_known = context.cluster.knows("EndpointSlice");
    let waits =
        |worker: &&Worker<'_, '_>| !worker.is_reachable() && !worker.workload.1.is_suspended;
    for worker in workers.iter().filter(waits) {
        diagnosis.parts.push(diagnose_worker(context, &cluster, worker, is_known));
    }
    for (name, pod) in &cluster.pods {
        if pod.role == Role::Launcher && !pod.finished {
            diagnosis.parts.extend(diagnose_pod(context, name));
        }
    }
    Some(diagnosis)
}

/// A workload with what it asks for.
fn describe((name, of): &(&Name, &Workload)) -> String {
    let object = format!("{} {}", of.resource.kind, name.name);
    let role = of.request.role.as_str();
    match (of.request.role, of.count) {
        (Role::Worker, Some(count)) => {
            let slots = of.request.slots.map(|slots| format!(", slots={slots}"));
            format!("{object}: {}{}", counted(count as usize, role), slots.unwrap_or_default())
        }
        _ => format!("{object}: {role} of {}", of.request.implementation.as_str()),
    }
}

/// The first workload, for kubectl.
fn first(cluster: &Cluster<'_>) -> String {
    let first = cluster.workloads.first();
    let object = first.map(|(name, of)| format!("{}/{}", of.resource.plural, name.name));
    object.unwrap_or_default()
}

/// Diagnoses a pod with all that the systems know about it.
fn diagnose_pod(context: &Context<'_>, name: &Name) -> Option<Diagnosis> {
    let pod = context.cluster.pod(&name.namespace, &name.name)?;
    Some((context.pods.diagnose)(context, name, pod))
}

/// Diagnoses why a worker cannot be reached.
fn diagnose_worker(
    context: &Context<'_>,
    cluster: &Cluster<'_>,
    worker: &Worker<'_, '_>,
    knows_records: bool,
) -> Diagnosis {
    let (workload, of) = worker.workload;
    let namespace = &cluster.name.namespace;
    let found = worker.pod.and_then(|(name, row)| {
        let pod = context.cluster.pod(&name.namespace, &name.name)?;
        Some((name, row, pod))
    });
    let Some((name, row, pod)) = found else {
        let name = Name::new(namespace, &worker.host.hostname);
        let mut part = Diagnosis::new("Pod", &name);
        match find_unplaced(context, &cluster.name, worker) {
            Some(pod) => report_unplaced(&mut part, pod, of, context),
            None => part.report(
                "there is no such pod",
                format!("kubectl describe {}/{} -n {namespace}", of.resource.plural, workload.name),
            ),
        }
        return part;
    };
    let mut part = match node_name(pod) {
        None => (context.pods.diagnose)(context, name, pod),
        Some(node) => {
            let mut part = Diagnosis::new("Pod", name);
            part.placed.push(format!("node {node}"));
            part.node = Some(node.to_owned());
            part.hostname = Some(worker.host.hostname.to_string());
            report_node(&mut part, context, node, name);
            report_containers(&mut part, context, of, pod, row);
            part
        }
    };
    if knows_records && !worker.has_record && node_name(pod).is_some() {
        part.report(
            format!(
                "its name {} has no DNS record in Service {}",
                worker.host.hostname, worker.host.service
            ),
            cluster.record_remedy(worker),
        );
    }
    part
}

fn report_node(part: &mut Diagnosis, context: &Context<'_>, node: &str, pod: &Name) {
    let details = context.cluster.view.node(node).and_then(|node| node.details.as_deref());
    if details.is_some_and(|details| !details.ready) {
        part.report(
            format!("node {node} is NotReady"),
            format!(
                "once the node is certainly off: kubectl delete pod {} -n {} --force",
                pod.name, pod.namespace
            ),
        );
    }
}

/// Reports the containers of a worker with a node: the copies of the keys first, then the ssh server.
fn report_containers(
    part: &mut Diagnosis,
    context: &Context<'_>,
    of: &Workload,
    pod: &Pod,
    row: &MpiPod,
) {
    let status = pod.status.as_ref();
    let keys = status.and_then(|of| find_state(&of.init_container_statuses, KEYS_CONTAINER));
    let pod_name = format!("{} -n {}", part.name, part.namespace);
    let logs = |container: &str| format!("kubectl logs {pod_name} -c {container}");
    match keys {
        Some(ContainerState { terminated: Some(end), .. }) if end.exit_code != 0 => {
            let why = end.message.as_deref().or(end.reason.as_deref()).unwrap_or_default();
            let what = format!("the keys could not be copied: exit code {} {why}", end.exit_code);
            return part.report(what.trim_end(), logs(KEYS_CONTAINER));
        }
        Some(ContainerState { waiting: Some(wait), .. })
            if wait.reason.as_deref() != Some("PodInitializing") =>
        {
            let why = wait.message.as_deref().or(wait.reason.as_deref()).unwrap_or_default();
            return part.report(
                format!("its keys are not copied yet: {why}"),
                format!("kubectl describe pod {pod_name}"),
            );
        }
        _ if !row.started => {
            return part.report(
                format!(
                    "no container of it has started; it needs Secret {} and ConfigMap {}",
                    keys::secret(&row.cluster),
                    keys::config_map(&row.cluster)
                ),
                format!("kubectl describe pod {pod_name}; {SEE_CONTROLLER}"),
            );
        }
        _ => {}
    }
    report_mode(part, of, pod, context);
    if row.ready {
        return;
    }
    let main = &*of.container;
    let what = match status.and_then(|status| find_state(&status.container_statuses, main)) {
        Some(ContainerState { waiting: Some(wait), .. }) => format!(
            "container {main} waits: {}",
            wait.message.as_deref().or(wait.reason.as_deref()).unwrap_or("no reason is given")
        ),
        Some(ContainerState { terminated: Some(end), .. }) => {
            format!("container {main} has ended with exit code {}", end.exit_code)
        }
        _ => format!(
            "it is not Ready: the ssh server must listen on port {}",
            of.port(context.policy)
        ),
    };
    part.report(what, logs(main));
}

/// Reports keys that ssh refuses: those of a Secret that is mounted as it is.
fn report_mode(part: &mut Diagnosis, of: &Workload, pod: &Pod, context: &Context<'_>) {
    let dir = of.request.ssh_dir(context.policy);
    let Some(spec) = &pod.spec else { return };
    let mounts =
        spec.containers.iter().flat_map(|container| container.volume_mounts.iter().flatten());
    let mut names = mounts.filter(|mount| mount.mount_path.trim_end_matches('/') == dir);
    let is_secret = |name: &str| {
        let mut volumes = spec.volumes.iter().flatten();
        volumes.any(|Volume { name: own, secret, .. }| own == name && secret.is_some())
    };
    if names.any(|mount| is_secret(&mount.name)) {
        part.report(
            format!("it mounts a Secret at {dir}: the directory of a Secret is writable by all users, so sshd refuses the keys"),
            format!("remove the mount from the pod template, and create the pod again: stowplan copies the keys to {dir} with the right modes"),
        );
    }
}

/// The pod of a worker that the webhook has not changed: it has no label of the cluster.
fn find_unplaced<'c>(
    context: &Context<'c>,
    cluster: &Name,
    worker: &Worker<'_, '_>,
) -> Option<&'c Pod> {
    let uid = &*worker.workload.1.identity.uid;
    context.cluster.in_namespace(&cluster.namespace).find(|pod| {
        let mut owners = pod.metadata.owner_references.iter().flatten();
        let hostname = pod.spec.as_ref().and_then(|spec| spec.hostname.as_deref());
        owners.any(|owner| owner.uid == uid) && hostname == Some(&*worker.host.hostname)
    })
}

fn report_unplaced(part: &mut Diagnosis, pod: &Pod, of: &Workload, context: &Context<'_>) {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    part.name = name.to_owned();
    part.placed.extend(node_name(pod).map(|node| format!("node {node}")));
    part.report(
        "it was created without stowplan's webhook, so it has no keys of the cluster",
        format!("kubectl delete pod {name} -n {}, so that it is created again", part.namespace),
    );
    report_mode(part, of, pod, context);
}

fn find_state<'s>(
    statuses: &'s Option<Vec<ContainerStatus>>,
    name: &str,
) -> Option<&'s ContainerState> {
    statuses.iter().flatten().find(|status| status.name == name)?.state.as_ref()
}
