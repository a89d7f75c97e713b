//! Many objects and large ones, and processes that have the memory limit of the chart: for the test
//! of memory and for its bench.

#![allow(dead_code, reason = "test and bench use their own parts")]

use std::fs;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use hyper::Request;
use kube::Client;
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/stowplan");

pub(crate) const NAMESPACE: &str = "many";

/// The tasks of a run of one megabyte, and of one of 25 kB.
pub(crate) const LARGE: usize = 3_000;
pub(crate) const SMALL: usize = 75;

/// The requests that are under way at once.
const AT_ONCE: usize = 16;

/// Where the name of an object is put into its text.
const NAME: &str = "NAME";

/// Creates 60 PipelineRuns of one megabyte, 1,000 of 25 kB with a TaskRun each, and 1,000 pods of
/// 18 kB.
pub(crate) async fn create(client: &Client) -> Result<()> {
    create_runs(client, "large", LARGE, 0..60).await?;
    create_runs(client, "run", SMALL, 0..1_000).await?;
    create_task_runs(client, 0..1_000).await?;
    create_pods(client, 0..1_000).await
}

/// Creates the PipelineRuns `<prefix>-<number>` with so many tasks.
pub(crate) async fn create_runs(
    client: &Client,
    prefix: &str,
    tasks: usize,
    numbers: Range<usize>,
) -> Result<()> {
    let names = numbers.map(|number| format!("{prefix}-{number}"));
    create_all(client, &path("pipelineruns"), &run(tasks), names).await
}

/// Creates the TaskRuns `task-<number>`.
pub(crate) async fn create_task_runs(client: &Client, numbers: Range<usize>) -> Result<()> {
    let names = numbers.map(|number| format!("task-{number}"));
    create_all(client, &path("taskruns"), &task_run(), names).await
}

/// Creates the pods `pod-<number>`.
pub(crate) async fn create_pods(client: &Client, numbers: Range<usize>) -> Result<()> {
    let names = numbers.map(|number| format!("pod-{number}"));
    create_all(client, &pods_path(), &pod(), names).await
}

pub(crate) fn pods_path() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods")
}

/// The path of a collection of Tekton's.
pub(crate) fn path(plural: &str) -> String {
    format!("/apis/tekton.dev/v1/namespaces/{NAMESPACE}/{plural}")
}

/// As text: a client that builds each object anew takes minutes.
async fn create_all(
    client: &Client,
    path: &str,
    object: &Value,
    names: impl Iterator<Item = String>,
) -> Result<()> {
    let text = object.to_string();
    let created = stream::iter(names).map(|name| {
        let body = text.replace(NAME, &name).into_bytes();
        async move {
            let request = Request::post(path).header("content-type", "application/json");
            client.request_text(request.body(body)?).await.with_context(|| name)?;
            anyhow::Ok(())
        }
    });
    created.buffer_unordered(AT_ONCE).try_collect().await
}

/// A PipelineRun with so many tasks of about 340 bytes each.
fn run(tasks: usize) -> Value {
    json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "workspaces": [{"name": "source", "persistentVolumeClaim": {"claimName": "source"}}],
            "pipelineSpec": pipeline(tasks),
        },
    })
}

fn pipeline(tasks: usize) -> Value {
    let task = |number: usize| {
        let step = json!({
            "name": "build", "image": "registry.example.com/tools/builder:2026.11",
            "script": "#!/bin/sh\nset -e\nmake -C /workspace/source all test install\n",
            "env": [{"name": "GOFLAGS", "value": "-mod=mod"}, {"name": "HOME", "value": "/tekton/home"}],
        });
        json!({
            "name": format!("task-{number}"),
            "workspaces": [{"name": "source", "workspace": "source"}],
            "taskSpec": {"steps": [step]},
        })
    };
    json!({"tasks": (0..tasks).map(task).collect::<Vec<_>>()})
}

/// A TaskRun of 25 kB.
fn task_run() -> Value {
    json!({
        "apiVersion": "tekton.dev/v1", "kind": "TaskRun",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {"taskSpec": pipeline(SMALL)},
    })
}

