//! The pods: their security, budget, quota, arguments and ports, and the files that they mount.

use std::process::Command;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, PodSpec};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde_json::{Value, json};

use super::helm::{BINARY, NO_CONTROLLER, Objects, Render, SIDECAR, stdout};

#[test]
fn a_disruption_budget_only_where_it_blocks_no_drain() {
    for (value, name) in
        [("replicas", "stowplan-webhook"), ("controller.replicas", "stowplan-controller")]
    {
        for (replicas, budget) in [(1, false), (2, true), (3, true)] {
            let objects = Render::defaults().set(&format!("{value}={replicas}")).objects();
            let found: Option<PodDisruptionBudget> = objects.find("PodDisruptionBudget", name);
            assert_eq!(found.is_some(), budget, "{value} {replicas}");
            // It counts the pods of its own Deployment and no others.
            if let Some(budget) = found {
                let deployment: Deployment = objects.get("Deployment", name);
                let selector = budget.spec.expect("a spec").selector;
                assert_eq!(selector, Some(deployment.spec.expect("a spec").selector));
            }
        }
    }
}

#[test]
fn a_quota_only_where_the_priority_class_needs_leave() {
    for (class, namespace, quota) in [
        ("system-cluster-critical", "stowplan-system", true),
        ("system-cluster-critical", "kube-system", false),
        ("batch-infrastructure", "stowplan-system", false),
        ("", "stowplan-system", false),
    ] {
        let objects = Render::defaults()
            .namespace(namespace)
            .set(&format!("priorityClassName={class:?}"))
            .objects();
        assert_eq!(objects.kinds().contains("ResourceQuota"), quota, "{class:?} in {namespace}");
        let named = objects.pod().spec.expect("a spec").priority_class_name;
        assert_eq!(named.unwrap_or_default(), class);
    }
}

/// Before Kubernetes' own five minutes; unless the user says for how long, which need not be longer.
#[test]
fn pods_of_a_lost_node_are_replaced_after_a_minute() {
    let taints = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
    let own = |seconds: i64, taint: &str| json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
    let everything = json!({"operator": "Exists"});
    let long = json!({"key": taints[1], "operator": "Exists", "tolerationSeconds": 600});
    let other = json!({"key": taints[1], "operator": "Exists", "effect": "NoSchedule"});
    for (values, expected) in [
        (vec![], taints.map(|taint| own(60, taint)).to_vec()),
        (vec!["lostNodeSeconds=5".to_owned()], taints.map(|taint| own(5, taint)).to_vec()),
        (vec![format!("tolerations=[{everything}]")], vec![everything]),
        (vec![format!("tolerations=[{long}]")], vec![long, own(60, taints[0])]),
        (
            vec![format!("tolerations=[{other}]")],
            vec![other, own(60, taints[0]), own(60, taints[1])],
        ),
    ] {
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        for pod in Render::defaults().set_all(&values).objects().pods() {
            let found = pod.spec.expect("a spec").tolerations.unwrap_or_default();
            let found = serde_json::to_value(found).expect("JSON");
            assert_eq!(found, Value::from(expected.clone()), "{values:?}");
        }
    }
}

/// The rules of the "restricted" Pod Security level that a pod without Windows or host fields can
/// break.
#[test]
fn the_pods_pass_the_restricted_pod_security_level() {
    let renders =
        [Render::defaults(), Render::defaults().set("replicas=1"), Render::defaults().set(SIDECAR)];
    for pod in renders.iter().flat_map(|render| render.objects().pods()) {
        let spec = pod.spec.expect("a spec");
        let PodSpec { host_network, host_pid, host_ipc, .. } = spec;
        assert_eq!([host_network, host_pid, host_ipc], [None; 3]);
        let pod = spec.security_context.expect("a security context");
        assert_eq!(pod.run_as_non_root, Some(true));
        assert!(pod.run_as_user.is_some_and(|user| user > 0));
        assert_eq!(pod.seccomp_profile.expect("seccomp").type_, "RuntimeDefault");
        assert!(pod.sysctls.is_none());
        for volume in spec.volumes.unwrap_or_default() {
            assert!(volume.secret.is_some() || volume.config_map.is_some(), "{volume:?}");
        }
        assert!(spec.init_containers.is_none());
        for container in spec.containers {
            let context = container.security_context.expect("a security context");
            assert_eq!(context.allow_privilege_escalation, Some(false));
            assert_eq!(context.read_only_root_filesystem, Some(true));
            assert_eq!(context.privileged, None);
            let capabilities = context.capabilities.expect("capabilities");
            assert_eq!(capabilities.drop, Some(vec!["ALL".to_owned()]));
            assert_eq!(capabilities.add, None);
            assert!(container.ports.expect("ports").iter().all(|port| port.host_port.is_none()));
            // A subPath would never see the certificate change.
            let mounts = container.volume_mounts.unwrap_or_default();
            assert!(mounts.iter().all(|mount| mount.sub_path.is_none()), "{mounts:?}");
        }
    }
}

