//! The reports of Katalyst's node agents: CustomNodeResources. Katalyst itself does not run here.
//!
//! A test writes reports with [`report`] as it needs them. [`Agents`] write them for some nodes by
//! themselves: each pod that Katalyst would bind to a NUMA node gets one that its anti-affinity and that
//! of the other pods (with the zone `numa`) allow, as with the build of katalyst-core's pull request 347,
//! but without its CPUs and its memory. That is written without stowplan's code.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::definition;

const GROUP: &str = "node.katalyst.kubewharf.io";
const VERSION: &str = "v1alpha1";
const KIND: &str = "CustomNodeResource";

const ANTI_AFFINITY: &str = "katalyst.kubewharf.io/microtopology_antiaffinity";
const QOS_LEVEL: &str = "katalyst.kubewharf.io/qos_level";
const MEMORY: &str = "katalyst.kubewharf.io/memory_enhancement";

/// How often the agents look for pods.
const PAUSE: Duration = Duration::from_millis(200);

/// A NUMA node in a report.
#[derive(Clone, Debug)]
pub struct Zone {
    /// The number of its socket.
    pub socket: usize,
    /// Its own number, of all NUMA nodes of the machine.
    pub number: usize,
    /// The pods that have resources of it, as [`consumer`] writes them.
    pub consumers: Vec<String>,
}

/// How a report names a pod.
#[must_use]
pub fn consumer(pod: &Pod) -> String {
    let of = |field: &Option<String>| field.clone().unwrap_or_default();
    let metadata = &pod.metadata;
    format!("{}/{}/{}", of(&metadata.namespace), of(&metadata.name), of(&metadata.uid))
}

/// Defines the kind, and waits until it is served.
///
/// # Errors
/// It is refused, or not served within a minute.
pub async fn define(client: &Client) -> Result<()> {
    definition::define(client, GROUP, "Cluster", &[VERSION], &[KIND]).await
}

fn reports(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &definition::resource(GROUP, VERSION, KIND))
}

/// Writes the report about a node, in the place of an earlier one.
///
/// # Errors
/// The API server refuses it.
pub async fn report(client: &Client, node: &str, zones: &[Zone]) -> Result<()> {
    let mut sockets: BTreeMap<usize, Vec<Value>> = BTreeMap::new();
    for zone in zones {
        let consumers = zone.consumers.iter();
        let allocations: Vec<Value> =
            consumers.map(|of| json!({"consumer": of, "requests": {"cpu": "4"}})).collect();
        sockets.entry(zone.socket).or_default().push(
            json!({"type": "Numa", "name": zone.number.to_string(), "allocations": allocations}),
        );
    }
    let sockets: Vec<Value> = sockets
        .into_iter()
        .map(|(socket, zones)| {
            json!({"type": "Socket", "name": socket.to_string(), "children": zones})
        })
        .collect();
    let status = json!({
        "topologyPolicy": "SingleNUMANodeContainerLevel", "topologyZone": sockets,
        "conditions": [{"type": "AgentReady", "status": "True"}],
    });
    report_status(client, node, status).await
}

/// Writes a report with this status.
///
/// # Errors
/// The API server refuses it.
pub async fn report_status(client: &Client, node: &str, status: Value) -> Result<()> {
    let reports = reports(client);
    if reports.get_opt(node).await?.is_none() {
        let object = json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": KIND,
            "metadata": {"name": node}});
        reports.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    }
    let patch = Patch::Merge(json!({"status": status}));
    reports.patch_status(node, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Deletes the report about a node.
///
/// # Errors
/// There is none.
pub async fn withdraw(client: &Client, node: &str) -> Result<()> {
    reports(client).delete(node, &DeleteParams::default()).await?;
    Ok(())
}

/// The NUMA nodes in the reports of all nodes, by the name of the node.
///
/// # Errors
/// A report has another form than [`report`] writes.
pub async fn reported(client: &Client) -> Result<BTreeMap<String, Vec<Zone>>> {
    let mut nodes = BTreeMap::new();
    for object in reports(client).list(&ListParams::default()).await? {
        let mut zones = Vec::new();
        for socket in object.data["status"]["topologyZone"].as_array().into_iter().flatten() {
            for zone in socket["children"].as_array().into_iter().flatten() {
                let allocations = zone["allocations"].as_array().into_iter().flatten();
                let consumers = allocations.filter_map(|of| of["consumer"].as_str());
                zones.push(Zone {
                    socket: number(&socket["name"])?,
                    number: number(&zone["name"])?,
                    consumers: consumers.map(str::to_owned).collect(),
                });
            }
        }
        nodes.insert(object.metadata.name.unwrap_or_default(), zones);
    }
    Ok(nodes)
}

fn number(name: &Value) -> Result<usize> {
    let name = name.as_str().context("a zone without a name")?;
    name.parse().with_context(|| format!("the name of a zone: {name}"))
}

/// Agents on some nodes. They end when this value is dropped; their last reports stay.
#[derive(Debug)]
pub struct Agents {
    _task: JoinSet<()>,
}

impl Agents {
    /// Starts agents on nodes with this many sockets and NUMA nodes on each socket, and waits for their
    /// first reports.
    ///
    /// # Errors
    /// The API server refuses a report.
    pub async fn start(
        client: &Client,
        nodes: &[&str],
        sockets: usize,
        zones: usize,
    ) -> Result<Self> {
        let socket_of: Vec<usize> = (0..sockets * zones).map(|zone| zone / zones).collect();
        let mut machines = Vec::new();
        for node in nodes {
            let machine = Machine {
                node: (*node).to_owned(),
                socket_of: socket_of.clone(),
                pods: Vec::new(),
            };
            report(client, node, &machine.zones()).await?;
            machines.push(machine);
        }
        let client = client.clone();
        let mut task = JoinSet::new();
        task.spawn(async move {
            loop {
                // What fails is done in the next round.
                let _ = serve(&client, &mut machines).await;
                tokio::time::sleep(PAUSE).await;
            }
        });
        Ok(Self { _task: task })
    }
}

/// Gives new pods a NUMA node, and reports what has changed.
async fn serve(client: &Client, machines: &mut [Machine]) -> Result<()> {
    let mut pods = Api::<Pod>::all(client.clone()).list(&ListParams::default()).await?.items;
    pods.retain(takes_part);
    pods.sort_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0));
    for machine in machines {
        let mut next = machine.clone();
        let here = |pod: &&Pod| {
            pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(&*machine.node)
        };
        let here: Vec<Bound> = pods.iter().filter(here).map(Bound::read).collect();
        let is_here = |known: &Bound| here.iter().any(|pod| pod.consumer == known.consumer);
        next.pods.retain(|(_, known)| is_here(known));
        let mut is_changed = next.pods.len() != machine.pods.len();
        for pod in here {
            if !next.pods.iter().any(|(_, known)| known.consumer == pod.consumer) {
                is_changed |= next.place(pod);
            }
        }
        if is_changed {
            report(client, &next.node, &next.zones()).await?;
            *machine = next;
        }
    }
    Ok(())
}

