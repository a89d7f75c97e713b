use super::*;
use crate::systems::streams::api::streams_job::JobPlacement;
use crate::systems::streams::keys::SCALING;
use crate::systems::streams::kinds::host_pool;
use crate::systems::streams::kinds::scaling::ScalingPod;
use crate::systems::streams::reconcile;
use crate::systems::test_objects::{node, watch};
use crate::view::Scope;
use crate::view::rows::TableRow as _;

const WAIT: &str = "streams: {unmet: wait}";

/// A cluster, and what the controller writes about scaling pods.
struct World {
    view: View,
    policy: Policy,
}

impl World {
    /// A cluster of so many nodes with the tag `fast`.
    fn new(nodes: usize, policy: &str) -> Self {
        let policy = Policy::from_yaml(policy).unwrap();
        let mut world = Self { view: View::default(), policy };
        (0..nodes).for_each(|number| world.join(&format!("n{number}")));
        world
    }

    fn put(&mut self, object: Value) {
        watch(&mut self.view, object, Scope::Controller);
    }

    /// A node joins.
    fn join(&mut self, name: &str) {
        let room = json!({"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}});
        let more = json!({"metadata": {"uid": name, "labels": {TAG_KEY: "fast"}}, "status": room});
        self.put(node(name, &more));
    }

    /// A pod of `job` that waits, behind the gate of its job.
    fn element(&mut self, job: &str, element: &str, with: &Value) {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("{job}-{element}"), "namespace": "ns", "uid": element,
                "labels": {"app": "streams", JOB: job, "streams.ibm.com/pe": element},
            },
            "spec": {"schedulingGates": [{"name": "stowplan.dev/streams-job"}], "containers": [
                {"name": "c", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}},
            ]},
        });
        json_patch::merge(&mut pod, with);
        self.put(pod);
    }

    /// The job `j` with these elements, which must be apart, on nodes with the tag.
    fn apart(&mut self, elements: &[&str], status: &Value) {
        let element = |name: &&str| {
            let operator =
                json!({"name": name, "host": {"pool": "Fast"}, "hostExlocation": ["apart"]});
            json!({"name": name, "operators": [operator]})
        };
        let elements: Vec<_> = elements.iter().map(element).collect();
        self.put(json!({
            "apiVersion": "stowplan.dev/v1alpha1", "kind": "StreamsJob",
            "metadata": {"name": "j", "namespace": "ns", "uid": "u", "generation": 1},
            "spec": {"pools": [{"name": "Fast", "tags": ["fast"]}], "processingElements": elements},
            "status": status,
        }));
    }

    /// The pool `p` of so many nodes with the tag.
    fn pool(&mut self, size: u32, more: &Value) {
        let mut pool = json!({
            "apiVersion": "stowplan.dev/v1alpha1", "kind": "HostPool",
            "metadata": {"name": "p", "namespace": "ns", "uid": "pool", "generation": 1},
            "spec": {"size": size, "tags": ["fast"]},
        });
        json_patch::merge(&mut pool, more);
        self.put(pool);
    }

    /// A pod that asks for the pool.
    fn asking(&mut self, name: &str, cpu: &str) {
        let label = format!("{POOL_LABEL_PREFIX}{}", host_pool::hash("pool"));
        let terms = json!([{"matchExpressions": [{"key": label, "operator": "Exists"}]}]);
        self.put(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "ns", "uid": name},
            "spec": {
                "nodeSelector": {"lane": name},
                "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}},
                "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
            },
        }));
    }

    /// The actions on StatefulSets that are planned now.
    fn actions(&self) -> Vec<Action> {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let actions = reconcile::plan(&self.view, &self.policy, now).actions;
        actions.into_iter().filter(|action| action.target.resource == STATEFUL_SET).collect()
    }

    /// Carries out what is planned: `+2` for a new StatefulSet of two pods, `=3` for one that gets three,
    /// `-` for one that is deleted. The pods of the new ones wait.
    fn settle(&mut self) -> Vec<String> {
        let mut done = Vec::new();
        for action in self.actions() {
            let Target { namespace, name, .. } = &action.target;
            let name = Name::new(namespace, name);
            match action.write {
                Write::Create(mut set) => {
                    done.push(format!("+{}", set["spec"]["replicas"]));
                    set["metadata"]["uid"] = json!(*name.name);
                    self.put(set);
                }
                Write::Patch(operations) => {
                    let known = self.view.scaling_sets().find(|(of, _)| **of == name).unwrap().1;
                    let json_patch::PatchOperation::Replace(replace) = &operations[1] else {
                        panic!("{operations:?}");
                    };
                    done.push(format!("={}", replace.value));
                    let mut labels = json!({SCALING: *name.name});
                    labels[SCALES_FOR] = json!(*known.owner);
                    let set = json!({
                        "apiVersion": "apps/v1", "kind": "StatefulSet",
                        "metadata": {
                            "name": *name.name, "namespace": "ns", "uid": *name.name, "labels": labels,
                            "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "o", "uid": *known.owner, "controller": true}],
                        },
                        "spec": {
                            "replicas": replace.value, "serviceName": "", "selector": {}, "template": {},
                        },
                    });
                    self.put(set);
                }
                Write::Delete { .. } => {
                    done.push("-".to_owned());
                    self.view.forget(&STATEFUL_SET, &name);
                }
                other => panic!("{other:?}"),
            }
        }
        done
    }

    /// The pod of the only StatefulSet with this number is bound to a node.
    fn bind(&mut self, number: u32, node: &str) {
        let set = self.view.scaling_sets().next().unwrap().0.name.to_string();
        self.scaling_pod(&set, number, &json!({"nodeName": node}));
    }

    /// The pod of a StatefulSet with this number exists.
    fn scaling_pod(&mut self, set: &str, number: u32, spec: &Value) {
        self.scaling_pod_with(&json!({}), set, number, spec);
    }

    /// As [`Self::scaling_pod`], with this metadata.
    fn scaling_pod_with(&mut self, metadata: &Value, set: &str, number: u32, spec: &Value) {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("{set}-{number}"), "namespace": "ns", "labels": {SCALING: set},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": set, "uid": set, "controller": true}],
            },
            "spec": {"containers": []},
        });
        json_patch::merge(&mut pod["metadata"], metadata);
        json_patch::merge(&mut pod["spec"], spec);
        self.put(pod);
    }
}

