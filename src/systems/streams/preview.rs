//! Previews a StreamsJob: the decision about its creation, and the processing elements that share a
//! host.

use serde_json::{Map, json};

use crate::systems::policy::Policy;
use crate::systems::preview::{Decide, Given, Preview, PreviewedKind};
use crate::systems::streams::kinds::StreamsView as _;
use crate::systems::streams::kinds::streams_job::StreamsJob;
use crate::systems::streams::resources::STREAMS_JOB;
use crate::view::View;

/// The kinds of objects that the Streams constraints preview.
pub(super) const KINDS: &[PreviewedKind] =
    &[PreviewedKind { resource: STREAMS_JOB, complete: None, preview }];

/// Previews a StreamsJob.
///
/// # Errors
/// The reason why the document is not a valid StreamsJob.
fn preview(
    given: &Given<'_>,
    view: &mut View,
    _: &Policy,
    decide: Decide<'_>,
) -> Result<Preview, String> {
    let decided = decide(&STREAMS_JOB, given.document, view)?;
    let groups = view.streams_job(given.name).map(find_groups).unwrap_or_default();
    let lines = groups.iter().map(|group| format!("  on one host: {}\n", group.join(", ")));
    Ok(Preview {
        decision: Some(decided.number),
        text: lines.collect(),
        fields: match groups.is_empty() {
            true => Map::new(),
            false => Map::from_iter([("groups".to_owned(), json!(groups))]),
        },
        ..Preview::default()
    })
}

/// The names of the processing elements that share a host.
fn find_groups(job: &StreamsJob) -> Vec<Vec<String>> {
    let Ok(spec) = &job.spec else { return Vec::new() };
    let units = job.closure.units.iter().filter(|unit| unit.group.is_some());
    let name = |element: &usize| spec.processing_elements[*element].name.clone();
    units.map(|unit| unit.elements.iter().map(name).collect()).collect()
}
