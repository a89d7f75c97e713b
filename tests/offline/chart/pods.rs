//! The pods: their security, budget, quota, arguments and ports, and the files that they mount.

use std::process::Command;

use serde_json::{Value, json};

use super::helm::{BINARY, NO_CONTROLLER, Render, SIDECAR, objects, stdout};

#[test]
fn a_disruption_budget_only_where_it_blocks_no_drain() {
    for (value, name) in
        [("replicas", "stowplan-webhook"), ("controller.replicas", "stowplan-controller")]
    {
        for (replicas, has_budget) in [(1, false), (2, true), (3, true)] {
            let objects = objects(&[&format!("{value}={replicas}")]);
            let budget = objects.find("PodDisruptionBudget", name);
            assert_eq!(budget.is_some(), has_budget, "{value} {replicas}");
            // It counts the pods of its own Deployment and no others.
            if let Some(budget) = budget {
                let deployment = objects.get("Deployment", name);
                assert_eq!(budget["spec"]["selector"], deployment["spec"]["selector"]);
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
        let render = Render::defaults().namespace(namespace);
        let objects = render.set(&format!("priorityClassName={class:?}")).objects();
        assert_eq!(objects.has("ResourceQuota"), quota, "{class:?} in {namespace}");
        let (pod, _) = objects.container("webhook").expect("a webhook");
        assert_eq!(pod["priorityClassName"].as_str().unwrap_or_default(), class);
    }
}

/// Before Kubernetes' own five minutes; unless the user says for how long, which need not be longer.
#[test]
fn pods_of_a_lost_node_are_replaced_after_a_minute() {
    let [not_ready, unreachable] =
        ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
    let own = |seconds: i64, taint: &str| {
        json!({"key": taint, "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": seconds})
    };
    let everything = json!({"operator": "Exists"});
    let long = json!({"key": unreachable, "operator": "Exists", "tolerationSeconds": 600});
    let other = json!({"key": unreachable, "operator": "Exists", "effect": "NoSchedule"});
    for (value, expected) in [
        ("tolerations=[]".to_owned(), json!([own(60, not_ready), own(60, unreachable)])),
        ("lostNodeSeconds=5".to_owned(), json!([own(5, not_ready), own(5, unreachable)])),
        (format!("tolerations=[{everything}]"), json!([everything])),
        (format!("tolerations=[{long}]"), json!([long, own(60, not_ready)])),
        (
            format!("tolerations=[{other}]"),
            json!([other, own(60, not_ready), own(60, unreachable)]),
        ),
    ] {
        for pod in objects(&[&value]).templates() {
            assert_eq!(pod["spec"]["tolerations"], expected, "{value}");
        }
    }
}

#[test]
fn the_grace_period_outlasts_the_shutdown_delay() {
    for (delay, grace) in [(0, 20), (10, 30), (600, 620)] {
        let objects = objects(&[&format!("webhook.shutdownDelaySeconds={delay}")]);
        let (pod, _) = objects.container("webhook").expect("a webhook");
        assert_eq!(pod["terminationGracePeriodSeconds"], grace);
        let args = objects.args("webhook");
        assert!(args.contains(&&*format!("--shutdown-delay={delay}s")), "{args:?}");
    }
}

#[test]
fn without_a_controller_nothing_of_it_is_left() {
    let objects = objects(&[
        NO_CONTROLLER,
        "networkPolicy.enabled=true",
        "metrics.podMonitor.enabled=true",
        "teardown.enabled=false",
    ]);
    assert!(objects.container("controller").is_none());
    assert!(objects.container("webhook").is_some());
    for (kind, name) in objects.0.keys() {
        // Webhook and controller read the policy, the webhook its certificate; the rest is the test's.
        let is_left = !matches!(&**kind, "Role" | "RoleBinding")
            || matches!(&**name, "stowplan-policy" | "stowplan-webhook")
            || name.starts_with("stowplan-test");
        assert!(is_left && !name.contains("controller"), "{kind} {name}");
    }
}

/// Each port that is probed, scraped or let through is one that the container has, and that its
/// arguments open.
#[test]
fn the_admin_port_is_the_same_everywhere() {
    for (further, target) in [(&[][..], "stowplan-controller"), (&[SIDECAR], "stowplan-webhook")] {
        let values = [
            "networkPolicy.enabled=true",
            r#"networkPolicy.metricsFrom=[{"podSelector": {}}]"#,
            "metrics.podMonitor.enabled=true",
        ];
        let objects = objects(&[&values[..], further].concat());
        let (_, container) = objects.container("controller").expect("a controller");
        assert_eq!(container["ports"].as_array().map(Vec::len), Some(1));
        let port = &container["ports"][0];
        let name = port["name"].as_str().expect("a name");
        assert!(name.len() <= 15, "the API server refuses longer names: {name}");
        let listens = format!("--admin-listen=0.0.0.0:{}", port["containerPort"]);
        assert!(objects.args("controller").contains(&&*listens));
        assert_eq!(container["livenessProbe"]["httpGet"]["port"], name);
        // The Deployment whose monitor and policy cover the controller's pod.
        let monitor = objects.get("PodMonitor", target);
        let endpoints = monitor["spec"]["podMetricsEndpoints"].as_array().expect("endpoints");
        assert!(endpoints.iter().any(|it| it["port"] == name), "{endpoints:?}");
        let policy = objects.get("NetworkPolicy", target);
        let rules = policy["spec"]["ingress"].as_array().expect("rules").iter();
        let mut ports = rules
            .filter(|rule| !rule["from"].is_null())
            .flat_map(|rule| rule["ports"].as_array().into_iter().flatten());
        assert!(ports.any(|port| port["port"] == name), "{policy}");
    }
}

/// An empty list of rules lets nothing in. So does a missing list, but that is less obvious.
#[test]
fn an_unscraped_controller_accepts_no_connections() {
    let objects = objects(&["networkPolicy.enabled=true"]);
    let spec = &objects.get("NetworkPolicy", "stowplan-controller")["spec"];
    assert_eq!(spec["policyTypes"], json!(["Ingress"]));
    assert!(spec["ingress"].as_array().is_none_or(Vec::is_empty));
    let deployment = objects.get("Deployment", "stowplan-controller");
    assert_eq!(spec["podSelector"], deployment["spec"]["selector"]);
}

#[test]
fn the_policy_arrives_as_it_was_given() {
    let own = ["kube-system", "kube-node-lease", "stowplan-system"];
    let placeholder = json!({"placeholder": {"priorityClassName": "stowplan-placeholder"}});
    let excluded = ["kube-system", "on", "007"];
    let all = [&own[..], &excluded[1..]].concat();
    let pools = json!({"maxExclusiveNodesPerNamespace": 1_000_000, "nodeSelector": {}});
    for (given, rendered) in [
        (json!({}), json!({"excludedNamespaces": own, "coschedule": placeholder})),
        (
            json!({"onInvalid": "warn", "excludedNamespaces": excluded, "hostPools": pools}),
            json!({"onInvalid": "warn", "excludedNamespaces": all, "hostPools": pools,
                "coschedule": placeholder}),
        ),
    ] {
        assert_eq!(objects(&[&format!("policy={given}")]).policy_file(), rendered);
    }
    // Conditions that stowplan does not know.
    let mine = r#"webhook.matchConditions=[{"name": "mine", "expression": "true"}]"#;
    assert_eq!(objects(&[mine]).policy_file()["matchConditions"], json!(["mine"]));
}

/// The scheduler has to place a placeholder before the pods that wait for it.
#[test]
fn placeholders_get_a_priority_class_unless_the_policy_names_one() {
    let class = objects(&[]).get("PriorityClass", "stowplan-placeholder");
    let shown = ["value", "globalDefault", "preemptionPolicy"].map(|field| &class[field]);
    assert_eq!(shown, [&json!(1), &Value::Null, &json!("Never")]);
    for (values, named) in [
        (&[][..], json!("stowplan-placeholder")),
        (
            &[r#"policy={"coschedule": {"placeholder": {"priorityClassName": "mine"}}}"#],
            json!("mine"),
        ),
        (&["controller.placeholderPriorityClass.create=false"], Value::Null),
        (&[NO_CONTROLLER], Value::Null),
        (&[r#"policy={"coschedule": {"enabled": false}}"#], Value::Null),
    ] {
        let objects = objects(values);
        assert_eq!(objects.has("PriorityClass"), values.is_empty(), "{values:?}");
        let policy = objects.policy_file();
        let class = policy.pointer("/coschedule/placeholder/priorityClassName");
        assert_eq!(class.unwrap_or(&Value::Null), &named, "{values:?}");
    }
}

/// `--help` is reached only once all arguments before it have been read.
#[test]
fn the_binary_takes_the_arguments_of_the_deployments() {
    let changed = [
        r#"listenAddress="[::]""#,
        r#"webhook.extraArgs=["--log-format=text"]"#,
        r#"controller.extraArgs=["--max-watch-age=5m"]"#,
    ];
    for values in [&[][..], &[SIDECAR], &changed] {
        for name in ["webhook", "controller"] {
            stdout(Command::new(BINARY).args(objects(values).args(name)).arg("--help"));
        }
    }
}