#[track_caller]
fn done(world: &mut World, expected: &[&str]) {
    assert_eq!(world.settle(), expected);
    assert_eq!(world.actions().len(), 0, "it has settled");
}

#[test]
fn a_job_asks_for_the_nodes_that_are_missing() {
    let mut world = World::new(2, WAIT);
    world.apart(&["a", "b", "c", "d"], &json!(null));
    done(&mut world, &[]);
    for element in ["a", "b", "c", "d"] {
        world.element("j", element, &json!({}));
    }
    done(&mut world, &["+2"]);
    // On nodes that exist they are of no use, but there they keep others away.
    world.bind(0, "n0");
    done(&mut world, &["=3"]);
    world.bind(1, "n1");
    done(&mut world, &["=4"]);
    // The View may show the pod before its node.
    world.bind(2, "new-0");
    done(&mut world, &[]);
    world.join("new-0");
    done(&mut world, &[]);
    world.bind(3, "new-1");
    world.join("new-1");
    // Not before the nodes are reserved.
    done(&mut world, &[]);
    let ready = json!({"conditions": [
        {"type": "Ready", "status": "True", "reason": "PoolsReady", "message": "", "observedGeneration": 1,
         "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ], "witness": JobPlacement::new(Vec::new(), "2026-01-01T00:00:00Z".parse().unwrap())});
    world.apart(&["a", "b", "c", "d"], &ready);
    done(&mut world, &["-"]);
}

#[test]
fn a_pod_that_will_be_bound_is_kept() {
    let mut world = World::new(0, WAIT);
    let elements = ["a", "b", "c"];
    world.apart(&elements, &json!(null));
    elements.iter().for_each(|element| world.element("j", element, &json!({})));
    done(&mut world, &["+3"]);
    let set = world.view.scaling_sets().next().unwrap().0.name.to_string();
    let tagged = json!({"nodeSelector": {TAG_KEY: "fast"}});
    (0..3).for_each(|number| world.scaling_pod(&set, number, &tagged));
    // A node has come, and the scheduler has bound no pod yet.
    world.join("new-0");
    done(&mut world, &[]);
    // The StatefulSet controller deletes the last pod first, whether it is bound or not.
    world.bind(2, "new-0");
    done(&mut world, &[]);
    // None of its pods takes the next node, so one of them would ask for a node too many.
    let large = json!([{"name": "c", "resources": {"requests": {"cpu": "99"}}}]);
    (0..2).for_each(|number| world.scaling_pod(&set, number, &json!({"containers": large})));
    world.join("new-1");
    done(&mut world, &["=2"]);
}

#[test]
fn pods_of_an_earlier_set_do_not_count() {
    let mut world = World::new(2, WAIT);
    let elements = ["a", "b", "c", "d"];
    world.apart(&elements, &json!(null));
    elements.iter().for_each(|element| world.element("j", element, &json!({})));
    done(&mut world, &["+2"]);
    // The garbage collector has not found the pod of a StatefulSet of the same name yet.
    let set = world.view.scaling_sets().next().unwrap().0.name.to_string();
    let owners = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": set, "uid": "earlier", "controller": true}]);
    let metadata = json!({"ownerReferences": owners});
    world.scaling_pod_with(&metadata, &set, 2, &json!({"nodeName": "n1"}));
    done(&mut world, &[]);
}

/// Its StatefulSet creates no other pod of its number while it exists.
#[test]
fn a_pod_on_a_lost_node_asks_for_no_node() {
    let mut world = World::new(1, WAIT);
    world.apart(&["a", "b"], &json!(null));
    ["a", "b"].iter().for_each(|element| world.element("j", element, &json!({})));
    done(&mut world, &["+1"]);
    let set = world.view.scaling_sets().next().unwrap().0.name.to_string();
    world.bind(0, "n0");
    done(&mut world, &["=2"]);
    // Another one on a node that is Ready takes its place soon.
    let timestamp = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    let on_node = json!({"nodeName": "n0"});
    world.scaling_pod_with(&timestamp, &set, 0, &on_node);
    done(&mut world, &[]);
    // Both nodes are missing now.
    world.put(node(
        "n0",
        &json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}),
    ));
    done(&mut world, &["=3"]);
    world.scaling_pod_with(&timestamp, &set, 0, &on_node);
    done(&mut world, &[]);
}

/// Its StatefulSet could create one while the number is lowered, and the scheduler bind it.
#[test]
fn the_number_is_lowered_only_for_pods_that_exist() {
    let mut world = World::new(0, WAIT);
    let elements = ["a", "b", "c"];
    world.apart(&elements, &json!(null));
    elements.iter().for_each(|element| world.element("j", element, &json!({})));
    done(&mut world, &["+3"]);
    world.join("new-0");
    done(&mut world, &[]);
    // None of them is bound to that node.
    let set = world.view.scaling_sets().next().unwrap().0.name.to_string();
    let large = json!([{"name": "c", "resources": {"requests": {"cpu": "99"}}}]);
    (0..3).for_each(|number| world.scaling_pod(&set, number, &json!({"containers": large})));
    done(&mut world, &["=2"]);
}

#[test]
fn nodes_stay_until_the_last_one_has_come() {
    // One of the pods has its node for itself, so that their scaling pods differ.
    let mut world = World::new(0, WAIT);
    let isolated = json!({"name": "a", "host": {"pool": "Fast"}, "hostIsolation": true});
    let other = json!({"name": "b", "host": {"pool": "Fast"}, "hostExlocation": ["x"]});
    world.put(json!({
        "apiVersion": "stowplan.dev/v1alpha1", "kind": "StreamsJob",
        "metadata": {"name": "j", "namespace": "ns", "uid": "u", "generation": 1},
        "spec": {
            "pools": [{"name": "Fast", "tags": ["fast"]}],
            "processingElements": [
                {"name": "a", "operators": [isolated]}, {"name": "b", "operators": [other]},
            ],
        },
    }));
    world.element("j", "a", &json!({}));
    let large = json!({"resources": {"requests": {"cpu": "3"}}, "name": "c"});
    world.element("j", "b", &json!({"spec": {"containers": [large]}}));
    done(&mut world, &["+1", "+1"]);
    let set = world.view.scaling_sets().next().unwrap().0.name.to_string();
    world.join("new-0");
    world.scaling_pod(&set, 0, &json!({"nodeName": "new-0"}));
    world.settle();
    let sets = world.view.scaling_sets().map(|(name, _)| &*name.name);
    assert!(sets.collect::<Vec<_>>().contains(&&*set), "an autoscaler would remove its node");
    assert_eq!(world.actions().len(), 0, "it has settled");
}

#[test]
fn a_scaling_pod_requires_what_the_pods_require() {
    let mut world = World::new(0, WAIT);
    world.apart(&["a", "b"], &json!(null));
    let requirement = |key: &str| json!({"key": key, "operator": "Exists"});
    let terms = json!([{"matchExpressions": [requirement("gpu"), requirement(HOSTNAME)]}]);
    let exclusive = json!({"key": EXCLUSIVE_TAINTS[0], "operator": "Exists"});
    let more = json!({"spec": {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "spot", "operator": "Exists"}, exclusive],
        "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}},
    }});
    world.element("j", "a", &more);
    world.element("j", "b", &more);
    let actions = world.actions();
    let [Action { write: Write::Create(set), .. }] = &*actions else { panic!("{actions:?}") };
    let pod = &set["spec"]["template"]["spec"];
    assert_eq!(pod["nodeSelector"], json!({"disk": "ssd"}));
    assert_eq!(pod["tolerations"], json!([{"key": "spot", "operator": "Exists"}]));
    let terms = &pod["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"];
    assert_eq!(*terms, json!([{"matchExpressions": [requirement("gpu")]}]));
    let requests = &pod["containers"][0]["resources"]["requests"];
    assert_eq!(*requests, json!({"cpu": "2000m", "memory": "1073741824"}));
    assert_eq!(set["metadata"]["ownerReferences"][0]["uid"], "u");
}

