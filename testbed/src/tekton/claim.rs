//! The claims from `volumeClaimTemplate`s of a PipelineRun or TaskRun.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::{Context, Error, Kind, items, names, owner_reference, text};
use crate::definition::unless_exists;

/// The name of the claim of a workspace binding; `None`: it has no template.
pub(super) fn name(binding: &Value, owner: &Value) -> Option<String> {
    let template = binding["volumeClaimTemplate"].as_object()?;
    let name = template.get("metadata").map_or("", |metadata| text(&metadata["name"]));
    Some(names::claim(name, text(&binding["name"]), text(&owner["metadata"]["uid"])))
}

/// Builds the claim of a workspace binding of `owner`; `None`: it has no template.
fn claim(kind: Kind, owner: &Value, binding: &Value) -> Option<Value> {
    let name = name(binding, owner)?;
    let template = &binding["volumeClaimTemplate"];
    Some(json!({
        "metadata": {
            "name": name,
            "namespace": owner["metadata"]["namespace"],
            "labels": template["metadata"]["labels"],
            "annotations": template["metadata"]["annotations"],
            "ownerReferences": [owner_reference(kind, owner)],
        },
        "spec": template["spec"],
    }))
}

/// Creates the claims of all workspaces of `owner` with a template.
pub(super) async fn create(context: &Context, kind: Kind, owner: &Value) -> Result<(), Error> {
    let namespace = text(&owner["metadata"]["namespace"]);
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(context.client.clone(), namespace);
    for binding in items(&owner["spec"]["workspaces"]) {
        let Some(claim) = claim(kind, owner, binding) else { continue };
        if claims.get_metadata_opt(text(&claim["metadata"]["name"])).await?.is_some() {
            continue;
        }
        let claim = serde_json::from_value(claim)?;
        unless_exists(claims.create(&PostParams::default(), &claim).await)?;
    }
    Ok(())
}

/// Builds the workspace bindings of a child: those of the run under the child's names, with claims
/// instead of templates.
pub(super) fn bindings(
    run: &Value,
    wanted: &Value,
    results: &dyn Fn(&str) -> String,
) -> Vec<Value> {
    items(wanted)
        .filter_map(|wanted| {
            let name = text(&wanted["name"]);
            let of_run = wanted["workspace"].as_str().unwrap_or(name);
            let bound = items(&run["spec"]["workspaces"]).find(|it| it["name"] == of_run)?;
            let mut binding = bound.clone();
            binding["name"] = json!(name);
            if let Some(claim) = self::name(bound, run) {
                binding["persistentVolumeClaim"] = json!({"claimName": claim});
                binding.as_object_mut()?.remove("volumeClaimTemplate");
            } else if let Some(claim) = binding["persistentVolumeClaim"]["claimName"].as_str() {
                let claim = results(claim);
                binding["persistentVolumeClaim"]["claimName"] = json!(claim);
            }
            let paths: Vec<_> = [&bound["subPath"], &wanted["subPath"]]
                .into_iter()
                .filter_map(Value::as_str)
                .collect();
            if !paths.is_empty() {
                binding["subPath"] = json!(paths.join("/"));
            }
            Some(binding)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tekton::recorded;

    #[test]
    fn claims_have_the_shape_of_recorded_ones() {
        let (runs, task_runs) = (recorded::runs(), recorded::task_runs());
        for (case, kind, owner) in [
            ("shared", Kind::PipelineRun, &runs["shared"]),
            ("twows", Kind::PipelineRun, &runs["twows"]),
            ("matrix", Kind::PipelineRun, &runs["matrix"]),
            ("standalone-taskrun", Kind::TaskRun, &task_runs["standalone-taskrun"]),
        ] {
            let mut seen = recorded::review(&format!("{case}-pvc"));
            let bindings = items(&owner["spec"]["workspaces"]);
            let mut made: Vec<_> = bindings.filter_map(|it| claim(kind, owner, it)).collect();
            made.retain(|made| made["metadata"]["name"] == seen["metadata"]["name"]);
            assert_eq!(made.len(), 1, "{case}: {made:?}");
            for key in ["name", "namespace", "labels", "annotations", "ownerReferences"] {
                assert_eq!(made[0]["metadata"][key], seen["metadata"][key], "{case}: {key}");
            }
            // The API server sets this default before it calls webhooks.
            let defaulted = seen["spec"].as_object_mut().and_then(|it| it.remove("volumeMode"));
            assert_eq!(defaulted, Some(json!("Filesystem")), "{case}");
            assert_eq!(made[0]["spec"], seen["spec"], "{case}");
        }
    }
}
