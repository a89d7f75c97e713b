use std::sync::LazyLock;

use super::*;
use crate::systems::policy::Policy;

fn blueprint<'v>(name: &Name, template: Option<&'v Value>) -> Blueprint<'v> {
    static GROUP_OF_RUN: LazyLock<Group> =
        LazyLock::new(|| Group { key: "source".into(), ..Group::default() });
    Blueprint {
        name: name.clone(),
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

fn name() -> Name {
    Name::new("ns", "affinity-assistant-0123456789")
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
    let name = name();
    let document = document(&blueprint(&name, None));
    let labels = json!({
        "app.kubernetes.io/component": "affinity-assistant",
        "app.kubernetes.io/instance": "affinity-assistant-0123456789",
        "stowplan.dev/placeholder": "affinity-assistant-0123456789",
        "coschedule.stowplan.dev/pipelinerun": "run",
    });
    let mut pod_labels = labels.clone();
    pod_labels["stowplan.dev/coschedule-member"] = json!("affinity-assistant-0123456789");
    let plan = r#"{"held":true,"claims":["a","b"]}"#;
    let of_pod =
        json!({"labels": pod_labels, "annotations": {"coschedule.stowplan.dev/plan": plan}});
    let amounts = json!({"cpu": "10m", "memory": "16Mi"});
    let expected = json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": "affinity-assistant-0123456789", "namespace": "ns", "labels": labels,
            "annotations": {"stowplan.dev/coschedule": "workspaces", "coschedule.stowplan.dev/group": r#"{"key":"source"}"#},
            "ownerReferences": [{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "run",
                "uid": "uid-run", "controller": true, "blockOwnerDeletion": false}],
        },
        "spec": {
            "replicas": 1, "serviceName": "", "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": {
                "app.kubernetes.io/component": "affinity-assistant",
                "app.kubernetes.io/instance": "affinity-assistant-0123456789",
            }},
            "template": {"metadata": of_pod, "spec": {
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "terminationGracePeriodSeconds": 1,
                "affinity": {
                    "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                        {"labelSelector": {"matchLabels": {"stowplan.dev/coschedule-member": "affinity-assistant-0123456789"}},
                         "topologyKey": "kubernetes.io/hostname"},
                    ]},
                    "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 10, "podAffinityTerm": {
                            "labelSelector": {"matchLabels": {"app.kubernetes.io/component": "affinity-assistant"}},
                            "namespaceSelector": {},
                            "topologyKey": "kubernetes.io/hostname"}},
                    ]},
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
            }},
            "volumeClaimTemplates": [],
        },
    });
    assert_eq!(document, expected);
}

