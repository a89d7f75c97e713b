//! Refuses pods whose launcher would not reach its workers, although all of them would be Ready.

use super::Member;
use crate::placement::container::User;
use crate::placement::reason::{Finding, Reason, quoted};
use crate::systems::mpi::keys;
use crate::systems::mpi::request::Role;
use crate::systems::mpi::server;

/// The home directory of root.
const ROOT_HOME: &str = "/root";

/// The policy with which pods with hostNetwork know the names of Services.
const HOST_NETWORK_DNS: &str = "ClusterFirstWithHostNet";

impl Member<'_> {
    /// Checks what the pod says beside its annotations.
    ///
    /// # Errors
    /// Returns the reason why ssh would fail.
    pub(super) fn check(&self) -> Result<(), Finding> {
        self.check_directory()?;
        if self.request.role == Role::Worker {
            self.check_port()?;
        }
        if self.parts.host_network { self.check_network() } else { Ok(()) }
    }

    /// Checks that the user can read the keys: only root can look into its home directory.
    fn check_directory(&self) -> Result<(), Finding> {
        let dir = self.request.ssh_dir(self.policy);
        let is_of_root = dir == ROOT_HOME || dir.starts_with(&format!("{ROOT_HOME}/"));
        if self.server.user != User::Other || !is_of_root {
            return Ok(());
        }
        Err(Finding::new(
            Reason::InvalidMpi,
            keys::SSH_DIR,
            format!(
                "{} cannot be read in {}, which does not run as root",
                quoted(dir),
                self.named()
            ),
            "write the .ssh directory of its user, such as /home/mpiuser/.ssh, on launcher and workers",
        ))
    }

    /// Checks that the annotation and the command of the container do not contradict each other.
    fn check_port(&self) -> Result<(), Finding> {
        let told = &self.server.told;
        let (Some(asked), Some(first)) = (self.request.ssh_port, told.first()) else {
            return Ok(());
        };
        if told.contains(&asked) {
            return Ok(());
        }
        Err(Finding::new(
            Reason::InvalidMpi,
            keys::SSH_PORT,
            format!("is {asked}, and the command of {} gives sshd the port {first}", self.named()),
            "write the port of the command, or remove the annotation",
        ))
    }

    /// Checks a pod with hostNetwork: it must know the names of the cluster, and the port of its server
    /// must be free on its node.
    fn check_network(&self) -> Result<(), Finding> {
        let policy = self.parts.dns_policy.as_ref().map_or("ClusterFirst", |of| of.as_str());
        if policy != HOST_NETWORK_DNS {
            return Err(Finding::new(
                Reason::InvalidMpi,
                keys::CLUSTER,
                format!(
                    "the pod has hostNetwork and the dnsPolicy {}, so it does not know the names of the cluster",
                    quoted(policy)
                ),
                format!("write dnsPolicy: {HOST_NETWORK_DNS}"),
            ));
        }
        if self.request.role == Role::Launcher {
            return Ok(());
        }
        let port = self.port();
        if port == server::SSH {
            return Err(Finding::new(
                Reason::InvalidMpi,
                keys::SSH_PORT,
                "the port is 22, which a pod with hostNetwork shares with the ssh server of its node",
                "write another port, and declare it in the container's ports as hostPort",
            ));
        }
        let is_port = |own: i32| own == i32::from(port);
        // Where hostPort is missing, Kubernetes sets it in a pod with hostNetwork.
        let mut declared = self.container().ports.iter().flatten();
        if declared.any(|of| is_port(of.container_port) && of.host_port.is_none_or(is_port)) {
            return Ok(());
        }
        Err(Finding::new(
            Reason::InvalidMpi,
            keys::SSH_PORT,
            format!(
                "the pod has hostNetwork, and {} does not declare the port {port} of its ssh server, so two of them may be on one node",
                self.named()
            ),
            format!("write containerPort: {port} and hostPort: {port} in the container's ports"),
        ))
    }

    /// The container, for messages.
    fn named(&self) -> String {
        format!("container {}", quoted(self.container().name.as_str()))
    }
}
