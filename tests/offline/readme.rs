//! Runs what the README and the documents show: examples are decided, sessions are repeated,
//! commands are run, and every word and number in their tables exists.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use stowplan::testing::placement::reason::Reason;
use testbed::control_plane::{ControlPlane, NodeSpec, Options};

const README: &str = include_str!("../../README.md");
const START: &str = include_str!("../../docs/start.md");
const VERSIONS: &str = include_str!("../../docs/versions.md");
const STREAMS: &str = include_str!("../../docs/streams.md");
const TEKTON: &str = include_str!("../../docs/tekton.md");
const GROUPS: &str = include_str!("../../docs/groups.md");
const KATALYST: &str = include_str!("../../docs/katalyst.md");
const MAP: &str = include_str!("../../docs/map.md");
const POLICY: &str = include_str!("../../docs/policy.md");
const OPERATIONS: &str = include_str!("../../docs/operations.md");
const UPGRADES: &str = include_str!("../../docs/upgrades.md");
const TESTBED: &str = include_str!("../../testbed/README.md");

/// The documents whose examples, sessions and commands are run.
const PAGES: [(&str, &str); 12] = [
    ("README.md", README),
    ("docs/start.md", START),
    ("docs/versions.md", VERSIONS),
    ("docs/streams.md", STREAMS),
    ("docs/tekton.md", TEKTON),
    ("docs/groups.md", GROUPS),
    ("docs/katalyst.md", KATALYST),
    ("docs/map.md", MAP),
    ("docs/policy.md", POLICY),
    ("docs/operations.md", OPERATIONS),
    ("docs/upgrades.md", UPGRADES),
    ("testbed/README.md", TESTBED),
];

/// The cluster of an example that names no other one by `<!-- cluster: FILE FILE -->`.
const CLUSTER: &str = "examples/nodes.yaml examples/host-pools.yaml";

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A fenced block: its language and its text.
struct Block {
    language: String,
    text: String,
    /// The last line of prose before it.
    lead: String,
    /// The files of a `<!-- cluster: … -->` between the previous block and this one.
    cluster: Option<String>,
}

impl Block {
    /// It shows what a user writes; the next block may show what the object gets.
    fn is_written(&self) -> bool {
        self.language == "yaml" && self.lead.to_lowercase().ends_with("you write:")
    }
}

fn blocks_of(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut open, mut lead, mut cluster) = (false, String::new(), None);
    for line in page.lines() {
        // A block of a list item is indented.
        match line.trim_start().strip_prefix("```") {
            Some(language) if !open => {
                let (language, lead) = (language.to_owned(), lead.clone());
                let cluster = cluster.take();
                blocks.push(Block { language, text: String::new(), lead, cluster });
                open = true;
            }
            Some(_) => open = false,
            None if open => {
                let block = blocks.last_mut().unwrap();
                block.text.push_str(line);
                block.text.push('\n');
            }
            None => match line.strip_prefix("<!-- cluster: ") {
                Some(files) => cluster = Some(files.trim_end_matches(" -->").to_owned()),
                None if !line.trim().is_empty() => line.clone_into(&mut lead),
                None => {}
            },
        }
    }
    assert!(!open, "a fence is not closed");
    assert!(!blocks.is_empty(), "a document has lost its blocks");
    blocks
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn stowplan(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stowplan")).args(arguments).current_dir(ROOT).output().unwrap()
}

/// The object of an example: `kind: Pod`, a name and a container unless the block has its own.
fn object(text: &str) -> Value {
    let mut object = yaml(text);
    if object.get("kind").is_none() {
        object["apiVersion"] = json!("v1");
        object["kind"] = json!("Pod");
        object["metadata"]["name"] = json!("pe");
        object["spec"] = json!({"containers": [{"name": "pe", "image": "i"}]});
    }
    object
}

/// The object as `plan` would create it, beside `cluster`.
fn planned(object: &Value, cluster: &str, folder: &Path) -> Value {
    let file = folder.join("object.json");
    std::fs::write(&file, object.to_string()).unwrap();
    let mut arguments = vec!["plan", "-f", file.to_str().unwrap(), "-o", "yaml", "--cluster"];
    arguments.extend(cluster.split_whitespace());
    let output = stowplan(&arguments);
    assert!(output.status.success(), "{object}\n{}", String::from_utf8_lossy(&output.stderr));
    yaml(&String::from_utf8(output.stdout).unwrap())
}

