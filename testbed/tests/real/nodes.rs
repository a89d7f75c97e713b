//! Real nodes: pods that run, names that resolve, a node that loses its power, and the end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{LogParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use testbed::control_plane::{ControlPlane, Options};
use testbed::image::{Content, Entry, Image, Layer};
use testbed::real::RealNodes;
use testbed::wait::{Seen, until};

use crate::suite::{self, Case};

const LIMIT: Duration = Duration::from_secs(180);

pub(crate) fn run() -> ExitCode {
    let cases = vec![
        Case::new("nodes::three_nodes_run_pods_and_leave_nothing", |_| Box::pin(three_nodes())),
        Case::new("nodes::the_next_cluster_removes_what_a_killed_one_left", |_| {
            Box::pin(a_killed_owner())
        }),
    ];
    // Each starts its own.
    suite::run(cases, async || Ok(()), async |(), _| ())
}

async fn three_nodes() -> Result<()> {
    let before = Traces::find()?;
    let folder = tempfile::tempdir()?;
    let image = shell_image(folder.path())?;
    let real = RealNodes { count: 3, images: vec![image] };
    let dir = on_nodes(real, async |plane| steps(plane).await).await?;
    ensure!(!dir.exists(), "{} is left", dir.display());
    let after = Traces::find()?;
    ensure!(after == before, "before: {before:?}\nafter: {after:?}");
    Ok(())
}

/// Starts a control plane with real nodes, runs `steps`, and ends it. Returns its run directory.
async fn on_nodes(
    real: RealNodes,
    steps: impl AsyncFnOnce(&ControlPlane) -> Result<()>,
) -> Result<PathBuf> {
    let plane = ControlPlane::start(Options { real: Some(real), ..Options::default() }).await?;
    let dir = plane.dir().to_owned();
    let outcome = steps(&plane).await;
    if outcome.is_err() && plane.keep_dir() {
        eprintln!("the logs are kept in {}", dir.join("logs").display());
    }
    plane.stop().await;
    outcome.map(|()| dir)
}

async fn a_killed_owner() -> Result<()> {
    let before = Traces::find()?;
    let dir = tempfile::tempdir()?;
    let mut owner = Command::new(env!("CARGO_BIN_EXE_testbed"))
        .args(["up", "--real=1", "--dir"])
        .arg(dir.path())
        .stdout(Stdio::piped())
        .spawn()?;
    let lines = BufReader::new(owner.stdout.take().context("no output")?).lines();
    ensure!(lines.map_while(Result::ok).any(|line| line.starts_with("Ctrl-C")), "it ended");
    // None of its code runs after this.
    owner.kill()?;
    owner.wait()?;
    until("the processes to end", LIMIT, async || {
        let namespaces = Traces::find()?.namespaces;
        Ok(match namespaces == before.namespaces {
            true => Seen::Done(()),
            false => Seen::NotYet(format!("{namespaces:?}")),
        })
    })
    .await?;
    ensure!(Traces::find()?.groups != before.groups, "control groups end by themselves");
    // The last process of the killed one ends at some time after its namespaces.
    until("the next cluster to start", LIMIT, async || {
        match on_nodes(RealNodes::new(1), async |_| Ok(())).await {
            Err(error) if error.to_string().starts_with("another cluster with real nodes") => {
                Ok(Seen::NotYet(error.to_string()))
            }
            other => other.map(Seen::Done),
        }
    })
    .await?;
    let after = Traces::find()?;
    ensure!(after == before, "before: {before:?}\nafter: {after:?}");
    Ok(())
}

async fn steps(plane: &ControlPlane) -> Result<()> {
    let client = plane.client().await?;
    second_clusters_are_refused().await?;
    pods_find_each_other_by_name(&client).await?;
    a_service_has_one_address_for_its_pods(&client).await?;
    commands_run_in_pods(plane)?;
    a_node_loses_its_power_and_comes_back(plane, &client).await
}

async fn second_clusters_are_refused() -> Result<()> {
    let options = Options { real: Some(RealNodes::new(1)), ..Options::default() };
    let refused = ControlPlane::start(options).await.err().context("a second cluster started")?;
    ensure!(format!("{refused:#}").contains("a machine has one at a time"), "{refused:#}");
    Ok(())
}

