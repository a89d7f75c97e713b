//! The objects of a simulation by their kinds and names, for tests. One of a namespace is in [`NAMESPACE`].

use serde_json::{Value, json};

use super::{CONTROLLER, Edit, Id, Simulation};
use crate::admission::{self, Decision, Review};
use crate::systems::TABLES;
use crate::systems::plan::Plan;

pub const NAMESPACE: &str = "ns";

impl Id {
    pub fn in_tests(kind: &str, name: &str) -> Self {
        let mut resources = TABLES.iter().map(|table| &table.kind().resource);
        let is_namespaced = resources.any(|of| of.kind == kind && of.namespaced);
        Self::new(kind, if is_namespaced { NAMESPACE } else { "" }, name)
    }
}

impl Simulation {
    pub fn find(&self, kind: &str, name: &str) -> Option<&Value> {
        self.store.get(&Id::in_tests(kind, name))
    }

    pub fn get(&self, kind: &str, name: &str) -> &Value {
        let found = self.find(kind, name);
        found.unwrap_or_else(|| panic!("no {kind} {name}: {:?}", self.names(kind)))
    }

    pub fn has(&self, kind: &str, name: &str) -> bool {
        self.find(kind, name).is_some()
    }

    pub fn edit(&mut self, kind: &str, name: &str) -> Edit<'_> {
        self.store.edit(&Id::in_tests(kind, name)).unwrap()
    }

    /// Changes an object by a merge patch (RFC 7396).
    pub fn merge(&mut self, kind: &str, name: &str, with: &Value) {
        json_patch::merge(&mut self.edit(kind, name), with);
    }

    /// Removes an object for good.
    pub fn take(&mut self, kind: &str, name: &str) {
        self.remove_pod(&Id::in_tests(kind, name));
    }

    pub fn all(&self, kind: &str) -> impl Iterator<Item = &Value> + use<'_> {
        self.store.all(kind)
    }

    pub fn count(&self, kind: &str) -> usize {
        self.all(kind).count()
    }

    pub fn names(&self, kind: &str) -> Vec<String> {
        self.all(kind).map(|of| of["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    /// The plan of the controller after it has seen everything.
    pub fn plan(&mut self) -> Plan {
        self.catch_up(CONTROLLER);
        self.make_plan()
    }

    /// Creates a pod of [`NAMESPACE`] by way of a webhook, as its View is. Returns whether the webhook has changed it.
    pub fn admit(&mut self, webhook: usize, mut pod: Value) -> bool {
        let is_changed = match self.decide(webhook, &pod) {
            Decision::Pass(_) => false,
            Decision::Admit(admitted) => {
                json_patch::patch(&mut pod, &admitted.patch.operations()).unwrap();
                true
            }
            other => panic!("{other:?}"),
        };
        self.store.create(pod).unwrap();
        is_changed
    }

    /// The decision of a webhook about the creation of a pod of [`NAMESPACE`].
    pub fn decide(&self, webhook: usize, pod: &Value) -> Decision {
        let review =
            json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
                "uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "namespace": NAMESPACE, "operation": "CREATE", "object": pod,
            }})
            .to_string();
        let review = Review::parse(review.as_bytes()).unwrap();
        admission::decide(&review, self.view_of(webhook), &self.policy).unwrap().at_once()
    }
}
