//! The values: each has an effect, a default, a schema and a line in the chart's README.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::helm::{CA, Render, read};

/// `path=JSON` of each leaf of a document; an empty map or list is a leaf.
pub(crate) fn leaves(value: &Value) -> BTreeMap<String, Value> {
    fn walk(path: &str, value: &Value, leaves: &mut BTreeMap<String, Value>) {
        match value {
            Value::Object(map) if !map.is_empty() => {
                for (key, value) in map {
                    let dot = if path.is_empty() { "" } else { "." };
                    walk(&format!("{path}{dot}{key}"), value, leaves);
                }
            }
            _ => {
                leaves.insert(path.to_owned(), value.clone());
            }
        }
    }
    let mut found = BTreeMap::new();
    walk("", value, &mut found);
    found
}

pub(crate) fn values(name: &str) -> Value {
    serde_saphyr::from_str(&read(name)).expect("YAML")
}

/// The values of the oldest chart that can be upgraded with `--reuse-values`.
pub(crate) fn older() -> Value {
    serde_saphyr::from_str(include_str!("values/9cdd524.yaml")).expect("YAML")
}

/// Values of which `ci/full-values.yaml` has no other that works alone, and what must be set beside it.
/// Indented lines continue a row.
const OTHER: &str = r#"
controller.enabled=false
controller.admissionPolicy.enabled=false
controller.rbac.coscheduling=false with policy={"coschedule": {"enabled": false}}
controller.rbac.jobs=false with policy={"streams": {"enabled": false}}
controller.rbac.mpi=false with policy={"mpi": {"enabled": false}}
controller.rbac.repair=false
controller.rbac.wake=false with
    policy={"coschedule": {"enabled": false}, "mpi": {"enabled": false}, "streams": {"enabled": false}}
    + controller.rbac.coscheduling=false + controller.rbac.jobs=false
    + controller.rbac.katalyst=false + controller.rbac.mpi=false
controller.serviceAccount.create=false with controller.serviceAccount.name="other"
controller.sidecar=true
crds.install=false
metrics.dashboard.annotations={"other": "yes"} with metrics.dashboard.enabled=true
metrics.dashboard.labels.grafana_dashboard="other" with metrics.dashboard.enabled=true
metrics.podMonitor.enabled=true
metrics.podMonitor.labels={"other": "yes"} with metrics.podMonitor.enabled=true
metrics.prometheusRule.labels={"other": "yes"} with metrics.prometheusRule.enabled=true
metrics.prometheusRule.runbookURL="https://other" with metrics.prometheusRule.enabled=true
metrics.serviceMonitor.labels={"other": "yes"} with metrics.serviceMonitor.enabled=true
networkPolicy.metricsFrom=[{"podSelector": {}}] with networkPolicy.enabled=true
networkPolicy.webhookFrom=[{"ipBlock": {"cidr": "192.0.2.0/28"}}] with networkPolicy.enabled=true
reader.create=false
serviceAccount.create=false with serviceAccount.name="other"
teardown.enabled=false
tls.certManager.inject="other/ca" with tls.caBundle="" + tls.certManager.inject="stowplan/ca"
tls.certManager.issuerRef={"name": "other"} with tls.caBundle="" + tls.mode="certManager"
tls.mode="certManager" with tls.caBundle=""
tls.self.caLifetime="4000h" with tls.caBundle=""
tls.self.leafLifetime="360h" with tls.caBundle=""
tls.self.overlap="5m" with tls.caBundle=""
webhook.admissionPolicy.enabled=false
webhook.numaPolicy.enabled=false
"#;

