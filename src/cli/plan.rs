//! `stowplan plan`: how the pods in files would be placed, and why.
//!
//! Each object is processed as in a cluster: the pod that its controller would create is built, a
//! review of that pod, and the decision on the review comes from the same
//! [`decide`](crate::admission::decide) as in the webhook.

mod patch;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::ensure;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::input::{self, Document, Item, Problems};
use super::report::{self, Planned};
use super::template;
use super::{live, print_notice, yaml};
use crate::admission::stored::decide_creation;
use crate::admission::{Admission, Decision, ParseError, Pass};
use crate::placement::reason::Stage;
use crate::systems::policy::Policy;
use crate::systems::preview::{Completion, Decided, Given, Preview, PreviewedKind, Verdict};
use crate::systems::{self, SYSTEMS};
use crate::view::resource::{NODE, POD, Resource};
use crate::view::{Name, View};
use patch::{apply_patches, rebase};

/// The problem of an object without a name.
const NAMELESS: &str = "has neither metadata.name nor metadata.generateName";

/// The exit code if something is refused.
const REFUSED: u8 = 1;

/// The arguments of `stowplan plan`.
#[derive(Args, Debug)]
#[command(after_help = "\
Planned are pods and all objects that create pods: Deployments, ReplicaSets, StatefulSets (ordinal
0), Jobs (index 0), CronJobs, DaemonSets, ReplicationControllers, PodTemplates, and other kinds with
a pod template in spec.template. A StreamsJob is checked together with its pods in the input. For a
Tekton PipelineRun, its groups, its claims and the pods of its tasks are shown. HostPools,
StreamsJobs, Namespaces, PipelineRuns, Pipelines, claims, volumes and storage classes in the input
count as part of the cluster.

Exit code: 0 all admitted, 1 something is refused, 2 input that cannot be read.

Examples:
  # In the cluster of the current kubeconfig context
  stowplan plan -f job.yaml --live

  # Without a cluster: nodes and pools come from files
  kubectl get nodes,hostpools -A -o yaml > cluster.yaml
  stowplan plan -f job.yaml --cluster cluster.yaml

  # What helm would install, in that namespace
  helm template my-job ./chart | stowplan plan -f - -n streams --cluster cluster.yaml

  # The reasons of all refusals, for a script
  stowplan plan -f jobs/ --live -o json | jq -r '.items[] | select(.allowed | not) | .reason'

  # Which tasks of a Tekton run share a node, and with which volumes
  stowplan plan -f run.yaml --live

  # Place pods without a webhook in the cluster
  stowplan plan -f job.yaml --live -o yaml | kubectl apply -f -")]
pub(super) struct Arguments {
    /// Objects to plan, YAML or JSON: files, folders (not those inside them), or - for standard
    /// input
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
    /// The changes of each object and why, or all its problems
    Text,
    /// A PlanList: all details, for scripts
    Json,
    /// The input after placement; refused objects stay unchanged and are reported on standard error
    Yaml,
    /// A list of objects, each with its JSON patch; refused objects are reported on standard error
    Patch,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let reads_stdin = |paths: &[PathBuf]| paths.iter().any(|path| path.as_os_str() == "-");
    ensure!(
        !(reads_stdin(&arguments.filename) && reads_stdin(&arguments.cluster)),
        "both -f and --cluster are -, and standard input can be read once"
    );
    let policy = input::read_policy(arguments.policy.as_deref())?;
    let mut problems = Problems::default();
    let documents = input::read_documents(&arguments.filename, &mut problems);
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
    problems.into_result()?;
    ensure!(
        !documents.is_empty(),
        "no Kubernetes object in {}",
        input::format_paths(&arguments.filename)
    );

    let mut namespace = "default".to_owned();
    let mut view = if arguments.live {
        let live = live::read()?;
        live.warnings.iter().for_each(|warning| print_notice(warning));
        namespace = live.namespace;
        live.view
    } else {
        input::read_view(&arguments.cluster)?
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
        now: Timestamp::now(),
        problems: Problems::default(),
    };
    for (document, item) in &items {
        planner.add_to_view(*document, item, &mut view);
    }
    let mut planned = Vec::new();
    let mut others = 0;
    for (document, item) in items {
        if let Some(pointer) = template::find_template(&item) {
            planned.extend(planner.plan(document, item, pointer, &view));
        } else if let Some(kind) = find_preview(&item) {
            planned.extend(planner.preview(document, item, kind, &mut view));
        } else {
            others += 1;
        }
    }
    planner.problems.into_result()?;

