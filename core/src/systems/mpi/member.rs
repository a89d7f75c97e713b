//! Decides at admission the changes to a pod of an MPI cluster.
//!
//! The keys are copied by an init container with the image and the security context of the container that
//! uses them: the directory of a Secret volume is writable by all (01777), which sshd refuses under
//! `StrictModes yes`, and the file modes of a Secret volume fit root or another user, but not both.

use serde_json::{Value, json};

use super::keys;
use super::request::{Implementation, Request, Role};
use super::server::Server;
use super::{NAME, config, container};
use crate::placement::container::{Container, Parts, User, Volume};
use crate::placement::intent::{Change, ContainerChange, Intent};
use crate::placement::object::Metadata;
use crate::placement::pod::Pod;
use crate::placement::reason::{Finding, Reason, Warning, quoted};
use crate::systems::policy::Policy;
use crate::systems::{Outcome, View};
use crate::view::ControllerState;
use crate::wire::{Text, TextMap};

/// The amounts that the QoS class of a pod depends on.
const RESOURCES: [(&str, &str); 4] =
    [("requests", "cpu"), ("requests", "memory"), ("limits", "cpu"), ("limits", "memory")];

/// Where the init container finds the Secret and puts the copies.
const SECRET_DIR: &str = "/stowplan/secret";
const MEMORY_DIR: &str = "/stowplan/ssh";

/// The directory in the memory volume with the keys, and the one that sshd needs as root.
const KEYS_PART: &str = "keys";
const RUN_PART: &str = "run";

/// The copies of the keys belong to the user that runs the script, and others have no access. Programs that
/// run ssh by themselves find its options beside the keys.
const COPY: &str = "\
umask 077
cd /stowplan/ssh
mkdir -p keys run
chmod 700 keys
chmod 755 run
cp /stowplan/secret/ssh-privatekey keys/id_ed25519
cp /stowplan/secret/ssh-publickey keys/id_ed25519.pub
cp /stowplan/secret/ssh-publickey keys/authorized_keys
echo 'Include /etc/mpi/ssh_config' > keys/config
chmod 600 keys/id_ed25519 keys/id_ed25519.pub keys/authorized_keys keys/config
";

/// Decides the changes to a pod.
pub(super) fn request(pod: &Pod<'_>, view: &View, policy: &Policy) -> Outcome {
    match Request::parse(pod) {
        None => Outcome::default(),
        Some(Err(findings)) => findings.into(),
        Some(Ok(request)) => match Member::find(pod, &request, view, policy) {
            Ok(member) => member.join(view),
            Err(finding) => vec![finding].into(),
        },
    }
}

/// A pod of a cluster, with what the changes depend on.
struct Member<'m> {
    pod: &'m Pod<'m>,
    request: &'m Request,
    policy: &'m Policy,
    parts: Parts<'m>,
    /// The index of the container that runs `mpirun` or the ssh server.
    index: usize,
    server: Server,
}

