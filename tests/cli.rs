//! The command line as a user meets it: the real binary, real files, exit codes, both outputs.

#![allow(clippy::panic, reason = "how a helper of tests fails; clippy.toml frees only the tests")]

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;

// ---- helpers -------------------------------------------------------------------------------------

/// What a command said.
#[derive(Debug)]
struct Said {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Said {
    /// The one line of a failure, and that there is nothing else.
    fn complaint(&self) -> &str {
        assert_eq!((self.code, self.stdout.as_str()), (2, ""), "{self:?}");
        let text = self.stderr.strip_suffix('\n').unwrap_or(&self.stderr);
        assert!(!text.contains('\n'), "{self:?}");
        text.strip_prefix("stowplan: ").unwrap_or_else(|| panic!("no prefix: {self:?}"))
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A folder with files, in which commands run.
struct Folder(TempDir);

impl Folder {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = Self(TempDir::new().expect("a temporary folder"));
        for (name, text) in files {
            folder.write(name, text.as_bytes());
        }
        folder
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, bytes).expect("a file");
    }

    fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>, stdin: &[u8]) -> Said {
        run_in(self.0.path(), arguments, stdin)
    }

    /// `stowplan plan` with these words.
    fn plan(&self, words: &str) -> Said {
        self.plan_with(words, b"")
    }

    fn plan_with(&self, words: &str, stdin: &[u8]) -> Said {
        self.run(["plan"].into_iter().chain(words.split_whitespace()), stdin)
    }
}

fn run_in<S: AsRef<OsStr>>(
    folder: &Path,
    arguments: impl IntoIterator<Item = S>,
    stdin: &[u8],
) -> Said {
    let mut child = Command::new(env!("CARGO_BIN_EXE_stowplan"))
        .args(arguments)
        .current_dir(folder)
        .env("COLUMNS", "100")
        .env_remove("KUBECONFIG")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env("HOME", folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut pipe = child.stdin.take().expect("a pipe");
    let stdin = stdin.to_owned();
    // A command that does not want all of it closes the pipe: no failure.
    let writer = std::thread::spawn(move || drop(pipe.write_all(&stdin)));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("the writer ends");
    Said {
        code: output.status.code().expect("it ends by itself"),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

fn run<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>, stdin: &[u8]) -> Said {
    run_in(Path::new(env!("CARGO_MANIFEST_DIR")), arguments, stdin)
}

/// A pod with these annotations, in flow style.
fn pod(name: &str, annotations: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, annotations: {{{annotations}}}}}\n\
         spec: {{containers: [{{name: c, image: i}}]}}\n"
    )
}

const NODES: &str = r#"
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: node-1, labels: {kubernetes.io/hostname: node-1, streams.ibm.com/hostpool: fast}}
  status: {addresses: [{type: InternalIP, address: 10.4.40.81}]}
- apiVersion: v1
  kind: Node
  metadata: {name: node-2, labels: {kubernetes.io/hostname: node-2}}
  status: {addresses: [{type: InternalIP, address: 10.4.40.82}]}
"#;

const POOLS: &str = r#"
apiVersion: stowplan.dev/v1alpha1
kind: HostPool
metadata: {name: fast}
spec: {tags: [fast]}
---
apiVersion: stowplan.dev/v1alpha1
kind: HostPool
metadata: {name: named, namespace: jobs}
spec: {hosts: [node-2, 10.4.40.81]}
"#;

const JOB: &str = r#"# A job of several kinds of objects.
apiVersion: v1
kind: Pod
metadata:
  name: pe-0
  labels: {streams.ibm.com/job: trades, streams.ibm.com/pe: "0"}
  annotations: {streams.ibm.com/host: 10.4.40.82, streams.ibm.com/host-exlocation: apart}
