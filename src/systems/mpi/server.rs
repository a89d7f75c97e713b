//! The ssh server of a worker: its port, and its command.

use super::policy::ROOT_SSH_DIR;
use super::request::Request;
use crate::placement::container::User;
use crate::systems::policy::Policy;

/// The port of ssh.
const SSH: u16 = 22;

/// The port of a server that may not run as root: other users cannot listen below 1024 everywhere.
const UNPRIVILEGED: u16 = 2222;

/// The port on which the ssh server of a worker listens. `asked`: that of its annotations or the policy.
/// `has_command`: the worker has a command or arguments of its own.
pub(crate) fn port(asked: Option<u16>, user: User, has_command: bool) -> u16 {
    match asked {
        Some(port) => port,
        // A server of the author's own listens on ssh's port unless the author says otherwise.
        None if has_command || user == User::Root => SSH,
        None => UNPRIVILEGED,
    }
}

/// The command of the ssh server. Another user than root cannot read the host's keys, use PAM or write
/// the PID file; with these options the server works for root too.
pub(crate) fn command(request: &Request, user: User, policy: &Policy) -> Vec<String> {
    let dir = request.ssh_dir(policy);
    let mut command = vec!["/usr/sbin/sshd".to_owned(), "-De".to_owned()];
    let mut option = |flag: &str, value: String| command.extend([flag.to_owned(), value]);
    if user != User::Root {
        option("-h", format!("{dir}/id_ed25519"));
        option("-o", "UsePAM=no".to_owned());
        option("-o", "PidFile=none".to_owned());
    }
    if user != User::Root || dir != ROOT_SSH_DIR {
        option("-o", format!("AuthorizedKeysFile={dir}/authorized_keys"));
    }
    let port = port(request.ssh_port(policy), user, false);
    if port != SSH {
        option("-p", port.to_string());
    }
    command
}
