//! Kubernetes objects on their way into a [`View`](super::View): from a watch or from a document.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::host_pool::hash_of;
use super::streams_pod::{APP, APP_VALUE, JOB};
use super::{HostPool, Identity, Name, Node, NodeEstate, PodEstate, StreamsJob, StreamsPod};
use crate::api;
use crate::api::host_pool::HostPoolStatus;

/// An object that a View holds, projected.
#[derive(Clone, Debug)]
pub enum Object {
    /// A node under its name.
    Node(Box<str>, Node),
    /// A namespace's labels under its name.
    Namespace(Box<str>, BTreeMap<Box<str>, Box<str>>),
    /// A HostPool.
    HostPool(Name, HostPool),
    /// A StreamsJob.
    StreamsJob(Name, StreamsJob),
    /// A pod of a Streams job.
    StreamsPod(Name, StreamsPod),
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
                Ok(Self::streams_pod(&pod))
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

    /// A pod with all that the controller must know of it, if it is one of a Streams job or asks for
    /// a pool's hosts.
    #[must_use]
    pub fn whole_pod(pod: &core::Pod) -> Option<Self> {
        let estate = PodEstate::read(pod)?;
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
        let name = Name::new(namespace, pod.metadata.name.as_deref()?);
        Some(Self::StreamsPod(
            name,
            StreamsPod { estate: Some(Box::new(estate)), ..StreamsPod::from(pod) },
        ))
    }

    /// A StreamsJob. One without a namespace is in `default`, as for kubectl.
    #[must_use]
    pub fn streams_job(job: &api::StreamsJob) -> Option<Self> {
        let namespace = job.metadata.namespace.as_deref().unwrap_or("default");
        let name = Name::new(namespace, job.metadata.name.as_deref()?);
        Some(Self::StreamsJob(name, StreamsJob::from(job)))
    }

    /// A StreamsJob that does not decode, so that pods which name it are told why.
    #[must_use]
    pub fn unreadable_streams_job(metadata: &ObjectMeta, problem: &str) -> Option<Self> {
        let namespace = metadata.namespace.as_deref().unwrap_or("default");
        let name = Name::new(namespace, metadata.name.as_deref()?);
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
        Some(Self::Namespace(namespace.metadata.name.as_deref()?.into(), labels))
    }

    /// A HostPool. One without a namespace is in `default`, as for kubectl.
    #[must_use]
    pub fn host_pool(pool: &api::HostPool) -> Option<Self> {
        let namespace = pool.metadata.namespace.as_deref().unwrap_or("default");
        let name = Name::new(namespace, pool.metadata.name.as_deref()?);
        Some(Self::HostPool(name, HostPool::from(pool)))
    }

    /// A HostPool that does not decode, so that pods which name it are told why.
    #[must_use]
    pub fn unreadable_host_pool(metadata: &ObjectMeta, problem: &str) -> Option<Self> {
        let namespace = metadata.namespace.as_deref().unwrap_or("default");
        let name = Name::new(namespace, metadata.name.as_deref()?);
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
        let labels = pod.metadata.labels.as_ref()?;
        let streams =
            labels.contains_key(JOB) || labels.get(APP).is_some_and(|app| app == APP_VALUE);
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
        let name = Name::new(namespace, pod.metadata.name.as_deref()?);
        streams.then(|| Self::StreamsPod(name, StreamsPod::from(pod)))
    }
}
