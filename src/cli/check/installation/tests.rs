//! The lines for each state of an installation.

use std::fmt::Write as _;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, WebhookClientConfig};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::facts::{Answer, Facts, LeaseFacts, Replica, Role, Trial, Unread};
use super::*;
use crate::cli::policy_source::{Finding, Source};
use crate::names::fingerprint;
use crate::server::admin::status::{PolicyStatus, ServedCertificate, Status};
use crate::systems;
use crate::tls::chain::tests::{ca, leaf};
use crate::tls::chain::write_pem;
use crate::view::ControllerState;

const NAMESPACE: &str = "stowplan-system";
const HOST: &str = "stowplan-webhook.stowplan-system.svc";
const POLICY: &str = "excludedNamespaces: [kube-system, kube-node-lease, stowplan-system]\n";

/// A CA bundle, and a chain that it signed, as PEM.
fn certificates() -> (String, String) {
    let ca = ca(2040);
    (write_pem(std::slice::from_ref(&ca.certificate)), write_pem(&[leaf(&ca, HOST)]))
}

fn forbidden<T>(right: &str) -> Result<T, Unread> {
    Err(Unread::Forbidden(right.to_owned()))
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
    let (bundle, chain) = certificates();
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

/// The lines that are not fine.
fn findings(facts: &Facts) -> Vec<Item> {
    let items = diagnose(facts).items.into_iter();
    items.filter(|item| item.state != State::Ok).collect()
}

/// What changes of a healthy installation lead to, for a snapshot.
#[derive(Default)]
struct Found(String);

impl Found {
    /// Adds the lines that are not fine after a change. Each has a remedy, and one this text.
    fn add(&mut self, text: &str, change: impl FnOnce(&mut Facts)) {
        let mut facts = healthy();
        change(&mut facts);
        let items = findings(&facts);
        assert!(items.iter().any(|item| item.message.contains(text)), "{text}: {items:?}");
        assert!(items.iter().all(|item| !item.remedy.is_empty()), "{text}: {items:?}");
        writeln!(self.0, "# {text}").unwrap();
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
    &mut facts.mutating.as_mut().unwrap()[0].webhooks.as_mut().unwrap()[0]
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
    let mut found = Found::default();
    found.add("there is no webhook claims.stowplan.dev", |facts| facts.mutating = Ok(Vec::new()));
    found.add("several configurations have the webhook pods.stowplan.dev", |facts| {
        let first = facts.mutating.as_ref().unwrap()[0].clone();
        facts.mutating.as_mut().unwrap().push(first);
    });
    found.add("calls the path /other instead of /mutate", |facts| {
        client(facts).service.as_mut().unwrap().path = Some("/other".to_owned())
    });
    found.add("of another namespace", |facts| facts.namespace = Some("elsewhere".to_owned()));
    found.add("calls a URL instead of the Service", |facts| client(facts).service = None);
    found.add("has no rule for CREATE", |facts| pods(facts).rules = None);
    found.add("timeoutSeconds 30", |facts| pods(facts).timeout_seconds = Some(30));
    found.add("sideEffects Unknown", |facts| pods(facts).side_effects = "Unknown".to_owned());
    found.add("failurePolicy Fail, and there is one replica", |facts| {
        pods(facts).failure_policy = Some("Fail".to_owned());
        facts.deployments =
            Ok(vec![read(deployment("webhook", 1)), read(deployment("controller", 1))]);
    });
    found.add("the right is missing: list validating", |facts| {
        facts.validating = forbidden("list validating")
    });
    found.compare("webhook_configurations_are_compared_with_this_version");
}

#[test]
fn selectors_and_conditions_are_compared_with_the_policy() {
    let mut found = Found::default();
    found.add("does not send pods of mpi", |facts| {
        let conditions = pods(facts).match_conditions.as_mut().unwrap();
        conditions[0].expression = conditions[0].expression.replace("'mpi.stowplan.dev/'", "");
    });
    found.add("every pod of the cluster is sent", |facts| pods(facts).match_conditions = None);
    found.add("match conditions that the policy does not name: not-mine", |facts| {
        let mut other = pods(facts).match_conditions.as_ref().unwrap()[0].clone();
        other.name = "not-mine".to_owned();
        pods(facts).match_conditions.as_mut().unwrap().push(other);
    });
    found.add("does not exclude namespace kube-system", |facts| {
        namespaces(facts)[0].values = Some(vec![NAMESPACE.to_owned()])
    });
    found.add("do not exclude the same namespaces: builds", |facts| {
        namespaces(facts)[0].values.as_mut().unwrap().push("builds".to_owned())
    });
    found.add("selects namespaces by more than the chart does: control-plane", |facts| {
        namespaces(facts).push(read(json!({"key": "control-plane", "operator": "DoesNotExist"})))
    });
    found.add("selects objects by more than the label", |facts| {
        pods(facts).object_selector = read(json!({"matchLabels": {"a": "b"}}))
    });
    found.compare("selectors_and_conditions_are_compared_with_the_policy");
}

#[test]
fn the_service_needs_ready_replicas() {
    let mut found = Found::default();
    found.add("there is no Service", |facts| facts.service = Ok(None));
    found.add("call port 443, which Service", |facts| {
        facts.service = Ok(Some(read(json!({"spec": {"ports": [{"port": 9443}]}}))))
    });
    found.add("no replica of the webhook is ready", |facts| facts.slices = Ok(Vec::new()));
    found.add("1 of 2 replicas of the webhook are ready", |facts| {
        facts.slices.as_mut().unwrap()[0].endpoints.truncate(1)
    });
    found.add("pod w1 is not ready: pods are not synced yet", |facts| {
        status(facts, 0).problems = vec!["pods are not synced yet".to_owned()]
    });
    found.compare("the_service_needs_ready_replicas");
}

#[test]
fn the_ca_bundle_is_verified_against_what_each_replica_serves() {
    let mut found = Found::default();
    let (other, foreign) = certificates();
    found.add("pods.stowplan.dev has no caBundle", |facts| client(facts).ca_bundle = None);
    let bundle = |facts: &mut Facts, text: &str| {
        client(facts).ca_bundle = Some(ByteString(text.as_bytes().to_vec()));
    };
    found.add("is invalid: it has no PEM certificate", |facts| bundle(facts, "rubbish"));
    found.add("pod w2: it was signed by another CA", |facts| bundle(facts, &other));
    found.add("replicas serve 2 different certificates", |facts| {
        status(facts, 1).certificate.as_mut().unwrap().chain.clone_from(&foreign)
    });
    let at = |time: &str| time.parse::<Timestamp>().unwrap();
    let expired = |facts: &mut Facts| facts.now = at("2030-02-01T00:00:00Z");
    found.add("pod w1: expired at 2030-01-01T00:00:00Z", expired);
    found.add("the certificate expires in 4 days", |facts| facts.now = at("2029-12-28T00:00:00Z"));
    found.add("every CA in the caBundle", |facts| facts.now = at("2041-01-01T00:00:00Z"));
    found.add("pod w1: no certificate was read yet", |facts| {
        let certificate = status(facts, 0).certificate.as_mut().unwrap();
        *certificate = ServedCertificate {
            problem: Some("no certificate was read yet".to_owned()),
            ..ServedCertificate::default()
        };
    });
    found.compare("the_ca_bundle_is_verified_against_what_each_replica_serves");
}

#[test]
fn without_the_right_to_ask_replicas_the_secret_is_read() {
    let unread = |facts: &mut Facts| {
        for replica in facts.replicas.as_mut().unwrap() {
            replica.status = forbidden("get pods/proxy");
        }
    };
    let mut found = Found::default();
    let right = "the right is missing: get pods/proxy";
    found.add(right, unread);
    // Of the certificate there is no line.
    found.add(right, |facts| {
        let chain = status(facts, 0).certificate.clone().unwrap().chain;
        facts.secret = Ok(chain.into_bytes());
        unread(facts);
    });
    found.add("it was signed by another CA", |facts| {
        facts.secret = Ok(certificates().1.into_bytes());
        unread(facts);
    });
    found.compare("without_the_right_to_ask_replicas");
}

#[test]
fn the_policy_is_compared_with_what_is_in_force() {
    let mut found = Found::default();
    found.add("there is no ConfigMap", |facts| facts.policy = Ok(None));
    let text = |facts: &mut Facts, text: &str| {
        facts.policy = Ok(Some(read(json!({"data": {"policy.yaml": text}}))));
    };
    found.add("is invalid: ", |facts| text(facts, "onInvald: warn"));
    let key = |facts: &mut Facts| facts.policy = Ok(Some(read(json!({"data": {}}))));
    found.add("has no key policy.yaml", key);
    found.add("another policy is in force (0011) in w2", |facts| {
        status(facts, 1).policy.digest = Some("0011".to_owned())
    });
    found.add("not known of 1 process", |facts| status(facts, 0).policy.digest = None);
    found.add("of 2 processes: the right is missing: get pods/proxy", |facts| {
        status(facts, 0).policy = PolicyStatus::default();
        facts.replicas.as_mut().unwrap()[1].status = forbidden("get pods/proxy");
    });
    found.compare("the_policy_is_compared_with_what_is_in_force");
}

#[test]
fn a_policy_that_is_rejected_leaves_the_previous_one_or_none() {
    let mut found = Found::default();
    let rejected = |facts: &mut Facts| {
        status(facts, 2).policy.problem = Some("no such key".to_owned());
    };
    let digest = fingerprint(POLICY);
    let kept = format!("pod c1 keeps the previous policy ({digest}): no such key");
    found.add(&kept, rejected);
    found.add("another policy is in force (0011) in c1", |facts| {
        rejected(facts);
        status(facts, 2).policy.digest = Some("0011".to_owned());
    });
    found.add("no policy is in force in c1: no such key", |facts| {
        rejected(facts);
        status(facts, 2).policy.digest = None;
    });

    // As a process reports it before the API server has answered, and if it never does.
    let source =
        Source::ConfigMap { namespace: NAMESPACE.to_owned(), name: "stowplan-policy".to_owned() };
    let Ok(Finding::Unreachable(not_yet)) = source.read_first() else { panic!("{source:?}") };
    let never = "ConfigMap a/b cannot be read: error trying to connect";
    for problem in ["ConfigMap a/b does not exist", &not_yet, never] {
        found.add(problem, |facts| {
            status(facts, 2).policy =
                PolicyStatus { digest: None, problem: Some(problem.to_owned()) }
        });
    }
    found.compare("a_policy_that_is_rejected_leaves_the_previous_one_or_none");
}

#[test]
fn without_replicas_nothing_is_known_of_them() {
    let mut found = Found::default();
    let text = "whether it is in force is not known: the right is missing: list pods";
    found.add(text, |facts| facts.replicas = forbidden("list pods"));
    let none = |facts: &mut Facts| facts.replicas = Ok(Vec::new());
    found.add("is not known: no pod of stowplan exists", none);
    found.add("no replica of the webhook exists", |facts| {
        let chain = status(facts, 0).certificate.clone().unwrap().chain;
        facts.secret = Ok(chain.into_bytes());
        none(facts);
    });
    let text =
        "what the webhook configurations trust is not known: the right is missing: list mutating";
    found.add(text, |facts| {
        facts.mutating = forbidden("list mutating");
        facts.validating = forbidden("list validating");
    });
    found.compare("without_replicas_nothing_is_known_of_them");
}

#[test]
fn versions_are_compared() {
    let mut found = Found::default();
    found.add("stowplan 1.2.3 is installed, and this command is 1.3.0", |facts| {
        facts.version = "1.3.0"
    });
    found.add("different versions run: webhook 1.2.3, webhook 1.3.0, controller 1.2.3", |facts| {
        status(facts, 0).version = "1.3.0".to_owned()
    });
    found.add("the oldest that stowplan supports is 1.33", |facts| {
        facts.server.as_mut().unwrap().minor = "32".to_owned()
    });
    found.compare("versions_are_compared");
}

#[test]
fn a_controller_has_to_lead_where_one_is_installed() {
    let mut found = Found::default();
    found.add("no controller leads: the Lease was renewed 3 s ago, by c1", |facts| {
        facts.lease.as_mut().unwrap().state = ControllerState::Stopped
    });
    let none = |facts: &mut Facts| {
        facts.lease = Ok(LeaseFacts { state: ControllerState::NotYet, lease: None });
    };
    found.add("no controller has led yet", none);
    is_fine(|facts| {
        none(facts);
        facts.deployments = Ok(vec![read(deployment("webhook", 2))]);
    });
    found.add("several controllers say that they lead: c1, c2", |facts| {
        let leader = replica("c2", Role::Controller, None);
        facts.replicas.as_mut().unwrap().push(leader);
    });
    found.compare("a_controller_has_to_lead_where_one_is_installed");
}

#[test]
fn missing_rights_are_named() {
    let mut found = Found::default();
    let deny = |facts: &mut Facts, role, verb: &str| {
        let Some(Ok((_, answers))) = facts.rights.get_mut(&role) else { panic!("no answers") };
        let nodes = |of: &&mut Answer| of.right.resource == "nodes" && of.right.verb == verb;
        answers.iter_mut().find(nodes).unwrap().is_allowed = false;
    };
    let text =
        "missing: get pods/proxy; create subjectaccessreviews.authorization.k8s.io; get /metrics";
    found.add(text, |facts| facts.missing = Ok(rights::needed_by_check(None).1));
    found.add("may not: list nodes; its watches fail", |facts| deny(facts, Role::Webhook, "list"));
    found.add("may not: patch nodes", |facts| deny(facts, Role::Controller, "patch"));
    found.add("the rights of the webhook's account are not known", |facts| {
        let right = "create subjectaccessreviews".to_owned();
        facts.rights.insert(Role::Webhook, Err(Unread::Forbidden(right)));
    });
    found.compare("missing_rights_are_named");
}

#[test]
fn definitions_are_compared_with_this_version() {
    let mut found = Found::default();
    let definition = |facts: &mut Facts, change: fn(&mut systems::CustomResourceDefinition)| {
        change(&mut facts.definitions.as_mut().unwrap()[0]);
    };
    found.add("has no definition streamsjobs", |facts| {
        facts.definitions.as_mut().unwrap().truncate(1)
    });
    found.add("is not established", |facts| definition(facts, |of| of.status = None));
    found.add("does not serve version", |facts| {
        definition(facts, |of| of.spec.versions[0].served = false)
    });
    found.add("stores another version", |facts| {
        definition(facts, |of| of.spec.versions[0].storage = false)
    });
    found.add("does not have version", |facts| {
        definition(facts, |of| of.spec.versions[0].name = "v0".to_owned())
    });
    found.add("drops the fields spec.size", |facts| {
        definition(facts, |of| {
            let schema = of.spec.versions[0].schema.as_mut().unwrap();
            let schema = schema.open_api_v3_schema.as_mut().unwrap();
            let spec = schema.properties.as_mut().unwrap().get_mut("spec").unwrap();
            spec.properties.as_mut().unwrap().remove("size").unwrap();
        });
    });
    found.add("stored objects of version v9", |facts| {
        definition(facts, |of| {
            let stored = of.status.as_mut().unwrap().stored_versions.as_mut().unwrap();
            stored.push("v9".to_owned());
        });
    });
    found.compare("definitions_are_compared_with_this_version");
}

#[test]
fn calls_that_failed_are_counted_and_one_is_tried() {
    let mut found = Found::default();
    found.add("3 objects were created without the webhook", |facts| {
        let line = "apiserver_admission_webhook_fail_open_count{name=\"pods.stowplan.dev\",type=\"admit\"}";
        facts.metrics = Ok(format!("# HELP x\n{line} 3\n"));
    });
    let trial = |facts: &mut Facts, trial: Trial| facts.trial = Some(Ok(trial));
    let created = Trial { is_created: true, expects_patch: true, ..Trial::default() };
    let missed = created.clone();
    found.add("is created without its placement", |facts| trial(facts, missed));
    let warned = Trial { is_warned: true, ..created.clone() };
    found.add("and does not place it", |facts| trial(facts, warned.clone()));
    is_fine(|facts| trial(facts, Trial { expects_patch: false, ..warned }));
    let refused = |message: &str| Trial { message: message.to_owned(), ..Trial::default() };
    let own = refused("admission webhook \"pods.stowplan.dev\" denied the request: host: x");
    is_fine(|facts| trial(facts, own));
    let failed = refused("failed calling webhook \"pods.stowplan.dev\": no endpoints");
    found.add("the API server cannot call the webhook", |facts| trial(facts, failed));
    found.add("refuses the pod: exceeded quota", |facts| trial(facts, refused("exceeded quota")));
    found.add("no test pod was created (dry run)", |facts| facts.trial = None);
    found.add("the right is missing: create pods in x", |facts| {
        facts.trial = Some(forbidden("create pods in x"))
    });
    found.compare("calls_that_failed_are_counted_and_one_is_tried");
}

#[test]
fn the_report_in_the_documents_is_as_printed() {
    let mut facts = healthy();
    // Another CA in one webhook configuration, and a controller that does not renew its Lease.
    let bundle = Some(ByteString(certificates().0.into_bytes()));
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
