//! `stowplan crds` and `stowplan policy`.

use std::fs;
use std::path::Path;

use serde_json::json;

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