/// Each by itself, as `ci/full-values.yaml` or [`OTHER`] has it.
#[test]
fn every_value_has_an_effect() {
    let rows = OTHER.replace("\n    ", " ");
    let mut others: BTreeMap<_, _> =
        rows.trim().lines().filter_map(|row| row.split_once('=')).collect();
    let full = values("ci/full-values.yaml");
    for path in leaves(&values("values.yaml")).keys() {
        // A label's key has dots of its own.
        let pointer = format!("/{}", path.replace('.', "/")).replace("s/io/os", "s.io~1os");
        let of_full = full.pointer(&pointer).map(ToString::to_string).unwrap_or_default();
        let other = others.remove(&**path).unwrap_or(&of_full);
        let (other, context) = other.split_once(" with ").unwrap_or((other, ""));
        let context = context.split(" + ").filter(|value| !value.is_empty());
        let before = Render::defaults().set_all(&context.collect::<Vec<_>>());
        let path = path.replace("kubernetes.io", r"kubernetes\.io");
        let after = before.clone().set(&format!("{path}={other}"));
        assert_ne!(before.text(), after.text(), "{path}={other} changes nothing");
    }
    assert!(others.is_empty(), "no such values: {others:?}");
}

/// The values of `ci/full-values.yaml` that are the defaults: without definitions there is nothing to
/// keep, beside a bundle nothing to inject, without pods of its own a controller has no replicas, the
/// policy needs some rights, and pods are scraped in one way.
const NOT_CHANGED: [&str; 13] = [
    "controller.admissionPolicy.enabled",
    "controller.enabled",
    "controller.rbac.coscheduling",
    "controller.rbac.repair",
    "controller.serviceAccount.create",
    "controller.sidecar",
    "crds.install",
    "metrics.podMonitor.enabled",
    "reader.create",
    "teardown.enabled",
    "tls.certManager.inject",
    "webhook.admissionPolicy.enabled",
    "webhook.numaPolicy.enabled",
];

#[test]
fn the_full_values_change_every_value() {
    let full = leaves(&values("ci/full-values.yaml"));
    let mut same = leaves(&values("values.yaml"));
    // A map of the user's own has leaves below the path.
    same.retain(|path, default| {
        full.get(path) == Some(default)
            || !full.keys().any(|key| key == path || key.starts_with(&format!("{path}.")))
    });
    assert_eq!(same.keys().collect::<Vec<_>>(), NOT_CHANGED.iter().collect::<Vec<_>>());
}

/// Unknown keys are refused at every level, and missing ones unless they are newer than the oldest
/// chart whose values are reused; the schema knows exactly the values that there are.
#[test]
fn the_schema_knows_every_value_and_no_other() {
    fn walk(path: &str, schema: &Value, definitions: &Value, values: &Value, older: &Value) {
        // All its keys are optional; policy.rs compares it with stowplan's own schema.
        if path == ".policy" {
            return;
        }
        let schema = match schema["$ref"].as_str() {
            Some(place) => {
                &definitions[place.strip_prefix("#/definitions/").expect("a definition")]
            }
            None => schema,
        };
        let Some(properties) = schema["properties"].as_object() else {
            return;
        };
        assert_eq!(schema["additionalProperties"], false, "{path} is open");
        let known: BTreeSet<_> =
            properties.keys().map(|key| &**key).filter(|key| *key != "global").collect();
        let there: BTreeSet<_> =
            values.as_object().expect("a map").keys().map(|key| &**key).collect();
        assert_eq!(known, there, "values.schema.json and values.yaml at {path:?}");
        // Requests and limits may be removed.
        if !path.ends_with(".resources") {
            let required = schema["required"].as_array().into_iter().flatten();
            let required: BTreeSet<_> = required.filter_map(Value::as_str).collect();
            let keys = older.as_object().into_iter().flatten().map(|(key, _)| &**key);
            assert_eq!(required, keys.collect(), "required at {path:?}");
        }
        for key in known {
            let path = format!("{path}.{key}");
            walk(&path, &properties[key], definitions, &values[key], &older[key]);
        }
    }
    let schema: Value = serde_json::from_str(&read("values.schema.json")).expect("JSON");
    walk("", &schema, &schema["definitions"], &values("values.yaml"), &older());
}