    let refused = planned.iter().any(|planned| matches!(planned.decision, Decision::Refuse(_)));
    let output = match arguments.output {
        Format::Text => super::escape_for_terminal(&report::format_text(&planned, others)),
        Format::Json => {
            format!("{}\n", serde_json::to_string_pretty(&report::build_list(&planned))?)
        }
        Format::Yaml => yaml::write(&apply_patches(&documents, &planned)?)?,
        Format::Patch => {
            format!("{}\n", serde_json::to_string_pretty(&report::build_patches(&planned))?)
        }
    };
    if matches!(arguments.output, Format::Yaml | Format::Patch) {
        planned.iter().flat_map(report::format_remarks).for_each(|remark| print_notice(&remark));
    }
    super::print(&output)?;
    Ok(if refused { ExitCode::from(REFUSED) } else { ExitCode::SUCCESS })
}

struct Planner<'a> {
    documents: &'a [Document],
    /// The value of `--namespace`.
    given: Option<&'a str>,
    /// The namespace of objects that name none.
    namespace: &'a str,
    has_cluster: bool,
    policy: &'a Policy,
    /// The creation time of objects without one.
    now: Timestamp,
    problems: Problems,
}

impl Planner<'_> {
    fn problem(&mut self, document: usize, item: &Item<'_>, problem: &str) {
        let location = &self.documents[document].location;
        let name = template::name(item.value).map_or("", |(name, _)| name);
        let object = format!("{} {name}", item.kind);
        self.problems.push(format!("{location}: {}: {problem}", object.trim_end()));
    }

    /// The namespace of an object, by the rules of kubectl. `check_namespace` reports one that
    /// kubectl would refuse.
    fn namespace_of(&self, item: &Item<'_>) -> String {
        find_namespace(item).unwrap_or(self.namespace).to_owned()
    }

    /// Reports an object that names another namespace than `--namespace` does.
    fn check_namespace(&mut self, document: usize, item: &Item<'_>) {
        if let (Some(own), Some(given)) = (find_namespace(item), self.given)
            && own != given
        {
            let problem =
                format!("is in namespace {own:?}, and -n asks for {given:?}: leave -n out");
            self.problem(document, item, &problem);
        }
    }

    /// Adds an object of the input to the View if decisions may depend on it.
    fn add_to_view(&mut self, document: usize, item: &Item<'_>, view: &mut View) {
        self.check_namespace(document, item);
        let namespace = self.namespace_of(item);
        let Some(resource) = read_by_decisions(item) else { return };
        let mut object = item.to_object();
        if let Some(Value::Object(metadata)) = object.get_mut("metadata")
            && resource.namespaced
        {
            metadata.insert("namespace".to_owned(), namespace.into());
        }
        if let Some(kind) = find_preview(item) {
            self.complete(document, item, kind, &mut object);
        }
        match systems::object(object) {
            Ok(object) => object.into_iter().for_each(|object| view.apply(object)),
            Err(problem) => self.problem(document, item, &problem),
        }
    }

    /// Gets the preview of an object from its system. `None` if there is a problem, which is
    /// recorded.
    fn preview<'d>(
        &mut self,
        document: usize,
        item: Item<'d>,
        kind: &PreviewedKind,
        view: &mut View,
    ) -> Option<Planned<'d>> {
        let namespace = self.namespace_of(&item);
        let Some((name, _)) = template::name(item.value) else {
            self.problem(document, &item, NAMELESS);
            return None;
        };
        let object = item.to_object();
        let mut completed = object.clone();
        self.complete(document, &item, kind, &mut completed);
        let key = Name::new(&namespace, completed["metadata"]["name"].as_str().unwrap_or(name));
        let given = Given { name: &key, document: &object, has_cluster: self.has_cluster };
        let policy = self.policy;
        let mut decisions = Vec::new();
        let mut decide = |resource: &Resource, object: &Value, view: &View| {
            let decision = decide_creation(resource, &namespace, object, view, policy)
                .map_err(|error| format_error(resource, &error))?;
            let decided = summarize(decisions.len(), &decision);
            decisions.push(decision);
            Ok(decided)
        };
        let preview = match (kind.preview)(&given, view, policy, &mut decide) {
            Ok(preview) => preview,
            Err(problem) => {
                self.problem(document, &item, &problem);
                return None;
            }
        };
        let decision = match preview.decision {
            Some(number) => decisions.swap_remove(number),
            None => Decision::Pass(Pass::NoKeys),
        };
        let patch = match &decision {
            Decision::Admit(admission) if preview.is_of_object => {
                admission.patch.operations().iter().map(|operation| json!(operation)).collect()
            }
            _ => Vec::new(),
        };
        Some(Planned {
            name: name.to_owned(),
            wants_cluster: !self.has_cluster
                && preview.verdict.is_none()
                && depends_on_cluster(&decision),
            decision,
            patch,
            preview,
            misplaced: Vec::new(),
            namespace,
            document,
            item,
        })
    }

    /// Adds the fields to an object of the input that the API server would add.
    fn complete(&self, document: usize, item: &Item<'_>, kind: &PreviewedKind, object: &mut Value) {
        let (Some(complete), Some(Value::Object(metadata))) =
            (kind.complete, object.get_mut("metadata"))
        else {
            return;
        };
        let position =
            format!("{document}-{}", item.pointer.rsplit('/').next().unwrap_or_default());
        complete(
            metadata,
            &Completion { document: item.value, position: &position, now: self.now },
        );
    }

    /// Decides on an object that is a pod or has a pod template. `None` if there is a problem,
    /// which is recorded.
    fn plan<'d>(
        &mut self,
        document: usize,
        item: Item<'d>,
        pointer: &'static str,
        view: &View,
    ) -> Option<Planned<'d>> {
        let namespace = self.namespace_of(&item);
        let Some((name, _)) = template::name(item.value) else {
            self.problem(document, &item, NAMELESS);
            return None;
        };
        let planned = template::expand(&item, pointer, &namespace).and_then(|expanded| {
            let decision = decide_creation(&POD, &namespace, &expanded.pod, view, self.policy)
                .map_err(|error| format_error(&POD, &error))?;
            Ok((expanded, decision))
        });
        let (expanded, decision) = match planned {
            Ok(planned) => planned,
            Err(problem) => {
                self.problem(document, &item, &problem);
                return None;
            }
        };
        let patch = match &decision {
            Decision::Admit(admission) => {
                rebase(&admission.patch.operations(), &expanded, item.value)
            }
            _ => Vec::new(),
        };
        Some(Planned {
            namespace,
            name: name.to_owned(),
            wants_cluster: !self.has_cluster && depends_on_cluster(&decision),
            decision,
            patch,
            preview: Preview::default(),
            misplaced: template::find_misplaced(&item, pointer),
            document,
            item,
        })
    }
}

