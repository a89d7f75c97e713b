//! What a decision may know of the cluster: plain projections of objects, never the objects.
//!
//! A View is fed by [`View::apply`], from watches (`cluster`) or from files (`cli`); both see the
//! same objects in the same way. Look-ups are by index, so that a decision costs the same in a
//! cluster of ten nodes and of ten thousand.

pub mod host_pool;
pub mod node;
pub mod object;
pub mod streams_pod;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;

pub use host_pool::HostPool;
pub use node::Node;
pub use object::Object;
pub use streams_pod::StreamsPod;

/// A namespaced name.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Name {
    /// The namespace.
    pub namespace: Box<str>,
    /// The name in it.
    pub name: Box<str>,
}

impl Name {
    /// `name` in `namespace`.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

/// An object that a decision can wait for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Key {
    /// A HostPool.
    HostPool(Name),
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HostPool(Name { namespace, name }) => write!(formatter, "HostPool {namespace}/{name}"),
        }
    }
}

/// What is known of the cluster.
#[derive(Debug, Default)]
pub struct View {
    nodes: HashMap<Box<str>, Node>,
    /// Hostname and InternalDNS addresses, in lower case, to node names.
    host_names: Index<Box<str>>,
    /// Internal and external addresses to node names.
    addresses: Index<IpAddr>,
    /// Tag labels, as `key` or `key=value`, to node names.
    tags: Index<Box<str>>,
    namespaces: HashMap<Box<str>, BTreeMap<Box<str>, Box<str>>>,
    host_pools: HashMap<Name, HostPool>,
    streams_pods: HashMap<Name, StreamsPod>,
    /// Colocation labels to the pods that carry them.
    colocation: Index<ColocationKey, Name>,
}

/// Namespace, label key and label value of a colocation group.
type ColocationKey = (Box<str>, Box<str>, Box<str>);

/// Names under a key; no key without a name.
#[derive(Debug)]
struct Index<K, V = Box<str>>(HashMap<K, BTreeSet<V>>);

impl<K, V> Default for Index<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + std::hash::Hash, V: Ord + Clone> Index<K, V> {
    fn add(&mut self, keys: impl IntoIterator<Item = K>, name: &V) {
        for key in keys {
            self.0.entry(key).or_default().insert(name.clone());
        }
    }

    fn remove(&mut self, keys: impl IntoIterator<Item = K>, name: &V) {
        for key in keys {
            if let Some(names) = self.0.get_mut(&key) {
                names.remove(name);
                if names.is_empty() {
                    self.0.remove(&key);
                }
            }
        }
    }
}

impl View {
    /// Takes in an object, new or changed.
    pub fn apply(&mut self, object: Object) {
        match object {
            Object::Node(name, node) => {
                self.remove_node(&name);
                self.host_names.add(node.host_names.iter().cloned(), &name);
                self.addresses.add(node.addresses.iter().copied(), &name);
                self.tags.add(node.tags.iter().cloned(), &name);
                self.nodes.insert(name, node);
            }
            Object::Namespace(name, labels) => {
                self.namespaces.insert(name, labels);
            }
            Object::HostPool(name, pool) => {
                self.host_pools.insert(name, pool);
            }
            Object::StreamsPod(name, pod) => {
                self.remove_streams_pod(&name);
                self.colocation.add(pod.colocation_keys(&name.namespace), &name);
                self.streams_pods.insert(name, pod);
            }
        }
    }

    /// Forgets a node.
    pub fn remove_node(&mut self, name: &str) {
        if let Some((name, node)) = self.nodes.remove_entry(name) {
            self.host_names.remove(node.host_names.iter().cloned(), &name);
            self.addresses.remove(node.addresses.iter().copied(), &name);
            self.tags.remove(node.tags.iter().cloned(), &name);
        }
    }

    /// Forgets a namespace.
    pub fn remove_namespace(&mut self, name: &str) {
        self.namespaces.remove(name);
    }

    /// Forgets a HostPool.
    pub fn remove_host_pool(&mut self, name: &Name) {
        self.host_pools.remove(name);
    }

    /// Forgets a Streams pod.
    pub fn remove_streams_pod(&mut self, name: &Name) {
        if let Some(pod) = self.streams_pods.remove(name) {
            self.colocation.remove(pod.colocation_keys(&name.namespace), name);
        }
    }

    /// The node of this name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// The nodes whose Hostname or InternalDNS address is `name`, whatever its case (RFC 4343).
    pub fn nodes_with_host_name(&self, name: &str) -> impl Iterator<Item = &str> {
        self.host_names.0.get(name.to_ascii_lowercase().as_str()).into_iter().flatten().map(|n| &**n)
    }

    /// The nodes with this InternalIP or ExternalIP.
    pub fn nodes_with_address(&self, address: IpAddr) -> impl Iterator<Item = &str> {
        self.addresses.0.get(&address).into_iter().flatten().map(|n| &**n)
    }

    /// Whether one node carries all of these tags (see [`node::tag`]).
    #[must_use]
    pub fn has_node_with_tags(&self, tags: &[Box<str>]) -> bool {
        let sets: Option<Vec<_>> = tags.iter().map(|tag| self.tags.0.get(tag)).collect();
        let Some((smallest, others)) = sets.and_then(|mut sets| {
            sets.sort_unstable_by_key(|set| set.len());
            sets.split_first().map(|(first, rest)| (*first, rest.to_vec()))
        }) else {
            return false;
        };
        smallest.iter().any(|node| others.iter().all(|set| set.contains(node)))
    }

    /// The labels of a namespace, once it is known.
    #[must_use]
    pub fn namespace_labels(&self, name: &str) -> Option<&BTreeMap<Box<str>, Box<str>>> {
        self.namespaces.get(name)
    }

    /// A HostPool, once it is known.
    #[must_use]
    pub fn host_pool(&self, name: &Name) -> Option<&HostPool> {
        self.host_pools.get(name)
    }

    /// The nodes on which pods of a colocation group are: those with this label and, where `job` is
    /// given, of this job. Finished pods do not count, as they do not for the scheduler.
    #[must_use]
    pub fn colocation_nodes(
        &self,
        namespace: &str,
        label: (&str, &str),
        job: Option<&str>,
    ) -> BTreeSet<&str> {
        let key: ColocationKey = (namespace.into(), label.0.into(), label.1.into());
        self.colocation
            .0
            .get(&key)
            .into_iter()
            .flatten()
            .filter_map(|name| self.streams_pods.get(name))
            .filter(|pod| !pod.finished && job.is_none_or(|job| pod.job.as_deref() == Some(job)))
            .filter_map(|pod| pod.node.as_deref())
            .collect()
    }

    /// How many objects of each kind are held, by plural name.
    #[must_use]
    pub fn counts(&self) -> [(&'static str, usize); 4] {
        [
            ("nodes", self.nodes.len()),
            ("namespaces", self.namespaces.len()),
            ("hostpools", self.host_pools.len()),
            ("pods", self.streams_pods.len()),
        ]
    }
}
