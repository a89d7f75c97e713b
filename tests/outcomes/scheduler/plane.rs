//! A control plane on which many questions are asked at once, each about nodes and in a namespace of its own.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use hyper::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use serde_json::{Value, json};
use testbed::control_plane::{ControlPlane, NodeSpec, Options};
use testbed::tools::Kubernetes;
use testbed::wait::{Seen, until};
use testbed::workload;

use crate::scheduling_questions::{
    ALLOCATABLE, Answer, Claim, Draw, Group, NODE_LABELS, Question, RUNTIME_CLASS, overhead,
};
use crate::world::LIMIT;

/// So many questions are asked at once.
pub(crate) const GROUPS: usize = 40;

/// So many requests are sent at once.
const AT_ONCE: usize = 16;

/// The name of a node, of a namespace and of a claim: a pod that is bound there shows that the scheduler has seen
/// everything that was written before.
const BARRIER: &str = "barrier";

/// The label of the pods that the scheduler is asked about.
const ASKED: &str = "asked";

/// The kubelets of kwok leave pods with this annotation alone (`testbed/assets/stages.yaml`).
const LOST: &str = "testbed.stowplan.dev/lost";

/// A node as it is, and the patches that have made it so.
#[derive(Default)]
struct Now {
    patch: Value,
    of_status: Value,
    node: Value,
}

pub(crate) struct Plane {
    plane: ControlPlane,
    api: Requests,
    groups: Vec<Group>,
    /// The nodes of each group as they are.
    nodes: Vec<Vec<Now>>,
    /// The pods that the scheduler is asked about, as they change.
    pods: BoxStream<'static, watcher::Result<Pod>>,
}

impl Plane {
    pub(crate) async fn start(kubernetes: Kubernetes, draw: &mut Draw) -> Result<Self> {
        let groups: Vec<Group> = (0..GROUPS).map(|number| Group::random(number, draw)).collect();
        let names = groups.iter().flat_map(|group| &group.nodes).map(|name| NodeSpec::new(name));
        let nodes = names.chain([NodeSpec::new(BARRIER)]).collect();
        let plane =
            ControlPlane::start(Options { nodes, kubernetes, ..Options::default() }).await?;
        let client = plane.client().await?;
        let pods = watcher(Api::all(client.clone()), watcher::Config::default().labels(ASKED));
        let nodes = groups.iter().map(|of| of.nodes.iter().map(|_| Now::default()).collect());
        let nodes = nodes.collect();
        let pods = pods.applied_objects().boxed();
        let mut plane = Self { plane, api: Requests(client), groups, nodes, pods };
        plane.prepare().await?;
        Ok(plane)
    }

    pub(crate) async fn stop(self) {
        self.plane.stop().await;
    }

    /// Creates the namespaces, the runtime class and the claims.
    async fn prepare(&mut self) -> Result<()> {
        let class = json!({
            "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": RUNTIME_CLASS,
            "metadata": {"name": RUNTIME_CLASS}, "overhead": {"podFixed": overhead()},
        });
        self.api.create("/apis/node.k8s.io/v1/runtimeclasses", &class).await?;
        let namespaces = self.groups.iter().map(|group| &*group.namespace).chain([BARRIER]);
        let created = namespaces.map(|name| workload::namespace(&self.api.0, name));
        all(created).await?;
        let claims = self.groups.iter_mut().flat_map(|group| &mut group.claims);
        all(claims.map(|claim| self.api.create_claim(claim))).await?;
        // The scheduler sees the last claim last.
        let mut last = Claim::free(BARRIER);
        self.api.create_claim(&mut last).await
    }

    /// Asks one question about each group.
    pub(crate) async fn ask(
        &mut self,
        round: usize,
        draw: &mut Draw,
    ) -> Result<Vec<(Question, Answer)>> {
        let questions = self.groups.iter().map(|group| Question::random(group, round, draw));
        let mut questions: Vec<_> = questions.collect();
        let api = &self.api;
        let now = questions.iter_mut().zip(&mut self.nodes);
        all(now.map(|(question, now)| api.put(question, now))).await?;
        self.pass_barrier(round).await?;
        let api = &self.api;
        all(questions.iter_mut().map(|question| api.ask(question))).await?;
        let mut waiting: BTreeMap<String, usize> =
            questions.iter().enumerate().map(|(at, of)| (path_of(&of.pod), at)).collect();
        let mut answers = Vec::new();
        while !waiting.is_empty() {
            let pod = self.next_pod().await.with_context(|| format!("no answer: {waiting:?}"))?;
            let metadata = &pod.metadata;
            let name = |of: &Option<String>| of.clone().unwrap_or_default();
            let path = path(&name(&metadata.namespace), &name(&metadata.name));
            if let Some(answer) = answer_of(&pod)?
                && let Some(at) = waiting.remove(&path)
            {
                answers.push((questions[at].clone(), answer));
            }
        }
        for (question, _) in answers.iter().filter(|(_, of)| matches!(of, Answer::Gated)) {
            let pod = self.api.send("GET", &path_of(&question.pod), None).await?;
            ensure!(pod["spec"]["nodeName"].is_null(), "bound with a gate: {pod}");
        }
        self.clear().await?;
        Ok(answers)
    }