/// A pod of 18 kB with a key of stowplan, which no scheduler considers.
fn pod() -> Value {
    let variable =
        |number: usize| json!({"name": format!("VARIABLE_{number}"), "value": "v".repeat(60)});
    let variables: Vec<Value> = (0..180).map(variable).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": NAME, "namespace": NAMESPACE,
            "annotations": {"streams.ibm.com/host": "node-1"},
        },
        "spec": {
            "schedulingGates": [{"name": "example.com/never"}],
            "containers": [{"name": "c", "image": "none", "env": variables}],
        },
    })
}

/// The memory limits of the chart, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) webhook: u64,
    pub(crate) controller: u64,
}

impl Limits {
    pub(crate) fn of_chart() -> Result<Self> {
        let text = fs::read_to_string(Path::new(CHART).join("values.yaml"))?;
        let values: Value = serde_saphyr::from_str(&text)?;
        let limit = |values: &Value| {
            let limit = values["resources"]["limits"]["memory"].as_str();
            let mebibytes = limit.and_then(|limit| limit.strip_suffix("Mi"));
            let mebibytes = mebibytes.context("no memory limit in Mi")?;
            anyhow::Ok(mebibytes.parse::<u64>()? * 1024 * 1024)
        };
        Ok(Self { webhook: limit(&values)?, controller: limit(&values["controller"])? })
    }
}

/// A program whose processes have the memory limits of the chart, each in a cgroup of its own: the
/// kernel ends one that exceeds its limit. Where cgroups cannot be created, they have no limit.
#[derive(Debug)]
pub(crate) struct Confined {
    program: PathBuf,
    /// The groups' folder, and the beginning of their names.
    groups: Option<(PathBuf, String)>,
    _folder: TempDir,
}

impl Confined {
    pub(crate) fn new(program: &str, limits: Limits) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let prefix = format!("stowplan-memory-{}-", std::process::id());
        let Some((parent, file)) = find_parent(&prefix) else {
            return Ok(Self { program: program.into(), groups: None, _folder: folder });
        };
        let Limits { webhook, controller } = limits;
        let group = parent.join(&prefix);
        let group = group.display();
        let script = folder.path().join("stowplan");
        let text = format!(
            "#!/bin/sh\n\
             set -e\n\
             limit={controller}\n\
             if [ \"$1\" = webhook ]; then limit={webhook}; fi\n\
             group='{group}'$$\n\
             mkdir \"$group\"\n\
             echo $limit > \"$group/{file}\"\n\
             echo $$ > \"$group/cgroup.procs\"\n\
             exec '{program}' \"$@\"\n"
        );
        fs::write(&script, text)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        Ok(Self { program: script, groups: Some((parent, prefix)), _folder: folder })
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Returns true if the processes are in cgroups.
    pub(crate) fn has_groups(&self) -> bool {
        self.groups.is_some()
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        let Some((parent, prefix)) = &self.groups else { return };
        for group in fs::read_dir(parent).into_iter().flatten().flatten() {
            if group.file_name().to_string_lossy().starts_with(prefix) {
                // It stays if its process has not ended yet.
                let _ = fs::remove_dir(group.path());
            }
        }
    }
}

/// Finds this process's cgroup, if groups with a memory limit can be created in it, and the file of
/// the limit.
fn find_parent(prefix: &str) -> Option<(PathBuf, &'static str)> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        let (hierarchy, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => return None,
        };
        let parent = Path::new(hierarchy).join(group.trim_start_matches('/'));
        let trial = parent.join(format!("{prefix}trial"));
        fs::create_dir(&trial).ok()?;
        let is_limited = trial.join(file).exists() && fs::write(trial.join(file), "1G").is_ok();
        fs::remove_dir(&trial).ok()?;
        is_limited.then_some((parent, file))
    })
}

/// A line of `/proc/<process>/status`, in bytes.
pub(crate) fn memory_of(process: u32, field: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let line = line.with_context(|| format!("no {field}"))?.trim();
    ensure!(line.ends_with(" kB"), "{line}");
    Ok(line.trim_end_matches(" kB").parse::<u64>()? * 1024)
}
