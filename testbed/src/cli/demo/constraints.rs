//! Checks whether the nodes of the pods meet their host constraints.
//!
//! The checks are written from the definition of the host constraints and do not read any label or
//! affinity of stowplan.

use std::collections::{BTreeMap, BTreeSet};

/// The host constraints, in alphabetical order.
pub(super) const KINDS: [&str; 5] =
    ["host", "host-colocation", "host-exlocation", "host-isolation", "host-pool"];

/// The pod of a processing element with its node.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) name: String,
    pub(super) job: String,
    pub(super) pe: String,
    /// Kinds (of [`KINDS`]) and values.
    pub(super) constraints: Vec<(String, String)>,
    pub(super) node: String,
    pub(super) why: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) addresses: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub(super) name: String,
    pub(super) hosts: Vec<String>,
    pub(super) tags: Vec<String>,
}

impl Host {
    fn is(&self, name_or_address: &str) -> bool {
        self.name == name_or_address || self.addresses.iter().any(|own| own == name_or_address)
    }

    /// A host has a tag by the value of a common label, or by a separate label for the tag.
    fn has_tag(&self, tag: &str) -> bool {
        self.labels.get("streams.ibm.com/hostpool").is_some_and(|value| value == tag)
            || self.labels.contains_key(&format!("hostpool.streams.ibm.com/{tag}"))
    }
}

impl Pool {
    /// Whether the pool contains the host; with an `index`, as in `pool[index]`, at this position.
    fn has(&self, host: &Host, index: Option<usize>) -> bool {
        match index {
            Some(index) => self.hosts.get(index).is_some_and(|member| host.is(member)),
            None if self.hosts.is_empty() => self.tags.iter().all(|tag| host.has_tag(tag)),
            None => self.hosts.iter().any(|member| host.is(member)),
        }
    }
}

/// The kinds of constraints of the pods, in alphabetical order.
pub(super) fn kinds(pods: &[Placed]) -> Vec<&str> {
    let kinds: BTreeSet<_> =
        pods.iter().flat_map(|pod| pod.constraints.iter().map(|(kind, _)| kind.as_str())).collect();
    kinds.into_iter().collect()
}

/// Describes each constraint that is not met in one line.
pub(super) fn unmet(pods: &[Placed], hosts: &[Host], pools: &[Pool]) -> Vec<String> {
    let mut lines = Vec::new();
    for pod in pods {
        for (kind, value) in &pod.constraints {
            if let Err(problem) = check(pod, kind, value, pods, hosts, pools) {
                lines.push(format!("{} on {}: {kind}: {value}: {problem}", pod.name, pod.node));
            }
        }
    }
    lines
}

fn check(
    pod: &Placed,
    kind: &str,
    value: &str,
    pods: &[Placed],
    hosts: &[Host],
    pools: &[Pool],
) -> Result<(), String> {
    let host = hosts.iter().find(|host| host.name == pod.node).ok_or("no such node")?;
    let job_mates = || pods.iter().filter(|other| other.job == pod.job && other.name != pod.name);
    let with_same_constraint = || {
        job_mates().filter(|other| other.constraints.iter().any(|(k, v)| k == kind && v == value))
    };
    let unless = |problem: &str, holds: bool| {
        if holds { Ok(()) } else { Err(problem.to_owned()) }
    };
    match kind {
        "host" => unless("that is another host", host.is(value)),
        "host-pool" => {
            let (name, index) = match value.strip_suffix(']').and_then(|v| v.split_once('[')) {
                Some((name, index)) => {
                    (name, Some(index.parse().map_err(|_| "not an index".to_owned())?))
                }
                None => (value, None),
            };
            let pool = pools.iter().find(|pool| pool.name == name).ok_or("no such pool")?;
            unless("not in the pool", pool.has(host, index))
        }
        "host-colocation" | "host-exlocation" if with_same_constraint().next().is_none() => {
            Err("no other pod has that constraint, so it has no effect".to_owned())
        }
        "host-colocation" => {
            unless("not together", with_same_constraint().all(|other| other.node == pod.node))
        }
        "host-exlocation" => {
            unless("not apart", with_same_constraint().all(|other| other.node != pod.node))
        }
        "host-isolation" => unless("not alone", job_mates().all(|other| other.node != pod.node)),
        _ => Err("a constraint that the demo cannot check".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, node: &str, kind: &str, value: &str) -> Placed {
        Placed {
            name: name.to_owned(),
            job: "job".to_owned(),
            pe: name.to_owned(),
            constraints: vec![(kind.to_owned(), value.to_owned())],
            node: node.to_owned(),
            why: Vec::new(),
        }
    }

    fn hosts() -> Vec<Host> {
        let host = |name: &str| Host {
            name: name.to_owned(),
            labels: [("streams.ibm.com/hostpool".to_owned(), format!("tag-{name}"))].into(),
            addresses: vec![format!("address-{name}")],
        };
        vec![host("a"), host("b")]
    }

    fn holds(pods: &[Placed]) -> bool {
        let pool = |name: &str, hosts: &[&str], tags: &[&str]| Pool {
            name: name.to_owned(),
            hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
            tags: tags.iter().map(|&tag| tag.to_owned()).collect(),
        };
        let pools = [pool("named", &["b", "address-a"], &[]), pool("tagged", &[], &["tag-a"])];
        unmet(pods, &hosts(), &pools).is_empty()
    }

    #[test]
    fn hosts_and_pools_match_by_name_address_and_tag_and_nothing_unknown_is_met() {
        for (node, kind, value, is_met) in [
            ("a", "host", "a", true),
            ("a", "host", "address-a", true),
            ("b", "host", "address-a", false),
            ("a", "host-pool", "tagged", true),
            ("b", "host-pool", "tagged", false),
            ("b", "host-pool", "named", true),
            ("a", "host-pool", "named[1]", true),
            ("b", "host-pool", "named[1]", false),
            ("a", "host-pool", "named[2]", false),
            ("a", "host-pool", "unknown", false),
            ("a", "host-colocation", "x", false),
            ("a", "host-nearness", "x", false),
            ("missing", "host", "missing", false),
        ] {
            assert_eq!(holds(&[pod("p", node, kind, value)]), is_met, "{node} {kind}={value}");
        }
    }

    #[test]
    fn colocation_exlocation_and_isolation_are_checked() {
        let pair = |kind, one, two| [pod("p", one, kind, "x"), pod("q", two, kind, "x")];
        assert!(holds(&pair("host-colocation", "a", "a")));
        assert!(!holds(&pair("host-colocation", "a", "b")));
        assert!(holds(&pair("host-exlocation", "a", "b")));
        assert!(!holds(&pair("host-exlocation", "a", "a")));
        assert!(!holds(&pair("host-isolation", "a", "a")));
        assert!(holds(&pair("host-isolation", "a", "b")));
        // Equal tokens in different jobs are unrelated.
        let mut other_job = pod("q", "b", "host-colocation", "x");
        other_job.job = "other".to_owned();
        assert!(!holds(&[pod("p", "a", "host-colocation", "x"), other_job]));
    }
}
