//! Labels of all objects, the accounts, and what the pods need on some platforms: OpenShift, AKS,
//! IPv6, clusters whose API server reaches no pods, nodes with Windows.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::helm::{CA, Objects, Render, SIDECAR, objects, read};

/// The only container of a pod.
fn only<'v>(name: &str, pod: &'v Value) -> &'v Value {
    assert_eq!(pod["containers"].as_array().map(Vec::len), Some(1), "{name}");
    &pod["containers"][0]
}

#[test]
fn every_object_and_pod_has_the_common_labels() {
    let objects = Render::file("ci/full-values.yaml")
        .set_all(&["metrics.serviceMonitor.enabled=false", "metrics.podMonitor.enabled=true"])
        .set_all(&["serviceAccount.create=true", "controller.admissionPolicy.enabled=true"])
        .objects();
    for (key, object) in &objects.0 {
        let templates = ["/metadata/labels", "/spec/template/metadata/labels"];
        for labels in templates.into_iter().filter_map(|place| object.pointer(place)) {
            assert_eq!(labels["example.com/cost-centre"], "42", "{key:?}");
            assert_eq!(labels["app.kubernetes.io/name"], "plan", "{key:?}");
        }
        assert!(object.pointer("/metadata/labels").is_some(), "{key:?}");
        // A selector cannot change in a release.
        assert!(!object["spec"]["selector"].to_string().contains("cost-centre"), "{key:?}");
    }
}

#[test]
fn labels_of_some_objects_win_over_common_ones() {
    let objects = objects(&[
        r#"commonLabels={"team": "a", "release": "a"}"#,
        r#"podLabels={"team": "b"}"#,
        r#"webhook.labels={"team": "c", "app.kubernetes.io/name": "c"}"#,
        "metrics.podMonitor.enabled=true",
        r#"metrics.podMonitor.labels={"release": "prometheus"}"#,
    ]);
    let templates = objects.templates().into_iter();
    for labels in templates.map(|pod| &pod["metadata"]["labels"]) {
        assert_eq!((&labels["team"], &labels["release"]), (&json!("b"), &json!("a")));
    }
    for (kind, name, label, value) in [
        ("MutatingWebhookConfiguration", "stowplan", "team", "c"),
        ("MutatingWebhookConfiguration", "stowplan", "app.kubernetes.io/name", "stowplan"),
        ("ValidatingWebhookConfiguration", "stowplan", "team", "c"),
        ("ValidatingWebhookConfiguration", "stowplan", "app.kubernetes.io/name", "stowplan"),
        ("PodMonitor", "stowplan-webhook", "release", "prometheus"),
        ("Deployment", "stowplan-webhook", "team", "a"),
    ] {
        let labels = &objects.get(kind, name)["metadata"]["labels"];
        assert_eq!(labels[label], value, "{kind} {label}");
    }
}

/// AKS: without the annotation, its admission enforcer changes the selectors.
#[test]
fn webhook_configurations_have_the_annotations_beside_the_charts_own() {
    let render = Render::bare().set_all(&[
        r#"webhook.annotations={"admissions.enforcer/disabled": "true"}"#,
        r#"webhook.annotations.stowplan\.dev/policy="other""#,
        r#"tls.certManager.inject="stowplan/ca""#,
    ]);
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let expected = json!({
            "admissions.enforcer/disabled": "true",
            "cert-manager.io/inject-ca-from": "stowplan/ca",
            "stowplan.dev/policy": "stowplan-system/stowplan-policy",
        });
        let configuration = render.objects().get(kind, "stowplan");
        assert_eq!(configuration["metadata"]["annotations"], expected, "{kind}");
    }
}