impl<'m> Member<'m> {
    /// # Errors
    /// Returns the reason why the pod cannot be in a cluster.
    fn find(
        pod: &'m Pod<'m>,
        request: &'m Request,
        view: &View,
        policy: &'m Policy,
    ) -> Result<Self, Finding> {
        check_namespace(pod.namespace, view, policy)?;
        check_owner(pod.metadata, request.role)?;
        let unusable = |problem: String, remedy: &str| {
            Finding::new(Reason::InvalidMpi, keys::CLUSTER, problem, remedy)
        };
        let parts = Parts::decode(pod).map_err(|error| {
            unusable(format!("the pod cannot be read: {error}"), "mend the pod")
        })?;
        let os = pod
            .node_selector
            .as_ref()
            .and_then(|labels: &TextMap<'_>| labels.get("kubernetes.io/os"));
        if os.is_some_and(|os| os != "linux") {
            return Err(unusable(
                "the pod's node selector asks for nodes that do not run Linux".to_owned(),
                "run MPI clusters on Linux nodes",
            ));
        }
        let index = container::choose(request, parts.containers.iter().map(|of| of.name.as_str()))?;
        let container = &parts.containers[index];
        let user = parts.user(container).map_err(|error| {
            unusable(format!("the pod cannot be read: {error}"), "mend the pod")
        })?;
        let command = [&container.command, &container.args].into_iter().flatten().flatten();
        let server = Server::new(user, command.map(Text::as_str));
        let member = Self { pod, request, policy, parts, index, server };
        member.check()?;
        Ok(member)
    }

    fn port(&self) -> u16 {
        self.server.port(self.request, self.policy)
    }

    fn join(&self, view: &View) -> Outcome {
        let mut outcome = Outcome::default();
        let Request { cluster, role, .. } = self.request;
        let mut changes = Vec::new();
        self.add_names(&mut changes);
        self.add_keys(&mut changes);
        self.add_config(&mut changes);
        self.add_variables(&mut changes);
        match role {
            Role::Worker => self.add_server(&mut changes),
            Role::Launcher => changes.push((keys::ROLE, Change::Gate(keys::GATE))),
        }
        let why = format!("cluster={cluster}");
        outcome.intents.extend(changes.into_iter().map(|(key, change)| Intent {
            system: NAME,
            key,
            why: why.clone(),
            change,
        }));
        // True before and after the gate is removed.
        let how = if *role == Role::Launcher { ", after its workers" } else { "" };
        outcome.holds.push(format!("{why}: {}{how}", role.as_str()));
        let absent = match view.controller() {
            ControllerState::Leads => None,
            ControllerState::NotYet => {
                Some("the cluster waits: no controller of stowplan has led yet")
            }
            ControllerState::Stopped => {
                Some("the cluster waits: stowplan's controller has stopped renewing its Lease")
            }
        };
        outcome.warnings.extend(absent.map(|text| Warning::new(keys::CLUSTER, text)));
        if *role == Role::Worker && self.server.is_port_guessed(self.request, self.policy) {
            let text = format!(
                "is missing beside a server of the author's: it is expected on port {}; write the port on which it listens",
                self.port()
            );
            outcome.warnings.push(Warning::new(keys::SSH_PORT, &text));
        }
        if self.pod.node_name.is_some() && *role == Role::Worker {
            let text = "spec.nodeName bypasses the scheduler";
            outcome.warnings.push(Warning::new(keys::CLUSTER, text));
        }
        outcome
    }

    fn container(&self) -> &Container<'m> {
        &self.parts.containers[self.index]
    }

