//! Adds the objects of the input on which decisions may depend to the View, before any of them is planned.

use k8s_openapi::jiff::SignedDuration;
use serde_json::Value;

use super::definition::{self, Definition};
use super::entry::Entry;
use super::planner::{NAMELESS, Planner, format_error};
use super::settle::{Stage, Written};
use stowplan_core::admission::stored::Unreviewed;
use stowplan_core::admission::{Decision, Refusal};
use stowplan_core::systems::preview::{Completion, PreviewedKind};
use stowplan_core::systems::{self, View};
use stowplan_core::text::quoted;

impl Planner<'_> {
    /// Reports an object that names another namespace than `--namespace` does.
    fn check_namespace(&mut self, entry: &Entry<'_>) {
        if let (Some(own), Some(given)) = (entry.namespace(), self.given)
            && own != given
        {
            let (own, given) = (quoted(own), quoted(given));
            let problem = format!("is in namespace {own}, and -n asks for {given}: leave -n out");
            self.report_problem(entry, &problem);
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
        let (mut written, mut malformed) = (Vec::new(), Vec::new());
        for (index, entry) in entries.iter().enumerate() {
            self.check_namespace(entry);
            let Some(object) = self.complete(entry) else { continue };
            if entry.name.is_none() {
                // One that is planned is reported then.
                if entry.previewed_kind().is_none() {
                    self.report_problem(entry, NAMELESS);
                }
                continue;
            }
            match systems::object(object.clone()) {
                Err(problem) => {
                    // Of stowplan's own kinds, the definition says which field is wrong.
                    let definition = Definition::find(&entry.item);
                    match definition.map(|definition| definition.check(&object, None)) {
                        Some(findings) if !findings.is_empty() => {
                            let refusal = Refusal { findings, warnings: Vec::new() };
                            malformed.push((index, (object, Ok(Decision::Refuse(refusal)))));
                        }
                        _ => self.report_problem(entry, &problem),
                    }
                }
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
        for (index, written) in malformed {
            entries[index].written = Some(written);
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
            entry.written = Some((written.object, decision));
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
        let PreviewedKind { resource, .. } =
            entry.previewed_kind().expect("stowplan's own kinds are previewed");
        let Written { object, old } = written;
        let (namespace, policy) = (self.namespace_of(entry), self.policy);
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

    /// An object of the input with the fields that the API server would add. `None`: decisions do not
    /// depend on such an object before it is planned itself.
    fn complete(&self, entry: &Entry<'_>) -> Option<Value> {
        let Entry { item, name, .. } = entry;
        let resource = entry.read_by_decisions()?;
        let mut object = self.object_of(entry);
        definition::complete(&mut object);
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            if resource.namespaced {
                metadata.insert("namespace".to_owned(), self.namespace_of(entry).into());
            }
            if let Some(name) = name {
                metadata.insert("name".to_owned(), name.as_str().into());
            }
            if let Some(complete) = entry.previewed_kind().and_then(|kind| kind.complete) {
                let index = item.pointer.rsplit('/').next().unwrap_or_default();
                let position = format!("{}-{index}", entry.document);
                complete(metadata, &Completion { position: &position, now: self.now });
            }
        }
        Some(object)
    }
}