spec: {containers: [{name: c, image: i}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels: {app: web}
      annotations: {streams.ibm.com/host-pool: fast}
    spec: {containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Pod
metadata:
  generateName: lost-
  annotations: {streams.ibm.com/host: foo.watson.ibm.com, streams.ibm.com/host-isolation: Sink}
spec: {containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Pod
metadata: {name: plain}
spec: {containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {}
---
apiVersion: v1
kind: Service
metadata: {name: web}
"#;

fn job() -> Folder {
    Folder::new(&[("job.yaml", JOB), ("cluster/nodes.yaml", NODES), ("cluster/pools.yaml", POOLS)])
}

// ---- help ----------------------------------------------------------------------------------------

#[test]
fn help() {
    for words in [
        "",
        "controller",
        "review",
        "plan",
        "check",
        "crds",
        "policy",
        "policy schema",
        "policy check",
        "completions",
    ] {
        let said = run(words.split_whitespace().chain(["--help"]), b"");
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{words}");
        assert!(said.stdout.contains("\nExamples:\n"), "{words}");
        let widest = said.stdout.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(110), "{words}: {widest:?}");
        insta::assert_snapshot!(format!("help {words}").trim().replace(' ', "_"), said.stdout);
    }
    let said = run(["webhook", "--help"], b"");
    assert_eq!(said.code, 0);
    assert!(said.stdout.contains("\nExamples:\n"));
}

#[test]
fn version() {
    let said = run(["--version"], b"");
    assert_eq!(said.stdout, concat!("stowplan ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn wrong_usage_ends_with_2_and_an_empty_stdout() {
    for words in [
        "",
        "nonesuch",
        "plan",
        "plan -f",
        "plan -f a -o xml",
        "plan -f a --live --cluster b",
        "plan -f a -n",
        "completions",
        "completions tcsh",
        "policy",
        "policy check",
        "crds -o json",
        "review extra",
        "controller",
        "controller --namespace=",
        "controller --namespace ns --identity=",
        "controller --namespace ns --admin-listen here",
    ] {
        let said = run(words.split_whitespace(), b"");
        assert_eq!((said.code, said.stdout.as_str()), (2, ""), "{words}: {said:?}");
        assert!(!said.stderr.is_empty(), "{words}");
    }
}

#[test]
fn completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = run(["completions", shell], b"");
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{shell}");
        assert!(said.stdout.contains("stowplan") && said.stdout.contains("cluster"), "{shell}");
    }
}

#[test]
fn a_reader_who_leaves_early_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_stowplan"))
        .args(["policy", "schema"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

// ---- crds, policy --------------------------------------------------------------------------------

#[test]
fn the_chart_carries_the_definitions_that_the_binary_prints() {
    let said = run(["crds"], b"");
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    assert_eq!(run(["crds", "-o", "yaml"], b"").stdout, said.stdout);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/stowplan/files/crds.yaml");
    if std::env::var_os("STOWPLAN_REFRESH").is_some() {
        fs::write(&file, &said.stdout).expect("the chart's file");
    }
    let carried = fs::read_to_string(&file).expect("the chart's file");
    assert!(
        carried == said.stdout,
        "charts/stowplan/files/crds.yaml is not what `stowplan crds` prints: \
         run STOWPLAN_REFRESH=1 cargo test --test cli"
    );
}

#[test]
fn the_definitions_say_what_a_rust_type_cannot() {
    let said = run(["crds"], b"");
    assert!(said.stdout.starts_with("# "), "a first line for people");
    let definitions: Vec<Value> = serde_saphyr::from_multiple(&said.stdout).expect("documents");
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
    let said = run(["policy", "schema"], b"");
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    let schema = said.json();
    assert_eq!(schema["title"], "Policy");
    assert_eq!(schema["additionalProperties"], json!(false));
    assert_eq!(schema["properties"]["onInvalid"]["default"], "refuse");
}

#[test]
fn a_policy_is_checked() {
    let folder =
        Folder::new(&[("good.yaml", "onInvalid: warn\n"), ("bad.yaml", "onInvald: warn\n")]);
    let said = folder.run(["policy", "check", "-f", "good.yaml"], b"");
    assert_eq!((said.code, said.stdout.as_str()), (0, "good.yaml: a valid policy\n"));
    let said = folder.run(["policy", "check", "-f", "-"], b"");
    assert_eq!((said.code, said.stdout.as_str()), (0, "standard input: a valid policy\n"));
    let said = folder.run(["policy", "check", "-f", "bad.yaml"], b"");
    assert_eq!((said.code, said.stdout.as_str()), (2, ""));
    assert!(said.stderr.starts_with("stowplan: bad.yaml: "), "{said:?}");
    assert!(said.stderr.contains("onInvald"), "{said:?}");
    let said = folder.run(["policy", "check", "-f", "nonesuch.yaml"], b"");
    assert!(said.complaint().starts_with("nonesuch.yaml: No such file"), "{said:?}");
}

// ---- review --------------------------------------------------------------------------------------

fn review(annotations: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "jobs",
            "operation": "CREATE",
            "object": {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "p", "namespace": "jobs", "annotations": annotations},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    })
}

#[test]
fn a_review_is_answered() {
    let folder = job();
    let sent = review(&json!({"streams.ibm.com/host-pool": "named[1]"})).to_string();
    let said = folder.run(["review", "--cluster", "cluster"], sent.as_bytes());
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    assert!(said.stdout.ends_with("}\n"), "one line");
    let response = &said.json()["response"];
    assert_eq!(response["uid"], "705ab4f5-6393-11e8-b7cc-42010a800002");
    assert_eq!(response["allowed"], true);
    assert_eq!(response["patchType"], "JSONPatch");
    let patch = STANDARD.decode(response["patch"].as_str().expect("a patch")).expect("base64");
    let patch = String::from_utf8(patch).expect("text");
    assert!(
        patch.contains(r#"{"key":"metadata.name","operator":"In","values":["node-1"]}"#),
        "{patch}"
    );
}

#[test]
fn a_refusal_is_an_answer_too() {
    let sent = review(&json!({"streams.ibm.com/host-pool": "nonesuch"})).to_string();
    let said = run(["review"], sent.as_bytes());
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    let response = &said.json()["response"];
    assert_eq!(response["allowed"], false);
    assert_eq!(response["status"]["code"], 409);
    assert_eq!(response["status"]["reason"], "UnknownPool");
}

#[test]
fn the_policy_holds_for_a_review() {
    let folder = Folder::new(&[("policy.yaml", "onInvalid: warn\n")]);
    let sent = review(&json!({"streams.ibm.com/host": ""})).to_string();
    let said = folder.run(["review", "--policy", "policy.yaml"], sent.as_bytes());
    let response = &said.json()["response"];
    assert_eq!(response["allowed"], true);
    assert!(
        response["warnings"][0]
            .as_str()
            .is_some_and(|text| text.starts_with("streams.ibm.com/host: "))
    );
}

#[test]
fn what_is_no_review_has_no_answer() {
    let good = review(&json!({}));
    let with = |pointer: &str, value: Value| {
        let mut review = good.clone();
        *review.pointer_mut(pointer).expect(pointer) = value;
        review.to_string()
    };
    let mut long = good.to_string().into_bytes();
    long.resize(7 * 1024 * 1024 + 1, b' ');
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (sent, part) in [
        (&b""[..], "the body is empty"),
        (b" \n", "the body is empty"),
        (b"{", "not an AdmissionReview: EOF"),
        (b"hello", "not an AdmissionReview"),
        (b"[]", "not an AdmissionReview"),
        (b"{}", "kind (none) of (none) is not served"),
        (b"\xff\xfe{\0}\0", "not an AdmissionReview"),
        (deep.as_bytes(), "not an AdmissionReview: invalid type: sequence"),
        (&long, "standard input is longer than 7 MiB"),
        (
            with("/apiVersion", json!("admission.k8s.io/v1beta1")).as_bytes(),
            "v1beta1 is not served",
        ),
        (with("/request", json!(null)).as_bytes(), "has no request"),
        (with("/request/uid", json!("")).as_bytes(), "request.uid is missing or empty"),
        (
            with("/request/object/metadata/annotations", json!({"a": 5})).as_bytes(),
            "a: invalid type: integer `5`",
        ),
        (
            good.to_string().replace(r#""uid""#, r#""uid":"1","uid""#).as_bytes(),
            "duplicate field `uid`",
        ),
    ] {
        let said = run(["review"], sent);
        assert!(said.complaint().contains(part), "{part}: {said:?}");
    }
    long.truncate(7 * 1024 * 1024);
    assert_eq!(run(["review"], &long).code, 0, "7 MiB are read");
    let extra = good.to_string().replacen('{', &format!("{{\"extra\":{deep},"), 1);
    assert_eq!(
        run(["review"], extra.as_bytes()).code,
        0,
        "what is not read may be as deep as it likes"
    );
}

// ---- plan: outputs -------------------------------------------------------------------------------

const STREAMS_JOB: &str = "
apiVersion: stowplan.dev/v1alpha1
kind: StreamsJob
metadata: {name: parallel}
spec:
  processingElements:
  - {name: parallel-0, operators: [{name: A, host: {name: n1}, hostColocation: [t]}]}
  - {name: parallel-1, operators: [{name: B, hostColocation: [t]}]}
---
apiVersion: v1
kind: Pod
metadata:
  name: second
  labels: {streams.ibm.com/job: parallel, streams.ibm.com/pe: parallel-1}
spec: {containers: [{name: pe, image: streams-runtime}]}
";

#[test]
fn a_job_is_checked_and_the_pods_beside_it_join_it() {
    let node = "{apiVersion: v1, kind: Node, metadata: {name: n1}}";
    let folder = Folder::new(&[("job.yaml", STREAMS_JOB), ("nodes.yaml", node)]);
    let said = folder.plan("-f job.yaml --cluster nodes.yaml");
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    let accepted = "StreamsJob default/parallel: accepted: it can be placed\n  on one host: parallel-0, parallel-1\n";
    assert!(said.stdout.contains(accepted), "{}", said.stdout);
    assert!(said.stdout.contains("metadata.name In [n1]"), "inherited: {}", said.stdout);
    let list = folder.plan("-f job.yaml --cluster nodes.yaml -o json").json();
    let groups = json!([["parallel-0", "parallel-1"]]);
    assert_eq!(list["items"][0]["groups"], groups, "{list}");
    assert_eq!(list["items"][0]["reason"], "Valid");
    assert_eq!(list["items"][1]["allowed"], true);

    let said = folder.plan("-f job.yaml -o json");
    assert_eq!(said.code, 1);
    let list = said.json();
    assert_eq!(list["items"][0]["reason"], "UnknownHost");
    assert_eq!(list["items"][1]["reason"], "JobNotAccepted");
    let message = list["items"][0]["message"].as_str().expect("a message");
    assert!(message.ends_with("(no cluster given: use --cluster or --live)"), "{message}");
}

#[test]
fn plan_as_text() {
    let said = job().plan("-f job.yaml --cluster cluster");
    assert_eq!((said.code, said.stderr.as_str()), (1, ""));
    insta::assert_snapshot!("plan_text", said.stdout);
}

#[test]
fn plan_as_json() {
    let said = job().plan("-f job.yaml --cluster cluster -o json");
    assert_eq!((said.code, said.stderr.as_str()), (1, ""));
    insta::assert_snapshot!("plan_json", said.stdout);
}

#[test]
fn plan_as_yaml() {
    let said = job().plan("-f job.yaml --cluster cluster -o yaml");
    assert_eq!(said.code, 1);
    insta::assert_snapshot!(
        "plan_yaml",
        format!("{}\n# standard error:\n{}", said.stdout, said.stderr)
    );
}

#[test]
fn plan_as_patch() {
    let said = job().plan("-f job.yaml --cluster cluster -o patch");
    assert_eq!(said.code, 1);
    insta::assert_snapshot!("plan_patch", said.stdout);
    assert!(
        said.stderr.starts_with("stowplan: Pod default/lost-: refused (422): MissingLabel: "),
        "{said:?}"
    );
}

#[test]
fn without_a_refusal_it_ends_with_0() {
    let folder = job();
    folder.write("good.yaml", pod("p", "streams.ibm.com/host: node-1").as_bytes());
    for output in ["text", "json", "yaml", "patch"] {
        let said = folder.plan(&format!("-f good.yaml --cluster cluster/nodes.yaml -o {output}"));
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{output}");
    }
}

#[test]
fn what_was_placed_is_unchanged_when_planned_again() {
    let folder = job();
    let once = folder.plan("-f job.yaml --cluster cluster -o yaml").stdout;
    let again = folder.plan_with("-f - --cluster cluster -o yaml", once.as_bytes());
    assert_eq!(again.stdout, once);
    let said = folder.plan_with("-f - --cluster cluster", once.as_bytes());
    assert!(said.stdout.contains("Pod default/pe-0: unchanged: it has all of this\n"), "{said:?}");
    assert!(
        said.stdout.contains("    = required node affinity metadata.name In [node-2]\n"),
        "{said:?}"
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
    let said = Folder::new(&[]).plan_with("-f - -o yaml", text.as_bytes());
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    let placed: Value = serde_saphyr::from_str(&said.stdout).expect("YAML");
    for (index, value) in values.iter().enumerate() {
        assert_eq!(
            placed["metadata"]["labels"][format!("l{index}")],
            json!(value),
            "{}",
            said.stdout
        );
    }
    // As kubectl reads YAML 1.1: 0644 is octal.
    assert_eq!(placed["spec"]["big"], json!(9_223_372_036_854_775_807_i64));
    assert_eq!(placed["spec"]["mode"], json!(420));
    assert_eq!(placed["spec"]["half"], json!(0.5));
    assert!(placed["spec"]["affinity"].is_object());
}

// ---- plan: what pods are made of -----------------------------------------------------------------

/// The entry of the one object in `text`.
fn planned(text: &str) -> Value {
    let folder = job();
    let said = folder.plan_with("-f - --cluster cluster -o json", text.as_bytes());
    assert!(said.code < 2, "{said:?}");
    let plan = said.json();
    assert_eq!(plan["items"].as_array().map(Vec::len), Some(1), "{plan}");
    plan["items"][0].clone()
}

#[test]
fn every_kind_with_a_pod_template_is_planned() {
    let template =
        "{metadata: {annotations: {streams.ibm.com/host: node-1}}, spec: {containers: []}}";
    for (version, kind, rest, path) in [
        ("apps/v1", "Deployment", format!("spec: {{template: {template}}}"), "/spec/template"),
        ("apps/v1", "ReplicaSet", format!("spec: {{template: {template}}}"), "/spec/template"),
        ("apps/v1", "StatefulSet", format!("spec: {{template: {template}}}"), "/spec/template"),
        ("batch/v1", "Job", format!("spec: {{template: {template}}}"), "/spec/template"),
        (
            "batch/v1",
            "Job",
            format!("spec: {{completionMode: Indexed, template: {template}}}"),
            "/spec/template",
        ),
        (
            "batch/v1",
            "CronJob",
            format!("spec: {{jobTemplate: {{spec: {{template: {template}}}}}}}"),
            "/spec/jobTemplate/spec/template",
        ),
        (
            "v1",
            "ReplicationController",
            format!("spec: {{template: {template}}}"),
            "/spec/template",
        ),
        ("v1", "PodTemplate", format!("template: {template}"), "/template"),
        ("example.com/v1", "Widget", format!("spec: {{template: {template}}}"), "/spec/template"),
    ] {
        let text = format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: x}}\n{rest}\n");
        let entry = planned(&text);
        assert_eq!(entry["reason"], "Placed", "{kind}: {entry}");
        assert_eq!((&entry["kind"], &entry["name"]), (&json!(kind), &json!("x")));
        let patch = entry["patch"].as_array().expect("a list");
        assert!(!patch.is_empty(), "{kind}");
        for operation in patch {
            let at = operation["path"].as_str().expect("a path");
            assert!(at.starts_with(path), "{kind}: {at}");
            // Nothing of what the controller will add gets into the template.
            assert!(!at.contains("job-name") && !at.contains("ownerReferences"), "{kind}: {at}");
        }
        let said = Folder::new(&[("n.yaml", NODES)])
            .plan_with("-f - --cluster n.yaml -o yaml", text.as_bytes());
        assert!(said.stdout.contains("stowplan.dev/placement"), "{kind}: {said:?}");
        for extra in ["ownerReferences", "job-name", "pod-index", "generateName", "namespace"] {
            assert!(!said.stdout.contains(extra), "{kind}: {extra}");
        }
    }
    let entry = planned(&format!(
        "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: x}}\nspec: {{template: {template}}}"
    ));
    assert_eq!(entry["reason"], "DaemonSetPod", "the pod knows its owner");
}

/// A run of two tasks with a claim of a template each; `build` uses both. `metadata` and `pipeline` in
/// flow style.
fn run_with(metadata: &str, pipeline: &str) -> String {
    let claim = "{spec: {accessModes: [ReadWriteOnce], storageClassName: now}}";
    format!(
        "apiVersion: tekton.dev/v1\nkind: PipelineRun\nmetadata: {{{metadata}}}\nspec:\n  {pipeline}\n  \
         workspaces: [{{name: source, volumeClaimTemplate: {claim}}}, {{name: cache, volumeClaimTemplate: {claim}}}]\n"
    )
}

const PIPELINE: &str = "pipelineSpec: {tasks: [{name: clone, workspaces: [{name: source}]}, \
    {name: build, workspaces: [{name: source}, {name: cache}]}, {name: lint}]}";

#[test]
fn a_run_is_planned_in_every_mode() {
    for (mode, groups, members, isolated) in [
        ("disabled", 0, vec![], false),
        ("workspaces", 1, vec!["clone", "build"], false),
        ("pipelineruns", 1, vec!["clone", "build", "lint"], false),
        ("isolate-pipelinerun", 1, vec!["clone", "build", "lint"], true),
    ] {
        let entry = planned(&run_with(
            &format!("name: r, uid: u, annotations: {{stowplan.dev/coschedule: {mode}}}"),
            PIPELINE,
        ));
        let run = &entry["run"];
        assert_eq!((&entry["allowed"], &run["mode"]), (&json!(true), &json!(mode)), "{entry}");
        let of = run["groups"].as_array().unwrap_or_else(|| panic!("{entry}"));
        assert_eq!(of.len(), groups, "{entry}");
        for group in of {
            assert_eq!(group["claims"].as_array().map(Vec::len), Some(2), "{entry}");
            assert_eq!(group["isolated"], json!(isolated), "{entry}");
            assert!(
                group["placeholder"].as_str().is_some_and(|n| n.starts_with("affinity-assistant-"))
            );
        }
        for task in run["tasks"].as_array().unwrap_or_else(|| panic!("{entry}")) {
            let is_member = members.iter().any(|member| task["name"] == *member);
            let changes = task["changes"].as_array().map_or(0, Vec::len);
            assert_eq!(changes > 0, is_member, "{mode}: {task}");
        }
    }
}

#[test]
fn a_run_is_planned_as_far_as_it_is_known() {
    let entry = planned(&run_with("name: r", "pipelineRef: {resolver: git}"));
    assert_eq!(entry["run"]["tasks"], Value::Null, "{entry}");
    assert_eq!(entry["run"]["groups"][0]["tasks"], Value::Null, "{entry}");
    // A pod that uses the group's claims stands for all.
    assert_eq!(entry["reason"], "Placed", "{entry}");
    let changes = &entry["run"]["groups"][0]["anyPod"]["changes"];
    assert!(changes.as_array().is_some_and(|changes| !changes.is_empty()), "{entry}");

    // What follows from a UID that nobody knows yet is not told.
    let entry = planned(&run_with("generateName: image-", PIPELINE));
    assert_eq!(entry["name"], "image-");
    let group = &entry["run"]["groups"][0];
    assert_eq!(group.get("placeholder"), None, "{entry}");
    assert_eq!(group["claims"][0], "<claim of workspace source>", "{entry}");

    let nested = "pipelineSpec: {tasks: [{name: inner, pipelineSpec: {tasks: []}}]}";
    let entry = planned(&run_with("name: r", nested));
    assert_eq!(
        entry["run"]["tasks"],
        Value::Null,
        "the tasks are those of the pipeline in it: {entry}"
    );
    assert_eq!(entry["reason"], "Placed", "{entry}");

    for (pipeline, sentence) in [
        ("pipelineRef: {resolver: git}", "its tasks are known to a resolver, and not here"),
        (
            "pipelineRef: {name: image}",
            "Pipeline image is not known here, and so its tasks are not",
        ),
        (nested, "it has pipelines in its pipeline, whose tasks are not told apart here"),
    ] {
        let said = Folder::new(&[]).plan_with("-f -", run_with("name: r", pipeline).as_bytes());
        for line in [
            "PipelineRun default/r: coscheduled, 1 group",
            "  on one node: every task",
            "    a pod that uses them:",
            &format!("  {sentence}"),
            "1 object: 1 placed",
        ] {
            assert!(said.stdout.lines().any(|told| told == line), "{line}\n{}", said.stdout);
        }
    }
}

#[test]
fn what_is_left_alone_is_not_coscheduled() {
    let run = run_with("name: r, namespace: kube-system", PIPELINE);
    let said = Folder::new(&[]).plan_with("-f -", run.as_bytes());
    let verdict = "PipelineRun kube-system/r: left alone: the policy excludes its namespace";
    assert!(said.stdout.lines().any(|line| line == verdict), "{}", said.stdout);
    assert!(!said.stdout.contains("on one node"), "{}", said.stdout);

    let run = run_with("name: r", "pipelineSpec: {tasks: [{name: lint}]}");
    let said = Folder::new(&[]).plan_with("-f -", run.as_bytes());
    let verdict = "PipelineRun default/r: unchanged: its pods may run anywhere";
    assert!(said.stdout.lines().any(|line| line == verdict), "{}", said.stdout);
    assert!(said.stdout.contains("1 object: 1 unchanged"), "{}", said.stdout);
}

/// Tekton copies the annotation to the run's pods.
#[test]
fn a_run_that_names_a_group_is_planned_with_that_group() {
    for (pipeline, placed) in [(PIPELINE, "  pods of "), ("pipelineRef: {resolver: git}", "")] {
        let text = run_with("name: r, annotations: {stowplan.dev/coschedule-group: g}", pipeline);
        let said = Folder::new(&[]).plan_with("-f -", text.as_bytes());
        let verdict = "PipelineRun default/r: coscheduled with all pods of group g";
        assert!(said.stdout.lines().any(|line| line == verdict), "{}", said.stdout);
        assert!(said.stdout.contains(placed), "{}", said.stdout);
        assert!(said.stdout.contains("1 object: 1 placed"), "{}", said.stdout);
        assert_eq!(planned(&text)["run"]["nativeGroup"], "g");
        let text = text.replace("coschedule-group: g", "coschedule-group: -bad-");
        let entry = planned(&text);
        assert_eq!((&entry["code"], &entry["reason"]), (&json!(422), &json!("InvalidGroup")));
    }
}

#[test]
fn a_claim_that_a_task_mounts_itself_is_planned() {
    let run = run_with(
        "name: r",
        "pipelineSpec: {tasks: [{name: build, taskSpec: {volumes: [{name: c, \
         persistentVolumeClaim: {claimName: cache}}]}}]}",
    );
    let said = Folder::new(&[]).plan_with("-f -", run.as_bytes());
    for line in ["  on one node: build", "  pod of build:"] {
        assert!(said.stdout.lines().any(|told| told == line), "{line}\n{}", said.stdout);
    }
    assert!(said.stdout.contains("1 object: 1 placed"), "{}", said.stdout);
}

/// A class of one provisioner. `annotations` in flow style.
fn class(name: &str, created: &str, annotations: &str, mode: &str) -> String {
    format!(
        "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {{name: {name}, \
         creationTimestamp: '{created}T00:00:00Z', annotations: {{{annotations}}}}}\n\
         provisioner: {provisioner}\nvolumeBindingMode: {mode}\n",
        provisioner = name.split('-').next().unwrap_or_default(),
    )
}

/// The API server has filled in the default class before it asks the webhook.
#[test]
fn a_claim_without_a_class_is_planned_with_the_default_one() {
    const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class: 'true'";
    let classes = [
        class("old-now", "2026-01-01", DEFAULT, "Immediate"),
        class("old-waits", "2026-01-01", "", "WaitForFirstConsumer"),
        class("new-now", "2026-02-01", DEFAULT, "Immediate"),
        class("new-waits", "2026-02-01", "", "WaitForFirstConsumer"),
        class(
            "newest-now",
            "2026-03-01",
            "storageclass.kubernetes.io/is-default-class: 'false'",
            "Immediate",
        ),
    ]
    .join("---\n");
    let folder = Folder::new(&[("classes.yaml", &classes)]);
    let plan = |text: &str| folder.plan_with("-f - --cluster classes.yaml", text.as_bytes()).stdout;
    let run = run_with("name: r", PIPELINE);
    let told = plan(&run.replace(", storageClassName: now", ""));
    assert!(told.contains("claim of workspace source: storage class new-waits"), "{told}");
    let told = plan(&run.replace("storageClassName: now", "storageClassName: old-now"));
    assert!(told.contains("claim of workspace source: storage class old-waits"), "{told}");
    // A volume without a class is what this one asks for.
    let told = plan(&run.replace("storageClassName: now", "storageClassName: ''"));
    assert!(told.contains("claim of workspace source: as it is"), "{told}");

    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\n\
        metadata: {name: c, annotations: {stowplan.dev/coschedule-group: g}}\n\
        spec: {accessModes: [ReadWriteOnce]}\n";
    let told = plan(claim);
    assert!(told.contains("storage class new-waits"), "{told}");
    let placed = folder.plan_with("-f - --cluster classes.yaml -o yaml", claim.as_bytes());
    assert!(placed.stdout.contains("storageClassName: new-waits"), "{placed:?}");
}

#[test]
fn a_class_that_is_not_known_is_told() {
    const HINT: &str = "(no cluster given: use --cluster or --live)";
    let run = run_with("name: r", PIPELINE);
    let said = Folder::new(&[]).plan_with("-f -", run.as_bytes());
    let line = format!("  claim of workspace source: class now is not known here {HINT}");
    assert!(said.stdout.lines().any(|told| told == line), "{}", said.stdout);
    let json = Folder::new(&[]).plan_with("-f - -o json", run.as_bytes()).json();
    let unknown = format!("class now is not known here {HINT}");
    assert_eq!(json["items"][0]["run"]["claims"][0]["unknown"], unknown, "{json}");

    let without = run.replace(", storageClassName: now", "");
    let said = Folder::new(&[]).plan_with("-f -", without.as_bytes());
    let line = format!(
        "  claim of workspace source: the cluster's default class is not known here {HINT}"
    );
    assert!(said.stdout.lines().any(|told| told == line), "{}", said.stdout);

    // Given a cluster, that is no matter of what was given.
    let folder = Folder::new(&[("nodes.yaml", NODES)]);
    let said = folder.plan_with("-f - --cluster nodes.yaml", run.as_bytes());
    let line = "  claim of workspace source: class now is not known here";
    assert!(said.stdout.lines().any(|told| told == line), "{}", said.stdout);
    let said = folder.plan_with("-f - --cluster nodes.yaml", without.as_bytes());
    assert!(said.stdout.contains("claim of workspace source: as it is"), "{}", said.stdout);

    // What nobody would move needs nobody's class.
    let run = run_with("name: r, annotations: {stowplan.dev/coschedule: disabled}", PIPELINE);
    let said = Folder::new(&[]).plan_with("-f -", run.as_bytes());
    assert!(said.stdout.contains("claim of workspace source: as it is"), "{}", said.stdout);

    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\n\
        metadata: {name: c, annotations: {stowplan.dev/coschedule-group: g}}\n\
        spec: {storageClassName: now}\n";
    let said = Folder::new(&[]).plan_with("-f -", claim.as_bytes());
    let verdict = "PersistentVolumeClaim default/c: unchanged, as far as is known here";
    for line in [verdict, &format!("  class now is not known here {HINT}")] {
        assert!(said.stdout.lines().any(|told| told == line), "{}", said.stdout);
    }
}

#[test]
fn a_run_whose_mode_is_none_is_refused() {
    let folder = Folder::new(&[]);
    let pipelines = [PIPELINE, "pipelineRef: {resolver: git}", "pipelineSpec: {tasks: []}"];
    for pipeline in pipelines {
        let text = run_with("name: r, annotations: {stowplan.dev/coschedule: all}", pipeline);
        let said = folder.plan_with("-f -", text.as_bytes());
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.stdout.contains("\"all\" is no mode"), "{said:?}");
        assert!(
            said.stdout.contains("disabled, workspaces, pipelineruns, isolate-pipelinerun"),
            "{said:?}"
        );
        let entry = planned(&text);
        assert_eq!((&entry["code"], &entry["reason"]), (&json!(422), &json!("InvalidMode")));
    }
    let said = folder.plan_with("-f -", run_with("labels: {a: b}", PIPELINE).as_bytes());
    assert!(said.complaint().contains("has neither metadata.name nor metadata.generateName"));
}

#[test]
fn a_run_follows_an_earlier_one_that_uses_its_claim() {
    let bound = PIPELINE.to_owned();
    let run = |metadata: &str| {
        let text = run_with(metadata, &bound);
        let claim = "{name: cache, volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: now}}}";
        text.replace(claim, "{name: cache, persistentVolumeClaim: {claimName: shared}}")
    };
    let earlier = run("name: first, uid: a, creationTimestamp: '2026-01-01T00:00:00Z'");
    // One that has not begun holds up nobody.
    let folder = Folder::new(&[("cluster.yaml", &earlier)]);
    let said = folder.plan_with("-f - --cluster cluster.yaml", run("name: second").as_bytes());
    assert!(!said.stdout.contains("is used by"), "{said:?}");
    let task_run = "apiVersion: tekton.dev/v1\nkind: TaskRun\nmetadata:\n  name: t\n  uid: t\n  \
                    ownerReferences: [{apiVersion: tekton.dev/v1, kind: PipelineRun, name: first, uid: a, controller: true}]\n";
    let begun = format!("{earlier}\n---\n{task_run}");
    let folder = Folder::new(&[("cluster.yaml", &begun)]);
    let said = folder.plan_with("-f - --cluster cluster.yaml", run("name: second").as_bytes());
    assert_eq!(said.code, 0, "{said:?}");
    let told = "claim shared is used by the earlier PipelineRun first: goes to the same node";
    assert!(said.stdout.contains(told), "{said:?}");
}

#[test]
fn labels_that_a_controller_adds_do_not_hide_that_the_template_has_none() {
    let entry = planned(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\nspec:\n  completionMode: Indexed\n  template:\n    \
         metadata: {annotations: {streams.ibm.com/host-colocation: t}}\n    spec: {containers: []}\n",
    );
    assert_eq!(
        entry["patch"][0],
        json!({"op": "add", "path": "/spec/template/metadata/labels", "value": {}})
    );
}

#[test]
fn lists_are_opened_and_stay_lists() {
    let pods = json!({"apiVersion": "v1", "kind": "PodList", "items": [
        {"metadata": {"name": "a", "annotations": {"streams.ibm.com/host-colocation": "t"}}, "spec": {}},
        {"metadata": {"name": "b"}, "spec": {}},
    ]});
    let folder = Folder::new(&[]);
    let plan = folder.plan_with("-f - -o json", pods.to_string().as_bytes()).json();
    assert_eq!(plan["items"][0]["reason"], "Placed");
    assert_eq!(plan["items"][1]["name"], "b");
    let said = folder.plan_with("-f - -o yaml", pods.to_string().as_bytes());
    let placed: Value = serde_saphyr::from_str(&said.stdout).expect("YAML");
    assert!(placed["items"][0]["spec"]["affinity"].is_object(), "{placed}");
    assert_eq!(placed["items"][1], pods["items"][1]);
    let said = folder.plan_with("-f - -o json", br#"{"apiVersion":"v1","kind":"List","items":[]}"#);
    assert_eq!((said.code, &said.json()["items"]), (0, &json!([])));
}

#[test]
fn pools_and_namespaces_of_the_input_count() {
    let folder = job();
    let pool = "apiVersion: stowplan.dev/v1alpha1\nkind: HostPool\nmetadata: {name: own}\nspec: {hosts: [node-2]}\n";
    let text = format!("{}---\n{pool}", pod("p", "streams.ibm.com/host-pool: own"));
    for namespace in ["", "-n jobs"] {
        let said =
            folder.plan_with(&format!("-f - --cluster cluster {namespace}"), text.as_bytes());
        assert_eq!(said.code, 0, "{said:?}");
        assert!(said.stdout.contains("metadata.name In [node-2]"), "{said:?}");
    }
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {stowplan.dev/ignore: 'true'}}\n";
    let said = folder.plan_with("-f -", format!("{namespace}---\n{text}").as_bytes());
    assert!(said.stdout.contains("Pod default/p: left alone: "), "{said:?}");
}

#[test]
fn the_namespace_is_the_objects_own_or_the_one_asked_for() {
    let folder = job();
    let bare = pod("p", "streams.ibm.com/host-pool: 'named[0]'");
    let own = bare.replace("{name: p,", "{name: p, namespace: jobs,");
    for (words, text, namespace, code) in [
        ("", &bare, "default", 1),
        ("-n jobs", &bare, "jobs", 0),
        ("", &own, "jobs", 0),
        ("-n jobs", &own, "jobs", 0),
    ] {
        let said =
            folder.plan_with(&format!("-f - --cluster cluster -o json {words}"), text.as_bytes());
        assert_eq!(
            (said.code, &said.json()["items"][0]["namespace"]),
            (code, &json!(namespace)),
            "{words}"
        );
    }
    let said = folder.plan_with("-f - -n other", own.as_bytes());
    assert_eq!(
        said.complaint(),
        "standard input, document 1 (line 1): Pod p: is in namespace \"jobs\", and -n asks for \"other\": leave -n out"
    );
}

#[test]
fn without_a_cluster_a_refusal_says_that_one_would_help() {
    let folder = job();
    let hint = " (no cluster given: use --cluster or --live)";
    let entry = |words: &str, annotations: &str| {
        let text = pod("p", annotations);
        folder.plan_with(&format!("-f - -o json {words}"), text.as_bytes()).json()["items"][0]
            .clone()
    };
    let message = |entry: &Value| entry["message"].as_str().expect("text").to_owned();
    assert!(message(&entry("", "streams.ibm.com/host: node-1")).ends_with(hint));
    assert!(!message(&entry("--cluster cluster", "streams.ibm.com/host: node-9")).ends_with(hint));
    assert!(
        !message(&entry("", "streams.ibm.com/host: ''")).ends_with(hint),
        "no cluster helps there"
    );
    let said = folder.plan_with("-f -", pod("p", "streams.ibm.com/host: node-1").as_bytes());
    assert!(said.stdout.contains("\n  (no cluster given: use --cluster or --live)\n"), "{said:?}");
}

#[test]
fn the_policy_holds_for_a_plan() {
    let folder = job();
    folder.write("policy.yaml", b"onInvalid: warn\n");
    let text = pod("p", "streams.ibm.com/host: node-9");
    let said = folder.plan_with("-f - --cluster cluster --policy policy.yaml", text.as_bytes());
    assert_eq!(said.code, 0);
    assert!(
        said.stdout.contains("Pod default/p: admitted, not placed (the policy only warns)\n"),
        "{said:?}"
    );
    assert!(said.stdout.ends_with("1 object: 1 admitted without placement\n"), "{said:?}");
    let said = folder.plan_with("-f - --policy nonesuch.yaml", text.as_bytes());
    assert!(said.complaint().starts_with("nonesuch.yaml: "), "{said:?}");
}

// ---- plan: input ---------------------------------------------------------------------------------

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
    let names = |said: &Said| -> Vec<String> {
        let items = said.json()["items"].as_array().expect("a list").clone();
        items.iter().map(|entry| entry["name"].as_str().expect("a name").to_owned()).collect()
    };
    let said = folder.plan("-f z.yaml -f all -o json");
    assert_eq!(names(&said), ["z", "a", "a2", "b", "c"]);
    let said = folder.plan_with("-f z.yaml - -o json", pod("s", "").as_bytes());
    assert_eq!(names(&said), ["z", "s"]);
}

#[test]
fn odd_but_sound_input_is_read() {
    let crlf = pod("p", "").replace('\n', "\r\n");
    let anchors =
        "apiVersion: v1\nkind: Pod\nmetadata: &m {name: p, labels: &l {a: b}}\nspec: {x: *l}\n";
    let markers = format!("%YAML 1.2\n---\n{}...\n---\n# nothing\n---\nnull\n---\n", pod("p", ""));
    let nulls = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: null, annotations: {a: null, b: }}\nspec: null\n";
    for text in [&crlf, anchors, &markers, nulls] {
        let said = Folder::new(&[]).plan_with("-f - -o json", text.as_bytes());
        assert_eq!(said.code, 0, "{text}: {said:?}");
        assert_eq!(said.json()["items"][0]["name"], "p");
    }
}

#[test]
fn input_that_cannot_be_used_ends_with_2_and_says_why() {
    let template = |rest: &str| {
        format!("apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: w}}\n{rest}\n")
    };
    for (text, complaint) in [
        ("", "no Kubernetes object in standard input"),
        ("# only a comment\n---\n", "no Kubernetes object in standard input"),
        ("null\n", "no Kubernetes object in standard input"),
        ("hello\n", "standard input, document 1 (line 1): a text is not a Kubernetes object"),
        ("- a\n", "standard input, document 1 (line 1): a list is not a Kubernetes object"),
        ("7\n", "standard input, document 1 (line 1): the number 7 is not a Kubernetes object"),
        (
            "# c\nkind: Pod\n",
            "standard input, document 1 (line 1): has no apiVersion, so it is not a Kubernetes object",
        ),
        (
            "apiVersion: v1\nkind: 5\n",
            "standard input, document 1 (line 1): kind is the number 5, and must be a word",
        ),
        (
            "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, metadata: {}}]\n",
            "standard input, document 1 (line 1), items/0: has no kind, so it is not a Kubernetes object",
        ),
        (
            "apiVersion: v1\nkind: List\nitems: 5\n",
            "standard input, document 1 (line 1): items is the number 5, and must be a list",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {}\n",
            "standard input, document 1 (line 1): Pod: has neither metadata.name nor metadata.generateName",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p, annotations: {streams.ibm.com/host: 5}}\n",
            "standard input, document 1 (line 1): Pod p: metadata.annotations: streams.ibm.com/host is the number 5, \
             and must be a text: quote it (\"5\")",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {a: yes}}\n",
            "standard input, document 1 (line 1): Pod p: metadata.labels: a is the boolean true, and must be a text: \
             quote it (\"true\")",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p, annotations: {streams.ibm.com/host-colocation: [a]}}\n",
            "standard input, document 1 (line 1): Pod p: metadata.annotations: streams.ibm.com/host-colocation is a \
             list, and must be a text",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p, annotations: text}\n",
            "standard input, document 1 (line 1): Pod p: metadata.annotations is a text, and must be a map",
        ),
        (
            &template(
                "spec: {template: {metadata: {annotations: {streams.ibm.com/host-pool: 1}}}}",
            ),
            "standard input, document 1 (line 1): Deployment w: spec.template.metadata.annotations: \
             streams.ibm.com/host-pool is the number 1, and must be a text: quote it (\"1\")",
        ),
        (
            &template("spec: {}"),
            "standard input, document 1 (line 1): Deployment w: has no spec.template",
        ),
        (
            &template("spec: text"),
            "standard input, document 1 (line 1): Deployment w: has no spec.template",
        ),
        (
            &template("spec: {template: [a]}"),
            "standard input, document 1 (line 1): Deployment w: spec.template is a list, and must be a map",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nmetadata: {name: q}\n",
            "standard input, document 1, line 4, column 1: duplicate mapping key `metadata` is not allowed here",
        ),
        (
            "a: 1\n---\nb:\n\t- c\n",
            "standard input, document 2, line 4, column 2: tabs disallowed within this context (block indentation)",
        ),
    ] {
        let said = Folder::new(&[]).plan_with("-f -", text.as_bytes());
        let expected: String = complaint.to_owned();
        let said_lines: Vec<&str> =
            said.stderr.lines().map(|l| l.trim_start_matches("stowplan: ")).collect();
        assert_eq!((said.code, said.stdout.as_str()), (2, ""), "{text}: {said:?}");
        assert!(said_lines.contains(&expected.as_str()), "{text}: {said:?}");
    }
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
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
    let said = folder.plan(
        "-f a.yaml b.json c.json empty.yaml folder latin.yaml wide.yaml zeros.yaml nonesuch.yaml",
    );
    assert_eq!((said.code, said.stdout.as_str()), (2, ""));
    insta::assert_snapshot!("plan_unreadable", said.stderr);
}

