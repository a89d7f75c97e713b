//! What a decision may know of the cluster: plain projections of objects, never the objects.
//!
//! A View is fed by [`View::apply`], from watches (`cluster`) or from files (`cli`); both see the
//! same objects in the same way. Look-ups are by index, so that a decision costs the same in a
//! cluster of ten nodes and of ten thousand.

mod coscheduled;
pub mod digest;
mod document;
pub mod estate;
pub mod host_pool;
mod index;
pub mod member;
pub mod node;
pub mod object;
pub mod owner;
pub mod pipeline;
pub mod pipeline_run;
pub mod placeholder;
pub mod resources;
pub mod selector;
pub mod storage;
pub mod streams_job;
pub mod streams_pod;
pub mod task_run;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use coscheduled::Coscheduled;
pub use coscheduled::{NodeUsage, TaskCounts};
pub use estate::{Identity, NodeEstate, PodEstate};
pub use host_pool::HostPool;
use index::{Index, Texts};
pub use member::Member;
pub use node::Node;
pub use object::{Namespace, Object, Pod, Usage};
pub use owner::Owner;
pub use pipeline::NamedPipeline;
pub use pipeline_run::PipelineRun;
pub use placeholder::{Placeholder, PlaceholderPod};
pub use resources::Resources;
pub use storage::{Claim, StorageClass, Volume};
pub use streams_job::StreamsJob;
pub use streams_pod::StreamsPod;
pub use task_run::TaskRun;

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
    /// A StreamsJob.
    StreamsJob(Name),
    /// A TaskRun.
    TaskRun(Name),
    /// A PipelineRun.
    PipelineRun(Name),
    /// A Pipeline.
    Pipeline(Name),
    /// A PersistentVolumeClaim.
    Claim(Name),
    /// A StorageClass.
    StorageClass(Box<str>),
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, Name { namespace, name }) = match self {
            Self::HostPool(name) => ("HostPool", name),
            Self::StreamsJob(name) => ("StreamsJob", name),
            Self::TaskRun(name) => ("TaskRun", name),
            Self::PipelineRun(name) => ("PipelineRun", name),
            Self::Pipeline(name) => ("Pipeline", name),
            Self::Claim(name) => ("PersistentVolumeClaim", name),
            Self::StorageClass(name) => return write!(formatter, "StorageClass {name}"),
        };
        write!(formatter, "{kind} {namespace}/{name}")
    }
}

/// What is known of the cluster.
///
/// Ten thousand nodes and ten times as many pods are held at a few hundred bytes each: what many
/// share (jobs, groups, sets of tags, node names) is held once.
#[derive(Debug, Default)]
pub struct View {
    nodes: HashMap<Arc<str>, Node>,
    /// Hostname and InternalDNS addresses, in lower case, to the names of nodes that are called
    /// otherwise.
    host_names: Index<Box<str>>,
    /// Internal and external addresses to node names.
    addresses: Index<IpAddr>,
    /// The sets of tags that nodes carry, and how many nodes carry each. Sets are few, however many
    /// nodes there are.
    tag_sets: HashMap<Arc<[Box<str>]>, usize>,
    namespaces: HashMap<Box<str>, Namespace>,
    host_pools: HashMap<Name, HostPool>,
    streams_jobs: HashMap<Name, StreamsJob>,
    streams_pods: HashMap<Name, Placed>,
    /// Where the pods of each colocation group are. A group without a pod is not here.
    groups: HashMap<Arc<Group>, Vec<Seat>>,
    texts: Texts,
    coscheduled: Coscheduled,
}

/// A colocation group: the pods of a namespace with one colocation label.
#[derive(Debug, Eq, Hash, PartialEq)]
struct Group {
    namespace: Box<str>,
    key: Box<str>,
    value: Box<str>,
}

/// A node on which pods of a group and a job are.
#[derive(Debug)]
struct Seat {
    job: Option<Arc<str>>,
    node: Arc<str>,
    pods: usize,
}

