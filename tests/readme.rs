//! The README and the page for Tekton users are true: its examples are decided, its commands are run, its words are all there.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use stowplan::placement::reason::Reason;
use stowplan::telemetry::{KindLabels, Metrics};
use testbed::control_plane::{ControlPlane, NodeSpec, Options};

const README: &str = include_str!("../README.md");
const TEKTON: &str = include_str!("../docs/tekton.md");
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A fenced block: its language and its text.
struct Block {
    language: String,
    text: String,
    /// The last line of prose before it.
    lead: String,
}

fn blocks() -> Vec<Block> {
    let blocks = blocks_of(README);
    assert!(blocks.len() > 10, "the README has lost its blocks");
    blocks
}

fn blocks_of(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut open, mut lead) = (false, String::new());
    for line in page.lines() {
        match line.strip_prefix("```") {
            Some(language) if !open => {
                let language = language.to_owned();
                blocks.push(Block { language, text: String::new(), lead: lead.clone() });
                open = true;
            }
            Some(_) => open = false,
            None if open => {
                let block = blocks.last_mut().unwrap();
                block.text.push_str(line);
                block.text.push('\n');
            }
            None if !line.trim().is_empty() => line.clone_into(&mut lead),
            None => {}
        }
    }
    assert!(!open, "a fence is not closed");
    blocks
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn stowplan(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stowplan")).args(arguments).current_dir(ROOT).output().unwrap()
}