#[test]
fn what_is_wrong_with_a_cluster_is_told_with_file_and_document() {
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
    let said = folder.plan("-f pod.yaml --cluster bad");
    assert_eq!((said.code, said.stdout.as_str()), (2, ""));
    let lines: Vec<&str> = said.stderr.lines().collect();
    assert_eq!(lines.len(), 3, "{said:?}");
    assert_eq!(lines[0], "stowplan: bad/1.yaml, document 1 (line 1): a Node without metadata.name");
    assert!(
        lines[1].starts_with("stowplan: bad/1.yaml, document 2 (line 4): not a valid Node: "),
        "{said:?}"
    );
    assert!(
        lines[2].starts_with("stowplan: bad/2.yaml, document 1 (line 1): not a valid HostPool: "),
        "{said:?}"
    );

    let said = folder.plan("-f pod.yaml --cluster empty.yaml");
    assert_eq!(said.complaint(), "no Kubernetes object in empty.yaml");
    assert_eq!(
        folder.plan("-f pod.yaml --cluster none.yaml").code,
        0,
        "an empty list is a cluster"
    );
    let said = folder.plan("-f pod.yaml --cluster nonesuch");
    assert!(said.complaint().starts_with("nonesuch: No such file"), "{said:?}");
    let said = folder.plan("-f - --cluster -");
    assert!(said.complaint().contains("standard input can be read once"), "{said:?}");
    let said = folder.plan("-f - -");
    assert!(said.complaint().contains("standard input can be read once"), "{said:?}");
}

