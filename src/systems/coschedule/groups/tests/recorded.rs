//! Groups of runs whose placeholders exist: they keep their names, whatever becomes of the Pipeline.

use serde_json::{Value, json};

use super::*;

/// A Pipeline is deleted, or created again, while its run continues: members still follow the existing
/// placeholders, and no run waits for the Pipeline.
#[test]
fn without_the_pipeline_existing_placeholders_decide_the_groups() {
    let own = |workspace: &str| claim_name(None, workspace, UID);
    let mut document =
        run(&[template("a", RWO), template("b", RWO), bound("c", "c1"), template("x", RWX)], &[]);
    document["spec"].as_object_mut().unwrap().remove("pipelineSpec");
    document["spec"]["pipelineRef"] = json!({"name": "p"});
    let pipeline = json!({
        "apiVersion": "tekton.dev/v1", "kind": "Pipeline", "metadata": {"name": "p", "namespace": "ci"},
        "spec": {"tasks": [task("1", &["a"]), task("2", &["b", "c"]), task("3", &["x"])]},
    });
    let c1 = claim("c1", RWO, None);
    let sets = [
        placeholder("a", &[&own("a")], &[], "workspaces"),
        placeholder("b", &["c1"], &[&own("b")], "workspaces"),
    ];
    let names = |made: &Groups| -> Vec<_> {
        made.groups.iter().map(|group| (group.key.clone(), group.name.clone())).collect()
    };
    let with = |others: &[Value]| {
        let others: Vec<Value> = others.iter().chain([&c1]).cloned().collect();
        groups(document.clone(), &others, "workspaces")
    };
    let known = with(&[pipeline, sets[0].clone(), sets[1].clone()]);
    assert_eq!(summarize(&known), ["a: @ / 1", "b: @ c1 / 2"]);
    let gone = with(&sets);
    assert_eq!(summarize(&gone), ["a: @ / ", "b: @ c1 / "]);
    let recorded = with(&placeholders_of(&known));
    assert_eq!(summarize(&recorded), summarize(&known));
    assert_eq!((names(&recorded), recorded.awaited.len()), (names(&known), 0));
    assert_eq!((names(&gone), gone.awaited.len()), (names(&known), 0));
    for (claims, key) in
        [(vec![own("a")], "a"), (vec![own("b")], "b"), (vec!["c1".to_owned()], "b")]
    {
        let claims: Vec<&str> = claims.iter().map(String::as_str).collect();
        let Membership::Of(group) = gone.membership(None, &claims, &[], |_| false) else {
            panic!("{key}")
        };
        assert_eq!(&*group.key, key);
    }
    assert_eq!(gone.membership(Some("3"), &[&own("x")], &[], |_| false), Membership::Free);
    // A workspace without a placeholder is a group of its own.
    let some = with(&sets[..1]);
    assert_eq!(summarize(&some), ["a: @ / ", "b: @ c1 / "]);
    assert_eq!(some.awaited.len(), 0);
    // Of a result that is known by now: the placeholder mounts its claim.
    let mut derived = document.clone();
    derived["spec"]["workspaces"] = json!([template("a", RWO), bound("w", "$(tasks.1.results.r)")]);
    let made = groups(
        derived,
        &[
            placeholder("a", &[&own("a")], &[], "workspaces"),
            placeholder("w", &["by-result"], &[], "workspaces"),
            claim("by-result", RWO, None),
        ],
        "workspaces",
    );
    assert_eq!(summarize(&made), ["a: @ / ", "w: ? / "]);
    for claim in ["by-result", "another-result"] {
        let Membership::Of(group) = made.membership(None, &[claim], &[], |_| false) else {
            panic!("{claim}")
        };
        assert_eq!(&*group.key, "w", "{claim}");
    }
    // Its record names another key than its name.
    let mut forged = placeholder("a", &[&own("a"), "c1"], &[], "workspaces");
    forged["metadata"]["annotations"][keys::RECORD] = json!(r#"{"key":"b"}"#);
    let none = with(&[forged]);
    assert_eq!((summarize(&none), none.awaited.len()), (vec!["a: @ @ c1 / ".to_owned()], 1));
}

#[test]
fn without_the_pipeline_a_run_of_two_architectures_keeps_its_parts() {
    let of_arch = |task: &str, arch: &str| json!({"pipelineTaskName": task, "podTemplate": {"nodeSelector": {"arch": arch}}});
    let mut document = run(&[template("x", RWX), template("a", RWO)], &[]);
    document["spec"].as_object_mut().unwrap().remove("pipelineSpec");
    document["spec"]["pipelineRef"] = json!({"name": "p"});
    document["spec"]["taskRunSpecs"] = json!([of_arch("1", "amd64"), of_arch("2", "arm64")]);
    let pipeline = json!({
        "apiVersion": "tekton.dev/v1", "kind": "Pipeline", "metadata": {"name": "p", "namespace": "ci"},
        "spec": {"tasks": [task("1", &["x"]), task("2", &["x", "a"])]},
    });
    let (x, a) = (claim_name(None, "x", UID), claim_name(None, "a", UID));
    let known = groups(document.clone(), &[pipeline], "pipelineruns");
    assert_eq!(summarize(&known), ["arch=amd64: @ / 1", "arch=arm64: @ @ / 2"]);
    let gone = groups(document, &placeholders_of(&known), "pipelineruns");
    assert_eq!((summarize(&gone), gone.awaited.len()), (summarize(&known), 0));
    for (before, after) in known.groups.iter().zip(&gone.groups) {
        assert_eq!((&before.name, &before.node_selector), (&after.name, &after.node_selector));
        assert_eq!(before.claims, after.claims);
    }
    for (claims, arch) in [
        (&[&*x][..], "amd64"),
        (&[&x], "arm64"),
        (&[&x, &a], "arm64"),
        (&[], "amd64"),
        (&[], "arm64"),
    ] {
        let selector = [("arch", arch)];
        let Membership::Of(group) = gone.membership(None, claims, &selector, |_| false) else {
            panic!("{claims:?}")
        };
        assert_eq!(*group.key, *format!("arch={arch}"), "{claims:?}");
    }
}

fn keys_and_names(made: &Groups) -> Vec<(Box<str>, Box<str>)> {
    made.groups.iter().map(|group| (group.key.clone(), group.name.clone())).collect()
}

/// What is bound to a place by and by does not say who is first.
#[test]
fn a_group_keeps_its_name_when_its_volume_is_created() {
    let own = claim_name(None, "a", UID);
    let document = run(
        &[template("a", RWO), bound("b", "b1"), bound("c", "c1")],
        &[task("1", &["b"]), task("2", &["a", "c"]), task("3", &["a", "c"])],
    );
    let with = |volume_of_a: Option<&str>| {
        let others = [
            claim("b1", RWO, Some("vb")),
            claim("c1", RWO, Some("vc")),
            claim(&own, RWO, volume_of_a),
            volume("va", "zone", "2"),
            volume("vb", "zone", "1"),
            volume("vc", "zone", "2"),
        ];
        groups(document.clone(), &others, "pipelineruns")
    };
    let (before, after) = (with(None), with(Some("va")));
    assert_eq!(summarize(&before), [": @ c1 / 2 3", "b: b1 / 1"]);
    assert_eq!(summarize(&after), summarize(&before));
    assert_eq!(keys_and_names(&after), keys_and_names(&before));
}

/// Of what was made for a run under one name nothing is found under another.
#[test]
fn a_group_with_a_placeholder_keeps_its_name() {
    // That many nodes mount the claim which gave the group its key is known later.
    let source = claim_name(None, "source", UID);
    let document = run(
        &[bound("cache", "shared"), template("source", RWO)],
        &[task("1", &["source"]), task("2", &["cache", "source"])],
    );
    let before = groups(document.clone(), &[], "workspaces");
    assert_eq!(summarize(&before), ["cache: shared @ / 1 2"]);
    for set in [
        placeholder("cache", &["shared"], &[&source], "workspaces"),
        placeholder("cache", &["shared", &source], &[], "workspaces"),
    ] {
        let after = groups(document.clone(), &[claim("shared", RWX, None), set], "workspaces");
        assert_eq!(summarize(&after), ["cache: @ / 1 2"]);
        assert_eq!(keys_and_names(&after), keys_and_names(&before));
    }

    // The Pipeline changes while the run continues: Tekton runs the version that it started with.
    let own = ["a", "b"].map(|workspace| claim_name(None, workspace, UID));
    let mut document = run(&[template("a", RWO), template("b", RWO)], &[]);
    document["spec"].as_object_mut().unwrap().remove("pipelineSpec");
    document["spec"]["pipelineRef"] = json!({"name": "p"});
    let pipeline = |tasks: &[Value]| {
        json!({
            "apiVersion": "tekton.dev/v1", "kind": "Pipeline",
            "metadata": {"name": "p", "namespace": "ci"}, "spec": {"tasks": tasks},
        })
    };
    let apart = pipeline(&[task("1", &["a"]), task("2", &["b"])]);
    let joined = pipeline(&[task("1", &["a", "b"]), task("2", &["b"])]);
    for mode in ["workspaces", "isolate-pipelinerun"] {
        let before = groups(document.clone(), std::slice::from_ref(&apart), "workspaces");
        let sets = [
            placeholder("a", &[], &[&own[0]], "workspaces"),
            placeholder("b", &[&own[1]], &[], "workspaces"),
        ];
        let others = [joined.clone(), sets[0].clone(), sets[1].clone()];
        let after = groups(document.clone(), &others, mode);
        assert_eq!(summarize(&after), ["a: @ / 1", "b: @ / 2"]);
        assert_eq!(keys_and_names(&after), keys_and_names(&before));
        assert_eq!(after.owner_of(&own[1]).map(|group| &*group.key), Some("b"));
    }
    assert_eq!(summarize(&groups(document, &[joined], "workspaces")), ["a: @ @ / 1 2"]);
}

/// Every question after the first placeholder exists is answered as before, whichever of the placeholders
/// exist already.
#[test]
fn recorded_groups_are_those_that_were_derived() {
    let of_arch = |task: &str, arch: &str| json!({"pipelineTaskName": task, "podTemplate": {"nodeSelector": {"arch": arch}}});
    let mut by_arch = run(
        &[template("x", RWX), template("a", RWO), bound("w", "$(tasks.1.results.r)")],
        &[task("1", &["x"]), task("2", &["x", "a"]), task("3", &["w"]), task("4", &[])],
    );
    by_arch["spec"]["taskRunSpecs"] = json!([of_arch("1", "amd64"), of_arch("2", "arm64")]);
    let several = run(
        &[template("a", RWO), template("b", RWO), bound("c", "c1"), bound("d", "c2")],
        &[task("1", &["a"]), task("2", &["b", "c"]), task("3", &["d"]), task("4", &[])],
    );
    let volumes = [
        claim("c1", RWO, Some("v1")),
        claim("c2", RWO, Some("v2")),
        volume("v1", "zone", "1"),
        volume("v2", "zone", "2"),
    ];
    for document in [by_arch, several] {
        for mode in ["workspaces", "pipelineruns", "isolate-pipelinerun"] {
            let derived = groups(document.clone(), &volumes, mode);
            let placeholders = placeholders_of(&derived);
            for kept in 0..1 << placeholders.len() {
                let some =
                    placeholders.iter().enumerate().filter(|(index, _)| kept >> index & 1 == 1);
                let some = some.map(|(_, placeholder)| placeholder.clone());
                let others: Vec<Value> = volumes.iter().cloned().chain(some).collect();
                let read = groups(document.clone(), &others, mode);
                assert_eq!(read, derived, "{mode} {kept:b}");
            }
        }
    }
}

#[test]
fn a_recorded_group_is_still_split_when_its_volumes_are_created_apart() {
    let document = run(
        &[bound("1", "c1"), bound("2", "c2"), template("3", RWO)],
        &[task("x", &["1", "2", "3"]), task("y", &["2"])],
    );
    let claims =
        |volumes: [Option<&str>; 2]| [claim("c1", RWO, volumes[0]), claim("c2", RWO, volumes[1])];
    let one = groups(document.clone(), &claims([None, None]), "workspaces");
    assert_eq!(summarize(&one), ["1: c1 c2 @ / x y"]);
    let volumes = [volume("v1", "zone", "1"), volume("v2", "zone", "2")];
    let bound = [&claims([Some("v1"), Some("v2")])[..], &volumes].concat();
    let first = [&bound[..], &placeholders_of(&one)].concat();
    let split = groups(document.clone(), &first, "workspaces");
    assert_eq!(summarize(&split), ["1: c1 @ / x", "2: c2 / y"]);
    assert_eq!(split.conflicts.len(), 1);
    // The second placeholder exists, and the first one's record still has both claims.
    let both = [&first[..], &placeholders_of(&split)[1..]].concat();
    assert_eq!(groups(document, &both, "workspaces"), split);
}

#[test]
fn claims_and_tasks_that_are_not_recorded_join_or_form_groups() {
    let document = run(
        &[template("a", RWO), template("b", RWO)],
        &[task("1", &["a"]), task("2", &["b"]), task("3", &["a"])],
    );
    let with = |record: &str, mode: &str| {
        let mut set = placeholder("a", &[], &[], mode);
        set["metadata"]["annotations"][keys::RECORD] = json!(record);
        summarize(&groups(document.clone(), &[set], mode))
    };
    for (record, expected) in [
        (r#"{"key":"a","workspaces":["a"],"tasks":["1"]}"#, ["a: @ / 1 3", "b: @ / 2"]),
        (
            r#"{"key":"a","workspaces":["a"],"tasks":["1","3","gone"]}"#,
            ["a: @ / 1 3 gone", "b: @ / 2"],
        ),
        // A task that the record names stays, whatever it uses.
        (r#"{"key":"a","workspaces":["a"],"tasks":["1","2","3"]}"#, ["a: @ / 1 2 3", "b: @ / "]),
        // Claims that the run does not have are not believed.
        (r#"{"key":"a","workspaces":["a","?"],"claims":["foreign"]}"#, ["a: @ / 1 3", "b: @ / 2"]),
        // Not valid: as if there were none.
        ("{}", ["a: @ / 1 3", "b: @ / 2"]),
        (r#"{"key":"b","workspaces":["a","b"]}"#, ["a: @ / 1 3", "b: @ / 2"]),
    ] {
        assert_eq!(with(record, "workspaces"), expected, "{record}");
    }
    assert_eq!(
        with(r#"{"key":"a","workspaces":["a"],"tasks":["1"]}"#, "pipelineruns"),
        ["a: @ / 1 3", ": @ / 2"]
    );
}
