//! What of a run shares a node: which mode counts, and what no mode is.

use super::{family, keys};
use crate::placement::reason::{Finding, Reason, quoted};
use crate::policy::{CoscheduleMode, Policy};
use crate::view::pipeline_run::PipelineSource;
use crate::view::{Name, PipelineRun, View};

/// The modes by their words (TEP-0135).
pub const MODES: [(&str, CoscheduleMode); 4] = [
    ("disabled", CoscheduleMode::Disabled),
    ("workspaces", CoscheduleMode::Workspaces),
    ("pipelineruns", CoscheduleMode::PipelineRuns),
    ("isolate-pipelinerun", CoscheduleMode::IsolatePipelinerun),
];

/// A mode that is none, and where it stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BadMode {
    /// What carries the annotation, for people: empty for the pod itself.
    pub object: String,
    /// The value.
    pub value: Box<str>,
}

impl BadMode {
    /// What is told of it.
    #[must_use]
    pub fn finding(&self) -> Finding {
        let words: Vec<&str> = MODES.iter().map(|(word, _)| *word).collect();
        let place = if self.object.is_empty() { "" } else { " of " };
        Finding::new(
            Reason::InvalidMode,
            format!("{}{place}{}", keys::MODE, self.object),
            format!("{} is no mode", quoted(&self.value)),
            format!("write one of {}", words.join(", ")),
        )
    }
}

/// The word of a mode.
#[must_use]
pub fn word(mode: CoscheduleMode) -> &'static str {
    MODES.iter().find(|(_, known)| *known == mode).map_or("", |(word, _)| word)
}

/// The mode that a word means.
#[must_use]
pub fn read(word: &str) -> Option<CoscheduleMode> {
    MODES.iter().find(|(known, _)| *known == word).map(|(_, mode)| *mode)
}

/// Who says what the mode of a root run is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Source<'v> {
    /// Its first placeholder was made for that mode.
    Placeholder(CoscheduleMode),
    /// Its own annotation, as it is.
    Run(&'v str),
    /// That of the Pipeline that it names, whose annotations Tekton copies to it.
    Pipeline {
        /// The Pipeline's name.
        name: &'v str,
        /// The annotation, as it is.
        value: &'v str,
    },
    /// Its namespace's annotation, as it is.
    Namespace(&'v str),
    /// Nobody but the policy.
    Policy,
}

/// Who says what the mode of a root run is: the first of them that says anything, in their order.
#[must_use]
pub fn source<'v>(name: &Name, run: &'v PipelineRun, view: &'v View) -> Source<'v> {
    let made = family::placeholders(run, view);
    let mut modes = made.filter_map(|(_, placeholder)| read(placeholder.mode.as_deref()?));
    if let Some(mode) = modes.next() {
        return Source::Placeholder(mode);
    }
    if let Some(value) = &run.mode {
        return Source::Run(value);
    }
    if let PipelineSource::Named(pipeline) = &run.pipeline
        && let Some(named) = view.pipeline(&Name::new(&name.namespace, pipeline))
        && let Some(value) = &named.mode
    {
        return Source::Pipeline { name: pipeline, value };
    }
    view.namespace_mode(&name.namespace).map_or(Source::Policy, Source::Namespace)
}

/// The mode of a root run, by [`source`].
///
/// # Errors
/// Who says it says what is no mode.
pub fn of_run(
    name: &Name,
    run: &PipelineRun,
    view: &View,
    policy: &Policy,
) -> Result<CoscheduleMode, BadMode> {
    match source(name, run, view) {
        Source::Placeholder(mode) => Ok(mode),
        Source::Run(value) => told(value, || format!("PipelineRun {}", name.name)),
        Source::Pipeline { name, value } => told(value, || format!("Pipeline {name}")),
        Source::Namespace(value) => told(value, || format!("Namespace {}", name.namespace)),
        Source::Policy => Ok(policy.coschedule.mode),
    }
}

/// The mode of what says nothing itself.
///
/// # Errors
/// The namespace says what is no mode.
pub fn of_namespace(
    namespace: &str,
    view: &View,
    policy: &Policy,
) -> Result<CoscheduleMode, BadMode> {
    match view.namespace_mode(namespace) {
        Some(value) => told(value, || format!("Namespace {namespace}")),
        None => Ok(policy.coschedule.mode),
    }
}

/// The mode that an annotation says.
///
/// # Errors
/// It says what is no mode.
pub fn told(value: &str, object: impl FnOnce() -> String) -> Result<CoscheduleMode, BadMode> {
    read(value).ok_or_else(|| BadMode { object: object(), value: value.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_words_of_the_tep_are_modes() {
        for (text, mode) in MODES {
            assert_eq!(read(text), Some(mode));
            assert_eq!(word(mode), text);
        }
        let long = "x".repeat(262_144);
        for text in ["", "Workspaces", "workspace", "pipelinerun", "disabled ", "é", &long] {
            let bad = told(text, String::new).expect_err(text);
            let finding = bad.finding();
            assert_eq!(finding.reason, Reason::InvalidMode);
            assert!(
                finding.remedy.contains("disabled, workspaces, pipelineruns, isolate-pipelinerun")
            );
            assert!(finding.problem.len() < 300);
        }
    }
}
