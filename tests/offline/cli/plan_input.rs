//! `stowplan plan`: the files it reads, and the errors about those it cannot read.

use std::fs;

use super::command::{Folder, Output, Shown, assert_snapshot, plan_of, pod};

#[test]
fn files_and_folders_are_read_in_order() {
    let folder = Folder::new(&[
        ("all/b.yml", &pod("b", "")),
        (
            "all/a.json",
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a2"}}"#,
        ),
        ("all/c.yaml", &format!("\u{feff}{}", pod("c", ""))),
        ("all/notes.txt", "no YAML: ["),
        ("all/inner/d.yaml", &pod("d", "")),
        ("z.yaml", &pod("z", "")),
    ]);
    let names = |output: &Output| -> Vec<String> {
        let items = output.json()["items"].as_array().expect("a list").clone();
        items.iter().map(|entry| entry["name"].as_str().expect("a name").to_owned()).collect()
    };
    let output = folder.plan("-f z.yaml -f all -o json");
    assert_eq!(names(&output), ["z", "a", "a2", "b", "c"]);
    let output = folder.run("plan -f z.yaml - -o json", pod("s", ""));
    assert_eq!(names(&output), ["z", "s"]);
}

#[test]
fn odd_but_sound_input_is_read() {
    let anchors =
        "apiVersion: v1\nkind: Pod\nmetadata: &m {name: p, labels: &l {a: b}}\nspec: {x: *l}\n";
    let nulls = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: null, annotations: {a: null, b: }}\nspec: null\n";
    for text in [anchors, nulls] {
        let output = plan_of("-o json", text);
        assert_eq!(output.code, 0, "{text}: {output:?}");
        assert_eq!(output.first()["name"], "p");
    }
}

#[test]
fn input_that_cannot_be_used_ends_with_2_and_says_why() {
    let mut shown = Shown::default();
    let pod = |metadata: &str| format!("apiVersion: v1\nkind: Pod\nmetadata: {metadata}\n");
    let template = |rest: &str| {
        format!("apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: w}}\n{rest}\n")
    };
    let own = |version: &str, kind: &str, spec: &str| {
        format!(
            "apiVersion: stowplan.dev/{version}\nkind: {kind}\nmetadata: {{name: o}}\nspec: {spec}\n"
        )
    };
    let worker_set = |spec: &str| {
        let keys = "{mpi.stowplan.dev/cluster: c, mpi.stowplan.dev/role: worker}";
        format!(
            "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {{name: w}}\n\
             spec: {{{spec}, template: {{metadata: {{annotations: {keys}}}}}}}\n"
        )
    };
    let list = |items: &str| format!("apiVersion: v1\nkind: List\nitems: {items}\n");
    for text in [
        "",
        "# only a comment\n---\n",
        "null\n",
        "hello\n",
        "- a\n",
        "7\n",
        "# c\nkind: Pod\n",
        "apiVersion: v1\nkind: 5\n",
        &list("[{apiVersion: v1, metadata: {}}]"),
        &list("5"),
        &pod("{}"),
        &pod("{name: p, annotations: {streams.ibm.com/host: 5}}"),
        &pod("{name: p, labels: {a: yes}}"),
        &pod("{name: p, annotations: {streams.ibm.com/host-colocation: [a]}}"),
        &pod("{name: p, annotations: text}"),
        &pod("{name: p, namespace: 007}"),
        &pod("{name: 5}"),
        &pod("[a]"),
        &own("v1", "StreamsJob", "{}"),
        &own("v1alpha1", "Streamsjob", "{}"),
        &list("[{apiVersion: v1, kind: Node, metadata: {name: n, labels: {a: 5}}}]"),
        "apiVersion: tekton.dev/v1\nkind: PipelineRun\nmetadata: {name: r, annotations: {stowplan.dev/coschedule: off}}\n",
        &worker_set("replicas: '2'"),
        &template("spec: {template: {metadata: {annotations: {streams.ibm.com/host-pool: 1}}}}"),
        &template("spec: {}"),
        &template("spec: text"),
        &template("spec: {template: [a]}"),
        &(pod("{name: p}") + "metadata: {name: q}\n"),
        "a: 1\n---\nb:\n\t- c\n",
    ] {
        shown.add(text, &plan_of("", text));
    }
    shown.compare("plan_unusable");
}

#[test]
fn every_error_is_reported_at_once() {
    let folder = Folder::new(&[
        (
            "a.yaml",
            "kind: Pod\n---\nx: [\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: fine}\n",
        ),
        ("b.json", "{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"kind\": \"Pod\"}"),
        ("c.json", "{\"apiVersion\": \"v1\",\n"),
        ("empty.yaml", ""),
        ("folder/notes.txt", ""),
    ]);
    folder.write("latin.yaml", b"a: \xe9\n");
    folder.write("wide.yaml", b"\xff\xfea\0:\0");
    folder.write("zeros.yaml", b"\0\0\0\0");
    let output = folder.plan(
        "-f a.yaml b.json c.json empty.yaml folder latin.yaml wide.yaml zeros.yaml nonesuch.yaml",
    );
    assert_eq!((output.code, output.stdout.as_str()), (2, ""));
    assert_snapshot("plan_unreadable", &output.stderr);
}

#[test]
fn errors_in_a_cluster_name_the_file_and_the_document() {
    let folder = Folder::new(&[
        ("pod.yaml", &pod("p", "")),
        (
            "bad/1.yaml",
            "apiVersion: v1\nkind: Node\nmetadata: {}\n---\napiVersion: v1\nkind: Node\nmetadata: 5\n",
        ),
        (
            "bad/2.yaml",
            "apiVersion: stowplan.dev/v1alpha1\nkind: HostPool\nmetadata: {name: p}\nspec: {size: many}\n",
        ),
        ("empty.yaml", "# kubectl failed\n"),
        ("none.yaml", "apiVersion: v1\nkind: List\nitems: []\n"),
    ]);
    let mut shown = Shown::default();
    // An empty list is a cluster.
    assert_eq!(folder.plan("-f pod.yaml --cluster none.yaml").code, 0);
    for words in [
        "-f pod.yaml --cluster bad",
        "-f pod.yaml --cluster empty.yaml",
        "-f pod.yaml --cluster nonesuch",
        "-f pod.yaml --policy nonesuch.yaml",
        "-f - --cluster -",
        "-f - -",
    ] {
        shown.add(words, &folder.plan(words));
    }
    shown.compare("plan_errors");
}

#[test]
fn a_bomb_of_references_and_a_tower_of_brackets_are_refused() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let before = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{before}]\n"));
    }
    for text in [bomb, "[".repeat(100_000), "{\"a\":".repeat(100_000), "- ".repeat(100_000)] {
        plan_of("", text).fails("standard input, document 1, line …");
    }
}

#[test]
fn a_file_that_is_too_long_is_not_read() {
    let folder = Folder::new(&[]);
    let file = fs::File::create(folder.0.path().join("long.yaml")).expect("a file");
    file.set_len(64 * 1024 * 1024 + 1).expect("a hole");
    folder.plan("-f long.yaml").fails("long.yaml: longer than 64 MiB; give it in parts");
}
