//! Builds the pod of a TaskRun.

use serde_json::{Map, Value, json};

use super::{Kind, claim, items, names, owner_reference, stop, text};

/// The Tekton release whose pods were recorded.
const RELEASE: &str = "70f7308";

/// The fields that a pod has under the same names as its template.
const FROM_TEMPLATE: [&str; 13] = [
    "affinity",
    "automountServiceAccountToken",
    "dnsConfig",
    "dnsPolicy",
    "enableServiceLinks",
    "hostAliases",
    "hostNetwork",
    "imagePullSecrets",
    "nodeSelector",
    "priorityClassName",
    "runtimeClassName",
    "schedulerName",
    "tolerations",
];

/// Builds the pod that Tekton creates for an `attempt` of `task_run` (0 for the first, then one
/// more for each retry). `task` is the specification that it runs, and `labels` are those of the
/// Task object.
///
/// The API server's additions, such as defaults and the service account's token, are missing.
pub(super) fn pod(task_run: &Value, task: &Value, labels: &Value, attempt: usize) -> Value {
    let metadata = &task_run["metadata"];
    let steps: Vec<&Value> = items(&task["steps"]).collect();
    let scripts = steps.iter().any(|step| step["script"].is_string());
    let workspaces = Workspaces::new(task_run, task);
    let template = &task_run["spec"]["podTemplate"];

    let mut spec = json!({
        "restartPolicy": "Never",
        "activeDeadlineSeconds": deadline(text(&task_run["spec"]["timeout"])),
        "serviceAccountName": task_run["spec"]["serviceAccountName"],
        "volumes": volumes(task, &steps, scripts, &workspaces, template),
        "initContainers": init_containers(&steps, scripts),
        "containers": steps.iter().enumerate()
            .map(|(index, step)| container(index, step, &steps, &workspaces, template))
            .chain(items(&task["sidecars"]).map(|sidecar| self::sidecar(sidecar, &workspaces)))
            .collect::<Vec<_>>(),
    });
    for key in FROM_TEMPLATE.into_iter().chain(["securityContext", "topologySpreadConstraints"]) {
        if !template[key].is_null() {
            spec[key] = template[key].clone();
        }
    }
    let mut labels = labels.as_object().cloned().unwrap_or_default();
    labels.extend(metadata["labels"].as_object().cloned().unwrap_or_default());
    // Set last, so that no author can change them.
    labels.insert("app.kubernetes.io/managed-by".to_owned(), json!("tekton-pipelines"));
    labels.insert("tekton.dev/taskRun".to_owned(), metadata["name"].clone());
    labels.insert("tekton.dev/taskRunUID".to_owned(), metadata["uid"].clone());
    if let Some(name) = task_run["spec"]["taskRef"]["name"].as_str() {
        labels.insert("tekton.dev/task".to_owned(), json!(name));
    }
    let mut annotations = metadata["annotations"].as_object().cloned().unwrap_or_default();
    annotations.insert("pipeline.tekton.dev/release".to_owned(), json!(RELEASE));
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name(task_run, attempt),
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner_reference(Kind::TaskRun, task_run)],
        },
        "spec": spec,
    })
}

/// The name of the pod for an attempt of a TaskRun.
pub(super) fn name(task_run: &Value, attempt: usize) -> String {
    let suffix = match attempt {
        0 => "-pod".to_owned(),
        retry => format!("-pod-retry{retry}"),
    };
    names::child(text(&task_run["metadata"]["name"]), &suffix)
}

/// One and a half times the TaskRun's timeout, in seconds. The timeout has the form `1h30m0s`; the
/// default is one hour.
fn deadline(timeout: &str) -> u64 {
    let seconds = stop::parse_seconds(timeout);
    if seconds == 0 { 5400 } else { seconds * 3 / 2 }
}

/// The volumes and mounts of the task's workspaces.
struct Workspaces {
    volumes: Vec<Value>,
    mounts: Vec<Value>,
}

impl Workspaces {
    fn new(task_run: &Value, task: &Value) -> Self {
        let mut this = Self { volumes: Vec::new(), mounts: Vec::new() };
        for workspace in items(&task["workspaces"]) {
            let name = text(&workspace["name"]);
            let bound = items(&task_run["spec"]["workspaces"]).find(|it| it["name"] == name);
            // Only for a TaskRun without a run: a run passes its claims to its TaskRuns.
            let template = bound.and_then(|bound| claim::name(bound, task_run));
            let template =
                template.map(|claim| json!({"persistentVolumeClaim": {"claimName": claim}}));
            let source = template.as_ref().or(bound);
            let Some(volume) = source.and_then(|source| this.volume(name, source)) else {
                continue;
            };
            let path = workspace["mountPath"].as_str();
            let mut mount = json!({
                "name": volume,
                "mountPath": path.map_or_else(|| format!("/workspace/{name}"), str::to_owned),
            });
            if workspace["readOnly"] == true {
                mount["readOnly"] = json!(true);
            }
            if let Some(path) = bound.and_then(|bound| bound["subPath"].as_str()) {
                mount["subPath"] = json!(path);
            }
            this.mounts.push(mount);
        }
        this
    }

