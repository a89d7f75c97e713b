//! Diagnoses whether the API server calls the webhook: the webhook configurations and the Service behind
//! them.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, RuleWithOperations, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt as _;

use super::facts::{Facts, Known as _, Role};
use crate::systems::check::installation::{Findings, Item};
use crate::systems::check::words::counted;
use crate::systems::policy::Policy;
use crate::systems::{DIAGNOSTICS, Diagnostics};

/// A webhook that this version expects.
struct Expected {
    name: &'static str,
    path: &'static str,
    /// The operation and the resource of which it has to be told; empty: any.
    rule: [&'static str; 2],
    /// The consequence if there is none.
    without: &'static str,
}

const PODS: Expected = Expected {
    name: "pods.stowplan.dev",
    path: "/mutate",
    rule: ["CREATE", "pods"],
    without: "pods are not placed",
};
const CLAIMS: Expected = Expected {
    name: "claims.stowplan.dev",
    path: "/mutate",
    rule: ["CREATE", "persistentvolumeclaims"],
    without: "claims of groups may bind too early",
};
const OBJECTS: Expected = Expected {
    name: "objects.stowplan.dev",
    path: "/validate",
    rule: ["UPDATE", ""],
    without: "objects of stowplan are not validated",
};

/// The match conditions of the chart.
const CONDITIONS: [&str; 4] =
    ["has-a-known-key", "not-a-mirror-pod", "of-a-run-or-a-group", "the-spec-is-new"];

/// The labels that the selectors of the chart exclude.
const SELECTED: [&str; 2] = ["kubernetes.io/metadata.name", "stowplan.dev/ignore"];

const UPGRADE: &str =
    "helm upgrade restores it; if it changes again, find out which program changes it";

/// The common part of the two kinds of webhooks.
pub(super) struct Webhook<'w> {
    /// The name of its configuration.
    pub(super) configuration: String,
    pub(super) name: &'w str,
    pub(super) client: &'w WebhookClientConfig,
    failure_policy: &'w str,
    conditions: &'w [MatchCondition],
    rules: &'w [RuleWithOperations],
    /// Of namespaces and objects.
    selectors: [Option<&'w LabelSelector>; 2],
}

/// All webhooks of stowplan that were read.
pub(super) fn webhooks(facts: &Facts) -> Vec<Webhook<'_>> {
    // The two kinds have equal fields, and no type in common.
    macro_rules! webhooks {
        ($configurations:expr) => {
            $configurations.iter().flatten().flat_map(|configuration| {
                configuration.webhooks.iter().flatten().map(|of| Webhook {
                    configuration: configuration.name_any(),
                    name: &of.name,
                    client: &of.client_config,
                    failure_policy: of.failure_policy.as_deref().unwrap_or_default(),
                    conditions: of.match_conditions.as_deref().unwrap_or_default(),
                    rules: of.rules.as_deref().unwrap_or_default(),
                    selectors: [of.namespace_selector.as_ref(), of.object_selector.as_ref()],
                })
            })
        };
    }
    webhooks!(facts.mutating).chain(webhooks!(facts.validating)).collect()
}

/// Diagnoses the webhook configurations.
pub(super) fn check(facts: &Facts, policy: &Policy) -> Vec<Item> {
    let mut findings = Findings::new("webhook-configurations");
    findings.known("MutatingWebhookConfigurations are not known", &facts.mutating);
    findings.known("ValidatingWebhookConfigurations are not known", &facts.validating);
    let webhooks = webhooks(facts);
    for (expected, is_wanted) in [
        (PODS, facts.mutating.is_ok()),
        (CLAIMS, facts.mutating.is_ok() && policy.coschedule.enabled),
        (OBJECTS, facts.validating.is_ok()),
    ] {
        let Expected { name, without, .. } = expected;
        let found: Vec<&Webhook<'_>> = webhooks.iter().filter(|of| of.name == name).collect();
        if found.is_empty() && is_wanted {
            findings.problem(
                format!("there is no webhook {name}: {without}"),
                "helm upgrade creates it (helm install, if stowplan is not installed)",
            );
        }
        if found.len() > 1 {
            let names: Vec<&str> = found.iter().map(|of| of.configuration.as_str()).collect();
            findings.problem(
                format!("several configurations have the webhook {name}: {}", names.join(", ")),
                "only one installation per cluster is supported: delete those of the other one",
            );
        }
        for webhook in found {
            check_one(facts, &expected, webhook, &mut findings);
            check_conditions(policy, webhook, &mut findings);
            if name == PODS.name {
                check_sent(policy, webhook, &mut findings);
            }
        }
    }
    let policies: BTreeSet<&str> = webhooks.iter().map(|of| of.failure_policy).collect();
    let policies = policies.into_iter().collect::<Vec<_>>().join(" and ");
    findings.or_ok(format!(
        "{} as this version expects, failurePolicy {policies}",
        counted(webhooks.len(), "webhook")
    ))
}