/// Values that are refused, and a part of the message in the indented lines below them; without a CA.
const REFUSED_WITHOUT_CA: &str = r#"
tls.mode="provided"
    tls.caBundle is empty, so the API server would trust no certificate of the webhook: set it
    to the base64 of the PEM certificate of the CA that signed Secret "stowplan-tls"
tls.caBundle="bm90aGluZw=="
    set it to the output of `openssl base64 -A -in ca.crt`
tls.caBundle="abc"
    tls.caBundle is not the base64 of a PEM certificate
tls.caBundle="-----BEGIN"
    at '/tls/caBundle': '-----BEGIN' does not match pattern
tls.caBundle="LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCg=="
    tls.caBundle contains a private key
tls.certManager.inject="ca"
    at '/tls/certManager/inject': 'ca' does not match
tls.mode="self" + tls.certManager.inject="stowplan/ca"
    tls.mode is self and tls.certManager.inject is set, so two would write the caBundle
tls.certManager={"inject": "stowplan/ca", "issuerRef": {"name": "mine"}}
    tls.certManager.inject names a Certificate that you have created
tls.certManager={"inject": "", "issuerRef": {"name": "mine"}}
    tls.certManager.issuerRef is set and tls.mode is self
webhook.annotations={"cert-manager.io/inject-ca-from": "a/b"}
    webhook.annotations has cert-manager.io/inject-ca-from
controller.enabled=false
    tls.mode is self and controller.enabled is false, so no process would make the webhook's
    certificate: set controller.enabled to true, or tls.mode to certManager
tls.self.overlap="0s"
    tls.self.overlap is 0, and API servers need some time
tls.self.overlap="121h"
    tls.self.leafLifetime (720h) is less than six times tls.self.overlap (121h)
tls.self.leafLifetime="2191h"
    tls.self.caLifetime (8760h) is less than four times tls.self.leafLifetime (2191h)
tls.self.overlap="1d"
    at '/tls/self/overlap': '1d' does not match pattern
tls.mode="Self"
    at '/tls/mode': value must be one of
"#;

/// The same beside a CA.
const REFUSED: &str = r#"
tls.certManager.inject="stowplan/ca"
    tls.caBundle and tls.certManager.inject are both set
tls.mode="self"
    tls.mode is self and tls.caBundle is set, which would be overwritten: remove tls.caBundle,
    or set tls.mode to provided
tls.mode="certManager"
    tls.mode is certManager and tls.caBundle is set
tls=null
    missing property 'tls'
replica=3
    additional properties 'replica' not allowed
webhook.url=1
    at '/webhook': additional properties 'url' not allowed
webhook.port=443
    at '/webhook/port': minimum: got 443, want 1,024
image.repository=""
    image.repository is empty, so no node could start stowplan: set it to where your registry
    keeps the image, without the tag
image.repository="mirror.example/stowplan@sha256:00"
    at '/image/repository'
commonLabels={"app.kubernetes.io/name": "other"}
    commonLabels has app.kubernetes.io/name, which the chart sets itself
