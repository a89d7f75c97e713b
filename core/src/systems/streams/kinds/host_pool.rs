//! The table of HostPools: the spec of each, parsed into one of the possible forms.

use std::fmt;
use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::tags::{NO_TAGS, Tags};
use crate::api as group;
use crate::api::condition::{Condition, READY, Status, find};
use crate::names::{is_label_name, short_digest};
use crate::placement::reason::quoted;
use crate::systems::check::words::counted;
use crate::systems::streams::api;
use crate::systems::streams::api::host_pool::{
    Exclusivity, HostPoolSpec, HostPoolStatus, MAX_HOSTS,
};
use crate::view::rows::{Rows, TableRow};
use crate::view::table::Definition;
use crate::view::{Identity, Kind, Scope};

use crate::systems::streams::resources::HOST_POOL;

pub(crate) const HOST_POOLS: Kind = Kind {
    definition: Definition::Own,
    without: Some("decisions assume that there are no pools"),
    unserved: Some("the cluster does not know HostPools: stowplan is not installed in it"),
    across_namespaces: true,
    ..Kind::built_in(HOST_POOL)
};

/// The prefix of the node label by which a pod finds the members of a pool; the pool's hash
/// follows, and the value is the member's index. Kubelets may not edit labels there.
pub const POOL_LABEL_PREFIX: &str = "pool.stowplan.node-restriction.kubernetes.io/";

/// Returns the key of the node label of the pool with this hash.
pub(crate) fn pool_label(hash: &str) -> String {
    [POOL_LABEL_PREFIX, hash].concat()
}

/// The taint of the nodes of an exclusive pool; its value is the pool's hash, its effect
/// NoSchedule.
///
/// cluster-autoscaler leaves taints with this prefix out of the template that it makes of a node.
/// With any other key, one exclusive node would stop the scale-up of its whole node group.
pub const EXCLUSIVE_TAINT: &str =
    "status-taint.cluster-autoscaler.kubernetes.io/stowplan-exclusive";

/// The key of that taint in earlier releases. The pods that they admitted tolerate no other.
pub(crate) const FORMER_EXCLUSIVE_TAINT: &str = "stowplan.dev/exclusive";

/// The keys that the taint of an exclusive pool may have.
pub(crate) const EXCLUSIVE_TAINTS: [&str; 2] = [EXCLUSIVE_TAINT, FORMER_EXCLUSIVE_TAINT];

/// The effect of that taint: it does not evict pods that already run there.
pub(crate) const EXCLUSIVE_EFFECT: &str = "NoSchedule";

/// The fields of a HostPool that decisions read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct HostPool {
    pub identity: Identity,
    /// The ten characters that identify the pool in the labels and taints of nodes. `None` if the
    /// object has no UID, because it is not created yet.
    pub hash: Option<Box<str>>,
    /// The form, or why it is invalid, as the end of a sentence that begins with the pool. The
    /// CRD's schema refuses most invalid specs, but does not validate files and objects older than
    /// the schema.
    pub form: Result<Form, String>,
    /// True if the object can be decoded. If not, perhaps because a newer release wrote it, neither
    /// spec nor status is known, and their defaults here mean nothing.
    pub readable: bool,
    /// True if no other job may use its hosts.
    pub exclusive: bool,
    /// The name and UID of the StreamsJob that owns it.
    pub job: Option<(Box<str>, Box<str>)>,
    pub status: HostPoolStatus,
}

/// The forms of a pool (Streams design, "Hostpools").
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Form {
    /// `hosts`: exactly these, in this order.
    Literal(Box<[Host]>),
    /// Unsized, with tags: every node that has all of them.
    Tagged(Tags),
    /// Unsized, without tags: every node.
    Any,
    /// Sized: this many nodes that have all of the tags. The controller chooses them.
    Sized(u32, Tags),
}

impl HostPool {
    /// Returns true if the controller labels the pool's hosts, so that pods find them by the label.
    pub(crate) fn is_labelled(&self) -> bool {
        self.exclusive || matches!(self.form, Ok(Form::Sized(..)))
    }

