//! [`Idle`]: plans without the systems that have nothing to do.
//!
//! In a large cluster most changes concern one system or none: a pod of a service starts, a TaskRun
//! ends. A system that planned nothing plans nothing again while the kinds that it declares
//! ([`Reconciler::reads`]) show the same: plans are pure. A system that planned something always plans
//! again, because its actions have the versions of objects, and these are not compared.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::plan::Plan;
use super::policy::Policy;
use super::{RECONCILERS, Reconciler};
use crate::systems::View;

/// A system plans at least this often, in case that a clock was set.
const LONGEST: SignedDuration = SignedDuration::from_secs(60);

/// The systems that had nothing to do in their last plans, and what those depended on. For the plans
/// on one View.
#[derive(Debug, Default)]
pub struct Idle {
    policy: Policy,
    /// By the index of the system; `None`: it plans again.
    systems: Vec<Option<Rest>>,
}

/// A plan without actions.
#[derive(Debug)]
struct Rest {
    since: Timestamp,
    /// When the system wants to plan again.
    until: Option<Timestamp>,
    /// The revision of the kinds that the system reads.
    revision: u64,
}

impl Idle {
    /// Combines the plans of all systems, as [`super::plan`](fn@super::plan) does, with the same
    /// result.
    pub fn plan(&mut self, view: &View, policy: &Policy, now: Timestamp) -> Plan {
        if self.policy != *policy {
            self.policy = policy.clone();
            self.systems.clear();
        }
        self.systems.resize_with(RECONCILERS.len(), || None);
        let mut all = Plan::default();
        for (system, rest) in RECONCILERS.iter().zip(&mut self.systems) {
            if let Some(rest) = rest.as_ref().filter(|rest| rest.lasts(system, view, now)) {
                rest.until.into_iter().for_each(|until| all.recheck_by(until));
                continue;
            }
            let (plan, revision) = ((system.plan)(view, policy, now), view.revision(system.reads));
            let until = plan.recheck_at;
            *rest = plan.actions.is_empty().then_some(Rest { since: now, until, revision });
            all.extend(plan);
        }
        all
    }
}

