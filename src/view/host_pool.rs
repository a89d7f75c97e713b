//! What is kept of a HostPool: its spec, read once into the one of its forms that it has.

use std::fmt;
use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::digest;
use super::estate::Identity;
use super::node::canonical;
use crate::api;
use crate::api::host_pool::{Exclusivity, HostPoolSpec, HostPoolStatus, MAX_HOSTS};

/// The prefix of the node label by which a pod finds the members of a pool; the pool's hash follows,
/// and the value is the member's index. Kubelets may not edit labels there.
pub const POOL_LABEL_PREFIX: &str = "pool.stowplan.node-restriction.kubernetes.io/";

/// The taint of the nodes of an exclusive pool; its value is the pool's hash, its effect NoSchedule.
pub const EXCLUSIVE_TAINT: &str = "stowplan.dev/exclusive";

/// A HostPool as a decision sees it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HostPool {
    /// Who it is.
    pub identity: Identity,
    /// The ten characters that stand for the pool on nodes. `None` where it has no UID yet.
    pub hash: Option<Box<str>>,
    /// What the pool is, or what is wrong with it. The CRD's schema refuses most of that at the API
    /// server; files, and objects older than the schema, come here unchecked.
    pub form: Result<Form, String>,
    /// Whether the object decodes. Of one that does not, perhaps because a newer release wrote it,
    /// neither spec nor status is known: nothing may be concluded from their absence.
    pub readable: bool,
    /// Whether no other job may use its hosts.
    pub exclusive: bool,
    /// The StreamsJob that owns it: name and UID.
    pub job: Option<(Box<str>, Box<str>)>,
    /// What the controller last wrote.
    pub status: HostPoolStatus,
}

/// The forms of a pool (Streams design, "Hostpools").
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Form {
    /// `hosts`: these, in this order.
    Literal(Box<[Host]>),
    /// Unsized, with tags: every node that carries them all.
    Tagged(Box<[Box<str>]>),
    /// Unsized, without tags: every node.
    Any,
    /// Sized: so many nodes that carry all the tags; the controller picks them.
    Sized(u32, Box<[Box<str>]>),
}

impl HostPool {
    /// Whether the controller labels the pool's hosts, so that pods find them by the label.
    #[must_use]
    pub fn is_labelled(&self) -> bool {
        self.exclusive || matches!(self.form, Ok(Form::Sized(..)))
    }
}

impl fmt::Display for Form {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tagged = |tags: &[Box<str>]| {
            if tags.is_empty() { String::new() } else { format!(" tagged {}", tags.join(" and ")) }
        };
        match self {
            Self::Literal(hosts) => write!(formatter, "{} listed hosts", hosts.len()),
            Self::Tagged(tags) => write!(formatter, "every node{}", tagged(tags)),
            Self::Any => formatter.write_str("every node"),
            Self::Sized(size, tags) => write!(formatter, "{size} nodes{}", tagged(tags)),
        }
    }
}

/// The ten characters that stand for a pool, where it has a UID.
#[must_use]
pub fn hash_of(metadata: &ObjectMeta) -> Option<Box<str>> {
    let uid = metadata.uid.as_deref().filter(|uid| !uid.is_empty())?;
    Some(hash(uid).into())
}

/// The ten characters that stand for a pool, by its UID: the start of the SHA-256 in hexadecimal.
#[must_use]
pub fn hash(uid: &str) -> String {
    digest::ten(uid)
}

/// A host as an author names it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Host {
    /// A node's name, or its Hostname or InternalDNS address.
    Name(Box<str>),
    /// A node's InternalIP or ExternalIP.
    Address(IpAddr),
}