#[test]
fn a_bomb_of_references_and_a_tower_of_brackets_are_refused() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let before = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{before}]\n"));
    }
    for text in [bomb, "[".repeat(100_000), "{\"a\":".repeat(100_000), "- ".repeat(100_000)] {
        let said = Folder::new(&[]).plan_with("-f -", text.as_bytes());
        assert!(said.complaint().starts_with("standard input, document 1, line "), "{said:?}");
    }
}

#[test]
fn a_file_that_is_too_long_is_not_read() {
    let folder = Folder::new(&[]);
    let file = fs::File::create(folder.0.path().join("long.yaml")).expect("a file");
    file.set_len(64 * 1024 * 1024 + 1).expect("a hole");
    let said = folder.plan("-f long.yaml");
    assert_eq!(said.complaint(), "long.yaml: longer than 64 MiB; give it in parts");
}

#[cfg(unix)]
#[test]
fn a_file_that_may_not_be_read_is_named() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = Folder::new(&[("secret.yaml", &pod("p", ""))]);
    let path = folder.0.path().join("secret.yaml");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).expect("a mode");
    if fs::File::open(&path).is_ok() {
        return; // Modes do not bind root.
    }
    let said = folder.plan("-f secret.yaml");
    assert!(said.complaint().starts_with("secret.yaml: Permission denied"), "{said:?}");
}

