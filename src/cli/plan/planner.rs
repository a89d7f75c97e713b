//! Decides on each object of the input, in the order of the input: as if the objects were created one
//! after the other.

use std::collections::{HashMap, HashSet};

use json_patch::Patch;
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use super::definition::{self, Definition};
use super::patch::rebase;
use super::settle::{self, Stage, Written};
use crate::cli::input::{self, Document, Generator, Item, Problems};
use crate::cli::report::Planned;
use crate::cli::template;
use stowplan_core::admission::stored::Unreviewed;
use stowplan_core::admission::{Admission, Decision, ParseError, Pass, Refusal};
use stowplan_core::placement::reason;
use stowplan_core::systems::fit::{self, Candidate, PodNeeds, Question};
use stowplan_core::systems::policy::Policy;
use stowplan_core::systems::preview::{
    Completion, Decided, Given, Preview, PreviewedKind, Verdict,
};
use stowplan_core::systems::{self, DIAGNOSTICS, View};
use stowplan_core::text::quoted;
use stowplan_core::view::Name;
use stowplan_core::view::resource::{NODE, POD, Resource};

/// The problem of an object without a name.
const NAMELESS: &str = "has neither metadata.name nor metadata.generateName";

/// An object of the input.
#[derive(Debug)]
pub(super) struct Entry<'d> {
    /// The index of its document.
    document: usize,
    item: Item<'d>,
    /// Its name, or one that the API server could generate. `None`: it has neither.
    name: Option<String>,
    /// The object as it is written, if the controller writes its status, and the decision.
    written: Option<(Written, Result<Decision, String>)>,
}

impl Entry<'_> {
    /// Returns true if the controller writes the status of such an object before pods can use it.
    pub(super) fn is_settled(&self) -> bool {
        settle::is_settled(&self.item.version, &self.item.kind)
    }

    /// Returns true if a system explains the decision on its pods by the state of the cluster.
    pub(super) fn is_explained(&self) -> bool {
        self.templates().iter().any(|pointer| {
            let annotations = self.item.value.pointer(&format!("{pointer}/metadata/annotations"));
            let Some(annotations) = annotations.and_then(Value::as_object) else { return false };
            systems::EXPLANATION.keys.iter().any(|key| annotations.contains_key(*key))
        })
    }

    /// The JSON pointers to the templates of the pods that are made for the object.
    fn templates(&self) -> Vec<String> {
        match template::find_template(&self.item) {
            Some(pointer) => vec![pointer.to_owned()],
            None if read_by_decisions(&self.item).is_some() => Vec::new(),
            None => template::find_templates(self.item.value),
        }
    }

    /// Finds keys of stowplan in an object of a kind that is neither Kubernetes' own nor known here.
    fn find_keys(&self) -> Vec<String> {
        let group = self.item.group();
        let is_of_kubernetes = !group.contains('.') || group.ends_with(".k8s.io");
        match is_of_kubernetes || read_by_decisions(&self.item).is_some() {
            true => Vec::new(),
            false => template::find_keys(self.item.value),
        }
    }
}

/// Returns the objects of the input, with their names.
pub(super) fn read<'d>(
    documents: &'d [Document],
    names: &mut Generator,
    problems: &mut Problems,
) -> Vec<Entry<'d>> {
    let mut entries = Vec::new();
    for (document, of) in documents.iter().enumerate() {
        entries.extend(of.items(problems).into_iter().map(|item| {
            let name = names.name(item.value);
            Entry { document, item, name, written: None }
        }));
    }
    entries
}

/// The statuses of those objects of the cluster that the input has, too.
#[derive(Debug)]
pub(super) struct Statuses {
    /// The kinds and names of the objects of the input.
    asked: HashSet<(String, String)>,
    /// By kind and name. Null: the object has none.
    known: HashMap<(String, Name), Value>,
}