#[test]
fn a_pool_asks_for_nodes_if_pods_wait_for_it() {
    let mut world = World::new(1, WAIT);
    world.pool(3, &json!({}));
    done(&mut world, &[]);
    world.asking("p1", "1");
    done(&mut world, &["+2"]);
    // Each node has room for the largest one.
    world.asking("p2", "3");
    done(&mut world, &["+2", "-"]);
    assert_eq!(world.view.scaling_sets().count(), 1);
    let set = world.view.scaling_sets().next().unwrap().0.name.to_string();
    let slow = json!({"nodeSelector": {TAG_KEY: "slow"}});
    (0..2).for_each(|number| world.scaling_pod(&set, number, &slow));
    world.join("new-0");
    done(&mut world, &["=1"]);
    let with = |reason: &str| {
        json!({"status": {"conditions": [
            {"type": "Ready", "status": "False", "reason": reason, "message": "",
             "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]}})
    };
    world.pool(3, &with("InsufficientNodes"));
    world.join("new-1");
    done(&mut world, &[]);
    world.pool(3, &with("Reserving"));
    done(&mut world, &[]);
    // It may have no nodes any more.
    world.pool(3, &with("NotAllowed"));
    done(&mut world, &["-"]);
}

#[test]
fn the_pods_of_an_exclusive_pool_ask_for_nodes_without_pods_of_jobs() {
    let mut world = World::new(0, WAIT);
    world.pool(1, &json!({"spec": {"exclusivity": "Exclusive"}}));
    world.asking("p1", "1");
    let actions = world.actions();
    let [Action { write: Write::Create(set), .. }] = &*actions else { panic!("{actions:?}") };
    let pod = &set["spec"]["template"]["spec"];
    assert_eq!(pod["nodeSelector"], json!({TAG_KEY: "fast", "lane": "p1"}));
    let apart = pod["affinity"]["podAntiAffinity"][REQUIRED].as_array().unwrap();
    assert_eq!(apart.len(), 3, "its own, and those of all jobs by either label: {apart:?}");
}

#[test]
fn nothing_is_asked_for_that_the_policy_does_not_allow() {
    let with = |policy: &str| {
        let mut world = World::new(1, policy);
        world.pool(3, &json!({}));
        world.asking("p1", "1");
        world
    };
    for policy in
        ["", "streams: {unmet: wait, maxScalingPods: 0}", "streams: {unmet: wait, enabled: false}"]
    {
        done(&mut with(policy), &[]);
    }
    let mut world = with("streams: {unmet: wait, maxScalingPods: 2}");
    done(&mut world, &["+2"]);
    // A third one would be needed. Those that there are stay.
    world.bind(0, "n0");
    done(&mut world, &[]);
    let pools = world.view.host_pools().map(|(name, pool)| PoolLack { name, pool, missing: 2 });
    let pools: Vec<_> = pools.collect();
    let actions = plan(&world.view, &world.policy, &Placements::default(), &pools).actions;
    let [Action { events, .. }] = &*actions else { panic!("{actions:?}") };
    assert_eq!((events[0].reason, actions[0].target.resource), (TOO_MANY, HOST_POOL));
    // An administrator turns it off, in one of two ways.
    let is_deleted = |action: &Action| matches!(action.write, Write::Delete { .. });
    for policy in ["streams: {unmet: wait, maxScalingPods: 0}", ""] {
        world.policy = Policy::from_yaml(policy).unwrap();
        assert!(matches!(&*world.actions(), [action] if is_deleted(action)), "{policy}");
    }
    done(&mut world, &["-"]);
}

#[test]
fn a_scaling_pod_that_has_ended_does_not_count() {
    let set = "stowplan-scaling-x";
    let counts = |with: &Value| {
        let owners = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": set, "uid": "s", "controller": true}]);
        let mut pod =
            json!({"metadata": {"name": "p", "labels": {SCALING: set}, "ownerReferences": owners}});
        json_patch::merge(&mut pod, with);
        ScalingPod::from_object(&serde_json::from_value(pod).unwrap(), Scope::Controller).is_some()
    };
    assert!(counts(&json!({})));
    assert!(counts(&json!({"status": {"phase": "Running"}})));
    assert!(!counts(&json!({"status": {"phase": "Failed"}})));
    assert!(!counts(&json!({"metadata": {"ownerReferences": null}})), "users can set the label");
}