#[test]
fn live_without_a_kubeconfig_says_so() {
    let folder = Folder::new(&[("pod.yaml", &pod("p", ""))]);
    let said = folder.plan("-f pod.yaml --live");
    assert!(said.complaint().starts_with("--live: no usable kubeconfig"), "{said:?}");
}

/// An API server of canned answers, by path and query.
struct Cluster(String);

impl Cluster {
    fn start(answer: impl Fn(&str) -> (u16, Value) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
                let Some(request) = lines.next() else { continue };
                lines.take_while(|line| !line.is_empty()).for_each(drop);
                let (code, body) = answer(request.split(' ').nth(1).unwrap_or_default());
                let body = body.to_string();
                let head = "Content-Type: application/json\r\nConnection: close";
                let length = body.len();
                let _ = write!(
                    stream,
                    "HTTP/1.1 {code} X\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}"
                );
            }
        });
        Self(format!("http://{address}"))
    }

    fn kubeconfig(&self) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             contexts: [{{name: c, context: {{cluster: c, user: u, namespace: jobs}}}}]\n\
             clusters: [{{name: c, cluster: {{server: '{}'}}}}]\nusers: [{{name: u, user: {{}}}}]\n",
            self.0
        )
    }

    /// `stowplan plan --live` of one pod, in this cluster.
    fn plan(&self, annotations: &str) -> Said {
        let folder = Folder::new(&[
            ("pod.yaml", &pod("p", annotations)),
            (".kube/config", &self.kubeconfig()),
        ]);
        folder.plan("-f pod.yaml --live")
    }
}

