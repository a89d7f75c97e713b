//! Diagnoses whether the API server calls the webhook: the webhook configurations and the Service behind
//! them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, ServiceReference};
use serde_json::{Map, Value, json};

use super::facts::{Facts, Role, known};
use stowplan_core::systems::check::installation::{AskedFor, Findings, Item};
use stowplan_core::systems::check::words::{counted, some};
use stowplan_core::systems::policy::Policy;
use stowplan_core::systems::{self, DIAGNOSTICS, Diagnostics};

/// A webhook that this version expects.
struct Expected {
    name: &'static str,
    path: &'static str,
    /// The operations, groups, versions and resources of its rule; no resources: stowplan's kinds.
    rule: [&'static [&'static str]; 4],
    conditions: &'static [&'static str],
    /// The label of the namespaces whose objects are sent; `None`: those of all namespaces are.
    asked_by: Option<&'static str>,
    /// The consequence if there is none.
    without: &'static str,
}

const PODS: Expected = Expected {
    name: "pods.stowplan.dev",
    path: "/mutate",
    rule: [&["CREATE"], &[""], &["v1"], &["pods"]],
    conditions: &["has-a-known-key", "not-a-mirror-pod"],
    asked_by: None,
    without: "pods are not placed",
};
const CLAIMS: Expected = Expected {
    name: "claims.stowplan.dev",
    rule: [&["CREATE"], &[""], &["v1"], &["persistentvolumeclaims"]],
    conditions: &["of-a-run-or-a-group"],
    without: "claims of groups may bind too early",
    ..PODS
};
const OBJECTS: Expected = Expected {
    name: "objects.stowplan.dev",
    path: "/validate",
    rule: [&["CREATE", "UPDATE"], &["stowplan.dev"], &["v1alpha1"], &[]],
    conditions: &["the-spec-is-new"],
    asked_by: None,
    without: "objects of stowplan are not validated",
};

/// The fields that select objects: with a difference there the webhook is called, of other objects.
const SELECTING: [&str; 3] = ["namespaceSelector", "objectSelector", "matchConditions"];

/// The port of the webhook's container, to which the Service leads.
const PORT: &str = "webhook";

const UPGRADE: &str =
    "helm upgrade restores it; if it changes again, find out which program changes it";

/// Returns the name of a webhook in messages.
pub(super) fn subject(configuration: &str, webhook: &MutatingWebhook) -> String {
    format!("{configuration}: {}", webhook.name)
}

/// Diagnoses the webhook configurations.
pub(super) fn check(facts: &Facts, policy: &Policy) -> Vec<Item> {
    let mut findings = Findings::new("webhook-configurations");
    known(&mut findings, "MutatingWebhookConfigurations are not known", &facts.mutating);
    known(&mut findings, "ValidatingWebhookConfigurations are not known", &facts.validating);
    let enabled = DIAGNOSTICS.iter().filter(|of| (of.system.enabled)(policy));
    let asked_for = enabled.filter_map(|of| of.installation.webhook);
    let asked_for = asked_for.map(|of| (Expected::asked_for(of), facts.mutating.is_ok()));
    let expected = [
        (PODS, facts.mutating.is_ok()),
        (CLAIMS, facts.mutating.is_ok() && policy.coschedule.enabled),
        (OBJECTS, facts.validating.is_ok()),
    ];
    for (expected, is_wanted) in expected.into_iter().chain(asked_for) {
        let Expected { name, without, .. } = expected;
        let found: Vec<_> = facts.webhooks().filter(|(_, of)| of.name == name).collect();
        if found.is_empty() && is_wanted {
            findings.problem(
                format!("there is no webhook {name}: {without}"),
                "helm upgrade creates it (helm install, if stowplan is not installed)",
            );
        }
        if found.len() > 1 {
            let names: Vec<&str> = found.iter().map(|(configuration, _)| *configuration).collect();
            findings.problem(
                format!("several configurations have the webhook {name}: {}", names.join(", ")),
                "only one installation per cluster is supported: delete those of the other one",
            );
        }
        let wanted = expected.describe(facts.namespace.as_deref(), policy);
        for (configuration, webhook) in found {
            let subject = subject(configuration, webhook);
            let mut differences = Vec::new();
            compare("", &wanted, &describe(webhook), &mut differences);
            let is_selecting =
                |of: &String| SELECTING.iter().any(|selecting| of.starts_with(selecting));
            let (selecting, others): (Vec<_>, Vec<_>) =
                differences.into_iter().partition(is_selecting);
            let differs =
                |of: &[String]| format!("{subject} is not as this version expects: {}", some(of));
            if !others.is_empty() {
                findings.problem(differs(&others), UPGRADE);
            }
            if !selecting.is_empty() {
                findings.warning(
                    differs(&selecting),
                    "helm upgrade restores it. On AKS: the chart's value webhook.annotations; add \
                     conditions by the chart's value webhook.matchConditions",
                );
            }
            if name == PODS.name {
                check_sent(policy, &subject, webhook, &mut findings);
            }
        }
    }
    let policies = facts.webhooks().map(|(_, of)| of.failure_policy.as_deref().unwrap_or_default());
    let policies = policies.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" and ");
    findings.or_ok(format!(
        "{} as this version expects, failurePolicy {policies}",
        counted(facts.webhooks().count(), "webhook")
    ))
}

