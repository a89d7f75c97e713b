//! `stowplan plan`: what would become of the pods in files, and why.
//!
//! Each object takes the way that it would take in a cluster: it becomes the pod that its controller
//! makes, that pod a review, and the review goes through the same
//! [`decide`](crate::admission::decide) as in the webhook.

mod class;
pub(super) mod run;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use json_patch::{Patch, PatchOperation};
use serde_json::{Value, json};

use super::input::{self, Document, Item, Problems};
use super::report::{self, Planned};
use super::template::{self, Expanded};
use super::{complain, live, yaml};
use crate::admission::stored::{self, decide_creation};
use crate::admission::{Decision, ParseError};
use crate::api;
use crate::placement::reason::Stage;
use crate::policy::Policy;
use crate::view::{Name, Object, StreamsJob, View};

/// Something is refused.
const REFUSED: u8 = 1;

/// Kinds in the input that decisions on the rest of it may need.
const KNOWN: [&str; 9] = [
    "HostPool",
    "Namespace",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Pipeline",
    "PipelineRun",
    "StorageClass",
    "StreamsJob",
    "TaskRun",
];

/// Those of them that are in no namespace.
const CLUSTER_WIDE: [&str; 3] = ["Namespace", "PersistentVolume", "StorageClass"];

/// What `stowplan plan` is told.
#[derive(Args, Debug)]
#[command(after_help = "\
Pods are planned, and whatever makes pods: Deployments, ReplicaSets, StatefulSets (ordinal 0), Jobs
(index 0), CronJobs, DaemonSets, ReplicationControllers, PodTemplates, and other kinds with a pod
template in spec.template. A StreamsJob is checked as a whole, and pods in the input join it. Of a
Tekton PipelineRun its groups are told, its claims, and the pods of its tasks. HostPools,
StreamsJobs, Namespaces, PipelineRuns, Pipelines, claims, volumes and storage classes in the input
count as part of the cluster.

Exit code: 0 all admitted, 1 something is refused, 2 input that cannot be read.

Examples:
  # In the cluster of the current kubeconfig context
  stowplan plan -f job.yaml --live

  # Without a cluster: nodes and pools come from files
  kubectl get nodes,hostpools -A -o yaml > cluster.yaml
  stowplan plan -f job.yaml --cluster cluster.yaml

  # What helm would install, in the namespace where it would
  helm template my-job ./chart | stowplan plan -f - -n streams --cluster cluster.yaml

  # The reasons of all refusals, for a script
  stowplan plan -f jobs/ --live -o json | jq -r '.items[] | select(.allowed | not) | .reason'

  # Which tasks of a Tekton run share a node, and with which volumes
  stowplan plan -f run.yaml --live

  # Placed once and for all, without a webhook in the cluster
  stowplan plan -f job.yaml --live -o yaml | kubectl apply -f -")]