impl Rest {
    /// Returns whether there is still nothing to do for the system.
    fn lasts(&self, system: &Reconciler, view: &View, now: Timestamp) -> bool {
        let age = now.duration_since(self.since);
        !age.is_negative()
            && age < LONGEST
            && self.until.is_none_or(|until| now < until)
            && view.revision(system.reads) == self.revision
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::systems::test_cases::cases;
    use crate::systems::test_objects::controlled_by;
    use crate::systems::{self, Object, test_objects};
    use crate::view::resource::POD;
    use crate::view::{Name, Resource, Scope};

    /// An object as the API server returns it.
    fn object(kind: &str, name: &str, version: usize, rest: &Value) -> Value {
        let (api_version, kind) = kind.rsplit_once('/').unwrap_or(("v1", kind));
        let mut object = json!({
            "apiVersion": api_version, "kind": kind, "metadata": {
                "name": name, "namespace": "ns", "uid": format!("uid-{name}"), "generation": 1,
                "resourceVersion": version.to_string(), "creationTimestamp": "2026-01-01T00:00:00Z",
            },
        });
        json_patch::merge(&mut object, rest);
        object
    }

    fn node(name: &str, ready: bool, version: usize) -> Object {
        let ready = json!({"type": "Ready", "status": if ready { "True" } else { "False" }});
        let status = json!({"conditions": [ready], "addresses": [{"type": "Hostname", "address": name}],
            "allocatable": {"cpu": "4", "memory": "4Gi", "pods": "10"}});
        let node = test_objects::node(name, &json!({"status": status}));
        read(object("Node", name, version, &node)).unwrap()
    }

    fn read(document: Value) -> Option<Object> {
        Object::from_document(document, Scope::Controller).unwrap()
    }

    /// A View, and for each system one that has only the kinds that the system declares.
    struct Views {
        whole: View,
        of_systems: Vec<View>,
    }

    impl Views {
        fn new() -> Self {
            Self {
                whole: View::default(),
                of_systems: RECONCILERS.iter().map(|_| View::default()).collect(),
            }
        }

        /// The Views with a kind.
        fn with(&mut self, kind: &Resource) -> impl Iterator<Item = &mut View> {
            let of_systems = RECONCILERS.iter().zip(&mut self.of_systems);
            let with = of_systems.filter(|(system, _)| system.reads.contains(kind));
            std::iter::once(&mut self.whole).chain(with.map(|(_, view)| view))
        }

        fn apply(&mut self, read: impl Fn() -> Object) {
            self.with(read().resource()).for_each(|view| view.apply(read()));
        }

        fn forget(&mut self, kind: &Resource, name: &Name) {
            self.with(kind).for_each(|view| view.forget(kind, name));
        }
    }

    /// Changes a pod as a watch does.
    fn put_pod(
        view: &mut Views,
        name: &str,
        version: usize,
        node: Option<usize>,
        metadata: &Value,
    ) {
        let phase = if node.is_some() { "Running" } else { "Pending" };
        let spec = json!({"containers": [{"name": "c"}], "nodeName": node.map(name_of)});
        let rest = json!({"metadata": metadata, "spec": spec, "status": {"phase": phase}});
        let pod = || read(object("Pod", name, version, &rest));
        match pod() {
            Some(_) => view.apply(|| pod().unwrap()),
            None => view.forget(&POD, &Name::new("ns", name)),
        }
    }

    fn name_of(node: usize) -> String {
        format!("n{}", node % 3)
    }

    /// Changes the View in one of several ways.
    fn change(view: &mut Views, what: usize, which: usize, version: usize) {
        let on_node = (!which.is_multiple_of(4)).then_some(which);
        let service = format!("service-{}", which % 2);
        let (kind, name, rest) = match what {
            0 => return view.apply(|| node(&name_of(which), which < 9, version)),
            1 => return put_pod(view, &service, version, on_node, &json!({})),
            2 => {
                let labels = json!({"app": "streams", "streams.ibm.com/job": "j", "streams.ibm.com/pe": "e"});
                return put_pod(view, "streams", version, on_node, &json!({"labels": labels}));
            }
            3 => {
                let owner = controlled_by("TaskRun", "task", "uid-task");
                let metadata = json!({"ownerReferences": owner});
                return put_pod(view, "task-pod", version, on_node, &metadata);
            }
            4 => return view.forget(&POD, &Name::new("ns", &service)),
            5 => {
                ("stowplan.dev/v1alpha1/HostPool", "pool", json!({"spec": {"size": which % 3 + 1}}))
            }
            6 => {
                let elements = json!([{"name": "e", "operators": [{"name": "O"}]}]);
                let spec = json!({"processingElements": elements});
                ("stowplan.dev/v1alpha1/StreamsJob", "j", json!({"spec": spec}))
            }
            7 => {
                let task = json!({
                    "name": "t", "workspaces": [{"name": "w", "workspace": "w"}],
                    "taskSpec": {"steps": [{"name": "s", "image": "i"}]},
                });
                let workspace = json!({"name": "w", "persistentVolumeClaim": {"claimName": "c"}});
                let spec = json!({"workspaces": [workspace], "pipelineSpec": {"tasks": [task]}});
                ("tekton.dev/v1/PipelineRun", "run", json!({"spec": spec}))
            }
            _ => {
                let owner = controlled_by("PipelineRun", "run", "uid-run");
                let labels = json!({"tekton.dev/pipelineTask": "t"});
                let metadata = json!({"labels": labels, "ownerReferences": owner});
                ("tekton.dev/v1/TaskRun", "task", json!({"metadata": metadata}))
            }
        };
        view.apply(|| systems::object(object(kind, name, version, &rest)).unwrap().unwrap());
    }

    fn time(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    proptest! {
        #![proptest_config(cases(64))]

        #[test]
        fn nothing_is_missing_in_a_plan_without_idle_systems(
            changes in prop::collection::vec((0_usize..9, 0_usize..12, 0_i64..40), 1..60),
        ) {
            let (mut views, mut policy, mut idle) =
                (Views::new(), Policy::default(), Idle::default());
            policy.coschedule.placeholder.image = "i".to_owned();
            let mut now = 0;
            for (version, (what, which, later)) in changes.into_iter().enumerate() {
                change(&mut views, what, which, version + 1);
                now += later;
                let whole = systems::plan(&views.whole, &policy, time(now));
                let plan = idle.plan(&views.whole, &policy, time(now));
                prop_assert_eq!(format!("{plan:?}"), format!("{whole:?}"));
                for (system, own) in RECONCILERS.iter().zip(&views.of_systems) {
                    let [whole, plan] =
                        [&views.whole, own].map(|view| (system.plan)(view, &policy, time(now)));
                    prop_assert_eq!(format!("{plan:?}"), format!("{whole:?}"), "{}", system.name);
                }
            }
        }
    }

    /// True for each system that was idle in the last plan and is still.
    fn idle_systems(idle: &Idle, view: &View, now: Timestamp) -> Vec<bool> {
        let lasts = |(system, rest): (_, &Option<Rest>)| {
            rest.as_ref().is_some_and(|rest| rest.lasts(system, view, now))
        };
        RECONCILERS.iter().zip(&idle.systems).map(lasts).collect()
    }

    #[test]
    fn a_system_plans_again_when_what_it_reads_has_changed() {
        let (mut views, policy, mut idle) = (Views::new(), Policy::default(), Idle::default());
        let apply = |view: &mut View, ready, version| view.update(node("n0", ready, version));
        assert!(apply(&mut views.whole, true, 1));
        change(&mut views, 5, 0, 2);
        let view = views.whole;
        // The pool gets its node, which is an action.
        assert!(!idle.plan(&view, &policy, time(0)).actions.is_empty());
        let all = idle_systems(&idle, &view, time(0));
        assert!(!all[0] && all[1..].iter().all(|is_idle| *is_idle), "{all:?}");

        let (mut view, mut idle) = (View::default(), Idle::default());
        assert!(apply(&mut view, true, 1));
        assert!(idle.plan(&view, &policy, time(0)).actions.is_empty());
        let all_idle = |view: &View, now| idle_systems(&idle, view, time(now)).iter().all(|it| *it);
        assert!(all_idle(&view, 1));
        assert!(!all_idle(&view, 60), "it plans again after a minute");
        assert!(!all_idle(&view, -1), "the clock was set");
        assert!(!apply(&mut view, true, 2), "its kubelet reports");
        assert!(all_idle(&view, 1));
        assert!(apply(&mut view, false, 3));
        assert!(!all_idle(&view, 1));
    }
}
