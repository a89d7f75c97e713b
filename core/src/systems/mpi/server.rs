//! The ssh server of a worker: its port, and its command.

use super::policy::ROOT_SSH_DIR;
use super::request::Request;
use crate::placement::container::User;
use crate::systems::policy::Policy;

/// The port of ssh.
pub(super) const SSH: u16 = 22;

/// The port of a server that may not run as root: other users cannot listen below 1024 everywhere.
const UNPRIVILEGED: u16 = 2222;

/// The ssh server of a container, as far as the container says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Server {
    pub user: User,
    /// True if the container has a command or arguments of its own.
    pub has_command: bool,
    /// The ports that they give to `sshd`.
    pub told: Vec<u16>,
}

impl Server {
    /// The server of a container with this user, command and arguments.
    pub(super) fn new<'w>(user: User, command: impl Iterator<Item = &'w str>) -> Self {
        let command: Vec<&str> = command.collect();
        let told = command.join(" ");
        Self { user, has_command: !command.is_empty(), told: ports_of(&told) }
    }

    /// Returns the port on which it listens.
    pub(super) fn port(&self, request: &Request, policy: &Policy) -> u16 {
        let own = request.ssh_port.or_else(|| self.told.first().copied());
        own.or_else(|| request.ssh_port(policy)).unwrap_or(match self.user {
            User::Root => SSH,
            // A server of the author's own, of a user that only the image names.
            User::OfImage if self.has_command => SSH,
            User::OfImage | User::Other => UNPRIVILEGED,
        })
    }

    /// Returns true if nobody says the port of the author's own server, and it can hardly be the usual one.
    pub(super) fn is_port_guessed(&self, request: &Request, policy: &Policy) -> bool {
        let is_said = request.ssh_port(policy).is_some() || !self.told.is_empty();
        self.has_command && self.user == User::Other && !is_said
    }

    /// The command of the ssh server. Another user than root cannot read the host's keys, use PAM or write
    /// the PID file; with these options the server works for root too.
    pub(super) fn command(&self, request: &Request, policy: &Policy) -> Vec<String> {
        let dir = request.ssh_dir(policy);
        let mut command = vec!["/usr/sbin/sshd".to_owned(), "-De".to_owned()];
        let mut option = |flag: &str, value: String| command.extend([flag.to_owned(), value]);
        if self.user != User::Root {
            option("-h", format!("{dir}/id_ed25519"));
            option("-o", "UsePAM=no".to_owned());
            option("-o", "PidFile=none".to_owned());
        }
        if self.user != User::Root || dir != ROOT_SSH_DIR {
            option("-o", format!("AuthorizedKeysFile={dir}/authorized_keys"));
        }
        let port = self.port(request, policy);
        if port != SSH {
            option("-p", port.to_string());
        }
        command
    }
}

/// The options of sshd without a value.
const SWITCHES: [char; 10] = ['4', '6', 'D', 'd', 'e', 'G', 'i', 'q', 'T', 't'];

/// Returns the ports that a command gives to `sshd`, which may be in a script for a shell.
fn ports_of(command: &str) -> Vec<u16> {
    let mut ports = Vec::new();
    for simple in command.split(['\n', ';', '&', '|', '(', ')']) {
        let mut words = simple.split_whitespace().map(|word| word.trim_matches(['"', '\'']));
        let is_server = |word: &str| word.rsplit('/').next() == Some("sshd");
        if !words.any(is_server) {
            continue;
        }
        while let Some(word) = words.next() {
            let Some(option) = word.strip_prefix('-') else { continue };
            let mut option = option.trim_start_matches(SWITCHES).chars();
            let Some(name) = option.next() else { continue };
            let attached = option.as_str();
            let value = if attached.is_empty() { words.next() } else { Some(attached) };
            let value = value.unwrap_or_default();
            let port = match name {
                'p' => Some(value),
                'o' => value.strip_prefix("Port=").or_else(|| value.strip_prefix("port=")),
                _ => None,
            };
            ports.extend(port.and_then(|port| port.parse::<u16>().ok()).filter(|port| *port > 0));
        }
    }
    ports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ports_of_a_command_are_those_of_its_ssh_server() {
        for (command, ports) in [
            ("/usr/sbin/sshd -D -p 2222", &[2222][..]),
            ("mkdir -p /var/run/sshd; exec /usr/sbin/sshd -Dep2222; sleep 5", &[2222]),
            ("mkdir -p 22 /run/sshd && sshd -f -p -oPort=2200 -o Port=2201 -h /k", &[2200, 2201]),
            ("sshd -D -p \"2222\"", &[2222]),
            ("sshd -p $PORT -p 0 -p 70000 -p", &[]),
            ("/entrypoint -p 2222", &[]),
            ("sshd-session -p 2222", &[]),
            ("sshd -D & mpid -p 2222", &[]),
        ] {
            assert_eq!(ports_of(command), ports, "{command}");
        }
    }
}
