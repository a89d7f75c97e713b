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

/// A CA bundle, and a chain that it signed, as PEM. The chain is valid from 2026 to 2029.
fn certificates() -> (String, String) {
    let year = |year| rcgen::date_time_ymd(year, 1, 1);
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    (parameters.not_before, parameters.not_after) = (year(2020), year(2040));
    let key = KeyPair::generate().unwrap();
    let ca = parameters.self_signed(&key).unwrap().der().clone();
    let issuer = Issuer::new(parameters, key);
    let mut parameters = CertificateParams::new([HOST.to_owned()]).unwrap();
    (parameters.not_before, parameters.not_after) = (year(2026), year(2029));
    let leaf = parameters.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
    (write_pem(&[ca]), write_pem(&[leaf.der().clone()]))
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
fn expect(name: &str, state: State, text: &str, change: impl FnOnce(&mut Facts)) {
    let mut facts = healthy();
    change(&mut facts);
    let found = findings(&facts);
    let [(of, is, message)] = &found[..] else { panic!("{text}: {found:?}") };
    assert_eq!((*of, *is), (name, state), "{message}");
    assert!(message.contains(text), "{message}: not {text}");
}

/// The same, where other lines follow from the change.
fn expect_first(name: &str, state: State, text: &str, change: impl FnOnce(&mut Facts)) {
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
    expect_first(name, Problem, "there is no webhook pods.stowplan.dev: pods are not placed", gone);
    expect_first(name, Problem, "there is no webhook claims.stowplan.dev", gone);
    expect_first(
        name,
        Problem,
        "several configurations have the webhook pods.stowplan.dev",
        |facts| {
            let first = facts.mutating.as_ref().unwrap()[0].clone();
            facts.mutating.as_mut().unwrap().push(first);
        },
    );
    let path = |facts: &mut Facts| {
        client(facts).service.as_mut().unwrap().path = Some("/other".to_owned());
    };
    expect(name, Problem, "calls the path /other instead of /mutate", path);
    expect_first(name, Problem, "of another namespace", |facts| {
        facts.namespace = Some("elsewhere".to_owned())
    });
    expect(name, Problem, "calls a URL instead of the Service", |facts| {
        client(facts).service = None
    });
    let rule = |facts: &mut Facts| pods(facts).rules = None;
    expect(name, Problem, "has no rule for CREATE", rule);
    expect(name, Warning, "timeoutSeconds 30", |facts| pods(facts).timeout_seconds = Some(30));
    expect(name, Warning, "sideEffects Unknown", |facts| {
        pods(facts).side_effects = "Unknown".to_owned()
    });
    expect(name, Warning, "failurePolicy Fail, and there is one replica", |facts| {
        pods(facts).failure_policy = Some("Fail".to_owned());
        facts.deployments =
            Ok(vec![read(deployment("webhook", 1)), read(deployment("controller", 1))]);
    });
    expect(name, Unknown, "the right is missing: list validating", |facts| {
        facts.validating = Err(Unread::Forbidden("list validating".to_owned()));
    });
}

#[test]
fn selectors_and_conditions_are_compared_with_the_policy() {
    let name = "webhook-configurations";
    expect(name, Problem, "does not send pods of mpi", |facts| {
        let conditions = pods(facts).match_conditions.as_mut().unwrap();
        conditions[0].expression = conditions[0].expression.replace("'mpi.stowplan.dev/'", "");
    });
    expect(name, Warning, "every pod of the cluster is sent", |facts| {
        pods(facts).match_conditions = None
    });
    expect(name, Warning, "match conditions that the policy does not name: not-mine", |facts| {
        let mut other = pods(facts).match_conditions.as_ref().unwrap()[0].clone();
        other.name = "not-mine".to_owned();
        pods(facts).match_conditions.as_mut().unwrap().push(other);
    });
    expect_first(name, Problem, "does not exclude namespace kube-system", |facts| {
        let selector = pods(facts).namespace_selector.as_mut().unwrap();
        selector.match_expressions.as_mut().unwrap()[0].values = Some(vec![NAMESPACE.to_owned()]);
    });
    expect(name, Warning, "do not exclude the same namespaces: builds", |facts| {
        let selector = pods(facts).namespace_selector.as_mut().unwrap();
        let rule = &mut selector.match_expressions.as_mut().unwrap()[0];
        rule.values.as_mut().unwrap().push("builds".to_owned());
    });
    expect(
        name,
        Warning,
        "selects namespaces by more than the chart does: control-plane",
        |facts| {
            let selector = pods(facts).namespace_selector.as_mut().unwrap();
            let rules = selector.match_expressions.as_mut().unwrap();
            rules.push(read(json!({"key": "control-plane", "operator": "DoesNotExist"})));
        },
    );
    let objects = |facts: &mut Facts| {
        pods(facts).object_selector = read(json!({"matchLabels": {"a": "b"}}));
    };
    expect(name, Warning, "selects objects by more than the label", objects);
}

#[test]
fn the_service_needs_ready_replicas() {
    let name = "service";
    expect(name, Problem, "there is no Service", |facts| facts.service = Ok(None));
    let port = |facts: &mut Facts| {
        facts.service = Ok(Some(read(json!({"spec": {"ports": [{"port": 9443}]}}))));
    };
    expect(name, Problem, "call port 443, which Service", port);
    expect(name, Problem, "no replica of the webhook is ready", |facts| {
        facts.slices = Ok(Vec::new())
    });
    expect(name, Warning, "1 of 2 replicas of the webhook are ready", |facts| {
        facts.slices.as_mut().unwrap()[0].endpoints.truncate(1);
    });
    expect(name, Warning, "pod w1 is not ready: pods are not synced yet", |facts| {
        status(facts, 0).problems = vec!["pods are not synced yet".to_owned()];
    });
}

#[test]
fn the_ca_bundle_is_verified_against_what_each_replica_serves() {
    let name = "certificate";
    let (other, foreign) = certificates();
    expect(name, Problem, "pods.stowplan.dev has no caBundle", |facts| {
        client(facts).ca_bundle = None
    });
    let bundle = |facts: &mut Facts, text: &str| {
        client(facts).ca_bundle = Some(ByteString(text.as_bytes().to_vec()));
    };
    expect(name, Problem, "is invalid: it has no PEM certificate", |facts| {
        bundle(facts, "rubbish")
    });
    expect_first(name, Problem, "pod w2: it was signed by another CA", |facts| {
        bundle(facts, &other)
    });
    let one = |facts: &mut Facts| {
        status(facts, 1).certificate.as_mut().unwrap().chain.clone_from(&foreign);
    };
    expect_first(name, Problem, "pod w2: it was signed by another CA", one);
    expect_first(name, Warning, "replicas serve 2 different certificates", one);
    let at = |time: &str| time.parse::<Timestamp>().unwrap();
    let expired = |facts: &mut Facts| facts.now = at("2029-02-01T00:00:00Z");
    expect_first(name, Problem, "pod w1: expired at 2029-01-01T00:00:00Z", expired);
    expect_first(name, Warning, "the certificate expires in 4 days", |facts| {
        facts.now = at("2028-12-28T00:00:00Z")
    });
    expect_first(name, Problem, "every CA in the caBundle", |facts| {
        facts.now = at("2041-01-01T00:00:00Z")
    });
    expect(name, Problem, "pod w1: no certificate was read yet", |facts| {
        let certificate = status(facts, 0).certificate.as_mut().unwrap();
        *certificate = ServedCertificate {
            problem: Some("no certificate was read yet".to_owned()),
            ..ServedCertificate::default()
        };
    });
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
    facts.secret = Ok(certificates().1.into_bytes());
    let found = certificate(&facts);
    assert!(found.iter().all(|(_, state, _)| *state == Problem) && !found.is_empty(), "{found:?}");
    // The others are unknown, not wrong: of the versions the labels say what is installed.
    let names: Vec<&str> = findings(&facts).iter().map(|(name, _, _)| *name).collect();
    assert!(names.contains(&"policy") && !names.contains(&"versions"), "{names:?}");
}

#[test]
fn the_policy_is_compared_with_what_is_in_force() {
    let name = "policy";
    expect_first(name, Problem, "there is no ConfigMap", |facts| facts.policy = Ok(None));
    let text = |facts: &mut Facts, text: &str| {
        facts.policy = Ok(Some(read(json!({"data": {"policy.yaml": text}}))));
    };
    expect_first(name, Problem, "is invalid: ", |facts| text(facts, "onInvald: warn"));
    let key = |facts: &mut Facts| facts.policy = Ok(Some(read(json!({"data": {}}))));
    expect_first(name, Problem, "has no key policy.yaml", key);
    expect(name, Warning, "another policy is in force (0011) in w2", |facts| {
        status(facts, 1).policy.digest = Some("0011".to_owned())
    });
    expect(name, Unknown, "not known of 1 process", |facts| status(facts, 0).policy.digest = None);
    expect_first(name, Unknown, "of 2 processes: the right is missing: get pods/proxy", |facts| {
        status(facts, 0).policy = PolicyStatus::default();
        facts.replicas.as_mut().unwrap()[1].status =
            Err(Unread::Forbidden("get pods/proxy".to_owned()));
    });
}

#[test]
fn a_policy_that_is_rejected_leaves_the_previous_one_or_none() {
    let name = "policy";
    let rejected = |facts: &mut Facts| {
        status(facts, 2).policy.problem = Some("no such key".to_owned());
    };
    let digest = fingerprint(POLICY);
    let kept = format!("pod c1 keeps the previous policy ({digest}): no such key");
    expect(name, Problem, &kept, rejected);
    let other = |facts: &mut Facts| {
        rejected(facts);
        status(facts, 2).policy.digest = Some("0011".to_owned());
    };
    expect_first(name, Problem, "pod c1 keeps the previous policy (0011): no such key", other);
    expect_first(name, Warning, "another policy is in force (0011) in c1", other);
    expect(name, Problem, "no policy is in force in c1: no such key", |facts| {
        rejected(facts);
        status(facts, 2).policy.digest = None;
    });

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
    let text = "whether it is in force is not known: the right is missing: list pods";
    expect_first("policy", Unknown, text, |facts| {
        facts.replicas = Err(Unread::Forbidden("list pods".to_owned()));
    });
    let none = |facts: &mut Facts| facts.replicas = Ok(Vec::new());
    expect_first("policy", Unknown, "is not known: no pod of stowplan exists", none);
    expect_first("certificate", Unknown, "no replica of the webhook exists", none);
    expect_first("certificate", Unknown, "no replica of the webhook exists", |facts| {
        let chain = status(facts, 0).certificate.clone().unwrap().chain;
        facts.secret = Ok(chain.into_bytes());
        none(facts);
    });
    let text =
        "what the webhook configurations trust is not known: the right is missing: list mutating";
    expect_first("certificate", Unknown, text, |facts| {
        facts.mutating = Err(Unread::Forbidden("list mutating".to_owned()));
        facts.validating = Err(Unread::Forbidden("list validating".to_owned()));
    });
}

#[test]
fn versions_are_compared() {
    let name = "versions";
    expect(name, Warning, "stowplan 1.2.3 is installed, and this command is 1.3.0", |facts| {
        facts.version = "1.3.0"
    });
    expect(
        name,
        Warning,
        "different versions run: webhook 1.2.3, webhook 1.3.0, controller 1.2.3",
        |facts| status(facts, 0).version = "1.3.0".to_owned(),
    );
    expect(name, Problem, "the oldest that stowplan supports is 1.33", |facts| {
        facts.server.as_mut().unwrap().minor = "32".to_owned()
    });
}

#[test]
fn a_controller_has_to_lead_where_one_is_installed() {
    let name = "controller";
    let state = |facts: &mut Facts, state| facts.lease.as_mut().unwrap().state = state;
    expect(name, Problem, "no controller leads: the Lease was renewed 3 s ago, by c1", |facts| {
        state(facts, ControllerState::Stopped)
    });
    let none = |facts: &mut Facts| {
        facts.lease = Ok(LeaseFacts { state: ControllerState::NotYet, lease: None });
    };
    expect(name, Problem, "no controller has led yet", none);
    let mut facts = healthy();
    none(&mut facts);
    facts.deployments = Ok(vec![read(deployment("webhook", 2))]);
    assert_eq!(findings(&facts), []);
    expect(name, Warning, "several controllers say that they lead: c1, c2", |facts| {
        let leader = replica("c2", Role::Controller, None);
        facts.replicas.as_mut().unwrap().push(leader);
    });
}

#[test]
fn missing_rights_are_named() {
    let deny = |facts: &mut Facts, role, verb: &str| {
        let Some(Ok((_, answers))) = facts.rights.get_mut(&role) else { panic!("no answers") };
        let nodes = |of: &&mut Answer| of.right.resource == "nodes" && of.right.verb == verb;
        answers.iter_mut().find(nodes).unwrap().is_allowed = false;
    };
    let name = "rights";
    expect(name, Problem, "may not: list nodes; its watches fail", |facts| {
        deny(facts, Role::Webhook, "list")
    });
    expect(name, Warning, "may not: patch nodes", |facts| deny(facts, Role::Controller, "patch"));
    expect(name, Unknown, "the rights of the webhook's account are not known", |facts| {
        let right = "create subjectaccessreviews".to_owned();
        facts.rights.insert(Role::Webhook, Err(Unread::Forbidden(right)));
    });
    let text =
        "missing: get pods/proxy; create subjectaccessreviews.authorization.k8s.io; get /metrics";
    expect("rights-of-this-command", Unknown, text, |facts| {
        facts.missing = Ok(rights::needed_by_check(None).1)
    });
}

#[test]
fn definitions_are_compared_with_this_version() {
    let name = "definitions";
    let definition = |facts: &mut Facts, change: fn(&mut systems::CustomResourceDefinition)| {
        change(&mut facts.definitions.as_mut().unwrap()[0]);
    };
    expect(name, Problem, "has no definition streamsjobs", |facts| {
        facts.definitions.as_mut().unwrap().truncate(1)
    });
    expect(name, Problem, "is not established", |facts| definition(facts, |of| of.status = None));
    expect(name, Problem, "does not serve version", |facts| {
        definition(facts, |of| of.spec.versions[0].served = false)
    });
    expect(name, Warning, "stores another version", |facts| {
        definition(facts, |of| of.spec.versions[0].storage = false)
    });
    expect(name, Problem, "does not have version", |facts| {
        definition(facts, |of| of.spec.versions[0].name = "v0".to_owned())
    });
    expect(name, Problem, "drops the fields spec.size", |facts| {
        definition(facts, |of| {
            let schema = of.spec.versions[0].schema.as_mut().unwrap();
            let schema = schema.open_api_v3_schema.as_mut().unwrap();
            let spec = schema.properties.as_mut().unwrap().get_mut("spec").unwrap();
            spec.properties.as_mut().unwrap().remove("size").unwrap();
        });
    });
    expect(name, Warning, "stored objects of version v9", |facts| {
        definition(facts, |of| {
            let stored = of.status.as_mut().unwrap().stored_versions.as_mut().unwrap();
            stored.push("v9".to_owned());
        });
    });
}

#[test]
fn calls_that_failed_are_counted_and_one_is_tried() {
    expect("fail-open", Warning, "3 objects were created without the webhook", |facts| {
        let line = "apiserver_admission_webhook_fail_open_count{name=\"pods.stowplan.dev\",type=\"admit\"}";
        facts.metrics = Ok(format!("# HELP x\n{line} 3\n"));
    });
    let trial = |facts: &mut Facts, trial: Trial| facts.trial = Some(Ok(trial));
    let name = "trial-pod";
    let created = Trial { is_created: true, expects_patch: true, ..Trial::default() };
    let missed = created.clone();
    expect(name, Problem, "is created without its placement", |facts| trial(facts, missed));
    let warned = Trial { is_warned: true, ..created.clone() };
    expect(name, Warning, "and does not place it", |facts| trial(facts, warned.clone()));
    let mut facts = healthy();
    trial(&mut facts, Trial { expects_patch: false, ..warned });
    assert_eq!(findings(&facts), []);
    let refused = |message: &str| Trial { message: message.to_owned(), ..Trial::default() };
    let own = refused("admission webhook \"pods.stowplan.dev\" denied the request: host: x");
    trial(&mut facts, own);
    assert_eq!(findings(&facts), []);
    let failed = refused("failed calling webhook \"pods.stowplan.dev\": no endpoints");
    expect(name, Problem, "the API server cannot call the webhook", |facts| trial(facts, failed));
    expect(name, Problem, "refuses the pod: exceeded quota", |facts| {
        trial(facts, refused("exceeded quota"))
    });
    expect(name, Unknown, "no test pod was created (dry run)", |facts| facts.trial = None);
    expect(name, Problem, "the right is missing: create pods in x", |facts| {
        facts.trial = Some(Err(Unread::Forbidden("create pods in x".to_owned())));
    });
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
