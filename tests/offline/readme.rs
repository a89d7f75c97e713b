//! Runs what the README and the documents show: examples are decided, sessions are repeated,
//! commands are run, and every word and number in their tables exists.

use std::process::Command;

use serde_json::{Value, json};
use stowplan_core::placement::reason::Reason;
use stowplan_core::systems::policy::Policy;
use testbed::control_plane::{ControlPlane, NodeSpec, Options};

use crate::chart::helm::Objects;
use crate::chart::values::leaves;
use crate::cli::command::run;
use crate::documents::{ROOT, read};

/// The documents whose examples, sessions and commands are run.
const PAGES: [&str; 25] = [
    "README.md",
    "docs/start.md",
    "docs/versions.md",
    "docs/install.md",
    "docs/faq.md",
    "docs/uninstall.md",
    "docs/certificates.md",
    "docs/mutual-tls.md",
    "docs/autoscalers.md",
    "docs/kueue.md",
    "docs/performance.md",
    "docs/releases.md",
    "docs/streams.md",
    "docs/spl.md",
    "docs/tekton.md",
    "docs/groups.md",
    "docs/claims.md",
    "docs/mpi.md",
    "docs/katalyst.md",
    "docs/map.md",
    "docs/policy.md",
    "docs/operations.md",
    "docs/commands.md",
    "docs/upgrades.md",
    "testbed/README.md",
];

/// The cluster of an example that names no other one by `<!-- cluster: FILE FILE -->`.
const CLUSTER: &str = "examples/nodes.yaml examples/host-pools.yaml";

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
    for line in read(page).lines() {
        // A block of a list item is indented.
        match line.trim_start().strip_prefix("```") {
            Some(language) if !open => {
                let (language, lead) = (language.to_owned(), lead.clone());
                let cluster = cluster.take();
                blocks.push(Block { language, text: String::new(), lead, cluster });
                open = true;
            }
            Some(_) => open = false,
            None if open => blocks.last_mut().unwrap().text += &format!("{line}\n"),
            None => match line.strip_prefix("<!-- cluster: ") {
                Some(files) => cluster = Some(files.trim_end_matches(" -->").to_owned()),
                None if !line.trim().is_empty() => line.clone_into(&mut lead),
                None => {}
            },
        }
    }
    assert!(!open, "{page}: a fence is not closed");
    assert!(!blocks.is_empty(), "{page} has lost its blocks");
    blocks
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
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
fn planned(object: &str, cluster: &str) -> Value {
    let output = run(&format!("plan -f - -o yaml --cluster {cluster}"), object);
    assert_eq!(output.code, 0, "{object}\n{}", output.stderr);
    yaml(&output.stdout)
}

#[test]
fn what_you_write_becomes_what_the_object_gets() {
    let folder = tempfile::tempdir().unwrap();
    let mut shown = 0;
    for page in PAGES {
        let blocks = blocks_of(page);
        let mut jobs = String::new();
        for (index, block) in blocks.iter().enumerate() {
            // A job is accepted, and is in the cluster of the examples that follow on its page.
            if block.text.contains("\nkind: StreamsJob\n") {
                planned(&block.text, "examples/nodes.yaml examples/pool-nodes.yaml");
                let job = folder.path().join(format!("job-{index}.yaml"));
                std::fs::write(&job, &block.text).unwrap();
                jobs += &format!(" {}", job.display());
            }
            let gets = |next: &&Block| next.lead.ends_with(" gets:");
            // Otherwise an object that is shown is compared with nothing.
            let is_compared = || index > 0 && blocks[index - 1].is_written();
            assert!(
                block.language != "yaml" || !gets(&block) || is_compared(),
                "{page}: before {}",
                block.text
            );
            if !block.is_written() {
                continue;
            }
            let written = object(&block.text);
            let cluster = block.cluster.as_deref().unwrap_or(CLUSTER);
            let got = planned(&written.to_string(), &format!("{cluster}{jobs}"));
            let Some(next) = blocks.get(index + 1).filter(gets) else {
                assert_ne!(got, written, "{page}: nothing is added to {}", block.text);
                continue;
            };
            let is_claim = written["kind"] == "PersistentVolumeClaim";
            let kind = if is_claim { "claim" } else { "pod" };
            assert_eq!(next.lead, format!("The {kind} gets:"), "after {}", block.text);
            let mut wanted = written;
            json_patch::merge(&mut wanted, &yaml(&next.text));
            assert_eq!(got, wanted, "{page}: {}", block.text);
            shown += 1;
        }
    }
    assert!(shown > 0);
}

