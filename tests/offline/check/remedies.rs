//! Each remedy leads out of its situation: a table of what `check` says, and of the objects after the
//! remedy, for which it says nothing.

use std::path::Path;

use serde_json::{Value, json};

use super::objects::*;
use crate::cli::command::Folder;
use crate::documents::files;

/// An element of job `j` with these annotations, as the webhook admits it.
fn placed(name: &str, annotations: &Value) -> Value {
    let nodes = json!({"apiVersion": "v1", "kind": "List", "items": [node("n1"), node("n2")]});
    let folder = Folder::new(&[("nodes.json", &nodes.to_string())]);
    let output =
        folder.plan_of("--cluster nodes.json -o yaml", unplaced(name, annotations).to_string());
    serde_saphyr::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// The same, without the webhook.
fn unplaced(name: &str, annotations: &Value) -> Value {
    with(waiting(name, &Value::Null), &json!({"metadata": {"annotations": annotations}}))
}

fn job(accepted: &str, reason: &str) -> Value {
    let conditions =
        ["Accepted", "Ready"].map(|kind| condition(kind, accepted, reason, "as it is"));
    with(streams_job(&conditions), &json!({"spec": {"pools": []}}))
}

/// The words that stand for a name in a document. A message has the name itself.
const PLACEHOLDERS: [&str; 12] = [
    "CLUSTER",
    "COUNT",
    "FILE",
    "INDEX",
    "JOB",
    "KEY",
    "KIND",
    "NAME",
    "NAMESPACE",
    "NODE",
    "POD",
    "VALUE",
];

/// A command with a placeholder in it cannot be pasted.
#[test]
fn no_message_has_a_placeholder_for_a_name() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let of_fixtures =
        files(&root.join("fixtures"), "yaml").into_iter().filter_map(|(path, text)| {
            let (_, expected) = text.split_once("\nexpect:")?;
            Some((path, expected.to_owned()))
        });
    let snapshots = files(&root.join("tests/offline"), "snap");
    let of_installation = files(&root.join("src/cli/check/installation/snapshots"), "snap");
    let is_checks = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("check_") || name.starts_with("map_")
    };
    let of_checks = snapshots.into_iter().filter(|(path, _)| is_checks(path));
    let mut texts = 0;
    for (path, text) in of_fixtures.chain(of_checks).chain(of_installation) {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let found = text.split(|c| !is_word(c)).find(|word| PLACEHOLDERS.contains(word));
        assert_eq!(found, None, "{}", path.display());
        texts += 1;
    }
    assert!(texts > 400, "{texts}");
}

#[test]
fn each_remedy_leads_out() {
    let mut found = Findings::default();
    let together = json!({"streams.ibm.com/host-colocation": "together"});
    let both = with(together.clone(), &json!({"streams.ibm.com/host-exlocation": "apart"}));
    let host = json!({"streams.ibm.com/host": "n1"});
    let beside = on_node(placed("p", &both), "n1");
    let hosted = || vec![on_node(placed("p", &host), "n1")];
    for (label, asked, before, after) in [
        (
            "two elements must share a node and must not",
            "pod/q",
            vec![beside.clone(), placed("q", &both)],
            vec![beside, on_node(placed("q", &together), "n1")],
        ),
        (
            "the webhook did not see the pod, which is on a node of the scheduler's choice",
            "pod/p",
            vec![on_node(unplaced("p", &host), "n2")],
            hosted(),
        ),
        ("the pod's only node is full", "pod/p", vec![placed("p", &host)], hosted()),
        (
            "the job can never be placed",
            "job/j",
            vec![job("False", "NoCommonHost")],
            vec![job("True", "Accepted")],
        ),
    ] {
        let nodes = [node("n1"), node("n2")];
        found.add(label, &[&nodes[..], &before].concat(), asked);
        assert_eq!(obstacles(&[&nodes[..], &after].concat(), asked), [""; 0], "{label}");
    }
    found.compare("remedies");
}
