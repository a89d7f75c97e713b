use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use stowplan::testing::systems::streams::kinds::streams_job::closure::host_pool_name;
use testbed::control_plane::NodeSpec;
use testbed::wait::{Seen, until};

use crate::streams_cases::{OTHERS_TAGS, element_name, node_labels, pool_name};
use crate::streams_oracle::{Form, Model, Others, Placement};
use crate::world::{Space, World};

/// How long a job may take. Nodes that are looked for anew wait for the grace period first.
const PATIENCE: Duration = Duration::from_secs(120);

/// The loss of a node.
pub(crate) struct Loss {
    /// After the creation of so many pods.
    pub(crate) after: usize,
    pub(crate) node: usize,
}

/// How a job has ended.
#[derive(Debug)]
pub(crate) enum Ended {
    Refused,
    /// All of its elements run, as their constraints say.
    Whole,
    /// After the loss of a node the rest cannot be placed beside what runs.
    Impossible,
}

/// A job on nodes of its own.
pub(crate) struct Living {
    space: Space,
    others: Space,
    number: usize,
    model: Model,
}

impl Living {
    /// Creates the nodes of a model, and the pods and pools of others on them.
    pub(crate) async fn new(world: &Arc<World>, number: usize, model: Model) -> Result<Self> {
        let mut nodes = Vec::new();
        for (index, node) in model.nodes.iter().enumerate() {
            let labels = node_labels(node);
            let labels = labels.as_object().into_iter().flatten();
            let spec = NodeSpec::new(&format!("job-{number}-hh{index}"));
            nodes.push(labels.fold(spec, |spec, (key, value)| {
                spec.label(key, value.as_str().unwrap_or_default())
            }));
        }
        world.plane.add_nodes(&nodes).await?;
        let space = world.namespace("job").await?;
        let others = world.namespace("others").await?;
        let living = Self { space, others, number, model };
        living.create_others().await?;
        Ok(living)
    }

    async fn create_others(&self) -> Result<()> {
        let mut pools: BTreeMap<String, Value> = BTreeMap::new();
        for (number, node) in self.model.nodes.iter().enumerate() {
            let name = format!("of-{number}");
            match node.others {
                Others::Nobody => {}
                Others::Pod => {
                    let labels = json!({"app": "streams", "streams.ibm.com/job": "other"});
                    let containers = json!([{"name": "pe", "image": "streams-runtime"}]);
                    let spec =
                        json!({"nodeName": self.node_name(number), "containers": containers});
                    let metadata = json!({"name": name, "labels": labels});
                    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
                    self.others.pod(&pod).await?;
                }
                Others::SharedPool => {
                    let has = self.model.nodes.iter().filter(|of| of.others == Others::SharedPool);
                    let spec = json!({"size": has.count(), "tags": OTHERS_TAGS});
                    pools.insert("shared".to_owned(), spec);
                }
                Others::ExclusivePool => {
                    let spec =
                        json!({"hosts": [self.node_name(number)], "exclusivity": "Exclusive"});
                    pools.insert(name, spec);
                }
            }
        }
        let count = pools.len();
        for (name, spec) in pools {
            self.others.host_pool(&name, spec).await?;
        }
        until("the pools of others", Duration::from_secs(60), async || {
            let all = self.list(&self.others, "hostpools").await?;
            let is_ready = |pool: &&Value| {
                let conditions = pool["status"]["conditions"].as_array();
                let mut conditions = conditions.into_iter().flatten();
                conditions.any(|of| of["type"] == "Ready" && of["status"] == "True")
            };
            Ok(match all.iter().filter(is_ready).count() == count {
                true => Seen::Done(()),
                false => Seen::NotYet(json!(all).to_string()),
            })
        })
        .await
    }

    fn node_name(&self, node: usize) -> String {
        format!("job-{}-hh{node}", self.number)
    }

    /// The objects of a kind in a namespace.
    async fn list(&self, space: &Space, kind: &str) -> Result<Vec<Value>> {
        let arguments = ["-n", &space.name, "get", kind, "-o", "json"];
        let text = space.world.kubectl(&arguments, "").await?.succeeded()?;
        let mut list: Value = serde_json::from_str(&text)?;
        let items = list["items"].take();
        items.as_array().cloned().context("a list without items")
    }

