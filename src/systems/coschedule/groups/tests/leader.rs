//! Which of the groups that share a claim leads.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

#[test]
fn of_two_runs_with_one_claim_the_later_follows_the_earlier() {
    let of = |name: &str, second: u32, done: bool| {
        let mut document =
            run(&[bound("w", "c1"), bound("x", "c2")], &[task("1", &["w"]), task("2", &["x"])]);
        document["metadata"] = json!({"name": name, "namespace": "ci", "uid": name,
            "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")});
        let status = if done { "True" } else { "Unknown" };
        document["status"] = json!({"conditions": [{"type": "Succeeded", "status": status}]});
        document
    };
    let leader_of = |runs: &[Value]| {
        let claims = [claim("c1", RWO, None), claim("c2", RWX, None)];
        let view = view(runs.iter().cloned().chain(claims).chain(runs.iter().map(first_task)));
        let (name, run) = view.run_by_uid("b").unwrap();
        let made = of_run(name, run, &view, &policy("workspaces")).unwrap();
        assert_eq!(summarize(&made), ["w: c1 / 1"]);
        leader(name, run, &made.groups[0], &view, &policy("workspaces"))
            .map(|leader| (leader.who, leader.placeholder, leader.claim.to_string()))
    };
    let led_by = |name: &str| {
        let who = Who::Run(Name::new("ci", name));
        Some((who, Name::new("ci", &keys::of_run(name, "w")), "c1".to_owned()))
    };
    assert_eq!(leader_of(&[of("b", 2, false)]), None);
    assert_eq!(leader_of(&[of("b", 2, false), of("a", 3, false)]), None, "the later one");
    assert_eq!(leader_of(&[of("b", 2, false), of("a", 1, true)]), None, "it has ended");
    assert_eq!(leader_of(&[of("b", 2, false), of("a", 1, false)]), led_by("a"));
    assert_eq!(leader_of(&[of("b", 2, false), of("a", 2, false)]), led_by("a"), "by UID");
    assert_eq!(leader_of(&[of("b", 3, false), of("a", 2, false), of("z", 1, false)]), led_by("z"));
    // Of one whose pod template of a task mounts it, and of one that writes a task with it out.
    let mounting =
        json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c1"}}]});
    for (member, value) in [
        ("taskRunSpecs", json!([{"pipelineTaskName": "2", "podTemplate": mounting}])),
        ("pipelineSpec", json!({"tasks": [{"name": "2", "taskSpec": mounting}]})),
    ] {
        let mut other = of("a", 1, false);
        other["spec"] = json!({"pipelineSpec": {"tasks": [{"name": "2"}]}});
        other["spec"][member] = value;
        let found = leader_of(&[of("b", 2, false), other]).expect(member);
        assert_eq!(found.1, Name::new("ci", &keys::of_run("a", "claim/c1")), "{member}");
    }
    // Of a run whose claim of its own another one mounts.
    let mut owner = run(&[template("t", RWO)], &[task("1", &["t"])]);
    owner["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut guest = run(&[bound("w", &claim_name(None, "t", UID))], &[task("1", &["w"])]);
    guest["metadata"] = json!({"name": "b", "namespace": "ci", "uid": "b", "creationTimestamp": "2026-01-01T00:00:09Z"});
    let tasks = [first_task(&owner), first_task(&guest)];
    let view = view([owner, guest].into_iter().chain(tasks));
    let (name, run) = view.run_by_uid("b").unwrap();
    let made = of_run(name, run, &view, &policy("workspaces")).unwrap();
    let leader = leader(name, run, &made.groups[0], &view, &policy("workspaces")).unwrap();
    assert_eq!(leader.who, Who::Run(Name::new("ci", "run")));
    assert_eq!(leader.placeholder, Name::new("ci", &keys::of_run(UID, "t")));
}

/// The TaskRun with which a run begins.
fn first_task(run: &Value) -> Value {
    let name = run["metadata"]["name"].as_str().unwrap();
    json!({"apiVersion": "tekton.dev/v1", "kind": "TaskRun", "metadata": {
        "name": format!("{name}-first"), "namespace": run["metadata"]["namespace"], "uid": format!("{name}-first"),
        "ownerReferences": [{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": name,
            "uid": run["metadata"]["uid"], "controller": true}],
    }})
}

/// A run that shares a claim with others, as far as it decides which of them leads.
#[derive(Clone, Debug)]
struct Sharer {
    created: u32,
    done: bool,
    deleting: bool,
    group: bool,
    task: Option<bool>,
    /// When its placeholder was made, and whether that has failed.
    placeholder: Option<(u32, bool)>,
    claims: BTreeSet<usize>,
}

fn sharer() -> impl Strategy<Value = Sharer> {
    let rarely = || prop::bool::weighted(0.15);
    let task = prop::option::weighted(0.7, rarely());
    let placeholder = prop::option::weighted(0.5, (0..4_u32, rarely()));
    let claims = prop::collection::btree_set(0..3_usize, 1..3);
    (0..4_u32, rarely(), rarely(), rarely(), task, placeholder, claims).prop_map(
        |(created, done, deleting, group, task, placeholder, claims)| Sharer {
            created,
            done,
            deleting,
            group,
            task,
            placeholder,
            claims,
        },
    )
}