/// Returns true if Katalyst binds a pod to a NUMA node.
fn takes_part(pod: &Pod) -> bool {
    let of_key = |key| pod.metadata.annotations.as_ref().and_then(|all| all.get(key));
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let memory = of_key(MEMORY).and_then(|text| serde_json::from_str::<Value>(text).ok());
    of_key(QOS_LEVEL).is_some_and(|level| level == "dedicated_cores")
        && memory.is_some_and(|memory| memory["numa_binding"] == "true")
        && !matches!(phase, Some("Succeeded" | "Failed"))
}

/// A pod on a node.
#[derive(Clone, Debug)]
struct Bound {
    consumer: String,
    labels: BTreeMap<String, String>,
    /// Labels that pods on the same NUMA node must not have.
    avoids: Vec<(String, String)>,
}

impl Bound {
    fn read(pod: &Pod) -> Self {
        let text = pod.metadata.annotations.as_ref().and_then(|all| all.get(ANTI_AFFINITY));
        let value: Option<Value> = text.and_then(|text| serde_json::from_str(text).ok());
        let required = value.as_ref().and_then(|value| value["required"].as_array());
        let mut avoids = Vec::new();
        for selector in required.into_iter().flatten() {
            for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
                let value = value.as_str().unwrap_or_default().to_owned();
                avoids.push((key.clone(), value));
            }
        }
        Self {
            consumer: consumer(pod),
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            avoids,
        }
    }

    /// Returns true if it has a label that another one avoids.
    fn disturbs(&self, other: &Self) -> bool {
        other.avoids.iter().any(|(key, value)| self.labels.get(key) == Some(value))
    }
}

/// A node and the pods on its NUMA nodes.
#[derive(Clone, Debug)]
struct Machine {
    node: String,
    /// The socket of each NUMA node.
    socket_of: Vec<usize>,
    /// Each with its NUMA node.
    pods: Vec<(usize, Bound)>,
}

impl Machine {
    /// Gives a pod the emptiest of the NUMA nodes that are allowed. Where none is, a kubelet would reject
    /// the pod; here it stays without one.
    fn place(&mut self, pod: Bound) -> bool {
        let zones = (0..self.socket_of.len()).filter(|zone| self.allows(*zone, &pod));
        let load = |zone: &usize| self.pods.iter().filter(|(own, _)| own == zone).count();
        let Some(zone) = zones.min_by_key(load) else { return false };
        self.pods.push((zone, pod));
        true
    }

    fn allows(&self, zone: usize, new: &Bound) -> bool {
        let mut here = self.pods.iter().filter(|(own, _)| *own == zone);
        !here.any(|(_, pod)| pod.disturbs(new) || new.disturbs(pod))
    }

    fn zones(&self) -> Vec<Zone> {
        let zones = self.socket_of.iter().enumerate().map(|(number, socket)| {
            let here = self.pods.iter().filter(|(zone, _)| *zone == number);
            let consumers = here.map(|(_, pod)| pod.consumer.clone()).collect();
            Zone { socket: *socket, number, consumers }
        });
        zones.collect()
    }
}
