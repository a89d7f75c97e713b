//! The lines for each state of an installation.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, WebhookClientConfig};
use k8s_openapi::jiff::Timestamp;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};

use super::facts::{Answer, Facts, LeaseFacts, Replica, Role, Trial, Unread};
use super::*;
use crate::cli::policy_source::{Finding, Source};
use crate::names::fingerprint;
use crate::server::admin::status::{PolicyStatus, ServedCertificate, Status};
use crate::systems;
use crate::tls::chain::write_pem;
use crate::view::ControllerState;

const NAMESPACE: &str = "stowplan-system";
const HOST: &str = "stowplan-webhook.stowplan-system.svc";
const POLICY: &str = "excludedNamespaces: [kube-system, kube-node-lease, stowplan-system]\n";

/// A CA bundle, and a chain that it signed, as PEM. The chain is valid from 2026 on for these years.
fn certificates(years: i32) -> (String, String) {
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.not_before = rcgen::date_time_ymd(2020, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(2040, 1, 1);
    let key = KeyPair::generate().unwrap();
    let ca = parameters.self_signed(&key).unwrap().der().clone();
    let issuer = Issuer::new(parameters, key);
    let mut parameters = CertificateParams::new([HOST.to_owned()]).unwrap();
    parameters.not_before = rcgen::date_time_ymd(2026, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(2026 + years, 1, 1);
    let key = KeyPair::generate().unwrap();
    let leaf = parameters.signed_by(&key, &issuer).unwrap().der().clone();
    (write_pem(&[ca]), write_pem(&[leaf]))
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// What the three webhooks have in common.
fn webhook(name: &str, path: &str, rule: &Value, conditions: &Value) -> Value {
    json!({
        "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "failurePolicy": "Ignore", "timeoutSeconds": 5, "rules": [rule],
        "clientConfig": {"service": {"name": "stowplan-webhook", "namespace": NAMESPACE, "path": path, "port": 443}},
        "matchConditions": conditions,
        "namespaceSelector": {"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn",
                "values": ["kube-system", "kube-node-lease", NAMESPACE]},
            {"key": "stowplan.dev/ignore", "operator": "NotIn", "values": ["true"]},
        ]},
        "objectSelector": {"matchExpressions": [
            {"key": "stowplan.dev/ignore", "operator": "NotIn", "values": ["true"]},
        ]},
    })
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

/// An installation without any finding.
fn healthy() -> Facts {
    let (bundle, chain) = certificates(3);
    let words = SYSTEMS.iter().flat_map(|system| system.installation.sent_by).copied();
    let words: Vec<&str> = words.collect();
    let sent = json!([{"name": "has-a-known-key", "expression": words.join(" ")}]);
    let rule = |operation: &str, resource: &str| json!({"operations": [operation], "resources": [resource], "apiGroups": ["*"], "apiVersions": ["*"]});
    let bundled = |mut webhook: Value| {
        webhook["clientConfig"]["caBundle"] = json!(ByteString(bundle.clone().into_bytes()));
        webhook
    };
    let claims = json!([{"name": "of-a-run-or-a-group", "expression": "true"}]);
    let own_rule = rule("UPDATE", "hostpools");
    let now: Timestamp = "2026-06-01T00:00:00Z".parse().unwrap();
    let mut definitions = systems::definitions();
    for definition in &mut definitions {
        definition.status = read(json!({"conditions": [{"type": "Established", "status": "True"}],
            "storedVersions": ["v1alpha1"]}));
    }
    let endpoint = |pod: &str| json!({"addresses": ["10.0.0.1"], "conditions": {"ready": true}, "targetRef": {"name": pod}});
    let rights = [Role::Webhook, Role::Controller].map(|role| {
        let rights = rights::needed_by(role, &[]).into_iter();
        let answers = rights.map(|right| Answer { right, is_allowed: true }).collect();
        (role, Ok(("stowplan".to_owned(), answers)))
    });
    Facts {
        now,
        version: "1.2.3",
        mutating: Ok(vec![read(json!({"metadata": {"name": "stowplan"}, "webhooks": [
            bundled(webhook("pods.stowplan.dev", "/mutate", &rule("CREATE", "pods"), &sent)),
            bundled(webhook("claims.stowplan.dev", "/mutate", &rule("CREATE", "persistentvolumeclaims"), &claims)),
        ]}))]),
        validating: Ok(vec![read(json!({"metadata": {"name": "stowplan"}, "webhooks": [
            bundled(webhook("objects.stowplan.dev", "/validate", &own_rule, &json!([]))),
        ]}))]),
        namespace: Some(NAMESPACE.to_owned()),
        service: Ok(Some(read(json!({"spec": {"ports": [{"port": 443}]}})))),
        slices: Ok(vec![read(
            json!({"addressType": "IPv4", "endpoints": [endpoint("w1"), endpoint("w2")]}),
        )]),
        deployments: Ok(vec![read(deployment("webhook", 2)), read(deployment("controller", 1))]),
        replicas: Ok(vec![
            replica("w1", Role::Webhook, Some(&chain)),
            replica("w2", Role::Webhook, Some(&chain)),
            replica("c1", Role::Controller, None),
        ]),
        secret: Err(Unread::Nowhere),
        policy: Ok(Some(read(json!({"data": {"policy.yaml": POLICY}})))),
        policy_name: Some("stowplan-system/stowplan-policy".to_owned()),
        server: Ok(read(
            json!({"major": "1", "minor": "36+", "gitVersion": "v1.36.1", "buildDate": "",
            "compiler": "", "gitCommit": "", "gitTreeState": "", "goVersion": "", "platform": ""}),
        )),
        lease: Ok(LeaseFacts {
            state: ControllerState::Leads,
            lease: Some(read(
                json!({"spec": {"holderIdentity": "c1", "renewTime": "2026-05-31T23:59:57.000000Z"}}),
            )),
        }),
        missing: Ok(Vec::new()),
        rights: rights.into(),
        definitions: Ok(definitions),
        settings: [("coschedule", Ok(None))].into(),
        metrics: Ok(
            "apiserver_admission_webhook_fail_open_count{name=\"other.dev\",type=\"admit\"} 7\n"
                .to_owned(),
        ),
        trial: Some(Ok(Trial {
            namespace: "default".to_owned(),
            expects_patch: true,
            is_created: true,
            is_patched: true,
            ..Trial::default()
        })),
    }
}

/// The lines that are not fine: their name, state and message.
fn findings(facts: &Facts) -> Vec<(&'static str, State, String)> {
    let items = diagnose(facts).items.into_iter().filter(|item| item.state != State::Ok);
    items
        .map(|item| {
            assert!(!item.remedy.is_empty() || item.state == State::Ok, "{item:?} has no remedy");
            (item.name, item.state, item.message)
        })
        .collect()
}

/// Changes a healthy installation, and expects one line of this name, state and text.
fn expect(change: impl FnOnce(&mut Facts), name: &str, state: State, text: &str) {
    let mut facts = healthy();
    change(&mut facts);
    let found = findings(&facts);
    let [(of, is, message)] = &found[..] else { panic!("{text}: {found:?}") };
    assert_eq!((*of, *is), (name, state), "{message}");
    assert!(message.contains(text), "{message}: not {text}");
}

/// The same, where other lines follow from the change.
fn expect_first(change: impl FnOnce(&mut Facts), name: &str, state: State, text: &str) {
    let mut facts = healthy();
    change(&mut facts);
    let found = findings(&facts);
    let is_it = |(of, is, message): &(&str, State, String)| {
        *of == name && *is == state && message.contains(text)
    };
    assert!(found.iter().any(is_it), "{text}: {found:?}");
}

fn pods(facts: &mut Facts) -> &mut MutatingWebhook {
    &mut facts.mutating.as_mut().unwrap()[0].webhooks.as_mut().unwrap()[0]
}

fn client(facts: &mut Facts) -> &mut WebhookClientConfig {
    &mut pods(facts).client_config
}

fn status(facts: &mut Facts, at: usize) -> &mut Status {
    facts.replicas.as_mut().unwrap()[at].status.as_mut().unwrap()
}

use State::{Problem, Unknown, Warning};

#[test]
fn a_healthy_installation_has_one_line_for_each_item() {
    let report = diagnose(&healthy());
    let lines: Vec<(&str, State)> =
        report.items.iter().map(|item| (item.name, item.state)).collect();
    let names = [
        "webhook-configurations",
        "service",
        "certificate",
        "policy",
        "versions",
        "definitions",
        "controller",
        "tekton",
        "rights",
        "fail-open",
        "trial-pod",
        "rights-of-this-command",
    ];
    assert_eq!(lines, names.map(|name| (name, State::Ok)), "{report:?}");
    assert!(!report.has_problem());
    let text = text::format(&report);
    assert!(text.ends_with("\n0 problems, 0 warnings, 0 unknown\n"), "{text}");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!((&json["kind"], &json["items"][0]["state"]), (&json!("Installation"), &json!("ok")));
}

#[test]
fn webhook_configurations_are_compared_with_this_version() {
    let name = "webhook-configurations";
    let gone = |facts: &mut Facts| facts.mutating = Ok(Vec::new());
    expect_first(gone, name, Problem, "there is no webhook pods.stowplan.dev: pods are not placed");
    expect_first(gone, name, Problem, "there is no webhook claims.stowplan.dev");
    let twice = |facts: &mut Facts| {
        let first = facts.mutating.as_ref().unwrap()[0].clone();
        facts.mutating.as_mut().unwrap().push(first);
    };
    expect_first(twice, name, Problem, "several configurations have the webhook pods.stowplan.dev");
    let path = |facts: &mut Facts| {
        client(facts).service.as_mut().unwrap().path = Some("/other".to_owned());
    };
    expect(path, name, Problem, "calls the path /other instead of /mutate");
    let foreign = |facts: &mut Facts| facts.namespace = Some("elsewhere".to_owned());
    expect_first(foreign, name, Problem, "of another namespace");
    let url = |facts: &mut Facts| client(facts).service = None;
    expect(url, name, Problem, "calls a URL instead of the Service");
    let rule = |facts: &mut Facts| pods(facts).rules = None;
    expect(rule, name, Problem, "has no rule for CREATE");
    let slow = |facts: &mut Facts| pods(facts).timeout_seconds = Some(30);
    expect(slow, name, Warning, "timeoutSeconds 30");
    let effects = |facts: &mut Facts| pods(facts).side_effects = "Unknown".to_owned();
    expect(effects, name, Warning, "sideEffects Unknown");
    let alone = |facts: &mut Facts| {
        pods(facts).failure_policy = Some("Fail".to_owned());
        facts.deployments =
            Ok(vec![read(deployment("webhook", 1)), read(deployment("controller", 1))]);
    };
    expect(alone, name, Warning, "failurePolicy Fail, and there is one replica");
    let forbidden = |facts: &mut Facts| {
        facts.validating = Err(Unread::Forbidden("list validating".to_owned()));
    };
    expect(forbidden, name, Unknown, "the right is missing: list validating");
}

#[test]
fn selectors_and_conditions_are_compared_with_the_policy() {
    let name = "webhook-configurations";
    let condition = |facts: &mut Facts| {
        let conditions = pods(facts).match_conditions.as_mut().unwrap();
        conditions[0].expression = conditions[0].expression.replace("'mpi.stowplan.dev/'", "");
    };
    expect(condition, name, Problem, "does not send pods of mpi");
    let none = |facts: &mut Facts| pods(facts).match_conditions = None;
    expect(none, name, Warning, "every pod of the cluster is sent");
    let own = |facts: &mut Facts| {
        let mut other = pods(facts).match_conditions.as_ref().unwrap()[0].clone();
        other.name = "not-mine".to_owned();
        pods(facts).match_conditions.as_mut().unwrap().push(other);
    };
    expect(own, name, Warning, "match conditions that the policy does not name: not-mine");
    let included = |facts: &mut Facts| {
        let selector = pods(facts).namespace_selector.as_mut().unwrap();
        selector.match_expressions.as_mut().unwrap()[0].values = Some(vec![NAMESPACE.to_owned()]);
    };
    expect_first(included, name, Problem, "does not exclude namespace kube-system");
    let excluded = |facts: &mut Facts| {
        let selector = pods(facts).namespace_selector.as_mut().unwrap();
        let rule = &mut selector.match_expressions.as_mut().unwrap()[0];
        rule.values.as_mut().unwrap().push("builds".to_owned());
    };
    expect(excluded, name, Warning, "do not exclude the same namespaces: builds");
    let added = |facts: &mut Facts| {
        let selector = pods(facts).namespace_selector.as_mut().unwrap();
        let rules = selector.match_expressions.as_mut().unwrap();
        rules.push(read(json!({"key": "control-plane", "operator": "DoesNotExist"})));
    };
    expect(added, name, Warning, "selects namespaces by more than the chart does: control-plane");
    let objects = |facts: &mut Facts| {
        pods(facts).object_selector = read(json!({"matchLabels": {"a": "b"}}));
    };
    expect(objects, name, Warning, "selects objects by more than the label");
}

#[test]
fn the_service_needs_ready_replicas() {
    let name = "service";
    expect(|facts| facts.service = Ok(None), name, Problem, "there is no Service");
    let port = |facts: &mut Facts| {
        facts.service = Ok(Some(read(json!({"spec": {"ports": [{"port": 9443}]}}))));
    };
    expect(port, name, Problem, "call port 443, which Service");
    expect(
        |facts| facts.slices = Ok(Vec::new()),
        name,
        Problem,
        "no replica of the webhook is ready",
    );
    let one = |facts: &mut Facts| {
        facts.slices.as_mut().unwrap()[0].endpoints.truncate(1);
    };
    expect(one, name, Warning, "1 of 2 replicas of the webhook are ready");
    let not_ready = |facts: &mut Facts| {
        status(facts, 0).problems = vec!["pods are not synced yet".to_owned()];
    };
    expect(not_ready, name, Warning, "pod w1 is not ready: pods are not synced yet");
}

#[test]
fn the_ca_bundle_is_verified_against_what_each_replica_serves() {
    let name = "certificate";
    let (other, foreign) = certificates(3);
    let empty = |facts: &mut Facts| client(facts).ca_bundle = None;
    expect(empty, name, Problem, "pods.stowplan.dev has no caBundle");
    let bundle = |facts: &mut Facts, text: &str| {
        client(facts).ca_bundle = Some(ByteString(text.as_bytes().to_vec()));
    };
    expect(
        |facts| bundle(facts, "rubbish"),
        name,
        Problem,
        "is invalid: it has no PEM certificate",
    );
    expect_first(
        |facts| bundle(facts, &other),
        name,
        Problem,
        "pod w2: it was signed by another CA",
    );
    let one = |facts: &mut Facts| {
        status(facts, 1).certificate.as_mut().unwrap().chain.clone_from(&foreign);
    };
    expect_first(one, name, Problem, "pod w2: it was signed by another CA");
    expect_first(one, name, Warning, "replicas serve 2 different certificates");
    let at = |time: &str| time.parse::<Timestamp>().unwrap();
    let expired = |facts: &mut Facts| facts.now = at("2029-02-01T00:00:00Z");
    expect_first(expired, name, Problem, "pod w1: expired at 2029-01-01T00:00:00Z");
    let soon = |facts: &mut Facts| facts.now = at("2028-12-28T00:00:00Z");
    expect_first(soon, name, Warning, "the certificate expires in 4 days");
    let old = |facts: &mut Facts| facts.now = at("2041-01-01T00:00:00Z");
    expect_first(old, name, Problem, "every CA in the caBundle");
    let reported = |facts: &mut Facts| {
        let certificate = status(facts, 0).certificate.as_mut().unwrap();
        *certificate = ServedCertificate {
            problem: Some("no certificate was read yet".to_owned()),
            ..ServedCertificate::default()
        };
    };
    expect(reported, name, Problem, "pod w1: no certificate was read yet");
}

#[test]
fn without_the_right_to_ask_replicas_the_secret_is_read() {
    let unread = |facts: &mut Facts| {
        for replica in facts.replicas.as_mut().unwrap() {
            replica.status = Err(Unread::Forbidden("get pods/proxy".to_owned()));
        }
    };
    let certificate = |facts: &Facts| {
        let mut found = findings(facts);
        found.retain(|(name, _, _)| *name == "certificate");
        found
    };
    let mut facts = healthy();
    let chain = status(&mut facts, 0).certificate.clone().unwrap().chain;
    unread(&mut facts);
    let found = certificate(&facts);
    assert!(found.len() == 1 && found[0].1 == Unknown, "{found:?}");
    assert!(found[0].2.contains("the right is missing: get pods/proxy"), "{found:?}");
    facts.secret = Ok(chain.into_bytes());
    assert_eq!(certificate(&facts), []);
    facts.secret = Ok(certificates(3).1.into_bytes());
    let found = certificate(&facts);
    assert!(found.iter().all(|(_, state, _)| *state == Problem) && !found.is_empty(), "{found:?}");
    // The others are unknown, not wrong: of the versions the labels say what is installed.
    let names: Vec<&str> = findings(&facts).iter().map(|(name, _, _)| *name).collect();
    assert!(names.contains(&"policy") && !names.contains(&"versions"), "{names:?}");
}

#[test]
fn the_policy_is_compared_with_what_is_in_force() {
    let name = "policy";
    expect_first(|facts| facts.policy = Ok(None), name, Problem, "there is no ConfigMap");
    let text = |facts: &mut Facts, text: &str| {
        facts.policy = Ok(Some(read(json!({"data": {"policy.yaml": text}}))));
    };
    expect_first(|facts| text(facts, "onInvald: warn"), name, Problem, "is invalid: ");
    let key = |facts: &mut Facts| facts.policy = Ok(Some(read(json!({"data": {}}))));
    expect_first(key, name, Problem, "has no key policy.yaml");
    let other = |facts: &mut Facts| status(facts, 1).policy.digest = Some("0011".to_owned());
    expect(other, name, Warning, "another policy is in force (0011) in w2");
    let unreported = |facts: &mut Facts| status(facts, 0).policy.digest = None;
    expect(unreported, name, Unknown, "not known of 1 process");
    let forbidden = |facts: &mut Facts| {
        status(facts, 0).policy = PolicyStatus::default();
        facts.replicas.as_mut().unwrap()[1].status =
            Err(Unread::Forbidden("get pods/proxy".to_owned()));
    };
    expect_first(forbidden, name, Unknown, "of 2 processes: the right is missing: get pods/proxy");
}

#[test]
fn a_policy_that_is_rejected_leaves_the_previous_one_or_none() {
    let name = "policy";
    let rejected = |facts: &mut Facts| {
        status(facts, 2).policy.problem = Some("no such key".to_owned());
    };
    let digest = fingerprint(POLICY);
    let kept = format!("pod c1 keeps the previous policy ({digest}): no such key");
    expect(rejected, name, Problem, &kept);
    let other = |facts: &mut Facts| {
        rejected(facts);
        status(facts, 2).policy.digest = Some("0011".to_owned());
    };
    expect_first(other, name, Problem, "pod c1 keeps the previous policy (0011): no such key");
    expect_first(other, name, Warning, "another policy is in force (0011) in c1");
    let none = |facts: &mut Facts| {
        rejected(facts);
        status(facts, 2).policy.digest = None;
    };
    expect(none, name, Problem, "no policy is in force in c1: no such key");

    let remedies = |problem: &str| -> Vec<String> {
        let mut facts = healthy();
        status(&mut facts, 2).policy =
            PolicyStatus { digest: None, problem: Some(problem.to_owned()) };
        let items = diagnose(&facts).items.into_iter();
        items.filter(|item| item.name == "policy").map(|item| item.remedy).collect()
    };
    assert!(remedies("ConfigMap a/b does not exist")[0].contains("helm upgrade"));
    // As a process reports it before the API server has answered, and if it never does.
    let source =
        Source::ConfigMap { namespace: NAMESPACE.to_owned(), name: "stowplan-policy".to_owned() };
    let Ok(Finding::Unreachable(not_yet)) = source.read_first() else { panic!("{source:?}") };
    for problem in [not_yet.as_str(), "ConfigMap a/b cannot be read: error trying to connect"] {
        let remedies = remedies(problem);
        assert!(remedies.len() == 1 && !remedies[0].contains("helm"), "{problem}: {remedies:?}");
        assert!(remedies[0].contains("API server"), "{problem}: {remedies:?}");
    }
}

#[test]
fn without_replicas_nothing_is_known_of_them() {
    let unlisted = |facts: &mut Facts| {
        facts.replicas = Err(Unread::Forbidden("list pods".to_owned()));
    };
    let text = "whether it is in force is not known: the right is missing: list pods";
    expect_first(unlisted, "policy", Unknown, text);
    let none = |facts: &mut Facts| facts.replicas = Ok(Vec::new());
    expect_first(none, "policy", Unknown, "is not known: no pod of stowplan exists");
    expect_first(none, "certificate", Unknown, "no replica of the webhook exists");
    let with_secret = |facts: &mut Facts| {
        let chain = status(facts, 0).certificate.clone().unwrap().chain;
        facts.secret = Ok(chain.into_bytes());
        none(facts);
    };
    expect_first(with_secret, "certificate", Unknown, "no replica of the webhook exists");
    let without_webhooks = |facts: &mut Facts| {
        facts.mutating = Err(Unread::Forbidden("list mutating".to_owned()));
        facts.validating = Err(Unread::Forbidden("list validating".to_owned()));
    };
    let text =
        "what the webhook configurations trust is not known: the right is missing: list mutating";
    expect_first(without_webhooks, "certificate", Unknown, text);
}

#[test]
fn versions_are_compared() {
    let name = "versions";
    expect(
        |facts| facts.version = "1.3.0",
        name,
        Warning,
        "stowplan 1.2.3 is installed, and this command is 1.3.0",
    );
    let mixed = |facts: &mut Facts| status(facts, 0).version = "1.3.0".to_owned();
    expect(
        mixed,
        name,
        Warning,
        "different versions run: webhook 1.2.3, webhook 1.3.0, controller 1.2.3",
    );
    let old = |facts: &mut Facts| facts.server.as_mut().unwrap().minor = "32".to_owned();
    expect(old, name, Problem, "the oldest that stowplan supports is 1.33");
}

#[test]
fn a_controller_has_to_lead_where_one_is_installed() {
    let name = "controller";
    let state = |facts: &mut Facts, state| facts.lease.as_mut().unwrap().state = state;
    let stopped = |facts: &mut Facts| state(facts, ControllerState::Stopped);
    expect(stopped, name, Problem, "no controller leads: the Lease was renewed 3 s ago, by c1");
    let none = |facts: &mut Facts| {
        facts.lease = Ok(LeaseFacts { state: ControllerState::NotYet, lease: None });
    };
    expect(none, name, Problem, "no controller has led yet");
    let webhook_only = |facts: &mut Facts| {
        none(facts);
        facts.deployments = Ok(vec![read(deployment("webhook", 2))]);
    };
    let mut facts = healthy();
    webhook_only(&mut facts);
    assert_eq!(findings(&facts), []);
    let two = |facts: &mut Facts| {
        let leader = replica("c2", Role::Controller, None);
        facts.replicas.as_mut().unwrap().push(leader);
    };
    expect(two, name, Warning, "several controllers say that they lead: c1, c2");
}

#[test]
fn missing_rights_are_named() {
    let deny = |facts: &mut Facts, role, verb: &str| {
        let Some(Ok((_, answers))) = facts.rights.get_mut(&role) else { panic!("no answers") };
        let nodes = |of: &&mut Answer| of.right.resource == "nodes" && of.right.verb == verb;
        answers.iter_mut().find(nodes).unwrap().is_allowed = false;
    };
    let name = "rights";
    expect(
        |facts| deny(facts, Role::Webhook, "list"),
        name,
        Problem,
        "may not: list nodes; its watches fail",
    );
    expect(|facts| deny(facts, Role::Controller, "patch"), name, Warning, "may not: patch nodes");
    let unasked = |facts: &mut Facts| {
        let right = "create subjectaccessreviews".to_owned();
        facts.rights.insert(Role::Webhook, Err(Unread::Forbidden(right)));
    };
    expect(unasked, name, Unknown, "the rights of the webhook's account are not known");
    let own = |facts: &mut Facts| facts.missing = Ok(rights::needed_by_check(None).1);
    let text =
        "missing: get pods/proxy; create subjectaccessreviews.authorization.k8s.io; get /metrics";
    expect(own, "rights-of-this-command", Unknown, text);
}

#[test]
fn definitions_are_compared_with_this_version() {
    let name = "definitions";
    let definition = |facts: &mut Facts, change: fn(&mut systems::CustomResourceDefinition)| {
        change(&mut facts.definitions.as_mut().unwrap()[0]);
    };
    expect(
        |facts| facts.definitions.as_mut().unwrap().truncate(1),
        name,
        Problem,
        "has no definition streamsjobs",
    );
    expect(|facts| definition(facts, |of| of.status = None), name, Problem, "is not established");
    expect(
        |facts| definition(facts, |of| of.spec.versions[0].served = false),
        name,
        Problem,
        "does not serve version",
    );
    expect(
        |facts| definition(facts, |of| of.spec.versions[0].storage = false),
        name,
        Warning,
        "stores another version",
    );
    expect(
        |facts| definition(facts, |of| of.spec.versions[0].name = "v0".to_owned()),
        name,
        Problem,
        "does not have version",
    );
    let older = |facts: &mut Facts| {
        definition(facts, |of| {
            let schema = of.spec.versions[0].schema.as_mut().unwrap();
            let schema = schema.open_api_v3_schema.as_mut().unwrap();
            let spec = schema.properties.as_mut().unwrap().get_mut("spec").unwrap();
            spec.properties.as_mut().unwrap().remove("size").unwrap();
        });
    };
    expect(older, name, Problem, "drops the fields spec.size");
    let newer = |facts: &mut Facts| {
        definition(facts, |of| {
            let stored = of.status.as_mut().unwrap().stored_versions.as_mut().unwrap();
            stored.push("v9".to_owned());
        });
    };
    expect(newer, name, Warning, "stored objects of version v9");
}

#[test]
fn calls_that_failed_are_counted_and_one_is_tried() {
    let metrics = |facts: &mut Facts| {
        let line = "apiserver_admission_webhook_fail_open_count{name=\"pods.stowplan.dev\",type=\"admit\"}";
        facts.metrics = Ok(format!("# HELP x\n{line} 3\n"));
    };
    expect(metrics, "fail-open", Warning, "3 objects were created without the webhook");
    let trial = |facts: &mut Facts, trial: Trial| facts.trial = Some(Ok(trial));
    let name = "trial-pod";
    let created = Trial { is_created: true, expects_patch: true, ..Trial::default() };
    let missed = created.clone();
    expect(|facts| trial(facts, missed), name, Problem, "is created without its placement");
    let warned = Trial { is_warned: true, ..created.clone() };
    expect(|facts| trial(facts, warned.clone()), name, Warning, "and does not place it");
    let mut facts = healthy();
    trial(&mut facts, Trial { expects_patch: false, ..warned });
    assert_eq!(findings(&facts), []);
    let refused = |message: &str| Trial { message: message.to_owned(), ..Trial::default() };
    let own = refused("admission webhook \"pods.stowplan.dev\" denied the request: host: x");
    trial(&mut facts, own);
    assert_eq!(findings(&facts), []);
    let failed = refused("failed calling webhook \"pods.stowplan.dev\": no endpoints");
    expect(|facts| trial(facts, failed), name, Problem, "the API server cannot call the webhook");
    expect(
        |facts| trial(facts, refused("exceeded quota")),
        name,
        Problem,
        "refuses the pod: exceeded quota",
    );
    expect(|facts| facts.trial = None, name, Unknown, "no test pod was created (dry run)");
    let forbidden = |facts: &mut Facts| {
        facts.trial = Some(Err(Unread::Forbidden("create pods in x".to_owned())));
    };
    expect(forbidden, name, Problem, "the right is missing: create pods in x");
}

#[test]
fn the_report_in_the_documents_is_as_printed() {
    let mut facts = healthy();
    // Another CA in one webhook configuration, and a controller that does not renew its Lease.
    let bundle = Some(ByteString(certificates(3).0.into_bytes()));
    client(&mut facts).ca_bundle = bundle;
    let lease = facts.lease.as_mut().unwrap();
    lease.state = ControllerState::Stopped;
    lease.lease = Some(read(json!({"spec": {"holderIdentity": "c1",
        "renewTime": "2026-05-31T23:50:00.000000Z"}})));
    facts.trial = None;
    let printed = format!("$ stowplan check\n{}", text::format(&diagnose(&facts)));
    let page = include_str!("../../../../docs/operations.md");
    assert!(page.contains(&printed), "{printed}");
}

#[test]
fn where_nothing_is_installed_the_rest_is_unknown() {
    let mut facts = healthy();
    facts.mutating = Ok(Vec::new());
    facts.validating = Ok(Vec::new());
    facts.namespace = None;
    facts.service = Err(Unread::Nowhere);
    facts.slices = Err(Unread::Nowhere);
    facts.deployments = Err(Unread::Nowhere);
    facts.replicas = Err(Unread::Nowhere);
    facts.policy = Err(Unread::Nowhere);
    facts.lease = Err(Unread::Nowhere);
    facts.rights.clear();
    let report = diagnose(&facts);
    assert!(report.has_problem());
    let problems: Vec<&str> =
        report.items.iter().filter(|item| item.state == Problem).map(|item| item.name).collect();
    assert!(problems.iter().all(|name| *name == "webhook-configurations"), "{report:?}");
}
