//! `stowplan crds` and `stowplan policy`.

use super::command::{Folder, run};
use crate::documents::assert_current;

#[test]
fn the_chart_carries_the_definitions_that_the_binary_prints() {
    let output = run("crds", "");
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    assert_eq!(run("crds -o yaml", "").stdout, output.stdout);
    assert_current("charts/stowplan/files/crds.yaml", &output.stdout, "cli::definitions");
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