    /// Nominates two pods for a node that has room for one of them. Each keeps the room for the other one, until an
    /// attempt to schedule it fails, which ends its nomination.
    pub(crate) async fn nominate_two(&self) -> Result<()> {
        let names = ["first", "second"];
        for name in names {
            let requests = json!({"requests": {"cpu": "10"}});
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"namespace": BARRIER, "name": name},
                "spec": {
                    "containers": [{"name": "c", "image": "example.com/image", "resources": requests}],
                    "nodeSelector": {"kubernetes.io/hostname": BARRIER},
                    "schedulingGates": [{"name": "example.com/gate"}],
                },
            });
            self.api.create_pod(pod).await?;
            let nominated = json!({"status": {"nominatedNodeName": BARRIER}});
            self.api.patch(&format!("{}/status", path(BARRIER, name)), &nominated).await?;
        }
        let ungated = json!({"spec": {"schedulingGates": null}});
        all(names.map(async |name| self.api.patch(&path(BARRIER, name), &ungated).await.map(drop)))
            .await?;
        until("one pod to be bound and the other one refused", LIMIT, async || {
            let mut seen = Vec::new();
            for name in names {
                let pod = self.api.send("GET", &path(BARRIER, name), None).await?;
                let condition = &pod["status"]["conditions"][0];
                let nominated = pod["status"]["nominatedNodeName"].as_str();
                let is_refused = condition["reason"] == "Unschedulable" && nominated.is_none();
                seen.push((pod["spec"]["nodeName"] == BARRIER, is_refused, pod["status"].clone()));
            }
            let is_settled = seen.iter().filter(|(is_bound, ..)| *is_bound).count() == 1
                && seen.iter().any(|(_, is_refused, _)| *is_refused);
            Ok(Seen::when(is_settled, || format!("{seen:?}")))
        })
        .await?;
        self.clear().await
    }

    /// Waits until the scheduler has seen all nodes, pods and claims as they are now.
    async fn pass_barrier(&mut self, round: usize) -> Result<()> {
        let label = json!({"round": round.to_string()});
        let node = json!({"metadata": {"labels": label}});
        self.api.patch(&format!("/api/v1/nodes/{BARRIER}"), &node).await?;
        let pod = |name: &str, spec: Value| {
            let mut pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"namespace": BARRIER, "name": format!("{name}-{round}"), "labels": label},
                "spec": {"containers": [{"name": "c", "image": "example.com/image"}]},
            });
            json_patch::merge(&mut pod["spec"], &spec);
            pod
        };
        self.api.create_pod(pod("there", json!({"nodeName": BARRIER}))).await?;
        let beside = json!([{"topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": label}}]);
        let mut last = pod(
            "last",
            json!({
                "nodeSelector": label,
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": BARRIER}}],
                "affinity": {"podAffinity":
                    {"requiredDuringSchedulingIgnoredDuringExecution": beside}},
            }),
        );
        last["metadata"]["labels"] = json!({ASKED: "yes"});
        self.api.create_pod(last).await?;
        let name = format!("last-{round}");
        loop {
            let pod = self.next_pod().await.context("the barrier is not passed")?;
            let is_last = pod.metadata.name.as_ref() == Some(&name);
            if is_last && matches!(answer_of(&pod)?, Some(Answer::Bound(_))) {
                return Ok(());
            }
        }
    }

    /// The next pod that the watch reports.
    async fn next_pod(&mut self) -> Result<Pod> {
        loop {
            match tokio::time::timeout(LIMIT, self.pods.next()).await? {
                Some(Ok(pod)) => return Ok(pod),
                // It begins again by itself.
                Some(Err(_)) => self.plane.check()?,
                None => bail!("the watch has ended"),
            }
        }
    }

    /// Removes all pods at once.
    async fn clear(&self) -> Result<()> {
        let namespaces = self.groups.iter().map(|group| &*group.namespace).chain([BARRIER]);
        let now = json!({"gracePeriodSeconds": 0});
        all(namespaces.map(async |namespace| {
            self.api.send("DELETE", &path(namespace, ""), Some(&now)).await.map(drop)
        }))
        .await
    }
}

/// Requests to the API server with documents as they are.
struct Requests(Client);

