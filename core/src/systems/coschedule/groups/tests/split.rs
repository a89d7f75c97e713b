//! Groups are split if no node takes all of their volumes.

use super::*;

#[test]
fn claims_without_a_common_node_are_split() {
    let mut others = storage("c1@v1 c2@v2 c3@v3 v1=a v2=b v3=n1");
    let of_v3 = &mut others[5]["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0];
    of_v3["matchExpressions"][0]["key"] = json!("kubernetes.io/hostname");
    let workspaces = "1=c1 2=c2 3=c3 4";
    let both = run(workspaces, "x:1 y:2 z:1,2,4");

    let made = groups(&both, &others, "workspaces");
    assert_eq!(summarize(&made), "1: c1 @ / x z; 2: c2 / y; 3: c3 /");
    let conflict = "no node can mount both claims c1 and c2, and task z uses both: claim c1 is in zone a, claim c2 in zone b";
    assert_eq!(conflicts(&made), [conflict]);
    assert_eq!(group_of(&made, Some("z"), &["c1", "c2"], &[]), "1 and 2");
    let standing = [placeholder("1", &["c1"], &[]), placeholder("2", &["c2"], &[])];
    let made = groups(&both, &[&others[..], &standing].concat(), "workspaces");
    assert_eq!(conflicts(&made), [conflict]);

    let made = groups(&both, &others, "pipelineruns");
    assert_eq!(summarize(&made), ": c1 c3 @ / x z; 2: c2 / y");
    assert_ne!(made.groups[0].name, made.groups[1].name);
    // Claims that may be anywhere join the group of the claims that they are used with.
    let with = summary(&run(workspaces, "x:1,2 y:2,4"), &others, "workspaces");
    assert_eq!(with, "1: c1 / x; 2: c2 @ / y; 3: c3 /");
    // Volumes that some node may reach together are not split: nodes come and go.
    assert!(groups(&run(workspaces, "z:1,3"), &others, "workspaces").conflicts.is_empty());
    // A claim that is not bound yet, or whose volume is unknown, may get any node.
    let unknown = summary(&run("1=c1 2=c9", "z:1,2"), &storage("c9@v9 c1@v1"), "workspaces");
    assert_eq!(unknown, "1: c1 c9 / z");
    let between = run("1=c1 2=c9 3=c2", "z:1,2,3");
    assert_eq!(conflicts(&groups(&between, &others, "workspaces")), [conflict]);
    // Local volumes have no zone.
    for volume in [3, 4] {
        let terms = &mut others[volume]["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
        terms[0]["matchExpressions"][0]["key"] = json!("kubernetes.io/hostname");
    }
    let local = conflicts(&groups(&both, &others, "workspaces")).remove(0);
    let places = "claim c1 is on nodes with kubernetes.io/hostname In [a], claim c2 on nodes with kubernetes.io/hostname In [b]";
    assert!(local.ends_with(places), "{local}");
}

#[test]
fn tasks_that_select_other_nodes_than_their_run_are_in_no_group() {
    let document = |of: &str, used_by: &str| {
        let mut run = run(of, used_by);
        run["spec"]["taskRunSpecs"] = on_arch(&[("x", "amd64"), ("y", "arm64")]);
        run
    };
    // Only a claim that several nodes can mount is shared.
    let shared = document("w:many a", "x:w y:w,a z:a free");
    let made = groups(&shared, &[], "pipelineruns");
    assert_eq!(summarize(&made), ": @ @ / free y z");
    let conflict = "task y asks for nodes with arch=arm64 and task x for arch=amd64, and task x is placed without the group of the run";
    assert_eq!(conflicts(&made), [conflict]);
    let many = claim_name(None, "w", UID);
    for (what, task, claims, selector, group) in [
        ("another selector", Some("x"), &[&*many][..], &[("arch", "amd64")][..], "free"),
        ("its selector", Some("y"), &[], &[("arch", "arm64")], ""),
        ("no task", None, &[&many], &[("arch", "arm64")], ""),
        ("no task, and another selector", None, &[], &[("arch", "s390x")], "free"),
        ("a task without a selector", Some("free"), &[], &[], ""),
    ] {
        assert_eq!(group_of(&made, task, claims, selector), group, "{what}");
    }
    assert_eq!(summary(&shared, &[], "workspaces"), "a: @ / y z");
    // No task that uses a claim of one node with a task that is left out is in the group.
    let claims = document("a b", "x:a u:a y:b v:b free");
    let made = groups(&claims, &[], "pipelineruns");
    assert_eq!(summarize(&made), ": @ / free u x");
    let conflict = "task x asks for nodes with arch=amd64 and task y for arch=arm64, and task y is placed without the group of the run";
    assert_eq!(conflicts(&made), [conflict]);
    let [a, b] = ["a", "b"].map(|workspace| claim_name(None, workspace, UID));
    for (task, claim, selector, group) in
        [("u", &*a, &[][..], ""), ("y", &*b, &[("arch", "arm64")], "free"), ("v", &*b, &[], "free")]
    {
        assert_eq!(group_of(&made, Some(task), &[claim], selector), group, "{task}");
    }

    // A claim that needs one node is shared.
    for mode in ["workspaces", "pipelineruns", "isolate-pipelinerun"] {
        let made = groups(&document("a", "x:a y:a"), &[], mode);
        assert_eq!((made.groups.len(), made.conflicts.len()), (1, 1), "{mode}");
        let conflict = made.conflicts[0].to_string();
        let start = "task x asks for nodes with arch=amd64 and task y for arch=arm64";
        assert!(conflict.starts_with(start), "{conflict}");
        assert!(made.groups[0].node_selector.is_empty());
    }

    // What all ask for together is what the placeholder asks for; a task's own takes the place of all.
    let mut one = document("a", "x:a z:a");
    one["spec"]["taskRunTemplate"] = json!({"podTemplate": {"nodeSelector": {"os": "linux"}}});
    let made = groups(&one, &[], "workspaces");
    let labels = made.groups[0].node_selector.iter().map(|(k, v)| format!("{k}={v}"));
    assert_eq!(labels.collect::<Vec<_>>(), ["arch=amd64", "os=linux"]);
}

#[test]
fn a_claim_that_a_result_names_splits_a_group_if_its_volume_is_elsewhere() {
    let others = storage("v1=1 v2=2 first@v1 later@v2 near@v1 wide:many");
    let of = "f=first w=$(tasks.a.results.claim)";
    let (apart, both) = ("a:f b:w c:f", "a:f b:w,f");
    let on_several = Some("so the run is on several nodes");
    let b = |claim: &str| vec![task_run("b", &[claim])];
    let both_known = vec![task_run("a", &["first"]), task_run("b", &["first", "later"])];
    for (mode, tasks, task_runs, expected, conflict) in [
        // Without a TaskRun the claim is not known yet.
        ("pipelineruns", apart, vec![], ": first? / a b c", None),
        ("pipelineruns", apart, b("later"), ": first / a c; w: later / b", on_several),
        ("pipelineruns", apart, b("near"), ": first near / a b c", None),
        (
            "workspaces",
            both,
            both_known,
            "f: first / a b; w: later /",
            Some("and task b uses both"),
        ),
        ("workspaces", apart, b("wide"), "f: first / a c", None),
        // A task that the pipeline does not have.
        ("pipelineruns", apart, vec![task_run("x", &["later"])], ": first? / a b c", None),
    ] {
        let document = run(of, tasks);
        let objects = [&others[..], &task_runs].concat();
        let made = groups(&document, &objects, mode);
        assert_eq!(summarize(&made), expected, "{mode} {task_runs:?}");
        let message = conflict.map(|end| {
            format!("no node can mount both claims first and later, {end}: claim first is in zone 1, claim later in zone 2")
        });
        assert_eq!(conflicts(&made), Vec::from_iter(message), "{mode} {task_runs:?}");
        // The record of the first group was written before the claim was known. One of a claim that
        // several nodes mount keeps its group.
        if conflict.is_some() || mode == "pipelineruns" {
            let before = placeholders_of(&groups(&document, &others, mode));
            let recorded = summary(&document, &[objects, before].concat(), mode);
            assert_eq!(recorded, expected, "recorded, {mode}");
        }
    }
    // The tasks of a resolver's pipeline are not known.
    let mut document = run_of_p(of);
    document["spec"]["pipelineRef"] = json!({"resolver": "git"});
    let objects = [others, vec![task_run("b", &["later"])]].concat();
    assert_eq!(groups(&document, &objects, "pipelineruns").groups.len(), 2);
}

/// Its volume could split the group, so the webhook waits for it a moment.
#[test]
fn a_claim_that_a_result_names_is_awaited() {
    let document = run("f w=$(tasks.a.results.claim)", "a:f b:w");
    let mut others = vec![task_run("b", &["later"])];
    let made = groups(&document, &others, "pipelineruns");
    let [awaited] = &*made.awaited else { panic!("{:?}", made.awaited) };
    assert_eq!(awaited.to_string(), "PersistentVolumeClaim ci/later");
    others.extend(storage("later"));
    assert!(groups(&document, &others, "pipelineruns").awaited.is_empty());
}
