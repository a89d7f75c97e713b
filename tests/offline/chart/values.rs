//! The values: each has an effect, a default, a schema and a line in the chart's README.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::helm::{CA, NO_CONTROLLER, Render, SIDECAR, read};

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

/// For each value another one, and the values that must be set for it to have an effect.
const OTHER: &[(&str, &str, &[&str])] = &[
    ("affinity", r#"{"nodeAffinity": {}}"#, &[]),
    ("commonLabels", r#"{"other": "yes"}"#, &[]),
    ("containerSecurityContext.allowPrivilegeEscalation", "true", &[]),
    ("containerSecurityContext.capabilities.drop", r#"["NET_RAW"]"#, &[]),
    ("containerSecurityContext.readOnlyRootFilesystem", "false", &[]),
    ("controller.affinity", r#"{"nodeAffinity": {}}"#, &[]),
    ("controller.enabled", "false", &[]),
    ("controller.admissionPolicy.enabled", "false", &[]),
    ("controller.admissionPolicy.placeholderImages", r#"["other:1"]"#, &[]),
    ("controller.extraArgs", r#"["--max-watch-age=5m"]"#, &[]),
    ("controller.placeholderPriorityClass.create", "false", &[]),
    ("controller.rbac.coscheduling", "false", &[r#"policy={"coschedule": {"enabled": false}}"#]),
    ("controller.rbac.jobs", "false", &[r#"policy={"streams": {"enabled": false}}"#]),
    ("controller.rbac.katalyst", "false", &[]),
    ("controller.rbac.mpi", "false", &[r#"policy={"mpi": {"enabled": false}}"#]),
    ("controller.rbac.pools", "false", &[]),
    ("controller.rbac.repair", "false", &[]),
    (
        "controller.rbac.wake",
        "false",
        &[
            r#"policy={"coschedule": {"enabled": false}, "mpi": {"enabled": false}, "streams": {"enabled": false}}"#,
            "controller.rbac.coscheduling=false",
            "controller.rbac.jobs=false",
            "controller.rbac.katalyst=false",
            "controller.rbac.mpi=false",
        ],
    ),
    ("controller.replicas", "3", &[]),
    ("controller.resources.limits.memory", r#""1Gi""#, &[]),
    ("controller.resources.requests.cpu", "1", &[]),
    ("controller.resources.requests.memory", r#""1Gi""#, &[]),
    ("controller.serviceAccount.annotations", r#"{"other": "yes"}"#, &[]),
    ("controller.serviceAccount.create", "false", &[r#"controller.serviceAccount.name="other""#]),
    ("controller.serviceAccount.name", r#""other""#, &[]),
    ("controller.sidecar", "true", &[]),
    ("crds.install", "false", &[]),
    ("crds.keep", "false", &[]),
    ("extraEnv", r#"[{"name": "OTHER", "value": "yes"}]"#, &[]),
    ("fullnameOverride", r#""other""#, &[]),
    (
        "image.digest",
        r#""sha256:0000000000000000000000000000000000000000000000000000000000000000""#,
        &[],
    ),
    ("image.pullPolicy", r#""Never""#, &[]),
    ("image.registry", r#""other""#, &[]),
    ("image.repository", r#""other""#, &[]),
    ("image.tag", r#""other""#, &[]),
    ("imagePullSecrets", r#"[{"name": "other"}]"#, &[]),
    ("listenAddress", r#""[::]""#, &[]),
    ("logLevel", r#""debug""#, &[]),
    ("lostNodeSeconds", "30", &[]),
    ("metrics.dashboard.annotations", r#"{"other": "yes"}"#, &["metrics.dashboard.enabled=true"]),
    ("metrics.dashboard.enabled", "true", &[]),
    (
        "metrics.dashboard.labels.grafana_dashboard",
        r#""other""#,
        &["metrics.dashboard.enabled=true"],
    ),
    ("metrics.podMonitor.enabled", "true", &[]),
    ("metrics.podMonitor.labels", r#"{"other": "yes"}"#, &["metrics.podMonitor.enabled=true"]),
    ("metrics.prometheusRule.enabled", "true", &[]),
    (
        "metrics.prometheusRule.labels",
        r#"{"other": "yes"}"#,
        &["metrics.prometheusRule.enabled=true"],
    ),
    (
        "metrics.prometheusRule.runbookURL",
        r#""https://other""#,
        &["metrics.prometheusRule.enabled=true"],
    ),
    ("metrics.serviceMonitor.enabled", "true", &[]),
    (
        "metrics.serviceMonitor.labels",
        r#"{"other": "yes"}"#,
        &["metrics.serviceMonitor.enabled=true"],
    ),
    ("nameOverride", r#""other""#, &[]),
    ("networkPolicy.enabled", "true", &[]),
    ("networkPolicy.metricsFrom", r#"[{"podSelector": {}}]"#, &["networkPolicy.enabled=true"]),
    (
        "networkPolicy.webhookFrom",
        r#"[{"ipBlock": {"cidr": "192.0.2.0/28"}}]"#,
        &["networkPolicy.enabled=true"],
    ),
    ("nodeSelector.kubernetes.io/os", r#""other""#, &[]),
    ("podAnnotations", r#"{"other": "yes"}"#, &[]),
    ("podLabels", r#"{"other": "yes"}"#, &[]),
    ("podSecurityContext.fsGroup", "1000", &[]),
    ("podSecurityContext.runAsGroup", "1000", &[]),
    ("podSecurityContext.runAsNonRoot", "false", &[]),
    ("podSecurityContext.runAsUser", "1000", &[]),
    ("podSecurityContext.seccompProfile.type", r#""Unconfined""#, &[]),
    ("policy", r#"{"onInvalid": "warn"}"#, &[]),
    ("priorityClassName", r#""""#, &[]),
    ("reader.aggregateToView", "true", &[]),
    ("reader.create", "false", &[]),
    ("replicas", "3", &[]),
    ("resources.limits.memory", r#""1Gi""#, &[]),
    ("resources.requests.cpu", "1", &[]),
    ("resources.requests.memory", r#""1Gi""#, &[]),
    ("serviceAccount.annotations", r#"{"other": "yes"}"#, &[]),
    ("serviceAccount.create", "false", &[r#"serviceAccount.name="other""#]),
    ("serviceAccount.name", r#""other""#, &[]),
    ("teardown.enabled", "false", &[]),
    ("test.namespace", r#""other""#, &[]),
    ("tls.caBundle", r#""LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==""#, &[]),
    (
        "tls.certManager.inject",
        r#""other/ca""#,
        &[r#"tls.caBundle="""#, r#"tls.certManager.inject="stowplan/ca""#],
    ),
    (
        "tls.certManager.issuerRef",
        r#"{"name": "other"}"#,
        &[r#"tls.caBundle="""#, r#"tls.mode="certManager""#],
    ),
    ("tls.clientCASecretName", r#""other""#, &[]),
    ("tls.mode", r#""certManager""#, &[r#"tls.caBundle="""#]),
    ("tls.secretName", r#""other""#, &[]),
    ("tls.self.caLifetime", r#""4000h""#, &[r#"tls.caBundle="""#]),
    ("tls.self.leafLifetime", r#""360h""#, &[r#"tls.caBundle="""#]),
    ("tls.self.overlap", r#""5m""#, &[r#"tls.caBundle="""#]),
    ("tolerations", r#"[{"operator": "Exists"}]"#, &[]),
    ("webhook.adminPort", "10080", &[]),
    ("webhook.admissionPolicy.enabled", "false", &[]),
    ("webhook.annotations", r#"{"other": "yes"}"#, &[]),
    ("webhook.dnsPolicy", r#""Default""#, &[]),
    ("webhook.excludedNamespaces", r#"["other"]"#, &[]),
    ("webhook.extraArgs", r#"["--log-format=text"]"#, &[]),
    ("webhook.failurePolicy", r#""Fail""#, &[]),
    ("webhook.hostNetwork", "true", &[]),
    ("webhook.keyPolicy.enabled", "false", &[]),
    ("webhook.labels", r#"{"other": "yes"}"#, &[]),
    ("webhook.matchConditions", r#"[{"name": "other", "expression": "true"}]"#, &[]),
    ("webhook.numaPolicy.enabled", "false", &[]),
    ("webhook.port", "10443", &[]),
    ("webhook.service.annotations", r#"{"other": "yes"}"#, &[]),
    ("webhook.service.ipFamilies", r#"["IPv6"]"#, &[]),
    ("webhook.service.ipFamilyPolicy", r#""PreferDualStack""#, &[]),
    ("webhook.service.port", "8443", &[]),
    ("webhook.shutdownDelaySeconds", "0", &[]),
    ("webhook.timeoutSeconds", "1", &[]),
];

#[test]
fn every_value_has_an_effect() {
    let defaults = leaves(&values("values.yaml"));
    let known: BTreeSet<_> = OTHER.iter().map(|(path, ..)| *path).collect();
    assert_eq!(known, defaults.keys().map(|path| &**path).collect(), "OTHER and values.yaml");
    for (path, other, context) in OTHER {
        let before = Render::defaults().set_all(context);
        // A label's key has dots of its own.
        let path = path.replace("kubernetes.io", r"kubernetes\.io");
        let after = Render::defaults().set_all(context).set(&format!("{path}={other}"));
        assert_ne!(before.text(), after.text(), "{path} changes nothing");
    }
}

#[test]
fn the_full_values_change_every_value() {
    let full = leaves(&values("ci/full-values.yaml"));
    for (path, default) in leaves(&values("values.yaml")) {
        // A map of the user's own has leaves below the path.
        let same = full.get(&path) == Some(&default)
            || !full.keys().any(|key| *key == path || key.starts_with(&format!("{path}.")));
        // Without definitions there is nothing to keep, beside a bundle nothing to inject,
        // without pods of its own a controller has no replicas, the policy needs some rights, and
        // pods are scraped in one way.
        let excepted = [
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
        let excepted = excepted.contains(&&*path);
        assert_eq!(same, excepted, "{path} in ci/full-values.yaml");
    }
}

/// Unknown keys are refused at every level, and missing ones unless they are newer than the oldest
/// chart whose values are reused; the schema knows exactly the values that there are.
#[test]
fn the_schema_knows_every_value_and_no_other() {
    fn walk(path: &str, schema: &Value, definitions: &Value, values: &Value, older: &Value) {
        // All its keys are optional; tests/chart/policy.rs compares it with stowplan's own schema.
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

#[test]
fn values_that_cannot_work_are_refused_with_a_remedy() {
    let ca = format!("tls.caBundle={CA:?}");
    let key = r#"tls.caBundle="LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCg==""#;
    let cases: &[(&[&str], &str)] = &[
        (
            &[r#"tls.mode="provided""#],
            "tls.caBundle is empty, so the API server would trust no certificate of the webhook: set \
             it to the base64 of the PEM certificate of the CA that signed Secret \"stowplan-tls\"",
        ),
        (
            &[&ca, r#"tls.certManager.inject="stowplan/ca""#],
            "tls.caBundle and tls.certManager.inject are both set",
        ),
        (
            &[r#"tls.caBundle="bm90aGluZw==""#],
            "set it to the output of `openssl base64 -A -in ca.crt`",
        ),
        (&[r#"tls.caBundle="abc""#], "tls.caBundle is not the base64 of a PEM certificate"),
        (
            &[r#"tls.caBundle="-----BEGIN""#],
            "at '/tls/caBundle': '-----BEGIN' does not match pattern",
        ),
        (&[key], "tls.caBundle contains a private key"),
        (&[r#"tls.certManager.inject="ca""#], "at '/tls/certManager/inject': 'ca' does not match"),
        (
            &[&ca, r#"tls.mode="self""#],
            "tls.mode is self and tls.caBundle is set, which would be overwritten: remove \
             tls.caBundle, or set tls.mode to provided",
        ),
        (&[&ca, r#"tls.mode="certManager""#], "tls.mode is certManager and tls.caBundle is set"),
        (
            &[r#"tls.mode="self""#, r#"tls.certManager.inject="stowplan/ca""#],
            "tls.mode is self and tls.certManager.inject is set, so two would write the caBundle",
        ),
        (
            &[r#"tls.certManager={"inject": "stowplan/ca", "issuerRef": {"name": "mine"}}"#],
            "tls.certManager.inject names a Certificate that you have created",
        ),
        (
            &[r#"tls.certManager={"inject": "", "issuerRef": {"name": "mine"}}"#],
            "tls.certManager.issuerRef is set and tls.mode is self",
        ),
        (
            &[r#"webhook.annotations={"cert-manager.io/inject-ca-from": "a/b"}"#],
            "webhook.annotations has cert-manager.io/inject-ca-from",
        ),
        (
            &[NO_CONTROLLER],
            "tls.mode is self and controller.enabled is false, so no process would make the \
             webhook's certificate: set controller.enabled to true, or tls.mode to certManager",
        ),
        (&[r#"tls.self.overlap="0s""#], "tls.self.overlap is 0, and API servers need some time"),
        (
            &[r#"tls.self.overlap="121h""#],
            "tls.self.leafLifetime (720h) is less than six times tls.self.overlap (121h)",
        ),
        (
            &[r#"tls.self.leafLifetime="2191h""#],
            "tls.self.caLifetime (8760h) is less than four times tls.self.leafLifetime (2191h)",
        ),
        (&[r#"tls.self.overlap="1d""#], "at '/tls/self/overlap': '1d' does not match pattern"),
        (&[r#"tls.mode="Self""#], "at '/tls/mode': value must be one of"),
        (
            &[r#"webhook.extraArgs=["--tls-secret=mine"]"#],
            "webhook.extraArgs has --tls-secret=mine, which the chart sets itself",
        ),
        (&[&ca, "tls=null"], "missing property 'tls'"),
        (&[&ca, "replica=3"], "additional properties 'replica' not allowed"),
        (&[&ca, "webhook.url=1"], "at '/webhook': additional properties 'url' not allowed"),
        (&[&ca, "webhook.port=443"], "at '/webhook/port': minimum: got 443, want 1,024"),
        (
            &[&ca, r#"image.repository="""#],
            "image.repository is empty, so no node could start stowplan: set it to where your \
             registry keeps the image, without the tag",
        ),
        (
            &[&ca, r#"image.repository="mirror.example/stowplan@sha256:00""#],
            "at '/image/repository'",
        ),
        (
            &[&ca, r#"commonLabels={"app.kubernetes.io/name": "other"}"#],
            "commonLabels has app.kubernetes.io/name, which the chart sets itself",
        ),
        (
            &[&ca, r#"commonLabels={"rbac.authorization.k8s.io/aggregate-to-view": "true"}"#],
            "or which would change rights: take another key",
        ),
        (&[&ca, r#"commonLabels={"stowplan.dev/ignore": "false"}"#], "take another key"),
        (
            &[&ca, r#"extraEnv=[{"name": "STOWPLAN_LOG", "value": "debug"}]"#],
            "extraEnv has STOWPLAN_LOG, which the chart sets itself: remove it",
        ),
        (
            &[&ca, r#"webhook.extraArgs=["--policy", "mine.yaml"]"#],
            "webhook.extraArgs has --policy, which the chart sets itself: remove it, and set the \
             value that it comes from",
        ),
        (
            &[&ca, "webhook.adminPort=8443"],
            "webhook.port and webhook.adminPort are both 8443: set different ones",
        ),
        (&[&ca, SIDECAR, "webhook.port=8081"], "8081, on which the controller listens"),
        (
            &[&ca, "serviceAccount.create=false"],
            "serviceAccount.create is false and serviceAccount.name is empty: name the service \
             account that exists, or set create to true",
        ),
        (
            &[&ca, "controller.serviceAccount.create=false"],
            "controller.serviceAccount.create is false and controller.serviceAccount.name is empty",
        ),
        (
            &[&ca, r#"serviceAccount.name="a""#, r#"controller.serviceAccount.name="a""#],
            "the webhook and the controller have the same service account, a, so the webhook",
        ),
        (
            &[&ca, "metrics.podMonitor.enabled=true", "metrics.serviceMonitor.enabled=true"],
            "so Prometheus would read each pod twice and count two leaders: enable one of them",
        ),
        (&[&ca, r#"webhook.service.ipFamilies=["IPv5"]"#], "at '/webhook/service/ipFamilies/0'"),
        (&[&ca, r#"replicas="two""#], "at '/replicas': got string, want integer"),
        (&[&ca, "replicas=0"], "at '/replicas': minimum: got 0, want 1"),
        (&[&ca, "controller.replicas=0"], "at '/controller/replicas': minimum: got 0, want 1"),
        (
            &[&ca, r#"controller.resources={"memory": "1Gi"}"#],
            "at '/controller/resources': additional properties 'memory' not allowed",
        ),
        (
            &[&ca, SIDECAR, NO_CONTROLLER],
            "controller.sidecar is true and controller.enabled is false, so there is no controller to \
             run beside the webhook: set enabled to true, or sidecar to false",
        ),
        (
            &[
                &ca,
                r#"policy.repair="recreatePending""#,
                r#"webhook.matchConditions=[{"name": "mine", "expression": "true"}]"#,
            ],
            "policy.repair is recreatePending and webhook.matchConditions has conditions of your own \
             (mine), so stowplan cannot know which pods they keep from the webhook",
        ),
        (
            &[&ca, r#"policy.excludedNamespaces="build""#],
            "at '/policy/excludedNamespaces': got string, want array",
        ),
        (
            &[&ca, "controller.rbac.coscheduling=false"],
            "controller.rbac.coscheduling is false and the policy enables coscheduling, so members of \
             groups would wait for placeholders that cannot be created: set \
             policy.coschedule.enabled to false too",
        ),
        (
            &[&ca, "controller.rbac.jobs=false"],
            "controller.rbac.jobs is false and the policy enables Streams, so pods of StreamsJobs would \
             wait behind their gate for ever: set policy.streams.enabled to false too",
        ),
        (
            &[&ca, "controller.rbac.mpi=false"],
            "controller.rbac.mpi is false and the policy enables MPI clusters, so launchers would wait \
             for objects and for workers for ever: set policy.mpi.enabled to false too",
        ),
        (
            &[
                &ca,
                "controller.rbac.katalyst=false",
                r#"policy={"katalyst": {"mode": "enforced", "declaredLabels": ["app"]}}"#,
            ],
            "controller.rbac.katalyst is false and policy.katalyst.mode is enforced, so pods with NUMA \
             affinity would wait for ever: set the right to true, or the mode to advisory or disabled",
        ),
        (
            &[&ca, r#"policy={"katalyst": {"mode": "enforced"}}"#],
            "policy.katalyst.mode is enforced and policy.katalyst.declaredLabels is empty, so no NUMA \
             affinity could be met: list the label keys that the node agents keep",
        ),
        (
            &[&ca, "controller.rbac.repair=false", r#"policy={"repair": "recreatePending"}"#],
            "controller.rbac.repair is false and policy.repair is recreatePending",
        ),
        (
            &[&ca, r#"controller.admissionPolicy.placeholderImages=["a' || true"]"#],
            "at '/controller/admissionPolicy/placeholderImages/0'",
        ),
        (&[&ca, "policy=[]"], "at '/policy': got array, want object"),
        (
            &[&ca, "webhook.timeoutSeconds=31"],
            "at '/webhook/timeoutSeconds': maximum: got 31, want 30",
        ),
        (&[&ca, r#"webhook.failurePolicy="ignore""#], "value must be one of 'Ignore', 'Fail'"),
        (&[&ca, r#"image.digest="latest""#], "at '/image/digest': 'latest' does not match pattern"),
        (&[&ca, r#"fullnameOverride="Not_A_Name""#], "at '/fullnameOverride'"),
    ];
    for (values, sentence) in cases {
        let refusal = Render::bare().set_all(values).refusal();
        assert!(refusal.contains(sentence), "{values:?}: {refusal}");
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
    let objects = Render::file("values-strict.yaml").set(&format!("tls.caBundle={CA:?}")).objects();
    assert_eq!(objects.webhook().failure_policy.as_deref(), Some("Fail"));
}
