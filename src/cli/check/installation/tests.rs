//! The lines for each state of an installation.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, RuleWithOperations, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::facts::{Facts, Read, Replica, Role, Unread};
use super::rights::Right;
use super::trial::Trial;
use super::*;
use crate::cli::policy_source::{Finding, Source};
use crate::server::admin::status::{PolicyStatus, ServedCertificate, Status};
use crate::tls::chain::tests::{ca, leaf};
use crate::tls::chain::write_pem;
use stowplan_core::names::fingerprint;
use stowplan_core::placement::record;
use stowplan_core::systems;
use stowplan_core::view::ControllerState;

const NAMESPACE: &str = "stowplan-system";
const HOST: &str = "stowplan-webhook.stowplan-system.svc";
const POLICY: &str = "excludedNamespaces: [kube-system, kube-node-lease, stowplan-system]\n";

/// A CA bundle, and a chain that it signed, as PEM.
fn certificates() -> (String, String) {
    let ca = ca(2040);
    (write_pem(std::slice::from_ref(&ca.certificate)), write_pem(&[leaf(&ca, HOST)]))
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A webhook as the API server has it, with the parts that only this one has.
fn webhook(name: &str, path: &str, rule: &Value, own: &Value) -> Value {
    let mut webhook = json!({
        "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "failurePolicy": "Ignore", "timeoutSeconds": 5, "matchPolicy": "Equivalent",
        "rules": [{"operations": rule[0], "apiGroups": rule[1], "apiVersions": rule[2],
            "resources": rule[3], "scope": "Namespaced"}],
        "clientConfig": {"service": {"name": "stowplan-webhook", "namespace": NAMESPACE, "path": path, "port": 443}},
        "namespaceSelector": {}, "objectSelector": {},
    });
    webhook.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
    webhook
}

/// The parts that only the webhooks that place objects have.
fn placing(conditions: &[(&str, &str)]) -> Value {
    let conditions = conditions.iter().map(|(name, of)| json!({"name": name, "expression": of}));
    let ignored = json!({"key": "stowplan.dev/ignore", "operator": "NotIn", "values": ["true"]});
    json!({
        "matchConditions": conditions.collect::<Vec<_>>(), "reinvocationPolicy": "IfNeeded",
        "namespaceSelector": {"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn",
                "values": ["kube-system", "kube-node-lease", NAMESPACE]},
            ignored,
        ]},
        "objectSelector": {"matchExpressions": [ignored]},
    })
}

/// Notes that a right is missing.
fn forbidden<T>(missing: &mut BTreeSet<String>, right: &str) -> Read<T> {
    missing.insert(right.to_owned());
    Err(Unread::Forbidden(right.to_owned()))
}

fn deployment(role: &str, replicas: i32) -> Value {
    json!({
        "metadata": {"name": format!("stowplan-{role}"), "labels": {"app.kubernetes.io/version": "1.2.3"}},
        "spec": {"replicas": replicas, "selector": {}, "template": {"spec": {
            "serviceAccountName": "stowplan",
            "containers": [{"name": role, "args": [role, "--listen=x"]}],
        }}},
    })
}

fn replica(pod: &str, role: Role, chain: Option<&str>) -> Replica {
    let status = Status {
        version: "1.2.3".to_owned(),
        identity: Some(pod.to_owned()),
        policy: PolicyStatus { digest: Some(fingerprint(POLICY)), problem: None },
        certificate: chain.map(|chain| ServedCertificate {
            chain: chain.to_owned(),
            ..ServedCertificate::default()
        }),
        leads: (role == Role::Controller).then_some(true),
        problems: Vec::new(),
    };
    Replica { pod: pod.to_owned(), role, status: Ok(status) }
}

/// A test pod that a system would place, and this answer.
fn trial(created: Result<Value, (u16, String)>, is_warned: bool) -> Trial {
    let warnings = is_warned.then(|| "key k: why".to_owned()).into_iter().collect();
    let (namespace, annotations) = ("jobs".to_owned(), &[("key", "value")]);
    Trial { namespace, expects_patch: true, annotations, created, warnings }
}

/// The Lease that `c1` renewed at this time of the last day.
fn lease_of_c1(renewed: &str) -> Value {
    let renewed = format!("2026-05-31T{renewed}.000000Z");
    json!({"spec": {"holderIdentity": "c1", "renewTime": renewed}})
}