#[test]
fn what_you_write_becomes_what_the_object_gets() {
    let folder = tempfile::tempdir().unwrap();
    let mut pairs = BTreeMap::new();
    for (page, text) in PAGES {
        let blocks = blocks_of(text);
        let mut jobs = String::new();
        for (index, write) in blocks.iter().enumerate() {
            // The jobs that a page has shown so far are in the cluster of its examples.
            if write.text.contains("\nkind: StreamsJob\n") {
                let job = folder.path().join(format!("job-{index}.yaml"));
                std::fs::write(&job, &write.text).unwrap();
                jobs = format!("{jobs} {}", job.to_str().unwrap());
            }
            if !write.is_written() {
                continue;
            }
            let written = object(&write.text);
            let cluster = write.cluster.as_deref().unwrap_or(CLUSTER);
            let got = planned(&written, &format!("{cluster}{jobs}"), folder.path());
            let shown = blocks.get(index + 1).filter(|next| next.lead.ends_with(" gets:"));
            if let Some(shown) = shown {
                let kind = match written["kind"].as_str() {
                    Some("PersistentVolumeClaim") => "claim",
                    _ => "pod",
                };
                assert_eq!(shown.lead, format!("The {kind} gets:"), "after {}", write.text);
                let mut wanted = written;
                merge(&mut wanted, yaml(&shown.text));
                assert_eq!(got, wanted, "{page}: {}", write.text);
                *pairs.entry(page).or_insert(0) += 1;
            } else {
                assert_ne!(got, written, "{page}: nothing is added to {}", write.text);
            }
        }
    }
    let wanted =
        [("README.md", 1), ("docs/groups.md", 2), ("docs/katalyst.md", 2), ("docs/streams.md", 10)];
    assert_eq!(pairs, BTreeMap::from(wanted), "pairs of each document");
}

/// Maps are joined, everything else is replaced.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

#[test]
fn the_pools_shown_are_those_of_the_examples() {
    let mut blocks = blocks_of(STREAMS).into_iter();
    let shown = blocks.find(|block| block.text.contains("kind: HostPool")).unwrap();
    let documents = |text: &str| -> Vec<Value> { text.split("---\n").map(yaml).collect() };
    let mut shown = documents(&shown.text);
    let file = std::fs::read_to_string(Path::new(ROOT).join("examples/host-pools.yaml")).unwrap();
    let mut examples = documents(&file);
    let name = |pool: &Value| pool["metadata"]["name"].to_string();
    shown.sort_by_key(name);
    examples.sort_by_key(name);
    assert_eq!(shown, examples);
}

#[test]
fn the_jobs_shown_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let mut jobs = 0;
    for block in blocks_of(STREAMS).iter().filter(|b| b.text.contains("\nkind: StreamsJob\n")) {
        let file = folder.path().join("job.yaml");
        std::fs::write(&file, &block.text).unwrap();
        let cluster = ["examples/nodes.yaml", "examples/pool-nodes.yaml"];
        let mut arguments = vec!["plan", "-f", file.to_str().unwrap(), "--cluster"];
        arguments.extend(cluster);
        let output = stowplan(&arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        jobs += 1;
    }
    assert_eq!(jobs, 3);
}

/// The YAML keys of a document with their values in JSON, nested ones joined by dots. Maps whose keys
/// the user chooses are empty by default, and so they are values.
fn leaves(prefix: &str, value: &Value, found: &mut BTreeMap<String, String>) {
    match value.as_object() {
        Some(map) if !map.is_empty() => {
            for (key, value) in map {
                let dot = if prefix.is_empty() { "" } else { "." };
                leaves(&format!("{prefix}{dot}{key}"), value, found);
            }
        }
        _ => _ = found.insert(prefix.to_owned(), value.to_string()),
    }
}

#[test]
fn the_policy_shown_is_the_default_and_complete() {
    use stowplan::testing::systems::policy::Policy;
    let shown =
        blocks_of(POLICY).into_iter().find(|block| block.text.starts_with("onInvalid:")).unwrap();
    assert_eq!(Policy::from_yaml(&shown.text).unwrap(), Policy::default());
    let (mut listed, mut all) = (BTreeMap::new(), BTreeMap::new());
    leaves("", &yaml(&shown.text), &mut listed);
    leaves("", &serde_json::to_value(Policy::default()).unwrap(), &mut all);
    assert!(listed.keys().eq(all.keys()), "{listed:?} is not {all:?}");
}