fn failure(code: u16, reason: &str) -> (u16, Value) {
    let message = format!("the server says {reason}");
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code});
    (code, status)
}

fn page(kind: &str, continues: &str, items: &Value) -> (u16, Value) {
    (
        200,
        json!({"kind": kind, "apiVersion": "v1", "metadata": {"continue": continues}, "items": items}),
    )
}

fn node(name: &str) -> Value {
    json!({"metadata": {"name": name}, "status": {}})
}

#[test]
fn live_reads_the_cluster_page_by_page() {
    let cluster = Cluster::start(|path| match path {
        path if path.starts_with("/api/v1/nodes") && path.contains("continue=more") => {
            page("NodeList", "", &json!([node("node-2")]))
        }
        path if path.starts_with("/api/v1/nodes") => {
            page("NodeList", "more", &json!([node("node-1")]))
        }
        path if path.starts_with("/api/v1/namespaces") => page("NamespaceList", "", &json!([])),
        path if path.starts_with("/apis/stowplan.dev/v1alpha1/hostpools") => page(
            "HostPoolList",
            "",
            &json!([{"apiVersion": "stowplan.dev/v1alpha1", "kind": "HostPool",
                "metadata": {"name": "two", "namespace": "jobs"}, "spec": {"hosts": ["node-2", "node-1"]}}]),
        ),
        path if path.starts_with("/apis/stowplan.dev/v1alpha1/streamsjobs") => {
            page("StreamsJobList", "", &json!([]))
        }
        path if path.starts_with("/api/v1/pods") && path.contains("labelSelector") => {
            page("PodList", "", &json!([]))
        }
        path if path.starts_with("/apis/tekton.dev/") => failure(404, "NotFound"),
        path if ["/api/v1/persistentvolume", "/apis/storage.k8s.io/", "/apis/apps/"]
            .iter()
            .any(|start| path.starts_with(start)) =>
        {
            page("List", "", &json!([]))
        }
        _ => failure(500, "InternalError"),
    });
    // In the namespace of the context, where kubectl would create it.
    let said = cluster.plan("streams.ibm.com/host-pool: 'two[0]'");
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    assert!(said.stdout.starts_with("Pod jobs/p: placed\n"), "{said:?}");
    assert!(said.stdout.contains("metadata.name In [node-2]"), "{said:?}");
    let said = cluster.plan("streams.ibm.com/host: node-3");
    assert_eq!(said.code, 1);
    assert!(!said.stdout.contains("no cluster given"), "{said:?}");
}

