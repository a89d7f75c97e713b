//! What is kept of a Node.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;

use super::estate::NodeEstate;
use super::host_pool::EXCLUSIVE_TAINT;

/// The node label of a pool with one tag: `streams.ibm.com/hostpool=<tag>` (Streams design, "Any
/// host from a hostpool").
pub const TAG_KEY: &str = "streams.ibm.com/hostpool";

/// The prefix of the node labels of pools with several tags. One key holds one value, and tags are
/// conjunctive, so each tag is a key of its own.
pub const TAG_PREFIX: &str = "hostpool.streams.ibm.com/";

/// A node: how it can be named, and its tags.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Node {
    /// Hostname and InternalDNS addresses, in lower case.
    pub host_names: Box<[Box<str>]>,
    /// InternalIP and ExternalIP addresses, canonical.
    pub addresses: Box<[IpAddr]>,
    /// Tag labels: `key=value` under [`TAG_KEY`], bare keys under [`TAG_PREFIX`]. Shared by the nodes
    /// that carry the same.
    pub tags: Arc<[Box<str>]>,
    /// The exclusive pool, by hash, whose taint it carries.
    pub exclusive: Option<Box<str>>,
    /// `spec.unschedulable`.
    pub cordoned: bool,
    /// What only the controller keeps.
    pub estate: Option<Box<NodeEstate>>,
}

impl Node {
    /// What is known of a label: `None` where that is nothing, as of most in a View that keeps no estates,
    /// and `Some(None)` where the node does not have it.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<Option<&str>> {
        if let Some(estate) = &self.estate {
            return Some(estate.labels.get(key).map(AsRef::as_ref));
        }
        let mut tags = self.tags.iter();
        if key == TAG_KEY {
            return Some(tags.find_map(|tag| tag.strip_prefix(TAG_KEY)?.strip_prefix('=')));
        }
        // Of these the keys are kept, and not their values.
        let is_absent = key.starts_with(TAG_PREFIX) && !tags.any(|tag| **tag == *key);
        is_absent.then_some(None)
    }
}

/// A tag as the View's index writes it: the one tag of a pool, or one of several.
#[must_use]
pub fn tag(name: &str, alone: bool) -> Box<str> {
    if alone { format!("{TAG_KEY}={name}").into() } else { format!("{TAG_PREFIX}{name}").into() }
}

/// An address in the form in which two spellings are equal: an IPv4 address mapped into IPv6 is the
/// IPv4 address (RFC 4291, section 2.5.5.2).
#[must_use]
pub fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

impl From<&core::Node> for Node {
    fn from(node: &core::Node) -> Self {
        let mut host_names: Vec<Box<str>> = Vec::new();
        let mut addresses = Vec::new();
        let status = node.status.as_ref();
        for entry in status.and_then(|status| status.addresses.as_ref()).into_iter().flatten() {
            match entry.type_.as_str() {
                "Hostname" | "InternalDNS" => {
                    host_names.push(entry.address.to_ascii_lowercase().into())
                }
                // An address that does not parse names no host that anybody can ask for.
                "InternalIP" | "ExternalIP" => {
                    addresses.extend(entry.address.parse().ok().map(canonical));
                }
                _ => {}
            }
        }
        host_names.sort_unstable();
        host_names.dedup();
        addresses.sort_unstable();
        addresses.dedup();
        let labels = node.metadata.labels.iter().flatten();
        let tags = labels
            .filter_map(|(key, value)| match key.as_str() {
                TAG_KEY => Some(tag(value, true)),
                _ if key.starts_with(TAG_PREFIX) => Some(key.as_str().into()),
                _ => None,
            })
            .collect();
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
        let exclusive = taints
            .into_iter()
            .flatten()
            .find(|taint| taint.key == EXCLUSIVE_TAINT)
            .and_then(|taint| taint.value.as_deref())
            .map(Into::into);
        Self {
            host_names: host_names.into(),
            addresses: addresses.into(),
            tags,
            exclusive,
            cordoned: node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default(),
            estate: None,
        }
    }
}
