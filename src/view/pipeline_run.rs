//! What is kept of a Tekton PipelineRun: what its groups follow from.
//!
//! All of it is of `metadata` and `spec`, which do not change while the run lasts, but for `done`: a
//! run's status is often absent when its first pods arrive.

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::digest;
use super::document::{Part, Reader};
use super::estate::Identity;
use super::owner::Owner;
use super::pipeline::Pipeline;
use super::storage::{AccessModes, GROUP};

/// The annotation that says what of a run shares a node.
pub const MODE: &str = "stowplan.dev/coschedule";

/// The annotation with which Tekton deletes a run's claims at its end.
pub const AUTO_CLEANUP: &str = "tekton.dev/auto-cleanup-pvc";

/// The beginning of a variable that Tekton replaces while the run goes on.
pub(super) const VARIABLE: &str = "$(";

/// A PipelineRun.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PipelineRun {
    /// Who it is.
    pub identity: Identity,
    /// The PipelineRun that made it: a pipeline in a pipeline.
    pub parent: Option<Owner>,
    /// The annotation [`MODE`], as it is.
    pub mode: Option<Box<str>>,
    /// The annotation [`GROUP`]: Tekton copies it to the run's pods, and they are of that native group.
    pub group: Option<Box<str>>,
    /// Whether it has ended.
    pub done: bool,
    /// Its workspaces, in their order.
    pub workspaces: Box<[Workspace]>,
    /// What it runs.
    pub pipeline: PipelineSource,
    /// The node selector of its pods, sorted by key.
    pub node_selector: Labels,
    /// The claims that its pod template mounts into every pod.
    pub mounted: Box<[Box<str>]>,
    /// Its tasks with a pod template of their own.
    pub task_overrides: Box<[TaskOverride]>,
    /// The pod template. Kept only for who makes placeholders.
    pub pod_template: Option<Box<Value>>,
    /// The service account of its pods.
    pub service_account: Option<Box<str>>,
    /// Whether Tekton deletes its claims at its end.
    pub auto_cleanup: bool,
    /// What could not be read.
    pub problem: Option<Box<str>>,
}

/// Labels, sorted by key.
pub type Labels = Box<[(Box<str>, Box<str>)]>;

/// A workspace of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Workspace {
    /// The pipeline's name of it.
    pub name: Box<str>,
    /// What it is.
    pub source: WorkspaceSource,
}

/// Where a workspace's files are.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkspaceSource {
    /// In a claim that Tekton makes for the run.
    Template(Template),
    /// In a claim that is there.
    Claim(Box<str>),
    /// In a claim whose name comes from a variable: nobody knows it yet.
    Unresolved,
    /// In nothing that a node could matter to: emptyDir, Secret, ConfigMap, and the like.
    Free,
}

/// A claim that Tekton makes for a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    /// The claim's name, by Tekton's rule ([`claim_name`]).
    pub claim: Box<str>,
    /// How it may be mounted.
    pub access_modes: AccessModes,
    /// Its class, where it names one.
    pub class: Option<Box<str>>,
    /// The template. Kept only for who makes placeholders.
    pub document: Option<Box<Value>>,
}

/// A task with a pod template of its own.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TaskOverride {
    /// The pipeline's task.
    pub task: Box<str>,
    /// The node selector of its pods, which takes the place of the run's; `None`: it has none.
    pub node_selector: Option<Labels>,
    /// The claims that its pod template mounts; `None`: it says nothing of volumes.
    pub mounted: Option<Box<[Box<str>]>>,
}

/// What a run runs.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum PipelineSource {
    /// What is written in it.
    Inline(Pipeline),
    /// A Pipeline of its namespace.
    Named(Box<str>),
    /// What a resolver or a bundle knows.
    Resolver,
    /// It says nothing.
    #[default]
    Absent,
}

impl PipelineRun {
    /// Reads one, whatever its version. `whole` keeps what only who makes placeholders needs.
    #[must_use]
    pub fn read(metadata: &ObjectMeta, document: &Value, whole: bool) -> Self {
        let identity = Identity::from(metadata);
        let annotations = metadata.annotations.as_ref();
        let annotation = |key: &str| annotations.and_then(|map| map.get(key)).map(String::as_str);
        let mut run = Self {
            parent: Owner::of_tekton(metadata, "PipelineRun"),
            mode: annotation(MODE).map(Into::into),
            group: annotation(GROUP).map(Into::into),
            done: is_done(document),
            auto_cleanup: annotation(AUTO_CLEANUP) == Some("true"),
            identity,
            ..Self::default()
        };
        let mut reader = Reader::default();
        let document = reader.whole(document);
        if let Some(spec) = document.and_then(|document| reader.part(&document, "spec")) {
            run.take(&mut reader, &spec, whole);
        }
        run.problem = reader.problem();
        run
    }

