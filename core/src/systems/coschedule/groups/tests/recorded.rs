//! Groups of runs whose placeholders exist: they keep their names, whatever becomes of the Pipeline.

use super::*;

fn keys_and_names(made: &Groups) -> Vec<(Box<str>, Box<str>)> {
    made.groups.iter().map(|group| (group.key.clone(), group.name.clone())).collect()
}

/// A Pipeline is deleted, or created again, while its run continues: members still follow the existing
/// placeholders, and no run waits for the Pipeline.
#[test]
fn without_the_pipeline_existing_placeholders_decide_the_groups() {
    let [a, b] = ["a", "b"].map(|workspace| claim_name(None, workspace, UID));
    let with = |others: &[Value]| {
        let document = run_of_p("a b c=c1 x:many");
        groups(&document, &[others, &storage("c1")].concat(), "workspaces")
    };
    let sets = [placeholder("a", &[&a], &[]), placeholder("b", &["c1"], &[&b])];
    let gone = with(&sets);
    assert_eq!((&*summarize(&gone), gone.awaited.len()), ("a: @ /; b: @ c1 /", 0));
    // A workspace without a placeholder is a group of its own.
    let some = with(&sets[..1]);
    assert_eq!((&*summarize(&some), some.awaited.len()), ("a: @ /; b: @ c1 /", 0));
    // Of a result that is known by now: the placeholder mounts its claim.
    let derived = [&sets[0], &placeholder("w", &["by-result"], &[])].map(Clone::clone);
    let others = [&derived[..], &storage("by-result")].concat();
    let made = groups(&run_of_p("a w=$(tasks.1.results.r)"), &others, "workspaces");
    assert_eq!(summarize(&made), "a: @ /; w: ? /");
    for claim in ["by-result", "another-result"] {
        assert_eq!(group_of(&made, None, &[claim], &[]), "w", "{claim}");
    }
    // Its record names another key than its name.
    let mut forged = placeholder("a", &[&a, "c1"], &[]);
    forged["metadata"]["annotations"][keys::RECORD] = json!(r#"{"key":"b"}"#);
    let none = with(&[forged]);
    assert_eq!((&*summarize(&none), none.awaited.len()), ("a: @ @ c1 /", 1));
}

/// Volumes that are bound by and by do not decide which group is first.
#[test]
fn a_group_keeps_its_name_when_its_volume_is_created() {
    let own = claim_name(None, "a", UID);
    let with = |volume_of_a: &str| {
        let others = storage(&format!("b1@vb c1@vc {own}{volume_of_a} va=2 vb=1 vc=2"));
        groups(&run("a b=b1 c=c1", "1:b 2:a,c 3:a,c"), &others, "pipelineruns")
    };
    let (before, after) = (with(""), with("@va"));
    assert_eq!(summarize(&before), ": @ c1 / 2 3; b: b1 / 1");
    assert_eq!(summarize(&after), summarize(&before));
    assert_eq!(keys_and_names(&after), keys_and_names(&before));
}

/// Of what was made for a run under one name nothing is found under another.
#[test]
fn a_group_with_a_placeholder_keeps_its_name() {
    // That many nodes mount the claim which gave the group its key is known later.
    let source = claim_name(None, "source", UID);
    let document = run("cache=shared source", "1:source 2:cache,source");
    let before = groups(&document, &[], "workspaces");
    assert_eq!(summarize(&before), "cache: shared @ / 1 2");
    for set in [
        placeholder("cache", &["shared"], &[&source]),
        placeholder("cache", &["shared", &source], &[]),
    ] {
        let others = [storage("shared:many"), vec![set]].concat();
        let after = groups(&document, &others, "workspaces");
        assert_eq!(summarize(&after), "cache: @ / 1 2");
        assert_eq!(keys_and_names(&after), keys_and_names(&before));
    }

    // The Pipeline changes while the run continues: Tekton runs the version that it started with.
    let [a, b] = ["a", "b"].map(|workspace| claim_name(None, workspace, UID));
    let document = run_of_p("a b");
    let before = groups(&document, &[pipeline("1:a 2:b")], "workspaces");
    let changed = pipeline("1:a,b 2:b");
    let sets = [placeholder("a", &[], &[&a]), placeholder("b", &[&b], &[])];
    for mode in ["workspaces", "isolate-pipelinerun"] {
        let after = groups(&document, &[&sets[..], std::slice::from_ref(&changed)].concat(), mode);
        assert_eq!(summarize(&after), "a: @ / 1; b: @ / 2");
        assert_eq!(keys_and_names(&after), keys_and_names(&before));
        assert_eq!(after.owner_of(&b).map(|group| &*group.key), Some("b"));
    }
    assert_eq!(summary(&document, &[changed], "workspaces"), "a: @ @ / 1 2");
}

/// Every question after the first placeholder exists is answered as before, whichever of the placeholders
/// exist already, and if all exist, without the Pipeline.
#[test]
fn recorded_groups_are_those_that_were_derived() {
    let mut by_arch = run_of_p("x:many a w=$(tasks.1.results.r)");
    by_arch["spec"]["taskRunSpecs"] = on_arch(&[("1", "amd64"), ("2", "arm64")]);
    let several = run_of_p("a b c=c1 d=c2");
    let others = storage("c1@v1 c2@v2 v1=1 v2=2");
    for (document, tasks) in [(by_arch, "1:x 2:x,a 3:w 4"), (several, "1:a 2:b,c 3:d 4")] {
        let known = [&others[..], &[pipeline(tasks)]].concat();
        for mode in ["workspaces", "pipelineruns", "isolate-pipelinerun"] {
            let derived = groups(&document, &known, mode);
            let placeholders = placeholders_of(&derived);
            for kept in 0..1 << placeholders.len() {
                let is_kept = |(index, _): &(usize, &Value)| kept >> index & 1 == 1;
                let some = placeholders.iter().enumerate().filter(is_kept);
                let some: Vec<Value> = some.map(|(_, set)| set.clone()).collect();
                let read = groups(&document, &[&known[..], &some].concat(), mode);
                assert_eq!(read, derived, "{mode} {kept:b}");
            }
            let gone = groups(&document, &[&others[..], &placeholders].concat(), mode);
            assert_eq!(gone.groups, derived.groups, "without the Pipeline, {mode}");
            assert!(gone.awaited.is_empty(), "{mode}: {:?}", gone.awaited);
        }
    }
}

#[test]
fn claims_and_tasks_that_are_not_recorded_join_or_form_groups() {
    for (mode, record, expected) in [
        ("workspaces", r#""tasks":["1"]"#, "a: @ / 1 3; b: @ / 2"),
        ("workspaces", r#""tasks":["1","3","gone"]"#, "a: @ / 1 3 gone; b: @ / 2"),
        // A task that the record names stays, whatever it uses.
        ("workspaces", r#""tasks":["1","2","3"]"#, "a: @ / 1 2 3; b: @ /"),
        // Claims that the run does not have are not believed.
        ("workspaces", r#""claims":["foreign"]"#, "a: @ / 1 3; b: @ / 2"),
        ("pipelineruns", r#""tasks":["1"]"#, "a: @ / 1 3; : @ / 2"),
    ] {
        let record = format!(r#"{{"key":"a","workspaces":["a","?"],{record}}}"#);
        assert_eq!(with_record(&record, mode), expected, "{record}");
    }
    for invalid in ["{}", r#"{"key":"b","workspaces":["a","b"]}"#] {
        assert_eq!(with_record(invalid, "workspaces"), "a: @ / 1 3; b: @ / 2", "{invalid}");
    }
}

/// The groups of a run of two workspaces, the first of which has a placeholder with this record.
fn with_record(record: &str, mode: &str) -> String {
    let mut set = placeholder("a", &[], &[]);
    set["metadata"]["annotations"] = json!({keys::RECORD: record, keys::MODE: mode});
    summary(&run("a b", "1:a 2:b 3:a"), &[set], mode)
}
