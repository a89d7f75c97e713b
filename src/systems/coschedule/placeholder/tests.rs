use std::sync::LazyLock;

use super::*;
use crate::systems::policy::Policy;

static NAME: LazyLock<Name> = LazyLock::new(|| Name::new("ns", "affinity-assistant-0123456789"));

fn blueprint(template: Option<&Value>) -> Blueprint<'_> {
    static GROUP_OF_RUN: LazyLock<Group> =
        LazyLock::new(|| Group { key: "source".into(), ..Group::default() });
    Blueprint {
        name: NAME.clone(),
        cause: Cause::Run {
            owner: Owner { name: "run".into(), uid: "uid-run".into() },
            group: &GROUP_OF_RUN,
            mode: CoscheduleMode::Workspaces,
        },
        claims: vec!["a", "b"],
        templates: Vec::new(),
        template,
        service_account: None,
        node_selector: &[],
        isolated: false,
        isolation_scope: IsolationScope::Cluster,
    }
}

fn document(blueprint: &Blueprint<'_>) -> Value {
    let mut policy = Policy::default().coschedule.placeholder;
    policy.image = "stowplan:1".to_owned();
    blueprint.document(&blueprint.first_plan(Nodes::Any), &policy)
}

/// The pod template's spec as the API server stores it, without unknown fields.
fn pod(document: &Value) -> Value {
    let set: k8s_openapi::api::apps::v1::StatefulSet =
        serde_json::from_value(document.clone()).unwrap();
    serde_json::to_value(set.spec.unwrap().template.spec.unwrap()).unwrap()
}

#[test]
fn the_document_without_a_template() {
    let name = "affinity-assistant-0123456789";
    let selector = json!({
        "app.kubernetes.io/component": "affinity-assistant", "app.kubernetes.io/instance": name,
    });
    let mut labels = selector.clone();
    labels["stowplan.dev/placeholder"] = json!(name);
    labels["coschedule.stowplan.dev/pipelinerun"] = json!("run");
    let mut pod_labels = labels.clone();
    pod_labels["stowplan.dev/coschedule-member"] = json!(name);
    let plan = r#"{"held":true,"claims":["a","b"]}"#;
    let amounts = json!({"cpu": "10m", "memory": "16Mi"});
    let members = json!({
        "labelSelector": {"matchLabels": {"stowplan.dev/coschedule-member": name}},
        "topologyKey": "kubernetes.io/hostname",
    });
    let others = json!({
        "labelSelector": {"matchLabels": {"app.kubernetes.io/component": "affinity-assistant"}},
        "namespaceSelector": {}, "topologyKey": "kubernetes.io/hostname",
    });
    let pod = json!({
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": 1,
        "affinity": {
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [members]},
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 10, "podAffinityTerm": others}]},
        },
        "containers": [{
            "name": "affinity-assistant", "image": "stowplan:1", "args": ["pause"],
            "resources": {"requests": amounts, "limits": amounts},
            "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": true, "runAsNonRoot": true, "runAsUser": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "volumeMounts": [
                {"name": "workspace-0", "mountPath": "/claims/0", "readOnly": true},
                {"name": "workspace-1", "mountPath": "/claims/1", "readOnly": true},
            ],
        }],
        "volumes": [
            {"name": "workspace-0", "persistentVolumeClaim": {"claimName": "a"}},
            {"name": "workspace-1", "persistentVolumeClaim": {"claimName": "b"}},
        ],
    });
    let expected = json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": name, "namespace": "ns", "labels": labels,
            "annotations": {"stowplan.dev/coschedule": "workspaces", "coschedule.stowplan.dev/group": r#"{"key":"source"}"#},
            "ownerReferences": [{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "run",
                "uid": "uid-run", "controller": true, "blockOwnerDeletion": false}],
        },
        "spec": {
            "replicas": 1, "serviceName": "", "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": selector},
            "template": {
                "metadata": {"labels": pod_labels, "annotations": {"coschedule.stowplan.dev/plan": plan}},
                "spec": pod,
            },
            "volumeClaimTemplates": [],
        },
    });
    assert_eq!(document(&blueprint(None)), expected);
}

#[test]
fn isolation_is_required_or_preferred_and_has_a_scope() {
    for (isolated, list) in [(true, REQUIRED), (false, PREFERRED)] {
        for isolation_scope in [IsolationScope::Cluster, IsolationScope::Namespace] {
            let blueprint = Blueprint { isolated, isolation_scope, ..blueprint(None) };
            let affinity = blueprint.affinity(&PodPlan::default());
            let against = affinity["podAntiAffinity"].as_object().unwrap();
            assert_eq!(against.keys().collect::<Vec<_>>(), [list]);
            let term = &against[list][0];
            let term = if isolated { term } else { &term["podAffinityTerm"] };
            let everywhere = term.get("namespaceSelector") == Some(&json!({}));
            assert_eq!(everywhere, isolation_scope == IsolationScope::Cluster);
        }
    }
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
        let affinity = blueprint(template.as_ref()).affinity(&plan);
        let toward = &affinity["podAffinity"];
        let count = |list: &str| toward[list].as_array().map_or(0, Vec::len);
        assert_eq!((count(REQUIRED), count(PREFERRED)), (required, preferred), "{toward}");
        let preferred = toward[PREFERRED].as_array().and_then(|list| list.last());
        let term = match preferred.map(|term| &term["podAffinityTerm"]) {
            Some(drawn) if *drawn != own => drawn,
            _ => &toward[REQUIRED][0],
        };
        assert_eq!(term["labelSelector"], json!({"matchLabels": {MEMBER: *NAME.name}}));
    }
}

