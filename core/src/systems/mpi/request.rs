//! Parses the annotations of a pod of an MPI cluster into a typed request, and reports every invalid one.

use std::num::NonZero;
use std::str::FromStr;

use super::keys;
use super::policy::ROOT_SSH_DIR;
use crate::names::{is_directory, is_dns_label};
use crate::placement::pod::Pod;
use crate::placement::reason::{Finding, Reason, quoted};
use crate::systems::policy::Policy;

/// The most slots of a worker, and the most workers of a cluster.
const MOST: u32 = 99_999;

/// The part of a pod in its cluster.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Role {
    /// It runs `mpirun`.
    Launcher,
    /// It runs an ssh server.
    Worker,
}

impl Role {
    /// The word in annotations, labels and `K_MPI_JOB_ROLE`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Launcher => "launcher",
            Self::Worker => "worker",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::Launcher, Self::Worker].into_iter().find(|role| role.as_str() == text)
    }
}

/// An implementation of MPI: which variables its launcher reads, and the form of its hostfile.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Implementation {
    #[default]
    OpenMpi,
    Intel,
    Mpich,
}

impl Implementation {
    const ALL: [Self; 3] = [Self::OpenMpi, Self::Intel, Self::Mpich];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::OpenMpi => "openmpi",
            Self::Intel => "intel",
            Self::Mpich => "mpich",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|implementation| implementation.as_str() == text)
    }
}

/// The request in a pod's annotations.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Request {
    pub cluster: String,
    pub role: Role,
    /// The expected number of workers, if it is given.
    pub workers: Option<u32>,
    /// `None`: the launcher's, or 1.
    pub slots: Option<u32>,
    pub implementation: Implementation,
    /// An absolute path without a slash at its end. `None`: the policy's.
    pub ssh_dir: Option<String>,
    /// `None`: the policy's, or by the user that the workers run as.
    pub ssh_port: Option<u16>,
    /// The container that runs `mpirun` or the ssh server.
    pub container: Option<String>,
    /// The container that kubectl takes.
    pub default_container: Option<String>,
    pub launcher_as_worker: bool,
    pub clean_up: CleanUp,
}

/// The end of the workers when the launcher's Job has ended: they do not end by themselves.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum CleanUp {
    /// They stay.
    #[default]
    None,
    /// Their Job is suspended, or their StatefulSet gets no replicas.
    Workers,
}

impl Request {
    /// The directory of the keys.
    pub(crate) fn ssh_dir<'s>(&'s self, policy: &'s Policy) -> &'s str {
        self.ssh_dir.as_deref().unwrap_or(&policy.mpi.ssh_dir)
    }

    /// The port of the ssh servers, if the pod or the policy says it.
    pub(crate) fn ssh_port(&self, policy: &Policy) -> Option<u16> {
        self.ssh_port.or_else(|| policy.mpi.ssh_port.map(NonZero::get))
    }

    /// Parses the annotations of a pod. `None`: it has none of them.
    ///
    /// # Errors
    /// A finding for each invalid annotation.
    pub(crate) fn parse(pod: &Pod<'_>) -> Option<Result<Self, Vec<Finding>>> {
        Self::parse_annotations(|key| pod.annotation(key))
    }

    /// Parses the annotations of a pod template, found by their keys.
    ///
    /// # Errors
    /// A finding for each invalid annotation.
    pub(crate) fn parse_annotations<'a>(
        annotation: impl Fn(&str) -> Option<&'a str>,
    ) -> Option<Result<Self, Vec<Finding>>> {
        let is_used = keys::ANNOTATIONS.iter().any(|key| annotation(key).is_some());
        if !is_used {
            return None;
        }
        let mut findings = Vec::new();
        let mut parser = Parser { annotation: &annotation, findings: &mut findings };
        let cluster = parser.required(keys::CLUSTER, parse_cluster);
        let role = parser.required(keys::ROLE, parse_role);
        let workers = parser.optional(keys::WORKERS, |text| parse_number(text, "workers"));
        let slots = parser.optional(keys::SLOTS, |text| parse_number(text, "slots"));
        let implementation = parser.optional(keys::IMPLEMENTATION, parse_implementation);
        let ssh_dir = parser.optional(keys::SSH_DIR, parse_path);
        let ssh_port = parser.optional(keys::SSH_PORT, parse_port);
        let container = parser.optional(keys::CONTAINER, parse_container);
        let launcher_as_worker = parser.optional(keys::LAUNCHER_AS_WORKER, parse_boolean);
        let clean_up = parser.optional(keys::CLEAN_UP, parse_clean_up);
        let (Some(cluster), Some(role), true) = (cluster, role, findings.is_empty()) else {
            return Some(Err(findings));
        };
        Some(Ok(Self {
            cluster,
            role,
            workers,
            slots,
            implementation: implementation.unwrap_or_default(),
            ssh_dir,
            ssh_port,
            container,
            default_container: annotation(keys::DEFAULT_CONTAINER).map(str::to_owned),
            launcher_as_worker: launcher_as_worker.unwrap_or(false),
            clean_up: clean_up.unwrap_or_default(),
        }))
    }
}

