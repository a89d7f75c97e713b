//! The controllers that create pods: that of StatefulSets, and owners that create a pod again by its name,
//! as Tekton does for a TaskRun.

use serde_json::{Value, json};

use super::store::Id;
use super::{Event, Simulation};

impl Simulation {
    pub(super) fn workload_events(&self) -> impl Iterator<Item = Event> {
        let sets = self.store.all("StatefulSet").filter(|set| self.find_ordinal(set).is_some());
        let missing = self.recreated.keys().filter(|pod| self.store.get(pod).is_none());
        sets.map(|set| Event::Scale(Id::of(set))).chain(missing.cloned().map(Event::Recreate))
    }

    /// The ordinal of the next pod of a StatefulSet to be created, or to be deleted.
    fn find_ordinal(&self, set: &Value) -> Option<u64> {
        if !set["metadata"]["deletionTimestamp"].is_null() {
            return None;
        }
        let replicas = set["spec"]["replicas"].as_u64().unwrap_or(1);
        let pod = |ordinal: &u64| self.store.get(&pod_of(set, *ordinal));
        let missing = (0..replicas).find(|ordinal| pod(ordinal).is_none());
        let surplus = pod(&replicas).filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        missing.filter(|_| self.makes_pods).or_else(|| surplus.map(|_| replicas))
    }

    pub(super) fn scale(&mut self, set: &Id) {
        let Some(set) = self.store.get(set) else { return };
        let Some(ordinal) = self.find_ordinal(set) else { return };
        let id = pod_of(set, ordinal);
        if self.store.get(&id).is_some() {
            return self.store.delete(&id);
        }
        let mut pod = set["spec"]["template"].clone();
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"]["name"] = json!(*id.name);
        pod["metadata"]["namespace"] = json!(*id.namespace);
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "apps/v1", "kind": "StatefulSet", "name": set["metadata"]["name"],
            "uid": set["metadata"]["uid"], "controller": true,
        }]);
        pod["status"] = json!({"phase": "Pending"});
        // There is none of this name.
        let _ = self.store.create(pod);
    }

    pub(super) fn create_again(&mut self, id: &Id) {
        let Some(mut pod) = self.recreated.get(id).cloned() else { return };
        if let Some(admit) = self.admit {
            admit(&self.store, &mut pod);
        }
        // There is none of this name.
        let _ = self.store.create(pod);
    }
}

fn pod_of(set: &Value, ordinal: u64) -> Id {
    let set = Id::of(set);
    Id::new("Pod", &set.namespace, &format!("{}-{ordinal}", set.name))
}