    /// The number of its hosts; 0 if it is unlimited or the form is invalid.
    pub(crate) fn size(&self) -> u32 {
        self.form.as_ref().ok().and_then(Form::size).unwrap_or_default()
    }

    /// The condition Ready, if the controller has set it.
    pub(crate) fn ready_condition(&self) -> Option<&Condition> {
        find(&self.status.conditions, READY)
    }

    /// The reason why it is not ready, as its condition says; `None` if it is ready, or if the controller has
    /// not set the condition.
    pub(crate) fn unready_reason(&self) -> Option<String> {
        let ready = self.ready_condition().filter(|ready| ready.status != Status::True)?;
        Some(format!("{} ({})", ready.message, ready.reason))
    }

    /// Returns true if both are pools of one StreamsJob.
    pub(crate) fn is_of_job_of(&self, other: &Self) -> bool {
        let jobs = self.job.as_ref().zip(other.job.as_ref());
        jobs.is_some_and(|((_, one), (_, two))| one == two)
    }
}

impl Form {
    /// The number of hosts; `None`: it is unlimited.
    pub(crate) fn size(&self) -> Option<u32> {
        match self {
            Self::Sized(size, _) => Some(*size),
            Self::Literal(hosts) => u32::try_from(hosts.len()).ok(),
            Self::Tagged(_) | Self::Any => None,
        }
    }

    /// The tags that its hosts must have.
    pub(crate) fn tags(&self) -> &Tags {
        match self {
            Self::Tagged(tags) | Self::Sized(_, tags) => tags,
            Self::Literal(_) | Self::Any => &NO_TAGS,
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(hosts) => formatter.write_str(&counted(hosts.len(), "listed host"))?,
            Self::Tagged(_) | Self::Any => formatter.write_str("every node")?,
            Self::Sized(size, _) => formatter.write_str(&counted(to_usize(*size), "node"))?,
        }
        write!(formatter, "{}", self.tags())
    }
}

/// The number of hosts of a pool, and their indices: `2 hosts, with the indices 0 to 1`.
pub(crate) fn format_indices(hosts: usize) -> String {
    match hosts {
        1 => "1 host, with the index 0".to_owned(),
        all => format!("{all} hosts, with the indices 0 to {}", all.saturating_sub(1)),
    }
}

/// The size of a pool as a count.
pub(crate) fn to_usize(size: u32) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

/// The [`hash`] of a pool, if it has a UID.
pub(crate) fn hash_of(metadata: &ObjectMeta) -> Option<Box<str>> {
    let uid = metadata.uid.as_deref().filter(|uid| !uid.is_empty())?;
    Some(hash(uid).into())
}

/// The ten characters that identify a pool on nodes: the start of the hexadecimal SHA-256 of its
/// UID.
#[must_use]
pub fn hash(uid: &str) -> String {
    short_digest(uid)
}

/// A host, as authors name it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Host {
    /// A node's name, or its Hostname or InternalDNS address.
    Name(Box<str>),
    /// A node's InternalIP or ExternalIP.
    Address(IpAddr),
}

impl Host {
    /// Parses a name or an address.
    ///
    /// # Errors
    /// The problem, as the end of a sentence that begins with the value.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Address(address.to_canonical()));
        }
        if text.is_empty() {
            return Err("is empty");
        }
        if text.trim() != text {
            return Err("has white space at its ends");
        }
        if text.len() > 253 {
            return Err("is longer than 253 characters");
        }
        if text.contains("://") {
            return Err("is a URL (write only the name or address of its host)");
        }
        if let Some((host, port)) = text.split_once(':')
            && !host.is_empty()
            && !host.starts_with('[')
            && !port.is_empty()
            && port.bytes().all(|b| b.is_ascii_digit())
        {
            return Err("has a port (write only the name or address before it)");
        }
        if text.contains(':') {
            return Err("is not an IPv6 address (write it without brackets, zone or port)");
        }
        // 10.04.40.83 or 10.4.40.999: a mistyped address, which no node has as its name.
        if text.bytes().all(|b| b.is_ascii_digit() || b == b'.') && text.contains('.') {
            return Err("is not an IPv4 address (four numbers of 0 to 255 without leading zeros)");
        }
        let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
        let bytes = text.as_bytes();
        let ends = [bytes.first(), bytes.last()];
        if !text.bytes().all(inner) || !ends.into_iter().flatten().all(u8::is_ascii_alphanumeric) {
            return Err("is neither a host name nor an IP address");
        }
        Ok(Self::Name(text.into()))
    }
}

