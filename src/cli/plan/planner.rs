//! Decides on each object of the input, in the order of the input: as if the objects were created one
//! after the other.

use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use super::entry::{Entry, Statuses};
use super::patch::rebase;
use crate::cli::input::names::name;
use crate::cli::input::{Document, Problems};
use crate::cli::report::{self, Planned};
use crate::cli::template;
use stowplan_core::admission::stored::Unreviewed;
use stowplan_core::admission::{Decision, ParseError, Pass};
use stowplan_core::placement::reason;
use stowplan_core::systems::fit::{self, Candidate, PodNeeds, Question};
use stowplan_core::systems::policy::Policy;
use stowplan_core::systems::preview::{Decided, Given, Preview, PreviewedKind, Verdict};
use stowplan_core::systems::{self, DIAGNOSTICS, View};
use stowplan_core::view::Name;
use stowplan_core::view::resource::{POD, Resource};

/// The problem of an object without a name.
pub(super) const NAMELESS: &str = "has neither metadata.name nor metadata.generateName";

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
    /// The number of objects that create no pods and are not previewed.
    pub(super) others: usize,
}

impl Planner<'_> {
    /// Records a problem with the location of its object.
    pub(super) fn report_problem(&mut self, entry: &Entry<'_>, problem: &str) {
        let location = &self.documents[entry.document].location;
        let object = entry.item.locate(location, entry.name.as_deref());
        self.problems.push(format!("{object}: {problem}"));
    }

    /// The namespace of an object, by the rules of kubectl. `check_namespace` reports one that
    /// kubectl would refuse.
    pub(super) fn namespace_of(&self, entry: &Entry<'_>) -> String {
        entry.namespace().unwrap_or(self.namespace).to_owned()
    }

    /// An object of the input with the status that it would have: that in the cluster. The API server takes
    /// none from who writes the object.
    pub(super) fn object_of(&self, entry: &Entry<'_>) -> Value {
        let mut object = entry.item.to_object();
        if let Some(members) = object.as_object_mut() {
            members.remove("status");
            let known = self.statuses.find(entry, &self.namespace_of(entry));
            members.extend(known.map(|status| ("status".to_owned(), status.clone())));
        }
        object
    }

    /// Decides on an object. Nothing: it creates no pods and is not previewed, or there is a problem,
    /// which is recorded.
    pub(super) fn decide<'d>(
        &mut self,
        entry: &mut Entry<'d>,
        view: &mut View,
    ) -> Vec<Planned<'d>> {
        let mut planned = Vec::new();
        if let Some(kind) = entry.previewed_kind() {
            planned.push(self.preview(entry, kind, view));
        } else {
            let templates = entry.templates();
            if templates.is_empty() {
                planned.extend(self.plan_unknown(entry).map(Ok));
            } else {
                planned = self.plan_claims(entry, view);
                planned.extend(templates.iter().map(|pointer| self.plan(entry, pointer, view)));
            }
        }
        let or_problem = |planned: Result<_, String>| {
            planned.map_err(|problem| self.report_problem(entry, &problem)).ok()
        };
        planned.into_iter().filter_map(or_problem).collect()
    }

    /// Plans an object with keys of which it is not known which pods are made for it. `None`: it
    /// has no name, or no keys and is counted in `others`.
    fn plan_unknown<'d>(&mut self, entry: &Entry<'d>) -> Option<Planned<'d>> {
        let keys = entry.find_keys();
        self.others += usize::from(keys.is_empty());
        if keys.is_empty() || entry.name.is_none() {
            return None;
        }
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
        let planned = self.planned(entry, Decision::Pass(Pass::NoKeys), preview);
        Some(Planned { unplayed: Some(String::new()), ..planned })
    }

    /// The plan of an object with this decision and preview, and nothing beside them.
    fn planned<'d>(&self, entry: &Entry<'d>, decision: Decision, preview: Preview) -> Planned<'d> {
        // The verdict of a system has its own note about what is not known.
        let hint = self.unknown.filter(|_| preview.verdict.is_none() && is_of_cluster(&decision));
        Planned {
            item: entry.item.clone(),
            namespace: self.namespace_of(entry),
            name: entry.name.clone().unwrap_or_default(),
            decision,
            patch: Vec::new(),
            preview,
            misplaced: Vec::new(),
            hint: hint.map(str::to_owned),
            withheld: None,
            document: entry.document,
            unplayed: None,
            claim: None,
        }
    }

    /// Gets the preview of an object from its system.
    ///
    /// # Errors
    /// Returns the reason why the object is invalid.
    fn preview<'d>(
        &self,
        entry: &mut Entry<'d>,
        kind: &PreviewedKind,
        view: &mut View,
    ) -> Result<Planned<'d>, String> {
        let name = entry.name.as_deref().ok_or(NAMELESS)?;
        let key = Name::new(&self.namespace_of(entry), name);
        let (object, decided) = match entry.written.take() {
            Some((object, decided)) => (object, Some(decided)),
            None => (self.object_of(entry), None),
        };
        let (preview, decision) = self.ask(kind, &key, &object, decided, view)?;
        let patch = match &decision {
            Decision::Admit(admission) if preview.is_of_object => {
                admission.patch.operations().iter().map(|operation| json!(operation)).collect()
            }
            _ => Vec::new(),
        };
        Ok(Planned { patch, ..self.planned(entry, decision, preview) })
    }

    /// Gets the preview of an object of this kind from its system, and the decision that represents
    /// it. `decided` is that on the object itself, if there is one already.
    ///
    /// # Errors
    /// Returns the reason why the object is invalid.
    fn ask(
        &self,
        kind: &PreviewedKind,
        key: &Name,
        object: &Value,
        mut decided: Option<Result<Decision, String>>,
        view: &mut View,
    ) -> Result<(Preview, Decision), String> {
        let given = Given { name: key, document: object, has_cluster: self.has_cluster };
        let mut decisions = Vec::new();
        let mut decide = |resource: &Resource, object: &Value, view: &View| {
            let decision = match decided.take() {
                Some(decided) => decided?,
                None => self.decide_creation(resource, &key.namespace, object, view)?,
            };
            let decided = summarize(decisions.len(), &decision);
            decisions.push(decision);
            Ok(decided)
        };
        let preview = (kind.preview)(&given, view, self.policy, &mut decide)?;
        let decision = match preview.decision {
            Some(number) => decisions.swap_remove(number),
            None => Decision::Pass(Pass::NoKeys),
        };
        Ok((preview, decision))
    }

    /// Decides as if an object were created now.
    ///
    /// # Errors
    /// Returns the reason why the object is invalid.
    fn decide_creation(
        &self,
        resource: &Resource,
        namespace: &str,
        object: &Value,
        view: &View,
    ) -> Result<Decision, String> {
        let unreviewed = Unreviewed { resource, namespace, object, view, policy: self.policy };
        unreviewed.decide_creation().map_err(|error| format_error(resource, &error))
    }

    /// Plans the claims that the controller of a StatefulSet creates before its first pod.
    fn plan_claims<'d>(
        &self,
        entry: &Entry<'d>,
        view: &mut View,
    ) -> Vec<Result<Planned<'d>, String>> {
        let owner = entry.name.as_deref().unwrap_or_default();
        let claims = match template::claims(&entry.item, owner, &self.namespace_of(entry)) {
            Ok(claims) => claims,
            Err(problem) => return vec![Err(problem)],
        };
        let plan = |(pointer, claim): (String, Value)| {
            let planned = self.plan_claim(entry, &pointer, claim, view);
            let path = template::format_pointer(&pointer);
            planned.map_err(|problem| format!("{path}: {problem}")).transpose()
        };
        claims.into_iter().filter_map(plan).collect()
    }

    /// Decides on a claim, which is made from the template at a pointer, and adds it to the View.
    /// `None`: it has no keys.
    fn plan_claim<'d>(
        &self,
        entry: &Entry<'d>,
        pointer: &str,
        mut claim: Value,
        view: &mut View,
    ) -> Result<Option<Planned<'d>>, String> {
        let mut kinds = DIAGNOSTICS.iter().flat_map(|system| system.previews);
        let kind = kinds.find(|kind| kind.resource.kind == template::CLAIM);
        let kind = kind.expect("a system previews claims");
        let name = claim["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let key = Name::new(&self.namespace_of(entry), &name);
        let (preview, decision) = self.ask(kind, &key, &claim, None, view)?;
        let mut patch = Vec::new();
        if let Decision::Admit(admission) = &decision {
            let operations = admission.patch.operations();
            patch = rebase(&operations, pointer, entry.item.value);
            // The object is for the View: it has no class that the patch could miss.
            let _ = json_patch::patch(&mut claim, &operations);
        }
        if !matches!(decision, Decision::Refuse(_))
            && let Ok(Some(claim)) = systems::object(claim)
        {
            view.apply(claim);
        }
        let has_keys = !matches!(decision, Decision::Pass(Pass::NoKeys));
        let planned = self.planned(entry, decision, preview);
        Ok(has_keys.then_some(Planned { patch, claim: Some(name), ..planned }))
    }

    /// Decides on an object that is a pod or has a pod template, and adds its pod to the View.
    ///
    /// # Errors
    /// Returns the reason why the object is invalid.
    fn plan<'d>(
        &mut self,
        entry: &Entry<'d>,
        pointer: &str,
        view: &mut View,
    ) -> Result<Planned<'d>, String> {
        let Entry { item, name: of_object, .. } = entry;
        let of_object = of_object.as_deref().ok_or(NAMELESS)?;
        let namespace = self.namespace_of(entry);
        let mut pod = template::expand(item, of_object, pointer, &namespace)?;
        let mut preview = match template::is_for_each_node(item) {
            true => pin_to_one(&mut pod, view),
            false => Preview::default(),
        };
        let decision = self.decide_creation(&POD, &namespace, &pod, view)?;
        if matches!(decision, Decision::Pass(_)) {
            preview = Preview::default();
        }
        let unplayed = template::find_template(item).is_none();
        let unplayed = unplayed.then(|| template::format_pointer(pointer));
        let mut patch = Vec::new();
        let mut is_patched = true;
        if let Decision::Admit(admission) = &decision {
            let operations = admission.patch.operations();
            patch = rebase(&operations, pointer, item.value);
            template::redirect(item, &mut patch);
            is_patched = json_patch::patch(&mut pod, &operations).is_ok();
        }
        if !matches!(decision, Decision::Refuse(_)) {
            let name = match name(&pod) {
                Some((name, true)) => name.to_owned(),
                // Its name does not exist: messages about it name the object.
                Some((_, false)) if !pointer.is_empty() => {
                    let of = format!("of {} {of_object}", item.kind);
                    unplayed.iter().fold(of, |of, path| format!("{of}, {path}"))
                }
                _ => of_object.to_owned(),
            };
            pod["metadata"]["name"] = name.into();
            // Later pods of the input are decided as in a cluster that has this one.
            if is_patched && let Ok(Some(pod)) = systems::object(pod) {
                let name = pod.name().clone();
                view.apply(pod);
                let explained = (systems::EXPLANATION.explain)(view, self.policy, &name);
                let explained = explained.unwrap_or_default();
                preview.text += &explained.text;
                preview.waits = explained.waits;
                preview.fields.extend(explained.fields);
            }
            if !pointer.is_empty() {
                self.add_creator(entry, of_object, &namespace, view);
            }
        }
        let misplaced = template::find_misplaced(item, pointer);
        Ok(Planned { patch, misplaced, unplayed, ..self.planned(entry, decision, preview) })
    }

    /// Adds an object that creates pods to the View.
    fn add_creator(&mut self, entry: &Entry<'_>, name: &str, namespace: &str, view: &mut View) {
        let mut object = self.object_of(entry);
        object["metadata"]["namespace"] = namespace.into();
        object["metadata"]["name"] = name.into();
        match systems::object(object) {
            Ok(Some(object)) => {
                self.creators.push((*object.resource(), object.name().clone()));
                view.apply(object);
            }
            Ok(None) => {}
            Err(problem) => self.report_problem(entry, &problem),
        }
    }
}