/// An installation without any finding.
fn healthy() -> Facts {
    let (bundle, chain) = certificates();
    let words = DIAGNOSTICS.iter().flat_map(|system| system.installation.sent_by).copied();
    let words = words.collect::<Vec<_>>().join(" ");
    let sent = placing(&[("has-a-known-key", &words), ("not-a-mirror-pod", "true")]);
    let mut with_claims = placing(&[
        ("mounts-a-claim", "true"),
        ("has-no-known-key", "true"),
        ("not-a-mirror-pod", "true"),
    ]);
    let asked =
        json!({"key": "stowplan.dev/one-node-claims", "operator": "In", "values": ["true"]});
    let selecting = &mut with_claims["namespaceSelector"]["matchExpressions"];
    selecting.as_array_mut().unwrap().push(asked);
    let created = |resource: &str| json!([["CREATE"], [""], ["v1"], [resource]]);
    let bundled = |mut webhook: Value| {
        webhook["clientConfig"]["caBundle"] = json!(ByteString(bundle.clone().into_bytes()));
        webhook
    };
    let claims = placing(&[("of-a-run-or-a-group", "true")]);
    let own_rule =
        json!([["CREATE", "UPDATE"], ["stowplan.dev"], ["v1alpha1"], ["hostpools", "streamsjobs"]]);
    let own = json!({"matchConditions": [{"name": "the-spec-is-new", "expression": "true"}]});
    let now: Timestamp = "2026-06-01T00:00:00Z".parse().unwrap();
    let mut definitions = systems::definitions();
    for definition in &mut definitions {
        definition.status = read(json!({"conditions": [{"type": "Established", "status": "True"}],
            "storedVersions": ["v1alpha1"]}));
    }
    let endpoint = |pod: &str| json!({"addresses": ["10.0.0.1"], "conditions": {"ready": true}, "targetRef": {"name": pod}});
    let rights = [Role::Webhook, Role::Controller].map(|role| {
        let rights = rights::needed_by(role, &[]).into_iter();
        let answers = rights.map(|right| (right, true)).collect();
        (role, Ok(("stowplan".to_owned(), answers)))
    });
    let endpoints = ["w1", "w2"].map(endpoint);
    let lease = Some(read(lease_of_c1("23:59:57")));
    Facts {
        now,
        version: "1.2.3",
        mutating: Ok(vec![read(json!({"metadata": {"name": "stowplan"}, "webhooks": [
            bundled(webhook("pods.stowplan.dev", "/mutate", &created("pods"), &sent)),
            bundled(webhook("one-node-claims.stowplan.dev", "/mutate", &created("pods"), &with_claims)),
            bundled(webhook("claims.stowplan.dev", "/mutate", &created("persistentvolumeclaims"), &claims)),
        ]}))]),
        validating: Ok(vec![read(json!({"metadata": {"name": "stowplan"}, "webhooks": [
            bundled(webhook("objects.stowplan.dev", "/validate", &own_rule, &own)),
        ]}))]),
        namespace: Some(NAMESPACE.to_owned()),
        service: Ok(Some(read(
            json!({"spec": {"ports": [{"port": 443, "targetPort": "webhook"}]}}),
        ))),
        slices: Ok(vec![read(json!({"addressType": "IPv4", "endpoints": endpoints}))]),
        deployments: Ok(vec![read(deployment("webhook", 2)), read(deployment("controller", 1))]),
        replicas: Ok(vec![
            replica("w1", Role::Webhook, Some(&chain)),
            replica("w2", Role::Webhook, Some(&chain)),
            replica("c1", Role::Controller, None),
        ]),
        secret: Err(Unread::Nowhere),
        policy: Ok(Some(read(json!({"data": {"policy.yaml": POLICY}})))),
        policy_name: Some("stowplan-system/stowplan-policy".to_owned()),
        lease: Ok((ControllerState::Leads, lease)),
        rights: rights.into(),
        definitions: Ok(definitions),
        settings: [("coschedule", Ok(None))].into(),
        trial: Some(Ok(trial(
            Ok(json!({"metadata": {"annotations": {record::KEY: "{}"}}})),
            false,
        ))),
        missing: BTreeSet::new(),
    }
}

/// The lines that are not fine.
fn findings(facts: &Facts) -> Vec<Item> {
    let items = diagnose(facts).items.into_iter();
    items.filter(|item| item.state != State::Ok).collect()
}

/// The effects of changes of a healthy installation, for a snapshot.
#[derive(Default)]
struct Found(String);

