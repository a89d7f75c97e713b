//! `stowplan crds` and `stowplan policy`.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::command::{Folder, run};

#[test]
fn the_chart_carries_the_definitions_that_the_binary_prints() {
    let output = run(["crds"], b"");
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    assert_eq!(run(["crds", "-o", "yaml"], b"").stdout, output.stdout);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/stowplan/files/crds.yaml");
    if std::env::var_os("STOWPLAN_REFRESH").is_some() {
        fs::write(&file, &output.stdout).expect("the chart's file");
    }
    let carried = fs::read_to_string(&file).expect("the chart's file");
    assert!(
        carried == output.stdout,
        "charts/stowplan/files/crds.yaml is not what `stowplan crds` prints: \
         run STOWPLAN_REFRESH=1 cargo test --test cli"
    );
}

#[test]
fn the_definitions_say_what_a_rust_type_cannot() {
    let output = run(["crds"], b"");
    assert!(output.stdout.starts_with("# "), "a first line for people");
    let definitions: Vec<Value> = serde_saphyr::from_multiple(&output.stdout).expect("documents");
    let name = |definition: &Value| definition.pointer("/metadata/name").cloned();
    let names: Vec<_> = definitions.iter().filter_map(name).collect();
    assert_eq!(names, [json!("hostpools.stowplan.dev"), json!("streamsjobs.stowplan.dev")]);
    let job = &definitions[1]["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let of_job = |path: &str| job.pointer(path).unwrap_or(&Value::Null).clone();
    assert_eq!(of_job("/properties/spec/properties/processingElements/maxItems"), json!(1000));
    assert_eq!(of_job("/properties/spec/properties/pools/x-kubernetes-list-type"), json!("map"));
    let hosts = of_job("/properties/spec/properties/pools/items/properties/hosts");
    assert_eq!(hosts["x-kubernetes-list-type"], "atomic", "their order is meaning");
    for message in ["enforcement is immutable", "size can only grow", "exactly one of name"] {
        assert!(job.to_string().contains(message), "{message}");
    }
    let definition = &definitions[0];
    let version = &definition["spec"]["versions"][0];
    let schema = &version["schema"]["openAPIV3Schema"];
    assert_eq!(schema["required"], json!(["spec"]));
    let spec = &schema["properties"]["spec"];
    let of = |path: &str| spec.pointer(path).unwrap_or(&Value::Null).clone();
    assert_eq!(of("/properties/hosts/minItems"), json!(1));
    assert_eq!(of("/properties/hosts/maxItems"), json!(256));
    assert_eq!(of("/properties/size/minimum"), json!(1));
    assert_eq!(of("/properties/size/format"), json!("int32"));
    assert_eq!(of("/properties/tags/items/maxLength"), json!(63));
    assert_eq!(of("/properties/exclusivity/enum"), json!(["Shared", "Exclusive"]));
    assert_eq!(of("/properties/exclusivity/default"), json!("Shared"));
    let rules = of("/x-kubernetes-validations").to_string();
    for message in
        ["hosts excludes size", "Exclusive needs", "hosts is immutable", "size can only grow"]
    {
        assert!(rules.contains(message), "{message}");
    }
    // What users write has no null; an absent status may be one.
    for (noise, spec) in definitions.iter().flat_map(|definition| {
        let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
        let spec = definition.pointer(spec).map(Value::to_string).unwrap_or_default();
        ["null", "anyOf"].map(move |noise| (noise, spec.clone()))
    }) {
        assert!(!spec.contains(noise), "{noise}: {spec}");
    }
}

#[test]
fn the_policy_has_a_schema() {
    let output = run(["policy", "schema"], b"");
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    let schema = output.json();
    assert_eq!(schema["title"], "Policy");
    assert_eq!(schema["additionalProperties"], json!(false));
    assert_eq!(schema["properties"]["onInvalid"]["default"], "refuse");
}

#[test]
fn a_policy_is_checked() {
    let folder =
        Folder::new(&[("good.yaml", "onInvalid: warn\n"), ("bad.yaml", "onInvald: warn\n")]);
    let output = folder.run(["policy", "check", "-f", "good.yaml"], b"");
    assert_eq!((output.code, output.stdout.as_str()), (0, "good.yaml: a valid policy\n"));
    let output = folder.run(["policy", "check", "-f", "-"], b"");
    assert_eq!((output.code, output.stdout.as_str()), (0, "standard input: a valid policy\n"));
    let output = folder.run(["policy", "check", "-f", "bad.yaml"], b"");
    assert_eq!((output.code, output.stdout.as_str()), (2, ""));
    assert!(output.stderr.starts_with("stowplan: bad.yaml: "), "{output:?}");
    assert!(output.stderr.contains("onInvald"), "{output:?}");
    let two = b"onInvalid: warn\n---\nonInvalid: refuse\n";
    let output = folder.run(["policy", "check", "-f", "-"], two);
    let expected = "standard input: several YAML documents, and a policy is one: remove the others";
    assert_eq!((output.code, output.error_line()), (2, expected), "{output:?}");
    let output = folder.run(["policy", "check", "-f", "nonesuch.yaml"], b"");
    assert!(output.error_line().starts_with("nonesuch.yaml: No such file"), "{output:?}");
}