/// Binds a DaemonSet's pod to the first by name of the nodes that get one. Returns the preview with
/// it.
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

/// Summarizes a decision for previews.
fn summarize(number: usize, decision: &Decision) -> Decided {
    let (intents, _, warnings) = report::parts(decision);
    let verdict = match decision {
        Decision::Admit(_) if intents.is_empty() => Verdict::Admitted,
        Decision::Admit(_) => Verdict::Placed,
        Decision::Refuse(_) => Verdict::Refused,
        _ => Verdict::Passed,
    };
    let refusal = match decision {
        Decision::Refuse(refusal) => Some(refusal.message()),
        _ => None,
    };
    let changes = intents.iter().map(|intent| intent.change.to_string()).collect();
    let warnings = warnings.iter().map(|warning| warning.as_str().to_owned()).collect();
    Decided { number, verdict, changes, warnings, refusal }
}

/// Formats a parse error without its position, which is that in the generated review.
pub(super) fn format_error(resource: &Resource, error: &ParseError) -> String {
    let (ParseError::Json(text) | ParseError::Object { problem: text, .. }) = error else {
        return error.to_string();
    };
    let end = text.rfind(" at line ").unwrap_or(text.len());
    let kind = if *resource == POD { "pod" } else { resource.kind };
    format!("not a valid {kind}: {}", &text[..end])
}

/// Returns true if the first finding of a decision is about objects of the cluster.
fn is_of_cluster(decision: &Decision) -> bool {
    let (_, findings, _) = report::parts(decision);
    findings.first().is_some_and(|finding| finding.reason.stage() == reason::Stage::Cluster)
}