impl Expected {
    /// The webhook for pods of namespaces that ask for it.
    const fn asked_for(AskedFor { name, label, conditions, without }: AskedFor) -> Self {
        Self { name, conditions, asked_by: Some(label), without, ..PODS }
    }

    /// Describes the webhook as the chart writes it, as [`describe`] does. `null`: any value.
    fn describe(&self, namespace: Option<&str>, policy: &Policy) -> Value {
        let [operations, groups, versions, resources] = self.rule;
        let resources = match resources {
            [] => systems::definitions().into_iter().map(|of| of.spec.names.plural).collect(),
            resources => resources.iter().map(ToString::to_string).collect::<Vec<_>>(),
        };
        let excluded = |key: &str| json!({"key": key, "operator": "NotIn", "values": null});
        let ignored = excluded("stowplan.dev/ignore");
        let asked = |key: &str| json!({"key": key, "operator": "In", "values": ["true"]});
        let mut named = vec![excluded("kubernetes.io/metadata.name"), ignored.clone()];
        named.extend(self.asked_by.map(asked));
        let is_placing = self.path == PODS.path;
        let selector =
            |of: Value| if is_placing { json!({"matchExpressions": of}) } else { json!({}) };
        let mut conditions: Map<_, _> =
            self.conditions.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
        if self.rule == PODS.rule {
            conditions.extend(policy.match_conditions.iter().map(|of| (of.clone(), json!({}))));
        }
        json!({
            "name": null, "failurePolicy": null, "timeoutSeconds": null,
            "admissionReviewVersions": ["v1"], "matchPolicy": "Equivalent", "sideEffects": "None",
            "reinvocationPolicy": is_placing.then_some("IfNeeded"),
            "clientConfig": {"caBundle": null,
                "service": {"namespace": namespace, "name": null, "path": self.path, "port": null}},
            "rules": [{"operations": operations, "apiGroups": groups, "apiVersions": versions,
                "resources": resources, "scope": "Namespaced"}],
            "namespaceSelector": selector(named.into_iter().collect()),
            "objectSelector": selector(json!([ignored])),
            "matchConditions": conditions,
        })
    }
}

/// Describes a webhook. The match conditions are by their names, because their order means nothing.
fn describe(webhook: &MutatingWebhook) -> Value {
    let mut described = json!(webhook);
    if let Some(conditions) = &webhook.match_conditions {
        let names = conditions.iter().map(|of| (of.name.clone(), json!({})));
        described["matchConditions"] = names.collect::<Map<_, _>>().into();
    }
    described
}

/// Names each value that is not as wanted, by its path.
fn compare(path: &str, wanted: &Value, found: &Value, differences: &mut Vec<String>) {
    if wanted.is_null() || wanted == found {
        return;
    }
    let parts = |of: &Value| -> BTreeMap<String, Value> {
        let fields = of.as_object().into_iter().flatten();
        let fields = fields.map(|(key, value)| (format!("{path}.{key}"), value.clone()));
        let list = of.as_array().into_iter().flatten().enumerate();
        fields.chain(list.map(|(at, value)| (format!("{path}[{at}]"), value.clone()))).collect()
    };
    let (mut missing, others) = (parts(wanted), parts(found));
    let shown = path.trim_start_matches('.');
    if found.is_null() {
        differences.push(format!("{shown} is absent"));
    } else if missing.is_empty() || others.is_empty() {
        differences.push(format!("{shown} is {found} instead of {wanted}"));
    } else {
        for (path, found) in others {
            match missing.remove(&path) {
                Some(wanted) => compare(&path, &wanted, &found, differences),
                None => {
                    // The value of a match condition is left out.
                    let value = if found == json!({}) { "" } else { &*format!(": {found}") };
                    differences.push(format!("{}{value} is added", path.trim_start_matches('.')));
                }
            }
        }
        for (path, wanted) in missing {
            compare(&path, &wanted, &Value::Null, differences);
        }
    }
}