/// What a Streams pod adds to its groups, so that it can be taken back.
#[derive(Debug)]
struct Placed {
    job: Option<Arc<str>>,
    /// `None` where it holds no place: not bound yet, or ended.
    node: Option<Arc<str>>,
    groups: Box<[Arc<Group>]>,
    estate: Option<Box<PodEstate>>,
}

impl View {
    /// Takes in an object, new or changed.
    pub fn apply(&mut self, object: Object) {
        match object {
            Object::Node(name, node) => {
                self.remove_node(&name);
                self.add_node(name.into(), node);
            }
            Object::Namespace(name, namespace) => {
                self.namespaces.insert(name, namespace);
            }
            Object::HostPool(name, pool) => {
                self.host_pools.insert(name, pool);
            }
            Object::StreamsJob(name, job) => {
                self.streams_jobs.insert(name, job);
            }
            Object::StreamsPod(name, pod) => {
                self.remove_streams_pod(&name);
                self.add_streams_pod(name, pod);
            }
            Object::TaskRun(name, run) => self.coscheduled.add_task_run(name, run),
            Object::PipelineRun(name, run) => self.coscheduled.add_pipeline_run(name, *run),
            Object::Pipeline(name, pipeline) => self.coscheduled.add_pipeline(name, pipeline),
            Object::Claim(name, claim) => self.coscheduled.add_claim(name, *claim),
            Object::StorageClass(name, class) => self.coscheduled.add_storage_class(name, *class),
            Object::Volume(name, volume) => self.coscheduled.add_volume(name, volume),
            Object::Placeholder(name, placeholder) => {
                self.coscheduled.add_placeholder(name, *placeholder);
            }
            Object::PlaceholderPod(name, pod) => self.coscheduled.add_placeholder_pod(name, *pod),
            Object::Member(name, member) => self.coscheduled.add_member(name, *member),
            Object::Pod(name, pod) => {
                self.remove_pod(&name);
                let Pod { streams, placeholder, member, usage, claims } = *pod;
                self.coscheduled.add_mounts(&name, &claims);
                if let Some(streams) = streams {
                    self.add_streams_pod(name.clone(), streams);
                }
                if let Some(placeholder) = placeholder {
                    self.coscheduled.add_placeholder_pod(name.clone(), placeholder);
                }
                if let Some(member) = member {
                    self.coscheduled.add_member(name.clone(), member);
                }
                if let Some(usage) = usage {
                    self.coscheduled.add_usage(name, usage);
                }
            }
        }
    }

    /// Forgets a pod in all that it is.
    pub fn remove_pod(&mut self, name: &Name) {
        self.remove_streams_pod(name);
        self.remove_placeholder_pod(name);
        self.remove_member(name);
        self.coscheduled.remove_usage(name);
        self.coscheduled.remove_mounts(name);
    }

    /// Takes in what the API server answered to a write of ours, so that the next look already knows
    /// of it. Nothing happens where the object is gone meanwhile, or is known in a later version.
    pub fn learn(&mut self, object: Object) {
        if self.version_of(&object).is_some_and(|known| !is_older(&object, known)) {
            self.apply(object);
        }
    }

    /// Whether a later version of `object` is known already: what a watch says late.
    #[must_use]
    pub fn outdates(&self, object: &Object) -> bool {
        self.version_of(object).is_some_and(|known| is_older(object, known))
    }

    /// The version of `object` that is known.
    fn version_of(&self, object: &Object) -> Option<&Identity> {
        match object {
            Object::Node(name, _) => Some(&self.nodes.get(&**name)?.estate.as_ref()?.identity),
            Object::Namespace(..) | Object::StorageClass(..) | Object::Volume(..) => None,
            Object::HostPool(name, _) => Some(&self.host_pools.get(name)?.identity),
            Object::StreamsJob(name, _) => Some(&self.streams_jobs.get(name)?.identity),
            Object::StreamsPod(name, _) => self.version_of_streams_pod(name),
            Object::TaskRun(name, _) => Some(&self.task_run(name)?.identity),
            Object::PipelineRun(name, _) => Some(&self.pipeline_run(name)?.identity),
            Object::Pipeline(name, _) => Some(&self.pipeline(name)?.identity),
            Object::Claim(name, _) => Some(&self.claim(name)?.identity),
            Object::Placeholder(name, _) => Some(&self.placeholder(name)?.identity),
            Object::PlaceholderPod(name, _) => self.coscheduled.version_of_placeholder_pod(name),
            Object::Member(name, _) => Some(&self.member(name)?.identity),
            Object::Pod(name, _) => self
                .version_of_streams_pod(name)
                .or_else(|| self.coscheduled.version_of_placeholder_pod(name))
                .or_else(|| Some(&self.member(name)?.identity)),
        }
    }