#[test]
fn every_field_of_the_policy_has_its_row_and_a_valid_example() {
    use stowplan::testing::systems::policy::Policy;
    let mut all = BTreeMap::new();
    leaves("", &serde_json::to_value(Policy::default()).unwrap(), &mut all);
    let mut section = "";
    let mut rows = Vec::new();
    for line in POLICY.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            section = title;
        }
        let Some(row) = line.strip_prefix("| `") else { continue };
        let field = row.split('`').next().unwrap();
        let example = row.rsplit(" | ").next().unwrap().split('`').nth(1).unwrap();
        Policy::from_yaml(example).unwrap_or_else(|error| panic!("{field}: {example}: {error}"));
        let key = match section {
            "hostPools" | "streams" | "coschedule" | "mpi" | "katalyst" => {
                format!("{section}.{field}")
            }
            _ => field.to_owned(),
        };
        rows.push(key);
    }
    for key in all.keys() {
        // `requests` is one row.
        let key = key.strip_suffix(".cpu").or_else(|| key.strip_suffix(".memory")).unwrap_or(key);
        assert_eq!(rows.iter().filter(|row| *row == key).count(), 1, "{key}: {rows:?}");
    }
}

#[test]
fn every_reason_has_its_row_and_its_code() {
    let rows: Vec<(&str, &str)> = OPERATIONS
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| `")?.split(" | ");
            Some((cells.next()?.strip_suffix('`')?, cells.next()?))
        })
        .collect();
    for reason in Reason::ALL {
        let code = reason.stage().code().to_string();
        let of_reason = rows.iter().filter(|(word, _)| *word == reason.as_str());
        let codes: Vec<&str> = of_reason.map(|(_, code)| *code).collect();
        assert_eq!(codes, [code.as_str()], "{reason}");
    }
}

#[test]
fn the_metrics_listed_are_those_that_are_served() {
    let text = crate::metrics::to_text();
    let listed: Vec<&str> = OPERATIONS
        .lines()
        .filter(|line| line.starts_with("| `"))
        .flat_map(|line| line.split('`'))
        .filter(|word| word.starts_with("stowplan_") || word.starts_with("process_"))
        .filter(|word| !word.contains(' '))
        .collect();
    for page in [README, OPERATIONS] {
        let words = page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in words.filter(|word| word.starts_with("stowplan_")) {
            let family = name.strip_suffix("_total").unwrap_or(name);
            let is_served = [family, family.strip_suffix("_info").unwrap_or(family)]
                .iter()
                .any(|family| text.contains(&format!("# TYPE {family} ")));
            assert!(is_served, "{name} is not among\n{text}");
        }
    }
    for line in text.lines() {
        let Some(family) = line.strip_prefix("# TYPE ") else { continue };
        let (family, kind) = family.split_once(' ').unwrap();
        let name = match kind {
            "counter" => format!("{family}_total"),
            "info" => format!("{family}_info"),
            _ => family.to_owned(),
        };
        assert!(listed.contains(&name.as_str()), "{name} has no row: {listed:?}");
    }
}

#[test]
fn console_sessions_are_as_shown() {
    let mut seen = BTreeMap::new();
    for (page, text) in PAGES {
        for block in blocks_of(text).iter().filter(|block| block.language == "console") {
            let (command, shown) = block.text.split_once('\n').unwrap();
            let arguments = command.strip_prefix("$ cargo run -q -- ").expect(command);
            let output = stowplan(&arguments.split_whitespace().collect::<Vec<_>>());
            let printed = String::from_utf8(output.stdout).unwrap()
                + &String::from_utf8(output.stderr).unwrap();
            assert_eq!(printed, shown, "{page}");
            *seen.entry(page).or_insert(0) += 1;
        }
    }
    let wanted = [
        ("README.md", 1),
        ("docs/groups.md", 1),
        ("docs/katalyst.md", 3),
        ("docs/map.md", 1),
        ("docs/operations.md", 3),
        ("docs/start.md", 1),
        ("docs/tekton.md", 2),
    ];
    assert_eq!(seen, BTreeMap::from(wanted), "sessions of each document");
}

/// What runs a command of the documents.
enum Run {
    /// `.ci/run`.
    Ci,
    /// `install_and_uninstall_as_shown`, below.
    Install,
    /// The testbed's own tests, in other words.
    Testbed,
    /// `every_command_is_run`, below.
    Here,
}

