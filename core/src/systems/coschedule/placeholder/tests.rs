use crate::systems::coschedule::kinds::pipeline_run::PodTemplate;
use std::sync::LazyLock;

use super::*;
use crate::systems::coschedule::policy::CoscheduleMode;
use crate::systems::policy::Policy;
use crate::view::Identity;

static NAME: LazyLock<Name> = LazyLock::new(|| Name::new("ns", "affinity-assistant-0123456789"));

fn desired_by(run: PipelineRun, group: Group) -> Desired<'static> {
    static RUN: LazyLock<Name> = LazyLock::new(|| Name::new("ns", "run"));
    let mut groups = Groups::default();
    groups.mode = CoscheduleMode::Workspaces;
    groups.groups = vec![group];
    let run = Box::leak(Box::new(run));
    let run = Box::leak(Box::new(Run { name: &RUN, run, groups, has_started: true }));
    Desired {
        name: NAME.clone(),
        cause: Cause::Run(run, &run.groups.groups[0]),
        claims: vec!["a", "b"],
        templates: Vec::new(),
        isolation: None,
        keeps_node: true,
        added: None,
        leaders: Vec::new(),
    }
}

fn run(template: Option<&Value>) -> PipelineRun {
    let identity = Identity { uid: "uid-run".into(), ..Identity::default() };
    let document = template.cloned().map(Box::new);
    let template = PodTemplate { document, ..PodTemplate::default() };
    PipelineRun { identity, template, ..PipelineRun::default() }
}

fn group() -> Group {
    Group { key: "source".into(), ..Group::default() }
}

fn desired(template: Option<&Value>) -> Desired<'static> {
    desired_by(run(template), group())
}

fn document(desired: &Desired<'_>) -> Value {
    let mut policy = Policy::default().coschedule.placeholder;
    policy.image = "stowplan:1".to_owned();
    policy.priority_class_name = "placeholders".to_owned();
    desired.document(&desired.first_plan(None, None), &policy)
}

/// The pod template's spec as the API server stores it, without unknown fields.
fn pod(document: &Value) -> Value {
    let set: k8s_openapi::api::apps::v1::StatefulSet =
        serde_json::from_value(document.clone()).unwrap();
    serde_json::to_value(set.spec.unwrap().template.spec.unwrap()).unwrap()
}

#[test]
fn the_document_without_a_template() {
    let expected: Value = serde_saphyr::from_str(include_str!("tests/document.yaml")).unwrap();
    assert_eq!(document(&desired(None)), expected);
}

/// The hold to members is required, unless the plan drops it, or the template has required pod affinity,
/// beside which the term could never be met.
#[test]
fn affinity_to_members_is_required_or_preferred() {
    let own = json!({"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"});
    let preferred = json!([{"weight": 7, "podAffinityTerm": own}]);
    let with = |required: Value, preferred: Value| {
        Some(json!({"affinity": {"podAffinity": {REQUIRED: required, PREFERRED: preferred}}}))
    };
    for (template, held, required, preferred) in [
        (None, true, 1, 0),
        (None, false, 0, 1),
        (with(json!([]), preferred.clone()), true, 1, 1),
        (with(json!([]), preferred), false, 0, 2),
        (with(json!([own]), json!(null)), true, 1, 1),
        (with(json!([own]), json!(null)), false, 1, 1),
        (with(json!("x"), json!(7)), true, 0, 1),
        (with(json!(null), json!(null)), true, 1, 0),
    ] {
        let plan = PodPlan { held, ..PodPlan::default() };
        let affinity = desired(template.as_ref()).affinity(&plan);
        let toward = &affinity["podAffinity"];
        let count = |list: &str| toward[list].as_array().map_or(0, Vec::len);
        assert_eq!((count(REQUIRED), count(PREFERRED)), (required, preferred), "{toward}");
        let members = json!({"matchLabels": {MEMBER: *NAME.name}}).to_string();
        assert!(toward.to_string().contains(&members), "{toward}");
    }
}

#[test]
fn the_templates_affinity_is_kept_and_comes_first() {
    let preferred = json!({"weight": 50, "podAffinityTerm": {"topologyKey": "zone"}});
    let required = json!({"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"});
    let node =
        json!({REQUIRED: {"nodeSelectorTerms": [{"matchFields": [on_node("NotIn", "n1")]}]}});
    let template = json!({"affinity": {
        "nodeAffinity": node,
        "podAntiAffinity": {PREFERRED: [preferred], REQUIRED: [required]},
    }});
    let affinity = desired(Some(&template)).affinity(&PodPlan::default());
    assert_eq!(affinity["nodeAffinity"], node);
    assert_eq!(affinity["podAntiAffinity"], template["affinity"]["podAntiAffinity"]);
    let isolated = Desired { isolation: Some(IsolationScope::Cluster), ..desired(Some(&template)) };
    let list = isolated.affinity(&PodPlan::default())["podAntiAffinity"][REQUIRED].take();
    assert_eq!((list.as_array().unwrap().len(), &list[0]), (2, &required));
}