/// The problem of a value, and what to write instead.
type Wrong = (String, String);

struct Parser<'p, F> {
    annotation: &'p F,
    findings: &'p mut Vec<Finding>,
}

impl<'a, F: Fn(&str) -> Option<&'a str>> Parser<'_, F> {
    fn optional<T>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, Wrong>,
    ) -> Option<T> {
        match parse((self.annotation)(key)?) {
            Ok(value) => Some(value),
            Err((problem, remedy)) => {
                self.findings.push(Finding::new(Reason::InvalidMpi, key, problem, remedy));
                None
            }
        }
    }

    fn required<T>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, Wrong>,
    ) -> Option<T> {
        if (self.annotation)(key).is_none() {
            let remedy = match key {
                keys::ROLE => "write launcher or worker",
                _ => "write the cluster's name: the same on launcher and workers",
            };
            self.findings.push(Finding::new(
                Reason::InvalidMpi,
                key,
                "is missing beside other keys of an MPI cluster",
                remedy,
            ));
            return None;
        }
        self.optional(key, parse)
    }
}

/// The longest name of a cluster: `NAME-launcher` is a DNS label.
const LONGEST_CLUSTER: usize = 63 - "-launcher".len();

fn parse_cluster(text: &str) -> Result<String, Wrong> {
    let is_first_letter = text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    let problem = if !is_dns_label(text) || !is_first_letter {
        "is not the name of a Service"
    } else if text.len() > LONGEST_CLUSTER {
        "is too long: the launcher's hostname would have more than 63 characters"
    } else {
        return Ok(text.to_owned());
    };
    let remedy = format!(
        "use at most {LONGEST_CLUSTER} lower-case letters, digits and -, beginning with a letter and ending with a letter or digit"
    );
    Err((format!("{} {problem}", quoted(text)), remedy))
}

/// Returns the parsed value. If there is none, returns the problem with the text, and the remedy.
fn require<T>(found: Option<T>, text: &str, problem: &str, remedy: &str) -> Result<T, Wrong> {
    found.ok_or_else(|| (format!("{} {problem}", quoted(text)), remedy.to_owned()))
}

fn parse_role(text: &str) -> Result<Role, Wrong> {
    require(Role::parse(text), text, "is no role", "write launcher or worker")
}

fn parse_implementation(text: &str) -> Result<Implementation, Wrong> {
    let remedy = "write openmpi (the default), intel or mpich";
    require(Implementation::parse(text), text, "is not known", remedy)
}

/// Parses digits, without a sign.
fn parse_digits<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

fn parse_number(text: &str, what: &str) -> Result<u32, Wrong> {
    let number = parse_digits(text).filter(|number| (1..=MOST).contains(number));
    let problem = format!("is not a number of {what}");
    require(number, text, &problem, &format!("write a whole number from 1 to {MOST}"))
}

fn parse_port(text: &str) -> Result<u16, Wrong> {
    let port = parse_digits(text).filter(|port| *port > 0);
    require(port, text, "is not a port", "write a number from 1 to 65535")
}

fn parse_path(text: &str) -> Result<String, Wrong> {
    let path = Some(text.trim_end_matches('/')).filter(|path| is_directory(path));
    let remedy = format!(
        "write an absolute path of letters, digits, ., _ and -, such as {ROOT_SSH_DIR} (the default) or /home/mpiuser/.ssh"
    );
    require(path.map(str::to_owned), text, "is not a directory", &remedy)
}