    /// The same without what only a run that goes on needs: all that says what its pods are like. Runs
    /// stay for long after their end. A run that another has made keeps its claims, of which that one's
    /// groups are made.
    #[must_use]
    pub fn without_its_pods(mut self) -> Self {
        let is_root = self.parent.is_none();
        for workspace in &mut self.workspaces {
            match &mut workspace.source {
                source if is_root => *source = WorkspaceSource::Free,
                WorkspaceSource::Template(template) => template.document = None,
                _ => {}
            }
        }
        if matches!(self.pipeline, PipelineSource::Inline(_)) {
            self.pipeline = PipelineSource::Absent;
        }
        Self {
            node_selector: Box::default(),
            mounted: Box::default(),
            task_overrides: Box::default(),
            pod_template: None,
            service_account: None,
            ..self
        }
    }

    fn take(&mut self, reader: &mut Reader, spec: &Part<'_>, whole: bool) {
        let params = params(reader, spec);
        let workspaces = reader.parts(spec, "workspaces");
        self.workspaces = workspaces
            .iter()
            .map(|workspace| {
                let name = reader.text(workspace, "name").unwrap_or_default();
                let source = self.source(reader, workspace, name, &params, whole);
                Workspace { name: name.into(), source }
            })
            .collect();
        self.pipeline = if let Some(inline) = reader.part(spec, "pipelineSpec") {
            PipelineSource::Inline(Pipeline::read(reader, &inline))
        } else if let Some(reference) = reader.part(spec, "pipelineRef") {
            match reader.text(&reference, "name") {
                Some(name) if !reference.has("resolver") && !reference.has("bundle") => {
                    PipelineSource::Named(name.into())
                }
                _ => PipelineSource::Resolver,
            }
        } else {
            PipelineSource::Absent
        };
        // v1 keeps them together, v1beta1 did not.
        let together = reader.part(spec, "taskRunTemplate");
        let of_pods = together.as_ref().unwrap_or(spec);
        let account = reader.text(of_pods, "serviceAccountName");
        self.service_account = account.map(Into::into);
        if let Some(template) = reader.part(of_pods, "podTemplate") {
            self.node_selector = labels(reader, &template);
            self.mounted = mounted(reader, &template);
            let value = of_pods.value("podTemplate").filter(|_| whole);
            self.pod_template = value.cloned().map(Box::new);
        }
        let overrides = reader.parts(spec, "taskRunSpecs");
        self.task_overrides = overrides
            .iter()
            .filter_map(|of_task| {
                let name = reader.text(of_task, "pipelineTaskName")?;
                let template = reader.part(of_task, "podTemplate");
                let template = template.or_else(|| reader.part(of_task, "taskPodTemplate"))?;
                Some(TaskOverride {
                    task: name.into(),
                    node_selector: template.has("nodeSelector").then(|| labels(reader, &template)),
                    mounted: template.has("volumes").then(|| mounted(reader, &template)),
                })
            })
            .collect();
    }

    fn source(
        &self,
        reader: &mut Reader,
        workspace: &Part<'_>,
        name: &str,
        params: &HashMap<&str, &str>,
        whole: bool,
    ) -> WorkspaceSource {
        if let Some(template) = reader.part(workspace, "volumeClaimTemplate") {
            let metadata = reader.part(&template, "metadata");
            let named = metadata.and_then(|metadata| reader.text(&metadata, "name"));
            let spec = reader.part(&template, "spec");
            let modes = spec.as_ref().map(|spec| reader.texts(spec, "accessModes"));
            let class = spec.as_ref().and_then(|spec| reader.text(spec, "storageClassName"));
            let document = workspace.value("volumeClaimTemplate").filter(|_| whole);
            return WorkspaceSource::Template(Template {
                claim: claim_name(named, name, &self.identity.uid).into(),
                access_modes: AccessModes::read(modes.unwrap_or_default()),
                class: class.map(Into::into),
                document: document.cloned().map(Box::new),
            });
        }
        let claim = reader.part(workspace, "persistentVolumeClaim");
        let claim = claim.and_then(|claim| reader.text(&claim, "claimName"));
        match claim.map(|claim| substituted(claim, params)) {
            Some(claim) if claim.contains(VARIABLE) => WorkspaceSource::Unresolved,
            Some(claim) if !claim.is_empty() => WorkspaceSource::Claim(claim.into()),
            _ => WorkspaceSource::Free,
        }
    }
}

/// The params that a run gives itself, as far as they are texts.
fn params<'v>(reader: &mut Reader, spec: &Part<'v>) -> HashMap<&'v str, &'v str> {
    let params = reader.parts(spec, "params");
    let texts = params.iter().filter_map(|param| {
        Some((param.value("name")?.as_str()?, param.value("value")?.as_str()?))
    });
    texts.collect()
}

