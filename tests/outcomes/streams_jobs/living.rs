use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use stowplan_core::systems::streams::api::host_pool::MemberState;
use stowplan_core::systems::streams::kinds::streams_job::closure::host_pool_name;
use testbed::control_plane::NodeSpec;
use testbed::wait::{Seen, until};

use crate::controller::pool;
use crate::streams_cases::{OTHERS_TAGS, element_name, node_labels, pool_name};
use crate::streams_oracle::{Form, Model, Others, Placement};
use crate::world::{Space, World, element, job, node, of_job, workload_of};

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
            let mut spec = NodeSpec::new(&format!("job-{number}-hh{index}"));
            for (key, value) in node_labels(node).as_object().into_iter().flatten() {
                spec = spec.label(key, value.as_str().unwrap_or_default());
            }
            nodes.push(spec);
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
                    let mut pod = element("other", &name, &[]);
                    pod["spec"]["nodeName"] = json!(self.node_name(number));
                    self.others.pod(&pod).await?;
                }
                Others::SharedPool => {
                    let has = self.model.nodes.iter().filter(|of| of.others == Others::SharedPool);
                    let spec = json!({"size": has.count(), "tags": OTHERS_TAGS});
                    pools.insert("shared".to_owned(), spec);
                }
                Others::ExclusivePool => {
                    let hosts = [self.node_name(number)];
                    pools.insert(name, json!({"hosts": hosts, "exclusivity": "Exclusive"}));
                }
            }
        }
        for (name, spec) in &pools {
            self.others.host_pool(name, spec.clone()).await?;
        }
        for name in pools.keys() {
            pool::ready(&self.others, name).await?;
        }
        Ok(())
    }

    fn node_name(&self, node: usize) -> String {
        format!("job-{}-hh{node}", self.number)
    }

    /// Creates the job, and its pods in an order that `choices` gives, and waits for their nodes.
    pub(crate) async fn run(
        &mut self,
        spec: &Value,
        choices: &[u16],
        loss: Option<&Loss>,
    ) -> Result<Ended> {
        let said = self.space.create(&job("j", spec)).await?;
        if !said.success {
            said.refused_with(&["denied the request: stowplan: StreamsJob j: "])?;
            return Ok(Ended::Refused);
        }
        let mut left: Vec<usize> = (0..self.model.elements.len()).collect();
        for created in 0..self.model.elements.len() {
            if let Some(loss) = loss.filter(|loss| loss.after == created) {
                self.space.world.plane.delete_node(&self.node_name(loss.node)).await?;
                self.model.nodes[loss.node].is_lost = true;
            }
            let choice = usize::from(choices[created % choices.len()]);
            let element = left.remove(choice % left.len());
            let name = element_name(element);
            let set = workload_of("ReplicaSet", &name, 1, &of_job("j", &name));
            self.space.created(&set).await?;
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

    /// The nodes of the pods and pools of the job.
    async fn placement(&self) -> Result<Placement> {
        let nodes: BTreeMap<String, usize> = (0..self.model.nodes.len())
            .filter(|node| !self.model.nodes[*node].is_lost)
            .map(|node| (self.node_name(node), node))
            .collect();
        let find = |node: &Option<String>| nodes.get(node.as_ref()?).copied();
        let mut placement = Placement::empty(&self.model);
        for pod in self.space.living("").await? {
            let element = pod.labels().get("streams.ibm.com/pe");
            let mut numbers = 0..placement.elements.len();
            let number = numbers.find(|of| element == Some(&element_name(*of)));
            if let (Some(number), Some(node)) = (number, find(&node(&pod))) {
                placement.elements[number] = Some(node);
            }
        }
        let pools = pool::all(&self.space).await?;
        for (number, members) in placement.pools.iter_mut().enumerate() {
            if !matches!(self.model.pools[number].form, Form::Sized(..)) {
                continue;
            }
            let name = host_pool_name("j", &pool_name(number));
            let status = pools.iter().find(|pool| pool.name_any() == name);
            let recorded = status.and_then(|pool| pool.status.as_ref()).map(|it| &it.members);
            for member in recorded.into_iter().flatten() {
                if member.state != MemberState::Vacant {
                    members[member.index as usize] = find(&member.node);
                }
            }
        }
        Ok(placement)
    }

    /// Deletes everything again.
    pub(crate) async fn leave(self) -> Result<()> {
        let world = &self.space.world;
        for space in [&self.space, &self.others] {
            space.kubectl("delete replicasets,streamsjobs,hostpools --all --wait=false").await?;
            space.kubectl("delete pods --all --wait=false --grace-period=0 --force").await?;
        }
        let nodes: Vec<String> =
            (0..self.model.nodes.len()).map(|node| self.node_name(node)).collect();
        world.run(&format!("delete node --ignore-not-found {}", nodes.join(" "))).await.map(drop)
    }
}
