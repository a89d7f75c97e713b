//! Labels of all objects, the accounts, and what the pods need on some platforms: OpenShift, AKS,
//! IPv6, clusters whose API server reaches no pods, nodes with Windows.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PodSpec, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding, Subject};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::helm::{CA, Objects, Render, SIDECAR, read};

/// All pods: those of Deployments, and of the hooks.
fn pods(objects: &Objects) -> Vec<(String, PodSpec)> {
    let mut pods = Vec::new();
    for ((kind, name), object) in &objects.0 {
        let place = match &**kind {
            "Deployment" | "Job" => "/spec/template/spec",
            "Pod" => "/spec",
            _ => continue,
        };
        let spec = object.pointer(place).expect("a pod");
        pods.push((name.clone(), PodSpec::deserialize(spec).expect("a pod")));
    }
    assert!(pods.len() >= 3, "{:?}", objects.0.keys());
    pods
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
        let selector = json!(object.pointer("/spec/selector")).to_string();
        assert!(!selector.contains("cost-centre"), "{key:?}: {selector}");
    }
}

#[test]
fn labels_of_some_objects_win_over_common_ones() {
    let objects = Render::defaults()
        .set_all(&[
            r#"commonLabels={"team": "a", "release": "a"}"#,
            r#"podLabels={"team": "b"}"#,
            r#"webhook.labels={"team": "c", "app.kubernetes.io/name": "c"}"#,
            "metrics.podMonitor.enabled=true",
            r#"metrics.podMonitor.labels={"release": "prometheus"}"#,
        ])
        .objects();
    let labels = |kind: &str, name: &str| -> Value {
        objects.get::<Value>(kind, name)["metadata"]["labels"].clone()
    };
    for pod in objects.pods() {
        let labels = pod.metadata.expect("metadata").labels.expect("labels");
        assert_eq!((&*labels["team"], &*labels["release"]), ("b", "a"));
    }
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        assert_eq!(labels(kind, "stowplan")["team"], "c");
        assert_eq!(labels(kind, "stowplan")["app.kubernetes.io/name"], "stowplan");
    }
    assert_eq!(labels("PodMonitor", "stowplan-webhook")["release"], "prometheus");
    assert_eq!(labels("Deployment", "stowplan-webhook")["team"], "a");
}

/// AKS: without the annotation, its admission enforcer changes the selectors.
#[test]
fn webhook_configurations_have_the_annotations_beside_the_charts_own() {
    let objects = Render::bare()
        .set_all(&[
            r#"webhook.annotations={"admissions.enforcer/disabled": "true"}"#,
            r#"webhook.annotations.stowplan\.dev/policy="other""#,
            r#"tls.certManager.inject="stowplan/ca""#,
        ])
        .objects();
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let configuration: Value = objects.get(kind, "stowplan");
        let expected = json!({
            "admissions.enforcer/disabled": "true",
            "cert-manager.io/inject-ca-from": "stowplan/ca",
            "stowplan.dev/policy": "stowplan-system/stowplan-policy",
        });
        assert_eq!(configuration["metadata"]["annotations"], expected, "{kind}");
    }
}

/// The security context constraint restricted-v2 refuses fixed users and groups, and accepts the
/// rest of the "restricted" level.
#[test]
fn the_openshift_profile_leaves_users_to_the_platform() {
    let profile = Render::file("values-openshift.yaml").set(&format!("tls.caBundle={CA:?}"));
    for render in [profile, Render::defaults()] {
        let is_profile = render.args.iter().any(|arg| arg.ends_with("values-openshift.yaml"));
        for (name, pod) in pods(&render.objects()) {
            let context = pod.security_context.expect("a security context");
            let user = [context.run_as_user, context.run_as_group, context.fs_group];
            assert_eq!(user, if is_profile { [None; 3] } else { [Some(65532); 3] }, "{name}");
            assert_eq!(context.run_as_non_root, Some(true), "{name}");
            assert_eq!(context.seccomp_profile.expect("seccomp").type_, "RuntimeDefault");
            for container in pod.containers {
                let context = container.security_context.expect("a security context");
                assert_eq!(context.run_as_user, None, "{name}");
                assert_eq!(context.allow_privilege_escalation, Some(false), "{name}");
                assert_eq!(context.read_only_root_filesystem, Some(true), "{name}");
                let drop = context.capabilities.expect("capabilities").drop;
                assert_eq!(drop, Some(vec!["ALL".to_owned()]), "{name}");
            }
        }
    }
    assert!(read("README.md").contains("[`values-openshift.yaml`](values-openshift.yaml)"));
}