    /// The name of the volume for a binding. Bindings of the same claim share a volume.
    fn volume(&mut self, workspace: &str, bound: &Value) -> Option<String> {
        let kinds =
            ["persistentVolumeClaim", "emptyDir", "configMap", "secret", "projected", "csi"];
        let kind = kinds.into_iter().find(|kind| !bound[kind].is_null())?;
        let same = |volume: &&Value| {
            kind == "persistentVolumeClaim" && volume[kind]["claimName"] == bound[kind]["claimName"]
        };
        if let Some(known) = self.volumes.iter().find(same) {
            return Some(text(&known["name"]).to_owned());
        }
        let name =
            names::volume(workspace, &|name| self.volumes.iter().any(|it| it["name"] == name));
        self.volumes.push(json!({"name": name, kind: bound[kind]}));
        Some(name)
    }
}

/// Builds the volumes in Tekton's order: its own, those of each step, of the task, of the
/// workspaces, and of the template.
fn volumes(
    task: &Value,
    steps: &[&Value],
    scripts: bool,
    workspaces: &Workspaces,
    template: &Value,
) -> Vec<Value> {
    let empty = |name: String| json!({"name": name, "emptyDir": {}});
    let own = ["workspace", "home", "results", "steps", "artifacts", "scripts", "bin"];
    let mut volumes: Vec<_> = own
        .into_iter()
        .filter(|name| scripts || *name != "scripts")
        .map(|name| empty(format!("tekton-internal-{name}")))
        .collect();
    volumes.push(json!({
        "name": "tekton-internal-downward",
        "downwardAPI": {"items": [{
            "path": "ready",
            "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.annotations['tekton.dev/ready']"},
        }]},
    }));
    for index in 0..steps.len() {
        let name = format!("tekton-creds-init-home-{index}");
        volumes.push(json!({"name": name, "emptyDir": {"medium": "Memory"}}));
        volumes.push(empty(format!("tekton-internal-run-{index}")));
    }
    volumes.extend(items(&task["volumes"]).cloned());
    volumes.extend(workspaces.volumes.iter().cloned());
    volumes.extend(items(&template["volumes"]).cloned());
    volumes
}

fn init_containers(steps: &[&Value], scripts: bool) -> Vec<Value> {
    let mut command = vec![
        json!("/ko-app/entrypoint"),
        json!("init"),
        json!("/ko-app/entrypoint"),
        json!("/tekton/bin/entrypoint"),
    ];
    command.extend(steps.iter().enumerate().map(|(index, step)| json!(step_name(index, step))));
    let mut containers = vec![json!({
        "name": "prepare", "image": "tekton/entrypoint:v1.15.0", "command": command,
        "workingDir": "/", "resources": {},
        "volumeMounts": [
            mount("tekton-internal-bin", "/tekton/bin", false),
            mount("tekton-internal-steps", "/tekton/steps", false),
        ],
    })];
    if scripts {
        containers.push(json!({
            "name": "place-scripts", "image": "busybox", "command": ["sh"], "args": ["-c", ""],
            "resources": {},
            "volumeMounts": [
                mount("tekton-internal-scripts", "/tekton/scripts", false),
                mount("tekton-internal-bin", "/tekton/bin", false),
            ],
        }));
    }
    containers
}

fn step_name(index: usize, step: &Value) -> String {
    step["name"]
        .as_str()
        .map_or_else(|| format!("step-unnamed-{index}"), |name| format!("step-{name}"))
}

