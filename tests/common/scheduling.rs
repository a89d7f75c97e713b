//! Makes random questions to a scheduler: may this pod be bound to these nodes? Each is about a group of three
//! nodes with a namespace of its own, and combines a few features of pods, nodes and placed pods.

#![allow(dead_code, reason = "one of the suites asks a scheduler, the other does not")]

#[path = "scheduling/answer.rs"]
mod answer;
#[path = "scheduling/features.rs"]
mod features;

use std::collections::BTreeMap;

use proptest::prelude::Rng as _;
use proptest::test_runner::{RngAlgorithm, TestRng};
use serde_json::{Value, json};

pub(crate) use answer::{Answer, Prediction};
pub(crate) use features::FEATURES;

pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";

/// The class with the overhead of the feature "overhead".
pub(crate) const RUNTIME_CLASS: &str = "heavy";

/// The labels of nodes that a question changes.
pub(crate) const NODE_LABELS: [&str; 4] = [HOSTNAME, "zone", "disk", "cpus"];

/// The allocatable resources that a question changes.
pub(crate) const ALLOCATABLE: [&str; 6] =
    ["cpu", "memory", "pods", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu"];

/// The kinds of claims. Each group has two or three.
const CLAIMS: [&str; 6] = ["free", "placed", "by-field", "once", "deleting", "lost"];

/// The claim that no group has.
pub(crate) const MISSING: &str = "missing";

pub(crate) fn overhead() -> Value {
    json!({"cpu": "500m", "memory": "1Gi"})
}

/// A source of random choices.
pub(crate) struct Draw(TestRng);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        Self(TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.0.next_u32()).unwrap() % end
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// A claim, and its volume if it has one.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) claim: Value,
    pub(crate) volume: Option<Value>,
}

impl Claim {
    /// A claim of this namespace, with its name and a volume that every node can mount.
    pub(crate) fn free(namespace: &str) -> Self {
        let mut free = Self::random("free", namespace, &mut Draw::new(0), &[]);
        free.claim["metadata"]["name"] = json!(namespace);
        if let Some(volume) = &mut free.volume {
            volume["spec"]["claimRef"]["name"] = json!(namespace);
        }
        free
    }

    fn random(kind: &'static str, namespace: &str, draw: &mut Draw, nodes: &[String]) -> Self {
        let volume = format!("{namespace}-{kind}");
        let mode = if kind == "once" { "ReadWriteOncePod" } else { "ReadWriteOnce" };
        let mut claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": kind, "namespace": namespace},
            "spec": {"accessModes": [mode], "storageClassName": "", "volumeName": volume,
                "resources": {"requests": {"storage": "1Gi"}}},
            "status": {"phase": if kind == "lost" { "Lost" } else { "Bound" }},
        });
        let mut of = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
            "spec": {"accessModes": [mode], "capacity": {"storage": "1Gi"},
                "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/volume"},
                "claimRef": {"namespace": namespace, "name": kind}},
        });
        match kind {
            "placed" | "by-field" => {
                let mut terms = features::node_terms(draw, nodes, false);
                if kind == "by-field" {
                    let field = json!({"key": "metadata.name", "operator": "In", "values": [draw.pick(&[0, 1, 2].map(|of| &*nodes[of]))]});
                    terms = vec![json!({"matchFields": [field]})];
                }
                of["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": terms}});
            }
            "deleting" => {
                claim["metadata"]["finalizers"] = json!(["example.com/kept"]);
                claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            // What the controller of volumes takes for the loss of a volume.
            "lost" => {
                claim["metadata"]["annotations"] =
                    json!({"pv.kubernetes.io/bind-completed": "yes"});
            }
            _ => {}
        }
        Self { claim, volume: (kind != "lost").then_some(of) }
    }
}

/// Three nodes, and the claims of their namespace.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) namespace: String,
    pub(crate) nodes: Vec<String>,
    pub(crate) claims: Vec<Claim>,
}

impl Group {
    pub(crate) fn random(number: usize, draw: &mut Draw) -> Self {
        let namespace = format!("group-{number}");
        let nodes: Vec<_> = (0..3).map(|node| format!("{namespace}-n{node}")).collect();
        let first = draw.below(CLAIMS.len());
        let kinds = CLAIMS.iter().cycle().skip(first).step_by(1 + draw.below(2)).take(3);
        let claims = kinds.map(|kind| Claim::random(kind, &namespace, draw, &nodes)).collect();
        Self { namespace, nodes, claims }
    }
}

/// A pod that has no node yet, and everything that matters for it.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// The names of its [`FEATURES`].
    pub(crate) features: Vec<&'static str>,
    pub(crate) nodes: Vec<Value>,
    /// Pods with a node. The status of one is what its kubelet has reported, and one with a
    /// `deletionTimestamp` is being deleted.
    pub(crate) placed: Vec<Value>,
    pub(crate) claims: Vec<Value>,
    pub(crate) volumes: Vec<Value>,
    pub(crate) pod: Value,
    /// The nodes that the pod is limited to.
    pub(crate) asked: Vec<String>,
    /// All of it, to be read.
    pub(crate) text: String,
}