/// The namespace that an object names; an empty one counts as absent.
fn find_namespace<'d>(item: &Item<'d>) -> Option<&'d str> {
    let namespace = item.value.pointer("/metadata/namespace").and_then(Value::as_str);
    namespace.filter(|namespace| !namespace.is_empty())
}

/// The kind of `item`, if decisions on the rest of the input may depend on such an object. Nodes and pods
/// come from the cluster alone.
fn read_by_decisions(item: &Item<'_>) -> Option<&'static Resource> {
    let mut resources = systems::TABLES.iter().map(|table| &table.kind().resource);
    let resource = resources.find(|resource| resource.kind == item.kind)?;
    (*resource != NODE && template::find_template(item).is_none()).then_some(resource)
}

/// The kind of `item`, if a system previews it.
fn find_preview(item: &Item<'_>) -> Option<&'static PreviewedKind> {
    let group = item.version.rsplit_once('/').map_or("", |(group, _)| group);
    let kinds = SYSTEMS.iter().flat_map(|system| system.previews);
    let mut kinds = kinds.map(|kind| (&kind.resource, kind));
    kinds
        .find(|(resource, _)| resource.group == group && resource.kind == item.kind)
        .map(|(_, kind)| kind)
}

/// Summarizes a decision for previews.
fn summarize(number: usize, decision: &Decision) -> Decided {
    let (verdict, changes, warnings, refusal) = match decision {
        Decision::Admit(Admission { intents, warnings, .. }) => {
            let verdict = if intents.is_empty() { Verdict::Admitted } else { Verdict::Placed };
            let changes = intents.iter().map(|intent| intent.change.to_string()).collect();
            (verdict, changes, warnings.as_slice(), None)
        }
        Decision::Refuse(refusal) => {
            (Verdict::Refused, Vec::new(), refusal.warnings.as_slice(), Some(refusal.message()))
        }
        _ => (Verdict::Passed, Vec::new(), &[][..], None),
    };
    let warnings = warnings.iter().map(|warning| warning.as_str().to_owned()).collect();
    Decided { number, verdict, changes, warnings, refusal }
}

/// Formats a parse error without its position, which is that in the generated review.
fn format_error(resource: &Resource, error: &ParseError) -> String {
    if !resource.group.is_empty() {
        return error.to_string();
    }
    let (ParseError::Json(text) | ParseError::Object { problem: text, .. }) = error else {
        return error.to_string();
    };
    let end = text.rfind(" at line ").unwrap_or(text.len());
    let kind = if *resource == POD { "pod" } else { resource.kind };
    format!("not a valid {kind}: {}", &text[..end])
}

/// Whether the first finding of a decision is about objects of the cluster.
fn depends_on_cluster(decision: &Decision) -> bool {
    let findings = match decision {
        Decision::Refuse(refusal) => &refusal.findings,
        Decision::Admit(admission) => &admission.findings,
        _ => return false,
    };
    findings.first().is_some_and(|finding| finding.reason.stage() == Stage::Cluster)
}