/// Each pod serves its name and node, and fetches those of the others by the headless Service.
async fn pods_find_each_other_by_name(client: &Client) -> Result<()> {
    apply(
        client,
        "services",
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "peers"},
            "spec": {"clusterIP": "None", "selector": {"app": "peer"}, "publishNotReadyAddresses": true},
        }),
    )
    .await?;
    for number in 1..=3 {
        let name = format!("peer-{number}");
        let mut pod = shell_pod(
            &name,
            &format!("node-{number}"),
            "mkdir -p /tmp/www; echo \"$(hostname) on $NODE\" >/tmp/www/index.html
             exec httpd -f -p 8080 -h /tmp/www",
        );
        pod["metadata"]["labels"] = json!({"app": "peer"});
        pod["spec"]["hostname"] = json!(name);
        pod["spec"]["subdomain"] = json!("peers");
        create(client, pod).await?;
    }
    let asking = shell_pod(
        "asks",
        "node-1",
        "for peer in 1 2 3; do
             until wget -q -O - http://peer-$peer.peers:8080/ 2>/dev/null; do sleep 0.2; done
         done",
    );
    create(client, asking).await?;
    let said = output(client, "asks").await?;
    ensure!(said == "peer-1 on node-1\npeer-2 on node-2\npeer-3 on node-3\n", "{said}");
    Ok(())
}

async fn a_service_has_one_address_for_its_pods(client: &Client) -> Result<()> {
    apply(
        client,
        "services",
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "any-peer"},
            "spec": {"selector": {"app": "peer"}, "ports": [{"port": 80, "targetPort": 8080}]},
        }),
    )
    .await?;
    let asking = shell_pod(
        "asks-any",
        "node-2",
        "until wget -q -O /tmp/answer http://any-peer/ 2>/dev/null; do sleep 0.2; done
         grep -o peer- /tmp/answer",
    );
    create(client, asking).await?;
    let said = output(client, "asks-any").await?;
    ensure!(said == "peer-\n", "{said}");
    Ok(())
}

fn commands_run_in_pods(plane: &ControlPlane) -> Result<()> {
    let said = output_of(plane.kubectl().args(["exec", "peer-2", "--", "hostname"]))?;
    ensure!(said == "peer-2\n", "{said}");
    let said = output_of(plane.real_node("node-3")?.command("ctr")?.args([
        "--namespace=k8s.io",
        "images",
        "list",
        "--quiet",
    ]))?;
    ensure!(said.lines().any(|line| line == "stow.test/shell:1"), "{said}");
    // The kubelet is started again when it ends, as by an init system.
    let find = "for process in /proc/[0-9]*; do
            [ \"$(cat $process/comm)\" = kubelet ] && echo ${process#/proc/} && break
        done";
    let shell = |script: &str| -> Result<String> {
        output_of(plane.real_node("node-1")?.command("timeout")?.args(["60", "sh", "-c", script]))
    };
    let first = shell(find)?;
    let first = first.trim();
    ensure!(!first.is_empty(), "no kubelet");
    shell(&format!(
        "kill -9 {first}
         until found=$({find}) && [ -n \"$found\" ] && [ \"$found\" != {first} ]; do sleep 0.1; done"
    ))?;
    // This machine reaches pods, and pods have no route to its network.
    let said = output_of(plane.within_network("ip")?.args(["route", "list", "default"]))?;
    ensure!(said.is_empty(), "{said}");
    Ok(())
}

async fn a_node_loses_its_power_and_comes_back(
    plane: &ControlPlane,
    client: &Client,
) -> Result<()> {
    let node = plane.real_node("node-3")?;
    node.kill().await?;
    ensure!(node.command("true").is_err(), "a node without power runs a command");
    node.not_ready().await?;
    // The others run on.
    let asking = shell_pod("asks-2", "node-1", "wget -q -O - http://peer-2.peers:8080/");
    create(client, asking).await?;
    let said = output(client, "asks-2").await?;
    ensure!(said == "peer-2 on node-2\n", "{said}");

    node.start().await?;
    node.ready().await?;
    let again = node.start().await.err().context("a node that runs was started")?;
    ensure!(again.to_string() == "node-3 runs", "{again:#}");
    // With the disk that it had: the image, and the pod's own name.
    let asking = shell_pod(
        "asks-3",
        "node-2",
        "until wget -q -O - http://peer-3.peers:8080/ 2>/dev/null; do sleep 0.2; done",
    );
    create(client, asking).await?;
    let said = output(client, "asks-3").await?;
    ensure!(said == "peer-3 on node-3\n", "{said}");
    Ok(())
}

/// What a cluster could leave on this machine.
#[derive(Debug, PartialEq, Eq)]
struct Traces {
    devices: BTreeSet<String>,
    mounts: BTreeSet<String>,
    routes: BTreeSet<String>,
    groups: BTreeSet<String>,
    namespaces: BTreeSet<String>,
}

impl Traces {
    fn find() -> Result<Self> {
        let mut namespaces = BTreeSet::new();
        for process in fs::read_dir("/proc")?.flatten() {
            for kind in ["net", "pid", "mnt"] {
                if let Ok(namespace) = fs::read_link(process.path().join("ns").join(kind)) {
                    // Only those in which programs of nodes run: other tests may run beside this.
                    let program = fs::read_link(process.path().join("exe")).unwrap_or_default();
                    if program.starts_with(real_cache()) {
                        namespaces.insert(namespace.display().to_string());
                    }
                }
            }
        }
        let names = |folder: &str| -> Result<BTreeSet<String>> {
            let entries = fs::read_dir(folder)?.flatten();
            Ok(entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
        };
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
        // Other programs of this machine may come and go.
        let only = |all: BTreeSet<String>, mark: &str| -> BTreeSet<String> {
            all.into_iter().filter(|line| line.contains(mark)).collect()
        };
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let mut groups = BTreeSet::new();
        for line in own.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next().unwrap(), fields.next().unwrap());
            let root = format!("/sys/fs/cgroup/{}{path}", controllers.trim_start_matches("name="));
            let found = names(&root).unwrap_or_default();
            groups.extend(only(found, "stowplan"));
        }
        Ok(Self {
            devices: only(names("/sys/class/net")?, "stowplan"),
            mounts: only(lines(&fs::read_to_string("/proc/mounts")?), "stowplan"),
            routes: only(lines(&output_of(Command::new("ip").arg("route"))?), "198.1"),
            groups,
            namespaces,
        })
    }
}

/// Where the nodes' programs are, if they were built.
fn real_cache() -> &'static Path {
    static DIR: LazyLock<PathBuf> = LazyLock::new(|| {
        testbed::tools::NodeTools::ensure(&testbed::tools::to_stderr).unwrap().dir().to_owned()
    });
    &DIR
}