impl Statuses {
    pub(super) fn new(entries: &[Entry<'_>]) -> Self {
        let asked = entries
            .iter()
            .filter_map(|Entry { item, name, .. }| Some((item.kind.clone(), name.clone()?)));
        Self { asked: asked.collect(), known: HashMap::new() }
    }

    /// Keeps the status of an object of the cluster.
    pub(super) fn keep(&mut self, document: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let asked = (text(&document["kind"]), text(&document["metadata"]["name"]));
        if self.asked.contains(&asked) {
            let namespace = document["metadata"]["namespace"].as_str().unwrap_or("default");
            let name = Name::new(namespace, &asked.1);
            self.known.insert((asked.0, name), document["status"].clone());
        }
    }
}

pub(super) struct Planner<'a> {
    pub(super) documents: &'a [Document],
    /// The value of `--namespace`.
    pub(super) given: Option<&'a str>,
    /// The namespace of objects that name none.
    pub(super) namespace: &'a str,
    pub(super) has_cluster: bool,
    /// The part of the cluster that is not known and could change a decision, for people.
    pub(super) unknown: Option<&'a str>,
    pub(super) policy: &'a Policy,
    /// The creation time of objects without one.
    pub(super) now: Timestamp,
    pub(super) statuses: Statuses,
    pub(super) problems: Problems,
    /// The objects of the input that create pods.
    pub(super) creators: Vec<(Resource, Name)>,
}