#[test]
fn the_templates_affinity_is_kept_and_comes_first() {
    let preferred = json!({"weight": 50, "podAffinityTerm": {"topologyKey": "zone"}});
    let required = json!({"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"});
    let node = json!({REQUIRED: {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1"]}]},
    ]}});
    let template = json!({"affinity": {
        "nodeAffinity": node,
        "podAntiAffinity": {PREFERRED: [preferred], REQUIRED: [required]},
    }});
    let affinity = blueprint(Some(&template)).affinity(&PodPlan::default());
    assert_eq!(affinity["nodeAffinity"], node);
    assert_eq!(affinity["podAntiAffinity"][REQUIRED], json!([required]));
    let list = affinity["podAntiAffinity"][PREFERRED].as_array().unwrap();
    assert_eq!((list.len(), &list[0], &list[1]["weight"]), (2, &preferred, &json!(10)));
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
    let mut expected = pod(&document(&blueprint(None)));
    json_patch::merge(&mut expected, &copied);
    expected["serviceAccountName"] = json!("bot");
    // The user of the container is the run's own.
    expected["containers"][0]["securityContext"].as_object_mut().unwrap().remove("runAsUser");
    let of_template = Blueprint { service_account: Some("bot"), ..blueprint(Some(&template)) };
    assert_eq!(pod(&document(&of_template)), expected);
}

#[test]
fn the_security_context_depends_on_operating_system_and_user() {
    let context = |template: &Value| {
        pod(&document(&blueprint(Some(template))))["containers"][0]["securityContext"].clone()
    };
    let windows = json!({"nodeSelector": {"kubernetes.io/os": "windows"}});
    assert_eq!(context(&windows), json!({"runAsNonRoot": true}));
    let root = json!({"securityContext": {"runAsUser": 0}});
    assert_eq!(context(&root)["runAsUser"], 65_532, "never root");
}

#[test]
fn the_groups_node_selector_and_the_runs_priority_class_win() {
    let template = json!({"nodeSelector": {"disk": "ssd"}, "priorityClassName": "low"});
    let labels = [("arch".into(), "arm64".into())];
    let mut policy = Policy::default().coschedule.placeholder;
    policy.priority_class_name = "placeholders".to_owned();
    let made = |template: Option<&Value>| {
        let blueprint = Blueprint { node_selector: &labels, ..blueprint(template) };
        pod(&blueprint.document(&blueprint.first_plan(Nodes::Any), &policy))
    };
    let of_run = made(Some(&template));
    assert_eq!(of_run["nodeSelector"], json!({"arch": "arm64"}));
    assert_eq!(of_run["priorityClassName"], "low");
    assert_eq!(made(None)["priorityClassName"], "placeholders");
}

#[test]
fn the_nodes_of_a_plan_are_added_to_every_term() {
    let terms = |template: Option<&Value>, nodes| {
        let affinity = blueprint(template).affinity(&PodPlan { nodes, ..PodPlan::default() });
        affinity["nodeAffinity"][REQUIRED]["nodeSelectorTerms"].clone()
    };
    let only = Nodes::Only("n1".into());
    assert_eq!(terms(None, Nodes::Any), Value::Null);
    assert_eq!(terms(None, only), json!([{"matchFields": [on_node("In", "n1")]}]));
    let zone = |zone: &str| json!([{"key": "zone", "operator": "In", "values": [zone]}]);
    let template = json!({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [
        {"matchExpressions": zone("a")},
        {"matchExpressions": zone("b"), "matchFields": [on_node("NotIn", "n9")]},
    ]}}}});
    let not = |name: &str| on_node("NotIn", name);
    assert_eq!(
        terms(Some(&template), Nodes::except(["n1", "n2"], 9)),
        json!([
            {"matchExpressions": zone("a"), "matchFields": [not("n1"), not("n2")]},
            {"matchExpressions": zone("b"), "matchFields": [not("n9"), not("n1"), not("n2")]},
        ])
    );
    assert_eq!(blueprint(None).most_excluded(), MOST_EXCLUDED);
    assert_eq!(blueprint(Some(&template)).most_excluded(), MOST_EXCLUDED / 2);
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
        let blueprint = blueprint(Some(&template));
        let plan = blueprint.first_plan(Nodes::Only("n1".into()));
        let document = blueprint.document(&plan, &Policy::default().coschedule.placeholder);
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
    let document = document(&Blueprint { claims: vec!["a"], templates, ..blueprint(None) });
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
    let mounted: Value = [0, 1, 2].map(|mount| mounts[mount]["name"].clone()).to_vec().into();
    assert_eq!(mounted, json!(["workspace-0", "src-0123456789", second]));
    assert_eq!(mounts.as_array().unwrap().len(), 3);
}

#[test]
fn a_native_group_has_no_owner() {
    let document = document(&Blueprint { cause: Cause::Native("g"), ..blueprint(None) });
    assert_eq!(document["metadata"]["annotations"], json!({"stowplan.dev/coschedule-group": "g"}));
    assert!(document["metadata"].get("ownerReferences").is_none());
}