#[test]
fn every_pod_is_for_linux_nodes() {
    let selected = Render::defaults().set(r#"nodeSelector={"pool": "infra"}"#).objects();
    for objects in [Render::defaults().objects(), selected] {
        for (name, pod) in pods(&objects) {
            let selector = pod.node_selector.unwrap_or_default();
            assert_eq!(selector.get("kubernetes.io/os").map(|os| &**os), Some("linux"), "{name}");
        }
    }
}

/// All containers get the variables; those of the chart stay.
#[test]
fn further_variables_and_arguments_come_after_the_charts_own() {
    let render = Render::defaults().set_all(&[
        r#"extraEnv=[{"name": "HTTPS_PROXY", "value": "proxy.example:3128"}]"#,
        r#"webhook.extraArgs=["--log-format=text"]"#,
        r#"controller.extraArgs=["--max-watch-age", "5m"]"#,
    ]);
    for (name, pod) in pods(&render.objects()) {
        let [container] = &pod.containers[..] else { panic!("{name} has several containers") };
        let variables: Vec<_> = container.env.iter().flatten().map(|it| &*it.name).collect();
        assert_eq!(variables.last(), Some(&"HTTPS_PROXY"), "{name}");
        let distinct: BTreeSet<_> = variables.iter().collect();
        assert_eq!(distinct.len(), variables.len(), "{name}: {variables:?}");
    }
    let sidecar = Render::defaults().set_all(&[SIDECAR]);
    let with = |render: Render| {
        render.set_all(&[r#"controller.extraArgs=["--max-watch-age=5m"]"#]).objects()
    };
    for objects in [render.objects(), with(sidecar)] {
        let (_, container) = objects.container("controller").expect("a controller");
        let args = container.args.expect("arguments").join(" ");
        assert!(args.replace('=', " ").ends_with("--max-watch-age 5m"), "{args}");
    }
    let args = render.objects().container("webhook").expect("a webhook").1.args.expect("arguments");
    assert_eq!(args.last().map(|it| &**it), Some("--log-format=text"));
}

/// The binary takes a flag once, so a further one of the same name would stop each pod.
#[test]
fn arguments_that_the_chart_sets_are_refused_among_further_ones() {
    let objects = Render::defaults().set(r#"tls.clientCASecretName="ca""#).objects();
    for name in ["webhook", "controller"] {
        let (_, container) = objects.container(name).expect("a container");
        let args = container.args.expect("arguments");
        let flags = args.iter().filter(|arg| arg.starts_with("--"));
        let mut seen = 0;
        for flag in flags.map(|flag| flag.split('=').next().expect("a flag")) {
            let value = format!(r#"{name}.extraArgs=["--fine", "{flag}=other"]"#);
            let refusal = Render::defaults().set(&value).refusal();
            let sentence =
                format!("{name}.extraArgs has {flag}=other, which the chart sets itself");
            assert!(refusal.contains(&sentence), "{refusal}");
            seen += 1;
        }
        assert!(seen >= 5, "{name}: {args:?}");
    }
}

#[test]
fn the_registry_is_put_before_every_image() {
    let render = Render::defaults().set_all(&[
        r#"image.registry="mirror.example:5000""#,
        r#"image.repository="team/stowplan""#,
    ]);
    let image = "mirror.example:5000/team/stowplan:0.1.0";
    for (name, pod) in pods(&render.objects()) {
        assert_eq!(pod.containers[0].image.as_deref(), Some(image), "{name}");
    }
    // Placeholders too, which only images of this list may have.
    let text = render.text();
    assert!(text.contains(&format!("--image={image}\n")));
    assert!(text.contains(&format!("['{image}']")), "{image} is in no policy");
}

/// Both are named in bindings, and in the conditions of the policies for the controller.
#[test]
fn accounts_have_one_name_everywhere() {
    for (create, sidecar) in [(true, false), (false, false), (true, true)] {
        let objects = Render::defaults()
            .set_all(&[
                r#"serviceAccount.name="reader""#,
                r#"serviceAccount.annotations={"example.com/role": "r"}"#,
                r#"controller.serviceAccount.name="writer""#,
                r#"controller.serviceAccount.annotations={"example.com/role": "w"}"#,
                &format!("serviceAccount.create={create}"),
                &format!("controller.serviceAccount.create={create}"),
                &format!("controller.sidecar={sidecar}"),
            ])
            .objects();
        let writer = if sidecar { "reader" } else { "writer" };
        for (container, account, role) in [("webhook", "reader", "r"), ("controller", writer, "w")]
        {
            let (pod, _) = objects.container(container).expect("a container");
            assert_eq!(pod.service_account_name.as_deref(), Some(account));
            let found: Option<ServiceAccount> = objects.find("ServiceAccount", account);
            assert_eq!(found.is_some(), create, "{account}");
            if let Some(annotations) = found.and_then(|it| it.metadata.annotations) {
                let role = if sidecar { "r" } else { role };
                assert_eq!(annotations["example.com/role"], role);
            }
            let name = format!("stowplan-{container}");
            let binding: ClusterRoleBinding = objects.get("ClusterRoleBinding", &name);
            let local: RoleBinding = objects.get("RoleBinding", &name);
            for subjects in [binding.subjects, local.subjects] {
                let [Subject { name, .. }] = &subjects.expect("subjects")[..] else { panic!() };
                assert_eq!(name, account);
            }
        }
        let condition = format!("'system:serviceaccount:stowplan-system:{writer}'");
        let policy: Value = objects.get("ValidatingAdmissionPolicy", "stowplan-controller-pods");
        assert!(policy.to_string().contains(&condition), "{policy}");
        let numa: Value = objects.get("ValidatingAdmissionPolicy", "stowplan-numa");
        assert!(numa.to_string().contains(&condition), "{numa}");
    }
}

/// Only the webhook's pods: the API server calls nothing else. A node has each port once, so an
/// old pod leaves before its successor comes.
#[test]
fn the_webhook_can_use_its_nodes_network() {
    let objects = Render::defaults()
        .set_all(&["webhook.hostNetwork=true", "webhook.port=10443", "webhook.adminPort=10080"])
        .objects();
    for (name, pod) in pods(&objects) {
        let is_webhook = name == "stowplan-webhook";
        assert_eq!(pod.host_network.unwrap_or_default(), is_webhook, "{name}");
        let policy = is_webhook.then_some("ClusterFirstWithHostNet");
        assert_eq!(pod.dns_policy.as_deref(), policy, "{name}");
    }
    let strategy = |name: &str| {
        let deployment: Deployment = objects.get("Deployment", name);
        json!(deployment.spec.expect("a spec").strategy.expect("a strategy").rolling_update)
    };
    assert_eq!(strategy("stowplan-webhook"), json!({"maxSurge": 0, "maxUnavailable": 1}));
    assert_eq!(strategy("stowplan-controller"), json!({"maxSurge": 1, "maxUnavailable": 0}));
    let (_, container) = objects.container("webhook").expect("a webhook");
    let ports: Vec<_> =
        container.ports.expect("ports").into_iter().map(|it| it.container_port).collect();
    assert_eq!(ports, [10443, 10080]);
    let args = container.args.expect("arguments");
    assert!(args.contains(&"--listen=0.0.0.0:10443".to_owned()), "{args:?}");
    assert!(args.contains(&"--admin-listen=0.0.0.0:10080".to_owned()), "{args:?}");
    // The Service finds the port by its name.
    let service: Service = objects.get("Service", "stowplan-webhook");
    let ports = service.spec.expect("a spec").ports.expect("ports");
    assert_eq!(json!(ports[0].target_port), "webhook");
    assert_eq!(ports[0].port, 443);
}

#[test]
fn pods_and_service_can_have_ipv6_addresses() {
    let objects = Render::defaults()
        .set_all(&[
            r#"listenAddress="[::]""#,
            r#"webhook.service.ipFamilyPolicy="SingleStack""#,
            r#"webhook.service.ipFamilies=["IPv6"]"#,
        ])
        .objects();
    let service: Service = objects.get("Service", "stowplan-webhook");
    let spec = service.spec.expect("a spec");
    assert_eq!(spec.ip_family_policy.as_deref(), Some("SingleStack"));
    assert_eq!(spec.ip_families, Some(vec!["IPv6".to_owned()]));
    for name in ["webhook", "controller"] {
        let (_, container) = objects.container(name).expect("a container");
        for arg in container.args.expect("arguments").iter().filter(|it| it.contains("listen=")) {
            let (_, address) = arg.split_once('=').expect("a value");
            let address: std::net::SocketAddr = address.parse().expect("an address");
            assert!(address.is_ipv6() && address.ip().is_unspecified(), "{arg}");
        }
    }
}

#[test]
fn another_name_is_in_names_and_labels() {
    let objects = Render::defaults().release("batch").set(r#"nameOverride="place""#).objects();
    let deployment: Deployment = objects.get("Deployment", "batch-place-webhook");
    let selector = deployment.spec.expect("a spec").selector.match_labels.expect("labels");
    assert_eq!(selector["app.kubernetes.io/name"], "place");
    // Of the right type where a YAML reader would take it for something else.
    let objects = Render::defaults().set(r#"nameOverride="on""#).objects();
    for object in objects.0.values() {
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
    let yaml = |name: &str| -> Value {
        let text = annotations[format!("artifacthub.io/{name}")].as_str().expect("text");
        serde_saphyr::from_str(text).expect("YAML")
    };
    for link in yaml("links").as_array().expect("links") {
        let page = link["url"].as_str().and_then(|url| url.strip_prefix(home)).expect("a page");
        let path = page.strip_prefix("/blob/main/").expect("a file");
        assert!(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path).exists(), "{path}");
    }
    let definitions: BTreeSet<_> = Objects::parse(&read("files/crds.yaml"))
        .0
        .into_iter()
        .map(|((_, name), object)| {
            let text = |place: &str| json!(object.pointer(place)).as_str().map(str::to_owned);
            (Some(name), text("/spec/names/kind"), text("/spec/versions/0/name"))
        })
        .collect();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let listed = yaml("crds");
    let listed = listed.as_array().expect("definitions").iter();
    let listed: BTreeSet<_> =
        listed.map(|it| (text(&it["name"]), text(&it["kind"]), text(&it["version"]))).collect();
    assert_eq!(listed, definitions);
    // The license is that of the workspace.
    let manifest = include_str!("../../../Cargo.toml");
    let license = annotations["artifacthub.io/license"].as_str().expect("a license");
    assert!(manifest.contains(&format!("license = \"{license}\"")), "{license}");
}