impl Planner<'_> {
    fn problem(&mut self, entry: &Entry<'_>, problem: &str) {
        let location = &self.documents[entry.document].location;
        let name = entry.name.as_deref().unwrap_or_default();
        let object = format!("{} {name}", entry.item.kind);
        self.problems.push(format!("{location}: {}: {problem}", object.trim_end()));
    }

    /// The namespace of an object, by the rules of kubectl. `check_namespace` reports one that
    /// kubectl would refuse.
    fn namespace_of(&self, item: &Item<'_>) -> String {
        find_namespace(item).unwrap_or(self.namespace).to_owned()
    }

    /// Reports an object that names another namespace than `--namespace` does.
    fn check_namespace(&mut self, entry: &Entry<'_>) {
        if let (Some(own), Some(given)) = (find_namespace(&entry.item), self.given)
            && own != given
        {
            let problem = format!(
                "is in namespace {}, and -n asks for {}: leave -n out",
                quoted(own),
                quoted(given)
            );
            self.problem(entry, &problem);
        }
    }

    /// Adds the objects of the input to the View on which decisions may depend. `stage` is the cluster
    /// as the controller sees it; `None`: the controller has nothing to do for the input.
    pub(super) fn add_to_view(
        &mut self,
        entries: &mut [Entry<'_>],
        view: &mut View,
        mut stage: Option<Stage>,
    ) {
        let mut written = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            self.check_namespace(entry);
            let Some(object) = self.complete(entry) else { continue };
            if entry.name.is_none() {
                // One that is planned is reported then.
                if find_preview(&entry.item).is_none() {
                    self.problem(entry, NAMELESS);
                }
                continue;
            }
            match systems::object(object.clone()) {
                Err(problem) => self.problem(entry, &problem),
                Ok(_) if entry.is_settled() => {
                    if let Some(stage) = &mut stage {
                        // The earlier objects are the older ones.
                        let age = SignedDuration::from_secs((entries.len() - index) as i64);
                        let created = self.now.checked_sub(age).unwrap_or(self.now);
                        written.push((index, stage.add_input(object, created)));
                    }
                }
                Ok(read) => {
                    read.into_iter().for_each(|read| view.apply(read));
                    if let Some(stage) = &mut stage {
                        stage.add(object);
                    }
                }
            }
        }
        if let Some(stage) = stage {
            self.decide_settled(entries, written, view, stage);
        }
    }

    /// Decides on the objects whose status the controller writes, in their order, and adds them to
    /// the View as the controller would leave them.
    fn decide_settled(
        &self,
        entries: &mut [Entry<'_>],
        written: Vec<(usize, Written)>,
        view: &mut View,
        mut stage: Stage,
    ) {
        let apply = |view: &mut View, settled: &[Value]| {
            let objects =
                settled.iter().filter_map(|object| systems::object(object.clone()).ok()?);
            objects.for_each(|object| view.apply(object));
        };
        stage.begin(self.policy, self.now);
        let mut settled = stage.settle();
        let mut refused = Vec::new();
        let mut accepted: Vec<usize> = Vec::new();
        for (position, (index, written)) in written.into_iter().enumerate() {
            let entry = &mut entries[index];
            let decision = self.decide_written(entry, &written, view);
            if matches!(decision, Ok(Decision::Refuse(_))) {
                // It never exists, so it takes nothing from the others.
                stage.withdraw(&written, &settled[position]);
                refused.push(std::mem::take(&mut settled[position]));
                settled = stage.settle();
                accepted.iter().for_each(|earlier| apply(view, &settled[*earlier]));
            } else {
                apply(view, &settled[position]);
                accepted.push(position);
            }
            entry.written = Some((written, decision));
        }
        // A pod that needs one of these is told what is wrong with it.
        refused.iter().for_each(|settled| apply(view, settled));
    }

    /// Decides on an object of stowplan's own when those before it in the input exist, and those after
    /// it do not.
    fn decide_written(
        &self,
        entry: &Entry<'_>,
        written: &Written,
        view: &View,
    ) -> Result<Decision, String> {
        let Some(PreviewedKind { resource, .. }) = find_preview(&entry.item) else {
            return Ok(Decision::Pass(Pass::OutOfScope));
        };
        let Written { object, old } = written;
        let (namespace, policy) = (self.namespace_of(&entry.item), self.policy);
        let old = old.as_ref();
        let unreviewed = Unreviewed { resource, namespace: &namespace, object, view, policy };
        let decision =
            unreviewed.decide_as_written(old).map_err(|error| format_error(resource, &error))?;
        let Some(definition) = Definition::find(&entry.item) else { return Ok(decision) };
        let findings = definition.check(object, old);
        if findings.is_empty() {
            return Ok(decision);
        }
        let (of_webhook, warnings) = match decision {
            Decision::Refuse(refusal) => (refusal.findings, refusal.warnings),
            _ => (Vec::new(), Vec::new()),
        };
        let findings = definition.join(findings, of_webhook);
        Ok(Decision::Refuse(Refusal { findings, warnings }))
    }

    /// An object of the input with the status that it would have: that in the cluster. The API server takes
    /// none from who writes the object.
    fn object_of(&self, Entry { item, name, .. }: &Entry<'_>) -> Value {
        let mut object = item.to_object();
        let name = Name::new(&self.namespace_of(item), name.as_deref().unwrap_or_default());
        let known = self.statuses.known.get(&(item.kind.clone(), name));
        if let Some(members) = object.as_object_mut() {
            members.remove("status");
            let known = known.filter(|status| !status.is_null());
            members.extend(known.map(|status| ("status".to_owned(), status.clone())));
        }
        object
    }

    /// An object of the input with the fields that the API server would add. `None`: decisions do not
    /// depend on such an object before it is planned itself.
    fn complete(&self, entry: &Entry<'_>) -> Option<Value> {
        let Entry { item, name, .. } = entry;
        let resource = read_by_decisions(item)?;
        let mut object = self.object_of(entry);
        definition::complete(&mut object);
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            if resource.namespaced {
                metadata.insert("namespace".to_owned(), self.namespace_of(item).into());
            }
            if let Some(name) = name {
                metadata.insert("name".to_owned(), name.as_str().into());
            }
            if let Some(complete) = find_preview(item).and_then(|kind| kind.complete) {
                let index = item.pointer.rsplit('/').next().unwrap_or_default();
                let position = format!("{}-{index}", entry.document);
                complete(metadata, &Completion { position: &position, now: self.now });
            }
        }
        Some(object)
    }

    /// Decides on an object. Nothing: it creates no pods and is not previewed, or there is a problem,
    /// which is recorded. The count of the former is added to `others`.
    pub(super) fn decide<'d>(
        &mut self,
        entry: &mut Entry<'d>,
        view: &mut View,
        others: &mut usize,
    ) -> Vec<Planned<'d>> {
        if let Some(kind) = find_preview(&entry.item) {
            return self.preview(entry, kind, view).into_iter().collect();
        }
        let templates = entry.templates();
        if !templates.is_empty() {
            let mut planned = self.plan_claims(entry, view);
            planned.extend(templates.iter().filter_map(|pointer| self.plan(entry, pointer, view)));
            return planned;
        }
        let keys = entry.find_keys();
        if keys.is_empty() {
            *others += 1;
            return Vec::new();
        }
        self.admit_ignorance(entry, &keys).into_iter().collect()
    }

    /// Says that it is not known which pods are made for an object that has keys.
    fn admit_ignorance<'d>(&self, entry: &Entry<'d>, keys: &[String]) -> Option<Planned<'d>> {
        let line = |pointer: &String| {
            let (parent, key) = pointer.rsplit_once('/').unwrap_or_default();
            let key = key.replace("~1", "/");
            format!("  it has {key} in {}\n", template::format_pointer(parent))
        };
        let preview = Preview {
            verdict: Some("not known".to_owned()),
            text: keys.iter().map(line).collect(),
            ..Preview::default()
        };
        let planned = self.planned(entry, Decision::Pass(Pass::NoKeys))?;
        Some(Planned { preview, unplayed: Some(String::new()), ..planned })
    }

    /// The plan of an object with this decision, and nothing beside it. `None`: it has no name.
    fn planned<'d>(&self, entry: &Entry<'d>, decision: Decision) -> Option<Planned<'d>> {
        let (name, namespace) = (entry.name.clone()?, self.namespace_of(&entry.item));
        Some(Planned::new(entry.document, &entry.item, namespace, name, decision))
    }

    /// Gets the preview of an object from its system. `None` if there is a problem, which is
    /// recorded.
    fn preview<'d>(
        &mut self,
        entry: &mut Entry<'d>,
        kind: &PreviewedKind,
        view: &mut View,
    ) -> Option<Planned<'d>> {
        let namespace = self.namespace_of(&entry.item);
        let Some(name) = entry.name.clone() else {
            self.problem(entry, NAMELESS);
            return None;
        };
        let (object, decided) = match entry.written.take() {
            Some((written, decided)) => (written.object, Some(decided)),
            None => (self.object_of(entry), None),
        };
        let key = Name::new(&namespace, &name);
        let previewed = self.ask(kind, &key, &object, decided, view);
        let (preview, decision) =
            previewed.map_err(|problem| self.problem(entry, &problem)).ok()?;
        let patch = match &decision {
            Decision::Admit(admission) if preview.is_of_object => {
                admission.patch.operations().iter().map(|operation| json!(operation)).collect()
            }
            _ => Vec::new(),
        };
        let hint = self.find_hint(&decision).filter(|_| preview.verdict.is_none());
        let planned = self.planned(entry, decision)?;
        Some(Planned { patch, preview, hint, ..planned })
    }

    /// Gets the preview of an object of this kind from its system, and the decision that represents
    /// it. `decided` is that on the object itself, if there is one already.
    ///
    /// # Errors
    /// Why the object is invalid.
    fn ask(
        &self,
        kind: &PreviewedKind,
        key: &Name,
        object: &Value,
        mut decided: Option<Result<Decision, String>>,
        view: &mut View,
    ) -> Result<(Preview, Decision), String> {
        let given = Given { name: key, document: object, has_cluster: self.has_cluster };
        let policy = self.policy;
        let mut decisions = Vec::new();
        let mut decide = |resource: &Resource, object: &Value, view: &View| {
            let decision = match decided.take() {
                Some(decided) => decided?,
                None => Unreviewed { resource, namespace: &key.namespace, object, view, policy }
                    .decide_creation()
                    .map_err(|error| format_error(resource, &error))?,
            };
            let decided = summarize(decisions.len(), &decision);
            decisions.push(decision);
            Ok(decided)
        };
        let preview = (kind.preview)(&given, view, policy, &mut decide)?;
        let decision = match preview.decision {
            Some(number) => decisions.swap_remove(number),
            None => Decision::Pass(Pass::NoKeys),
        };
        Ok((preview, decision))
    }

    /// Decides on the claims that the controller of a StatefulSet creates before its first pod, and
    /// adds them to the View. Returns those that have keys; a problem is recorded.
    fn plan_claims<'d>(&mut self, entry: &Entry<'d>, view: &mut View) -> Vec<Planned<'d>> {
        let namespace = self.namespace_of(&entry.item);
        let mut kinds = DIAGNOSTICS.iter().flat_map(|system| system.previews);
        let Some(kind) = kinds.find(|kind| kind.resource.kind == template::CLAIM) else {
            return Vec::new();
        };
        let owner = entry.name.as_deref().unwrap_or_default();
        let claims = template::claims(&entry.item, owner, &namespace);
        let claims = claims.map_err(|problem| self.problem(entry, &problem)).unwrap_or_default();
        let mut planned = Vec::new();
        for (pointer, mut claim) in claims {
            let name =
                input::names::name(&claim).map(|(name, _)| name.to_owned()).unwrap_or_default();
            let key = Name::new(&namespace, &name);
            let (preview, decision) = match self.ask(kind, &key, &claim, None, view) {
                Ok(previewed) => previewed,
                Err(problem) => {
                    self.problem(
                        entry,
                        &format!("{}: {problem}", template::format_pointer(&pointer)),
                    );
                    continue;
                }
            };
            let mut patch = Vec::new();
            if let Decision::Admit(admission) = &decision {
                let operations = admission.patch.operations();
                patch = rebase(&operations, &pointer, entry.item.value);
                // The object is for the View: it has no class that the patch could miss.
                let _ = json_patch::patch(&mut claim, &Patch(operations));
            }
            if let (false, Ok(Some(claim))) =
                (matches!(decision, Decision::Refuse(_)), systems::object(claim))
            {
                view.apply(claim);
            }
            if !matches!(decision, Decision::Pass(Pass::NoKeys)) {
                let hint = self.find_hint(&decision);
                let of_claim = self.planned(entry, decision);
                planned.extend(of_claim.map(|of| Planned {
                    patch,
                    preview,
                    hint,
                    claim: Some(name),
                    ..of
                }));
            }
        }
        planned
    }

    /// Decides on an object that is a pod or has a pod template, and adds its pod to the View. `None`
    /// if there is a problem, which is recorded.
    fn plan<'d>(
        &mut self,
        entry: &Entry<'d>,
        pointer: &str,
        view: &mut View,
    ) -> Option<Planned<'d>> {
        let namespace = self.namespace_of(&entry.item);
        let Some(name) = entry.name.as_deref() else {
            self.problem(entry, NAMELESS);
            return None;
        };
        let unplayed = template::find_template(&entry.item).is_none();
        let unplayed = unplayed.then(|| template::format_pointer(pointer));
        let mut preview = Preview::default();
        let planned =
            template::expand(&entry.item, name, pointer, &namespace).and_then(|mut pod| {
                if template::is_for_each_node(&entry.item) {
                    preview = pin_to_one(&mut pod, view);
                }
                let (resource, namespace, policy) = (&POD, &*namespace, self.policy);
                let decision = Unreviewed { resource, namespace, object: &pod, view, policy }
                    .decide_creation()
                    .map_err(|error| format_error(&POD, &error))?;
                Ok((pod, decision))
            });
        let planned = planned.map_err(|problem| self.problem(entry, &problem));
        let (mut pod, decision) = planned.ok()?;
        if matches!(decision, Decision::Pass(_)) {
            preview = Preview::default();
        }
        let (operations, patch) = match &decision {
            Decision::Admit(admission) => {
                let operations = admission.patch.operations();
                let mut patch = rebase(&operations, pointer, entry.item.value);
                template::redirect(&entry.item, &mut patch);
                (operations, patch)
            }
            _ => (Vec::new(), Vec::new()),
        };
        if !matches!(decision, Decision::Refuse(_)) {
            let is_patched = json_patch::patch(&mut pod, &Patch(operations)).is_ok();
            let name = match input::names::name(&pod) {
                Some((name, true)) => name.to_owned(),
                // Its name does not exist: messages about it name the object.
                Some((_, false)) if !pointer.is_empty() => {
                    let of = format!("of {} {name}", entry.item.kind);
                    unplayed.iter().fold(of, |of, path| format!("{of}, {path}"))
                }
                _ => name.to_owned(),
            };
            pod["metadata"]["name"] = name.into();
            // Later pods of the input are decided as in a cluster that has this one.
            if let (true, Ok(Some(pod))) = (is_patched, systems::object(pod)) {
                let name = pod.name().clone();
                view.apply(pod);
                let explained = (systems::EXPLANATION.explain)(view, self.policy, &name);
                let explained = explained.unwrap_or_default();
                preview.text += &explained.text;
                preview.waits = explained.waits;
                preview.fields.extend(explained.fields);
            }
        }
        if !pointer.is_empty() && !matches!(decision, Decision::Refuse(_)) {
            self.add_creator(entry, &namespace, view);
        }
        let hint = self.find_hint(&decision);
        let misplaced = template::find_misplaced(&entry.item, pointer);
        let planned = self.planned(entry, decision)?;
        Some(Planned { patch, preview, misplaced, hint, unplayed, ..planned })
    }

    /// Adds an object that creates pods to the View.
    fn add_creator(&mut self, entry: &Entry<'_>, namespace: &str, view: &mut View) {
        let mut object = self.object_of(entry);
        let Some(name) = entry.name.as_deref() else { return };
        object["metadata"]["namespace"] = namespace.into();
        object["metadata"]["name"] = name.into();
        if let Ok(Some(object)) = systems::object(object) {
            self.creators.push((*object.resource(), object.name().clone()));
            view.apply(object);
        }
    }

    /// Returns the part of the cluster that is not known, if it could change the decision.
    fn find_hint(&self, decision: &Decision) -> Option<String> {
        let unknown = self.unknown.filter(|_| depends_on_cluster(decision));
        unknown.map(str::to_owned)
    }
}

