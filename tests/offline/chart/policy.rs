//! The value `policy`: Helm refuses what stowplan would refuse.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::helm::{BINARY, Render, read, stdout};
use crate::documents::assert_current;

/// Makes of the schema that `stowplan policy schema` prints a definition of another schema: without
/// texts, and with references from the root.
fn make_definition(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            let texts = ["$schema", "title", "description", "default", "x-form"];
            map.retain(|key, _| !texts.contains(&key.as_str()));
            for (key, value) in map.iter_mut() {
                match (key.as_str(), value) {
                    ("properties" | "$defs", Value::Object(named)) => {
                        named.values_mut().for_each(make_definition);
                    }
                    ("$ref", Value::String(place)) => {
                        *place = place.replace("#/", "#/definitions/policy/");
                    }
                    (_, value) => make_definition(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(make_definition),
        _ => {}
    }
}

#[test]
fn the_chart_has_the_schema_of_the_policy() {
    let printed = stdout(Command::new(BINARY).args(["policy", "schema"]));
    let mut schema: Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!(schema["properties"]["onInvalid"]["default"], "refuse", "{schema}");
    make_definition(&mut schema);
    let text = read("values.schema.json");
    let is_policy = |line: &&str| line.starts_with("    \"policy\": {\"");
    let line = text.lines().find(is_policy).expect("the policy's line");
    let wanted = text.replace(line, &format!("    \"policy\": {schema},"));
    assert_current("charts/stowplan/values.schema.json", &wanted, "chart::policy");
}

/// Returns true if `stowplan policy check` accepts a policy.
fn stowplan_accepts(policy: &str) -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("policy.yaml");
    fs::write(&file, policy).expect("a file");
    let mut check = Command::new(BINARY);
    check.args(["policy", "check", "-f"]).arg(file).stdout(Stdio::null()).stderr(Stdio::null());
    check.status().expect("it runs").success()
}

/// Both read the same schema. So here is each form of a text, of which the schema has a pattern and
/// stowplan has code, and what the schema does not have.
#[test]
fn helm_and_stowplan_refuse_the_same_policies() {
    for policy in [
        "{}",
        r#"{"excludedNamespaces": ["kube-system", "a-1"]}"#,
        r#"{"log": "info,stowplan::server=debug"}"#,
        r#"{"log": ""}"#,
        r#"{"hostPools": {"nodeSelector": {"example.com/Zone": "", "a": "B_c.d"}}}"#,
        r#"{"coschedule": {"gracePeriod": "1000ms", "groupTTL": "0s", "classMap": {"a": "b.c"}}}"#,
        r#"{"coschedule": {"placeholder": {"image": "r.example:5000/a/b:1.0", "priorityClassName": ""}}}"#,
        r#"{"coschedule": {"placeholder": {"requests": {"cpu": 0.5, "memory": "16Mi"}}}}"#,
        r#"{"mpi": {"sshDir": "/home/mpi/.ssh", "sshPort": 2222, "secrets": false}}"#,
        r#"{"mpi": {"sshPort": null, "namespaces": {"team": "hpc"}, "clusterDomain": "example.org"}}"#,
        r#"{"katalyst": {"mode": "enforced", "declaredLabels": ["app", "example.com/team"]}}"#,
        r#"{"katalyst": {"mode": "disabled", "declaredLabels": []}}"#,
    ] {
        assert!(stowplan_accepts(policy), "{policy}");
        Render::defaults().set(&format!("policy={policy}")).text();
    }
    for (policy, field) in [
        (r#"{"onInvald": "warn"}"#, "onInvald"),
        (r#"{"onInvalid": "refuze"}"#, "/policy/onInvalid"),
        (r#"{"log": "info,stowplan=loud"}"#, "/policy/log"),
        (r#"{"log": null}"#, "/policy/log"),
        (r#"{"excludedNamespaces": "kube-system"}"#, "/policy/excludedNamespaces"),
        (r#"{"excludedNamespaces": ["Foo_Bar"]}"#, "/policy/excludedNamespaces/0"),
        (r#"{"hostPools": {"maxExclusiveNodesPerNamespace": -1}}"#, "/policy/hostPools"),
        (r#"{"hostPools": {"nodeSelector": {"x/y/z": "c"}}}"#, "invalid propertyName 'x/y/z'"),
        (r#"{"hostPools": {"namespaces": {"x": "bad value!"}}}"#, "/policy/hostPools/namespaces"),
        (r#"{"coschedule": {"enabled": "no"}}"#, "/policy/coschedule/enabled"),
        (r#"{"coschedule": {"gracePeriod": "999ms"}}"#, "/policy/coschedule/gracePeriod"),
        (r#"{"coschedule": {"gracePeriod": "soon"}}"#, "/policy/coschedule/gracePeriod"),
        (r#"{"coschedule": {"classMap": {"Fast": "a"}}}"#, "invalid propertyName 'Fast'"),
        (r#"{"coschedule": {"classMap": {"fast": "fast"}}}"#, "maps the class to itself"),
        (r#"{"coschedule": {"classMap": {"fast": "stowplan-parked"}}}"#, "never bound"),
        (r#"{"coschedule": {"placeholder": {"image": "a b"}}}"#, "/policy/coschedule/placeholder"),
        (r#"{"coschedule": {"placeholder": {"priorityClassName": "A B"}}}"#, "/priorityClassName"),
        (r#"{"coschedule": {"placeholder": {"requests": {"memory": "16MB"}}}}"#, "/memory"),
        (r#"{"katalyst": {"mode": "enforced"}}"#, "policy.katalyst.declaredLabels is empty"),
        (r#"{"katalyst": {"gateDeadline": "0s"}}"#, "/policy/katalyst/gateDeadline"),
        (r#"{"katalyst": {"declaredLabels": ["a'b"]}}"#, "/policy/katalyst/declaredLabels/0"),
        (r#"{"mpi": {"clusterDomain": "a b"}}"#, "/policy/mpi/clusterDomain"),
        (r#"{"mpi": {"sshDir": "root/.ssh"}}"#, "/policy/mpi/sshDir"),
        (r#"{"mpi": {"sshPort": 70000}}"#, "/policy/mpi/sshPort"),
    ] {
        assert!(!stowplan_accepts(policy), "{policy}");
        let refusal = Render::defaults().set(&format!("policy={policy}")).refusal();
        assert!(refusal.contains(field), "{policy}: {refusal}");
    }
}
