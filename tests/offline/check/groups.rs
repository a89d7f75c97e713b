//! Groups that share a node: the placeholder, its node, its claims and its members. `check` calls a node
//! eligible exactly where the reconciler does, and a group moves in its answer exactly if the reconciler
//! moves it.

use serde_json::{Value, json};

use super::objects::*;

impl Findings {
    /// Adds what keeps the run's group, whose placeholder is on this node, from its progress.
    fn group(&mut self, label: &str, node: Option<&str>, more: &[Value]) -> &mut Self {
        self.add(label, &standing(node, more), "pr/image")
    }
}

/// A node whose allocatable capacity permits so many pods.
fn for_pods(node: Value, pods: &str) -> Value {
    with(node, &json!({"status": {"allocatable": {"pods": pods}}}))
}

fn selecting(pod: Value, labels: &Value) -> Value {
    with(pod, &json!({"spec": {"nodeSelector": labels}}))
}

#[test]
fn the_node_of_the_placeholder_is_an_obstacle() {
    let mut found = Findings::default();
    let member = of_run("image-clone-pod", None, "1");
    let (n1, n2) = (cordoned(room("n1", "4")), room("n2", "4"));
    let nodes = [n1.clone(), n2.clone(), member.clone()];
    let nodes_and = |more: &[Value]| [&nodes[..], more].concat();
    found.group("cordoned", Some("n1"), &nodes);
    let running_member = of_run("image-x-pod", Some("n1"), "1");
    found.group("a member runs there", Some("n1"), &nodes_and(&[running_member]));
    found.group("a volume is there", Some("n1"), &nodes_and(&claim("cache", &["n1"])));
    // A run that follows this one still uses the volume there.
    let labels = json!({"stowplan.dev/coschedule-member": "affinity-assistant-0123456789"});
    let other = with_cache(running("other", "n1", labels));
    found.group("a pod of another group uses its claim there", Some("n1"), &nodes_and(&[other]));
    let volumes = [claim("cache", &["n1", "n2"]), claim(CLAIM, &["n1", "n3"])].concat();
    let more = [&nodes_and(&[room("n3", "4")])[..], &volumes].concat();
    found.group("two volumes, no other node reaches both", Some("n1"), &more);
    found.group("no pod waits", Some("n1"), &nodes[..2]);
    // The reconciler leaves such a node when members have waited for the grace period, and only for
    // another one.
    let n1 = nameless(room("n1", "4"));
    found.group("without the label", Some("n1"), &[n1.clone(), n2, member.clone()]);
    found.group("without the label, and no other node", Some("n1"), &[n1, member]);
    found.compare("node_of_the_placeholder");
}

#[test]
fn a_placeholder_without_a_node_names_the_nodes_that_refuse_it() {
    let mut found = Findings::default();
    let mut objects = standing(None, &[cordoned(node("n1")), node("n2")]);
    objects.extend(claim("cache", &["n1"]));
    // A check of the placeholder's pod itself finds the same.
    found.add("a volume is on n1", &objects, "pr/image");
    found.add("the same, of the pod", &objects, &format!("pod/{PLACEHOLDER}-0"));
    objects.extend(claim(CLAIM, &["n2"]));
    found.add("two volumes on two nodes", &objects, "pr/image");
    let gone = [vec![node("n1")], claim("cache", &["gone"])].concat();
    found.group("the volume's node is gone", None, &gone);
    found.group("a free node", None, &[node("n1")]);
    found.group("a node without the label", None, &[nameless(room("n1", "4"))]);
    let leaving = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    found.group("a node that is being deleted", None, &[with(room("n1", "4"), &leaving)]);

    let disk = json!({"disk": "ssd"});
    let ssd = with(node("n1"), &json!({"metadata": {"labels": disk}}));
    let mut objects = standing(None, &[ssd, node("n2")]);
    objects[6]["spec"]["nodeSelector"] = disk;
    objects.extend(claim("cache", &["n2"]));
    found.add("a volume on a node that it does not select", &objects, "pr/image");
    found.compare("placeholder_without_a_node");
}