/// Isolation is required or preferred, in the namespace or in the cluster.
#[test]
fn isolation_is_required_or_preferred_and_has_a_scope() {
    let name = name();
    for (isolated, list) in [(true, REQUIRED), (false, PREFERRED)] {
        for isolation_scope in [IsolationScope::Cluster, IsolationScope::Namespace] {
            let blueprint = Blueprint { isolated, isolation_scope, ..blueprint(&name, None) };
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
    let name = name();
    let own = json!({"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"});
    let with_own = json!({"affinity": {"podAffinity": {REQUIRED: [own]}}});
    let preferred = json!({"weight": 7, "podAffinityTerm": own});
    let with_preferred =
        json!({"affinity": {"podAffinity": {REQUIRED: [], PREFERRED: [preferred]}}});
    let odd = json!({"affinity": {"podAffinity": {REQUIRED: "x", PREFERRED: 7}}});
    let null = json!({"affinity": {"podAffinity": {REQUIRED: null, PREFERRED: null}}});
    for (template, held, required, preferred) in [
        (None, true, 1, 0),
        (None, false, 0, 1),
        (Some(&with_preferred), true, 1, 1),
        (Some(&with_preferred), false, 0, 2),
        (Some(&with_own), true, 1, 1),
        (Some(&with_own), false, 1, 1),
        (Some(&odd), true, 0, 1),
        (Some(&null), true, 1, 0),
    ] {
        let plan = PodPlan { held, ..PodPlan::default() };
        let affinity = blueprint(&name, template).affinity(&plan);
        let toward = &affinity["podAffinity"];
        let count = |list: &str| toward[list].as_array().map_or(0, Vec::len);
        assert_eq!((count(REQUIRED), count(PREFERRED)), (required, preferred), "{toward}");
        let preferred = toward[PREFERRED].as_array().and_then(|list| list.last());
        let term = match preferred.map(|term| &term["podAffinityTerm"]) {
            Some(drawn) if *drawn != own => drawn,
            _ => &toward[REQUIRED][0],
        };
        assert_eq!(term["labelSelector"], json!({"matchLabels": {MEMBER: *name.name}}));
    }
}

#[test]
fn the_templates_affinity_is_kept_and_comes_first() {
    let name = name();
    let preferred = json!({"weight": 50, "podAffinityTerm": {"topologyKey": "zone"}});
    let required = json!({"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"});
    let node = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1"]}]},
    ]}});
    let template = json!({"affinity": {
        "nodeAffinity": node,
        "podAntiAffinity": {PREFERRED: [preferred], REQUIRED: [required]},
    }});
    let affinity = blueprint(&name, Some(&template)).affinity(&PodPlan::default());
    assert_eq!(affinity["nodeAffinity"], node);
    assert_eq!(affinity["podAntiAffinity"][REQUIRED], json!([required]));
    let list = affinity["podAntiAffinity"][PREFERRED].as_array().unwrap();
    assert_eq!((list.len(), &list[0], &list[1]["weight"]), (2, &preferred, &json!(10)));
}

#[test]
fn the_same_template_fields_are_copied_as_by_tekton() {
    let name = name();
    let template = json!({
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "nodeSelector": {"disk": "ssd"},
        "imagePullSecrets": [{"name": "s"}],
        "securityContext": {"runAsUser": 1001, "fsGroup": 1001},
        "priorityClassName": "high",
        "hostAliases": [{"ip": "1.1.1.1"}],
        "runtimeClassName": "gvisor", "schedulerName": "mine", "volumes": [{"name": "v"}],
        "topologySpreadConstraints": [], "hostNetwork": true, "env": [{"name": "x"}],
    });
    let plain = pod(&document(&blueprint(&name, None)));
    let of_template =
        Blueprint { service_account: Some("bot"), ..blueprint(&name, Some(&template)) };
    let with = pod(&document(&of_template));
    for key in
        ["tolerations", "nodeSelector", "imagePullSecrets", "securityContext", "priorityClassName"]
    {
        assert_eq!(with[key], template[key], "{key}");
        assert!(plain.get(key).is_none(), "{key}");
    }
    assert_eq!(with["serviceAccountName"], "bot");
    assert_eq!(with["automountServiceAccountToken"], false);
    for key in [
        "hostAliases",
        "runtimeClassName",
        "schedulerName",
        "topologySpreadConstraints",
        "hostNetwork",
    ] {
        assert!(with.get(key).is_none(), "{key}");
    }
    assert_eq!(with["volumes"], plain["volumes"]);
    assert!(with["containers"][0]["securityContext"].get("runAsUser").is_none(), "the run's own");
}

#[test]
fn the_security_context_depends_on_operating_system_and_user() {
    let name = name();
    let context = |template: &Value| {
        pod(&document(&blueprint(&name, Some(template))))["containers"][0]["securityContext"]
            .clone()
    };
    let windows = json!({"nodeSelector": {"kubernetes.io/os": "windows"}});
    assert_eq!(context(&windows), json!({"runAsNonRoot": true}));
    let root = json!({"securityContext": {"runAsUser": 0}});
    assert_eq!(context(&root)["runAsUser"], 65_532, "never root");
}