impl Found {
    /// Adds the lines that are not fine after a change, each with its remedy.
    fn add(&mut self, change: impl FnOnce(&mut Facts)) {
        let mut facts = healthy();
        change(&mut facts);
        let items = findings(&facts);
        assert!(!items.is_empty(), "nothing is found after:\n{}", self.0);
        assert!(items.iter().all(|item| !item.remedy.is_empty()), "{items:?}");
        let blank = if self.0.is_empty() { "" } else { "\n" };
        self.0.push_str(blank);
        for Item { name, state, message, remedy, .. } in items {
            writeln!(self.0, "{name}, {state:?}: {message}\n  {remedy}").unwrap();
        }
    }

    /// Compares all of it with the snapshot of this name.
    fn compare(&self, name: &str) {
        insta::with_settings!({ prepend_module_to_snapshot => false }, {
            insta::assert_snapshot!(name, &self.0);
        });
    }
}

/// Asserts that a change of a healthy installation leads to nothing.
fn is_fine(change: impl FnOnce(&mut Facts)) {
    let mut facts = healthy();
    change(&mut facts);
    assert_eq!(findings(&facts), []);
}

fn pods(facts: &mut Facts) -> &mut MutatingWebhook {
    &mut facts.mutating.as_mut().unwrap()[0].webhooks[0]
}

fn client(facts: &mut Facts) -> &mut WebhookClientConfig {
    &mut pods(facts).client_config
}

/// The namespace selector of the webhook for pods.
fn namespaces(facts: &mut Facts) -> &mut Vec<LabelSelectorRequirement> {
    let selector = pods(facts).namespace_selector.as_mut().unwrap();
    selector.match_expressions.as_mut().unwrap()
}

fn status(facts: &mut Facts, at: usize) -> &mut Status {
    facts.replicas.as_mut().unwrap()[at].status.as_mut().unwrap()
}

// What an installation without parts leads to is in `tests/offline/cli/check_installation.rs`.

#[test]
fn webhook_configurations_are_compared_with_this_version() {
    let mut found = Found::default();
    found.add(|facts| {
        let first = facts.mutating.as_ref().unwrap()[0].clone();
        facts.mutating.as_mut().unwrap().push(first);
    });
    found.add(|facts| client(facts).service.as_mut().unwrap().path = Some("/other".to_owned()));
    found.add(|facts| facts.namespace = Some("elsewhere".to_owned()));
    found.add(|facts| client(facts).service = None);
    let rule = |facts: &mut Facts, change: fn(&mut RuleWithOperations)| {
        change(&mut pods(facts).rules.as_mut().unwrap()[0]);
    };
    found.add(|facts| rule(facts, |of| of.api_groups = Some(vec!["apps".to_owned()])));
    found.add(|facts| rule(facts, |of| of.scope = Some("Cluster".to_owned())));
    found.add(|facts| rule(facts, |of| of.resources.as_mut().unwrap().push("nodes".to_owned())));
    found.add(|facts| pods(facts).rules = None);
    found.compare("webhook_configurations_are_compared_with_this_version");
}

#[test]
fn selectors_and_conditions_are_compared_with_this_version() {
    let mut found = Found::default();
    found.add(|facts| {
        let conditions = pods(facts).match_conditions.as_mut().unwrap();
        conditions[0].expression = conditions[0].expression.replace("'mpi.stowplan.dev/'", "");
    });
    found.add(|facts| {
        namespaces(facts).push(read(json!({"key": "control-plane", "operator": "DoesNotExist"})))
    });
    found.add(|facts| {
        pods(facts).object_selector = read(json!({"matchLabels": {"a": "b"}}));
    });
    found.add(|facts| {
        let one = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a"]});
        namespaces(facts).push(read(one));
    });
    found.add(|facts| {
        let never = json!({"name": "never", "expression": "false"});
        pods(facts).match_conditions.as_mut().unwrap().push(read(never));
    });
    found.add(|facts| pods(facts).match_conditions = None);
    is_fine(|facts| {
        let policy = json!({"policy.yaml": format!("{POLICY}matchConditions: [b, a]\n")});
        facts.policy.as_mut().unwrap().as_mut().unwrap().data = read(policy);
        for replica in facts.replicas.as_mut().unwrap() {
            replica.status.as_mut().unwrap().policy.digest =
                Some(fingerprint(&format!("{POLICY}matchConditions: [b, a]\n")));
        }
        for name in ["b", "a"] {
            let added = json!({"name": name, "expression": "true"});
            for webhook in &mut facts.mutating.as_mut().unwrap()[0].webhooks[..2] {
                webhook.match_conditions.as_mut().unwrap().push(read(added.clone()));
            }
        }
    });
    found.compare("selectors_and_conditions_are_compared_with_this_version");
}