/// It must be where members run: other nodes are not mentioned.
#[test]
fn a_placeholder_is_held_where_a_member_runs() {
    let mut found = Findings::default();
    let running = of_run("image-clone-pod", Some("n1"), "1");
    let waiting = of_run("image-build-pod", None, "1");
    for (label, n1) in [
        ("cordoned", cordoned(room("n1", "4"))),
        ("full", for_pods(room("n1", "4"), "1")),
        ("free", room("n1", "4")),
    ] {
        found.group(label, None, &[n1, room("n2", "4"), running.clone(), waiting.clone()]);
    }
    let dead = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    for (label, of) in [
        ("a pod with the label alone", json!({"ownerReferences": []})),
        ("a deleted pod on a dead node", json!({"deletionTimestamp": "2026-01-01T00:00:00Z"})),
    ] {
        let stranger = with(running.clone(), &json!({"metadata": of}));
        let nodes = [with(room("n1", "4"), &dead), room("n2", "4")];
        found.group(label, None, &[&nodes[..], &[stranger, waiting.clone()]].concat());
    }
    // That of a native group may be elsewhere while its pods run on a node that is closed to new pods.
    let as_native = |pod: Value, annotations: &Value| -> Value {
        let pod = serde_json::from_str(&pod.to_string().replace(PLACEHOLDER, NATIVE)).unwrap();
        with(pod, &json!({"metadata": {"annotations": annotations}}))
    };
    let of_group = |name: &str, node: Option<&str>| {
        let pod = as_native(of_run(name, node, "1"), &nightly());
        with(pod, &json!({"metadata": {"ownerReferences": []}}))
    };
    for (label, n1) in [
        ("a native group", room("n1", "4")),
        ("a native group, cordoned", cordoned(room("n1", "4"))),
    ] {
        let placeholder =
            as_native(placeholder(None), &json!({"coschedule.stowplan.dev/plan": plan(&[])}));
        let pods = [of_group("old", Some("n1")), of_group("new", None), placeholder];
        found.add(label, &[[native_set(), n1, room("n2", "4")], pods].concat(), "pod/new");
    }
    found.compare("placeholder_beside_a_member");
}

#[test]
fn isolated_runs_use_every_node() {
    let mut found = Findings::default();
    let renamed = |object: Value, name: &str| {
        serde_json::from_str(&object.to_string().replace(PLACEHOLDER, name)).unwrap()
    };
    let mut objects = standing(None, &[node("n1")]);
    // The claims are those that it mounts; the group's name is that of the whole run.
    let own = "affinity-assistant-e9afff6d08";
    objects[5] = renamed(stateful_set("isolate-pipelinerun", &[]), own);
    objects[6] = renamed(placeholder(None), own);
    // By default, runs are isolated from those of their own namespace.
    for namespace in ["default", "elsewhere"] {
        let other = renamed(placeholder(Some("n1")), "affinity-assistant-0123456789");
        let other = with(other, &json!({"metadata": {"namespace": namespace}}));
        let objects = [&objects[..], &[other]].concat();
        found.add(&format!("another in namespace {namespace}"), &objects, "pr/image");
    }
    found.compare("isolated_runs");
}

#[test]
fn a_member_that_is_not_beside_its_placeholder_has_a_reason() {
    let mut found = Findings::default();
    let big = of_run("image-build-pod", None, "6");
    let (n1, n2) = (room("n1", "4"), room("n2", "8"));
    found.group("too large for n1", Some("n1"), &[n1.clone(), n2.clone(), big.clone()]);
    found.group("too large for each node", Some("n1"), &[n1.clone(), big.clone()]);
    // The group moves only to a node that takes the placeholder and a member: two pods.
    for pods in ["1", "2"] {
        let more = [n1.clone(), for_pods(n2.clone(), pods), big.clone()];
        found.group(&format!("{pods} pods fit on n2"), Some("n1"), &more);
    }
    // A group moves where the placeholder and each waiting member fit, whoever of them is asked about.
    let disk = json!({"disk": "ssd"});
    let picky = selecting(of_run("image-test-pod", None, "6"), &disk);
    let ssd = with(n1, &json!({"metadata": {"labels": disk}}));
    let objects = standing(Some("n1"), &[ssd, n2.clone(), big.clone(), picky]);
    found.add("n2 takes one member and not another", &objects, "pod/image-build-pod");
    let elsewhere = selecting(big.clone(), &json!({"kubernetes.io/hostname": "n2"}));
    found.group("it selects n2", Some("n1"), &[room("n1", "8"), n2, elsewhere]);
    let gates = json!([{"name": "stowplan.dev/placeholder"}, {"name": "example.com/quota"}]);
    let gated = with(big, &json!({"spec": {"schedulingGates": gates}}));
    let objects = standing(Some("n1"), &[room("n1", "8"), gated]);
    found.add("gated: the run", &objects, "pr/image");
    found.add("gated: the pod", &objects, "pod/image-build-pod");
    found.compare("member_elsewhere");
}

