//! Previews a TaskRun that a user creates: the decision on its pod. Tekton copies the labels and
//! annotations of the TaskRun to the pod, which mounts the claims of the workspaces.

use serde_json::{Map, Value, json};

use super::tekton;
use crate::systems::coschedule::resources::TASK_RUN;
use crate::systems::policy::Policy;
use crate::systems::preview::{Decide, Decided, Given, Preview, Verdict};
use crate::view::View;
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

fn build_pod(given: &Given<'_>) -> Value {
    let Given { name, document, .. } = given;
    let metadata = |key: &str| match document.pointer(&format!("/metadata/{key}")) {
        Some(Value::Object(members)) => members.clone(),
        _ => Map::new(),
    };
    let mut labels = metadata("labels");
    labels.insert("tekton.dev/taskRun".to_owned(), (*name.name).into());
    let mut spec = Map::new();
    if let Some(Value::Object(template)) = document.pointer("/spec/podTemplate") {
        spec.extend(template.clone());
    }
    let mut volumes = match spec.remove("volumes") {
        Some(Value::Array(volumes)) => volumes,
        _ => Vec::new(),
    };
    let workspaces = document.pointer("/spec/workspaces").and_then(Value::as_array);
    for (number, workspace) in workspaces.into_iter().flatten().enumerate() {
        if let Some(claim) = workspace.get("persistentVolumeClaim") {
            let volume = json!({"name": format!("ws-{number}"), "persistentVolumeClaim": claim});
            volumes.push(volume);
        }
    }
    spec.insert("volumes".to_owned(), volumes.into());
    spec.insert("containers".to_owned(), json!([{"name": "step", "image": "step"}]));
    let uid = document.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{}-pod", name.name), "namespace": name.namespace, "labels": labels,
            "annotations": metadata("annotations"),
            "ownerReferences": tekton::owner(TASK_RUN.kind, &name.name, uid),
        },
        "spec": spec,
    })
}
