//! The files of a cluster's ConfigMap: which hosts it has, and how ssh reaches them. They follow from the
//! workloads, never from the pods that run: a hostfile that changes while a launcher reads it would be
//! wrong either way.

use std::collections::BTreeMap;

use super::keys::CONFIG_DIR;
use super::request::Implementation;

/// The hosts of Open MPI's `--hostfile`, Intel MPI's and MPICH's `-f`.
pub(crate) const HOSTFILE: &str = "hostfile";
/// Prints the hosts, for Horovod's elastic mode.
pub(crate) const DISCOVER_HOSTS: &str = "discover_hosts.sh";
/// The options of ssh, by `-F`.
pub(crate) const SSH_CONFIG: &str = "ssh_config";

/// The most bytes of all values of a ConfigMap (Kubernetes).
pub(crate) const MOST_BYTES: usize = 1_048_576;

/// A host of a cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Host {
    /// `spec.hostname` of its pod.
    pub hostname: String,
    /// The Service of its DNS name.
    pub service: String,
    pub slots: u32,
    /// The port of its ssh server; `None`: it is the launcher, which has none.
    pub port: Option<u16>,
}

/// Where the pods of a cluster are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Domain<'d> {
    pub namespace: &'d str,
    /// The DNS domain of the Kubernetes cluster.
    pub domain: &'d str,
}

impl Domain<'_> {
    /// The full DNS name: the search path of resolvers tries short names in several domains, and the
    /// kubelet writes this name into a pod's own hosts file.
    pub(crate) fn name_of(self, host: &Host) -> String {
        let Self { namespace, domain } = self;
        format!("{}.{}.{namespace}.svc.{domain}", host.hostname, host.service)
    }
}

/// The values of the ConfigMap.
///
/// # Errors
/// The number of bytes, if a ConfigMap cannot have as many.
pub(crate) fn data(
    hosts: &[Host],
    implementation: Implementation,
    ssh_dirs: &[&str],
    domain: Domain<'_>,
) -> Result<BTreeMap<String, String>, usize> {
    let mut hostfile = String::new();
    let mut discover = "#!/bin/sh\n".to_owned();
    for host in hosts {
        let name = domain.name_of(host);
        let slots = host.slots;
        hostfile.push_str(&match implementation {
            Implementation::OpenMpi => format!("{name} slots={slots}\n"),
            Implementation::Intel | Implementation::Mpich => format!("{name}:{slots}\n"),
        });
        discover.push_str(&format!("echo {name}:{slots}\n"));
    }
    let data = [
        (HOSTFILE, hostfile),
        (DISCOVER_HOSTS, discover),
        (SSH_CONFIG, ssh_config(hosts, ssh_dirs, domain)),
    ];
    let bytes = data.iter().map(|(_, text)| text.len()).sum();
    if bytes > MOST_BYTES {
        return Err(bytes);
    }
    Ok(data.into_iter().map(|(key, text)| (key.to_owned(), text)).collect())
}

/// The options of ssh. The keys of the hosts are not known in advance, and a host that takes the cluster's
/// key is a member of the cluster.
fn ssh_config(hosts: &[Host], ssh_dirs: &[&str], domain: Domain<'_>) -> String {
    let mut text = String::new();
    // The first value of an option counts, so the hosts with another port come first.
    let mut counts: BTreeMap<u16, usize> = BTreeMap::new();
    for port in hosts.iter().filter_map(|host| host.port) {
        *counts.entry(port).or_default() += 1;
    }
    let usual = counts.iter().max_by_key(|(_, count)| **count).map(|(port, _)| *port);
    for host in hosts {
        if let Some(port) = host.port.filter(|port| Some(*port) != usual) {
            text.push_str(&format!("Host {}\n  Port {port}\n", domain.name_of(host)));
        }
    }
    text.push_str("Host *\n");
    if let Some(port) = usual {
        text.push_str(&format!("  Port {port}\n"));
    }
    for dir in ssh_dirs {
        text.push_str(&format!("  IdentityFile {dir}/id_ed25519\n"));
    }
    text.push_str(
        "  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n  ConnectionAttempts 10\n",
    );
    text
}

/// The option by which a launcher's ssh reads [`SSH_CONFIG`].
pub(crate) fn ssh_option() -> String {
    format!("-F {CONFIG_DIR}/{SSH_CONFIG}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(hostname: &str, service: &str, slots: u32, port: u16) -> Host {
        let (hostname, service) = (hostname.to_owned(), service.to_owned());
        Host { hostname, service, slots, port: Some(port) }
    }

    const DOMAIN: Domain<'_> = Domain { namespace: "tenant-a", domain: "cluster.local" };

    #[test]
    fn indexes_are_in_numeric_order_and_a_hostfile_that_is_too_large_is_refused() {
        let of = |count: usize| {
            let hosts: Vec<Host> =
                (0..count).map(|index| host(&format!("w-{index}"), "j", 10, 22)).collect();
            data(&hosts, Implementation::Intel, &[], DOMAIN)
        };
        let data = of(12).unwrap();
        let last =
            ["w-9", "w-10", "w-11"].map(|of| format!("{of}.j.tenant-a.svc.cluster.local:10"));
        assert_eq!(data[HOSTFILE].lines().skip(9).collect::<Vec<_>>(), last);
        let bytes = of(20_000).unwrap_err();
        assert!(bytes > MOST_BYTES, "{bytes}");
    }

    #[test]
    fn ssh_knows_the_port_of_each_host() {
        let launcher = Host { port: None, ..host("l", "j", 1, 22) };
        let hosts =
            [launcher, host("w-0", "j", 1, 2222), host("w-1", "j", 1, 2222), host("x", "j", 1, 22)];
        let data = data(&hosts, Implementation::OpenMpi, &["/root/.ssh"], DOMAIN).unwrap();
        let ports = "Host x.j.tenant-a.svc.cluster.local\n  Port 22\nHost *\n  Port 2222\n";
        assert!(data[SSH_CONFIG].starts_with(ports), "{}", data[SSH_CONFIG]);
    }
}