#[test]
fn every_page_with_blocks_is_among_those_that_are_run() {
    let summary = read("docs/SUMMARY.md");
    let links = summary.split("](").skip(1).filter_map(|link| link.split(')').next());
    let mut pages = 0;
    for page in links.map(|link| format!("docs/{link}")) {
        let text = read(&page);
        let languages = ["sh", "console", "yaml"].map(|language| format!("```{language}\n"));
        let is_run = PAGES.contains(&&*page);
        assert!(is_run || !languages.iter().any(|it| text.contains(it)), "{page}");
        pages += usize::from(is_run);
    }
    assert!(pages > 10);
}

#[test]
fn the_pools_shown_are_those_of_the_examples() {
    let mut blocks = blocks_of("docs/streams.md").into_iter();
    let shown = blocks.find(|block| block.text.contains("kind: HostPool")).unwrap().text;
    assert_eq!(Objects::parse(&shown).0, Objects::parse(&read("examples/host-pools.yaml")).0);
}

#[test]
fn the_policy_shown_is_the_default_and_complete() {
    let blocks = blocks_of("docs/policy.md");
    let shown = blocks.iter().find(|block| block.text.starts_with("onInvalid:")).unwrap();
    assert_eq!(Policy::from_yaml(&shown.text).unwrap(), Policy::default());
    let all = leaves(&json!(Policy::default()));
    assert!(leaves(&yaml(&shown.text)).keys().eq(all.keys()), "{} is not {all:?}", shown.text);
}

#[test]
fn every_field_of_the_policy_has_its_row_and_a_valid_example() {
    let mut section = String::new();
    let mut rows = Vec::new();
    for line in read("docs/policy.md").lines() {
        if let Some(title) = line.strip_prefix("## ") {
            let is_field = json!(Policy::default()).get(title).is_some();
            section = if is_field { format!("{title}.") } else { String::new() };
        }
        let Some(row) = line.strip_prefix("| `") else { continue };
        let field = row.split('`').next().unwrap();
        let example = row.rsplit(" | ").next().unwrap().split('`').nth(1).unwrap();
        Policy::from_yaml(example).unwrap_or_else(|error| panic!("{field}: {example}: {error}"));
        rows.push(format!("{section}{field}"));
    }
    for key in leaves(&json!(Policy::default())).keys() {
        // `requests` is one row.
        let key = key.strip_suffix(".cpu").or_else(|| key.strip_suffix(".memory")).unwrap_or(key);
        assert_eq!(rows.iter().filter(|row| *row == key).count(), 1, "{key}: {rows:?}");
    }
}

#[test]
fn every_reason_has_its_row_and_its_code() {
    let page = read("docs/messages.md");
    for reason in Reason::ALL {
        let start = format!("| `{reason}` | ");
        let rows = page.lines().filter_map(|line| line.strip_prefix(&*start));
        let codes: Vec<_> = rows.map(|row| row.split(" | ").next().unwrap().to_owned()).collect();
        assert_eq!(codes, [reason.stage().code().to_string()], "{reason}");
    }
}

/// The table of metrics is compared with them in `chart/monitoring.rs`.
#[test]
fn the_metrics_named_are_served() {
    let text = crate::metrics::to_text();
    for page in ["README.md", "docs/operations.md"] {
        let page = read(page);
        let words = page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in words.filter(|word| word.starts_with("stowplan_")) {
            let family = name.trim_end_matches("_total").trim_end_matches("_info");
            let is_served = [name, family].iter().any(|it| text.contains(&format!("# TYPE {it} ")));
            assert!(is_served, "{name} is not among\n{text}");
        }
    }
}

#[test]
fn console_sessions_are_as_shown() {
    let mut seen = 0;
    for page in PAGES {
        for block in blocks_of(page).iter().filter(|block| block.language == "console") {
            let (command, shown) = block.text.split_once('\n').unwrap();
            let arguments = command.strip_prefix("$ cargo run -q -- ").expect(command);
            let output = run(arguments, "");
            assert_eq!(output.stdout + &output.stderr, shown, "{page}");
            seen += 1;
        }
    }
    assert!(seen > 0);
}