impl Requests {
    async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let kind = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let request =
            request.body(body.map(|of| of.to_string().into_bytes()).unwrap_or_default())?;
        let answer = self.0.request(request).await;
        answer.with_context(|| format!("{method} {path} {}", body.unwrap_or(&Value::Null)))
    }

    async fn create(&self, path: &str, object: &Value) -> Result<Value> {
        self.send("POST", path, Some(object)).await
    }

    async fn patch(&self, path: &str, patch: &Value) -> Result<Value> {
        self.send("PATCH", path, Some(patch)).await
    }

    /// Creates a pod that kwok leaves alone. Returns it as it is stored.
    async fn create_pod(&self, mut pod: Value) -> Result<Value> {
        pod["metadata"]["annotations"] = json!({LOST: "yes"});
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        self.create(&path(namespace, ""), &pod).await
    }

    /// Creates a claim and its volume, and waits until the controller of volumes has bound them. Replaces
    /// them by what is stored.
    async fn create_claim(&self, Claim { claim, volume, .. }: &mut Claim) -> Result<()> {
        let volumes = "/api/v1/persistentvolumes";
        if let Some(volume) = &volume {
            self.create(volumes, volume).await?;
        }
        let metadata = &claim["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        let claims = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims");
        let path = format!("{claims}/{}", metadata["name"].as_str().unwrap_or_default());
        let is_deleting = !metadata["deletionTimestamp"].is_null();
        let phase = claim["status"]["phase"].clone();
        let mut created = claim.clone();
        if let Some(metadata) = created["metadata"].as_object_mut() {
            metadata.remove("deletionTimestamp");
        }
        self.create(&claims, &created).await?;
        until(&format!("{path} to be {phase}"), LIMIT, async || {
            *claim = self.send("GET", &path, None).await?;
            Ok(Seen::when(claim["status"]["phase"] == phase, || claim["status"].to_string()))
        })
        .await?;
        if is_deleting {
            *claim = self.send("DELETE", &path, Some(&json!({}))).await?;
        }
        if let Some(volume) = volume {
            let path =
                format!("{volumes}/{}", volume["metadata"]["name"].as_str().unwrap_or_default());
            *volume = self.send("GET", &path, None).await?;
        }
        Ok(())
    }

    /// Makes the nodes and the placed pods of a question what it says, and replaces them by what is stored.
    async fn put(&self, question: &mut Question, now: &mut [Now]) -> Result<()> {
        for (node, now) in question.nodes.iter_mut().zip(now) {
            let all_of = |keys: &[&str], from: &Value| -> Value {
                keys.iter().map(|key| ((*key).to_owned(), from[*key].clone())).collect()
            };
            let path =
                format!("/api/v1/nodes/{}", node["metadata"]["name"].as_str().unwrap_or_default());
            let of_status = json!({"status":
                {"allocatable": all_of(&ALLOCATABLE, &node["status"]["allocatable"])}});
            let patch = json!({
                "metadata": {"labels": all_of(&NODE_LABELS, &node["metadata"]["labels"])},
                "spec": {"taints": node["spec"]["taints"], "unschedulable": node["spec"]["unschedulable"]},
            });
            if now.patch != patch {
                now.node = self.patch(&path, &patch).await?;
            }
            if now.of_status != of_status {
                now.node = self.patch(&format!("{path}/status"), &of_status).await?;
            }
            (now.patch, now.of_status) = (patch, of_status);
            *node = now.node.clone();
        }
        for placed in &mut question.placed {
            let mut pod = placed.clone();
            let status = pod["status"].take();
            let metadata = pod["metadata"].as_object_mut().context("no metadata")?;
            let is_deleting = metadata.remove("deletionTimestamp").is_some();
            let path = path_of(&pod);
            *placed = self.create_pod(pod).await?;
            if !status.is_null() {
                let status = json!({"status": status});
                *placed = self.patch(&format!("{path}/status"), &status).await?;
            }
            if is_deleting {
                let later = json!({"gracePeriodSeconds": 3600});
                *placed = self.send("DELETE", &path, Some(&later)).await?;
            }
        }
        Ok(())
    }

    /// Creates the pod of a question, and replaces it by what is stored.
    async fn ask(&self, question: &mut Question) -> Result<()> {
        let mut pod = question.pod.clone();
        pod["metadata"]["labels"][ASKED] = json!("yes");
        question.pod = self.create_pod(pod).await?;
        Ok(())
    }
}

/// Awaits several futures at once.
async fn all(futures: impl IntoIterator<Item = impl Future<Output = Result<()>>>) -> Result<()> {
    stream::iter(futures).buffer_unordered(AT_ONCE).try_collect().await
}

/// The path of a pod; without a name, of all pods of a namespace.
fn path(namespace: &str, name: &str) -> String {
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    path.trim_end_matches('/').to_owned()
}

fn path_of(pod: &Value) -> String {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
    path(text("namespace"), text("name"))
}

/// Reads the answer of the scheduler. `None`: there is none yet.
fn answer_of(pod: &Pod) -> Result<Option<Answer>> {
    if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) {
        return Ok(Some(Answer::Bound(node)));
    }
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut refused = conditions.filter(|of| of.type_ == "PodScheduled" && of.status == "False");
    let Some(condition) = refused.next() else { return Ok(None) };
    let message = condition.message.clone().unwrap_or_default();
    match condition.reason.as_deref() {
        Some("Unschedulable") => Ok(Some(Answer::Refused(message))),
        Some("SchedulingGated") => Ok(Some(Answer::Gated)),
        other => bail!("the scheduler failed: {other:?} {message}"),
    }
}