pub(super) struct Arguments {
    /// Objects to plan, YAML or JSON: files, folders (not those inside them), or - for standard input
    #[arg(short, long = "filename", value_name = "PATH", num_args = 1.., required = true)]
    filename: Vec<PathBuf>,
    /// Kubernetes objects (nodes, HostPools, namespaces, pods, storage classes), files or folders
    #[arg(long, value_name = "PATH", num_args = 1.., conflicts_with = "live")]
    cluster: Vec<PathBuf>,
    /// Read the cluster of the current kubeconfig context
    #[arg(long)]
    live: bool,
    /// The policy file; without it, the defaults
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The namespace of objects that name none [default: with --live the context's, else default]
    #[arg(short, long, value_name = "NAMESPACE", value_parser = NonEmptyStringValueParser::new())]
    namespace: Option<String>,
    /// The form of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// What is added to each object and why, or all that is wrong
    Text,
    /// A PlanList: everything, for scripts
    Json,
    /// The input after placement; what is refused stays as it is, and is told on standard error
    Yaml,
    /// A list of objects, each with its JSON patch; what is refused is told on standard error
    Patch,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let reads_stdin = |paths: &[PathBuf]| paths.iter().any(|path| path.as_os_str() == "-");
    ensure!(
        !(reads_stdin(&arguments.filename) && reads_stdin(&arguments.cluster)),
        "both -f and --cluster are -, and standard input can be read once"
    );
    let policy = input::policy(arguments.policy.as_deref())?;
    let mut problems = Problems::default();
    let documents = input::documents(&arguments.filename, &mut problems);
    let items: Vec<(usize, Item<'_>)> = documents
        .iter()
        .enumerate()
        .flat_map(|(index, document)| {
            document
                .items(&mut problems)
                .into_iter()
                .map(move |item| (index, item))
                .collect::<Vec<_>>()
        })
        .collect();
    problems.settle()?;
    ensure!(
        !documents.is_empty(),
        "no Kubernetes object in {}",
        input::listed(&arguments.filename)
    );

    let mut namespace = "default".to_owned();
    let mut view = if arguments.live {
        let live = live::read()?;
        live.warnings.iter().for_each(|warning| complain(warning));
        namespace = live.namespace;
        live.view
    } else {
        input::view(&arguments.cluster)?
    };
    if let Some(given) = &arguments.namespace {
        namespace.clone_from(given);
    }

    let mut planner = Planner {
        documents: &documents,
        given: arguments.namespace.as_deref(),
        namespace: &namespace,
        has_cluster: arguments.live || !arguments.cluster.is_empty(),
        policy: &policy,
        problems: Problems::default(),
    };
    for (document, item) in &items {
        planner.know(*document, item, &mut view);
    }
    let mut planned = Vec::new();
    let mut others = 0;
    for (document, item) in items {
        match template::pointer(&item) {
            Some(pointer) => planned.extend(planner.plan(document, item, Some(pointer), &view)),
            // No pod of its own, but a request that the webhook gets.
            None if is_claim(&item) => planned.extend(planner.plan(document, item, None, &view)),
            // Of what Tekton makes of it, the webhook is asked.
            None if is_run(&item) => planned.extend(planner.follow(document, item, &mut view)),
            // What creating it would be answered.
            None if is_job(&item) => planned.extend(planner.check(document, item, &view)),
            None => others += 1,
        }
    }
    planner.problems.settle()?;

    let refused = planned.iter().any(|planned| matches!(planned.decision, Decision::Refuse(_)));
    let output = match arguments.output {
        Format::Text => super::printable(&report::text(&planned, others)),
        Format::Json => format!("{}\n", serde_json::to_string_pretty(&report::list(&planned))?),
        Format::Yaml => yaml::write(&placed(&documents, &planned)?)?,
        Format::Patch => format!("{}\n", serde_json::to_string_pretty(&report::patches(&planned))?),
    };
    if matches!(arguments.output, Format::Yaml | Format::Patch) {
        planned.iter().flat_map(report::remarks).for_each(|remark| complain(&remark));
    }
    super::print(&output)?;
    Ok(if refused { ExitCode::from(REFUSED) } else { ExitCode::SUCCESS })
}

fn is_claim(item: &Item<'_>) -> bool {
    item.version == "v1" && item.kind == "PersistentVolumeClaim"
}

fn is_run(item: &Item<'_>) -> bool {
    item.version.starts_with("tekton.dev/") && item.kind == "PipelineRun"
}

fn is_job(item: &Item<'_>) -> bool {
    item.version == api::VERSION && item.kind == "StreamsJob"
}

struct Planner<'a> {
    documents: &'a [Document],
    /// The namespace that was asked for.
    given: Option<&'a str>,
    /// The namespace of objects that name none.
    namespace: &'a str,
    has_cluster: bool,
    policy: &'a Policy,
    problems: Problems,
}

impl Planner<'_> {
    fn problem(&mut self, document: usize, item: &Item<'_>, problem: &str) {
        let place = &self.documents[document].place;
        let name = template::name(item.value).map_or("", |(name, _)| name);
        let object = format!("{} {name}", item.kind);
        self.problems.push(format!("{place}: {}: {problem}", object.trim_end()));
    }

    /// The namespace of an object, as kubectl finds it.
    fn namespace_of(&mut self, document: usize, item: &Item<'_>) -> String {
        let own = item.value.pointer("/metadata/namespace").and_then(Value::as_str);
        match (own.filter(|own| !own.is_empty()), self.given) {
            (Some(own), Some(given)) if own != given => {
                let problem =
                    format!("is in namespace {own:?}, and -n asks for {given:?}: leave -n out");
                self.problem(document, item, &problem);
                own.to_owned()
            }
            (Some(own), _) => own.to_owned(),
            (None, _) => self.namespace.to_owned(),
        }
    }

