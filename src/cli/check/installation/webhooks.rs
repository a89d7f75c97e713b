//! Diagnoses the webhook configurations and the Service behind them.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, RuleWithOperations, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::ResourceExt as _;

use super::facts::{Facts, Role};
use crate::systems::SYSTEMS;
use crate::systems::check::installation::{Findings, Item};
use crate::systems::check::words::counted;
use crate::systems::policy::Policy;

/// The names of the webhooks.
const PODS: &str = "pods.stowplan.dev";
const CLAIMS: &str = "claims.stowplan.dev";
const OBJECTS: &str = "objects.stowplan.dev";

/// The paths that the webhook serves.
const MUTATE: &str = "/mutate";
const VALIDATE: &str = "/validate";

/// The match conditions of the chart.
const CONDITIONS: &[&str] =
    &["has-a-known-key", "not-a-mirror-pod", "of-a-run-or-a-group", "the-spec-is-new"];

/// The labels in the selectors of the chart.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
const OPT_OUT: &str = "stowplan.dev/ignore";

/// A namespace whose pods must not depend on a webhook.
const CONTROL_PLANE: &str = "kube-system";

/// The shortest timeout that is longer than any decision takes, in seconds.
const SHORTEST: i32 = 2;

/// The longest timeout that clients of the API server wait for, with other webhooks.
const LONGEST: i32 = 15;

const UPGRADE: &str =
    "helm upgrade restores it; if it changes again, find out which program changes it";

/// The common part of the two kinds of webhooks.
pub(super) struct Webhook<'w> {
    /// The name of its configuration.
    pub(super) configuration: String,
    pub(super) name: &'w str,
    pub(super) client: &'w WebhookClientConfig,
    failure_policy: &'w str,
    timeout: i32,
    side_effects: &'w str,
    conditions: &'w [MatchCondition],
    rules: &'w [RuleWithOperations],
    /// Selectors of namespaces and objects; `None` for webhooks that have none by design.
    selectors: Option<[Option<&'w LabelSelector>; 2]>,
}

/// All webhooks of stowplan that were read.
pub(super) fn webhooks(facts: &Facts) -> Vec<Webhook<'_>> {
    // The two kinds have equal fields, and no type in common.
    macro_rules! webhooks {
        ($configurations:expr, |$of:ident| $selectors:expr) => {
            $configurations.iter().flatten().flat_map(|configuration| {
                configuration.webhooks.iter().flatten().map(|$of| Webhook {
                    configuration: configuration.name_any(),
                    name: &$of.name,
                    client: &$of.client_config,
                    failure_policy: $of.failure_policy.as_deref().unwrap_or_default(),
                    timeout: $of.timeout_seconds.unwrap_or_default(),
                    side_effects: &$of.side_effects,
                    conditions: $of.match_conditions.as_deref().unwrap_or_default(),
                    rules: $of.rules.as_deref().unwrap_or_default(),
                    selectors: $selectors,
                })
            })
        };
    }
    let mutating = webhooks!(facts.mutating, |of| Some([
        of.namespace_selector.as_ref(),
        of.object_selector.as_ref()
    ]));
    mutating.chain(webhooks!(facts.validating, |of| None)).collect()
}

