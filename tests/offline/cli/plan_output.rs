//! `stowplan plan`: its output formats, and that they agree with each other and with `review`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::command::{Folder, JOB, assert_snapshot, job, pod};
use super::review::review;

#[test]
fn plan_as_text() {
    let output = job().plan("-f job.yaml --cluster cluster");
    assert_eq!((output.code, output.stderr.as_str()), (1, ""));
    assert_snapshot("plan_text", &output.stdout);
}

#[test]
fn plan_as_json() {
    let output = job().plan("-f job.yaml --cluster cluster -o json");
    assert_eq!((output.code, output.stderr.as_str()), (1, ""));
    assert_snapshot("plan_json", &output.stdout);
}

#[test]
fn plan_as_yaml() {
    let output = job().plan("-f job.yaml --cluster cluster -o yaml");
    assert_eq!(output.code, 1);
    assert_snapshot(
        "plan_yaml",
        &format!("{}\n# standard error:\n{}", output.stdout, output.stderr),
    );
}

#[test]
fn plan_as_patch() {
    let output = job().plan("-f job.yaml --cluster cluster -o patch");
    assert_eq!(output.code, 1);
    assert_snapshot("plan_patch", &output.stdout);
    assert!(
        output.stderr.starts_with("stowplan: Pod default/lost-: refused (422): MissingLabel: "),
        "{output:?}"
    );
}

#[test]
fn without_a_refusal_it_ends_with_0() {
    let folder = job();
    folder.write("good.yaml", pod("p", "streams.ibm.com/host: node-1").as_bytes());
    for format in ["text", "json", "yaml", "patch"] {
        let output = folder.plan(&format!("-f good.yaml --cluster cluster/nodes.yaml -o {format}"));
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{format}");
    }
}

#[test]
fn what_was_placed_is_unchanged_when_planned_again() {
    let folder = job();
    let once = folder.plan("-f job.yaml --cluster cluster -o yaml").stdout;
    let again = folder.plan_with("-f - --cluster cluster -o yaml", once.as_bytes());
    assert_eq!(again.stdout, once);
    let output = folder.plan_with("-f - --cluster cluster", once.as_bytes());
    assert!(
        output.stdout.contains("Pod default/pe-0: unchanged: it has all of this\n"),
        "{output:?}"
    );
    assert!(
        output.stdout.contains("    = required node affinity metadata.name In [node-2]\n"),
        "{output:?}"
    );
    let patches = folder.plan_with("-f - --cluster cluster -o patch", once.as_bytes()).json();
    assert!(
        patches.as_array().expect("a list").iter().all(|entry| entry["patch"] == json!([])),
        "{patches}"
    );
}

#[test]
fn the_patch_and_the_yaml_say_the_same() {
    let folder = job();
    let patches = folder.plan("-f job.yaml --cluster cluster -o patch").json();
    let placed = folder.plan("-f job.yaml --cluster cluster -o yaml").stdout;
    let read = |text: &str| -> Vec<Value> { serde_saphyr::from_multiple(text).expect("YAML") };
    let mut before = read(JOB);
    for entry in patches.as_array().expect("a list") {
        let object = before
            .iter_mut()
            .find(|object| {
                object["kind"] == entry["object"]["kind"]
                    && object["metadata"]["name"] == entry["object"]["name"]
            })
            .expect("the object");
        let patch: json_patch::Patch =
            serde_json::from_value(entry["patch"].clone()).expect("a patch");
        json_patch::patch(object, &patch).expect("it applies");
    }
    assert_eq!(before, read(&placed));
}

#[test]
fn a_plan_and_a_review_are_one_decision() {
    let folder = job();
    let annotations =
        json!({"streams.ibm.com/host-pool": "named", "streams.ibm.com/host-colocation": "x"});
    let sent = review(&annotations);
    let object = sent["request"]["object"].to_string();
    let answer = folder.run(["review", "--cluster", "cluster"], sent.to_string().as_bytes()).json();
    let patch =
        STANDARD.decode(answer["response"]["patch"].as_str().expect("a patch")).expect("base64");
    let plan = folder.plan_with("-f - --cluster cluster -o json", object.as_bytes()).json();
    let entry = &plan["items"][0];
    assert_eq!(entry["patch"], serde_json::from_slice::<Value>(&patch).expect("JSON"));
    assert_eq!(entry["warnings"], answer["response"]["warnings"]);
}

#[test]
fn text_that_looks_like_something_else_comes_out_as_text() {
    let values = [
        "5",
        "true",
        "1e3",
        "0x1",
        "null",
        "y",
        "on",
        "0755",
        "1_0",
        "~",
        "",
        "2001-01-01",
        "12:30",
        "1.0",
    ];
    let pairs: Vec<String> =
        values.iter().enumerate().map(|(index, value)| format!("l{index}: '{value}'")).collect();
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n  labels: {{{}}}\n\
         \x20 annotations: {{streams.ibm.com/host-colocation: x}}\n\
         spec: {{big: 9223372036854775807, mode: 0644, half: 0.5, containers: [], on: off}}\n",
        pairs.join(", ")
    );
    let output = Folder::new(&[]).plan_with("-f - -o yaml", text.as_bytes());
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    let placed: Value = serde_saphyr::from_str(&output.stdout).expect("YAML");
    for (index, value) in values.iter().enumerate() {
        assert_eq!(
            placed["metadata"]["labels"][format!("l{index}")],
            json!(value),
            "{}",
            output.stdout
        );
    }
    // As kubectl reads YAML 1.1: 0644 is octal.
    assert_eq!(placed["spec"]["big"], json!(9_223_372_036_854_775_807_i64));
    assert_eq!(placed["spec"]["mode"], json!(420));
    assert_eq!(placed["spec"]["half"], json!(0.5));
    assert!(placed["spec"]["affinity"].is_object());
}