/// Requires one of the nodes that get a pod, the first by name. Says which.
fn pin_to_one(pod: &mut Value, view: &View) -> Preview {
    let spec = PodSpec::deserialize(&pod["spec"]).unwrap_or_default();
    let needs = PodNeeds::of_spec(&spec);
    let is_selected = |candidate: &Candidate<'_>| {
        fit::first_obstacle(&Question::new(*candidate, &needs), fit::CHOICE).is_none()
    };
    let selected = Candidate::all_empty(view).filter(is_selected);
    let node = selected.map(|candidate| candidate.name).min().map(str::to_owned);
    template::pin(pod, node.as_deref().unwrap_or("unknown"));
    let shown = match &node {
        Some(node) => format!("shown for node {node}"),
        None => "none is known here; shown for one".to_owned(),
    };
    Preview {
        text: format!("  one pod for each node that it selects; {shown}\n"),
        fields: Map::from_iter([("node".to_owned(), json!(node))]),
        ..Preview::default()
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
    let resource = resources.find(|resource| is_of(item, resource))?;
    (*resource != NODE && template::find_template(item).is_none()).then_some(resource)
}

/// The kind of `item`, if a system previews it.
fn find_preview(item: &Item<'_>) -> Option<&'static PreviewedKind> {
    let mut kinds = DIAGNOSTICS.iter().flat_map(|system| system.previews);
    kinds.find(|kind| is_of(item, &kind.resource))
}

/// Returns true if `item` is of this kind, in any version.
fn is_of(item: &Item<'_>, resource: &Resource) -> bool {
    resource.kind == item.kind && resource.group == item.group()
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

/// Returns true if the first finding of a decision is about objects of the cluster.
fn depends_on_cluster(decision: &Decision) -> bool {
    let findings = match decision {
        Decision::Refuse(refusal) => &refusal.findings,
        Decision::Admit(admission) => &admission.findings,
        _ => return false,
    };
    findings.first().is_some_and(|finding| finding.reason.stage() == reason::Stage::Cluster)
}