fn container(
    index: usize,
    step: &Value,
    steps: &[&Value],
    workspaces: &Workspaces,
    template: &Value,
) -> Value {
    let script = step["script"].is_string();
    let mut mounts: Vec<_> = items(&step["volumeMounts"]).cloned().collect();
    mounts.extend(workspaces.mounts.iter().cloned());
    if script {
        mounts.push(mount("tekton-internal-scripts", "/tekton/scripts", true));
    }
    if index == 0 {
        mounts.push(mount("tekton-internal-downward", "/tekton/downward", true));
    }
    mounts.push(mount(&format!("tekton-creds-init-home-{index}"), "/tekton/creds", false));
    mounts.extend((0..steps.len()).map(|run| {
        mount(&format!("tekton-internal-run-{run}"), &format!("/tekton/run/{run}"), run != index)
    }));
    for (name, read_only) in [
        ("bin", true),
        ("workspace", false),
        ("home", false),
        ("results", false),
        ("steps", true),
        ("artifacts", false),
    ] {
        let path =
            if name == "workspace" { "/workspace".to_owned() } else { format!("/tekton/{name}") };
        mounts.push(mount(&format!("tekton-internal-{name}"), &path, read_only));
    }
    let mut container = json!({
        "name": step_name(index, step),
        "image": step["image"],
        "command": ["/tekton/bin/entrypoint"],
        "resources": step["computeResources"],
        "terminationMessagePath": "/tekton/termination",
        "volumeMounts": mounts,
    });
    let env: Vec<_> = items(&step["env"]).chain(items(&template["env"])).cloned().collect();
    if !env.is_empty() {
        container["env"] = json!(env);
    }
    container
}

fn sidecar(sidecar: &Value, workspaces: &Workspaces) -> Value {
    let mut container: Map<_, _> = sidecar.as_object().cloned().unwrap_or_default();
    let resources = container.remove("computeResources").unwrap_or_default();
    container.insert("name".to_owned(), json!(format!("sidecar-{}", text(&sidecar["name"]))));
    container.insert("resources".to_owned(), resources);
    container.insert("volumeMounts".to_owned(), json!(workspaces.mounts));
    Value::Object(container)
}

fn mount(name: &str, path: &str, read_only: bool) -> Value {
    let mut mount = json!({"name": name, "mountPath": path});
    if read_only {
        mount["readOnly"] = json!(true);
    }
    mount
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tekton::recorded;

    /// Panics unless `seen` contains all of `made`. Lists must begin with the same items.
    fn assert_contains(path: &str, made: &Value, seen: &Value) {
        match (made, seen) {
            (Value::Null, _) => {}
            (Value::Object(made), Value::Object(_)) => {
                for (key, value) in made {
                    assert_contains(&format!("{path}.{key}"), value, &seen[key]);
                }
            }
            (Value::Array(made), Value::Array(seen)) => {
                for (index, value) in made.iter().enumerate() {
                    let seen = seen
                        .get(index)
                        .unwrap_or_else(|| panic!("{path}[{index}] is not in the recorded pod"));
                    assert_contains(&format!("{path}[{index}]"), value, seen);
                }
            }
            _ => assert_eq!(made, seen, "{path}"),
        }
    }

    fn names(list: &Value) -> Vec<&str> {
        items(list)
            .map(|item| text(&item["name"]))
            .filter(|name| !name.starts_with("kube-api-access"))
            .collect()
    }

    #[test]
    fn pods_have_the_shape_of_recorded_ones() {
        for (case, task_run) in &recorded::task_runs() {
            let seen = &recorded::review(&format!("{case}-pod"));
            let mut made = pod(task_run, &task_run["spec"]["taskSpec"], &Value::Null, 0);
            // The script has a random name, and its text does not matter.
            made["spec"]["initContainers"][1]["args"] = Value::Null;
            made["spec"]["initContainers"][1]["image"] = Value::Null;
            assert_contains(case, &made, seen);
            for key in ["labels", "annotations", "ownerReferences", "name", "namespace"] {
                assert_eq!(made["metadata"][key], seen["metadata"][key], "{case}: {key}");
            }
            for key in ["volumes", "initContainers", "containers"] {
                assert_eq!(names(&made["spec"][key]), names(&seen["spec"][key]), "{case}: {key}");
            }
            for key in FROM_TEMPLATE {
                let defaulted = ["dnsPolicy", "enableServiceLinks", "schedulerName", "tolerations"];
                if !defaulted.contains(&key) {
                    assert_eq!(made["spec"][key], seen["spec"][key], "{case}: {key}");
                }
            }
        }
    }

    #[test]
    fn a_retry_has_a_name_of_its_own() {
        let task_run = json!({"metadata": {"name": "flaky-flaky"}});
        assert_eq!(name(&task_run, 0), "flaky-flaky-pod");
        assert_eq!(name(&task_run, 1), "flaky-flaky-pod-retry1");
    }

    #[test]
    fn a_deadline_is_one_and_a_half_timeouts() {
        assert_eq!(deadline("1h0m0s"), 5400);
        assert_eq!(deadline("1h30m0s"), 8100);
        assert_eq!(deadline(""), 5400);
    }
}
