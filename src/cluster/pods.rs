//! Reports the changes of all pods to an observer, before the pods are projected.

use std::any::Any;

use k8s_openapi::api::core::v1 as core;
use kube::runtime::watcher::Event;

use stowplan_core::view::{Kind, Name};

/// A change that the watch of all pods reports, before the pod is projected.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PodChange<'p> {
    /// The pod was created or changed, or is part of a list.
    Current(&'p core::Pod),
    /// The pod was deleted.
    Deleted(&'p Name),
    /// A list of all pods follows: a pod that is not in it was deleted.
    Relisting,
}

/// A function that is called with each change of a pod. It returns whether a plan may depend on what it
/// has kept of that.
pub(super) type PodObserver = Box<dyn Fn(PodChange<'_>) -> bool + Send>;

/// Passes an event of the watch of all pods to `observer`, and returns its answer.
pub(super) fn notify<K: kube::Resource + 'static>(
    event: &Event<K>,
    kind: &Kind,
    observer: &PodObserver,
) -> bool {
    let pod = |object: &K| {
        let object: &dyn Any = object;
        object.downcast_ref::<core::Pod>().is_some_and(|pod| observer(PodChange::Current(pod)))
    };
    match event {
        Event::Init => observer(PodChange::Relisting),
        Event::InitApply(object) | Event::Apply(object) => pod(object),
        Event::Delete(object) => {
            kind.name(object.meta()).is_some_and(|name| observer(PodChange::Deleted(&name)))
        }
        Event::InitDone => false,
    }
}