fn at(second: u32) -> String {
    format!("2026-01-01T00:00:{second:02}Z")
}

fn documents_of(name: &str, sharer: &Sharer) -> Vec<Value> {
    let claims: Vec<String> = sharer.claims.iter().map(|claim| format!("c{claim}")).collect();
    let workspaces: Vec<Value> = claims.iter().map(|claim| bound(claim, claim)).collect();
    let mut document = run(&workspaces, &[]);
    document["metadata"] = json!({"name": name, "namespace": "ci", "uid": name, "creationTimestamp": at(sharer.created)});
    if sharer.group {
        document["metadata"]["annotations"] = json!({keys::GROUP: "g"});
    }
    if sharer.deleting {
        document["metadata"]["deletionTimestamp"] = json!(at(9));
    }
    if sharer.done {
        document["status"] = json!({"conditions": [{"type": "Succeeded", "status": "True"}]});
    }
    let mut documents = vec![document];
    if let Some(assisted) = sharer.task {
        let mut task = first_task(&documents[0]);
        if assisted {
            task["metadata"]["annotations"] = json!({keys::ASSISTANT: "a"});
        }
        documents.push(task);
    }
    if let Some((created, failed)) = sharer.placeholder {
        let placeholder = keys::of_run(name, "");
        let record = Record::default().text();
        let mut annotations = json!({keys::MODE: "pipelineruns", keys::RECORD: record});
        if failed {
            annotations[keys::FAILED] = json!("true");
        }
        documents.push(json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {
            "name": placeholder, "namespace": "ci", "uid": placeholder, "creationTimestamp": at(created),
            "labels": {keys::PLACEHOLDER: placeholder}, "annotations": annotations,
            "ownerReferences": [{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": name,
                "uid": name, "controller": true}],
        }}));
    }
    documents
}

proptest! {
    /// Exactly one of the started runs that share a claim leads, and no run follows a follower.
    #[test]
    fn of_those_that_share_a_claim_one_leads(sharers in prop::collection::vec(sharer(), 1..7)) {
        let names: Vec<String> = (0..sharers.len()).map(|index| format!("r{index}")).collect();
        let documents = names.iter().zip(&sharers).flat_map(|(name, of)| documents_of(name, of));
        let claims = (0..3).map(|index| claim(&format!("c{index}"), RWO, None));
        let view = view(documents.chain(claims));
        let policy = policy("pipelineruns");
        let leads = |of: &Sharer| {
            let has_placeholder = of.placeholder.is_some_and(|(_, failed)| !failed);
            let begins = of.placeholder.is_none() && of.task == Some(false);
            !of.done && !of.deleting && !of.group && (has_placeholder || begins)
        };
        let mut follows = BTreeMap::new();
        for (name, of) in names.iter().zip(&sharers).filter(|(_, of)| !of.done && !of.group) {
            let (key, run) = view.run_by_uid(name).unwrap();
            let made = of_run(key, run, &view, &policy).unwrap();
            prop_assert_eq!(made.groups.len(), 1);
            let leader = leader(key, run, &made.groups[0], &view, &policy);
            let shared = |other: &Sharer| !other.claims.is_disjoint(&of.claims);
            let others = names.iter().zip(&sharers).filter(|(other, _)| *other != name);
            let candidates: Vec<_> = others.filter(|(_, of)| leads(of) && shared(of)).collect();
            match leader {
                None => {
                    if !leads(of) {
                        prop_assert!(candidates.is_empty(), "{name} follows no run");
                    }
                }
                Some(Leader { who: Who::Run(other), .. }) => {
                    let known = candidates.iter().any(|(known, _)| ***known == *other.name);
                    prop_assert!(known, "{name} follows {other:?}");
                    follows.insert(name.clone(), other.name.to_string());
                }
                Some(other) => prop_assert!(false, "{other:?}"),
            }
        }
        for claim in 0..3 {
            let users = names.iter().zip(&sharers);
            let users: Vec<_> =
                users.filter(|(_, of)| leads(of) && of.claims.contains(&claim)).collect();
            let inside = |name: &String| {
                follows.get(name).is_some_and(|other| users.iter().any(|(of, _)| *of == other))
            };
            let first = users.iter().filter(|(name, _)| !inside(name)).count();
            let apart = users.iter().any(|(_, of)| of.claims.len() > 1);
            prop_assert!(users.is_empty() || first >= 1);
            prop_assert!(apart || users.is_empty() || first == 1, "claim {claim}: {follows:?}");
        }
        for start in &names {
            let mut at = start;
            for _ in 0..=names.len() {
                match follows.get(at) {
                    Some(next) => at = next,
                    None => break,
                }
            }
            prop_assert!(!follows.contains_key(at), "{start} follows in a circle: {follows:?}");
        }
    }
}