fn check_one(facts: &Facts, expected: &Expected, webhook: &Webhook<'_>, findings: &mut Findings) {
    let subject = webhook.subject();
    let Expected { path, rule: [operation, plural], .. } = *expected;
    if let Some(service) = &webhook.client.service {
        let called = service.path.as_deref().unwrap_or("/");
        if called != path {
            let what = format!("{subject} calls the path {called} instead of {path}");
            findings.problem(what, UPGRADE);
        }
        if facts.namespace.as_deref().is_some_and(|own| own != service.namespace) {
            findings.problem(
                format!(
                    "{subject} calls Service {}/{}, of another namespace",
                    service.namespace, service.name
                ),
                "only one installation per cluster is supported: delete the other one, or name its namespace \
                 by --installed-in",
            );
        }
    } else {
        findings.problem(format!("{subject} calls a URL instead of the Service"), UPGRADE);
    }
    let has = |list: &Option<Vec<String>>, word: &str| {
        list.iter().flatten().any(|of| of == word || of == "*")
    };
    let is_told = |rule: &RuleWithOperations| {
        has(&rule.operations, operation) && (plural.is_empty() || has(&rule.resources, plural))
    };
    if !webhook.rules.iter().any(is_told) {
        let what = format!("{subject} has no rule for {operation} of its objects");
        findings.problem(what, UPGRADE);
    }
    for (selector, objects) in webhook.selectors.into_iter().zip(["namespaces", "objects"]) {
        let labels = selector.iter().flat_map(|of| of.match_labels.iter().flatten());
        let labels = labels.map(|(key, _)| key.as_str());
        let expressions = selector.iter().flat_map(|of| of.match_expressions.iter().flatten());
        let others = expressions.filter(|of| {
            let excludes = matches!(of.operator.as_str(), "NotIn" | "DoesNotExist");
            !(excludes && SELECTED.contains(&of.key.as_str()))
        });
        let others: Vec<&str> = labels.chain(others.map(|of| of.key.as_str())).collect();
        if !others.is_empty() {
            findings.warning(
                format!(
                    "{subject} selects {objects} by more than the chart does: {}",
                    others.join(", ")
                ),
                "others are not placed. On AKS: the chart's value webhook.annotations",
            );
        }
    }
}

/// Warns of match conditions that neither the chart nor the policy has: all conditions of a webhook must hold, so
/// one more can keep every object from it.
fn check_conditions(policy: &Policy, webhook: &Webhook<'_>, findings: &mut Findings) {
    let known = |name: &str| CONDITIONS.contains(&name) || policy.match_conditions.contains(name);
    let names = webhook.conditions.iter().map(|of| of.name.as_str());
    let others: Vec<&str> = names.filter(|name| !known(name)).collect();
    if !others.is_empty() {
        findings.warning(
            format!(
                "{} has match conditions that the policy does not name: {}",
                webhook.subject(),
                others.join(", ")
            ),
            "add conditions by the chart's value webhook.matchConditions",
        );
    }
}

/// Checks that the pods of each system are sent.
fn check_sent(policy: &Policy, webhook: &Webhook<'_>, findings: &mut Findings) {
    if webhook.conditions.is_empty() {
        let subject = webhook.subject();
        let what = format!("{subject} has no match conditions: every pod of the cluster is sent");
        findings.warning(what, UPGRADE);
        return;
    }
    let enabled = DIAGNOSTICS.iter().filter(|of| (of.system.enabled)(policy));
    for Diagnostics { system, installation, .. } in enabled {
        let is_sent =
            |word: &&&str| webhook.conditions.iter().any(|of| of.expression.contains(**word));
        if let Some(missing) = installation.sent_by.iter().find(|word| !is_sent(word)) {
            findings.problem(
                format!(
                    "{} does not send pods of {}: no match condition has {missing}",
                    webhook.subject(),
                    system.name
                ),
                "helm upgrade writes the conditions for this version and its policy",
            );
        }
    }
}

impl Webhook<'_> {
    /// Its name in messages.
    pub(super) fn subject(&self) -> String {
        format!("{}: {}", self.configuration, self.name)
    }
}

/// Diagnoses the Service: whether the API server finds a pod behind it.
pub(super) fn check_service(facts: &Facts) -> Vec<Item> {
    let mut findings = Findings::new("service");
    let webhooks = webhooks(facts);
    let called = webhooks.iter().find_map(|of| of.client.service.as_ref());
    let name = called.map_or_else(String::new, |of| format!("{}/{}", of.namespace, of.name));
    match findings.known("the Service is not known", &facts.service) {
        None => {}
        Some(None) => findings.problem(
            format!("there is no Service {name}: the API server cannot call the webhook"),
            "helm upgrade creates it",
        ),
        Some(Some(service)) => {
            let mut ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
            let port = called.and_then(|of| of.port).unwrap_or(443);
            if !ports.any(|of| of.port == port) {
                findings.problem(
                    format!("the webhook configurations call port {port}, which Service {name} does not have"),
                    UPGRADE,
                );
            }
        }
    }
    let mut ready = 0;
    if let Some(slices) =
        findings.known("the endpoints of the Service are not known", &facts.slices)
    {
        let endpoints = slices.iter().flat_map(|slice| &slice.endpoints).filter(|of| {
            of.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
        });
        // With two address families a pod has an endpoint in each.
        let targets: BTreeSet<_> = endpoints
            .map(|of| (of.target_ref.as_ref().and_then(|pod| pod.name.as_ref()), &of.addresses))
            .map(|(pod, addresses)| pod.ok_or(addresses))
            .collect();
        ready = targets.len();
        let desired: i32 = facts
            .containers()
            .filter(|(role, _, _)| *role == Role::Webhook)
            .filter_map(|(_, deployment, _)| deployment.spec.as_ref()?.replicas)
            .sum();
        let pods = "kubectl describe pods of the webhook, and their logs";
        if ready == 0 {
            let what = format!("no replica of the webhook is ready behind Service {name}");
            findings.problem(what, pods);
        } else if i32::try_from(ready).is_ok_and(|ready| ready < desired) {
            let what = format!("{ready} of {desired} replicas of the webhook are ready");
            findings.warning(what, pods);
        }
    }
    for replica in facts.replicas_of(Role::Webhook) {
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