/// A pod that must be near others is near none on a node without the label.
#[test]
fn a_pod_with_pod_affinity_needs_the_hostname_label() {
    let mut found = Findings::default();
    let near = near("streams.ibm.com/hostcolocation.X", "podAffinity");
    for (label, affinity) in [("near others", near), ("alone", Value::Null)] {
        found.add(label, &[nameless(node("n1")), waiting("a", &affinity)], "pod/a");
    }
    found.compare("hostname_label");
}

/// What creates a pod again, and where its requirements are written, depends on the pod's
/// controller.
#[test]
fn the_remedy_for_a_member_depends_on_its_controller() {
    let mut found = Findings::default();
    let placeholder_pod = with(
        placeholder(Some("n1")),
        &json!({"metadata": {
            "name": format!("{NATIVE}-0"),
            "labels": {"stowplan.dev/placeholder": NATIVE, "stowplan.dev/coschedule-member": NATIVE,
                "app.kubernetes.io/component": null, "app.kubernetes.io/instance": null},
            "annotations": {"coschedule.stowplan.dev/plan": plan(&[])}}}),
    );
    let native = |owners: &Value| {
        let mut pod = waiting("report", &Value::Null);
        pod["metadata"]["annotations"] = nightly();
        pod["metadata"]["labels"] = json!({"stowplan.dev/coschedule-member": NATIVE});
        pod["metadata"]["ownerReferences"] = owners.clone();
        pod
    };
    let bound = json!({"spec": {"affinity": pinned("n2")}});
    let mut report = |label: &str, placeholder: &Value, n1: Value, pod: Value| {
        let objects = [native_set(), placeholder.clone(), n1, node("n2"), pod];
        found.add(label, &objects, "pod/report");
    };
    for kind in ["no controller", "ReplicaSet", "Job"] {
        let owner = json!({"apiVersion": "apps/v1", "kind": kind, "name": "made", "uid": "u", "controller": true});
        let has_owner = kind != "no controller";
        let pod = native(&if has_owner { json!([owner]) } else { json!([]) });
        let bound = with(pod.clone(), &bound);
        report(&format!("{kind}: on another node"), &placeholder_pod, node("n1"), bound);
        let elsewhere = selecting(pod.clone(), &json!({"kubernetes.io/hostname": "n2"}));
        report(&format!("{kind}: for another node"), &placeholder_pod, node("n1"), elsewhere);
        // The placeholder tolerates what its pod does not.
        let tolerant = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
        let taint = json!({"key": "team", "value": "ci", "effect": "NoSchedule"});
        let tolerant = with(placeholder_pod.clone(), &tolerant);
        report(&format!("{kind}: tainted"), &tolerant, tainted(node("n1"), &[taint]), pod);
    }

    let nowhere = json!({"spec": {"nodeName": null, "nodeSelector": {"disk": "ssd"}},
        "status": {"phase": "Pending"}});
    let nowhere = with(placeholder_pod, &nowhere);
    let objects = [native_set(), nowhere, node("n1"), native(&json!([]))];
    found.add("no node for the placeholder", &objects, "pod/report");

    let mut pod = of_run("image-build-pod", None, "1");
    pod["spec"]["affinity"] = pinned("n2");
    found.group("a TaskRun on another node", Some("n1"), &[node("n1"), node("n2"), pod]);
    found.compare("controller_of_a_member");
}

#[test]
fn claims_that_do_not_exist_or_are_used_elsewhere_are_reported() {
    let mut found = Findings::default();
    let mut objects = [vec![run(), task_run(false), class()], claim(CLAIM, &[])].concat();
    found.add("it does not exist", &objects, "pr/image");
    objects.push(of_run("image-build-pod", None, "1"));
    found.add("it does not exist: the pod", &objects, "pod/image-build-pod");
    let other = with_cache(running("other", "n2", json!({})));
    found.group("it is used elsewhere", Some("n1"), &[node("n1"), node("n2"), other]);
    found.compare("claims");
}
