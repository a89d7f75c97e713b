use serde_json::json;

use super::*;
use crate::systems::test_objects::controlled_by;

fn read(document: &Value) -> PipelineRun {
    serde_json::from_value::<Foreign<PipelineRun>>(document.clone()).unwrap().row
}

#[test]
fn an_ended_run_keeps_only_the_fields_that_its_claims_need() {
    let mut document = json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
        "metadata": {"name": "r", "namespace": "ci", "uid": "u", "annotations": {
            MODE: "pipelineruns", AUTO_CLEANUP: "true"}},
        "spec": {
            "workspaces": [
                {"name": "a", "volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}},
                {"name": "b", "persistentVolumeClaim": {"claimName": "c"}},
            ],
            "pipelineSpec": {"tasks": [{"name": "t", "taskRef": {"name": "t"}}]},
            "taskRunTemplate": {"serviceAccountName": "s", "podTemplate": {
                "nodeSelector": {"a": "b"},
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "d"}}]}},
            "taskRunSpecs": [{"pipelineTaskName": "t", "podTemplate": {"nodeSelector": {"a": "c"}}}],
        },
    });
    let kept = read(&document).without_pod_fields();
    let free = |name: &str| Workspace { name: name.into(), source: WorkspaceSource::Free };
    let rest = PipelineRun {
        identity: kept.identity.clone(),
        mode: Some("pipelineruns".into()),
        workspaces: [free("a"), free("b")].into(),
        auto_cleanup: true,
        ..PipelineRun::default()
    };
    assert_eq!(kept, rest);

    // A child run keeps its claims: the groups of the run above are derived from them.
    document["metadata"]["ownerReferences"] = controlled_by("PipelineRun", "above", "above");
    let kept = read(&document).without_pod_fields();
    let WorkspaceSource::Template(template) = &kept.workspaces[0].source else {
        panic!("{kept:?}");
    };
    assert_eq!(template.document, None);
    assert_eq!(kept.workspaces[1].source, WorkspaceSource::Claim("c".into()));
}

/// The placeholder gets only what is known, because the API server refuses variables.
#[test]
fn the_pod_template_for_the_placeholder_has_no_variables() {
    let term = |value: &str| json!({"labelSelector": {"matchLabels": {"a": value}}});
    let document = json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
        "metadata": {"name": "r", "namespace": "ci", "uid": "u"},
        "spec": {
            "params": [{"name": "a", "value": "x"}],
            "taskRunTemplate": {"serviceAccountName": "s-$(params.a)", "podTemplate": {
                "priorityClassName": "$(params.missing)",
                "schedulerName": "$(params.a)",
                "nodeSelector": {"a": "$(params.a)", "b": "c"},
                "tolerations": [
                    {"key": "$(params.a)"}, {"key": "k", "value": "$(tasks.t.results.r)"}, {"key": "k"},
                ],
                "affinity": {
                    "podAffinity": {"preferred": [term("$(params.missing)"), term("b")]},
                    "podAntiAffinity": {"preferred": [term("$(params.a)")]},
                },
            }},
        },
    });
    let mut run = read(&document);
    let known = json!({
        "schedulerName": "x",
        "nodeSelector": {"b": "c"},
        "tolerations": [{"key": "x"}, {"key": "k"}],
        "affinity": {"podAntiAffinity": {"preferred": [term("x")]}},
    });
    assert_eq!(run.template.document.take().as_deref(), Some(&known));
    assert_eq!(run.service_account.as_deref(), Some("s-x"));
    assert_eq!(run.problem, None);
    let mut unknown = document;
    unknown["spec"]["taskRunTemplate"]["serviceAccountName"] = json!("$(params.b)");
    let run = read(&unknown);
    assert_eq!(run.service_account, None);
}