    fn add_names(&self, changes: &mut Vec<(&'static str, Change)>) {
        let Request { cluster, role, .. } = self.request;
        for (key, value) in [(keys::CLUSTER, cluster.as_str()), (keys::ROLE, role.as_str())] {
            changes.push((key, Change::Label { key: key.to_owned(), value: value.to_owned() }));
        }
        // A StatefulSet's pods have the names of its own Service.
        if self.parts.subdomain.is_none() {
            changes.push((keys::CLUSTER, Change::Subdomain(cluster.clone())));
        }
        // Hydra gives workers the launcher's hostname without a domain, to connect to.
        if *role == Role::Worker {
            let domain = &self.policy.mpi.cluster_domain;
            let search = format!("{cluster}.{}.svc.{domain}", self.pod.namespace);
            changes.push((keys::CLUSTER, Change::DnsSearch(search)));
        }
        if *role == Role::Launcher && self.parts.hostname.is_none() {
            changes.push((keys::CLUSTER, Change::Hostname(keys::launcher(cluster))));
        }
    }

    fn add_keys(&self, changes: &mut Vec<(&'static str, Change)>) {
        let secret = keys::secret(&self.request.cluster);
        let ssh_dir = self.request.ssh_dir(self.policy);
        if self.shows(ssh_dir, |volume| volume.name.as_str() == keys::MEMORY_VOLUME) {
            return;
        }
        let volume = |name, source| (keys::SSH_DIR, Change::Volume { name, source });
        changes.push(volume(
            keys::SECRET_VOLUME,
            json!({"secret": {"secretName": secret, "defaultMode": 0o444}}),
        ));
        changes.push(volume(
            keys::MEMORY_VOLUME,
            json!({"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}),
        ));
        let fields = self.copying();
        changes.push((keys::SSH_DIR, Change::InitContainer { name: keys::KEYS_CONTAINER, fields }));
        changes.push(self.mount(keys::SSH_DIR, keys::MEMORY_VOLUME, Some(KEYS_PART), ssh_dir));
    }

    /// The init container that copies the keys. It requests what the container does: a pod requests as much
    /// as its largest init container or all of its containers, so neither that nor its QoS class changes.
    fn copying(&self) -> Value {
        let container = self.container();
        let mut fields = json!({
            "command": ["/bin/sh", "-ec", COPY],
            "volumeMounts": [
                {"mountPath": SECRET_DIR, "name": keys::SECRET_VOLUME, "readOnly": true},
                {"mountPath": MEMORY_DIR, "name": keys::MEMORY_VOLUME},
            ],
        });
        for (field, text) in
            [("image", &container.image), ("imagePullPolicy", &container.image_pull_policy)]
        {
            if let Some(text) = text {
                fields[field] = json!(text.as_str());
            }
        }
        let context = container.security_context.map(|raw| serde_json::from_str(raw.get()));
        if let Some(Ok(context @ Value::Object(_))) = context {
            fields["securityContext"] = context;
        }
        let resources = container.resources.map(|raw| serde_json::from_str::<Value>(raw.get()));
        if let Some(Ok(resources)) = resources {
            for (of, name) in RESOURCES {
                if let Some(amount) = resources[of].get(name).filter(|amount| !amount.is_null()) {
                    fields["resources"][of][name] = amount.clone();
                }
            }
        }
        fields
    }

    fn add_config(&self, changes: &mut Vec<(&'static str, Change)>) {
        let name = keys::config_map(&self.request.cluster);
        let is_same =
            |volume: &Volume<'_>| volume.config_map.as_ref().is_some_and(|of| of.name == name);
        if self.shows(keys::CONFIG_DIR, is_same) {
            return;
        }
        let item = |key: &str, mode: u32| json!({"key": key, "path": key, "mode": mode});
        let source = json!({"configMap": {"name": name, "items": [
            item(config::HOSTFILE, 0o444),
            item(config::DISCOVER_HOSTS, 0o555),
            item(config::SSH_CONFIG, 0o444),
        ]}});
        changes.push((keys::CLUSTER, Change::Volume { name: keys::CONFIG_VOLUME, source }));
        changes.push(self.mount(keys::CLUSTER, keys::CONFIG_VOLUME, None, keys::CONFIG_DIR));
    }

    /// Returns true if the container mounts a volume at a path that `is_same` accepts.
    fn shows(&self, path: &str, is_same: impl Fn(&Volume<'_>) -> bool) -> bool {
        let mut mounts = self.container().volume_mounts.iter().flatten();
        let at_path = mounts.find(|mount| mount.mount_path.trim_end_matches('/') == path);
        let Some(mount) = at_path else { return false };
        let mut volumes = self.parts.volumes.iter().flatten();
        volumes.find(|volume| volume.name.as_str() == mount.name).is_some_and(is_same)
    }

    fn mount(
        &self,
        key: &'static str,
        volume: &'static str,
        part: Option<&'static str>,
        path: &str,
    ) -> (&'static str, Change) {
        let path = path.to_owned();
        (key, self.change(ContainerChange::Mount { volume, part, path }))
    }

    fn change(&self, change: ContainerChange) -> Change {
        Change::Container { index: self.index, change }
    }

    fn add_variables(&self, changes: &mut Vec<(&'static str, Change)>) {
        let Request { role, implementation, .. } = self.request;
        let mut variables = vec![(keys::ROLE, "K_MPI_JOB_ROLE", role.as_str().to_owned())];
        if *role == Role::Launcher {
            variables.extend(self.launching(*implementation));
        }
        for (key, name, value) in variables {
            changes.push((key, self.change(ContainerChange::Variable { name, value })));
        }
    }

    /// The variables by which a launcher finds the hostfile and reaches the workers. Each version of Open
    /// MPI ignores the names of the other one: ORTE is that of version 4, PRRTE that of version 5. Each is
    /// with the annotation by which an author says the same.
    fn launching(
        &self,
        implementation: Implementation,
    ) -> Vec<(&'static str, &'static str, String)> {
        use keys::{CLUSTER, IMPLEMENTATION, SLOTS, SSH_PORT};
        let hostfile = format!("{}/{}", keys::CONFIG_DIR, config::HOSTFILE);
        let options = config::ssh_option();
        let slots = self.request.slots.unwrap_or(1).to_string();
        let mut variables = match implementation {
            Implementation::OpenMpi => vec![
                (IMPLEMENTATION, "OMPI_MCA_orte_keep_fqdn_hostnames", "true".to_owned()),
                (CLUSTER, "OMPI_MCA_orte_default_hostfile", hostfile.clone()),
                (SSH_PORT, "OMPI_MCA_plm_rsh_args", options.clone()),
                (SLOTS, "OMPI_MCA_orte_set_default_slots", slots.clone()),
                (IMPLEMENTATION, "PRTE_MCA_prte_keep_fqdn_hostnames", "false".to_owned()),
                (CLUSTER, "PRTE_MCA_prte_default_hostfile", hostfile),
                (SSH_PORT, "PRTE_MCA_plm_ssh_args", options),
                (SLOTS, "PRTE_MCA_prte_set_default_slots", slots),
            ],
            Implementation::Intel => vec![
                (CLUSTER, "I_MPI_HYDRA_HOST_FILE", hostfile),
                (SSH_PORT, "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", options),
                (SLOTS, "I_MPI_PERHOST", slots),
            ],
            Implementation::Mpich => vec![
                (CLUSTER, "HYDRA_HOST_FILE", hostfile),
                (SSH_PORT, "HYDRA_LAUNCHER_EXTRA_ARGS", options),
            ],
        };
        // A launcher that runs no ranks needs no GPU; one whose author asks for some keeps them.
        let asks = |name: &str| {
            self.container().env.iter().flatten().any(|variable| variable.name.as_str() == name)
        };
        if !self.request.launcher_as_worker {
            let hidden = ["NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"];
            let hidden = hidden.into_iter().filter(|name| !asks(name));
            variables.extend(hidden.map(|name| (keys::LAUNCHER_AS_WORKER, name, String::new())));
        }
        variables
    }

    /// The ssh server of a worker without a command of its own, and the probe that the launcher's gate
    /// waits for.
    fn add_server(&self, changes: &mut Vec<(&'static str, Change)>) {
        let is_default = !self.server.has_command;
        if is_default && self.server.user != User::Other {
            let run = ContainerChange::Mount {
                volume: keys::MEMORY_VOLUME,
                part: Some(RUN_PART),
                path: "/run/sshd".to_owned(),
            };
            changes.push((keys::SSH_DIR, self.change(run)));
        }
        if is_default {
            let command = self.server.command(self.request, self.policy);
            changes.push((keys::ROLE, self.change(ContainerChange::Command(command))));
        }
        let probe = self.container().readiness_probe;
        if probe.is_none_or(|probe| probe.get() == "null") {
            let probe = json!({"tcpSocket": {"port": self.port()}, "periodSeconds": 2});
            changes.push((keys::ROLE, self.change(ContainerChange::ReadinessProbe(probe))));
        }
    }
}

/// Returns true if the policy allows clusters in a namespace.
pub(super) fn is_allowed(namespace: &str, view: &View, policy: &Policy) -> bool {
    missing_label(namespace, view, policy).is_none()
}

/// A label that the policy requires and a namespace does not have.
fn missing_label<'p>(
    namespace: &str,
    view: &View,
    policy: &'p Policy,
) -> Option<(&'p String, &'p String)> {
    let labels = view.namespace_labels(namespace);
    let has = |key: &str, value: &str| {
        labels.and_then(|labels| labels.get(key)).is_some_and(|own| **own == *value)
    };
    policy.mpi.namespaces.iter().find(|(key, value)| !has(key, value))
}

/// Checks whether the policy allows clusters in a namespace.
fn check_namespace(namespace: &str, view: &View, policy: &Policy) -> Result<(), Finding> {
    let Some((key, value)) = missing_label(namespace, view, policy) else { return Ok(()) };
    Err(Finding::new(
        Reason::MpiNotAllowed,
        keys::CLUSTER,
        format!(
            "the policy allows MPI clusters in namespaces labelled {key}={value}, and {namespace} is not"
        ),
        "ask the cluster's administrator (mpi.namespaces)",
    ))
}

/// Checks whether the pods of the owner can have the role: workers need stable names.
fn check_owner(metadata: &Metadata<'_>, role: Role) -> Result<(), Finding> {
    let owner = metadata.controller();
    let is = |group, kind| owner.is_some_and(|owner| owner.is(group, kind));
    let has_index = metadata.annotation(keys::COMPLETION_INDEX).is_some();
    let problem = match role {
        Role::Worker if is("apps", "StatefulSet") || is("batch", "Job") && has_index => {
            return Ok(());
        }
        Role::Launcher if owner.is_none() || is("batch", "Job") => return Ok(()),
        Role::Worker if is("batch", "Job") => {
            "the pod's Job is not Indexed, so its pods have no stable names".to_owned()
        }
        Role::Worker => match owner.and_then(|owner| owner.kind.as_ref()) {
            Some(kind) => format!("pods of a {} have no stable names", quoted(kind.as_str())),
            None => "a pod without a workload has no index".to_owned(),
        },
        Role::Launcher => "the launcher must end, and its owner starts it again".to_owned(),
    };
    let remedy = match role {
        Role::Worker => "use a StatefulSet, or a Job with completionMode: Indexed",
        Role::Launcher => "use a Job or a pod of its own",
    };
    Err(Finding::new(Reason::InvalidMpi, keys::ROLE, problem, remedy))
}

mod checks;
#[cfg(test)]
mod tests;