#[test]
fn the_same_template_fields_are_copied_as_by_tekton() {
    let copied = json!({
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "nodeSelector": {"disk": "ssd"},
        "imagePullSecrets": [{"name": "s"}],
        "securityContext": {"runAsUser": 1001, "fsGroup": 1001},
        "priorityClassName": "high",
    });
    let mut template = json!({
        "hostAliases": [{"ip": "1.1.1.1"}], "env": [{"name": "x"}], "volumes": [{"name": "v"}],
        "runtimeClassName": "gvisor", "schedulerName": "mine",
        "topologySpreadConstraints": [], "hostNetwork": true,
    });
    json_patch::merge(&mut template, &copied);
    let mut expected = pod(&document(&desired(None)));
    json_patch::merge(&mut expected, &copied);
    expected["serviceAccountName"] = json!("bot");
    // The user of the container is the run's own.
    expected["containers"][0]["securityContext"].as_object_mut().unwrap().remove("runAsUser");
    let of_template = {
        let run = PipelineRun { service_account: Some("bot".into()), ..run(Some(&template)) };
        desired_by(run, group())
    };
    assert_eq!(pod(&document(&of_template)), expected);
}

#[test]
fn the_security_context_depends_on_operating_system_and_user() {
    let context = |template: &Value| {
        pod(&document(&desired(Some(template))))["containers"][0]["securityContext"].clone()
    };
    let windows = json!({"nodeSelector": {"kubernetes.io/os": "windows"}});
    assert_eq!(context(&windows), json!({"runAsNonRoot": true}));
    let root = json!({"securityContext": {"runAsUser": 0}});
    assert_eq!(context(&root)["runAsUser"], 65_532, "never root");
}

#[test]
fn the_groups_node_selector_replaces_that_of_the_template() {
    let template = json!({"nodeSelector": {"disk": "ssd"}});
    let node_selector = [("arch".into(), "arm64".into())].into();
    let desired = desired_by(run(Some(&template)), Group { node_selector, ..group() });
    assert_eq!(pod(&document(&desired))["nodeSelector"], json!({"arch": "arm64"}));
}

#[test]
fn the_node_of_a_plan_is_added_to_every_term() {
    let terms = |template: Option<&Value>, only: Option<&str>| {
        let plan = PodPlan { only: only.map(Into::into), ..PodPlan::default() };
        desired(template).affinity(&plan)["nodeAffinity"][REQUIRED]["nodeSelectorTerms"].clone()
    };
    assert_eq!(terms(None, None), Value::Null);
    let here = on_node("In", "n1");
    assert_eq!(terms(None, Some("n1")), json!([{"matchFields": [here]}]));
    let zone = |zone: &str| json!([{"key": "zone", "operator": "In", "values": [zone]}]);
    let template = json!({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [
        {"matchExpressions": zone("a")},
        {"matchExpressions": zone("b"), "matchFields": [on_node("NotIn", "n9")]},
    ]}}}});
    assert_eq!(
        terms(Some(&template), Some("n1")),
        json!([
            {"matchExpressions": zone("a"), "matchFields": [here]},
            {"matchExpressions": zone("b"), "matchFields": [on_node("NotIn", "n9"), here]},
        ])
    );
}

/// Autoscalers refuse pods that require a field of a node, and do not look at what they prefer.
#[test]
fn nodes_that_it_left_are_avoided_by_a_preference() {
    let own = json!({"weight": 7, "preference": {"matchExpressions": []}});
    let template = json!({"affinity": {"nodeAffinity": {PREFERRED: [own]}}});
    let plan = PodPlan { avoid: vec!["n1".into(), "n2".into()], ..PodPlan::default() };
    let others = json!([on_node("NotIn", "n1"), on_node("NotIn", "n2")]);
    assert_eq!(
        desired(Some(&template)).affinity(&plan)["nodeAffinity"],
        json!({PREFERRED: [own, {"weight": 100, "preference": {"matchFields": others}}]})
    );
}

#[test]
fn a_template_of_any_shape_makes_an_object() {
    for template in [
        json!(null),
        json!([]),
        json!("é"),
        json!({"affinity": null}),
        json!({"affinity": []}),
        json!({"affinity": {"podAntiAffinity": [], "nodeAffinity": 7}, "nodeSelector": "x"}),
        json!({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [null, 7]}}}}),
    ] {
        let desired = desired(Some(&template));
        let plan = desired.first_plan(Some("n1".into()), None);
        let document = desired.document(&plan, &Policy::default().coschedule.placeholder);
        assert_eq!(document["spec"]["replicas"], 1, "{template}");
    }
}

#[test]
fn claims_from_templates_are_owned_by_the_run_and_mounted() {
    let template = json!({
        "metadata": {"name": "src", "labels": {"a": "b"}, "annotations": {"c": "d"}, "ownerReferences": [1]},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast"},
    });
    let templates = vec![("src-0123456789".to_owned(), &template), ("x".repeat(75), &template)];
    let document = document(&Desired { claims: vec!["a"], templates, ..desired(None) });
    let made = &document["spec"]["volumeClaimTemplates"];
    let expected = json!({
        "metadata": {
            "name": "src-0123456789",
            "labels": {"a": "b", "stowplan.dev/placeholder": "affinity-assistant-0123456789"},
            "annotations": {"c": "d", "stowplan.dev/coschedule": "workspaces"},
            "ownerReferences": [{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "run", "uid": "uid-run"}],
        },
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast"},
    });
    assert_eq!(made[0], expected);
    let second = &made[1]["metadata"]["name"];
    assert_eq!(second.as_str().unwrap().len(), 63);
    let mounts = &document["spec"]["template"]["spec"]["containers"][0]["volumeMounts"];
    let mounted = mounts.as_array().unwrap().iter().map(|mount| &mount["name"]);
    let mounted: Vec<&Value> = mounted.collect();
    assert_eq!(json!(mounted), json!(["workspace-0", "src-0123456789", second]));
}