#[test]
fn the_service_needs_ready_replicas() {
    let mut found = Found::default();
    found.add(|facts| {
        facts.service = Ok(Some(read(json!({"spec": {"ports": [{"port": 9443}]}}))));
    });
    found.add(|facts| {
        let ports = json!({"spec": {"ports": [{"port": 443, "targetPort": 8080}]}});
        facts.service = Ok(Some(read(ports)));
    });
    found.add(|facts| facts.slices.as_mut().unwrap()[0].endpoints.truncate(1));
    found.add(|facts| status(facts, 0).problems = vec!["pods are not synced yet".to_owned()]);
    found.compare("the_service_needs_ready_replicas");
}

#[test]
fn the_ca_bundle_is_verified_against_what_each_replica_serves() {
    let mut found = Found::default();
    found.add(|facts| client(facts).ca_bundle = Some(ByteString(b"rubbish".to_vec())));
    let foreign = certificates().1;
    found.add(|facts| status(facts, 1).certificate.as_mut().unwrap().chain = foreign);
    // The certificate has expired; it is about to; the CA has expired, too.
    for now in ["2030-02-01T00:00:00Z", "2029-12-28T00:00:00Z", "2041-01-01T00:00:00Z"] {
        found.add(|facts| facts.now = now.parse().unwrap());
    }
    // Without webhooks nothing else says that it has expired.
    found.add(|facts| {
        (facts.mutating, facts.validating) = (Ok(Vec::new()), Ok(Vec::new()));
        facts.now = "2030-02-01T00:00:00Z".parse().unwrap();
    });
    found.compare("the_ca_bundle_is_verified_against_what_each_replica_serves");
}

#[test]
fn without_replicas_that_may_be_asked_the_secret_is_read() {
    let unread = |facts: &mut Facts| {
        for replica in facts.replicas.as_mut().unwrap() {
            replica.status = forbidden(&mut facts.missing, "get pods/proxy");
        }
    };
    let mut found = Found::default();
    found.add(|facts| facts.replicas = forbidden(&mut facts.missing, "list pods"));
    found.add(|facts| facts.replicas = Ok(Vec::new()));
    found.add(unread);
    // Of the certificate there is no line.
    found.add(|facts| {
        let chain = status(facts, 0).certificate.clone().unwrap().chain;
        facts.secret = Ok(chain.into_bytes());
        unread(facts);
    });
    found.add(|facts| {
        facts.secret = Ok(certificates().1.into_bytes());
        unread(facts);
    });
    found.compare("without_replicas_that_may_be_asked_the_secret_is_read");
}

#[test]
fn the_policy_is_compared_with_what_is_in_force() {
    let mut found = Found::default();
    found.add(|facts| facts.policy = Ok(None));
    found.add(|facts| facts.policy = Ok(Some(read(json!({"data": {}})))));
    found.add(|facts| status(facts, 0).policy.digest = None);
    found.add(|facts| {
        status(facts, 0).policy = PolicyStatus::default();
        facts.replicas.as_mut().unwrap()[1].status =
            forbidden(&mut facts.missing, "get pods/proxy");
    });
    // One that is rejected leaves the previous one or none. `not_yet` and the last problem are those
    // of a process before the API server has answered, and if it never does.
    let source =
        Source::ConfigMap { namespace: NAMESPACE.to_owned(), name: "stowplan-policy".to_owned() };
    let Ok(Finding::Unreachable(not_yet)) = source.read_first() else { panic!("{source:?}") };
    for (digest, problem) in [
        (Some(fingerprint(POLICY)), "no such key"),
        (Some("0011".to_owned()), "no such key"),
        (None, "no such key"),
        (None, "ConfigMap a/b does not exist"),
        (None, &not_yet),
        (None, "ConfigMap a/b cannot be read: error trying to connect"),
    ] {
        let problem = Some(problem.to_owned());
        found.add(|facts| status(facts, 2).policy = PolicyStatus { digest, problem });
    }
    found.compare("the_policy_is_compared_with_what_is_in_force");
}

