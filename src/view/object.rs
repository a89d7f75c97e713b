//! Kubernetes objects on their way into a [`View`](super::View): from a watch or from a document.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::storage::v1 as storage;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::host_pool::hash_of;
use super::owner::is_of_tekton;
use super::pipeline_run::MODE;
use super::streams_pod::{APP, APP_VALUE, JOB};
use super::{
    Claim, HostPool, Identity, Member, Name, NamedPipeline, Node, NodeEstate, PipelineRun,
    Placeholder, PlaceholderPod, PodEstate, Resources, StorageClass, StreamsJob, StreamsPod,
    TaskRun, Volume,
};
use crate::api;
use crate::api::host_pool::HostPoolStatus;

/// An object that a View holds, projected.
#[derive(Clone, Debug)]
pub enum Object {
    /// A node under its name.
    Node(Box<str>, Node),
    /// A namespace under its name.
    Namespace(Box<str>, Namespace),
    /// A HostPool.
    HostPool(Name, HostPool),
    /// A StreamsJob.
    StreamsJob(Name, StreamsJob),
    /// A pod of a Streams job.
    StreamsPod(Name, StreamsPod),
    /// A Tekton TaskRun.
    TaskRun(Name, TaskRun),
    /// A Tekton PipelineRun.
    PipelineRun(Name, Box<PipelineRun>),
    /// A Tekton Pipeline.
    Pipeline(Name, NamedPipeline),
    /// A PersistentVolumeClaim.
    Claim(Name, Box<Claim>),
    /// A StorageClass under its name.
    StorageClass(Box<str>, Box<StorageClass>),
    /// A PersistentVolume under its name.
    Volume(Box<str>, Volume),
    /// A placeholder: a StatefulSet.
    Placeholder(Name, Box<Placeholder>),
    /// The pod of a placeholder.
    PlaceholderPod(Name, Box<PlaceholderPod>),
    /// A pod that is, or may be, a group's.
    Member(Name, Box<Member>),
    /// A pod with all that the controller must know of it.
    Pod(Name, Box<Pod>),
}

/// A namespace.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Namespace {
    /// Its labels.
    pub labels: BTreeMap<Box<str>, Box<str>>,
    /// The annotation `stowplan.dev/coschedule`, as it is.
    pub mode: Option<Box<str>>,
}

/// All that a pod is to the controller.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    /// As one of a Streams job, or one that asks for a pool's hosts.
    pub streams: Option<StreamsPod>,
    /// As that of a placeholder.
    pub placeholder: Option<PlaceholderPod>,
    /// As one that is, or may be, a group's.
    pub member: Option<Member>,
    /// As one that holds a place on a node.
    pub usage: Option<Usage>,
    /// The claims that it mounts, sorted; none once it has ended.
    pub claims: Box<[Box<str>]>,
}

/// What a pod takes of its node.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    /// The node it is bound to.
    pub node: Box<str>,
    /// What it requests.
    pub requests: Resources,
}

