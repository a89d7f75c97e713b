//! What cannot be on one node is split.

use serde_json::{Value, json};

use super::*;

#[test]
fn claims_without_a_common_node_are_split() {
    let zone = "topology.kubernetes.io/zone";
    let volumes = [
        volume("v1", zone, "a"),
        volume("v2", zone, "b"),
        volume("v3", "kubernetes.io/hostname", "n1"),
    ];
    let claims = ["v1", "v2", "v3"].map(|of| claim(&format!("c{}", &of[1..]), RWO, Some(of)));
    let others: Vec<Value> = volumes.into_iter().chain(claims).collect();
    let workspaces = [bound("1", "c1"), bound("2", "c2"), bound("3", "c3"), template("4", RWO)];
    let both =
        run(&workspaces, &[task("x", &["1"]), task("y", &["2"]), task("z", &["1", "2", "4"])]);

    let made = groups(both.clone(), &others, "workspaces");
    assert_eq!(summarize(&made), ["1: c1 @ / x z", "2: c2 / y", "3: c3 / "]);
    let conflicts: Vec<String> = made.conflicts.iter().map(ToString::to_string).collect();
    assert_eq!(conflicts, ["no node can mount both claims c1 and c2, and task z uses both"]);
    let Membership::Several(..) = made.membership(Some("z"), &["c1", "c2"], &[], |_| false) else {
        panic!("a task that uses both is in neither")
    };
    let standing = ["1", "2"].map(|key| placeholder(key, &[&format!("c{key}")], &[], "workspaces"));
    let of_both = [&others[..], &standing].concat();
    assert_eq!(groups(both.clone(), &of_both, "workspaces").conflicts, made.conflicts);

    let made = groups(both, &others, "pipelineruns");
    assert_eq!(summarize(&made), [": c1 c3 @ / x z", "2: c2 / y"]);
    assert_ne!(made.groups[0].name, made.groups[1].name);
    // Claims that may be anywhere join the group of the claims that they are used with.
    let with = run(&workspaces, &[task("x", &["1", "2"]), task("y", &["2", "4"])]);
    assert_eq!(
        summarize(&groups(with, &others, "workspaces")),
        ["1: c1 / x", "2: c2 @ / y", "3: c3 / "]
    );
    // Volumes that some node may reach together are not split: nodes come and go.
    let apart = run(&workspaces, &[task("z", &["1", "3"])]);
    assert!(groups(apart, &others, "workspaces").conflicts.is_empty());
    // A claim that is not bound yet, or whose volume is unknown, may get any node.
    let made = groups(
        run(&[bound("1", "c1"), bound("2", "c9")], &[task("z", &["1", "2"])]),
        &[claim("c9", RWO, Some("v9")), claim("c1", RWO, Some("v1"))],
        "workspaces",
    );
    assert_eq!(summarize(&made), ["1: c1 c9 / z"]);
}

#[test]
fn tasks_that_select_different_nodes_are_split_unless_they_share_a_claim() {
    let selector = |task: &str, arch: &str| json!({"pipelineTaskName": task, "podTemplate": {"nodeSelector": {"arch": arch}}});
    let document = |workspaces: &[Value], tasks: &[Value]| {
        let mut run = run(workspaces, tasks);
        run["spec"]["taskRunSpecs"] = json!([selector("x", "amd64"), selector("y", "arm64")]);
        run
    };
    // Only a claim that several nodes can mount is shared.
    let shared = document(
        &[template("w", RWX), template("a", RWO)],
        &[task("x", &["w"]), task("y", &["w", "a"]), task("z", &["a"]), task("free", &[])],
    );
    let made = groups(shared.clone(), &[], "pipelineruns");
    assert_eq!(summarize(&made), ["arch=amd64: @ / free x", "arch=arm64: @ @ / y z"]);
    assert!(made.conflicts.is_empty());
    let of = |task: Option<&str>, selector: &[(&str, &str)]| {
        let Membership::Of(group) = made.membership(task, &[], selector, |_| false) else {
            panic!("{task:?}")
        };
        group.key.to_string()
    };
    assert_eq!(of(Some("x"), &[("arch", "amd64")]), "arch=amd64");
    let many = claim_name(None, "w", UID);
    let Membership::Of(group) = made.membership(Some("y"), &[&many], &[], |_| false) else {
        panic!()
    };
    assert_eq!(&*group.key, "arch=arm64", "a claim of many nodes says nothing");
    let Membership::Of(group) = made.membership(None, &[&many], &[("arch", "arm64")], |_| false)
    else {
        panic!()
    };
    assert_eq!(&*group.key, "arch=arm64");
    assert_eq!(of(None, &[("arch", "arm64")]), "arch=arm64");
    assert_eq!(of(None, &[("arch", "s390x")]), "arch=amd64", "the first, for want of a better one");
    assert_eq!(of(Some("free"), &[]), "arch=amd64");
    assert_eq!(summarize(&groups(shared, &[], "workspaces")), ["a: @ / y z"]);

    // A claim that needs one node is shared.
    let bound_together = document(&[template("a", RWO)], &[task("x", &["a"]), task("y", &["a"])]);
    for mode in ["workspaces", "pipelineruns", "isolate-pipelinerun"] {
        let made = groups(bound_together.clone(), &[], mode);
        assert_eq!(made.groups.len(), 1, "{mode}");
        let conflicts: Vec<String> = made.conflicts.iter().map(ToString::to_string).collect();
        let [conflict] = conflicts.as_slice() else { panic!("{mode}: {conflicts:?}") };
        assert!(
            conflict.starts_with("task x asks for nodes with arch=amd64 and task y for arch=arm64")
        );
        assert!(made.groups[0].node_selector.is_empty());
    }

    // What all ask for together is what the placeholder asks for; a task's own takes the place of all.
    let mut one = document(&[template("a", RWO)], &[task("x", &["a"]), task("z", &["a"])]);
    one["spec"]["taskRunTemplate"] = json!({"podTemplate": {"nodeSelector": {"os": "linux"}}});
    let made = groups(one, &[], "workspaces");
    let labels: Vec<_> =
        made.groups[0].node_selector.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(labels, ["arch=amd64", "os=linux"]);
}

