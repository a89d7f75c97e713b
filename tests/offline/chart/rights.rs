//! Roles: what the webhook, the controller and users may do.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use serde::Deserialize as _;
use serde_json::Value;
use stowplan::testing::check::{Right, of_account};

use super::helm::{NO_CONTROLLER, Objects, Render, SIDECAR, read};

impl Objects {
    /// All rules of a service account of the release, each with the namespace in which it holds;
    /// `None`: in all of them.
    fn rights(&self, account: &str) -> Vec<(Option<String>, PolicyRule)> {
        let holds = |subjects: Option<Vec<Subject>>| {
            subjects.expect("subjects").iter().any(|subject| {
                assert_eq!(subject.kind, "ServiceAccount");
                assert_eq!(subject.namespace.as_deref(), Some("stowplan-system"));
                subject.name == account
            })
        };
        let rules = |role: RoleRef| match &*role.kind {
            "Role" => self.get::<Role>("Role", &role.name).rules,
            _ => self.get::<ClusterRole>("ClusterRole", &role.name).rules,
        };
        let mut rights = Vec::new();
        for ((kind, _), object) in &self.0 {
            let (namespace, role) = match &**kind {
                "ClusterRoleBinding" => {
                    let binding = ClusterRoleBinding::deserialize(object).expect("a binding");
                    if !holds(binding.subjects) {
                        continue;
                    }
                    (None, binding.role_ref)
                }
                "RoleBinding" => {
                    let binding = RoleBinding::deserialize(object).expect("a binding");
                    if !holds(binding.subjects) {
                        continue;
                    }
                    (Some(binding.metadata.namespace.expect("a namespace")), binding.role_ref)
                }
                _ => continue,
            };
            let rules = rules(role).expect("rules");
            rights.extend(rules.into_iter().map(|rule| (namespace.clone(), rule)));
        }
        rights
    }
}

/// `verb resource.group` of all rules, with the names where only some are meant.
fn verbs(rules: &[PolicyRule]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for rule in rules {
        assert_eq!(rule.non_resource_urls, None);
        for group in rule.api_groups.as_ref().expect("groups") {
            for resource in rule.resources.as_ref().expect("resources") {
                for verb in &rule.verbs {
                    let dot = if group.is_empty() { "" } else { "." };
                    let names = rule.resource_names.iter().flatten();
                    let names: String = names.map(|name| format!(" {name}")).collect();
                    all.insert(format!("{verb} {resource}{dot}{group}{names}"));
                }
            }
        }
    }
    all
}

/// The same, of one account everywhere.
fn verbs_everywhere(objects: &Objects, account: &str) -> BTreeSet<String> {
    let rights = objects.rights(account).into_iter();
    verbs(
        &rights
            .filter(|(namespace, _)| namespace.is_none())
            .map(|(_, rule)| rule)
            .collect::<Vec<_>>(),
    )
}

