//! `stowplan plan`: its output formats, and that they agree with each other.

use serde_json::{Value, json};

use super::command::{JOB, assert_snapshot, job, pod};

#[test]
fn the_plan_of_a_job_in_each_format() {
    let folder = job();
    let plan = |format: &str| {
        let output = folder.plan(&format!("-f job.yaml --cluster cluster -o {format}"));
        assert_eq!(output.code, 1, "{output:?}");
        output
    };
    for format in ["text", "json"] {
        let output = plan(format);
        assert_eq!(output.stderr, "");
        assert_snapshot(&format!("plan_{format}"), &output.stdout);
    }
    let yaml = plan("yaml");
    let both = format!("{}\n# standard error:\n{}", yaml.stdout, yaml.stderr);
    assert_snapshot("plan_yaml", &both);
    let patches = plan("patch");
    assert_snapshot("plan_patch", &patches.stdout);
    let refused = "stowplan: Pod default/lost-00000: refused (422): MissingLabel: ";
    assert!(patches.stderr.starts_with(refused), "{patches:?}");

    // The patch and the YAML say the same.
    let read = |text: &str| -> Vec<Value> { serde_saphyr::from_multiple(text).expect("YAML") };
    let mut before = read(JOB);
    for entry in patches.json().as_array().expect("a list") {
        let of = &entry["object"];
        let is_it = |object: &&mut Value| {
            object["kind"] == of["kind"] && object["metadata"]["name"] == of["name"]
        };
        let object = before.iter_mut().find(is_it).expect("the object");
        let patch: json_patch::Patch =
            serde_json::from_value(entry["patch"].clone()).expect("a patch");
        json_patch::patch(object, &patch).expect("it applies");
    }
    assert_eq!(before, read(&yaml.stdout));

    // What was placed is unchanged when it is planned again.
    let again =
        |format: &str| folder.plan_of(&format!("--cluster cluster -o {format}"), &yaml.stdout);
    assert_eq!(again("yaml").stdout, yaml.stdout);
    again("text").shows(
        1,
        &[
            "\nPod default/pe-0: unchanged: it has all of this\n",
            "\n    = required node affinity metadata.name In [node-2]\n",
        ],
    );
    let patches = again("patch").json();
    let mut entries = patches.as_array().expect("a list").iter();
    assert!(entries.all(|entry| entry["patch"] == json!([])), "{patches}");

    // Without a refusal it ends with 0, also where the policy only warns.
    for format in ["text", "json", "yaml", "patch"] {
        let words = format!("--cluster cluster/nodes.yaml -o {format}");
        folder.plan_of(&words, pod("p", "streams.ibm.com/host: node-1")).has_lines(0, &[]);
    }
    folder.write("warn.yaml", b"onInvalid: warn\n");
    folder
        .plan_of("--policy warn.yaml", pod("p", "streams.ibm.com/host: node-9"))
        .shows(0, &["\n1 object: 1 admitted without placement\n"]);
}
