//! Tekton Pipelines itself, in pods of real nodes: its controller and its webhook, and the program that runs
//! the steps of tasks.
//!
//! The manifests are those of its module (`config`), with one image in place of those that `ko` would build.
//! [`crate::tekton`] is an imitation, for simulated nodes.
//!
//! Left out are resolvers, events, steps with a `script` (they need an image with a shell), working
//! directories that do not exist, and results by logs of a sidecar. A step needs a `command`, because there is
//! no registry in which Tekton could look up that of an image; [`step`] is one that ends at once.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::command;
use crate::control_plane::ControlPlane;
use crate::image::{Image, Layer};
use crate::tools::{TektonTools, to_stderr};
use crate::wait::{Seen, until};

/// The namespace of its pods.
pub const NAMESPACE: &str = "tekton-pipelines";

/// The taint of the node that runs only its pods.
const TAINT: &str = "testbed.stowplan.dev/tekton";

/// Images in its manifests, before the name of the program.
const KO: &str = "ko://github.com/tektoncd/pipeline/cmd/";

/// Its programs in the image: it looks for the entry point in this folder.
const PROGRAMS: [&str; 4] = ["/ko-app/controller", "/ko-app/entrypoint", NOP, "/ko-app/webhook"];
const FOLDER: &str = "/ko-app/";
const NOP: &str = "/ko-app/nop";

const DEPLOYMENTS: [&str; 2] = ["tekton-pipelines-controller", "tekton-pipelines-webhook"];

const LIMIT: Duration = Duration::from_secs(180);

/// The values of its flag `coschedule` that the bench compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coschedule {
    /// Its affinity assistant is off.
    Disabled,
    /// Its affinity assistant keeps tasks that share a workspace on one node.
    Workspaces,
}

impl Coschedule {
    fn text(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::Workspaces => "workspaces",
        }
    }
}

/// Installs it, in pods of one real node that from then on accepts no others. Returns when its webhook
/// sets defaults and refuses what is invalid. The first call on a machine builds it.
///
/// # Errors
/// If it cannot be built, the node does not exist, an object is refused, or its pods do not become ready.
pub async fn install(plane: &ControlPlane, node: &str) -> Result<()> {
    let tools = tokio::task::spawn_blocking(|| TektonTools::ensure(&to_stderr)).await??;
    let archive = plane.dir().join("tekton.tar");
    image(&tools)?.write(&archive)?;
    plane.real_node(node)?;
    plane.import(&archive).await?;
    fs::remove_file(&archive)?;

    let mut kubectl = plane.kubectl();
    command::run(kubectl.args(["taint", "node", node, &format!("{TAINT}=:NoSchedule")]))?;
    let manifests = fs::read_to_string(tools.manifests())?;
    let objects = prepare(&manifests, &reference(), node)?;
    plane.apply(&objects).context("cannot create Tekton's objects")?;
    until("Tekton's pods to be ready", LIMIT, async || {
        plane.check()?;
        let mut kubectl = plane.kubectl();
        kubectl.args(["-n", NAMESPACE, "wait", "--for=condition=Available", "--timeout=1s"]);
        kubectl.args(DEPLOYMENTS.map(|name| format!("deployment/{name}")));
        Ok(Seen::from(command::run(&mut kubectl).map(drop)))
    })
    .await
    .with_context(|| plane.describe_pods(NAMESPACE))?;
    until("Tekton's webhook to set defaults and to validate", LIMIT, async || {
        plane.check()?;
        Ok(Seen::from(webhook_is_called(plane)))
    })
    .await
}

/// Sets its flag `coschedule`, which it reads for each TaskRun.
///
/// # Errors
/// If the API server or its webhook refuses that.
pub fn set_coschedule(plane: &ControlPlane, value: Coschedule) -> Result<()> {
    let patch = json!({"data": {"coschedule": value.text()}}).to_string();
    let mut kubectl = plane.kubectl();
    kubectl.args(["-n", NAMESPACE, "patch", "configmap", "feature-flags", "-p", &patch]);
    command::run(&mut kubectl).map(drop)
}

/// Returns a step that ends at once.
#[must_use]
pub fn step() -> Value {
    json!({"name": "main", "image": reference(), "command": [NOP]})
}

/// The reference of the image with its programs.
fn reference() -> String {
    format!("stow.test/tekton:{}", TektonTools::version())
}

/// Returns the image with its programs, a layer each. Assistants run it with arguments alone: its `nop` waits.
fn image(tools: &TektonTools) -> Result<Image> {
    let layer = |path: &'static str| {
        let file = tools.program(path.trim_start_matches(FOLDER));
        let content = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        Ok(Layer::Program(path.trim_start_matches('/'), content))
    };
    let layers = PROGRAMS.into_iter().map(layer).collect::<Result<_>>()?;
    let reference = reference();
    let (name, tag) = reference.rsplit_once(':').context("a reference has a tag")?;
    Ok(Image {
        name: name.to_owned(),
        tag: tag.to_owned(),
        layers,
        entrypoint: vec![NOP.to_owned()],
        ..Image::default()
    })
}