impl Host {
    /// Reads a name or an address.
    ///
    /// # Errors
    /// What is wrong, as the end of a sentence that begins with the value.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(canonical(address)));
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
        if text.contains(':') {
            return Err("is not an IPv6 address (write it without brackets, zone or port)");
        }
        // 10.04.40.83 or 10.4.40.999: meant as an address, and no node is called that.
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
            .filter(|owner| owner.api_version == api::VERSION && owner.kind == "StreamsJob")
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

/// The form of a pool.
///
/// # Errors
/// What is wrong with it, as the end of a sentence that begins with the pool.
pub fn form(spec: &HostPoolSpec) -> Result<Form, String> {
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
            let host = Host::parse(text)
                .map_err(|problem| format!("has hosts[{index}], which {problem}"))?;
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
    let tags: Vec<Box<str>> = spec.tags.iter().flatten().map(|tag| tag.as_str().into()).collect();
    if let Some(tag) = tags.iter().find(|tag| !is_label_name(tag)) {
        return Err(format!("has the tag {tag:?}, which is no label name"));
    }
    match spec.size {
        Some(size) => Ok(Form::Sized(size, tags.into())),
        None if exclusive => Err("is Exclusive without size or hosts".to_owned()),
        None if tags.is_empty() => Ok(Form::Any),
        None => Ok(Form::Tagged(tags.into())),
    }
}

/// Whether `text` is a label name and a label value: at most 63 of `[A-Za-z0-9._-]`, alphanumeric
/// at its ends (Kubernetes, "Labels and Selectors").
#[must_use]
pub fn is_label_name(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    let bytes = text.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes.iter().copied().all(inner)
        && [bytes.first(), bytes.last()].into_iter().flatten().all(u8::is_ascii_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_in_every_spelling() {
        let wanted = Host::Address("10.4.40.83".parse().unwrap());
        assert_eq!(Host::parse("10.4.40.83"), Ok(wanted.clone()));
        assert_eq!(Host::parse("::ffff:10.4.40.83"), Ok(wanted.clone()));
        assert_eq!(Host::parse("::ffff:0a04:2853"), Ok(wanted));
        assert_eq!(Host::parse("2001:DB8::0001"), Host::parse("2001:db8:0:0::1"));
    }

    #[test]
    fn names_are_read() {
        for name in ["foo.watson.ibm.com", "n1", "Node-1", "a_b", "1", "10-4-40-83"] {
            assert_eq!(Host::parse(name), Ok(Host::Name(name.into())), "{name}");
        }
    }

    #[test]
    fn what_is_neither_is_refused() {
        let long = "a".repeat(254);
        for text in [
            "",
            " ",
            "foo bar",
            " n1",
            "n1\n",
            "-n1",
            "n1-",
            "n1.",
            "10.04.40.83",
            "10.4.40.999",
            "10.4.40",
            "[::1]",
            "fe80::1%eth0",
            "n1:22",
            "é",
            "a/b",
            "{}",
            "n1,n2",
            "\u{0}",
            &long,
        ] {
            assert!(Host::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_six_legal_forms_and_the_others() {
        let spec = |json: &str| form(&serde_json::from_str::<HostPoolSpec>(json).unwrap());
        let sized = |tags: &[&str]| Ok(Form::Sized(10, tags.iter().map(|&t| t.into()).collect()));
        assert_eq!(spec(r#"{"size":10,"tags":["ib","blue"]}"#), sized(&["ib", "blue"]));
        assert_eq!(spec(r#"{"size":10,"tags":["ib"],"exclusivity":"Exclusive"}"#), sized(&["ib"]));
        assert_eq!(spec(r#"{"size":10}"#), sized(&[]));
        assert_eq!(spec(r#"{"size":10,"exclusivity":"Exclusive"}"#), sized(&[]));
        assert_eq!(spec(r#"{"tags":["ib"]}"#), Ok(Form::Tagged(["ib".into()].into())));
        assert_eq!(spec("{}"), Ok(Form::Any));
        assert!(matches!(spec(r#"{"hosts":["a","10.8.5.6"]}"#), Ok(Form::Literal(_))));
        assert!(matches!(
            spec(r#"{"hosts":["a"],"exclusivity":"Exclusive"}"#),
            Ok(Form::Literal(_))
        ));
        for bad in [
            r#"{"hosts":[]}"#,
            r#"{"hosts":["a","a"]}"#,
            r#"{"hosts":["10.8.5.6","::ffff:10.8.5.6"]}"#,
            r#"{"hosts":["a b"]}"#,
            r#"{"hosts":["a"],"size":1}"#,
            r#"{"hosts":["a"],"tags":["x"]}"#,
            r#"{"size":0}"#,
            r#"{"tags":["a b"]}"#,
            r#"{"tags":[""]}"#,
            r#"{"exclusivity":"Exclusive"}"#,
            r#"{"tags":["ib"],"exclusivity":"Exclusive"}"#,
        ] {
            assert!(spec(bad).is_err(), "{bad}");
        }
    }
}