/// The commands of a page's `sh` blocks, continued lines joined.
fn commands(page: &str) -> Vec<String> {
    let mut blocks = blocks_of(page);
    blocks.retain(|block| block.language == "sh");
    let text: String = blocks.into_iter().map(|block| block.text).collect();
    let text = text.replace("\\\n", " ").replace("|\n", "|");
    text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

/// The commands of a page that [`install_and_uninstall_as_shown`] runs.
fn install_commands(page: &str) -> Vec<String> {
    const STARTS: [&str; 6] =
        ["certs/make.sh", "kubectl ", "helm install ", "helm upgrade ", "helm rollback ", "jq "];
    let mut commands = commands(page);
    commands.retain(|command| STARTS.iter().any(|start| command.starts_with(start)));
    commands
}

#[test]
fn every_command_is_run() {
    let ci = read(".ci/run");
    let mut here = 0;
    for page in PAGES {
        let installs = install_commands(page);
        for command in commands(page) {
            let words = command.split('#').next().unwrap_or_default().trim();
            if let Some(arguments) = words.strip_prefix("cargo run -q -- ") {
                let output = run(arguments, "");
                assert_eq!(output.code, 0, "{command}: {output:?}");
                here += 1;
                continue;
            }
            // In .ci/run, in other words by the testbed's own tests, or by the test below.
            // A bench takes minutes: it exists.
            let bench = words.strip_prefix("cargo bench --bench ");
            let bench = bench.and_then(|rest| rest.split(' ').next());
            let is_bench =
                |name| read("Cargo.toml").contains(&format!("[[bench]]\nname = \"{name}\"\n"));
            let is_run = bench.is_some_and(is_bench)
                || matches!(words, "cargo demo" | "cargo test") && ci.contains(words)
                || words.starts_with("cargo testbed ")
                || words.starts_with("target/testbed/mine/")
                || installs.contains(&command);
            assert!(is_run, "{page}: nothing runs `{command}`");
        }
    }
    assert!(here > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn install_and_uninstall_as_shown() {
    let nodes = NodeSpec::numbered(2);
    let plane = ControlPlane::start(Options { nodes, ..Options::default() }).await.unwrap();
    // The control plane's kubectl and helm first: they use its kubeconfig.
    let path = format!("{}:{}", plane.dir().display(), std::env::var("PATH").unwrap());
    let done = |script: &str| {
        let mut bash = Command::new("bash");
        bash.args(["-euo", "pipefail", "-c", script]).current_dir(ROOT).env("PATH", &path);
        let output = bash.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}:\n{text}");
        text
    };
    // One command, without a certificate.
    let [install] = &install_commands("README.md")[..] else { panic!("README.md") };
    done(install);
    done("kubectl get mutatingwebhookconfiguration stowplan");
    // A change of the policy, and Tekton's own assistant switched off.
    let [upgrade] = &install_commands("docs/policy.md")[..] else { panic!("docs/policy.md") };
    done(upgrade);
    assert!(done("kubectl -n stowplan-system get configmaps -o yaml").contains("onInvalid: warn"));
    done("kubectl create namespace tekton-pipelines");
    done("kubectl -n tekton-pipelines create configmap feature-flags --from-literal=coschedule=x");
    let [switch] = &install_commands("docs/tekton.md")[..] else { panic!("docs/tekton.md") };
    done(switch);

    done("kubectl apply -f examples/host-pools.yaml");
    // What the backup has is restored in the other tests (tests/outcomes/controller/restore.rs).
    let folder = tempfile::tempdir().unwrap();
    let [upgrade, rollback, untaint, unlabel, backup, restore] =
        &install_commands("docs/upgrades.md")[..]
    else {
        panic!("docs/upgrades.md")
    };
    done(upgrade);
    done(rollback);
    let taint = "status-taint.cluster-autoscaler.kubernetes.io/stowplan-exclusive=x:NoSchedule";
    done(&format!("kubectl taint node node-1 {taint}"));
    done(untaint);
    assert!(!done("kubectl get nodes -o yaml").contains("stowplan-exclusive"));
    done("kubectl label namespace default stowplan.dev/one-node-claims=true");
    done(unlabel);
    assert!(!done("kubectl get namespaces -o yaml").contains("one-node-claims"));
    let folder = folder.path().display();
    assert!(done(&format!("cd {folder}; {backup}; {restore}")).contains("hostpool.stowplan.dev/"));
    // Pods do not run here, so the webhook is unavailable: pods are created all the same.
    done("kubectl apply -f examples/refused.yaml");

    let uninstall = "helm uninstall stowplan -n stowplan-system";
    assert!(read("README.md").contains(&format!("`{uninstall}`")));
    done(uninstall);
    let left =
        done("kubectl get mutatingwebhookconfigurations,clusterroles,clusterrolebindings -o name");
    assert!(!left.contains("stowplan"), "{left}");
    let kept = done("kubectl get hostpools -o name");
    assert!(kept.contains("archive") && kept.contains("ingest"), "{kept}");
    let [clean] = &install_commands("docs/operations.md")[..] else { panic!("docs/operations.md") };
    done(clean);
    assert!(!done("kubectl get hostpools -A -o name").contains("archive"));
    plane.stop().await;
}