#[test]
fn the_groups_node_selector_and_the_runs_priority_class_win() {
    let name = name();
    let template = json!({"nodeSelector": {"disk": "ssd"}, "priorityClassName": "low"});
    let labels = [("arch".into(), "arm64".into())];
    let blueprint = Blueprint { node_selector: &labels, ..blueprint(&name, Some(&template)) };
    let mut policy = Policy::default().coschedule.placeholder;
    policy.priority_class_name = "placeholders".to_owned();
    let plan = blueprint.first_plan(Nodes::Any);
    let of_run = pod(&blueprint.document(&plan, &policy));
    assert_eq!(of_run["nodeSelector"], json!({"arch": "arm64"}));
    assert_eq!(of_run["priorityClassName"], "low");
    let without = Blueprint { template: None, ..blueprint };
    assert_eq!(pod(&without.document(&plan, &policy))["priorityClassName"], "placeholders");
}

#[test]
fn the_nodes_of_a_plan_are_added_to_every_term() {
    let name = name();
    let terms = |template: Option<&Value>, nodes| {
        let affinity =
            blueprint(&name, template).affinity(&PodPlan { nodes, ..PodPlan::default() });
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
    assert_eq!(
        terms(Some(&template), Nodes::except(["n1", "n2"], 9)),
        json!([
            {"matchExpressions": zone("a"), "matchFields": [on_node("NotIn", "n1"), on_node("NotIn", "n2")]},
            {"matchExpressions": zone("b"), "matchFields": [on_node("NotIn", "n9"), on_node("NotIn", "n1"), on_node("NotIn", "n2")]},
        ])
    );
    assert_eq!(blueprint(&name, None).most_excluded(), MOST_EXCLUDED);
    assert_eq!(blueprint(&name, Some(&template)).most_excluded(), MOST_EXCLUDED / 2);
}

#[test]
fn a_template_of_any_shape_makes_an_object() {
    let name = name();
    for template in [
        json!(null),
        json!([]),
        json!("é"),
        json!({"affinity": null}),
        json!({"affinity": []}),
        json!({"affinity": {"podAntiAffinity": [], "nodeAffinity": 7}, "nodeSelector": "x"}),
        json!({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [null, 7]}}}}),
    ] {
        let blueprint = blueprint(&name, Some(&template));
        let plan = blueprint.first_plan(Nodes::Only("n1".into()));
        let document = blueprint.document(&plan, &Policy::default().coschedule.placeholder);
        assert_eq!(document["spec"]["replicas"], 1, "{template}");
    }
}

#[test]
fn claims_from_templates_are_owned_by_the_run_and_mounted() {
    let name = name();
    let template = json!({
        "metadata": {"name": "src", "labels": {"a": "b"}, "annotations": {"c": "d"}, "ownerReferences": [1]},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast"},
    });
    let templates = vec![("src-0123456789".to_owned(), &template), ("x".repeat(75), &template)];
    let document = document(&Blueprint { claims: vec!["a"], templates, ..blueprint(&name, None) });
    let made = &document["spec"]["volumeClaimTemplates"];
    assert_eq!(
        made[0],
        json!({
            "metadata": {
                "name": "src-0123456789",
                "labels": {"a": "b", "stowplan.dev/placeholder": "affinity-assistant-0123456789"},
                "annotations": {"c": "d", "stowplan.dev/coschedule": "workspaces"},
                "ownerReferences": [{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "run", "uid": "uid-run"}],
            },
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast"},
        })
    );
    assert_eq!(made[1]["metadata"]["name"].as_str().unwrap().len(), 63);
    let mounts = document["spec"]["template"]["spec"]["containers"][0]["volumeMounts"].clone();
    let names: Vec<_> = mounts.as_array().unwrap().iter().map(|mount| &mount["name"]).collect();
    assert_eq!(
        names,
        ["workspace-0", "src-0123456789", made[1]["metadata"]["name"].as_str().unwrap()]
    );
}

#[test]
fn a_native_group_has_no_owner() {
    let name = name();
    let document = document(&Blueprint { cause: Cause::Native("g"), ..blueprint(&name, None) });
    assert_eq!(document["metadata"]["annotations"], json!({"stowplan.dev/coschedule-group": "g"}));
    assert!(document["metadata"].get("ownerReferences").is_none());
}