impl From<&api::HostPool> for HostPool {
    fn from(pool: &api::HostPool) -> Self {
        let owners = pool.metadata.owner_references.iter().flatten();
        let job = owners
            // References keep the version in which they were written.
            .filter(|owner| owner.kind == "StreamsJob" && group::is_of_group(&owner.api_version))
            .find(|owner| owner.controller == Some(true))
            .map(|owner| (owner.name.as_str().into(), owner.uid.as_str().into()));
        Self {
            identity: Identity::from(&pool.metadata),
            hash: hash_of(&pool.metadata),
            form: form(&pool.spec),
            readable: true,
            exclusive: pool.spec.exclusivity == Exclusivity::Exclusive,
            job,
            status: pool.status.clone().unwrap_or_default(),
        }
    }
}

pub(crate) type HostPools = Rows<HostPool>;

impl TableRow for HostPool {
    type Object = api::HostPool;
    const KIND: &'static Kind = &HOST_POOLS;
    const COUNTED_AS: Option<&'static str> = Some("hostpools");

    fn from_object(pool: &api::HostPool, _: Scope) -> Option<Self> {
        Some(Self::from(pool))
    }

    fn from_unreadable(metadata: &ObjectMeta, problem: &str) -> Option<Self> {
        Some(Self {
            identity: Identity::from(metadata),
            hash: hash_of(metadata),
            form: Err(format!("cannot be read: {problem}")),
            readable: false,
            exclusive: false,
            job: None,
            status: HostPoolStatus::default(),
        })
    }

    fn identity(&self) -> Option<&Identity> {
        Some(&self.identity)
    }
}