commonLabels={"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    or which would change rights: take another key
commonLabels={"stowplan.dev/ignore": "false"}
    take another key
extraEnv=[{"name": "STOWPLAN_LOG", "value": "debug"}]
    extraEnv has STOWPLAN_LOG, which the chart sets itself: remove it
webhook.extraArgs=["--policy", "mine.yaml"]
    webhook.extraArgs has --policy, which the chart sets itself: remove it, and set the value
    that it comes from
webhook.adminPort=8443
    webhook.port and webhook.adminPort are both 8443: set different ones
controller.sidecar=true + webhook.port=8081
    8081, on which the controller listens
serviceAccount.create=false
    serviceAccount.create is false and serviceAccount.name is empty: name the service account
    that exists, or set create to true
controller.serviceAccount.create=false
    controller.serviceAccount.create is false and controller.serviceAccount.name is empty
serviceAccount.name="a" + controller.serviceAccount.name="a"
    the webhook and the controller have the same service account, a, so the webhook
metrics.podMonitor.enabled=true + metrics.serviceMonitor.enabled=true
    so Prometheus would read each pod twice and count two leaders: enable one of them
webhook.service.ipFamilies=["IPv5"]
    at '/webhook/service/ipFamilies/0'
replicas="two"
    at '/replicas': got string, want integer
replicas=0
    at '/replicas': minimum: got 0, want 1
controller.replicas=0
    at '/controller/replicas': minimum: got 0, want 1
controller.resources={"memory": "1Gi"}
    at '/controller/resources': additional properties 'memory' not allowed
controller.sidecar=true + controller.enabled=false
    controller.sidecar is true and controller.enabled is false, so there is no controller to run
    beside the webhook: set enabled to true, or sidecar to false
policy.repair="recreatePending" + webhook.matchConditions=[{"name": "mine", "expression": "true"}]
    policy.repair is recreatePending and webhook.matchConditions has conditions of your own
    (mine), so stowplan cannot know which pods they keep from the webhook
controller.rbac.coscheduling=false
    controller.rbac.coscheduling is false and the policy enables coscheduling, so members of
    groups would wait for placeholders that cannot be created: set policy.coschedule.enabled to
    false too
controller.rbac.jobs=false
    controller.rbac.jobs is false and the policy enables Streams, so pods of StreamsJobs would
    wait behind their gate for ever: set policy.streams.enabled to false too
controller.rbac.mpi=false
    controller.rbac.mpi is false and the policy enables MPI clusters, so launchers would wait
    for objects and for workers for ever: set policy.mpi.enabled to false too
controller.rbac.katalyst=false + policy={"katalyst": {"mode": "enforced", "declaredLabels": ["app"]}}
    controller.rbac.katalyst is false and policy.katalyst.mode is enforced, so pods with NUMA
    affinity would wait for ever: set the right to true, or the mode to advisory or disabled
controller.rbac.repair=false + policy={"repair": "recreatePending"}
    controller.rbac.repair is false and policy.repair is recreatePending
controller.admissionPolicy.placeholderImages=["a' || true"]
    at '/controller/admissionPolicy/placeholderImages/0'
policy=[]
    at '/policy': got array, want object
webhook.timeoutSeconds=31
    at '/webhook/timeoutSeconds': maximum: got 31, want 30
webhook.failurePolicy="ignore"
    value must be one of 'Ignore', 'Fail'
image.digest="latest"
    at '/image/digest': 'latest' does not match pattern
fullnameOverride="Not_A_Name"
    at '/fullnameOverride'
"#;

#[test]
fn values_that_cannot_work_are_refused_with_a_remedy() {
    for (render, cases) in [(Render::bare(), REFUSED_WITHOUT_CA), (Render::defaults(), REFUSED)] {
        for row in cases.trim().replace("\n    ", "\0").lines() {
            let (values, sentence) = row.split_once('\0').expect("a message");
            let sentence = sentence.replace('\0', " ");
            let values: Vec<_> = values.split(" + ").collect();
            let refusal = render.clone().set_all(&values).refusal();
            assert!(refusal.contains(&sentence), "{values:?}: {refusal}");
        }
    }
}

#[test]
fn the_readme_lists_every_value_with_its_default() {
    let readme = read("README.md");
    let listed: BTreeMap<_, _> = readme
        .lines()
        .skip_while(|line| *line != "## Values")
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| `")?.split("` | `");
            let path = cells.next()?.to_owned();
            let default = cells.next()?.split("` |").next()?;
            Some((path, serde_json::from_str(default).expect("a default in JSON")))
        })
        .collect();
    assert_eq!(listed, leaves(&values("values.yaml")));
}

#[test]
fn the_readme_shows_the_strict_profile() {
    let profile = read("values-strict.yaml");
    let (_, profile) = profile.split_once("\nreplicas:").expect("comments, then values");
    assert!(read("README.md").contains(&format!("```yaml\nreplicas:{profile}```\n")));
    let objects = Render::file("values-strict.yaml").set(CA).objects();
    assert_eq!(objects.webhooks()[0]["failurePolicy"], "Fail");
}