/// An image with a shell and small programs, from the machine's static busybox.
fn shell_image(folder: &Path) -> Result<PathBuf> {
    let busybox = Path::new("/bin/busybox");
    ensure!(
        busybox.is_file(),
        "no {}: install the Debian package busybox-static",
        busybox.display()
    );
    let list = output_of(Command::new(busybox).arg("--list"))?;
    let mut entries: BTreeMap<_, _> = list
        .lines()
        .map(|name| {
            let content = Content::Link("busybox".to_owned());
            (format!("bin/{name}"), Entry { mode: 0o777, owner: (0, 0), content })
        })
        .collect();
    entries.insert("bin/busybox".to_owned(), Entry::program(busybox));
    let mut shared = Entry::directory();
    shared.mode = 0o1777;
    entries.insert("tmp".to_owned(), shared);
    entries.insert("etc".to_owned(), Entry::directory());
    let archive = folder.join("shell.tar");
    Image {
        name: "stow.test/shell".to_owned(),
        tag: "1".to_owned(),
        layers: vec![Layer::Entries(entries)],
        cmd: vec!["/bin/sh".to_owned()],
        user: "65532:65532".to_owned(),
        env: [("PATH".to_owned(), "/bin".to_owned())].into(),
        ..Image::default()
    }
    .write(&archive)?;
    Ok(archive)
}

/// A pod that runs a script on a node.
fn shell_pod(name: &str, node: &str, script: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "OnFailure",
            "terminationGracePeriodSeconds": 1,
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [{
                "name": "main",
                "image": "stow.test/shell:1",
                "command": ["sh", "-c", script],
                "env": [{"name": "NODE", "value": node}],
                "resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "64Mi"}},
            }],
        },
    })
}

async fn create(client: &Client, pod: Value) -> Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    Ok(())
}

async fn apply(client: &Client, resource: &str, object: Value) -> Result<()> {
    let request = http::Request::post(format!("/api/v1/namespaces/default/{resource}"))
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes())?;
    client.request_text(request).await?;
    Ok(())
}

/// Waits until a pod has succeeded. Returns what it printed.
async fn output(client: &Client, name: &str) -> Result<String> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    until(&format!("pod {name} to succeed"), LIMIT, async || {
        let status = pods.get(name).await?.status.unwrap_or_default();
        Ok(match status.phase.as_deref() {
            Some("Succeeded") => Seen::Done(()),
            _ => Seen::NotYet(serde_json::to_string(&status)?),
        })
    })
    .await?;
    Ok(pods.logs(name, &LogParams::default()).await?)
}

fn output_of(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr).trim(),
    );
    Ok(String::from_utf8(output.stdout)?)
}
