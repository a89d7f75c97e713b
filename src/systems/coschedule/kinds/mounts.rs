//! The claims that pods mount, whatever created the pods.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;

use super::placeholder;
use crate::view::pod::{PODS, all_for_controller, is_finished};
use crate::view::table::Watch;
use crate::view::{Kind, Name, Scope, Table};

/// The table of the claims that pods mount, without ended pods. Empty outside the controller.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    /// The claims of each pod that mounts any.
    pub(super) by_pod: HashMap<Name, Box<[Arc<Name>]>>,
    /// The number of pods that mount each claim.
    pub(super) pods: HashMap<Arc<Name>, u32>,
}

impl Table for Mounts {
    type Object = core::Pod;
    type Row = Box<[Box<str>]>;
    const KIND: &'static Kind = &PODS;
    const COUNTED_AS: Option<&'static str> = None;

    fn watches(scope: Scope) -> Vec<Watch> {
        all_for_controller(scope)
    }

    fn read(pod: &core::Pod, scope: Scope) -> Option<Box<[Box<str>]>> {
        let spec = pod.spec.as_ref().filter(|_| scope == Scope::Controller && !is_finished(pod))?;
        Some(placeholder::claims(spec)).filter(|claims| !claims.is_empty())
    }

    fn put(&mut self, pod: Name, claims: Box<[Box<str>]>) {
        let held = claims.iter().map(|claim| {
            let claim = Name::new(&pod.namespace, claim);
            let known = self.pods.get_key_value(&claim).map(|(claim, _)| Arc::clone(claim));
            let claim = known.unwrap_or_else(|| Arc::new(claim));
            *self.pods.entry(Arc::clone(&claim)).or_default() += 1;
            claim
        });
        let held = held.collect();
        self.by_pod.insert(pod, held);
    }

    fn forget(&mut self, pod: &Name) {
        for claim in self.by_pod.remove(pod).into_iter().flatten() {
            let Entry::Occupied(mut pods) = self.pods.entry(claim) else { continue };
            *pods.get_mut() -= 1;
            if *pods.get() == 0 {
                pods.remove();
            }
        }
    }

    fn count(&self) -> usize {
        self.by_pod.len()
    }

    fn shows(&self, pod: &Name, claims: Option<&Box<[Box<str>]>>) -> bool {
        let known = self.by_pod.get(pod).into_iter().flatten().map(|claim| &*claim.name);
        known.eq(claims.into_iter().flatten().map(|claim| &**claim))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::CoscheduleView as _;
    use super::*;
    use crate::systems;
    use crate::view::View;
    use crate::view::resource::POD;

    #[test]
    fn claims_are_mounted_until_their_last_pod_ends() {
        let pod = |name: &str, claims: &[&str], phase: &str| {
            let volume = |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
            let pod = json!({
                "metadata": {"name": name, "namespace": "ns"}, "status": {"phase": phase},
                "spec": {"containers": [], "volumes": claims.iter().map(volume).collect::<Vec<_>>()},
            });
            let pod: core::Pod = serde_json::from_value(pod).unwrap();
            systems::project(&pod, Scope::Controller)
        };
        let mounted =
            |view: &View| ["c", "d", "e"].map(|claim| view.is_mounted(&Name::new("ns", claim)));
        let mut view = View::default();
        view.apply(pod("p", &["c", "d", "c"], "Pending").unwrap());
        view.apply(pod("q", &["c"], "Running").unwrap());
        assert_eq!(mounted(&view), [true, true, false]);
        assert!(!view.is_mounted(&Name::new("other", "c")));
        view.apply(pod("p", &["e"], "Pending").unwrap());
        assert_eq!(mounted(&view), [true, false, true]);
        assert!(pod("q", &["c"], "Succeeded").is_none(), "an ended pod is not kept");
        view.forget(&POD, &Name::new("ns", "q"));
        view.forget(&POD, &Name::new("ns", "p"));
        let mounts = view.table::<Mounts>().unwrap();
        assert!(mounts.by_pod.is_empty() && mounts.pods.is_empty(), "{mounts:?}");
    }
}