#[test]
fn the_webhook_may_read_and_nothing_else() {
    for values in [&[][..], &[NO_CONTROLLER], &[r#"policy={"repair": "recreatePending"}"#]] {
        let objects = Render::defaults().set_all(values).objects();
        let (spec, _) = objects.container("webhook").expect("a webhook");
        assert_eq!(spec.service_account_name.as_deref(), Some("stowplan"));
        let rights = objects.rights("stowplan");
        assert!(!rights.is_empty());
        for (namespace, rule) in rights {
            assert_eq!(rule.verbs, ["get", "list", "watch"], "{rule:?}");
            let resources = rule.resources.expect("resources");
            // Whether the controller is there, the certificate and the policy; the rest it reads
            // everywhere.
            let name = match resources.join(",").as_str() {
                "leases" => Some("stowplan-controller"),
                "secrets" => Some("stowplan-tls"),
                "configmaps" => Some("stowplan-policy"),
                _ => None,
            };
            assert_eq!(namespace.as_deref(), name.map(|_| "stowplan-system"));
            assert_eq!(rule.resource_names, name.map(|name| vec![name.to_owned()]));
            let is_one = name.is_some() && resources.len() == 1;
            let is_open = resources.iter().any(|it| it == "*" || it == "secrets");
            assert!(is_one || !is_open, "{resources:?}");
        }
    }
}

/// All rights of the controller: a new one must be added here on purpose.
const CONTROLLER_RIGHTS: &[&str] = &[
    "create configmaps",
    "create events.events.k8s.io",
    "create hostpools.stowplan.dev",
    "create secrets",
    "create services",
    "create statefulsets.apps",
    "delete configmaps",
    "delete persistentvolumeclaims",
    "delete pods",
    "delete services",
    "delete statefulsets.apps",
    "get configmaps",
    "get customnoderesources.node.katalyst.kubewharf.io",
    "get endpointslices.discovery.k8s.io",
    "get hostpools.stowplan.dev",
    "get jobs.batch",
    "get namespaces",
    "get nodes",
    "get persistentvolumeclaims",
    "get persistentvolumes",
    "get pipelineruns.tekton.dev",
    "get pipelines.tekton.dev",
    "get pods",
    "get services",
    "get statefulsets.apps",
    "get storageclasses.storage.k8s.io",
    "get streamsjobs.stowplan.dev",
    "get taskruns.tekton.dev",
    "list configmaps",
    "list customnoderesources.node.katalyst.kubewharf.io",
    "list endpointslices.discovery.k8s.io",
    "list hostpools.stowplan.dev",
    "list jobs.batch",
    "list namespaces",
    "list nodes",
    "list persistentvolumeclaims",
    "list persistentvolumes",
    "list pipelineruns.tekton.dev",
    "list pipelines.tekton.dev",
    "list pods",
    "list services",
    "list statefulsets.apps",
    "list storageclasses.storage.k8s.io",
    "list streamsjobs.stowplan.dev",
    "list taskruns.tekton.dev",
    "patch configmaps",
    "patch events.events.k8s.io",
    "patch hostpools.stowplan.dev",
    "patch hostpools/status.stowplan.dev",
    "patch jobs.batch",
    "patch nodes",
    "patch persistentvolumeclaims",
    "patch pods",
    "patch services",
    "patch statefulsets.apps",
    "patch streamsjobs/status.stowplan.dev",
    "watch configmaps",
    "watch customnoderesources.node.katalyst.kubewharf.io",
    "watch endpointslices.discovery.k8s.io",
    "watch hostpools.stowplan.dev",
    "watch jobs.batch",
    "watch namespaces",
    "watch nodes",
    "watch persistentvolumeclaims",
    "watch persistentvolumes",
    "watch pipelineruns.tekton.dev",
    "watch pipelines.tekton.dev",
    "watch pods",
    "watch services",
    "watch statefulsets.apps",
    "watch storageclasses.storage.k8s.io",
    "watch streamsjobs.stowplan.dev",
    "watch taskruns.tekton.dev",
];

fn words(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[test]
fn the_controller_may_do_what_is_listed_under_an_account_of_its_own() {
    let objects = Render::defaults().objects();
    let (spec, _) = objects.container("controller").expect("a controller");
    assert_eq!(spec.service_account_name.as_deref(), Some("stowplan-controller"));
    assert_eq!(verbs_everywhere(&objects, "stowplan-controller"), words(CONTROLLER_RIGHTS));
    let rights = objects.rights("stowplan-controller").into_iter();
    let inside: Vec<_> = rights.filter(|(namespace, _)| namespace.is_some()).collect();
    assert!(inside.iter().all(|(it, _)| it.as_deref() == Some("stowplan-system")), "{inside:?}");
    let rules: Vec<_> = inside.into_iter().map(|(_, rule)| rule).collect();
    assert_eq!(
        verbs(&rules),
        words(&[
            "create leases.coordination.k8s.io",
            "get configmaps stowplan-policy",
            "get leases.coordination.k8s.io stowplan-controller",
            "list configmaps stowplan-policy",
            "update leases.coordination.k8s.io stowplan-controller",
            "watch configmaps stowplan-policy",
        ])
    );
}

/// The policy is read by both, under the names that the arguments have, and no other account.
#[test]
fn the_policy_is_read_by_the_accounts_of_the_pods_and_by_no_other() {
    for (values, accounts, containers) in [
        (&[][..], &["stowplan", "stowplan-controller"][..], &["webhook", "controller"][..]),
        (&[SIDECAR], &["stowplan"], &["webhook", "controller"]),
        (&[NO_CONTROLLER], &["stowplan"], &["webhook"]),
    ] {
        let objects = Render::defaults().set_all(values).objects();
        let role: Role = objects.get("Role", "stowplan-policy");
        let rights = verbs(&role.rules.expect("rules"));
        let wanted =
            ["get", "list", "watch"].map(|verb| format!("{verb} configmaps stowplan-policy"));
        assert_eq!(rights, BTreeSet::from(wanted));
        let binding: RoleBinding = objects.get("RoleBinding", "stowplan-policy");
        let subjects = binding.subjects.expect("subjects");
        let names: Vec<_> = subjects.iter().map(|subject| &*subject.name).collect();
        assert_eq!(names, accounts, "{values:?}");
        for container in containers {
            let (_, container) = objects.container(container).expect("a container");
            let flags = container.args.expect("arguments");
            let named = "--policy-config-map=stowplan-policy".to_owned();
            assert!(flags.contains(&named), "{flags:?}");
            assert!(!flags.iter().any(|flag| flag.starts_with("--policy=")), "{flags:?}");
        }
        assert!(objects.find::<Value>("ConfigMap", "stowplan-policy").is_some());
    }
}

/// When the policy changes, earlier writes are reverted, so the rights do not depend on the policy.
#[test]
fn the_controllers_rights_are_the_same_under_every_policy() {
    for policy in [
        "{}",
        r#"{"repair": "recreatePending"}"#,
        r#"{"coschedule": {"enabled": false}}"#,
        r#"{"mpi": {"enabled": false}}"#,
        r#"{"katalyst": {"mode": "disabled"}}"#,
        r#"{"katalyst": {"mode": "enforced", "declaredLabels": ["app"]}}"#,
    ] {
        let objects = Render::defaults().set(&format!("policy={policy}")).objects();
        let rights = verbs_everywhere(&objects, "stowplan-controller");
        assert_eq!(rights, words(CONTROLLER_RIGHTS), "{policy}");
    }
}

/// What only MPI clusters need.
const OF_MPI: &[&str] = &[
    "create services",
    "create configmaps",
    "create secrets",
    "delete services",
    "delete configmaps",
    "patch services",
    "patch configmaps",
    "patch jobs.batch",
];

/// Of a Secret, the controller may not even know whether it exists, other than by a creation.
#[test]
fn the_controller_may_create_secrets_and_do_nothing_else_with_them() {
    for values in [&[][..], &[SIDECAR]] {
        let objects = Render::defaults().set_all(values).objects();
        let account = if values.is_empty() { "stowplan-controller" } else { "stowplan" };
        let rules: Vec<_> = objects.rights(account).into_iter().map(|(_, rule)| rule).collect();
        // The webhook's account reads its own certificate.
        let own = |right: &String| right.ends_with(" secrets stowplan-tls");
        let rights = verbs(&rules).into_iter().filter(|right| !own(right));
        let on_secrets = rights.filter(|right| right.contains("secrets"));
        assert_eq!(on_secrets.collect::<Vec<_>>(), ["create secrets"]);
        assert!(rules.iter().all(|rule| !rule.verbs.iter().any(|verb| verb == "*")));
    }
}

/// Its own two Secrets and its own webhook configurations, by their names.
#[test]
fn to_keep_the_certificate_the_controller_gets_rights_by_name() {
    for (values, account) in [(&[][..], "stowplan-controller"), (&[SIDECAR], "stowplan")] {
        let provided = Render::defaults().set_all(values).objects();
        let own = Render::bare().set_all(values).objects();
        let rights = |objects: &Objects| {
            let rules: Vec<_> = objects.rights(account).into_iter().map(|(_, rule)| rule).collect();
            verbs(&rules)
        };
        let mut added = &rights(&own) - &rights(&provided);
        for verb in ["get", "list", "watch", "patch"] {
            for kind in ["mutating", "validating"] {
                let right = format!(
                    "{verb} {kind}webhookconfigurations.admissionregistration.k8s.io stowplan"
                );
                assert!(added.remove(&right), "{right}: {added:?}");
            }
        }
        let names = "secrets stowplan-ca stowplan-tls";
        let on_secrets = ["get", "list", "update", "watch"].map(|verb| format!("{verb} {names}"));
        assert_eq!(added, on_secrets.into());
        let inside = own.rights(account).into_iter();
        let mut inside = inside.filter(|(_, rule)| rule.verbs.contains(&"update".to_owned()));
        assert!(inside.all(|(namespace, _)| namespace.as_deref() == Some("stowplan-system")));
        // Never more of the CA than this: the webhook, which the network reaches, has its own only.
        if account != "stowplan" {
            let webhook: Vec<_> = own.rights("stowplan").into_iter().map(|(_, it)| it).collect();
            assert!(!verbs(&webhook).iter().any(|right| right.contains("stowplan-ca")));
        }
        let policy: Value =
            own.get("ValidatingAdmissionPolicy", "stowplan-controller-certificates");
        let user = policy["spec"]["matchConditions"][0]["expression"].as_str().expect("text");
        assert!(user.ends_with(&format!(":{account}'")), "{user}");
        assert_eq!(policy["spec"]["failurePolicy"], "Fail");
    }
}

/// A policy for each kind that the controller writes, other than events, leases and stowplan's own.
#[test]
fn every_kind_that_the_controller_writes_has_a_policy() {
    let objects = Render::defaults().objects();
    let mut held = BTreeSet::new();
    for ((kind, name), object) in &objects.0 {
        if kind == "ValidatingAdmissionPolicy" && name.contains("-controller-") {
            let rule = &object["spec"]["matchConstraints"]["resourceRules"][0];
            let group = rule["apiGroups"][0].as_str().expect("a group");
            let dot = if group.is_empty() { "" } else { "." };
            let resource = rule["resources"][0].as_str().expect("a resource");
            let verbs = rule["operations"].as_array().expect("operations").iter();
            held.extend(verbs.map(|verb| {
                let verb = verb.as_str().expect("a verb").to_lowercase().replace("update", "patch");
                format!("{verb} {resource}{dot}{group}")
            }));
        }
    }
    let rights = verbs_everywhere(&objects, "stowplan-controller").into_iter();
    let free = rights.filter(|right| {
        !["get ", "list ", "watch "].iter().any(|verb| right.starts_with(verb))
            && !right.contains(".stowplan.dev")
            && !right.contains(".events.k8s.io")
            && !held.contains(right)
    });
    assert_eq!(free.collect::<Vec<_>>(), [""; 0]);
}

/// Without a part of its rights the controller still reads everything: otherwise it is never ready.
#[test]
fn each_part_of_the_controllers_rights_can_be_left_out() {
    let off = r#"policy={"coschedule": {"enabled": false}, "mpi": {"enabled": false}, "streams": {"enabled": false}}"#;
    let [pools, coscheduling, jobs, wake, repair, mpi, katalyst] =
        ["pools", "coscheduling", "jobs", "wake", "repair", "mpi", "katalyst"]
            .map(|part| format!("controller.rbac.{part}=false"));
    let cases: &[(&[&str], &[&str])] = &[
        (
            &[&pools, &katalyst],
            &["patch nodes", "create hostpools.stowplan.dev", "patch hostpools.stowplan.dev"],
        ),
        // Both parts label nodes.
        (&[&pools], &["create hostpools.stowplan.dev", "patch hostpools.stowplan.dev"]),
        (&[&katalyst], &[]),
        (
            &[off, &coscheduling],
            &[
                "create statefulsets.apps",
                "delete statefulsets.apps",
                "patch persistentvolumeclaims",
                "delete persistentvolumeclaims",
            ],
        ),
        (&[off, &wake], &[]),
        (&[off, &repair], &[]),
        (&[off, &jobs], &[]),
        (&[off, &mpi], OF_MPI),
        (
            &[off, &coscheduling, &jobs, &wake, &repair],
            &[
                "create statefulsets.apps",
                "delete statefulsets.apps",
                "patch persistentvolumeclaims",
                "delete persistentvolumeclaims",
                "delete pods",
            ],
        ),
        (
            &[off, &coscheduling, &jobs, &wake, &repair, &mpi, &katalyst],
            &[
                "create services",
                "create configmaps",
                "create secrets",
                "delete services",
                "delete configmaps",
                "patch services",
                "patch configmaps",
                "patch jobs.batch",
                "create statefulsets.apps",
                "patch statefulsets.apps",
                "delete statefulsets.apps",
                "patch persistentvolumeclaims",
                "delete persistentvolumeclaims",
                "patch pods",
                "delete pods",
            ],
        ),
    ];
    for (values, missing) in cases {
        let objects = Render::defaults().set_all(values).objects();
        let rights = verbs_everywhere(&objects, "stowplan-controller");
        assert_eq!(rights, &words(CONTROLLER_RIGHTS) - &words(missing), "{values:?}");
    }
}

/// The account is that of the pods in which the controller runs, and no other account is held.
#[test]
fn the_policies_hold_the_account_of_the_controller() {
    let policies = |values: &[&str]| {
        let objects = Render::defaults().set_all(values).objects();
        let mut users = BTreeSet::new();
        for ((kind, name), object) in &objects.0 {
            if kind == "ValidatingAdmissionPolicy" && name.contains("-controller-") {
                let binding: Value = objects.get("ValidatingAdmissionPolicyBinding", name);
                assert_eq!(binding["spec"]["policyName"], **name);
                assert_eq!(binding["spec"]["validationActions"], serde_json::json!(["Deny"]));
                assert_eq!(object["spec"]["failurePolicy"], "Fail");
                let condition = object["spec"]["matchConditions"][0]["expression"].as_str();
                users.insert(condition.expect("an expression").to_owned());
            }
        }
        users
    };
    let of = |account: &str| {
        let user = format!("system:serviceaccount:stowplan-system:{account}");
        BTreeSet::from([format!("request.userInfo.username == '{user}'")])
    };
    assert_eq!(policies(&[]), of("stowplan-controller"));
    assert_eq!(policies(&[SIDECAR]), of("stowplan"));
    assert_eq!(policies(&[NO_CONTROLLER]), BTreeSet::new());
    assert_eq!(policies(&["controller.admissionPolicy.enabled=false"]), BTreeSet::new());
}

/// Without a part of the rights, the policies let nothing of it pass: another part may have the right.
#[test]
fn the_policies_let_pass_what_the_parts_of_the_rights_need() {
    let expressions = |values: &[&str], name: &str| {
        let objects = Render::defaults().set_all(values).objects();
        let policy: Value = objects.get("ValidatingAdmissionPolicy", name);
        policy["spec"].to_string()
    };
    let (nodes, pods) = ("stowplan-controller-nodes", "stowplan-controller-pods");
    let [pools, katalyst] =
        ["pools", "katalyst"].map(|part| format!("controller.rbac.{part}=false"));
    let pool = "pool.stowplan.node-restriction.kubernetes.io/";
    for (values, has_pools, has_zones) in [
        (&[][..], true, true),
        (&[&*pools], false, true),
        (&[&*katalyst], true, false),
        (&[&*pools, &*katalyst], false, false),
    ] {
        let text = expressions(values, nodes);
        assert_eq!(text.contains(pool), has_pools, "{values:?}");
        let taint = "taint.key != 'stowplan.dev/exclusive'";
        assert_eq!(text.contains(taint), has_pools, "{values:?}");
        assert_eq!(text.contains("stowplan.dev/numa-zones"), has_zones, "{values:?}");
        let text = expressions(values, pods);
        for key in ["stowplan.dev/numa-feasible", "katalyst.stowplan.dev/let-go"] {
            assert_eq!(text.contains(key), has_zones, "{values:?}: {key}");
        }
        let unchanged = "object.metadata.?annotations == oldObject.metadata.?annotations";
        assert_eq!(text.contains(unchanged), !has_zones, "{values:?}");
    }
}

/// The price of the sidecar: the account of the webhook's pods has the rights of both.
#[test]
fn as_a_sidecar_the_controller_brings_its_rights_to_the_webhooks_account() {
    let own = Render::defaults().objects();
    let objects = Render::defaults().set(SIDECAR).objects();
    let (spec, container) = objects.container("controller").expect("a controller");
    assert_eq!(spec.service_account_name.as_deref(), Some("stowplan"));
    let names: Vec<_> = spec.containers.iter().map(|container| &*container.name).collect();
    assert_eq!(names, ["webhook", "controller"]);
    let sum = &verbs_everywhere(&own, "stowplan") | &verbs_everywhere(&own, "stowplan-controller");
    assert_eq!(verbs_everywhere(&objects, "stowplan"), sum);
    // The right to the policy is in both, and there is one Role for it.
    assert_eq!(
        objects.rights("stowplan").len() + 1,
        own.rights("stowplan").len() + own.rights("stowplan-controller").len()
    );
    for kind in ["Deployment", "PodDisruptionBudget", "ServiceAccount"] {
        assert!(objects.find::<Value>(kind, "stowplan-controller").is_none(), "{kind}");
    }
    // Both share one network: no port twice, and none that only one of them opens is probed at the
    // other. The readiness of the webhook does not depend on the controller.
    let ports: Vec<_> = spec.containers.iter().flat_map(|it| it.ports.iter().flatten()).collect();
    let numbers: BTreeSet<_> = ports.iter().map(|port| port.container_port).collect();
    let named: BTreeSet<_> = ports.iter().map(|port| port.name.as_deref()).collect();
    assert_eq!((numbers.len(), named.len()), (ports.len(), ports.len()), "{ports:?}");
    assert!(container.readiness_probe.is_none());
    assert!(container.liveness_probe.is_some());
    assert!(spec.containers[0].readiness_probe.is_some());
}

#[test]
fn reading_pools_comes_with_view_and_claiming_nodes_with_nothing() {
    let objects = Render::defaults().objects();
    let aggregated = |role: &ClusterRole| {
        let labels = role.metadata.labels.as_ref().expect("labels");
        labels.keys().filter(|key| key.contains("aggregate-to-")).count()
    };
    for kind in ["hostpool", "streamsjob"] {
        let viewer: ClusterRole = objects.get("ClusterRole", &format!("stowplan-{kind}-viewer"));
        assert_eq!(aggregated(&viewer), 3);
        let [rule] = viewer.rules.expect("rules").try_into().expect("one rule");
        assert_eq!(rule.verbs, ["get", "list", "watch"]);
        assert_eq!(rule.resources, Some(vec![format!("{kind}s"), format!("{kind}s/status")]));
        let editor: ClusterRole = objects.get("ClusterRole", &format!("stowplan-{kind}-editor"));
        assert_eq!(aggregated(&editor), 0);
        let [rule] = editor.rules.expect("rules").try_into().expect("one rule");
        assert_eq!(rule.resources, Some(vec![format!("{kind}s")]));
        assert!(rule.verbs.contains(&"create".to_owned()));
    }
}

/// It is for users: reading a cluster with it must not lead to any other object.
#[test]
fn the_reader_reads_what_the_commands_read_and_is_bound_to_no_user() {
    let role = |values: &[&str]| {
        let objects = Render::defaults().set_all(values).objects();
        for ((kind, _), object) in &objects.0 {
            assert_ne!(object["roleRef"]["name"], "stowplan-reader", "{kind}");
        }
        objects.find::<ClusterRole>("ClusterRole", "stowplan-reader")
    };
    let aggregated = |role: &ClusterRole| {
        let labels = role.metadata.labels.as_ref().expect("labels");
        labels.keys().any(|key| key == "rbac.authorization.k8s.io/aggregate-to-view")
    };
    let reader = role(&[]).expect("by default");
    assert!(!aggregated(&reader));
    assert!(aggregated(&role(&["reader.aggregateToView=true"]).expect("a role")));
    assert!(role(&["reader.create=false"]).is_none());
    let rights = verbs(&reader.rules.expect("rules"));
    assert!(rights.iter().all(|right| right.starts_with("get ") || right.starts_with("list ")));
    for right in [
        "get configmaps stowplan-policy feature-flags",
        "list leases.coordination.k8s.io stowplan-controller",
        "list nodes",
        "list pods",
        "list customnoderesources.node.katalyst.kubewharf.io",
        "list hostpools.stowplan.dev",
        "list mutatingwebhookconfigurations.admissionregistration.k8s.io",
        "list jobs.batch",
        "list services",
        "list endpointslices.discovery.k8s.io",
    ] {
        assert!(rights.contains(right), "{right}: {rights:?}");
    }
    let configmaps = rights.iter().filter(|right| right.contains("configmaps"));
    assert!(configmaps.clone().count() == 1 && !rights.iter().any(|it| it.contains("secrets")));
}

/// `stowplan check` asks the API server for each right of its tables: they are those of the chart.
#[test]
fn what_check_expects_of_the_accounts_is_what_they_have() {
    // Each object by itself, where a rule names several.
    let each = |rules: &[PolicyRule]| -> BTreeSet<String> {
        let of_one = rules.iter().flat_map(|rule| match &rule.resource_names {
            None => vec![rule.clone()],
            Some(names) => {
                let one = |name: &String| Some(vec![name.clone()]);
                let one = |name| PolicyRule { resource_names: one(name), ..rule.clone() };
                names.iter().map(one).collect()
            }
        });
        verbs(&of_one.collect::<Vec<_>>())
    };
    for render in [Render::defaults(), Render::bare()] {
        let objects = render.objects();
        for (role, account) in [("webhook", "stowplan"), ("controller", "stowplan-controller")] {
            let (_, container) = objects.container(role).expect("a container");
            let table = of_account(role, &container.args.unwrap_or_default());
            let named = |rights: &mut dyn Iterator<Item = &Right>| -> BTreeSet<String> {
                rights.map(ToString::to_string).collect()
            };
            let rules = objects.rights(account);
            let all: Vec<_> = rules.iter().map(|(_, rule)| rule.clone()).collect();
            assert_eq!(each(&all), named(&mut table.iter()), "{role}");
            let own = rules.into_iter().filter(|(namespace, _)| namespace.is_some());
            let own: Vec<_> = own.map(|(_, rule)| rule).collect();
            let of_table = named(&mut table.iter().filter(|right| right.is_own));
            assert_eq!(each(&own), of_table, "{role}");
        }
        let wanted: BTreeSet<_> =
            of_account("reader", &[]).iter().map(ToString::to_string).collect();
        let reader: ClusterRole = objects.get("ClusterRole", "stowplan-reader");
        let reader = each(&reader.rules.expect("rules"));
        assert!(wanted.is_subset(&reader), "{wanted:?} {reader:?}");
        // The account of `helm test` has these, and the trial pod.
        let rules = objects.rights("stowplan-test").into_iter().map(|(_, rule)| rule);
        let mut wanted = wanted;
        wanted.insert("create pods".to_owned());
        assert_eq!(each(&rules.collect::<Vec<_>>()), wanted);
    }
}

/// A rule without a reason is a rule that is never removed.
#[test]
fn every_rule_of_rbac_has_its_reason_above_it() {
    for name in [
        "templates/rbac.yaml",
        "templates/rbac-controller.yaml",
        "templates/rbac-reader.yaml",
        "templates/rbac-policy.yaml",
        "templates/rbac-users.yaml",
        "templates/teardown.yaml",
        "templates/test.yaml",
    ] {
        let text = read(name);
        let lines: Vec<_> = text.lines().collect();
        let rules: Vec<_> =
            (0..lines.len()).filter(|at| lines[*at].starts_with("- apiGroups:")).collect();
        assert!(!rules.is_empty(), "{name} has no rules");
        for at in rules {
            assert!(lines[at - 1].starts_with("# "), "{name}:{}: why?", at + 1);
        }
    }
}