/// Checks that a run gets its defaults, and that an invalid one is refused by the webhook.
fn webhook_is_called(plane: &ControlPlane) -> Result<()> {
    let run = |spec: Value| {
        let metadata = json!({"name": "probe", "namespace": "default"});
        let run = json!({
            "apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": metadata, "spec": spec,
        });
        let mut kubectl = plane.kubectl();
        kubectl.args(["create", "--dry-run=server", "-o", "json", "-f", "-"]);
        command::run_with(&mut kubectl, run.to_string().into_bytes())
    };
    let made: Value = serde_json::from_slice(&run(json!({"pipelineRef": {"name": "any"}}))?)?;
    let account = &made["spec"]["taskRunTemplate"]["serviceAccountName"];
    ensure!(account == "default", "a run gets no defaults: {}", made["spec"]);
    match run(json!({})) {
        Ok(_) => bail!("a run without a pipeline is admitted"),
        Err(error) => {
            let said = format!("{error:#}");
            ensure!(said.contains("validation.webhook.pipeline.tekton.dev"), "{said}");
            Ok(())
        }
    }
}

/// Reads its manifests, and lets the containers of its Deployments run the programs of one `image` on one
/// `node`.
///
/// # Errors
/// If they are not YAML, a Deployment is missing, or a container runs a program that was not built.
fn prepare(manifests: &str, image: &str, node: &str) -> Result<Vec<Value>> {
    let mut objects: Vec<Value> =
        serde_saphyr::from_multiple(manifests).context("Tekton's manifests are not YAML")?;
    // Documents of comments alone.
    objects.retain(|object| !object.is_null());
    if let Some(other) = objects.iter().find(|object| object["kind"].as_str().is_none()) {
        bail!("Tekton's manifests have an object without a kind: {other}");
    }
    for name in DEPLOYMENTS {
        let deployment = objects
            .iter_mut()
            .find(|object| object["kind"] == "Deployment" && object["metadata"]["name"] == name)
            .with_context(|| format!("Tekton's manifests have no Deployment {name}"))?;
        let spec = &mut deployment["spec"]["template"]["spec"];
        spec["nodeSelector"] = json!({"kubernetes.io/hostname": node});
        spec["tolerations"] = json!([{"key": TAINT, "operator": "Exists"}]);
        let containers = spec["containers"].as_array_mut().filter(|all| !all.is_empty());
        for container in containers.with_context(|| format!("{name} has no container"))? {
            run_program(container, image).with_context(|| format!("in the Deployment {name}"))?;
        }
    }
    Ok(objects)
}

fn run_program(container: &mut Value, image: &str) -> Result<()> {
    let program = container["image"].as_str().and_then(|image| image.strip_prefix(KO));
    let path = program.map(|program| format!("{FOLDER}{program}"));
    let path = path
        .filter(|path| PROGRAMS.contains(&&**path))
        .with_context(|| format!("image {} is not built", container["image"]))?;
    container["command"] = json!([path]);
    container["image"] = json!(image);
    for argument in container["args"].as_array_mut().into_iter().flatten() {
        if argument.as_str().is_some_and(|argument| argument.starts_with(KO)) {
            *argument = json!(image);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The two Deployments, with one change.
    fn manifests(from: &str, to: &str) -> String {
        let deployment = |name: &str, program: &str| {
            format!(
                "---\n# A comment.\nkind: Deployment\nmetadata: {{name: {name}}}\nspec:\n  template:\n    \
                 spec:\n      containers:\n      - image: {KO}{program}\n        args: [-nop-image, \
                 \"{KO}nop\", -shell-image, other]\n"
            )
        };
        let [controller, webhook] = DEPLOYMENTS;
        let text = ["# Only a comment.\n", &deployment(controller, "controller")].concat();
        let text = [&*text, &*deployment(webhook, "webhook")].concat();
        assert!(text.contains(from), "{text}");
        text.replacen(from, to, 1)
    }

    #[test]
    fn deployments_run_the_programs_of_one_image_on_one_node() {
        let objects = prepare(&manifests("", ""), "image:1", "node-5").unwrap();
        assert_eq!(objects.len(), 2);
        for (object, program) in objects.iter().zip(["controller", "webhook"]) {
            let spec = &object["spec"]["template"]["spec"];
            let container = &spec["containers"][0];
            assert_eq!(container["command"], json!([format!("/ko-app/{program}")]));
            assert_eq!(container["image"], "image:1");
            assert_eq!(
                container["args"],
                json!(["-nop-image", "image:1", "-shell-image", "other"])
            );
            assert_eq!(spec["nodeSelector"], json!({"kubernetes.io/hostname": "node-5"}));
            assert_eq!(spec["tolerations"][0]["key"], TAINT);
        }
    }

    #[test]
    fn broken_manifests_are_refused() {
        for (from, to, message) in [
            ("tekton-pipelines-webhook", "other", "no Deployment tekton-pipelines-webhook"),
            ("kind: Deployment", "kind: Pod", "no Deployment tekton-pipelines-controller"),
            ("kind: Deployment", "sort: Pod", "an object without a kind"),
            ("cmd/controller", "cmd/resolvers", "cmd/resolvers\" is not built"),
            ("ko://", "docker://", "is not built"),
            ("containers:", "initContainers:", "has no container"),
            ("kind: Deployment", "kind: {", "are not YAML"),
        ] {
            let refused = prepare(&manifests(from, to), "image:1", "node-5").unwrap_err();
            let said = format!("{refused:#}");
            assert!(said.contains(message), "{to}: {said}");
        }
        assert!(prepare("", "image:1", "node-5").is_err());
    }

    #[test]
    fn a_step_names_the_release() {
        assert_eq!(step()["image"], format!("stow.test/tekton:{}", TektonTools::version()));
    }
}
