//! Reviews to send: recorded ones, scaled and with other annotations.

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::world::{HOST, NAMESPACE, OWN_JOB};

const DEPLOYMENT: &str = include_str!("../../fixtures/recorded/core/pod-deployment.json");
const LARGE: &str = include_str!("../../fixtures/recorded/core/pod-large.json");
/// The first pod of [`world::runs`](crate::world::runs)' own run, and the claim of that run.
pub(crate) const MEMBER: &str =
    include_str!("../../fixtures/recorded/tekton-disabled/shared-fetch-pod.json");
pub(crate) const CLAIM: &str =
    include_str!("../../fixtures/recorded/tekton-disabled/shared-pvc.json");

/// A review that is being made.
#[derive(Clone, Debug)]
pub(crate) struct Review(Value);

impl Review {
    /// The recorded review of a Deployment's pod, with the labels of a Streams pod and annotations
    /// as clusters have them, none of them ours.
    pub(crate) fn recorded() -> anyhow::Result<Self> {
        let mut review = Self::read(DEPLOYMENT)?;
        review.0["request"]["namespace"] = json!(NAMESPACE);
        review.0["request"]["object"]["metadata"]["namespace"] = json!(NAMESPACE);
        for (key, value) in
            [("app", "streams"), ("streams.ibm.com/job", OWN_JOB), ("streams.ibm.com/pe", "7")]
        {
            review.label(key, value);
        }
        for (key, value) in [
            ("kubectl.kubernetes.io/restartedAt", "2026-11-21T22:47:45Z"),
            ("prometheus.io/port", "9090"),
            ("prometheus.io/scrape", "true"),
        ] {
            review.annotate(key, value);
        }
        Ok(review)
    }

    /// A recorded review as it is.
    pub(crate) fn read(text: &str) -> anyhow::Result<Self> {
        Ok(Self(serde_json::from_str(text)?))
    }

    fn object(&mut self) -> &mut Value {
        &mut self.0["request"]["object"]
    }

    pub(crate) fn annotate(&mut self, key: &str, value: &str) {
        self.object()["metadata"]["annotations"][key] = json!(value);
    }

    pub(crate) fn label(&mut self, key: &str, value: &str) {
        self.object()["metadata"]["labels"][key] = json!(value);
    }

    /// `count` variables more for the first container.
    pub(crate) fn add_variables(&mut self, count: usize) {
        let env = &mut self.object()["spec"]["containers"][0]["env"];
        let mut all = env.as_array().cloned().unwrap_or_default();
        let new = all.len()..all.len() + count;
        all.extend(new.map(|i| json!({"name": format!("VAR_{i}"), "value": format!("value-{i}")})));
        *env = all.into();
    }

    /// Grows to about `bytes`, at most a container's part more: containers of the recorded large
    /// pod with what `managedFields` says of each, then variables.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> anyhow::Result<()> {
        let large: Value = serde_json::from_str(LARGE)?;
        let large = &large["request"]["object"];
        let containers = large["spec"]["containers"].as_array().context("no containers")?;
        let managed = &large["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:containers"];
        for index in 0.. {
            let mut container = containers[index % containers.len()].clone();
            let old = format!("k:{{\"name\":{}}}", container["name"]);
            container["name"] = json!(format!("container-{index}"));
            let new = format!("k:{{\"name\":{}}}", container["name"]);
            let more = container.to_string().len() + managed[&old].to_string().len();
            if self.bytes().len() + more > bytes {
                break;
            }
            let object = self.object();
            if let Value::Array(own) = &mut object["spec"]["containers"] {
                own.push(container);
            }
            let fields = &mut object["metadata"]["managedFields"][0]["fieldsV1"];
            fields["f:spec"]["f:containers"][new] = managed[&old].clone();
        }
        while self.bytes().len() + 40 < bytes {
            self.add_variables(1);
        }
        Ok(())
    }

    /// Puts this many of stowplan's keys on the pod: none, one that pins it to a node, or ten.
    pub(crate) fn with_keys(mut self, keys: usize) -> Self {
        const KEYS: [(&str, &str); 5] = [
            ("streams.ibm.com/host", HOST),
            ("streams.ibm.com/host-colocation", "together"),
            ("streams.ibm.com/host-exlocation", "apart"),
            ("streams.ibm.com/host-isolation", "Sink"),
            ("streams.ibm.com/host-enforcement", "required"),
        ];
        for (key, value) in KEYS.into_iter().take(keys) {
            self.annotate(key, value);
        }
        for number in KEYS.len()..keys {
            self.annotate(&format!("stowplan.dev/of-a-newer-release-{number}"), "a");
        }
        self
    }

    /// A pod that Katalyst binds to NUMA nodes, with one annotation: of Streams, or its seed's of Katalyst.
    pub(crate) fn bound_to_numa(mut self, with_affinity: bool) -> Self {
        self.annotate("katalyst.kubewharf.io/qos_level", "dedicated_cores");
        self.annotate("katalyst.kubewharf.io/memory_enhancement", r#"{"numa_binding":"true"}"#);
        match with_affinity {
            true => self.annotate(
                "katalyst.kubewharf.io/microtopology_antiaffinity",
                "{\n  \"required\": [{\"matchLabels\": {\"antiaffinitykey\": \"antiaffinityvalue\"}, \"zone\":\"numa\"}]\n}",
            ),
            false => self.annotate("streams.ibm.com/host", HOST),
        }
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.to_string().into_bytes()
    }
}