#[test]
fn versions_are_compared() {
    let mut found = Found::default();
    found.add(|facts| facts.version = "1.3.0");
    found.add(|facts| status(facts, 0).version = "1.3.0".to_owned());
    found.compare("versions_are_compared");
}

#[test]
fn a_controller_has_to_lead_where_one_is_installed() {
    let mut found = Found::default();
    let none = |facts: &mut Facts| {
        facts.lease = Ok((ControllerState::NotYet, None));
    };
    found.add(none);
    is_fine(|facts| {
        none(facts);
        facts.deployments = Ok(vec![read(deployment("webhook", 2))]);
    });
    found.compare("a_controller_has_to_lead_where_one_is_installed");
}

#[test]
fn missing_rights_are_named() {
    let mut found = Found::default();
    let deny = |facts: &mut Facts, role, verb: &str| {
        let Some(Ok((_, answers))) = facts.rights.get_mut(&role) else { panic!("no answers") };
        let nodes = |of: &&mut (Right, bool)| of.0.resource == "nodes" && of.0.verb == verb;
        answers.iter_mut().find(nodes).unwrap().1 = false;
    };
    found.add(|facts| deny(facts, Role::Webhook, "list"));
    found.add(|facts| deny(facts, Role::Controller, "patch"));
    found.add(|facts| {
        let unread = forbidden(&mut facts.missing, "create subjectaccessreviews");
        facts.rights.insert(Role::Webhook, unread);
    });
    found.compare("missing_rights_are_named");
}

#[test]
fn definitions_are_compared_with_this_version() {
    let mut found = Found::default();
    let definition = |facts: &mut Facts, change: fn(&mut systems::CustomResourceDefinition)| {
        change(&mut facts.definitions.as_mut().unwrap()[0]);
    };
    found.add(|facts| definition(facts, |of| of.status = None));
    found.add(|facts| definition(facts, |of| of.spec.versions[0].served = false));
    found.add(|facts| definition(facts, |of| of.spec.versions[0].name = "v0".to_owned()));
    found.add(|facts| {
        definition(facts, |of| {
            let schema = of.spec.versions[0].schema.as_mut().unwrap();
            let schema = schema.open_api_v3_schema.as_mut().unwrap();
            let spec = schema.properties.as_mut().unwrap().get_mut("spec").unwrap();
            spec.properties.as_mut().unwrap().remove("size").unwrap();
        });
    });
    found.compare("definitions_are_compared_with_this_version");
}

#[test]
fn a_call_is_tried() {
    let mut found = Found::default();
    let answered = |facts: &mut Facts, trial: Trial| facts.trial = Some(Ok(trial));
    let pod = || Ok(json!({"metadata": {}}));
    found.add(|facts| answered(facts, trial(pod(), true)));
    is_fine(|facts| answered(facts, Trial { expects_patch: false, ..trial(pod(), true) }));
    let refused = |message: &str| trial(Err((403, message.to_owned())), false);
    let own = refused("admission webhook \"pods.stowplan.dev\" denied the request: host: x");
    is_fine(|facts| answered(facts, own));
    let failed = refused("failed calling webhook \"pods.stowplan.dev\": no endpoints");
    found.add(|facts| answered(facts, failed));
    found.add(|facts| answered(facts, refused("exceeded quota")));
    found.compare("a_call_is_tried");
}

#[test]
fn the_report_in_the_documents_is_as_printed() {
    let mut facts = healthy();
    // Another CA in one webhook configuration, and a controller that does not renew its Lease.
    client(&mut facts).ca_bundle = Some(ByteString(certificates().0.into_bytes()));
    let lease = facts.lease.as_mut().unwrap();
    *lease = (ControllerState::Stopped, Some(read(lease_of_c1("23:50:00"))));
    facts.trial = None;
    let printed = format!(
        "$ stowplan check\n{}",
        text::format(&diagnose(&facts), Painter { is_coloured: false })
    );
    let page = include_str!("../../../../docs/operations.md");
    assert!(page.contains(&printed), "{printed}");
}

#[test]
fn a_long_time_is_not_counted_in_days() {
    for (days, wanted) in [
        (0, "0 days"),
        (1, "1 day"),
        (730, "730 days"),
        (731, "more than 2 years"),
        (755_723, "more than 10 years"),
        (u64::MAX, "more than 10 years"),
    ] {
        assert_eq!(certificate::counted_days(days), wanted);
    }
}