impl Question {
    /// The question `number` about a group. Its pods have the number in their names.
    pub(crate) fn random(group: &Group, number: usize, draw: &mut Draw) -> Self {
        let Group { namespace, nodes: names, claims } = group;
        let node = |name: &String| {
            json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "labels": {HOSTNAME: name}},
                "spec": {"taints": []},
                "status": {"conditions": [{"type": "Ready", "status": "True"}],
                    "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9",
                        "ephemeral-storage": "10Gi"}},
            })
        };
        let mut question = Self {
            features: Vec::new(),
            nodes: names.iter().map(node).collect(),
            placed: Vec::new(),
            claims: claims.iter().map(|of| of.claim.clone()).collect(),
            volumes: claims.iter().filter_map(|of| of.volume.clone()).collect(),
            pod: pod(namespace, &format!("q{number}")),
            asked: Vec::new(),
            text: String::new(),
        };
        let wanted = 1 + draw.below(3);
        let mut chosen: Vec<usize> = Vec::new();
        while chosen.len() < wanted {
            let index = draw.below(FEATURES.len());
            if !chosen.contains(&index) {
                chosen.push(index);
            }
        }
        // In the order of the list: the last ones change pods and nodes of the others.
        chosen.sort_unstable();
        for (name, apply) in chosen.into_iter().map(|index| FEATURES[index]) {
            question.features.push(name);
            apply(&mut question, draw);
        }
        for (index, placed) in question.placed.iter_mut().enumerate() {
            placed["metadata"]["name"] = json!(format!("q{number}-p{index}"));
        }
        // One node gets an exact answer; of several, the answer names one.
        question.asked = match draw.chance(60) {
            true => vec![names[draw.below(3)].clone()],
            false => names.clone(),
        };
        question.limit_to_asked();
        question.text = question.describe();
        question
    }

    /// Limits the pod to the nodes in question, by the name in each term of its node affinity.
    fn limit_to_asked(&mut self) {
        let affinity = &mut self.pod["spec"]["affinity"];
        let required =
            &mut affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        let terms = match required["nodeSelectorTerms"].take() {
            Value::Array(terms) => terms,
            _ => vec![Value::Null],
        };
        let mut limited = Vec::new();
        for term in terms {
            // A term without requirements selects nothing, and must stay so.
            if term == json!({}) {
                limited.push(term);
                continue;
            }
            limited.extend(self.asked.iter().map(|name| {
                let mut term = term.clone();
                let field = json!({"key": "metadata.name", "operator": "In", "values": [name]});
                match term["matchFields"].as_array_mut() {
                    Some(fields) => fields.push(field),
                    None => term["matchFields"] = json!([field]),
                }
                term
            }));
        }
        required["nodeSelectorTerms"] = json!(limited);
    }

    /// Returns the names of the nodes.
    fn names(&self) -> Vec<String> {
        self.nodes
            .iter()
            .map(|node| node["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Adds a pod on a node. Returns it.
    fn place(&mut self, node: usize) -> &mut Value {
        let mut placed = pod(self.pod["metadata"]["namespace"].as_str().unwrap(), "");
        // Nothing evicts it.
        placed["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        placed["spec"]["nodeName"] = self.nodes[node]["metadata"]["name"].clone();
        self.placed.push(placed);
        self.placed.last_mut().unwrap()
    }

    /// Draws a part of the pods on nodes.
    fn some_placed(&mut self, percent: usize, draw: &mut Draw) -> Vec<&mut Value> {
        self.placed.iter_mut().filter(|_| draw.chance(percent)).collect()
    }

    fn describe(&self) -> String {
        let mounted = self.pod["spec"]["volumes"].to_string();
        let is_mounted = |claim: &&Value| mounted.contains(&claim["metadata"]["name"].to_string());
        let claims: Vec<_> = self.claims.iter().filter(is_mounted).collect();
        let is_theirs = |volume: &&Value| {
            let name = &volume["metadata"]["name"];
            claims.iter().any(|claim| claim["spec"]["volumeName"] == *name)
        };
        let volumes = self.volumes.iter().filter(is_theirs);
        let documents = self.nodes.iter().chain(&self.placed).chain(claims.iter().copied());
        let (features, asked) = (self.features.join(", "), self.asked.join(", "));
        let mut text = format!("# {features}; asked about {asked}\n");
        for document in documents.chain(volumes).chain([&self.pod]) {
            let mut kept = document.clone();
            if let Some(metadata) = kept["metadata"].as_object_mut() {
                let noise = ["uid", "resourceVersion", "managedFields", "creationTimestamp"];
                metadata.retain(|key, _| !noise.contains(&&**key));
            }
            text += &format!("--- {kept}\n");
        }
        text
    }
}

/// A pod that has one container and asks for nothing. It tolerates what the API server adds for every pod.
fn pod(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [container("c")]},
    })
}

fn container(name: &str) -> Value {
    json!({"name": name, "image": "example.com/image"})
}

/// How often the questions with each feature got which answer.
#[derive(Default)]
pub(crate) struct Tally(BTreeMap<&'static str, [usize; 3]>);

impl Tally {
    pub(crate) fn count(&mut self, question: &Question, answer: &Answer) {
        let column = match answer {
            Answer::Bound(_) => 0,
            Answer::Refused(_) => 1,
            Answer::Gated => 2,
        };
        for feature in question.features.iter().copied().chain(["all questions"]) {
            self.0.entry(feature).or_default()[column] += 1;
        }
    }

    /// Returns the table, with a row for each feature.
    pub(crate) fn table(&self) -> String {
        let mut text = "| Feature | Questions | Bound | Refused | Gated |\n".to_owned();
        text += "| --- | ---: | ---: | ---: | ---: |\n";
        for name in FEATURES.iter().map(|(name, _)| *name).chain(["all questions"]) {
            let [bound, refused, gated] = self.get(name);
            let all = bound + refused + gated;
            text += &format!("| {name} | {all} | {bound} | {refused} | {gated} |\n");
        }
        text
    }

    /// Returns how many questions with a feature were answered by a node, by a refusal, and not at all.
    pub(crate) fn get(&self, feature: &str) -> [usize; 3] {
        self.0.get(feature).copied().unwrap_or_default()
    }
}
