//! One of the groups that share a claim leads.

use super::*;
use crate::systems::coschedule::reconcile::leaders;

/// A run whose tasks use the workspaces `w` and `v` together, and `x`.
fn run_with(name: &str, of: &str, created: u32) -> Value {
    let mut run = run(of, "1:w,v 2:x");
    run["metadata"] =
        json!({"name": name, "namespace": "ci", "uid": name, "creationTimestamp": at(created)});
    run["status"] = json!({"conditions": [{"type": "Succeeded", "status": "Unknown"}]});
    run
}

fn at(second: u32) -> String {
    format!("2026-01-01T00:00:{second:02}Z")
}

/// A run, and the TaskRun with which it begins.
fn begun(run: Value) -> Vec<Value> {
    let name = run["metadata"]["name"].as_str().unwrap();
    let task = json!({"apiVersion": "tekton.dev/v1", "kind": "TaskRun", "metadata": {
        "name": format!("{name}-first"), "namespace": "ci", "uid": format!("{name}-first"),
        "ownerReferences": controlled_by("PipelineRun", name, name),
    }});
    vec![run, task]
}

/// A run, and the placeholder of its first group.
fn placed(run: Value, since: u32) -> Vec<Value> {
    let name = run["metadata"]["name"].as_str().unwrap();
    let placeholder = keys::of_run(name, "w");
    let mut set = super::placeholder("w", &[], &[]);
    let metadata = json!({
        "name": placeholder, "uid": placeholder, "creationTimestamp": at(since),
        "labels": {keys::PLACEHOLDER: placeholder},
        "ownerReferences": controlled_by("PipelineRun", name, name),
    });
    json_patch::merge(&mut set["metadata"], &metadata);
    vec![run, set]
}

fn changed(mut objects: Vec<Value>, index: usize, change: &Value) -> Vec<Value> {
    json_patch::merge(&mut objects[index], change);
    objects
}

/// The leaders of the first group of the run `b`, among these runs.
fn leaders_of_b(runs: &[Vec<Value>]) -> Vec<(Who, Name, String)> {
    let view = view_of([runs.concat(), storage("c1 c2:many c3")].concat());
    let (name, run) = view.run_by_uid("b").unwrap();
    let made = of_run(name, run, &view, &policy("workspaces")).unwrap();
    let leaders = leaders(&view, &policy("workspaces")).of_group(name, run, &made.groups[0]);
    let each = leaders.into_iter().map(|of| (of.who, of.placeholder, of.claim.to_string()));
    each.collect()
}

/// The group of a run with this key, which uses a claim.
fn leading((name, key, claim): (&str, &str, &str)) -> (Who, Name, String) {
    let placeholder = Name::new("ci", &keys::of_run(name, key));
    (Who::Run(Name::new("ci", name)), placeholder, claim.to_owned())
}

/// The rank of a group decides: those with a placeholder come first, the oldest one leading, and then
/// those of runs that have begun.
#[test]
fn of_runs_with_one_claim_the_earlier_leads() {
    let of = |name: &str, created: u32| run_with(name, "w=c1 x=c2", created);
    let b = || begun(of("b", 2));
    let a = || begun(of("a", 1));
    let failed = json!({"metadata": {"annotations": {keys::FAILED: "true"}}});
    let assisted = json!({"metadata": {"annotations": {keys::ASSISTANT: "a"}}});
    let deleted = json!({"metadata": {"deletionTimestamp": at(9)}});
    let ended = json!({"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}});
    let in_a_group = json!({"metadata": {"annotations": {keys::GROUP: "g"}}});
    let placed_and_begun = |created: u32, since: u32| {
        let task = begun(of("a", created)).swap_remove(1);
        [placed(of("a", created), since), vec![task]].concat()
    };
    let two_claims = begun(run_with("b", "w=c1 v=c3", 3));
    let by_c3 = |created: u32| begun(run_with("z", "w=c3", created));
    let (led_by_a, led_by_z) = (Some(("a", "w", "c1")), Some(("z", "w", "c1")));
    // Of one whose pod template of a task mounts it, and of one that writes a task with it out.
    let mounting =
        json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c1"}}]});
    let by_template = json!({"spec": {"workspaces": [], "taskRunSpecs": [{"pipelineTaskName": "2", "podTemplate": mounting}]}});
    let by_task = json!({"spec": {"workspaces": [], "pipelineSpec": {"tasks": [{"name": "2", "taskSpec": mounting}]}}});
    let by_its_own_mounting = Some(("a", "claim/c1", "c1"));
    // Of a run whose claim of its own another one mounts.
    let own = claim_name(None, "w", "owner");
    let owner = begun(run_with("owner", "w", 0));
    let guest = begun(run_with("b", &format!("w={own}"), 9));
    for (what, runs, leader) in [
        ("alone", vec![b()], None),
        ("the other is later", vec![b(), begun(of("a", 3))], None),
        ("the other is earlier", vec![b(), a()], led_by_a),
        ("by UID", vec![b(), begun(of("a", 2))], led_by_a),
        ("of three", vec![begun(of("b", 3)), begun(of("a", 2)), begun(of("z", 1))], led_by_z),
        ("not begun itself", vec![vec![of("b", 2)], begun(of("a", 3))], led_by_a),
        ("ended", vec![b(), changed(a(), 0, &ended)], None),
        ("deleted", vec![b(), changed(a(), 0, &deleted)], None),
        ("in a named group", vec![b(), changed(a(), 0, &in_a_group)], None),
        ("not begun", vec![b(), vec![of("a", 1)]], None),
        ("assisted", vec![b(), changed(a(), 1, &assisted)], None),
        ("placed and not begun", vec![b(), placed(of("a", 3), 4)], led_by_a),
        ("placed and begun", vec![b(), placed_and_begun(3, 4)], led_by_a),
        ("not placed before placed", vec![placed(of("b", 3), 4), a()], None),
        ("placed earlier", vec![placed(of("b", 1), 3), placed(of("a", 2), 2)], led_by_a),
        ("placed later", vec![placed(of("b", 2), 2), placed(of("a", 1), 3)], None),
        ("placed at once", vec![placed(of("b", 2), 3), placed(of("a", 1), 3)], led_by_a),
        ("failed", vec![b(), changed(placed_and_begun(1, 1), 1, &failed)], None),
        ("placeholder deleted", vec![b(), changed(placed(of("a", 1), 1), 1, &deleted)], None),
        ("by pod template", vec![b(), changed(a(), 0, &by_template)], by_its_own_mounting),
        ("by inline task", vec![b(), changed(a(), 0, &by_task)], by_its_own_mounting),
        ("by the other claim", vec![two_claims, by_c3(0)], Some(("z", "w", "c3"))),
        ("a claim of the other's own", vec![owner, guest], Some(("owner", "w", &*own))),
    ] {
        assert_eq!(leaders_of_b(&runs), Vec::from_iter(leader.map(leading)), "{what}");
    }
    let of_two = begun(run_with("b", "w=c1 v=c3", 3));
    let both = leaders_of_b(&[of_two, a(), by_c3(2)]);
    assert_eq!(both, [leading(("a", "w", "c1")), leading(("z", "w", "c3"))]);
}
