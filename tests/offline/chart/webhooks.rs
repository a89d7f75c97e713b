//! The webhook configurations: for which objects the API server calls the webhook, and how.

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use serde_json::Value;

use super::helm::{Objects, Render, read};

/// The namespaces that `webhook` excludes by name.
fn excluded(webhook: &MutatingWebhook) -> Vec<String> {
    let selector = webhook.namespace_selector.as_ref().expect("a namespace selector");
    let rules = selector.match_expressions.as_ref().expect("expressions");
    let [rule] = rules
        .iter()
        .filter(|rule| rule.key == "kubernetes.io/metadata.name")
        .collect::<Vec<_>>()
        .try_into()
        .expect("one rule on names");
    assert_eq!(rule.operator, "NotIn");
    rule.values.clone().expect("names")
}

#[test]
fn the_control_plane_and_its_own_namespace_are_always_excluded() {
    for (namespace, values, expected) in [
        ("stowplan-system", &[][..], &["kube-system", "kube-node-lease", "stowplan-system"][..]),
        ("elsewhere", &[], &["kube-system", "kube-node-lease", "elsewhere"]),
        ("kube-system", &[], &["kube-system", "kube-node-lease"]),
        (
            "stowplan-system",
            &[r#"webhook.excludedNamespaces=["stowplan-system", "build"]"#],
            &["kube-system", "kube-node-lease", "stowplan-system", "build"],
        ),
    ] {
        let render = Render::defaults().namespace(namespace).set_all(values);
        for webhook in render.objects().webhooks() {
            assert_eq!(excluded(&webhook), expected, "{}", webhook.name);
        }
        assert!(render.text().contains(&format!("- --namespace={namespace}\n")));
    }
}

/// `stowplan check` looks for these words in the conditions that are installed.
#[test]
fn what_check_looks_for_in_the_conditions_is_there() {
    let webhook = Render::defaults().objects().webhook();
    let conditions = webhook.match_conditions.expect("conditions");
    for word in stowplan::testing::check::sent_by() {
        let mut expressions = conditions.iter().map(|condition| &condition.expression);
        assert!(expressions.any(|expression| expression.contains(word)), "{word}");
    }
}

#[test]
fn the_opt_out_label_holds_for_namespaces_pods_and_the_webhook_itself() {
    let objects = Render::defaults().set(r#"podLabels={"stowplan.dev/ignore": "false"}"#).objects();
    let webhooks = objects.webhooks();
    assert_eq!(webhooks.len(), 2);
    for selector in webhooks.into_iter().flat_map(|it| [it.namespace_selector, it.object_selector])
    {
        let rules = selector.expect("a selector").match_expressions.expect("expressions");
        let rule = rules.iter().find(|rule| rule.key == "stowplan.dev/ignore").expect("the label");
        assert_eq!(
            (&*rule.operator, rule.values.as_deref()),
            ("NotIn", Some(&["true".to_owned()][..]))
        );
    }
    let pods = objects.pods();
    assert_eq!(pods.len(), 2);
    for pod in pods {
        let labels = pod.metadata.expect("metadata").labels.expect("labels");
        assert_eq!(labels["stowplan.dev/ignore"], "true");
    }
}

/// A pool in an excluded namespace would take nodes all the same, so no selector exempts it.
#[test]
fn own_objects_are_checked_in_every_namespace_when_their_specification_is_new() {
    let objects = Render::defaults().set(r#"webhook.excludedNamespaces=["build"]"#).objects();
    let webhook = objects.validation();
    assert_eq!(webhook.name, "objects.stowplan.dev");
    assert_eq!(webhook.namespace_selector, None);
    assert_eq!(webhook.object_selector, None);
    assert_eq!(webhook.side_effects, "None");
    let [rule] = webhook.rules.expect("rules").try_into().expect("one rule");
    let words = |words: &[&str]| Some(words.iter().map(|&word| word.to_owned()).collect());
    assert_eq!(rule.operations, words(&["CREATE", "UPDATE"]));
    assert_eq!(rule.api_groups, words(&["stowplan.dev"]));
    // Subresources must be listed to be sent, so statuses are never sent.
    assert_eq!(rule.resources, words(&["hostpools", "streamsjobs"]));
    for definition in Objects::parse(&read("files/crds.yaml")).0.values() {
        let versions = definition["spec"]["versions"].as_array().expect("versions");
        let versions: Vec<_> =
            versions.iter().map(|it| it["name"].as_str().expect("a name").to_owned()).collect();
        assert_eq!(rule.api_versions, Some(versions));
    }
    let [condition] = webhook.match_conditions.expect("conditions").try_into().expect("one");
    // The specification is there: the definitions require it, and the schema is looked at first.
    assert!(condition.expression.contains("request.operation == 'CREATE' ||"));
    assert!(condition.expression.contains("object.spec == oldObject.spec"));
}

/// Claims are placed for coscheduling alone, so that a cluster that does without pays nothing for
/// it.
#[test]
fn runs_and_their_claims_are_asked_about_unless_the_policy_turns_coscheduling_off() {
    for (policy, asked) in [
        ("{}", true),
        (r#"{"coschedule": {}}"#, true),
        (r#"{"coschedule": {"enabled": true}}"#, true),
        (r#"{"coschedule": {"mode": "disabled"}}"#, true),
        (r#"{"coschedule": {"enabled": false}}"#, false),
    ] {
        let objects = Render::defaults().set(&format!("policy={policy}")).objects();
        let names: Vec<_> = objects.webhooks().into_iter().map(|webhook| webhook.name).collect();
        let all = ["pods.stowplan.dev", "claims.stowplan.dev"];
        assert_eq!(names, all[..if asked { 2 } else { 1 }], "{policy}");
        let conditions = objects.webhook().match_conditions.expect("conditions");
        assert_eq!(conditions[0].expression.contains("tekton.dev/"), asked, "{policy}");
    }
}

/// The two webhooks differ only in the objects that they are called for.
#[test]
fn pods_and_claims_are_asked_about_alike() {
    for render in [
        Render::defaults(),
        Render::file("ci/full-values.yaml").release("stowplan").set(r#"fullnameOverride="""#),
    ] {
        let [pods, mut claims] = render.objects().webhooks().try_into().expect("two");
        let resource = |webhook: &mut MutatingWebhook| {
            let rule = &mut webhook.rules.as_mut().expect("rules")[0];
            std::mem::take(&mut rule.resources).expect("resources").remove(0)
        };
        let mut pods = pods;
        assert_eq!(resource(&mut pods), "pods");
        assert_eq!(resource(&mut claims), "persistentvolumeclaims");
        claims.name.clone_from(&pods.name);
        claims.match_conditions.clone_from(&pods.match_conditions);
        assert_eq!(pods, claims);
    }
}

/// The two configurations differ in their path and nothing else that decides whether they are
/// reached.
#[test]
fn both_configurations_are_called_alike() {
    for values in [
        &[][..],
        &[
            r#"webhook.failurePolicy="Fail""#,
            "webhook.timeoutSeconds=7",
            "webhook.service.port=8443",
        ],
        &[r#"tls.caBundle="""#, r#"tls.certManager.inject="stowplan/ca""#],
    ] {
        let objects = Render::defaults().set_all(values).objects();
        let (pods, own) = (objects.webhook(), objects.validation());
        assert_eq!(own.failure_policy, pods.failure_policy);
        assert_eq!(own.timeout_seconds, pods.timeout_seconds);
        assert_eq!(own.client_config.ca_bundle, pods.client_config.ca_bundle);
        let own = own.client_config.service.expect("a Service");
        let mut pods = pods.client_config.service.expect("a Service");
        assert_eq!(pods.path.replace("/validate".to_owned()).as_deref(), Some("/mutate"));
        assert_eq!(own, pods);
        let annotations =
            |kind| objects.get::<Value>(kind, "stowplan")["metadata"]["annotations"].clone();
        assert_eq!(
            annotations("ValidatingWebhookConfiguration"),
            annotations("MutatingWebhookConfiguration"),
        );
    }
}

/// An expression that fails to evaluate counts as a failed call: each field is asked for first.
#[test]
fn match_conditions_guard_every_optional_field() {
    let objects = Render::defaults()
        .set(r#"webhook.matchConditions=[{"name": "mine", "expression": "true"}]"#)
        .objects();
    let conditions = objects.webhook().match_conditions.expect("conditions");
    let names: Vec<_> = conditions.iter().map(|condition| &*condition.name).collect();
    assert_eq!(names, ["has-a-known-key", "not-a-mirror-pod", "mine"]);
    let conditions =
        objects.webhooks().into_iter().flat_map(|it| it.match_conditions.expect("conditions"));
    for condition in conditions {
        for field in ["annotations", "labels", "ownerReferences"] {
            let guard = format!("has(object.metadata.{field}) && ");
            let uses = condition.expression.matches(&format!("object.metadata.{field}")).count();
            let guards = condition.expression.matches(&guard).count();
            assert_eq!(uses, guards * 2, "{}: {}", condition.name, condition.expression);
        }
    }
}

#[test]
fn cert_manager_injects_into_a_configuration_without_a_bundle() {
    let objects = Render::bare().set(r#"tls.certManager.inject="stowplan/ca""#).objects();
    assert!(objects.webhook().client_config.ca_bundle.is_none());
    assert!(objects.validation().client_config.ca_bundle.is_none());
    let configuration: MutatingWebhookConfiguration =
        objects.get("MutatingWebhookConfiguration", "stowplan");
    let annotations = configuration.metadata.annotations.expect("annotations");
    assert_eq!(annotations["cert-manager.io/inject-ca-from"], "stowplan/ca");
}