    /// Takes what the input itself brings into the View: pools, jobs and namespaces.
    fn know(&mut self, document: usize, item: &Item<'_>, view: &mut View) {
        let namespace = self.namespace_of(document, item);
        if !KNOWN.contains(&item.kind.as_str()) {
            return;
        }
        let mut object = item.to_object();
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            if !CLUSTER_WIDE.contains(&item.kind.as_str()) {
                metadata.insert("namespace".to_owned(), namespace.into());
            }
            if is_run(item) {
                run::complete(metadata, item.value, document, &item.pointer);
            }
        }
        match Object::from_document(object) {
            Ok(object) => object.into_iter().for_each(|object| view.apply(object)),
            Err(problem) => self.problem(document, item, &problem),
        }
    }

    /// Decides on a StreamsJob. `None`: a problem, which is noted.
    fn check<'d>(&mut self, document: usize, item: Item<'d>, view: &View) -> Option<Planned<'d>> {
        let own = item.value.pointer("/metadata/namespace").and_then(Value::as_str);
        let namespace = own.filter(|own| !own.is_empty()).unwrap_or(self.namespace).to_owned();
        let Some((name, _)) = template::name(item.value) else {
            self.problem(document, &item, "has neither metadata.name nor metadata.generateName");
            return None;
        };
        let object = item.to_object();
        let resource = stored::STREAMS_JOBS;
        let decision = match decide_creation(resource, &namespace, &object, view, self.policy) {
            Ok(decision) => decision,
            Err(error) => {
                self.problem(document, &item, &error.to_string());
                return None;
            }
        };
        let job = view.streams_job(&Name::new(&namespace, name));
        Some(Planned {
            groups: job.map(groups).unwrap_or_default(),
            run: None,
            namespace,
            name: name.to_owned(),
            wants_cluster: !self.has_cluster && of_cluster(&decision),
            unknown: None,
            decision,
            patch: Vec::new(),
            document,
            item,
        })
    }

    /// Decides on what Tekton would make of a PipelineRun. `None`: a problem, which is noted.
    fn follow<'d>(
        &mut self,
        document: usize,
        item: Item<'d>,
        view: &mut View,
    ) -> Option<Planned<'d>> {
        let own = item.value.pointer("/metadata/namespace").and_then(Value::as_str);
        let namespace = own.filter(|own| !own.is_empty()).unwrap_or(self.namespace).to_owned();
        let Some((name, _)) = template::name(item.value) else {
            self.problem(document, &item, "has neither metadata.name nor metadata.generateName");
            return None;
        };
        let key = Name::new(&namespace, &run::name(item.value));
        // Anything else was told when it was read.
        let known = view.pipeline_run(&key)?.clone();
        if let Some(problem) = &known.problem {
            self.problem(document, &item, problem);
            return None;
        }
        let has_uid = item.value.pointer("/metadata/uid").is_some_and(Value::is_string);
        let given = run::Given { document: item.value, has_uid, has_cluster: self.has_cluster };
        let run::Planned { run, decision } = match run::plan(&key, &known, given, view, self.policy)
        {
            Ok(planned) => planned,
            Err(error) => {
                self.problem(document, &item, &without_position(true, &error));
                return None;
            }
        };
        Some(Planned {
            name: name.to_owned(),
            wants_cluster: false,
            unknown: None,
            decision,
            patch: Vec::new(),
            groups: Vec::new(),
            run: Some(run),
            namespace,
            document,
            item,
        })
    }

    /// Decides on one object. `None`: a problem, which is noted.
    fn plan<'d>(
        &mut self,
        document: usize,
        item: Item<'d>,
        pointer: Option<&'static str>,
        view: &View,
    ) -> Option<Planned<'d>> {
        let own = item.value.pointer("/metadata/namespace").and_then(Value::as_str);
        let namespace = own.filter(|own| !own.is_empty()).unwrap_or(self.namespace).to_owned();
        let Some((name, _)) = template::name(item.value) else {
            self.problem(document, &item, "has neither metadata.name nor metadata.generateName");
            return None;
        };
        let expanded = match pointer {
            Some(pointer) => template::expand(&item, pointer, &namespace),
            None => {
                let mut claim = item.to_object();
                class::complete(&mut claim, view);
                Ok(Expanded { pod: claim, pointer: "" })
            }
        };
        let expanded = match expanded {
            Ok(expanded) => expanded,
            Err(problem) => {
                self.problem(document, &item, &problem);
                return None;
            }
        };
        let resource = if pointer.is_some() { stored::PODS } else { stored::CLAIMS };
        let decision = match decide_creation(resource, &namespace, &expanded.pod, view, self.policy)
        {
            Ok(decision) => decision,
            Err(error) => {
                self.problem(document, &item, &without_position(pointer.is_some(), &error));
                return None;
            }
        };
        let patch = match &decision {
            Decision::Admit(admission) => {
                rebase(&admission.patch.operations(), &expanded, item.value)
            }
            _ => Vec::new(),
        };
        let is_unchanged = matches!(&decision, Decision::Admit(admission)
            if admission.intents.is_empty() && admission.warnings.is_empty());
        let unknown = (pointer.is_none() && is_unchanged)
            .then(|| class::unknown(&expanded.pod, view, self.has_cluster));
        Some(Planned {
            namespace,
            name: name.to_owned(),
            wants_cluster: !self.has_cluster && of_cluster(&decision),
            unknown: unknown.flatten(),
            decision,
            patch,
            groups: Vec::new(),
            run: None,
            document,
            item,
        })
    }
}