impl Object {
    /// Reads a Kubernetes object of any kind. `Ok(None)`: of a kind that no decision looks at.
    ///
    /// # Errors
    /// Why the document is not an object of the kind that it says it is.
    pub fn from_document(document: Value) -> Result<Option<Self>, String> {
        let kind = document.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let version =
            document.get("apiVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
        let read = |error: serde_json::Error| format!("not a valid {kind}: {error}");
        match (version.as_str(), kind.as_str()) {
            ("v1", "Node") => {
                let node: core::Node = serde_json::from_value(document).map_err(read)?;
                Self::node(&node).ok_or_else(|| "a Node without metadata.name".to_owned()).map(Some)
            }
            ("v1", "Namespace") => {
                let namespace: core::Namespace = serde_json::from_value(document).map_err(read)?;
                Self::namespace(&namespace)
                    .ok_or_else(|| "a Namespace without metadata.name".to_owned())
                    .map(Some)
            }
            ("v1", "Pod") => {
                let pod: core::Pod = serde_json::from_value(document).map_err(read)?;
                Ok(Self::any_pod(&pod))
            }
            ("v1", "PersistentVolumeClaim") => {
                let claim: core::PersistentVolumeClaim =
                    serde_json::from_value(document).map_err(read)?;
                Self::claim(&claim)
                    .ok_or_else(|| "a PersistentVolumeClaim without metadata.name".to_owned())
                    .map(Some)
            }
            ("v1", "PersistentVolume") => {
                let volume: core::PersistentVolume =
                    serde_json::from_value(document).map_err(read)?;
                Self::volume(&volume)
                    .ok_or_else(|| "a PersistentVolume without metadata.name".to_owned())
                    .map(Some)
            }
            ("storage.k8s.io/v1", "StorageClass") => {
                let class: storage::StorageClass =
                    serde_json::from_value(document).map_err(read)?;
                Self::storage_class(&class)
                    .ok_or_else(|| "a StorageClass without metadata.name".to_owned())
                    .map(Some)
            }
            ("apps/v1", "StatefulSet") => {
                let set: apps::StatefulSet = serde_json::from_value(document).map_err(read)?;
                Ok(Self::placeholder(&set, true))
            }
            (version, "TaskRun" | "PipelineRun" | "Pipeline") if is_of_tekton(version) => {
                let metadata = document.get("metadata").cloned().unwrap_or_default();
                let metadata: ObjectMeta = serde_json::from_value(metadata).map_err(read)?;
                let object = match kind.as_str() {
                    "TaskRun" => Self::task_run(&metadata, &document),
                    "PipelineRun" => Self::pipeline_run(&metadata, &document, true),
                    _ => Self::pipeline(&metadata, &document),
                };
                object.ok_or_else(|| format!("a {kind} without metadata.name")).map(Some)
            }
            (api::VERSION, "HostPool") => {
                let pool: api::HostPool = serde_json::from_value(document).map_err(read)?;
                Self::host_pool(&pool)
                    .ok_or_else(|| "a HostPool without metadata.name".to_owned())
                    .map(Some)
            }
            (api::VERSION, "StreamsJob") => {
                let job: api::StreamsJob = serde_json::from_value(document).map_err(read)?;
                Self::streams_job(&job)
                    .ok_or_else(|| "a StreamsJob without metadata.name".to_owned())
                    .map(Some)
            }
            _ => Ok(None),
        }
    }

    /// A node with all that the controller must know of it.
    #[must_use]
    pub fn whole_node(node: &core::Node) -> Option<Self> {
        let estate = Some(Box::new(NodeEstate::from(node)));
        Some(Self::Node(node.metadata.name.as_deref()?.into(), Node { estate, ..Node::from(node) }))
    }

    /// A pod with all that the controller must know of it. `None`: it holds no place, and is nobody's.
    #[must_use]
    pub fn whole_pod(pod: &core::Pod) -> Option<Self> {
        let estate = PodEstate::read(pod).map(Box::new);
        let spec = pod.spec.as_ref();
        let node = spec.and_then(|spec| spec.node_name.as_deref());
        let living = spec.filter(|_| !super::member::is_finished(pod));
        let usage = node.zip(living);
        let pod_of = |usage| Pod {
            streams: estate.map(|estate| StreamsPod { estate: Some(estate), ..pod.into() }),
            placeholder: PlaceholderPod::read(pod, true),
            member: Member::read(pod, true),
            usage,
            claims: living.map(super::placeholder::claims).unwrap_or_default(),
        };
        let found =
            pod_of(usage.map(|(node, spec)| Usage {
                node: node.into(),
                requests: Resources::requested(spec),
            }));
        (found != Pod::default()).then_some(())?;
        Some(Self::Pod(name_of(&pod.metadata)?, Box::new(found)))
    }

    /// A pod as far as decisions ask for it, whatever it is to them.
    fn any_pod(pod: &core::Pod) -> Option<Self> {
        let found = Pod {
            streams: is_streams_pod(pod).then(|| pod.into()),
            placeholder: PlaceholderPod::read(pod, false),
            member: Member::read(pod, false),
            usage: None,
            claims: Box::default(),
        };
        (found != Pod::default()).then_some(())?;
        Some(Self::Pod(name_of(&pod.metadata)?, Box::new(found)))
    }

    /// A Tekton TaskRun, whatever its version.
    #[must_use]
    pub fn task_run(metadata: &ObjectMeta, document: &Value) -> Option<Self> {
        Some(Self::TaskRun(name_of(metadata)?, TaskRun::read(metadata, document)))
    }

    /// A Tekton PipelineRun, whatever its version. `whole` keeps what only who makes placeholders
    /// needs.
    #[must_use]
    pub fn pipeline_run(metadata: &ObjectMeta, document: &Value, whole: bool) -> Option<Self> {
        let run = PipelineRun::read(metadata, document, whole);
        Some(Self::PipelineRun(name_of(metadata)?, Box::new(run)))
    }

    /// A Tekton Pipeline, whatever its version.
    #[must_use]
    pub fn pipeline(metadata: &ObjectMeta, document: &Value) -> Option<Self> {
        Some(Self::Pipeline(name_of(metadata)?, NamedPipeline::read(metadata, document)))
    }

    /// A claim.
    #[must_use]
    pub fn claim(claim: &core::PersistentVolumeClaim) -> Option<Self> {
        Some(Self::Claim(name_of(&claim.metadata)?, Box::new(Claim::from(claim))))
    }

    /// A storage class.
    #[must_use]
    pub fn storage_class(class: &storage::StorageClass) -> Option<Self> {
        let name = class.metadata.name.as_deref()?.into();
        Some(Self::StorageClass(name, Box::new(StorageClass::from(class))))
    }

    /// A volume.
    #[must_use]
    pub fn volume(volume: &core::PersistentVolume) -> Option<Self> {
        Some(Self::Volume(volume.metadata.name.as_deref()?.into(), Volume::from(volume)))
    }

    /// A StatefulSet, if it is a placeholder. `whole` keeps the controller's part.
    #[must_use]
    pub fn placeholder(set: &apps::StatefulSet, whole: bool) -> Option<Self> {
        let placeholder = Placeholder::read(set, whole)?;
        Some(Self::Placeholder(name_of(&set.metadata)?, Box::new(placeholder)))
    }

    /// A pod, if it is that of a placeholder.
    #[must_use]
    pub fn placeholder_pod(pod: &core::Pod) -> Option<Self> {
        let placeholder = PlaceholderPod::read(pod, false)?;
        Some(Self::PlaceholderPod(name_of(&pod.metadata)?, Box::new(placeholder)))
    }

    /// A pod, if it is, or may be, a group's.
    #[must_use]
    pub fn member(pod: &core::Pod) -> Option<Self> {
        let member = Member::read(pod, false)?;
        Some(Self::Member(name_of(&pod.metadata)?, Box::new(member)))
    }

    /// Whether it is a run of Tekton's that has ended.
    #[must_use]
    pub fn is_done_run(&self) -> bool {
        match self {
            Self::TaskRun(_, run) => run.done,
            Self::PipelineRun(_, run) => run.done,
            _ => false,
        }
    }

    /// Which version of the object this is, where that is known.
    pub(super) fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Node(_, node) => Some(&node.estate.as_ref()?.identity),
            Self::Namespace(..) | Self::StorageClass(..) | Self::Volume(..) => None,
            Self::HostPool(_, pool) => Some(&pool.identity),
            Self::StreamsJob(_, job) => Some(&job.identity),
            Self::StreamsPod(_, pod) => Some(&pod.estate.as_ref()?.identity),
            Self::TaskRun(_, run) => Some(&run.identity),
            Self::PipelineRun(_, run) => Some(&run.identity),
            Self::Pipeline(_, pipeline) => Some(&pipeline.identity),
            Self::Claim(_, claim) => Some(&claim.identity),
            Self::Placeholder(_, placeholder) => Some(&placeholder.identity),
            Self::PlaceholderPod(_, pod) => Some(&pod.identity),
            Self::Member(_, member) => Some(&member.identity),
            Self::Pod(_, pod) => {
                let streams = pod.streams.as_ref().and_then(|pod| pod.estate.as_ref());
                streams
                    .map(|estate| &estate.identity)
                    .or_else(|| Some(&pod.placeholder.as_ref()?.identity))
                    .or_else(|| Some(&pod.member.as_ref()?.identity))
            }
        }
    }

    /// A StreamsJob. One without a namespace is in `default`, as for kubectl.
    #[must_use]
    pub fn streams_job(job: &api::StreamsJob) -> Option<Self> {
        let name = name_of(&job.metadata)?;
        Some(Self::StreamsJob(name, StreamsJob::from(job)))
    }

    /// A StreamsJob that does not decode, so that pods which name it are told why.
    #[must_use]
    pub fn unreadable_streams_job(metadata: &ObjectMeta, problem: &str) -> Option<Self> {
        let name = name_of(metadata)?;
        Some(Self::StreamsJob(name, StreamsJob::unreadable(metadata, problem)))
    }

    /// A node. `None` for one without a name, which no API server sends.
    #[must_use]
    pub fn node(node: &core::Node) -> Option<Self> {
        Some(Self::Node(node.metadata.name.as_deref()?.into(), Node::from(node)))
    }

    /// A namespace.
    #[must_use]
    pub fn namespace(namespace: &core::Namespace) -> Option<Self> {
        let labels = namespace.metadata.labels.iter().flatten();
        let labels =
            labels.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect();
        let annotations = namespace.metadata.annotations.as_ref();
        let mode = annotations.and_then(|map| map.get(MODE)).map(|mode| mode.as_str().into());
        Some(Self::Namespace(
            namespace.metadata.name.as_deref()?.into(),
            Namespace { labels, mode },
        ))
    }

    /// A HostPool. One without a namespace is in `default`, as for kubectl.
    #[must_use]
    pub fn host_pool(pool: &api::HostPool) -> Option<Self> {
        let name = name_of(&pool.metadata)?;
        Some(Self::HostPool(name, HostPool::from(pool)))
    }

    /// A HostPool that does not decode, so that pods which name it are told why.
    #[must_use]
    pub fn unreadable_host_pool(metadata: &ObjectMeta, problem: &str) -> Option<Self> {
        let name = name_of(metadata)?;
        let pool = HostPool {
            identity: Identity::from(metadata),
            hash: hash_of(metadata),
            form: Err(format!("cannot be read: {problem}")),
            readable: false,
            exclusive: false,
            job: None,
            status: HostPoolStatus::default(),
        };
        Some(Self::HostPool(name, pool))
    }

    /// A pod, if it is one of a Streams job.
    #[must_use]
    pub fn streams_pod(pod: &core::Pod) -> Option<Self> {
        is_streams_pod(pod).then_some(())?;
        Some(Self::StreamsPod(name_of(&pod.metadata)?, StreamsPod::from(pod)))
    }
}

fn is_streams_pod(pod: &core::Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    labels.is_some_and(|labels| {
        labels.contains_key(JOB) || labels.get(APP).is_some_and(|app| app == APP_VALUE)
    })
}

/// The name of a namespaced object. One without a namespace is in `default`, as for kubectl.
fn name_of(metadata: &ObjectMeta) -> Option<Name> {
    let namespace = metadata.namespace.as_deref().unwrap_or("default");
    Some(Name::new(namespace, metadata.name.as_deref()?))
}
