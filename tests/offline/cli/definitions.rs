//! `stowplan crds` and `stowplan policy`.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::command::{Folder, run};

#[test]
fn the_chart_carries_the_definitions_that_the_binary_prints() {
    let output = run("crds", "");
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    assert_eq!(run("crds -o yaml", "").stdout, output.stdout);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/stowplan/files/crds.yaml");
    if std::env::var_os("STOWPLAN_REFRESH").is_some() {
        fs::write(&file, &output.stdout).expect("the chart's file");
    }
    let carried = fs::read_to_string(&file).expect("the chart's file");
    assert!(
        carried == output.stdout,
        "charts/stowplan/files/crds.yaml is not what `stowplan crds` prints: \
         run STOWPLAN_REFRESH=1 cargo test --test offline cli"
    );
}

#[test]
fn the_definitions_say_what_a_rust_type_cannot() {
    let output = run("crds", "");
    assert!(output.stdout.starts_with("# "), "a first line for people");
    let definitions: Vec<Value> = serde_saphyr::from_multiple(&output.stdout).expect("documents");
    let name = |definition: &Value| definition.pointer("/metadata/name").cloned();
    let names: Vec<_> = definitions.iter().filter_map(name).collect();
    assert_eq!(names, [json!("hostpools.stowplan.dev"), json!("streamsjobs.stowplan.dev")]);
    let schema = |index: usize, path: &str| {
        let schema = &definitions[index]["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        schema.pointer(path).unwrap_or(&Value::Null).clone()
    };
    let (pool, job) = (0, 1);
    for (definition, path, value) in [
        (job, "/properties/spec/properties/processingElements/maxItems", json!(1000)),
        (job, "/properties/spec/properties/pools/x-kubernetes-list-type", json!("map")),
        // Their order is meaning.
        (
            job,
            "/properties/spec/properties/pools/items/properties/hosts/x-kubernetes-list-type",
            json!("atomic"),
        ),
        (pool, "/required", json!(["spec"])),
        (pool, "/properties/spec/properties/hosts/minItems", json!(1)),
        (pool, "/properties/spec/properties/hosts/maxItems", json!(256)),
        (pool, "/properties/spec/properties/size/minimum", json!(1)),
        (pool, "/properties/spec/properties/size/format", json!("int32")),
        (pool, "/properties/spec/properties/tags/items/maxLength", json!(63)),
        (pool, "/properties/spec/properties/exclusivity/enum", json!(["Shared", "Exclusive"])),
        (pool, "/properties/spec/properties/exclusivity/default", json!("Shared")),
    ] {
        assert_eq!(schema(definition, path), value, "{path}");
    }
    let pool_rules = schema(pool, "/properties/spec/x-kubernetes-validations");
    for (rules, message) in [
        (schema(job, ""), "enforcement is immutable"),
        (schema(job, ""), "size can only grow"),
        (schema(job, ""), "exactly one of name"),
        (pool_rules.clone(), "hosts excludes size"),
        (pool_rules.clone(), "Exclusive needs"),
        (pool_rules.clone(), "hosts is immutable"),
        (pool_rules, "size can only grow"),
    ] {
        assert!(rules.to_string().contains(message), "{message}");
    }
    // What users write has no null; an absent status may be one.
    for definition in [pool, job] {
        let spec = schema(definition, "/properties/spec").to_string();
        assert!(!spec.contains("null") && !spec.contains("anyOf"), "{spec}");
    }
}

#[test]
fn the_policy_has_a_schema() {
    let output = run("policy schema", "");
    output.has_lines(0, &[]);
    let schema = output.json();
    assert_eq!(schema["title"], "Policy");
    assert_eq!(schema["additionalProperties"], json!(false));
    assert_eq!(schema["properties"]["onInvalid"]["default"], "refuse");
}

#[test]
fn a_policy_is_checked() {
    let folder =
        Folder::new(&[("good.yaml", "onInvalid: warn\n"), ("bad.yaml", "onInvald: warn\n")]);
    let check = |file: &str, text: &str| folder.run(&format!("policy check -f {file}"), text);
    check("good.yaml", "").has_lines(0, &["good.yaml: a valid policy"]);
    check("-", "").has_lines(0, &["standard input: a valid policy"]);
    let output = check("bad.yaml", "");
    assert_eq!((output.code, output.stdout.as_str()), (2, ""));
    output.warns(&["stowplan: bad.yaml: ", "onInvald"]);
    check("-", "onInvalid: warn\n---\nonInvalid: refuse\n")
        .fails("standard input: several YAML documents, and a policy is one: remove the others");
    check("nonesuch.yaml", "").fails("nonesuch.yaml: No such file…");
}