#[test]
fn what_you_write_becomes_what_the_pod_gets() {
    let blocks = blocks();
    let folder = tempfile::tempdir().unwrap();
    let mut seen = 0;
    for pair in blocks.windows(2) {
        let [write, get] = pair else { continue };
        if write.lead != "You write:" {
            continue;
        }
        assert_eq!(get.lead, "The pod gets:", "after {}", write.text);
        let mut pod = yaml(&write.text);
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"]["name"] = json!("pe");
        pod["spec"] = json!({"containers": [{"name": "pe", "image": "i"}]});
        let file = folder.path().join(format!("{seen}.json"));
        std::fs::write(&file, pod.to_string()).unwrap();
        let output = stowplan(&[
            "plan",
            "-f",
            file.to_str().unwrap(),
            "--cluster",
            "examples/nodes.yaml",
            "examples/host-pools.yaml",
            "-o",
            "yaml",
        ]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut wanted = pod;
        merge(&mut wanted, yaml(&get.text));
        assert_eq!(yaml(&String::from_utf8(output.stdout).unwrap()), wanted, "{}", write.text);
        seen += 1;
    }
    assert_eq!(seen, 7, "one pair for each constraint, two for pools, one for groups");
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
    let shown = blocks().into_iter().find(|block| block.text.contains("kind: HostPool")).unwrap();
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
fn the_policy_shown_is_the_default() {
    let shown = blocks().into_iter().find(|block| block.text.starts_with("onInvalid:")).unwrap();
    assert_eq!(
        stowplan::policy::Policy::from_yaml(&shown.text).unwrap(),
        stowplan::policy::Policy::default()
    );
}

#[test]
fn every_reason_has_its_row_and_its_code() {
    let rows: Vec<(&str, &str)> = README
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
fn every_metric_that_is_named_is_there() {
    let metrics = Metrics::new();
    // A family without a sample is not printed.
    metrics.decided("CREATE", "placed", "Placed", Duration::ZERO, SystemTime::UNIX_EPOCH);
    metrics.failed("Overloaded");
    metrics.serving_certificate_expires(SystemTime::UNIX_EPOCH);
    metrics.store_synced.get_or_create(&KindLabels { kind: "nodes" }).set(1);
    metrics.watch_errors.get_or_create(&KindLabels { kind: "nodes" }).inc();
    metrics.wrote("nodes", "patch", "done");
    metrics.told("NotPlaced");
    let text = metrics.to_text();
    let names: Vec<&str> = README.split('`').filter(|word| word.starts_with("stowplan_")).collect();
    assert!(names.len() >= 6, "{names:?}");
    for name in names {
        let family = name.strip_suffix("_total").unwrap_or(name);
        assert!(text.contains(&format!("# TYPE {family} ")), "{name} is not among\n{text}");
    }
}

#[test]
fn console_sessions_are_as_shown() {
    let mut seen = BTreeMap::new();
    let pages = [("README", README), ("docs/tekton.md", TEKTON)];
    let blocks = pages
        .iter()
        .flat_map(|(page, text)| blocks_of(text).into_iter().map(move |block| (*page, block)));
    for (page, block) in blocks.filter(|(_, block)| block.language == "console") {
        let (command, shown) = block.text.split_once('\n').unwrap();
        let arguments = command.strip_prefix("$ cargo run -q -- ").expect(command);
        let output = stowplan(&arguments.split_whitespace().collect::<Vec<_>>());
        let printed =
            String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        assert_eq!(printed, shown);
        *seen.entry(page).or_insert(0) += 1;
    }
    assert_eq!(seen.len(), pages.len(), "a page has lost its sessions: {seen:?}");
}

/// Who runs each command of the README.
enum Run {
    /// `.ci/run`.
    Ci,
    /// `install_and_uninstall_as_shown`, below.
    Install,
    /// The testbed's own tests, by other words.
    Testbed,
    /// Here and now.
    Here,
}

fn runner(command: &str) -> Run {
    match command.split('#').next().unwrap_or_default().trim() {
        "cargo demo" | "cargo test" => Run::Ci,
        c if c.starts_with("cargo run -p testbed -- ") || c.starts_with("target/testbed/mine/") => {
            Run::Testbed
        }
        c if c.starts_with("cargo run -q -- ") => Run::Here,
        c if ["certs/make.sh", "kubectl ", "helm install "]
            .iter()
            .any(|start| c.starts_with(start)) =>
        {
            Run::Install
        }
        c => panic!("nobody runs `{c}`"),
    }
}

/// The commands of the `sh` blocks, a continued line joined.
fn commands() -> Vec<String> {
    blocks()
        .iter()
        .filter(|block| block.language == "sh")
        .flat_map(|block| {
            block
                .text
                .replace("\\\n", " ")
                .lines()
                .filter(|line| !line.is_empty())
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn every_command_is_run_by_somebody() {
    let mut here = 0;
    for command in commands() {
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
    // The control plane's kubectl and helm in front: they know its kubeconfig.
    let path = format!("{}:{}", plane.dir().display(), std::env::var("PATH").unwrap());
    let shell = |script: &str| {
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", script])
            .current_dir(ROOT)
            .env("PATH", &path)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text)
    };
    let done = |script: &str| {
        let (success, text) = shell(script);
        assert!(success, "{script}:\n{text}");
        text
    };
    let mut steps = 0;
    for command in commands().iter().filter(|command| matches!(runner(command), Run::Install)) {
        done(command);
        steps += 1;
    }
    assert!(steps >= 4, "the README has lost its installation");
    done(
        "kubectl get mutatingwebhookconfiguration stowplan-webhook || kubectl get mutatingwebhookconfiguration stowplan",
    );
    done("kubectl apply -f examples/host-pools.yaml");
    // Nobody runs the pods here, so the webhook is away: nobody is stopped.
    done("kubectl apply -f examples/refused.yaml");

    assert!(README.contains("`helm uninstall stowplan -n stowplan-system` removes it"));
    done("helm uninstall stowplan -n stowplan-system --wait=false");
    let left =
        done("kubectl get mutatingwebhookconfigurations,clusterroles,clusterrolebindings -o name");
    assert!(!left.contains("stowplan"), "{left}");
    let kept = done("kubectl get hostpools -o name");
    assert!(kept.contains("archive") && kept.contains("ingest"), "{kept}");
    plane.stop().await;
}