#[test]
fn the_grace_period_outlasts_the_shutdown_delay() {
    for (delay, grace) in [(0, 20), (10, 30), (600, 620)] {
        let render = Render::defaults().set(&format!("webhook.shutdownDelaySeconds={delay}"));
        let spec = render.objects().pod().spec.expect("a spec");
        assert_eq!(spec.termination_grace_period_seconds, Some(grace));
        let args = spec.containers[0].args.as_ref().expect("arguments");
        assert!(args.contains(&format!("--shutdown-delay={delay}s")), "{args:?}");
    }
}

/// Placeholders have the image of the release unless the policy names another.
#[test]
fn the_controller_gets_its_own_image_as_an_argument() {
    let render = Render::defaults().set(r#"image.repository="registry.example.com/stowplan""#);
    let objects = render.objects();
    let (_, container) = objects.container("controller").expect("a controller");
    let image = container.image.as_deref().expect("an image");
    assert!(image.starts_with("registry.example.com/stowplan"), "{image}");
    let args = container.args.as_ref().expect("arguments");
    assert!(args.contains(&format!("--image={image}")), "{args:?}");
}

#[test]
fn without_a_controller_nothing_of_it_is_left() {
    let text = Render::defaults()
        .set_all(&[
            NO_CONTROLLER,
            "networkPolicy.enabled=true",
            "metrics.podMonitor.enabled=true",
            "teardown.enabled=false",
        ])
        .text();
    let objects = Objects::parse(&text);
    assert!(objects.container("controller").is_none());
    assert!(objects.container("webhook").is_some());
    let names: Vec<_> = objects.0.keys().filter(|(_, name)| name.contains("controller")).collect();
    assert!(names.is_empty(), "{names:?}");
    let is_role = |kind: &str| matches!(kind, "Role" | "RoleBinding");
    let mut roles = objects.0.keys().filter(|(kind, _)| is_role(kind));
    // Webhook and controller read the policy, the webhook its certificate; the rest is the test's.
    let is_left = |name: &str| {
        matches!(name, "stowplan-policy" | "stowplan-webhook") || name.starts_with("stowplan-test")
    };
    assert!(roles.all(|(_, name)| is_left(name)), "{:?}", objects.0.keys());
}

/// Each port that is probed, scraped or let through is one that the container has, and that its
/// arguments open.
#[test]
fn the_admin_port_is_the_same_everywhere() {
    for values in [&[][..], &[SIDECAR]] {
        let objects = Render::defaults()
            .set_all(values)
            .set_all(&[
                "networkPolicy.enabled=true",
                r#"networkPolicy.metricsFrom=[{"podSelector": {}}]"#,
                "metrics.podMonitor.enabled=true",
            ])
            .objects();
        let (spec, container) = objects.container("controller").expect("a controller");
        let [port] = container.ports.expect("ports").try_into().expect("one port");
        let name = port.name.expect("a name");
        assert!(name.len() <= 15, "the API server refuses longer names: {name}");
        let listens = format!("--admin-listen=0.0.0.0:{}", port.container_port);
        assert!(container.args.expect("arguments").contains(&listens));
        let liveness = container.liveness_probe.expect("a probe").http_get.expect("HTTP");
        assert_eq!(serde_json::to_value(liveness.port).expect("JSON"), json!(name));
        // The Deployment whose monitor and policy cover the controller's pod.
        let of = |container: &str| spec.containers.iter().any(|it| it.name == container);
        let target = if of("webhook") { "stowplan-webhook" } else { "stowplan-controller" };
        let monitor: Value = objects.get("PodMonitor", target);
        let endpoints = monitor["spec"]["podMetricsEndpoints"].as_array().expect("endpoints");
        assert!(endpoints.iter().any(|it| it["port"] == json!(name)), "{endpoints:?}");
        let policy: NetworkPolicy = objects.get("NetworkPolicy", target);
        let rules = policy.spec.expect("a spec").ingress.expect("rules");
        let let_through = rules.iter().filter(|rule| rule.from.is_some()).any(|rule| {
            let ports = rule.ports.iter().flatten();
            ports
                .map(|it| serde_json::to_value(&it.port).expect("JSON"))
                .any(|it| it == json!(name))
        });
        assert!(let_through, "{rules:?}");
    }
}

/// An empty list of rules lets nothing in. So does a missing list, but that is less obvious.
#[test]
fn an_unscraped_controller_accepts_no_connections() {
    let objects = Render::defaults().set("networkPolicy.enabled=true").objects();
    let policy: NetworkPolicy = objects.get("NetworkPolicy", "stowplan-controller");
    let spec = policy.spec.expect("a spec");
    assert_eq!(spec.policy_types, Some(vec!["Ingress".to_owned()]));
    assert!(spec.ingress.unwrap_or_default().is_empty());
    let deployment: Deployment = objects.get("Deployment", "stowplan-controller");
    assert_eq!(spec.pod_selector, Some(deployment.spec.expect("a spec").selector));
}

#[test]
fn the_policy_arrives_as_it_was_given() {
    let policy = json!({
        "onInvalid": "warn",
        "excludedNamespaces": ["kube-system", "on", "007"],
        "hostPools": {"maxExclusiveNodesPerNamespace": 1_000_000, "nodeSelector": {}},
    });
    for mut policy in [json!({}), policy] {
        let rendered = rendered_policy(&Render::defaults().set(&format!("policy={policy}")));
        let own = ["kube-system", "kube-node-lease", "stowplan-system"];
        let excluded = match policy["excludedNamespaces"].is_null() {
            true => json!(own),
            false => json!([&own[..], &["on", "007"]].concat()),
        };
        policy["excludedNamespaces"] = excluded;
        policy["coschedule"] =
            json!({"placeholder": {"priorityClassName": "stowplan-placeholder"}});
        assert_eq!(rendered, policy);
    }
}

/// The scheduler has to place a placeholder before the pods that wait for it.
#[test]
fn placeholders_get_a_priority_class_unless_the_policy_names_one() {
    let of_policy = |render: &Render| {
        rendered_policy(render).pointer("/coschedule/placeholder/priorityClassName").cloned()
    };
    let render = Render::defaults();
    let class: PriorityClass = render.objects().get("PriorityClass", "stowplan-placeholder");
    assert_eq!((class.value, class.global_default), (1, None));
    assert_eq!(class.preemption_policy.as_deref(), Some("Never"));
    assert_eq!(of_policy(&render), Some(json!("stowplan-placeholder")));
    for (value, named) in [
        (r#"policy={"coschedule": {"placeholder": {"priorityClassName": "mine"}}}"#, Some("mine")),
        ("controller.placeholderPriorityClass.create=false", None),
        ("controller.enabled=false", None),
        (r#"policy={"coschedule": {"enabled": false}}"#, None),
    ] {
        let render = Render::defaults().set(value);
        assert!(!render.objects().kinds().contains("PriorityClass"), "{value}");
        assert_eq!(of_policy(&render), named.map(|name| json!(name)), "{value}");
    }
}

fn rendered_policy(render: &Render) -> Value {
    let map: ConfigMap = render.objects().get("ConfigMap", "stowplan-policy");
    serde_saphyr::from_str(&map.data.expect("data")["policy.yaml"]).expect("YAML")
}

/// The webhook's selector and the policy, which controller and commands read, name the same.
#[test]
fn webhook_and_policy_exclude_the_same_namespaces() {
    for values in [
        &[][..],
        &[r#"webhook.excludedNamespaces=["build", "kube-system"]"#],
        &[r#"policy={"excludedNamespaces": ["infra", "on"]}"#],
        &[
            r#"webhook.excludedNamespaces=["build", "007"]"#,
            r#"policy={"excludedNamespaces": ["infra", "build"], "repair": "recreatePending"}"#,
        ],
    ] {
        let render = Render::defaults().set_all(values);
        let of_policy = rendered_policy(&render)["excludedNamespaces"].clone();
        for webhook in render.objects().webhooks() {
            let selector = webhook.namespace_selector.expect("a selector");
            let rule = &selector.match_expressions.expect("expressions")[0];
            assert_eq!(json!(rule.values), of_policy, "{values:?}");
        }
    }
}

#[test]
fn the_policy_names_conditions_that_stowplan_does_not_know() {
    let conditions = r#"webhook.matchConditions=[{"name": "mine", "expression": "true"}]"#;
    let policy = rendered_policy(&Render::defaults().set(conditions));
    assert_eq!(policy["matchConditions"], json!(["mine"]));
    assert_eq!(rendered_policy(&Render::defaults())["matchConditions"], Value::Null);
}

/// `--help` is reached only once all arguments before it have been read.
#[test]
fn the_binary_takes_the_arguments_of_the_deployments() {
    let changed = Render::defaults().set_all(&[
        r#"listenAddress="[::]""#,
        r#"webhook.extraArgs=["--log-format=text"]"#,
        r#"controller.extraArgs=["--max-watch-age=5m"]"#,
    ]);
    for render in [Render::defaults(), Render::defaults().set(SIDECAR), changed] {
        let objects = render.objects();
        for name in ["webhook", "controller"] {
            let (_, container) = objects.container(name).expect("a container");
            let args = container.args.expect("arguments");
            stdout(Command::new(BINARY).args(args).arg("--help"));
        }
    }
}