/// Diagnoses the webhook configurations.
pub(super) fn check(facts: &Facts, policy: &Policy) -> Vec<Item> {
    let mut findings = Findings::new("webhook-configurations");
    for (read, kind) in [
        (facts.mutating.as_ref().err(), "MutatingWebhookConfigurations"),
        (facts.validating.as_ref().err(), "ValidatingWebhookConfigurations"),
    ] {
        if let Some(unread) = read {
            findings.unknown(format!("{kind} are not known: {unread}"), unread.remedy());
        }
    }
    let webhooks = webhooks(facts);
    let mut expected = vec![(PODS, facts.mutating.is_ok(), "pods are not placed")];
    if policy.coschedule.enabled {
        expected.push((CLAIMS, facts.mutating.is_ok(), "claims of groups may bind too early"));
    }
    expected.push((OBJECTS, facts.validating.is_ok(), "objects of stowplan are not validated"));
    for (name, is_read, without) in expected {
        let found: Vec<&Webhook<'_>> = webhooks.iter().filter(|of| of.name == name).collect();
        if found.is_empty() && is_read {
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
    }
    for webhook in &webhooks {
        check_one(facts, policy, webhook, &mut findings);
    }
    let policies: BTreeSet<&str> = webhooks.iter().map(|of| of.failure_policy).collect();
    let policies = policies.into_iter().collect::<Vec<_>>().join(" and ");
    findings.or_ok(format!(
        "{} as this version expects, failurePolicy {policies}",
        counted(webhooks.len(), "webhook")
    ))
}

fn check_one(facts: &Facts, policy: &Policy, webhook: &Webhook<'_>, findings: &mut Findings) {
    let Webhook { configuration, name, .. } = webhook;
    let subject = format!("{configuration}: {name}");
    let path = match *name {
        PODS | CLAIMS => MUTATE,
        OBJECTS => VALIDATE,
        _ => {
            let what = format!("{subject} is not a webhook of this version");
            findings.warning(what, "upgrade this command, or the chart");
            return;
        }
    };
    match &webhook.client.service {
        None => findings.problem(format!("{subject} calls a URL instead of the Service"), UPGRADE),
        Some(service) => {
            let called = service.path.as_deref().unwrap_or("/");
            if called != path {
                let what = format!("{subject} calls the path {called} instead of {path}");
                findings.problem(what, UPGRADE);
            }
            let own = facts.namespace.as_deref();
            if own.is_some_and(|own| own != service.namespace) {
                findings.problem(
                    format!(
                        "{subject} calls Service {}/{}, of another namespace",
                        service.namespace, service.name
                    ),
                    "only one installation per cluster is supported: delete the other one, or name its namespace \
                     by --installed-in",
                );
            }
        }
    }
    if webhook.timeout < SHORTEST || webhook.timeout > LONGEST {
        findings.warning(
            format!("{subject} has timeoutSeconds {}", webhook.timeout),
            format!("set webhook.timeoutSeconds to {SHORTEST} to {LONGEST}"),
        );
    }
    if webhook.side_effects != "None" {
        let what = format!("{subject} has sideEffects {}", webhook.side_effects);
        findings.warning(what, UPGRADE);
    }
    let (operation, plural) = match *name {
        PODS => ("CREATE", "pods"),
        CLAIMS => ("CREATE", "persistentvolumeclaims"),
        _ => ("UPDATE", ""),
    };
    if !webhook.rules.iter().any(|rule| has_rule(rule, operation, plural)) {
        let what = format!("{subject} has no rule for {operation} of its objects");
        findings.problem(what, UPGRADE);
    }
    check_conditions(policy, webhook, &subject, findings);
    if let Some([namespaces, objects]) = webhook.selectors {
        check_namespaces(facts, policy, namespaces, &subject, findings);
        let others = requirements(objects).any(|of| !is_opt_out(of));
        if others || objects.is_some_and(has_labels) {
            findings.warning(
                format!("{subject} selects objects by more than the label {OPT_OUT}: others are not placed"),
                UPGRADE,
            );
        }
    }
    if webhook.failure_policy == "Fail" {
        let replicas: i32 = facts
            .containers()
            .filter(|(role, _, _)| *role == Role::Webhook)
            .filter_map(|(_, deployment, _)| deployment.spec.as_ref()?.replicas)
            .sum();
        if replicas == 1 {
            findings.warning(
                format!("{subject} has failurePolicy Fail, and there is one replica: without it pods are refused"),
                "use at least two replicas",
            );
        }
    }
}

fn has_rule(rule: &RuleWithOperations, operation: &str, plural: &str) -> bool {
    let has = |list: &Option<Vec<String>>, word: &str| {
        list.iter().flatten().any(|of| of == word || of == "*")
    };
    has(&rule.operations, operation) && (plural.is_empty() || has(&rule.resources, plural))
}

fn check_conditions(
    policy: &Policy,
    webhook: &Webhook<'_>,
    subject: &str,
    findings: &mut Findings,
) {
    let known = |name: &str| CONDITIONS.contains(&name) || policy.match_conditions.contains(name);
    let foreign: Vec<&str> =
        webhook.conditions.iter().map(|of| of.name.as_str()).filter(|name| !known(name)).collect();
    if !foreign.is_empty() {
        findings.warning(
            format!(
                "{subject} has match conditions that the policy does not name: {}",
                foreign.join(", ")
            ),
            "add conditions by the chart's value webhook.matchConditions",
        );
    }
    if webhook.name != PODS {
        return;
    }
    if webhook.conditions.is_empty() {
        findings.warning(
            format!("{subject} has no match conditions: every pod of the cluster is sent"),
            UPGRADE,
        );
        return;
    }
    let systems = SYSTEMS.iter().filter(|system| (system.enabled)(policy));
    for system in systems {
        let is_sent =
            |word: &&&str| webhook.conditions.iter().any(|of| of.expression.contains(**word));
        let mut words = system.installation.sent_by.iter();
        if let Some(missing) = words.find(|word| !is_sent(word)) {
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

fn check_namespaces(
    facts: &Facts,
    policy: &Policy,
    selector: Option<&LabelSelector>,
    subject: &str,
    findings: &mut Findings,
) {
    let excluded: BTreeSet<&str> = requirements(selector)
        .filter(|of| of.key == NAMESPACE_NAME && of.operator == "NotIn")
        .flat_map(|of| of.values.iter().flatten().map(String::as_str))
        .collect();
    for namespace in facts.namespace.as_deref().into_iter().chain([CONTROL_PLANE]) {
        if !excluded.contains(namespace) {
            findings.problem(
                format!("{subject} does not exclude namespace {namespace}: a broken webhook could prevent its pods"),
                UPGRADE,
            );
        }
    }
    let of_policy = policy.excluded_namespaces.iter().map(String::as_str);
    let only_in_policy: Vec<&str> = of_policy.filter(|of| !excluded.contains(of)).collect();
    let only_here = excluded.iter().filter(|of| !policy.excludes(of));
    // The namespace of the installation is excluded by the program itself.
    let only_here: Vec<&str> =
        only_here.copied().filter(|of| facts.namespace.as_deref() != Some(of)).collect();
    if facts.policy.as_ref().is_ok_and(Option::is_some)
        && !(only_in_policy.is_empty() && only_here.is_empty())
    {
        let mut differing = only_in_policy;
        differing.extend(only_here);
        findings.warning(
            format!(
                "{subject} and the policy do not exclude the same namespaces: {}",
                differing.join(", ")
            ),
            "exclude namespaces by the chart's value webhook.excludedNamespaces, and helm upgrade",
        );
    }
    let is_known = |of: &LabelSelectorRequirement| {
        is_opt_out(of) || (of.key == NAMESPACE_NAME && of.operator == "NotIn")
    };
    let others: Vec<&str> =
        requirements(selector).filter(|of| !is_known(of)).map(|of| of.key.as_str()).collect();
    if !others.is_empty() || selector.is_some_and(has_labels) {
        findings.warning(
            format!("{subject} selects namespaces by more than the chart does: {}", others.join(", ")),
            "pods of the other namespaces are not placed. On AKS: the chart's value webhook.annotations",
        );
    }
}

fn requirements(
    selector: Option<&LabelSelector>,
) -> impl Iterator<Item = &LabelSelectorRequirement> {
    selector.into_iter().flat_map(|of| of.match_expressions.iter().flatten())
}

fn has_labels(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_some_and(|labels| !labels.is_empty())
}

fn is_opt_out(of: &LabelSelectorRequirement) -> bool {
    of.key == OPT_OUT && of.operator == "NotIn"
}

/// Diagnoses the Service: whether the API server finds a pod behind it.
pub(super) fn check_service(facts: &Facts) -> Vec<Item> {
    let mut findings = Findings::new("service");
    let webhooks = webhooks(facts);
    let called = webhooks.iter().find_map(|of| of.client.service.as_ref());
    let name = called.map_or_else(String::new, |of| format!("{}/{}", of.namespace, of.name));
    match &facts.service {
        Err(unread) => {
            findings.unknown(format!("the Service is not known: {unread}"), unread.remedy());
        }
        Ok(None) => findings.problem(
            format!("there is no Service {name}: the API server cannot call the webhook"),
            "helm upgrade creates it",
        ),
        Ok(Some(service)) => {
            let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
            let port = called.and_then(|of| of.port).unwrap_or(443);
            if !ports.into_iter().any(|of| of.port == port) {
                findings.problem(
                    format!("the webhook configurations call port {port}, which Service {name} does not have"),
                    UPGRADE,
                );
            }
        }
    }
    let desired: i32 = facts
        .containers()
        .filter(|(role, _, _)| *role == Role::Webhook)
        .filter_map(|(_, deployment, _)| deployment.spec.as_ref()?.replicas)
        .sum();
    let mut ready = 0;
    match &facts.slices {
        Err(unread) => {
            let what = format!("the endpoints of the Service are not known: {unread}");
            findings.unknown(what, unread.remedy());
        }
        Ok(slices) => {
            // With two address families a pod has an endpoint in each.
            let endpoints = slices.iter().flat_map(|slice| &slice.endpoints);
            let is_ready = |of: &&k8s_openapi::api::discovery::v1::Endpoint| {
                let ready = of.conditions.as_ref().and_then(|conditions| conditions.ready);
                ready.unwrap_or(true)
            };
            let targets: BTreeSet<_> = endpoints
                .filter(is_ready)
                .map(|of| match &of.target_ref {
                    Some(target) => target.name.clone().unwrap_or_default(),
                    None => of.addresses.join(","),
                })
                .collect();
            ready = targets.len();
            let pods = "kubectl describe pods of the webhook, and their logs";
            if ready == 0 {
                findings.problem(
                    format!("no replica of the webhook is ready behind Service {name}"),
                    pods,
                );
            } else if i32::try_from(ready).is_ok_and(|ready| ready < desired) {
                findings.warning(
                    format!("{ready} of {desired} replicas of the webhook are ready"),
                    pods,
                );
            }
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