/// Checks that the pods of each system are sent.
fn check_sent(policy: &Policy, subject: &str, webhook: &MutatingWebhook, findings: &mut Findings) {
    // Without conditions every pod is sent.
    let Some(conditions) = &webhook.match_conditions else { return };
    let enabled = DIAGNOSTICS.iter().filter(|of| (of.system.enabled)(policy));
    for Diagnostics { system, installation, .. } in enabled {
        let is_sent = |word: &&&str| conditions.iter().any(|of| of.expression.contains(**word));
        if let Some(missing) = installation.sent_by.iter().find(|word| !is_sent(word)) {
            findings.problem(
                format!(
                    "{subject} does not send pods of {}: no match condition has {missing}",
                    system.name
                ),
                "helm upgrade writes the conditions for this version and its policy",
            );
        }
    }
}

/// Diagnoses the Service: whether the API server finds a pod behind it.
pub(super) fn check_service(facts: &Facts) -> Vec<Item> {
    let mut findings = Findings::new("service");
    let called = facts.called_service();
    let name = called.map_or_else(String::new, |of| format!("{}/{}", of.namespace, of.name));
    let mut ready = 0;
    let is_unread = facts.service.is_err();
    match (called, &facts.namespace) {
        (Some(called), Some(own)) if is_unread && called.namespace != *own => findings.unknown(
            format!(
                "the webhook configurations call Service {name}, which is not in namespace {own}"
            ),
            format!("--installed-in {}, if stowplan is installed there", called.namespace),
        ),
        _ => {
            check_port(facts, called, &name, &mut findings);
            ready = check_ready(facts, &name, &mut findings);
        }
    }
    for replica in facts.webhook_replicas() {
        let Ok(status) = &replica.status else { continue };
        // The line `policy` has the others.
        let mut problems = status.problems.clone();
        problems.retain(|of| status.policy.problem.as_ref().is_none_or(|own| !of.contains(own)));
        if !problems.is_empty() {
            let what = format!("pod {} is not ready: {}", replica.pod, problems.join("; "));
            findings.warning(what, "see its log");
        }
    }
    findings.or_ok(format!("{} of the webhook ready behind {name}", counted(ready, "replica")))
}

/// Diagnoses the port of the Service that the API server calls.
fn check_port(
    facts: &Facts,
    called: Option<&ServiceReference>,
    name: &str,
    findings: &mut Findings,
) {
    let Some(service) = known(findings, "the Service is not known", &facts.service) else { return };
    let Some(service) = service else {
        return findings.problem(
            format!("there is no Service {name}: the API server cannot call the webhook"),
            "helm upgrade creates it",
        );
    };
    let mut ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let port = called.and_then(|of| of.port).unwrap_or(443);
    let expected = json!(PORT);
    match ports.find(|of| of.port == port).map(|of| json!(of.target_port)) {
        None => findings.problem(
            format!("the webhook configurations call port {port}, which Service {name} does not have"),
            UPGRADE,
        ),
        Some(target) if target != expected => findings.problem(
            format!("Service {name} is not as this version expects: the targetPort of {port} is {target} instead of {expected}"),
            UPGRADE,
        ),
        Some(_) => {}
    }
}

/// Diagnoses the endpoints of the Service, and returns how many replicas are ready.
fn check_ready(facts: &Facts, name: &str, findings: &mut Findings) -> usize {
    let slices = known(findings, "the endpoints of the Service are not known", &facts.slices);
    let Some(slices) = slices else { return 0 };
    let endpoints = slices.iter().flat_map(|slice| &slice.endpoints);
    let endpoints =
        endpoints.filter(|of| of.conditions.as_ref().and_then(|of| of.ready).unwrap_or(true));
    // With two address families a pod has an endpoint in each.
    let targets = endpoints
        .map(|of| of.target_ref.as_ref().and_then(|of| of.name.as_ref()).ok_or(&of.addresses));
    let ready = targets.collect::<BTreeSet<_>>().len();
    let webhooks = facts.containers().filter(|(role, _, _)| *role == Role::Webhook);
    let desired: i32 =
        webhooks.filter_map(|(_, deployment, _)| deployment.spec.as_ref()?.replicas).sum();
    let pods = "kubectl describe pods of the webhook, and their logs";
    if ready == 0 {
        let what = format!("no replica of the webhook is ready behind Service {name}");
        findings.problem(what, pods);
    } else if i32::try_from(ready).is_ok_and(|ready| ready < desired) {
        let what = format!("{ready} of {desired} replicas of the webhook are ready");
        findings.warning(what, pods);
    }
    ready
}