#[test]
fn live_goes_without_pools_where_they_are_not_installed() {
    let cluster = Cluster::start(|path| match path {
        path if path.starts_with("/api/v1/nodes") => page("NodeList", "", &json!([node("node-1")])),
        path if path.starts_with("/apis/stowplan.dev/") => failure(404, "NotFound"),
        _ => page("List", "", &json!([])),
    });
    let said = cluster.plan("streams.ibm.com/host: node-1");
    assert_eq!(said.code, 0);
    assert_eq!(
        said.stderr,
        "stowplan: the cluster does not know HostPools: stowplan is not installed in it\n"
    );
}

#[test]
fn live_says_what_may_not_be_listed() {
    let cluster = Cluster::start(|_| failure(403, "Forbidden"));
    let said = cluster.plan("");
    assert_eq!(said.complaint(), "--live: nodes cannot be listed: the server says Forbidden");
}

#[test]
fn live_goes_without_what_may_not_be_listed_but_for_nodes_and_pods() {
    let cluster = Cluster::start(|path| match path {
        path if path.starts_with("/api/v1/nodes") => page("NodeList", "", &json!([node("node-1")])),
        path if path.starts_with("/api/v1/pods") => page("PodList", "", &json!([])),
        _ => failure(403, "Forbidden"),
    });
    let said = cluster.plan("streams.ibm.com/host: node-1");
    assert_eq!(said.code, 0, "{said:?}");
    for plural in [
        "namespaces",
        "hostpools",
        "streamsjobs",
        "persistentvolumeclaims",
        "persistentvolumes",
        "storageclasses",
        "statefulsets",
        "taskruns",
        "pipelineruns",
        "pipelines",
    ] {
        let warning = format!("stowplan: {plural} cannot be listed: the server says Forbidden: ");
        assert_eq!(said.stderr.matches(&warning).count(), 1, "{plural}: {said:?}");
    }
    assert_eq!(said.stderr.lines().count(), 10, "{said:?}");
}

