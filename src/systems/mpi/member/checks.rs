//! Refuses pods whose launcher would not reach its workers, although all of them would be Ready.

use super::Member;
use crate::placement::container::User;
use crate::placement::reason::{Finding, Reason, quoted};
use crate::systems::mpi::keys;
use crate::systems::mpi::request::Role;

/// The home directory of root.
const ROOT_HOME: &str = "/root";

impl Member<'_> {
    /// Checks what the pod says beside its annotations.
    ///
    /// # Errors
    /// Why ssh would fail.
    pub(super) fn check(&self) -> Result<(), Finding> {
        self.check_directory()?;
        match self.request.role {
            Role::Worker => self.check_port(),
            Role::Launcher => Ok(()),
        }
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

    /// The container, for messages.
    fn named(&self) -> String {
        format!("container {}", quoted(self.container().name.as_str()))
    }
}