    /// Creates the job, and its pods in an order that `choices` gives, and waits for their nodes.
    pub(crate) async fn run(
        &mut self,
        spec: &Value,
        choices: &[u16],
        loss: Option<&Loss>,
    ) -> Result<Ended> {
        let job = json!({
            "apiVersion": "stowplan.dev/v1alpha1", "kind": "StreamsJob",
            "metadata": {"name": "j"}, "spec": spec,
        });
        let said = self.space.create(&job).await?;
        if !said.success {
            ensure!(
                said.err.contains("denied the request: stowplan: StreamsJob j: "),
                "{}",
                said.err
            );
            return Ok(Ended::Refused);
        }
        let mut left: Vec<usize> = (0..self.model.elements.len()).collect();
        for created in 0..self.model.elements.len() {
            if let Some(loss) = loss.filter(|loss| loss.after == created) {
                let nodes: Api<Node> = Api::all(self.space.world.client.clone());
                nodes.delete(&self.node_name(loss.node), &DeleteParams::default()).await?;
                self.model.nodes[loss.node].is_lost = true;
            }
            let choice = usize::from(choices[created % choices.len()]);
            let element = left.remove(choice % left.len());
            self.create_element(element).await?;
        }
        let what = format!("job {}", self.number);
        until(&what, PATIENCE, async || {
            let placement = self.placement().await?;
            if !placement.elements.contains(&None) {
                let fault = self.model.find_fault(&placement);
                ensure!(fault.is_none() || loss.is_some(), "{fault:?} is wrong: {placement:?}");
                return Ok(Seen::Done(Ended::Whole));
            }
            if self.model.complete(&placement).is_none() {
                ensure!(loss.is_some(), "the rest cannot be placed any more: {placement:?}");
                return Ok(Seen::Done(Ended::Impossible));
            }
            Ok(Seen::NotYet(format!("{placement:?}")))
        })
        .await
    }

    /// Creates a workload with one pod.
    async fn create_element(&self, element: usize) -> Result<()> {
        let name = element_name(element);
        let labels =
            json!({"app": "streams", "streams.ibm.com/job": "j", "streams.ibm.com/pe": name});
        let containers = json!([{"name": "pe", "image": "streams-runtime"}]);
        let annotations = json!({"stowplan.dev/streams-job": "j"});
        let template = json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": {"containers": containers}});
        self.space
            .created(&json!({
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name},
                "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
            }))
            .await
    }

    /// The nodes of the pods and pools of the job.
    async fn placement(&self) -> Result<Placement> {
        let nodes: BTreeMap<String, usize> = (0..self.model.nodes.len())
            .filter(|node| !self.model.nodes[*node].is_lost)
            .map(|node| (self.node_name(node), node))
            .collect();
        let find = |node: &Value| nodes.get(node.as_str()?).copied();
        let mut placement = Placement::empty(&self.model);
        for pod in self.list(&self.space, "pods").await? {
            let element =
                pod["metadata"]["labels"]["streams.ibm.com/pe"].as_str().unwrap_or_default();
            let number = (0..placement.elements.len()).find(|of| element_name(*of) == element);
            let is_leaving = pod["metadata"]["deletionTimestamp"].is_string();
            if let (Some(number), Some(node), false) =
                (number, find(&pod["spec"]["nodeName"]), is_leaving)
            {
                placement.elements[number] = Some(node);
            }
        }
        let pools = self.list(&self.space, "hostpools").await?;
        for (number, members) in placement.pools.iter_mut().enumerate() {
            if !matches!(self.model.pools[number].form, Form::Sized(..)) {
                continue;
            }
            let name = host_pool_name("j", &pool_name(number));
            let pool = pools.iter().find(|pool| pool["metadata"]["name"] == json!(name));
            let recorded = pool.and_then(|pool| pool["status"]["members"].as_array());
            for member in recorded.into_iter().flatten().filter(|of| of["state"] != "Vacant") {
                let index = member["index"].as_u64().and_then(|index| usize::try_from(index).ok());
                if let (Some(index), Some(node)) = (index, find(&member["node"])) {
                    members[index] = Some(node);
                }
            }
        }
        Ok(placement)
    }

    /// Deletes everything again.
    pub(crate) async fn leave(self) -> Result<()> {
        let world = &self.space.world;
        for space in [&self.space, &self.others] {
            for kinds in ["replicasets,streamsjobs,hostpools", "pods"] {
                let mut arguments =
                    vec!["-n", &space.name, "delete", kinds, "--all", "--wait=false"];
                arguments.extend((kinds == "pods").then_some("--grace-period=0"));
                arguments.extend((kinds == "pods").then_some("--force"));
                world.kubectl(&arguments, "").await?.succeeded()?;
            }
        }
        let nodes: Vec<String> =
            (0..self.model.nodes.len()).map(|node| self.node_name(node)).collect();
        let mut arguments = vec!["delete", "node", "--ignore-not-found"];
        arguments.extend(nodes.iter().map(String::as_str));
        world.kubectl(&arguments, "").await?.succeeded()?;
        Ok(())
    }
}