/// The security context constraint restricted-v2 refuses fixed users and groups, and accepts the
/// rest of the Pod Security level "restricted", as which the pods run. The snapshots show the rest of
/// that level: no host's namespaces, ports and paths.
#[test]
fn the_openshift_profile_leaves_users_to_the_platform() {
    let profile = Render::file("values-openshift.yaml").set(CA);
    for (render, user) in [
        (profile, Value::Null),
        (Render::defaults(), json!(65532)),
        (Render::defaults().set(SIDECAR), json!(65532)),
    ] {
        for (name, pod) in render.objects().pods() {
            let context = json!({"runAsNonRoot": true, "runAsUser": user, "runAsGroup": user,
                "fsGroup": user, "seccompProfile": {"type": "RuntimeDefault"}});
            let mut found = pod["securityContext"].clone();
            for field in ["runAsUser", "runAsGroup", "fsGroup"] {
                // A missing field is null.
                let _ = &mut found[field];
            }
            assert_eq!(found, context, "{name}");
            for container in pod["containers"].as_array().expect("containers") {
                let context = json!({"allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}});
                assert_eq!(container["securityContext"], context, "{name}");
            }
        }
    }
    assert!(read("README.md").contains("[`values-openshift.yaml`](values-openshift.yaml)"));
}

#[test]
fn every_pod_is_for_linux_nodes() {
    for values in [&[][..], &[r#"nodeSelector={"pool": "infra"}"#]] {
        for (name, pod) in objects(values).pods() {
            assert_eq!(pod["nodeSelector"]["kubernetes.io/os"], "linux", "{name}");
        }
    }
}

/// All containers get the variables; those of the chart stay.
#[test]
fn further_variables_and_arguments_come_after_the_charts_own() {
    let values = [
        r#"extraEnv=[{"name": "HTTPS_PROXY", "value": "proxy.example:3128"}]"#,
        r#"webhook.extraArgs=["--log-format=text"]"#,
        r#"controller.extraArgs=["--max-watch-age", "5m"]"#,
    ];
    for (name, pod) in objects(&values).pods() {
        let variables = only(name, pod)["env"].as_array().into_iter().flatten();
        let variables: Vec<_> = variables.filter_map(|it| it["name"].as_str()).collect();
        assert_eq!(variables.last(), Some(&"HTTPS_PROXY"), "{name}");
        let distinct: BTreeSet<_> = variables.iter().collect();
        assert_eq!(distinct.len(), variables.len(), "{name}: {variables:?}");
    }
    let sidecar = [SIDECAR, r#"controller.extraArgs=["--max-watch-age=5m"]"#];
    for values in [&values[..], &sidecar] {
        let args = objects(values).args("controller").join(" ").replace('=', " ");
        assert!(args.ends_with("--max-watch-age 5m"), "{args}");
    }
    assert_eq!(objects(&values).args("webhook").last(), Some(&"--log-format=text"));
}

/// The binary takes a flag once, so a further one of the same name would stop each pod.
#[test]
fn arguments_that_the_chart_sets_are_refused_among_further_ones() {
    let objects = objects(&[r#"tls.clientCASecretName="ca""#]);
    for name in ["webhook", "controller"] {
        let args = objects.args(name);
        let flags = args.iter().filter(|arg| arg.starts_with("--"));
        let flags: Vec<&str> = flags.filter_map(|flag| flag.split('=').next()).collect();
        assert!(flags.len() >= 5, "{name}: {args:?}");
        for flag in flags {
            let value = format!(r#"{name}.extraArgs=["--fine", "{flag}=other"]"#);
            let refusal = Render::defaults().set(&value).refusal();
            let sentence =
                format!("{name}.extraArgs has {flag}=other, which the chart sets itself");
            assert!(refusal.contains(&sentence), "{refusal}");
        }
    }
}

#[test]
fn the_registry_is_put_before_every_image() {
    let render = Render::defaults().set_all(&[
        r#"image.registry="mirror.example:5000""#,
        r#"image.repository="team/stowplan""#,
    ]);
    let image = concat!("mirror.example:5000/team/stowplan:", env!("CARGO_PKG_VERSION"));
    for (name, pod) in render.objects().pods() {
        assert_eq!(only(name, pod)["image"], image, "{name}");
    }
    // Placeholders too, which only images of this list may have.
    assert!(render.text().contains(&format!("--image={image}\n")));
    assert!(render.text().contains(&format!("['{image}']")), "{image} is in no policy");
}

/// Both are named in bindings, and in the conditions of the policies for the controller.
#[test]
fn accounts_have_one_name_everywhere() {
    for (create, sidecar) in [(true, false), (false, false), (true, true)] {
        let objects = objects(&[
            r#"serviceAccount.name="reader""#,
            r#"serviceAccount.annotations={"example.com/role": "r"}"#,
            r#"controller.serviceAccount.name="writer""#,
            r#"controller.serviceAccount.annotations={"example.com/role": "w"}"#,
            &format!("serviceAccount.create={create}"),
            &format!("controller.serviceAccount.create={create}"),
            &format!("controller.sidecar={sidecar}"),
        ]);
        let (writer, role) = if sidecar { ("reader", "r") } else { ("writer", "w") };
        for (container, account, role) in [("webhook", "reader", "r"), ("controller", writer, role)]
        {
            let (pod, _) = objects.container(container).expect("a container");
            assert_eq!(pod["serviceAccountName"], account);
            let found = objects.find("ServiceAccount", account);
            assert_eq!(found.is_some(), create, "{account}");
            let roles = found.map(|it| &it["metadata"]["annotations"]["example.com/role"]);
            assert!(roles.is_none_or(|it| it == role), "{account}");
            for kind in ["ClusterRoleBinding", "RoleBinding"] {
                let binding = objects.get(kind, &format!("stowplan-{container}"));
                assert_eq!(binding["subjects"].as_array().map(Vec::len), Some(1), "{binding}");
                assert_eq!(binding["subjects"][0]["name"], account, "{binding}");
            }
        }
        let condition = format!("'system:serviceaccount:stowplan-system:{writer}'");
        for policy in ["stowplan-controller-pods", "stowplan-numa"] {
            let policy = objects.get("ValidatingAdmissionPolicy", policy).to_string();
            assert!(policy.contains(&condition), "{policy}");
        }
    }
}

/// Only the webhook's pods: the API server calls nothing else. A node has each port once, so an
/// old pod leaves before its successor comes.
#[test]
fn the_webhook_can_use_its_nodes_network() {
    let objects =
        objects(&["webhook.hostNetwork=true", "webhook.port=10443", "webhook.adminPort=10080"]);
    for (name, pod) in objects.pods() {
        let is_webhook = name == "stowplan-webhook";
        assert_eq!(pod["hostNetwork"] == true, is_webhook, "{name}");
        let policy = is_webhook.then_some("ClusterFirstWithHostNet");
        assert_eq!(pod["dnsPolicy"].as_str(), policy, "{name}");
    }
    let strategy =
        |name: &str| &objects.get("Deployment", name)["spec"]["strategy"]["rollingUpdate"];
    assert_eq!(strategy("stowplan-webhook"), &json!({"maxSurge": 0, "maxUnavailable": 1}));
    assert_eq!(strategy("stowplan-controller"), &json!({"maxSurge": 1, "maxUnavailable": 0}));
    let (_, container) = objects.container("webhook").expect("a webhook");
    let ports = container["ports"].as_array().expect("ports");
    let numbers: Value = ports.iter().map(|port| port["containerPort"].clone()).collect();
    assert_eq!(numbers, json!([10443, 10080]));
    let args = objects.args("webhook");
    assert!(args.contains(&"--listen=0.0.0.0:10443"), "{args:?}");
    assert!(args.contains(&"--admin-listen=0.0.0.0:10080"), "{args:?}");
    // The Service finds the port by its name.
    let port = &objects.get("Service", "stowplan-webhook")["spec"]["ports"][0];
    assert_eq!((&port["targetPort"], &port["port"]), (&json!("webhook"), &json!(443)));
}

#[test]
fn another_name_is_in_names_and_labels() {
    let objects = Render::defaults().release("batch").set(r#"nameOverride="place""#).objects();
    let deployment = objects.get("Deployment", "batch-place-webhook");
    let selector = &deployment["spec"]["selector"]["matchLabels"];
    assert_eq!(selector["app.kubernetes.io/name"], "place");
    // Of the right type where a YAML reader would take it for something else.
    for object in super::helm::objects(&[r#"nameOverride="on""#]).0.values() {
        assert_eq!(object["metadata"]["labels"]["app.kubernetes.io/name"], "on");
    }
}

/// What Artifact Hub and `helm show chart` print.
#[test]
fn the_charts_metadata_are_complete_and_true() {
    let chart: Value = serde_saphyr::from_str(&read("Chart.yaml")).expect("YAML");
    let home = chart["home"].as_str().expect("a home");
    assert_eq!(chart["sources"], json!([home]));
    assert!(chart["keywords"].as_array().is_some_and(|words| words.len() >= 4));
    let annotations = &chart["annotations"];
    let yaml = |name: &str| -> Vec<Value> {
        let text = annotations[format!("artifacthub.io/{name}")].as_str().expect("text");
        serde_saphyr::from_str(text).expect("YAML")
    };
    for link in yaml("links") {
        let page = link["url"].as_str().and_then(|url| url.strip_prefix(home)).expect("a page");
        let path = page.strip_prefix("/blob/main/").expect("a file");
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(path).exists(), "{path}");
    }
    let definitions = Objects::parse(&read("files/crds.yaml"));
    let definitions = definitions.0.iter().map(|((_, name), object)| {
        let spec = &object["spec"];
        json!([name, spec["names"]["kind"], spec["versions"][0]["name"]]).to_string()
    });
    let listed = yaml("crds");
    let listed = listed.iter().map(|it| json!([it["name"], it["kind"], it["version"]]).to_string());
    assert_eq!(listed.collect::<BTreeSet<_>>(), definitions.collect::<BTreeSet<_>>());
    // The license is that of the workspace.
    let manifest = include_str!("../../../Cargo.toml");
    let license = annotations["artifacthub.io/license"].as_str().expect("a license");
    assert!(manifest.contains(&format!("license = \"{license}\"")), "{license}");
}