/// Parses the form of a pool.
///
/// # Errors
/// The problem, as the end of a sentence that begins with the pool.
pub(crate) fn form(spec: &HostPoolSpec) -> Result<Form, String> {
    let exclusive = spec.exclusivity == Exclusivity::Exclusive;
    if let Some(hosts) = &spec.hosts {
        if spec.size.is_some() || spec.tags.is_some() {
            return Err("has hosts beside size or tags".to_owned());
        }
        if hosts.is_empty() || hosts.len() > MAX_HOSTS {
            return Err(format!("has {} hosts, and 1 to {MAX_HOSTS} are allowed", hosts.len()));
        }
        let mut members: Vec<Host> = Vec::with_capacity(hosts.len());
        for (index, text) in hosts.iter().enumerate() {
            let host = Host::parse(text).map_err(|problem| {
                format!("has hosts[{index}], {}, which {problem}", quoted(text))
            })?;
            if members.contains(&host) {
                return Err(format!("has hosts[{index}] twice"));
            }
            members.push(host);
        }
        return Ok(Form::Literal(members.into()));
    }
    if spec.size == Some(0) {
        return Err("has size 0".to_owned());
    }
    let tags = Tags::new(spec.tags.iter().flatten().map(String::as_str));
    if let Some(tag) = tags.names.iter().find(|tag| !is_label_name(tag)) {
        return Err(format!("has the tag {}, which is not a label name", quoted(tag)));
    }
    match spec.size {
        Some(size) => Ok(Form::Sized(size, tags)),
        None if exclusive => Err("is Exclusive without size or hosts".to_owned()),
        None if tags.is_empty() => Ok(Form::Any),
        None => Ok(Form::Tagged(tags)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_parsed_and_an_address_is_the_same_in_every_notation() {
        for name in ["foo.watson.ibm.com", "n1", "Node-1", "a_b", "1", "10-4-40-83"] {
            assert_eq!(Host::parse(name), Ok(Host::Name(name.into())), "{name}");
        }
        let wanted = Host::Address("10.4.40.83".parse().unwrap());
        for text in ["10.4.40.83", "::ffff:10.4.40.83", "::ffff:0a04:2853"] {
            assert_eq!(Host::parse(text).as_ref(), Ok(&wanted), "{text}");
        }
        assert_eq!(Host::parse("2001:DB8::0001"), Host::parse("2001:db8:0:0::1"));
    }

    /// An owner reference keeps the version in which it was written.
    #[test]
    fn a_job_is_an_owner_in_every_version_of_the_group() {
        let owner_of = |api_version: &str| {
            let owners = json!([{"apiVersion": api_version, "kind": "StreamsJob", "name": "j",
                "uid": "u", "controller": true}]);
            let pool = json!({"apiVersion": "stowplan.dev/v1alpha1", "kind": "HostPool",
                "metadata": {"name": "p", "ownerReferences": owners}, "spec": {}});
            let pool: api::HostPool = serde_json::from_value(pool).unwrap();
            HostPool::from(&pool).job.is_some()
        };
        let own = ["stowplan.dev/v1alpha1", "stowplan.dev/v1beta1", "stowplan.dev/v1"];
        assert!(own.into_iter().all(owner_of));
        let foreign = ["example.com/v1alpha1", "v1", "stowplan.dev", "", "mpi.stowplan.dev/v1"];
        assert!(!foreign.into_iter().any(owner_of));
    }

    #[test]
    fn text_that_is_neither_a_name_nor_an_address_is_refused() {
        let long = "a".repeat(254);
        let short = [
            "", " ", "foo bar", " n1", "n1\n", "-n1", "n1-", "n1.", "10.4.40", "[::1]", "n1:22",
            "n1:", ":22", "é", "a/b", "{}", "n1,n2", "\u{0}",
        ];
        let others = ["10.04.40.83", "10.4.40.999", &long];
        for text in short.into_iter().chain(others) {
            assert!(Host::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn ports_urls_and_mistyped_addresses_are_told_apart() {
        for (text, word) in [
            ("10.4.40.81:8080", "has a port"),
            ("node-1:80", "has a port"),
            ("http://node-1", "is a URL"),
            ("http://node-1:80/x", "is a URL"),
            ("[::1]:80", "is not an IPv6 address"),
            ("fe80::1%eth0", "is not an IPv6 address"),
            ("1::2::3", "is not an IPv6 address"),
            ("node-1:http", "is not an IPv6 address"),
        ] {
            let problem = Host::parse(text).unwrap_err();
            assert!(problem.starts_with(word), "{text}: {problem}");
        }
        let spec = serde_json::from_str(r#"{"hosts":["a","node-1:80"]}"#).unwrap();
        let expected = r#"has hosts[1], "node-1:80", which has a port"#;
        assert!(form(&spec).unwrap_err().starts_with(expected));
    }

    #[test]
    fn invalid_forms_are_refused() {
        let refused = json!([
            {"hosts": []}, {"hosts": ["a", "a"]}, {"hosts": ["10.8.5.6", "::ffff:10.8.5.6"]}, {"hosts": ["a b"]},
            {"hosts": ["a"], "size": 1}, {"hosts": ["a"], "tags": ["x"]}, {"size": 0}, {"tags": ["a b"]},
            {"tags": [""]}, {"exclusivity": "Exclusive"}, {"tags": ["ib"], "exclusivity": "Exclusive"},
        ]);
        for bad in refused.as_array().unwrap() {
            let spec: HostPoolSpec = serde_json::from_value(bad.clone()).unwrap();
            assert!(form(&spec).is_err(), "{bad}");
        }
    }
}