fn parse_clean_up(text: &str) -> Result<CleanUp, Wrong> {
    let clean_up = match text {
        "none" => Some(CleanUp::None),
        "workers" => Some(CleanUp::Workers),
        _ => None,
    };
    require(clean_up, text, "is not known", "write none (the default) or workers")
}

fn parse_container(text: &str) -> Result<String, Wrong> {
    let name = is_dns_label(text).then(|| text.to_owned());
    let remedy = "write the name of one of the pod's containers";
    require(name, text, "is not the name of a container", remedy)
}

fn parse_boolean(text: &str) -> Result<bool, Wrong> {
    let remedy = "write \"true\" or \"false\", in quotes";
    require(text.parse().ok(), text, "is neither true nor false", remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(annotations: &[(&str, &str)]) -> Option<Result<Request, Vec<Finding>>> {
        Request::parse_annotations(|key| {
            let key = key.strip_prefix(keys::PREFIX)?;
            annotations.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
        })
    }

    const WORKER: [(&str, &str); 2] = [("cluster", "j"), ("role", "worker")];

    #[test]
    fn each_missing_or_malformed_annotation_is_named() {
        let (long, huge) = ("a".repeat(55), "1".repeat(262_144));
        for (key, problem, values) in [
            ("cluster", "is not the name of a Service", &["", "1j", "J", "jé", "a.b"][..]),
            ("cluster", "more than 63 characters", &[&long]),
            ("role", "is no role", &["", "Worker", "master"]),
            ("workers", "is not a number of workers", &["0", "-1", "+1", " 3", "3.0", "100000"]),
            ("workers", "is not a number of workers", &[&huge]),
            ("slots", "is not a number of slots", &["0", "100000", "١"]),
            ("implementation", "is not known", &["", "OpenMPI"]),
            ("ssh-dir", "is not a directory", &["", "/", "ssh", "/a/../b", "/a//b", "/a b"]),
            ("ssh-dir", "is not a directory", &["/a;b"]),
            ("ssh-port", "is not a port", &["0", "70000", "ssh"]),
            ("container", "is not the name of a container", &["", "A"]),
            ("launcher-as-worker", "is neither true nor false", &["yes", ""]),
            ("clean-up", "is not known", &["", "all"]),
        ] {
            for value in values {
                let others = WORKER.iter().copied().filter(|(known, _)| *known != key);
                let annotations: Vec<(&str, &str)> = others.chain([(key, *value)]).collect();
                let findings = parse(&annotations).unwrap().unwrap_err();
                let [finding] = &*findings else { panic!("{key}={value:.20}: {findings:?}") };
                assert!(finding.to_string().contains(problem), "{finding}");
                assert!(finding.to_string().len() < 500, "{finding}");
            }
        }
        let findings = parse(&[("slots", "2")]).unwrap().unwrap_err();
        let subjects: Vec<&str> = findings.iter().map(|finding| &*finding.subject).collect();
        assert_eq!(subjects, [keys::CLUSTER, keys::ROLE]);
        let findings = parse(&[("cluster", "j"), ("role", "x"), ("slots", "x")]).unwrap();
        assert_eq!(findings.unwrap_err().len(), 2, "all of them at once");
    }

    #[test]
    fn valid_values_are_taken() {
        let request = parse(&[
            ("cluster", &"a".repeat(54)),
            ("role", "launcher"),
            ("workers", "3"),
            ("slots", "99999"),
            ("implementation", "mpich"),
            ("ssh-dir", "/home/mpiuser/.ssh/"),
            ("ssh-port", "65535"),
            ("container", "main"),
            ("launcher-as-worker", "true"),
            ("clean-up", "workers"),
        ]);
        let expected = Request {
            cluster: "a".repeat(54),
            role: Role::Launcher,
            workers: Some(3),
            slots: Some(99_999),
            implementation: Implementation::Mpich,
            ssh_dir: Some("/home/mpiuser/.ssh".to_owned()),
            ssh_port: Some(65_535),
            container: Some("main".to_owned()),
            default_container: None,
            launcher_as_worker: true,
            clean_up: CleanUp::Workers,
        };
        assert_eq!(request, Some(Ok(expected)));
    }
}
