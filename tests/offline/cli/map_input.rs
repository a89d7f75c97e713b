//! Empty, strange and large input, and wrong usage.

use serde_json::json;

use super::command::{Folder, run};

#[test]
fn a_cluster_without_nodes_shows_what_waits() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p",
        "annotations": {"streams.ibm.com/host": "10.4.40.83"}},
        "spec": {"containers": [], "schedulingGates": [{"name": "example.com/gate"}]}});
    for form in ["text", "svg", "html", "json"] {
        let output = run(&format!("map --cluster - -o {form}"), pod.to_string());
        output.shows(0, &["example.com/gate"]).warns(&["no node is known"]);
    }
}

#[test]
fn input_that_is_no_cluster_ends_with_2() {
    let folder =
        Folder::new(&[("empty.yaml", ""), ("bad.yaml", "apiVersion: v1\nkind: Pod\nspec: 5\n")]);
    for words in [
        "map --cluster nowhere.yaml",
        "map --cluster bad.yaml",
        "map --cluster -",
        "map --cluster empty.yaml",
        "check --cluster empty.yaml -n streams",
        "check --cluster - --policy - -n streams",
        "plan -f - --policy -",
    ] {
        let output = folder.run(words, "kind: [");
        assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{words}: {output:?}");
        assert!(output.stderr.starts_with("stowplan: "), "{words}: {output:?}");
    }
    let empty = folder.run("check --cluster - -A", "");
    assert_eq!(empty.code, 2, "kubectl has failed: {empty:?}");
    assert_eq!(empty.stderr, "stowplan: no Kubernetes object in standard input\n");
}

#[test]
fn a_namespace_shows_its_own_pods_and_counts_the_others() {
    let pod = |namespace: &str, name: &str| {
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace,
                "labels": {"app": "streams", "streams.ibm.com/job": "j"}},
            "spec": {"nodeName": "n1", "containers": []}})
    };
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}},
        pod("a", "mine"), pod("b", "theirs"),
    ]});
    let map = |words: &str| run(&format!("map --cluster - {words}"), list.to_string());
    // Of files without a Namespace it is not known which there are.
    map("-n typo").shows(0, &["nothing waits"]);
    map("-n a").shows(0, &["A mine  + 1 other pod"]).lacks("theirs");
    map("-A").shows(0, &["A mine  B theirs"]);
}

#[test]
fn names_and_annotations_of_256_kib_break_nothing() {
    let long = "<é&\"".repeat(52_428);
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": long, "labels": {"app": "streams", "streams.ibm.com/job": long},
            "annotations": {"streams.ibm.com/host": long, "stowplan.dev/placement": long}},
        "spec": {"containers": []}});
    for form in ["text", "svg"] {
        let output = run(&format!("map --cluster - -o {form}"), pod.to_string());
        assert_eq!(output.code, 0, "{form}: {:.300}", output.stderr);
        assert!(output.stdout.len() < 20_000, "{form}: {} bytes", output.stdout.len());
    }
}

/// A misspelt namespace must not look like one where nothing waits.
#[test]
fn a_namespace_that_does_not_exist_is_refused() {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "b"}, "spec": {"containers": []}});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [node, namespace, pod]});
    let list = list.to_string();
    for command in ["check", "map"] {
        let in_namespace = |name| run(&format!("{command} --cluster - -n {name}"), &list);
        in_namespace("typo").fails("namespace typo does not exist");
        // That of a pod exists, although it is not in the files.
        for namespace in ["a", "b", "default"] {
            let output = in_namespace(namespace);
            assert_ne!(output.code, 2, "{command} {namespace}: {output:?}");
        }
    }
}