/// A text with the run's own params in the place of their variables, as Tekton does it with workspaces
/// before anything of the run begins (`ApplyParametersToWorkspaceBindings`). Other variables stay.
fn substituted(text: &str, params: &HashMap<&str, &str>) -> String {
    const BEGINNING: &str = "$(params";
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(BEGINNING) {
        let after = &rest[at + BEGINNING.len()..];
        let found =
            [(".", ")"), ("['", "'])"), ("[\"", "\"])")].iter().find_map(|(open, close)| {
                let (name, after) = after.strip_prefix(open)?.split_once(close)?;
                Some((*params.get(name)?, after))
            });
        result.push_str(&rest[..at]);
        let (value, after) = found.unwrap_or((BEGINNING, after));
        result.push_str(value);
        rest = after;
    }
    result + rest
}

/// The name that Tekton gives the claim of a template: the template's own name or `pvc`, and ten
/// characters of the digest of workspace and owner.
#[must_use]
pub fn claim_name(template: Option<&str>, workspace: &str, owner_uid: &str) -> String {
    let digest = digest::ten(&[workspace, owner_uid].concat());
    format!("{}-{digest}", template.unwrap_or("pvc"))
}

/// Whether the condition Succeeded of a run is known by now.
pub(super) fn is_done(document: &Value) -> bool {
    let conditions = document.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| {
        condition["type"] == "Succeeded"
            && matches!(condition["status"].as_str(), Some("True" | "False"))
    })
}

fn labels(reader: &mut Reader, template: &Part<'_>) -> Labels {
    let mut labels: Vec<(Box<str>, Box<str>)> = reader
        .map(template, "nodeSelector")
        .into_iter()
        .map(|(key, value)| (key.into(), value.into()))
        .collect();
    labels.sort_unstable();
    labels.into()
}

fn mounted(reader: &mut Reader, template: &Part<'_>) -> Box<[Box<str>]> {
    let volumes = reader.parts(template, "volumes");
    let claims = volumes.iter().filter_map(|volume| {
        let claim = reader.part(volume, "persistentVolumeClaim")?;
        let name = reader.text(&claim, "claimName")?;
        (!name.contains(VARIABLE)).then(|| name.into())
    });
    claims.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_a_run_that_has_ended_only_what_its_claims_need_is_kept() {
        let mut document = json!({
            "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
            "metadata": {"name": "r", "namespace": "ci", "uid": "u", "annotations": {
                MODE: "pipelineruns", AUTO_CLEANUP: "true"}},
            "spec": {
                "workspaces": [
                    {"name": "a", "volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}},
                    {"name": "b", "persistentVolumeClaim": {"claimName": "c"}},
                ],
                "pipelineSpec": {"tasks": [{"name": "t", "taskRef": {"name": "t"}}]},
                "taskRunTemplate": {"serviceAccountName": "s", "podTemplate": {
                    "nodeSelector": {"a": "b"},
                    "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "d"}}]}},
                "taskRunSpecs": [{"pipelineTaskName": "t", "podTemplate": {"nodeSelector": {"a": "c"}}}],
            },
        });
        let read = |document: &Value| {
            let metadata = serde_json::from_value(document["metadata"].clone()).unwrap();
            PipelineRun::read(&metadata, document, true)
        };
        let names = |run: &PipelineRun| -> Vec<String> {
            run.workspaces.iter().map(|workspace| workspace.name.to_string()).collect()
        };
        let kept = read(&document).without_its_pods();
        assert_eq!((kept.auto_cleanup, kept.mode.as_deref()), (true, Some("pipelineruns")));
        assert_eq!(names(&kept), ["a", "b"]);
        let rest = PipelineRun {
            identity: kept.identity.clone(),
            mode: kept.mode.clone(),
            workspaces: kept.workspaces.clone(),
            auto_cleanup: true,
            ..PipelineRun::default()
        };
        assert_eq!(kept, rest);
        assert!(kept.workspaces.iter().all(|workspace| workspace.source == WorkspaceSource::Free));

        // The groups of the run above are made of its claims.
        document["metadata"]["ownerReferences"] = json!([{"apiVersion": "tekton.dev/v1",
            "kind": "PipelineRun", "name": "above", "uid": "above", "controller": true}]);
        let kept = read(&document).without_its_pods();
        let WorkspaceSource::Template(template) = &kept.workspaces[0].source else {
            panic!("{kept:?}");
        };
        assert_eq!(template.document, None);
        assert_eq!(kept.workspaces[1].source, WorkspaceSource::Claim("c".into()));
    }
}
