//! Groups of runs whose placeholders exist: they keep their names, whatever becomes of the Pipeline.

use serde_json::{Value, json};

use super::*;

/// A Pipeline that is deleted, or made again, while its run goes on: members still go to the placeholders
/// that stand, and nobody waits for it.
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
    assert_eq!(told(&known), ["a: @ / 1", "b: @ c1 / 2"]);
    let gone = with(&sets);
    assert_eq!(told(&gone), ["a: @ / ", "b: @ c1 / "]);
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
    // What stands for nothing of it is a group by itself.
    let some = with(&sets[..1]);
    assert_eq!(told(&some), ["a: @ / ", "b: @ c1 / "]);
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
    assert_eq!(told(&made), ["a: @ / ", "w: by-result? / "]);
    for claim in ["by-result", "another-result"] {
        let Membership::Of(group) = made.membership(None, &[claim], &[], |_| false) else {
            panic!("{claim}")
        };
        assert_eq!(&*group.key, "w", "{claim}");
    }
    // Nobody's, by its name.
    let mut forged = placeholder("a", &[&own("a"), "c1"], &[], "workspaces");
    forged["metadata"]["annotations"][keys::GROUP_KEY] = json!("b");
    let none = with(&[forged]);
    assert_eq!((told(&none), none.awaited.len()), (vec!["a: @ @ c1 / ".to_owned()], 1));
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
    let sets = [
        placeholder("arch=amd64", &[&x], &[], "pipelineruns"),
        placeholder("arch=arm64", &[&x, &a], &[], "pipelineruns"),
    ];
    let known = groups(document.clone(), &[pipeline], "pipelineruns");
    let gone = groups(document, &sets, "pipelineruns");
    assert_eq!(told(&known), ["arch=amd64: @ / 1", "arch=arm64: @ @ / 2"]);
    assert_eq!(
        (told(&gone), gone.awaited.len()),
        (vec!["arch=amd64: @ / ".to_owned(), "arch=arm64: @ @ / ".to_owned()], 0)
    );
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
    assert_eq!(told(&before), [": @ c1 / 2 3", "b: b1 / 1"]);
    assert_eq!(told(&after), told(&before));
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
    assert_eq!(told(&before), ["cache: shared @ / 1 2"]);
    for set in [
        placeholder("cache", &["shared"], &[&source], "workspaces"),
        placeholder("cache", &["shared", &source], &[], "workspaces"),
    ] {
        let after = groups(document.clone(), &[claim("shared", RWX, None), set], "workspaces");
        assert_eq!(told(&after), ["cache: @ / 1 2"]);
        assert_eq!(keys_and_names(&after), keys_and_names(&before));
    }

    // A Pipeline that is changed while the run goes on, as Tekton runs what it began with.
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
        assert_eq!(told(&after), ["a: @ / 1", "b: @ / 2"]);
        assert_eq!(keys_and_names(&after), keys_and_names(&before));
        assert_eq!(after.owner_of(&own[1]).map(|group| &*group.key), Some("b"));
    }
    assert_eq!(told(&groups(document, &[joined], "workspaces")), ["a: @ @ / 1 2"]);
}