#[test]
fn a_claim_that_a_result_names_splits_a_group_if_its_volume_is_elsewhere() {
    let task_run = |name: &str, task: &str, claims: &[&str]| {
        let workspaces: Vec<Value> = claims.iter().map(|claim| bound("w", claim)).collect();
        json!({
            "apiVersion": "tekton.dev/v1", "kind": "TaskRun",
            "metadata": {"name": name, "namespace": "ci", "uid": name,
                "labels": {(keys::PIPELINE_TASK): task},
                "ownerReferences": [{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
                    "name": "run", "uid": UID, "controller": true}]},
            "spec": {"workspaces": workspaces},
        })
    };
    let result = bound("w", "$(tasks.a.results.claim)");
    let others = [
        volume("v1", "zone", "1"),
        volume("v2", "zone", "2"),
        claim("first", RWO, Some("v1")),
        claim("later", RWO, Some("v2")),
        claim("near", RWO, Some("v1")),
        claim("wide", RWX, None),
    ];
    let apart = |task: Option<&str>| match task {
        Some(task) => vec![format!(
            "no node can mount both claims first and later, and task {task} uses both"
        )],
        None => vec![
            "no node can mount both claims first and later, so the run is on several nodes"
                .to_owned(),
        ],
    };
    let tasks = [task("a", &["f"]), task("b", &["w"]), task("c", &["f"])];
    let both = [task("a", &["f"]), task("b", &["w", "f"])];
    for (mode, tasks, task_runs, expected, conflicts) in [
        // Without a TaskRun the claim is not known yet.
        ("pipelineruns", &tasks[..], vec![], vec![": first? / a b c"], vec![]),
        (
            "pipelineruns",
            &tasks[..],
            vec![task_run("tr-b", "b", &["later"])],
            vec![": first / a c", "w: later / b"],
            apart(None),
        ),
        (
            "pipelineruns",
            &tasks[..],
            vec![task_run("tr-b", "b", &["near"])],
            vec![": first near / a b c"],
            vec![],
        ),
        (
            "workspaces",
            &both[..],
            vec![task_run("tr-a", "a", &["first"]), task_run("tr-b", "b", &["first", "later"])],
            vec!["f: first / a b", "w: later / "],
            apart(Some("b")),
        ),
        (
            "workspaces",
            &tasks[..],
            vec![task_run("tr-b", "b", &["wide"])],
            vec!["f: first / a c"],
            vec![],
        ),
        // A task that the pipeline does not have.
        (
            "pipelineruns",
            &tasks[..],
            vec![task_run("tr-x", "x", &["later"])],
            vec![": first? / a b c"],
            vec![],
        ),
    ] {
        let document = run(&[bound("f", "first"), result.clone()], tasks);
        let objects = [&others[..], &task_runs].concat();
        let made = groups(document.clone(), &objects, mode);
        assert_eq!(summarize(&made), expected, "{mode} {task_runs:?}");
        let found: Vec<String> = made.conflicts.iter().map(ToString::to_string).collect();
        assert_eq!(found, conflicts, "{mode} {task_runs:?}");
        // The record of the first group was written before the claim was known. One of a claim that
        // several nodes mount keeps its group.
        if expected.len() == 1 && mode == "workspaces" {
            continue;
        }
        let before = groups(document.clone(), &others, mode);
        let recorded = [&objects[..], &placeholders_of(&before)].concat();
        assert_eq!(summarize(&groups(document, &recorded, mode)), expected, "recorded, {mode}");
    }
    // The tasks of a resolver's pipeline are not known.
    let mut document = run(&[bound("f", "first"), result], &[]);
    document["spec"]["pipelineSpec"] = json!(null);
    document["spec"]["pipelineRef"] = json!({"resolver": "git"});
    let objects = [&others[..], &[task_run("tr-b", "b", &["later"])]].concat();
    let made = groups(document, &objects, "pipelineruns");
    assert_eq!(made.groups.len(), 2, "{:?}", summarize(&made));
}

/// Its volume could split the group, so the webhook waits for it a moment.
#[test]
fn a_claim_that_a_result_names_is_awaited() {
    let task_run = json!({
        "apiVersion": "tekton.dev/v1", "kind": "TaskRun",
        "metadata": {"name": "tr", "namespace": "ci", "uid": "tr",
            "labels": {(keys::PIPELINE_TASK): "b"},
            "ownerReferences": [{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
                "name": "run", "uid": UID, "controller": true}]},
        "spec": {"workspaces": [bound("w", "later")]},
    });
    let result = bound("w", "$(tasks.a.results.claim)");
    let document = run(&[template("f", RWO), result], &[task("a", &["f"]), task("b", &["w"])]);
    let made = groups(document.clone(), std::slice::from_ref(&task_run), "pipelineruns");
    let awaited: Vec<String> = made.awaited.iter().map(ToString::to_string).collect();
    assert_eq!(awaited, ["PersistentVolumeClaim ci/later"]);
    let made = groups(document, &[task_run, claim("later", RWO, None)], "pipelineruns");
    assert!(made.awaited.is_empty());
}
