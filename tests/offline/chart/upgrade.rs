//! `helm upgrade --reuse-values`: Helm takes the values of the installed chart in place of the
//! defaults of the new one, so each value that was added since is absent. What it renders then is shown
//! by the reviewed changes (`rendering.rs`).

use std::fs;
use std::process::Command;

use serde_json::Value;

use super::helm::{CA, CHART, Render, read, stdout};
use super::values::{leaves, older, values};

/// This chart with the values of the older one, as Helm takes them.
pub(super) fn reused() -> (tempfile::TempDir, Render) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    stdout(Command::new("cp").args(["-R", &format!("{CHART}/.")]).arg(folder.path()));
    fs::write(folder.path().join("values.yaml"), include_str!("values/9cdd524.yaml")).unwrap();
    let render = Render::of(folder.path().to_str().expect("text")).set(CA);
    (folder, render)
}

/// The chart adds the values that values.yaml has beyond the older values.
#[test]
fn the_new_values_have_the_defaults_of_the_values_file() {
    let template = read("templates/_new_values.tpl");
    let (_, listed) = template.split_once("{{- define \"stowplan.newValues\" -}}\n").unwrap();
    let (listed, _) = listed.split_once("{{- end -}}").expect("its end");
    // Its keys are paths, so that the paths of its leaves are those of the values.
    let added: Value = serde_saphyr::from_str(listed).expect("YAML");
    let older = leaves(&older());
    let mut expected = leaves(&values("values.yaml"));
    expected.retain(|path, _| {
        !older.keys().any(|leaf| leaf == path || path.starts_with(&format!("{leaf}.")))
    });
    assert_eq!(leaves(&added), expected);
}
