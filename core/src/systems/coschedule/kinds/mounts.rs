//! The claims that pods mount, whatever created the pods.

use k8s_openapi::api::core::v1 as core;

use super::placeholder;
use crate::view::index::Sets;
use crate::view::pod::{PODS, is_finished};
use crate::view::rows::{RowIndex, Rows, TableRow};
use crate::view::{Kind, Name, Scope};

/// The claims that a pod mounts, if it mounts any and has not ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mounted(Box<[Box<str>]>);

/// The table of such pods. Empty outside the controller.
pub(crate) type Mounts = Rows<Mounted>;

impl TableRow for Mounted {
    type Object = core::Pod;
    type Index = Sets<Name>;
    const KIND: &'static Kind = &PODS;
    const WATCHED_IN: &'static [Scope] = &[Scope::Controller];

    fn from_object(pod: &core::Pod, scope: Scope) -> Option<Self> {
        let spec = pod.spec.as_ref().filter(|_| scope == Scope::Controller && !is_finished(pod))?;
        Some(placeholder::claims(spec)).filter(|claims| !claims.is_empty()).map(Self)
    }
}

/// Pods are found by each of their claims.
impl RowIndex<Mounted> for Sets<Name> {
    fn add(&mut self, pod: &Name, Mounted(claims): &Mounted) {
        for claim in claims {
            Self::add(self, Name::new(&pod.namespace, claim), pod);
        }
    }

    fn remove(&mut self, pod: &Name, Mounted(claims): Mounted) {
        for claim in claims {
            Self::remove(self, Name::new(&pod.namespace, &claim), pod);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::systems;
    use crate::systems::View;
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
        let mounts = &view.mounts;
        assert!(mounts.iter().count() == 0 && mounts.index().is_empty(), "{mounts:?}");
    }
}
