//! Variables in the texts of a run, which Tekton replaces before or while the run is active.

use std::collections::HashMap;

use serde_json::Value;

use super::pipeline::PipelineTask;
use super::tekton::VARIABLE;
use crate::view::document::{Part, Reader};

/// The params of a run whose values are strings.
#[derive(Debug, Default)]
pub(crate) struct Params<'v>(HashMap<&'v str, &'v str>);

/// A text in which the params of the run are replaced, and no other variable is left.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Resolved {
    text: Box<str>,
    /// The params that were replaced.
    params: Box<[Box<str>]>,
}

impl Resolved {
    /// Returns the text as it is for a task. `None`: the task has its own value for one of the params, by its
    /// matrix for example, or the task is not known and may have.
    #[must_use]
    pub(crate) fn of_task(&self, task: Option<&PipelineTask>) -> Option<&str> {
        let is_runs = |param| task.is_some_and(|task| !task.own_params.contains(param));
        self.params.iter().all(is_runs).then_some(&self.text)
    }
}

impl<'v> Params<'v> {
    /// Reads the params of a run.
    pub(super) fn read(reader: &mut Reader, spec: &Part<'v>) -> Self {
        let params = reader.parts(spec, "params");
        let texts = params.iter().filter_map(|param| {
            Some((param.value("name")?.as_str()?, param.value("value")?.as_str()?))
        });
        Self(texts.collect())
    }

    /// Reads the params of the document of a run.
    pub(crate) fn of_document(run: &'v Value) -> Self {
        let params = run.pointer("/spec/params").and_then(Value::as_array).into_iter().flatten();
        let texts = params.filter_map(|of| Some((of["name"].as_str()?, of["value"].as_str()?)));
        Self(texts.collect())
    }

    /// Replaces the variables of the run's params in `text`, as Tekton does for workspaces before a run
    /// starts (`ApplyParametersToWorkspaceBindings`). `None` if another variable is left.
    pub(super) fn resolve(&self, text: &str) -> Option<Resolved> {
        const START: &str = "$(params";
        let mut result = String::new();
        let mut params: Vec<Box<str>> = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(START) {
            let after = &rest[at + START.len()..];
            let found =
                [(".", ")"), ("['", "'])"), ("[\"", "\"])")].iter().find_map(|(open, close)| {
                    let (name, after) = after.strip_prefix(open)?.split_once(close)?;
                    Some((name, *self.0.get(name)?, after))
                });
            let (name, value, after) = found?;
            params.push(name.into());
            result.push_str(&rest[..at]);
            result.push_str(value);
            rest = after;
        }
        result.push_str(rest);
        let is_known = !result.contains(VARIABLE);
        is_known.then(|| Resolved { text: result.into(), params: params.into() })
    }

    /// Resolves a text that belongs to no task.
    pub(super) fn resolve_of_run(&self, text: &str) -> Option<Box<str>> {
        self.resolve(text).map(|resolved| resolved.text)
    }

    /// Returns a pod template without variables. Each field, or each item and member of a field, in which
    /// a variable is left is left out: the API server would refuse it. `nodeSelector` is not resolved,
    /// because tasks may have other values of its params: the node selector of a group says what is known.
    pub(crate) fn resolve_template(&self, template: Value) -> Value {
        let Value::Object(fields) = template else { return template };
        let fields = fields.into_iter().filter_map(|(key, mut value)| {
            let is_known = |value: &mut Value| match &*key {
                "nodeSelector" => !has_variable(value),
                _ => self.resolve_all(value),
            };
            match &mut value {
                Value::Object(members) => members.retain(|_, member| is_known(member)),
                Value::Array(items) => items.retain_mut(is_known),
                scalar => return is_known(scalar).then_some((key, value)),
            }
            Some((key, value))
        });
        Value::Object(fields.collect())
    }

    /// Resolves all texts of a value. Returns whether no variable is left.
    fn resolve_all(&self, value: &mut Value) -> bool {
        match value {
            Value::String(text) => match self.resolve_of_run(text) {
                Some(resolved) => {
                    *text = resolved.into();
                    true
                }
                None => false,
            },
            Value::Array(items) => items.iter_mut().all(|item| self.resolve_all(item)),
            Value::Object(members) => members.values_mut().all(|member| self.resolve_all(member)),
            _ => true,
        }
    }
}

fn has_variable(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.contains(VARIABLE))
}
