//! Resolves the coscheduling mode of a run, and rejects invalid values.

use super::{family, keys};
use crate::placement::reason::{Finding, Reason, quoted};
use crate::systems::View;
use crate::systems::coschedule::kinds::{PipelineRun, PipelineSource};
use crate::systems::coschedule::policy::CoscheduleMode;
use crate::systems::policy::Policy;
use crate::view::Name;

/// The modes by their names in TEP-0135.
pub(crate) const MODES: [(&str, CoscheduleMode); 4] = [
    ("disabled", CoscheduleMode::Disabled),
    ("workspaces", CoscheduleMode::Workspaces),
    ("pipelineruns", CoscheduleMode::PipelineRuns),
    ("isolate-pipelinerun", CoscheduleMode::IsolatePipelinerun),
];

/// A mode that cannot be used, and the object it was found on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct BadMode {
    /// The object as it is named in messages; empty for the pod itself.
    pub object: String,
    pub value: Box<str>,
    /// The modes that the policy allows, if it does not allow this one; empty if there is no such mode.
    pub allowed: Vec<CoscheduleMode>,
}

impl BadMode {
    /// The finding that is reported.
    pub(crate) fn finding(&self) -> Finding {
        let preposition = if self.object.is_empty() { "" } else { " of " };
        let subject = format!("{}{preposition}{}", keys::MODE, self.object);
        let value = quoted(&self.value);
        if self.allowed.is_empty() {
            let words: Vec<&str> = MODES.iter().map(|(word, _)| *word).collect();
            let remedy = format!("write one of {}", words.join(", "));
            return Finding::new(
                Reason::InvalidMode,
                subject,
                format!("{value} is not a mode"),
                remedy,
            );
        }
        let words: Vec<&str> = self.allowed.iter().map(|mode| word(*mode)).collect();
        Finding::new(
            Reason::ModeNotAllowed,
            subject,
            format!("the policy does not allow {value}"),
            format!(
                "write one of {}, or ask the administrator (coschedule.allowedModes)",
                words.join(", ")
            ),
        )
    }

    /// Says that the policy's mode applies instead of that of a namespace.
    pub(crate) fn note(&self, policy: &Policy) -> String {
        let Finding { problem, remedy, .. } = self.finding();
        let applies = word(policy.coschedule.mode);
        format!("{}: {problem}, so the policy's mode {applies} applies; {remedy}", self.object)
    }
}

/// The word of a mode.
pub(crate) fn word(mode: CoscheduleMode) -> &'static str {
    MODES.iter().find(|(_, known)| *known == mode).map_or("", |(word, _)| word)
}

/// The mode that a word means.
pub(crate) fn read(word: &str) -> Option<CoscheduleMode> {
    MODES.iter().find(|(known, _)| *known == word).map(|(_, mode)| *mode)
}

/// Where the mode of a root run comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Source<'v> {
    /// Its first placeholder was created for this mode.
    Placeholder(CoscheduleMode),
    /// The unparsed annotation of the run.
    Run(&'v str),
    /// The annotation of the Pipeline that it names: Tekton copies it to the run.
    Pipeline {
        /// The Pipeline's name.
        name: &'v str,
        /// The unparsed annotation.
        value: &'v str,
    },
    /// The unparsed annotation of its namespace.
    Namespace(&'v str),
    /// The policy.
    Policy,
}

/// Where the mode of a root run comes from: the first source, in their order, that has one.
pub(crate) fn source<'v>(name: &Name, run: &'v PipelineRun, view: &'v View) -> Source<'v> {
    let made = family::recorded(run, view);
    let mut modes = made.filter_map(|(placeholder, _)| read(placeholder.mode.as_deref()?));
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

/// Returns the mode of a root run, by [`source`], and that of its namespace if that is not used because it is no
/// mode or not allowed: the policy's mode applies then, because the run's author is not to blame.
///
/// # Errors
/// If the value found at the run or its Pipeline is not a mode, or one that the policy does not allow. The
/// mode of a placeholder was allowed when it was created, and the policy's own is always allowed.
pub(crate) fn of_run(
    name: &Name,
    run: &PipelineRun,
    view: &View,
    policy: &Policy,
) -> Result<(CoscheduleMode, Option<BadMode>), BadMode> {
    let mode = match source(name, run, view) {
        Source::Placeholder(mode) => mode,
        Source::Run(value) => {
            parse_allowed(value, policy, || format!("PipelineRun {}", name.name))?
        }
        Source::Pipeline { name, value } => {
            parse_allowed(value, policy, || format!("Pipeline {name}"))?
        }
        Source::Namespace(_) | Source::Policy => {
            return Ok(of_namespace(&name.namespace, view, policy));
        }
    };
    Ok((mode, None))
}

/// Returns the mode of an object without an annotation of its own, and that of the namespace if it is not used.
pub(crate) fn of_namespace(
    namespace: &str,
    view: &View,
    policy: &Policy,
) -> (CoscheduleMode, Option<BadMode>) {
    let parse = |value| parse_allowed(value, policy, || format!("Namespace {namespace}"));
    match view.namespace_mode(namespace).map(parse) {
        Some(Ok(mode)) => (mode, None),
        Some(Err(bad)) => (policy.coschedule.mode, Some(bad)),
        None => (policy.coschedule.mode, None),
    }
}

/// Parses the mode in an annotation.
///
/// # Errors
/// If the value is not a mode.
pub(crate) fn parse(
    value: &str,
    object: impl FnOnce() -> String,
) -> Result<CoscheduleMode, BadMode> {
    read(value).ok_or_else(|| BadMode {
        object: object(),
        value: value.into(),
        allowed: Vec::new(),
    })
}

/// Parses the mode in an annotation that a run, a Pipeline or a namespace has.
fn parse_allowed(
    value: &str,
    policy: &Policy,
    object: impl Fn() -> String,
) -> Result<CoscheduleMode, BadMode> {
    let mode = parse(value, &object)?;
    let own = policy.coschedule.mode;
    let allowed = &policy.coschedule.allowed_modes;
    if mode == own || allowed.contains(&mode) {
        return Ok(mode);
    }
    let mut allowed: Vec<_> = allowed.iter().copied().chain([own]).collect();
    allowed.sort_unstable();
    allowed.dedup();
    Err(BadMode { object: object(), value: value.into(), allowed })
}
