//! Previews a TaskRun that a user creates: the decision on its pod. Tekton copies the labels and
//! annotations of the TaskRun to the pod, which mounts the claims of the workspaces.

use serde_json::{Map, Value, json};

use super::tekton;
use crate::systems::View;
use crate::systems::policy::Policy;
use crate::systems::preview::{Decide, Decided, Given, Preview, Verdict};
use crate::view::resource::POD;

/// Previews a TaskRun that the View has.
///
/// # Errors
/// The reason why its pod would be invalid.
pub(super) fn preview(
    given: &Given<'_>,
    view: &mut View,
    _: &Policy,
    decide: Decide<'_>,
) -> Result<Preview, String> {
    let decided = decide(&POD, &build_pod(given), view)?;
    let Decided { verdict, changes, warnings, .. } = &decided;
    let lines = changes.iter().map(|change| format!("    + {change}\n"));
    // The warnings of a refusal are those of its decision, too, and are shown with it.
    let warnings = warnings.iter().filter(|_| *verdict != Verdict::Refused);
    let text: String = lines.chain(warnings.map(|it| format!("  warning: {it}\n"))).collect();
    let message = decided.refusal.iter().map(|message| format!("  {message}\n"));
    let verdict = match verdict {
        Verdict::Placed => "its pod is placed",
        _ => "unchanged: its pod asks for no placement",
    };
    Ok(Preview {
        decision: Some(decided.number),
        verdict: Some(verdict.to_owned()),
        text: message.chain([text]).collect(),
        fields: Map::from_iter([("changes".to_owned(), json!(changes))]),
        ..Preview::default()
    })
}

fn build_pod(Given { name, document, .. }: &Given<'_>) -> Value {
    let template = document.pointer("/spec/podTemplate").and_then(Value::as_object);
    let workspaces = document.pointer("/spec/workspaces").and_then(Value::as_array);
    let claims = workspaces.into_iter().flatten();
    let claims = claims.filter_map(|workspace| workspace.get("persistentVolumeClaim").cloned());
    let uid = document.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
    let spec = template.cloned().unwrap_or_default();
    tekton::pod_of_task_run(name, uid, document, spec, claims)
}