/// The names of the processing elements that share a host.
fn groups(job: &StreamsJob) -> Vec<Vec<String>> {
    let Ok(spec) = &job.spec else { return Vec::new() };
    let units = job.closure.units.iter().filter(|unit| unit.group.is_some());
    let name = |element: &usize| spec.processing_elements[*element].name.clone();
    units.map(|unit| unit.elements.iter().map(name).collect()).collect()
}

/// What is wrong with a pod or a claim, without the position in the review that was made of it.
fn without_position(is_pod: bool, error: &ParseError) -> String {
    let (ParseError::Json(text) | ParseError::Object { problem: text, .. }) = error else {
        return error.to_string();
    };
    let end = text.rfind(" at line ").unwrap_or(text.len());
    let kind = if is_pod { "pod" } else { "PersistentVolumeClaim" };
    format!("not a valid {kind}: {}", &text[..end])
}

/// Whether a decision fails at what the cluster has.
fn of_cluster(decision: &Decision) -> bool {
    let findings = match decision {
        Decision::Refuse(refusal) => &refusal.findings,
        Decision::Admit(admission) => &admission.findings,
        _ => return false,
    };
    findings.first().is_some_and(|finding| finding.reason.stage() == Stage::Cluster)
}

/// Operations on the pod, as operations on the object that it was made of.
///
/// The pod has labels and annotations that its controller adds; where the template has none at all,
/// the parents are made first.
fn rebase(patch: &[PatchOperation], expanded: &Expanded, object: &Value) -> Vec<Value> {
    let prefix = expanded.pointer;
    let mut operations = Vec::new();
    // A pod is itself what was decided on.
    let parents: &[&str] = if prefix.is_empty() {
        &[]
    } else {
        &["/metadata", "/metadata/labels", "/metadata/annotations"]
    };
    for parent in parents {
        let target = format!("{prefix}{parent}");
        let below = format!("{parent}/");
        let needed = patch.iter().any(|operation| operation.path().as_str().starts_with(&below));
        if needed && object.pointer(&target).is_none_or(Value::is_null) {
            operations.push(json!({"op": "add", "path": target, "value": {}}));
        }
    }
    for operation in patch {
        let mut operation = json!(operation);
        for key in ["path", "from"] {
            if let Some(Value::String(path)) = operation.get_mut(key) {
                path.insert_str(0, prefix);
            }
        }
        operations.push(operation);
    }
    operations
}

/// The documents after placement.
fn placed(documents: &[Document], planned: &[Planned<'_>]) -> anyhow::Result<Vec<Value>> {
    let mut values: Vec<Value> = documents.iter().map(|document| document.value.clone()).collect();
    for planned in planned.iter().filter(|planned| !planned.patch.is_empty()) {
        let patch: Patch = serde_json::from_value(Value::Array(planned.patch.clone()))?;
        values[planned.document]
            .pointer_mut(&planned.item.pointer)
            .context("an object that is there")
            .and_then(|object| Ok(json_patch::patch(object, &patch)?))
            .with_context(|| {
                format!("a bug in stowplan: the patch of {} does not apply", planned.name)
            })?;
    }
    Ok(values)
}