#[test]
fn live_without_an_answering_cluster_says_so() {
    let said = Cluster("http://127.0.0.1:1".to_owned()).plan("");
    assert!(said.complaint().starts_with("--live: nodes cannot be listed: "), "{said:?}");
}

// ---- controller ----------------------------------------------------------------------------------

#[test]
fn a_controller_without_a_cluster_or_with_a_bad_policy_does_not_start() {
    let folder = Folder::new(&[("policy.yaml", "streams: {enabeld: true}\n")]);
    let said =
        folder.run(["controller", "--namespace", "ns", "--admin-listen", "127.0.0.1:0"], b"");
    // The log has a line for each reason, too.
    assert_eq!((said.code, said.stdout.as_str()), (2, ""), "{said:?}");
    assert!(
        said.stderr.contains("stowplan: cannot find the cluster (a kubeconfig, or "),
        "{said:?}"
    );
    let said = folder.run(["controller", "--namespace", "ns", "--policy", "policy.yaml"], b"");
    assert_eq!((said.code, said.stdout.as_str()), (2, ""), "{said:?}");
    assert!(said.stderr.contains("policy.yaml") && said.stderr.contains("enabeld"), "{said:?}");
}

/// What `GET path` answers: the status and the body.
fn get(url: &str, path: &str) -> (u16, String) {
    let address = url.strip_prefix("http://").expect("plain HTTP");
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let answer = std::io::read_to_string(stream).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.expect("a status"), body.to_owned())
}

#[test]
fn a_controller_is_not_ready_before_it_has_seen_the_cluster_and_stops_when_told() {
    let kubeconfig = Cluster("http://127.0.0.1:1".to_owned()).kubeconfig();
    let folder = Folder::new(&[("kubeconfig", &kubeconfig)]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_stowplan"))
        .args(["controller", "--namespace", "ns", "--admin-listen", "127.0.0.1:0"])
        .current_dir(folder.0.path())
        .env("KUBECONFIG", "kubeconfig")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let url = line.trim().strip_prefix("admin on ").unwrap_or_else(|| panic!("{line}"));
    assert_eq!(get(url, "/livez"), (200, "ok\n".to_owned()));
    let (status, body) = get(url, "/readyz");
    assert_eq!(status, 503);
    for kind in ["nodes", "namespaces", "hostpools", "streamsjobs", "pods"] {
        assert!(body.contains(&format!("{kind} are not synced yet\n")), "{body}");
    }
    assert!(!body.contains("certificate"), "it has none: {body}");
    let (status, body) = get(url, "/metrics");
    assert_eq!(status, 200);
    assert!(body.contains("\nstowplan_controller_leader 0\n"), "{body}");
    let id = i32::try_from(child.id()).expect("a process id");
    let id = rustix::process::Pid::from_raw(id).expect("a process id");
    rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("it runs");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}
