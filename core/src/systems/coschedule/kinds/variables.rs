//! Variables in the texts of a run, which Tekton replaces before or while the run is active.

use std::collections::HashMap;

use serde_json::Value;

use super::pipeline::{Pipeline, PipelineTask};
use super::tekton::VARIABLE;
use crate::view::document::items;

/// The params of a run whose values are strings.
#[derive(Debug, Default)]
pub(super) struct Params<'v>(HashMap<&'v str, &'v str>);

/// A param, and the values that it takes. None: they are not known.
pub(crate) type ParamValues = (Box<str>, Box<[Box<str>]>);

/// The longest value of a param that can be a name or the value of a label.
const LONGEST: usize = 253;

/// Returns the value of a param if it is a text without variables that can be a name or the value of a label.
pub(super) fn known_value(value: &Value) -> Option<Box<str>> {
    let text = value.as_str()?;
    (text.len() <= LONGEST && !text.contains(VARIABLE)).then(|| text.into())
}

/// A text with params, as far as their values are known. Tekton replaces them for each TaskRun.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Resolved {
    /// The text with the params of the run in it: one, or none if the run does not give them.
    of_run: Box<[Box<str>]>,
    /// The params in it.
    params: Box<[Box<str>]>,
    /// True if it is one param and nothing else.
    is_param: bool,
}

impl Resolved {
    /// Returns the values of the text in the TaskRuns of a task of a pipeline: more than one if the task has a
    /// matrix of its param, and none if they are not known. `None`: the task is not known, and may have
    /// its own value of each param.
    pub(crate) fn of_task<'v>(
        &'v self,
        of: Option<(&'v Pipeline, &'v PipelineTask)>,
    ) -> &'v [Box<str>] {
        let ([first, ..], Some((pipeline, task))) = (&*self.params, of) else {
            return if self.params.is_empty() { &self.of_run } else { &[] };
        };
        let values = |all: &'v [ParamValues], param: &str| {
            all.iter().find(|(name, _)| **name == *param).map(|(_, values)| &**values)
        };
        match values(&task.own_params, first) {
            Some(own) if self.is_param => own,
            None if self.is_param && self.of_run.is_empty() => {
                values(&pipeline.defaults, first).unwrap_or_default()
            }
            _ if self.params.iter().any(|param| values(&task.own_params, param).is_some()) => &[],
            _ => &self.of_run,
        }
    }
}

impl<'v> Params<'v> {
    /// Reads the params of a run.
    pub(super) fn read(params: &'v Value) -> Self {
        let texts = items(params);
        Self(texts.filter_map(|of| Some((of["name"].as_str()?, of["value"].as_str()?))).collect())
    }

    /// Replaces the variables of the run's params in `text`, as Tekton does for workspaces before a run
    /// starts (`ApplyParametersToWorkspaceBindings`). `None` if a variable is left that is no param.
    pub(super) fn resolve(&self, text: &str) -> Option<Resolved> {
        const START: &str = "$(params";
        let mut result = String::new();
        let mut is_known = true;
        let mut params: Vec<Box<str>> = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(START) {
            let after = &rest[at + START.len()..];
            let found = [(".", ")"), ("['", "'])"), ("[\"", "\"])")];
            let (name, after) = found
                .iter()
                .find_map(|(open, close)| after.strip_prefix(open)?.split_once(close))?;
            params.push(name.into());
            result.push_str(&rest[..at]);
            match self.0.get(name) {
                Some(value) => result.push_str(value),
                None => is_known = false,
            }
            rest = after;
        }
        let is_param = params.len() == 1 && rest.is_empty() && text.starts_with(START);
        result.push_str(rest);
        (!result.contains(VARIABLE)).then(|| Resolved {
            of_run: is_known.then(|| result.into()).into_iter().collect(),
            params: params.into(),
            is_param,
        })
    }

    /// Resolves a text that belongs to no task.
    pub(super) fn resolve_of_run(&self, text: &str) -> Option<Box<str>> {
        self.resolve(text)?.of_run.into_iter().next()
    }

    /// Returns a pod template without variables. Each field, or each item and member of a field, in which
    /// a variable is left is left out: the API server would refuse it. `nodeSelector` is not resolved,
    /// because tasks may have other values of its params: the node selector of a group says what is known.
    pub(super) fn resolve_template(&self, template: Value) -> Value {
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