    fn version_of_streams_pod(&self, name: &Name) -> Option<&Identity> {
        Some(&self.streams_pods.get(name)?.estate.as_ref()?.identity)
    }

    fn add_node(&mut self, name: Arc<str>, mut node: Node) {
        self.host_names.add(node.host_names.iter().filter(|host| ***host != *name).cloned(), &name);
        self.addresses.add(node.addresses.iter().copied(), &name);
        let known = self.tag_sets.get_key_value(&node.tags).map(|(set, _)| Arc::clone(set));
        node.tags = known.unwrap_or(node.tags);
        *self.tag_sets.entry(Arc::clone(&node.tags)).or_default() += 1;
        self.nodes.insert(name, node);
    }

    /// Forgets a node.
    pub fn remove_node(&mut self, name: &str) {
        let Some(node) = self.nodes.remove(name) else { return };
        self.host_names
            .remove(node.host_names.iter().filter(|host| ***host != *name).cloned(), name);
        self.addresses.remove(node.addresses.iter().copied(), name);
        if let Entry::Occupied(mut set) = self.tag_sets.entry(node.tags) {
            *set.get_mut() -= 1;
            if *set.get() == 0 {
                set.remove();
            }
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

    /// Forgets a StreamsJob.
    pub fn remove_streams_job(&mut self, name: &Name) {
        self.streams_jobs.remove(name);
    }

    fn add_streams_pod(&mut self, name: Name, pod: StreamsPod) {
        // A pod of no group is only counted.
        let grouped = !pod.colocation.is_empty();
        let job = pod.job.as_deref().filter(|_| grouped).map(|job| self.texts.hold(job));
        let node = pod.node.as_deref().filter(|_| grouped && !pod.finished);
        let node = node.map(|node| self.texts.hold(node));
        let groups = pod.colocation.iter().map(|(key, value)| {
            let group =
                Group { namespace: name.namespace.clone(), key: key.clone(), value: value.clone() };
            let known = self.groups.get_key_value(&group).map(|(group, _)| Arc::clone(group));
            let group = known.unwrap_or_else(|| Arc::new(group));
            let seats = self.groups.entry(Arc::clone(&group)).or_default();
            if let Some(node) = &node {
                match seats.iter_mut().find(|seat| seat.node == *node && seat.job == job) {
                    Some(seat) => seat.pods += 1,
                    None => {
                        // Nearly every group is on one node.
                        seats.reserve_exact(1);
                        seats.push(Seat { job: job.clone(), node: Arc::clone(node), pods: 1 });
                    }
                }
            }
            group
        });
        let groups = groups.collect();
        self.streams_pods.insert(name, Placed { job, node, groups, estate: pod.estate });
    }

    /// Forgets a Streams pod.
    pub fn remove_streams_pod(&mut self, name: &Name) {
        let Some(Placed { job, node, groups, .. }) = self.streams_pods.remove(name) else { return };
        for group in groups {
            let Some(seats) = self.groups.get_mut(&group) else { continue };
            let seat =
                seats.iter().position(|seat| Some(&seat.node) == node.as_ref() && seat.job == job);
            if let Some(seat) = seat {
                seats[seat].pods -= 1;
                if seats[seat].pods == 0 {
                    seats.swap_remove(seat);
                }
            }
            // The map's own and the one at hand: no other pod has it.
            if Arc::strong_count(&group) == 2 {
                self.groups.remove(&group);
            }
        }
        self.texts.release(job);
        self.texts.release(node);
    }

    /// The node of this name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// The nodes whose Hostname or InternalDNS address is `name`, whatever its case (RFC 4343).
    pub fn nodes_with_host_name(&self, name: &str) -> impl Iterator<Item = &str> {
        let name = name.to_ascii_lowercase();
        let own = self
            .nodes
            .get_key_value(&*name)
            .filter(|(_, node)| node.host_names.iter().any(|host| **host == *name));
        let mut nodes: Vec<&str> = own.map(|(name, _)| &**name).into_iter().collect();
        nodes.extend(self.host_names.get(&*name));
        nodes.sort_unstable();
        nodes.into_iter()
    }

    /// The nodes with this InternalIP or ExternalIP.
    pub fn nodes_with_address(&self, address: IpAddr) -> impl Iterator<Item = &str> {
        self.addresses.get(&address)
    }

    /// Whether one node carries all of these tags (see [`node::tag`]).
    #[must_use]
    pub fn has_node_with_tags(&self, tags: &[Box<str>]) -> bool {
        self.tag_sets.keys().any(|set| tags.iter().all(|tag| set.contains(tag)))
    }

    /// How many nodes carry all of these tags (see [`node::tag`]); without a tag, how many there are.
    #[must_use]
    pub fn nodes_with_tags(&self, tags: &[Box<str>]) -> usize {
        let sets = self.tag_sets.iter();
        sets.filter(|(set, _)| tags.iter().all(|tag| set.contains(tag)))
            .map(|(_, nodes)| nodes)
            .sum()
    }

    /// The labels of a namespace, once it is known.
    #[must_use]
    pub fn namespace_labels(&self, name: &str) -> Option<&BTreeMap<Box<str>, Box<str>>> {
        self.namespaces.get(name).map(|namespace| &namespace.labels)
    }

    /// The annotation `stowplan.dev/coschedule` of a namespace, as it is.
    #[must_use]
    pub fn namespace_mode(&self, name: &str) -> Option<&str> {
        self.namespaces.get(name)?.mode.as_deref()
    }

    /// A HostPool, once it is known.
    #[must_use]
    pub fn host_pool(&self, name: &Name) -> Option<&HostPool> {
        self.host_pools.get(name)
    }

    /// Every HostPool.
    pub fn host_pools(&self) -> impl Iterator<Item = (&Name, &HostPool)> {
        self.host_pools.iter()
    }

    /// A StreamsJob, once it is known.
    #[must_use]
    pub fn streams_job(&self, name: &Name) -> Option<&StreamsJob> {
        self.streams_jobs.get(name)
    }

    /// Every StreamsJob.
    pub fn streams_jobs(&self) -> impl Iterator<Item = (&Name, &StreamsJob)> {
        self.streams_jobs.iter()
    }

    /// Every node with its name.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.nodes.iter().map(|(name, node)| (&**name, node))
    }

    /// The Streams pods of which the controller's part is kept.
    pub fn pods(&self) -> impl Iterator<Item = (&Name, &PodEstate)> {
        self.streams_pods.iter().filter_map(|(name, pod)| Some((name, pod.estate.as_deref()?)))
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
        let group =
            Group { namespace: namespace.into(), key: label.0.into(), value: label.1.into() };
        let seats = self.groups.get(&group).into_iter().flatten();
        seats
            .filter(|seat| job.is_none_or(|job| seat.job.as_deref() == Some(job)))
            .map(|seat| &*seat.node)
            .collect()
    }

    /// How many objects of each kind are held, by plural name.
    #[must_use]
    pub fn counts(&self) -> [(&'static str, usize); 14] {
        let [task_runs, runs, pipelines, claims, classes, volumes, placeholders, members, bound] =
            self.coscheduled.counts();
        [
            ("nodes", self.nodes.len()),
            ("namespaces", self.namespaces.len()),
            ("hostpools", self.host_pools.len()),
            ("streamsjobs", self.streams_jobs.len()),
            ("pods", self.streams_pods.len()),
            task_runs,
            runs,
            pipelines,
            claims,
            classes,
            volumes,
            placeholders,
            members,
            bound,
        ]
    }
}

/// Whether `object` is an older version of what is known.
fn is_older(object: &Object, known: &Identity) -> bool {
    object.identity().is_some_and(|own| own.is_older_than(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host_names: &[&str], addresses: &[&str], tags: &[&str]) -> Node {
        Node {
            host_names: host_names.iter().map(|&name| name.into()).collect(),
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            tags: tags.iter().map(|&tag| tag.into()).collect(),
            ..Node::default()
        }
    }

    fn pod(job: &str, node: &str, finished: bool, groups: &[&str]) -> StreamsPod {
        StreamsPod {
            job: Some(job.into()),
            node: Some(node.into()).filter(|_| !node.is_empty()),
            finished,
            colocation: groups.iter().map(|&group| (group.into(), "v".into())).collect(),
            estate: None,
        }
    }

    fn is_empty(view: &View) -> bool {
        view.host_names.is_empty()
            && view.addresses.is_empty()
            && view.tag_sets.is_empty()
            && view.groups.is_empty()
            && view.texts.is_empty()
            && view.coscheduled.is_empty()
            && view.counts().iter().all(|(_, count)| *count == 0)
    }

    #[test]
    fn what_task_runs_say_and_pods_mount_is_counted_and_forgotten() {
        use serde_json::json;
        let mut view = View::default();
        let task_run = |name: &str, namespace: &str, assisted: bool, done: bool| {
            let annotation = assisted.then_some("a");
            let status = if done { "True" } else { "Unknown" };
            Object::from_document(json!({
                "apiVersion": "tekton.dev/v1", "kind": "TaskRun",
                "metadata": {"name": name, "namespace": namespace,
                    "annotations": {task_run::ASSISTANT: annotation.unwrap_or_default()},
                    "ownerReferences": [{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "r",
                        "uid": "u", "controller": true}]},
                "status": {"conditions": [{"type": "Succeeded", "status": status}]},
            }))
            .unwrap()
            .map(|object| match object {
                Object::TaskRun(name, run) => Object::TaskRun(name, TaskRun { assisted, ..run }),
                other => other,
            })
            .unwrap()
        };
        let counts = |view: &View| {
            let TaskCounts { made, assisted } = view.tasks_of_run("ns", "u");
            (made, assisted)
        };
        view.apply(task_run("a", "ns", false, false));
        view.apply(task_run("b", "ns", true, false));
        view.apply(task_run("c", "other", true, false));
        assert_eq!(counts(&view), (2, 1));
        assert_eq!(view.assisted_runs().count(), 0, "their run is not known");
        let run = json!({"apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
            "metadata": {"name": "r", "namespace": "ns", "uid": "u"}, "spec": {}});
        view.apply(Object::from_document(run).unwrap().unwrap());
        assert_eq!(view.assisted_runs().count(), 1, "the other one's is in another namespace");
        view.apply(task_run("b", "ns", true, true));
        assert_eq!(counts(&view), (2, 1), "the same one, and it has ended");
        view.remove_task_run(&Name::new("ns", "b"));
        assert_eq!((counts(&view), view.assisted_runs().count()), ((1, 0), 0));
        view.remove_pipeline_run(&Name::new("ns", "r"));
        view.remove_task_run(&Name::new("ns", "a"));
        view.remove_task_run(&Name::new("other", "c"));

        let pod = |name: &str, claims: &[&str], phase: &str| {
            let volume = |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
            let volumes: Vec<_> = claims.iter().map(volume).collect();
            let pod = json!({
                "metadata": {"name": name, "namespace": "ns"},
                "spec": {"containers": [], "volumes": volumes}, "status": {"phase": phase},
            });
            Object::whole_pod(&serde_json::from_value(pod).unwrap())
        };
        let mounted =
            |view: &View| ["c", "d", "e"].map(|claim| view.is_mounted(&Name::new("ns", claim)));
        view.apply(pod("p", &["c", "d", "c"], "Pending").unwrap());
        view.apply(pod("q", &["c"], "Running").unwrap());
        assert_eq!(mounted(&view), [true, true, false]);
        assert!(!view.is_mounted(&Name::new("other", "c")));
        view.apply(pod("p", &["e"], "Pending").unwrap());
        assert_eq!(mounted(&view), [true, false, true]);
        assert!(pod("q", &["c"], "Succeeded").is_none(), "it is forgotten");
        view.remove_pod(&Name::new("ns", "q"));
        view.remove_pod(&Name::new("ns", "p"));
        assert!(is_empty(&view));
    }

    #[test]
    fn nodes_are_found_by_every_name_and_forgotten_with_all_of_them() {
        let mut view = View::default();
        view.apply(Object::Node("n1".into(), node(&["n1", "one"], &["10.0.0.1"], &["a", "b"])));
        view.apply(Object::Node("n2".into(), node(&["one"], &["10.0.0.1"], &["b", "c"])));
        view.apply(Object::Node("n3".into(), node(&[], &[], &["a", "b"])));
        let named = |view: &View, name: &str| {
            view.nodes_with_host_name(name).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(named(&view, "ONE"), ["n1", "n2"]);
        assert_eq!(named(&view, "N1"), ["n1"]);
        assert!(named(&view, "n3").is_empty());
        assert_eq!(
            view.nodes_with_address("10.0.0.1".parse().unwrap()).collect::<Vec<_>>(),
            ["n1", "n2"]
        );
        let tagged = |view: &View, tags: &[&str]| {
            view.has_node_with_tags(&tags.iter().map(|&tag| tag.into()).collect::<Vec<_>>())
        };
        assert!(tagged(&view, &["a", "b"]) && tagged(&view, &["c"]));
        assert!(!tagged(&view, &["a", "c"]) && !tagged(&view, &["d"]));

        view.apply(Object::Node("n1".into(), node(&["n1"], &["10.0.0.9"], &[])));
        assert_eq!(named(&view, "one"), ["n2"]);
        assert_eq!(
            view.nodes_with_address("10.0.0.1".parse().unwrap()).collect::<Vec<_>>(),
            ["n2"]
        );
        assert!(tagged(&view, &["a", "b"]), "n3 carries them");
        view.remove_node("n3");
        assert!(!tagged(&view, &["a", "b"]));
        view.remove_node("n1");
        view.remove_node("n2");
        view.remove_node("n2");
        assert!(is_empty(&view), "{view:?}");
    }

    #[test]
    fn a_group_is_where_its_living_pods_are_and_forgotten_with_the_last() {
        let mut view = View::default();
        let apply = |view: &mut View, name: &str, pod| {
            view.apply(Object::StreamsPod(Name::new("ns", name), pod))
        };
        apply(&mut view, "p1", pod("j1", "n1", false, &["g", "h"]));
        apply(&mut view, "p2", pod("j1", "n1", false, &["g"]));
        apply(&mut view, "p3", pod("j2", "n2", false, &["g"]));
        apply(&mut view, "p4", pod("j1", "n3", true, &["g"]));
        apply(&mut view, "p5", pod("j1", "", false, &["g"]));
        apply(&mut view, "p6", pod("j1", "n4", false, &[]));
        let nodes = |view: &View, group: &str, job: Option<&str>| {
            view.colocation_nodes("ns", (group, "v"), job)
                .into_iter()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(nodes(&view, "g", Some("j1")), ["n1"]);
        assert_eq!(nodes(&view, "g", None), ["n1", "n2"]);
        assert_eq!(nodes(&view, "h", None), ["n1"]);
        assert!(view.colocation_nodes("other", ("g", "v"), None).is_empty());

        view.remove_streams_pod(&Name::new("ns", "p1"));
        assert_eq!(nodes(&view, "g", Some("j1")), ["n1"], "p2 is still there");
        assert!(nodes(&view, "h", None).is_empty());
        apply(&mut view, "p2", pod("j1", "n1", true, &["g"]));
        assert!(nodes(&view, "g", Some("j1")).is_empty(), "it has ended");
        for name in ["p2", "p3", "p4", "p5", "p6", "p6"] {
            view.remove_streams_pod(&Name::new("ns", name));
        }
        assert!(is_empty(&view), "{view:?}");
    }
}