fn runner(command: &str) -> Run {
    match command.split('#').next().unwrap_or_default().trim() {
        "cargo demo" | "cargo test" => Run::Ci,
        c if c.starts_with("cargo testbed ") || c.starts_with("target/testbed/mine/") => {
            Run::Testbed
        }
        c if c.starts_with("cargo run -q -- ") => Run::Here,
        c if [
            "certs/make.sh",
            "kubectl ",
            "helm install ",
            "helm upgrade ",
            "helm rollback ",
            "jq ",
        ]
        .iter()
        .any(|start| c.starts_with(start)) =>
        {
            Run::Install
        }
        c => panic!("nothing runs `{c}`"),
    }
}

/// The commands of a page's `sh` blocks, continued lines joined.
fn commands(page: &str) -> Vec<String> {
    blocks_of(page)
        .iter()
        .filter(|block| block.language == "sh")
        .flat_map(|block| {
            block
                .text
                .replace("\\\n", " ")
                .replace("|\n", "|")
                .lines()
                .filter(|line| !line.is_empty())
                .map(|line| line.trim().to_owned())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// The commands of a page that `install_and_uninstall_as_shown` runs.
fn install_commands(page: &str) -> Vec<String> {
    let mut commands = commands(page);
    commands.retain(|command| matches!(runner(command), Run::Install));
    commands
}

#[test]
fn every_command_is_run() {
    let mut here = 0;
    for command in PAGES.iter().flat_map(|(_, text)| commands(text)) {
        if let Run::Here = runner(&command) {
            let arguments: Vec<_> = command.split_whitespace().skip(4).collect();
            let output = stowplan(&arguments);
            assert!(
                output.status.success(),
                "{command}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            here += 1;
        }
    }
    assert!(here >= 2);
    let ci = std::fs::read_to_string(Path::new(ROOT).join(".ci/run")).unwrap();
    assert!(
        ci.contains("cargo demo") && ci.contains("cargo test"),
        ".ci/run has lost the README's commands"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn install_and_uninstall_as_shown() {
    let plane = ControlPlane::start(Options { nodes: NodeSpec::numbered(1), ..Options::default() })
        .await
        .unwrap();
    // The control plane's kubectl and helm first: they use its kubeconfig.
    let path = format!("{}:{}", plane.dir().display(), std::env::var("PATH").unwrap());
    let done = |script: &str| {
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", script])
            .current_dir(ROOT)
            .env("PATH", &path)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}:\n{text}");
        text
    };
    let steps = install_commands(README);
    // One command, without a certificate.
    assert_eq!(steps.len(), 1, "the README's installation: {steps:?}");
    for step in &steps {
        done(step);
    }
    done(
        "kubectl get mutatingwebhookconfiguration stowplan-webhook || kubectl get mutatingwebhookconfiguration stowplan",
    );
    // A change of the policy, and Tekton's own assistant switched off.
    let [upgrade] = &install_commands(POLICY)[..] else { panic!("docs/policy.md") };
    done(upgrade);
    assert!(done("kubectl -n stowplan-system get configmaps -o yaml").contains("onInvalid: warn"));
    done("kubectl create namespace tekton-pipelines");
    done("kubectl -n tekton-pipelines create configmap feature-flags --from-literal=coschedule=x");
    let [switch] = &install_commands(TEKTON)[..] else { panic!("docs/tekton.md") };
    done(switch);

    done("kubectl apply -f examples/host-pools.yaml");
    // What the backup has is restored in the other tests (tests/controller/restore.rs).
    let folder = tempfile::tempdir().unwrap();
    let [upgrade, rollback, backup, restore] = &install_commands(UPGRADES)[..] else {
        panic!("docs/upgrades.md")
    };
    done(upgrade);
    done(rollback);
    let folder = folder.path().display();
    assert!(done(&format!("cd {folder}; {backup}; {restore}")).contains("hostpool.stowplan.dev/"));
    // Pods do not run here, so the webhook is unavailable: pods are created all the same.
    done("kubectl apply -f examples/refused.yaml");

    assert!(README.contains("`helm uninstall stowplan -n stowplan-system` removes stowplan"));
    done("helm uninstall stowplan -n stowplan-system --wait=false");
    let left =
        done("kubectl get mutatingwebhookconfigurations,clusterroles,clusterrolebindings -o name");
    assert!(!left.contains("stowplan"), "{left}");
    let kept = done("kubectl get hostpools -o name");
    assert!(kept.contains("archive") && kept.contains("ingest"), "{kept}");
    let [clean] = &install_commands(OPERATIONS)[..] else { panic!("docs/operations.md") };
    done(clean);
    assert!(!done("kubectl get hostpools -A -o name").contains("archive"));
    plane.stop().await;
}
