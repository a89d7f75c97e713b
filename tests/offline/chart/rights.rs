//! Roles: what the webhook, the controller and users may do.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use stowplan::testing::check::{Right, of_account};

use super::helm::{NO_CONTROLLER, Objects, Render, SIDECAR, objects, read, texts};

const CONTROLLER: &str = "stowplan-controller";

/// `verb resource.group`, with the name where only one object is meant.
type Rights = BTreeSet<String>;

/// The rights of a role's rules.
fn rights(role: &Value) -> Rights {
    let mut all = BTreeSet::new();
    for rule in role["rules"].as_array().expect("rules") {
        assert_eq!(rule["nonResourceURLs"], Value::Null);
        let mut names: Vec<_> =
            texts(&rule["resourceNames"]).iter().map(|name| format!(" {name}")).collect();
        if names.is_empty() {
            names.push(String::new());
        }
        for group in texts(&rule["apiGroups"]) {
            let dot = if group.is_empty() { "" } else { "." };
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    let right = |name| format!("{verb} {resource}{dot}{group}{name}");
                    all.extend(names.iter().map(right));
                }
            }
        }
    }
    all
}

/// Rights as they are written in tables: `VERBS RESOURCE [NAME]`, verbs with commas.
fn rows<'r>(rows: impl IntoIterator<Item = &'r &'r str>) -> Rights {
    let rights = rows.into_iter().flat_map(|row| {
        let (verbs, rest) = row.split_once(' ').expect("verbs");
        verbs.split(',').map(move |verb| format!("{verb} {rest}"))
    });
    rights.collect()
}

impl Objects {
    /// The rights of a service account of the release: everywhere, and in the release's namespace.
    fn rights(&self, account: &str) -> (Rights, Rights) {
        let mut found = (Rights::new(), Rights::new());
        for kind in ["ClusterRoleBinding", "RoleBinding"] {
            for (name, binding) in self.of_kind(kind) {
                let subjects = binding["subjects"].as_array().expect("subjects");
                for subject in subjects {
                    assert_eq!(subject["kind"], "ServiceAccount", "{name}");
                    assert_eq!(subject["namespace"], "stowplan-system", "{name}");
                }
                if !subjects.iter().any(|subject| subject["name"] == account) {
                    continue;
                }
                let [kind, role] = ["kind", "name"].map(|key| binding["roleRef"][key].as_str());
                let rights = rights(self.get(kind.expect("a kind"), role.expect("a name")));
                if binding["kind"] == "RoleBinding" {
                    // `helm test` tries a pod in a namespace of the user's.
                    let is_own = binding["metadata"]["namespace"] == "stowplan-system";
                    assert!(is_own || account == "stowplan-test", "{binding}");
                    found.1.extend(rights);
                } else {
                    found.0.extend(rights);
                }
            }
        }
        assert!(!found.0.is_empty(), "{account} has no rights");
        found
    }

    fn all_rights(&self, account: &str) -> Rights {
        let (everywhere, inside) = self.rights(account);
        &everywhere | &inside
    }
}

/// All rights of the controller: a new one must be added here on purpose.
const CONTROLLER_RIGHTS: &[&str] = &[
    "get,list,watch,create,patch,delete configmaps",
    "get,list,watch customnoderesources.node.katalyst.kubewharf.io",
    "get,list,watch endpointslices.discovery.k8s.io",
    "create,patch events.events.k8s.io",
    "get,list,watch,create,patch hostpools.stowplan.dev",
    "patch hostpools/status.stowplan.dev",
    "get,list,watch,patch jobs.batch",
    "get,list,watch namespaces",
    "get,list,watch,patch nodes",
    "get,list,watch,patch,delete persistentvolumeclaims",
    "get,list,watch persistentvolumes",
    "get,list,watch pipelineruns.tekton.dev",
    "get,list,watch pipelines.tekton.dev",
    "get,list,watch,patch,delete pods",
    "create secrets",
    "get,list,watch,create,patch,delete services",
    "get,list,watch,create,patch,delete statefulsets.apps",
    "get,list,watch storageclasses.storage.k8s.io",
    "get,list,watch streamsjobs.stowplan.dev",
    "patch streamsjobs/status.stowplan.dev",
    "get,list,watch taskruns.tekton.dev",
];

/// Those in the release's namespace alone.
const CONTROLLER_RIGHTS_INSIDE: &[&str] = &[
    "create leases.coordination.k8s.io",
    "get,update leases.coordination.k8s.io stowplan-controller",
    "get,list,watch configmaps stowplan-policy",
];

/// What only MPI clusters need, coscheduling, and the pools.
const OF_MPI: &[&str] = &[
    "create,patch,delete services",
    "create,patch,delete configmaps",
    "create secrets",
    "patch jobs.batch",
];
const OF_COSCHEDULING: &[&str] =
    &["create,delete statefulsets.apps", "patch,delete persistentvolumeclaims"];
const OF_POOLS: &[&str] = &["create,patch hostpools.stowplan.dev"];

#[test]
fn the_webhook_may_read_and_nothing_else() {
    for values in [&[][..], &[NO_CONTROLLER], &[r#"policy={"repair": "recreatePending"}"#]] {
        let objects = objects(values);
        let (pod, _) = objects.container("webhook").expect("a webhook");
        assert_eq!(pod["serviceAccountName"], "stowplan");
        let (everywhere, inside) = objects.rights("stowplan");
        for right in &everywhere {
            let (verb, resource) = right.split_once(' ').unwrap();
            assert!(["get", "list", "watch"].contains(&verb), "{right}");
            let is_open =
                ["*", "secrets", "configmaps", "leases"].iter().any(|it| resource.starts_with(it));
            assert!(!is_open && !resource.contains(' '), "{right}");
        }
        // Whether the controller is there, the certificate and the policy.
        let expected = [
            "get,list,watch configmaps stowplan-policy",
            "get,list,watch leases.coordination.k8s.io stowplan-controller",
            "get,list,watch secrets stowplan-tls",
        ];
        assert_eq!(inside, rows(&expected), "{values:?}");
    }
}

/// When the policy changes, earlier writes are reverted, so the rights do not depend on the policy.
#[test]
fn the_controller_may_do_what_is_listed_under_every_policy_and_an_account_of_its_own() {
    for policy in [
        "{}",
        r#"{"repair": "recreatePending"}"#,
        r#"{"coschedule": {"enabled": false}}"#,
        r#"{"mpi": {"enabled": false}}"#,
        r#"{"katalyst": {"mode": "disabled"}}"#,
        r#"{"katalyst": {"mode": "enforced", "declaredLabels": ["app"]}}"#,
    ] {
        let objects = objects(&[&format!("policy={policy}")]);
        let (pod, _) = objects.container("controller").expect("a controller");
        assert_eq!(pod["serviceAccountName"], CONTROLLER);
        let listed = (rows(CONTROLLER_RIGHTS), rows(CONTROLLER_RIGHTS_INSIDE));
        assert_eq!(objects.rights(CONTROLLER), listed, "{policy}");
    }
}

/// Without a part of its rights the controller still reads everything: otherwise it is never ready.
#[test]
fn each_part_of_the_controllers_rights_can_be_left_out() {
    let off = r#"policy={"coschedule": {"enabled": false}, "mpi": {"enabled": false}, "streams": {"enabled": false}}"#;
    for (parts, missing) in [
        ("pools katalyst", &[OF_POOLS, &["patch nodes"]][..]),
        // Both parts label nodes.
        ("pools", &[OF_POOLS]),
        ("katalyst", &[]),
        ("coscheduling", &[OF_COSCHEDULING]),
        ("wake", &[]),
        ("repair", &[]),
        ("jobs", &[]),
        ("mpi", &[OF_MPI]),
        ("coscheduling jobs wake repair", &[OF_COSCHEDULING, &["delete pods"]]),
        (
            "coscheduling jobs wake repair mpi katalyst",
            &[OF_COSCHEDULING, OF_MPI, &["patch,delete pods", "patch statefulsets.apps"]],
        ),
    ] {
        let parts = parts.split(' ').map(|part| format!("controller.rbac.{part}=false"));
        let values: Vec<_> = parts.chain([off.to_owned()]).collect();
        let objects = objects(&values.iter().map(String::as_str).collect::<Vec<_>>());
        let expected = &rows(CONTROLLER_RIGHTS) - &rows(missing.iter().copied().flatten());
        assert_eq!(objects.rights(CONTROLLER).0, expected, "{values:?}");
    }
}

/// The policy is read by both, under the names that the arguments have, and no other account.
#[test]
fn the_policy_is_read_by_the_accounts_of_the_pods_and_by_no_other() {
    for (values, accounts, containers) in [
        (&[][..], &["stowplan", CONTROLLER][..], &["webhook", "controller"][..]),
        (&[SIDECAR], &["stowplan"], &["webhook", "controller"]),
        (&[NO_CONTROLLER], &["stowplan"], &["webhook"]),
    ] {
        let objects = objects(values);
        let role = rights(objects.get("Role", "stowplan-policy"));
        assert_eq!(role, rows(&["get,list,watch configmaps stowplan-policy"]));
        let binding = objects.get("RoleBinding", "stowplan-policy");
        let subjects = binding["subjects"].as_array().expect("subjects");
        let names: Vec<_> = subjects.iter().map(|subject| &subject["name"]).collect();
        assert_eq!(names, accounts, "{values:?}");
        for container in containers {
            let args = objects.args(container);
            assert!(args.contains(&"--policy-config-map=stowplan-policy"), "{args:?}");
            assert!(!args.iter().any(|arg| arg.starts_with("--policy=")), "{args:?}");
        }
        objects.get("ConfigMap", "stowplan-policy");
    }
}

/// Of a Secret, the controller may not even know whether it exists, other than by a creation. To keep
/// the certificate it gets its own two Secrets and its own webhook configurations, by their names.
#[test]
fn to_keep_the_certificate_the_controller_gets_rights_by_name() {
    for (values, account) in [(&[][..], CONTROLLER), (&[SIDECAR], "stowplan")] {
        let provided = objects(values).rights(account);
        let on_secrets: Vec<_> =
            provided.0.iter().filter(|it| it.contains("secrets") || it.starts_with('*')).collect();
        assert_eq!(on_secrets, ["create secrets"]);
        // The webhook's account reads its own certificate.
        let is_own = |right: &&String| right.ends_with(" secrets stowplan-tls");
        let inside = provided.1.iter().filter(|right| !is_own(right));
        assert!(!inside.clone().any(|right| right.contains("secrets")), "{:?}", provided.1);

        let objects = Render::bare().set_all(values).objects();
        let own = objects.rights(account);
        let [mutating, validating] = ["mutating", "validating"].map(|kind| {
            format!(
                "get,list,watch,patch {kind}webhookconfigurations.admissionregistration.k8s.io \
                 stowplan"
            )
        });
        assert_eq!(&own.0 - &provided.0, rows(&[&*mutating, &*validating]));
        let secrets = [
            "create secrets",
            "get,list,watch,update secrets stowplan-tls",
            "get,list,watch,update secrets stowplan-ca",
        ];
        assert_eq!(&own.1 - &provided.1, &rows(&secrets) - &provided.1);
        // Never more of the CA than this: the webhook, which the network reaches, has its own only.
        let webhook = objects.all_rights("stowplan");
        let reads_ca = webhook.iter().any(|right| right.contains("stowplan-ca"));
        assert_eq!(reads_ca, account == "stowplan");
        let (policy, _) = objects.policy("stowplan-controller-certificates").expect("a policy");
        let user = policy["matchConditions"][0]["expression"].as_str().expect("text");
        assert!(user.ends_with(&format!(":{account}'")), "{user}");
        assert_eq!(policy["failurePolicy"], "Fail");
    }
}

/// The admission policies that restrict the controller.
fn policies_of(objects: &Objects) -> Vec<(&str, &Value)> {
    let mut policies = objects.of_kind("ValidatingAdmissionPolicy");
    policies.retain(|(name, _)| name.contains("-controller-"));
    policies
}

/// A policy for each kind that the controller writes, other than events, leases and stowplan's own.
#[test]
fn every_kind_that_the_controller_writes_has_a_policy() {
    let objects = objects(&[]);
    let mut held = Rights::new();
    for (_, policy) in policies_of(objects) {
        let mut rule = policy["spec"]["matchConstraints"]["resourceRules"][0].clone();
        rule["verbs"] = rule["operations"].take();
        held.extend(rights(&json!({"rules": [rule]})));
    }
    for right in objects.rights(CONTROLLER).0 {
        let (verb, resource) = right.split_once(' ').unwrap();
        let operation = verb.to_uppercase().replace("PATCH", "UPDATE");
        let is_free = ["get", "list", "watch"].contains(&verb)
            || resource.contains(".stowplan.dev")
            || resource.contains(".events.k8s.io");
        assert!(is_free || held.contains(&format!("{operation} {resource}")), "{right}: {held:?}");
    }
}

/// The account is that of the pods in which the controller runs, and no other account is held.
#[test]
fn the_policies_hold_the_account_of_the_controller() {
    for (values, account) in [
        (&[][..], Some(CONTROLLER)),
        (&[SIDECAR], Some("stowplan")),
        (&[NO_CONTROLLER], None),
        (&["controller.admissionPolicy.enabled=false"], None),
    ] {
        let objects = objects(values);
        let policies = policies_of(objects);
        assert_eq!(policies.is_empty(), account.is_none(), "{values:?}");
        for (name, _) in policies {
            let (spec, actions) = objects.policy(name).expect("a policy");
            assert_eq!((&spec["failurePolicy"], &actions[..]), (&json!("Fail"), &["Deny"][..]));
            let user = format!("system:serviceaccount:stowplan-system:{}", account.unwrap());
            let condition = format!("request.userInfo.username == '{user}'");
            assert_eq!(spec["matchConditions"][0]["expression"], condition, "{name}");
        }
    }
}

/// Without a part of the rights, the policies let nothing of it pass: another part may have the right.
#[test]
fn the_policies_let_pass_what_the_parts_of_the_rights_need() {
    const POOLS: &str = "controller.rbac.pools=false";
    const KATALYST: &str = "controller.rbac.katalyst=false";
    for (values, has_pools, has_zones) in [
        (&[][..], true, true),
        (&[POOLS], false, true),
        (&[KATALYST], true, false),
        (&[POOLS, KATALYST], false, false),
    ] {
        for (policy, text, is_there) in [
            ("nodes", "pool.stowplan.node-restriction.kubernetes.io/", has_pools),
            ("nodes", "taint.key != 'stowplan.dev/exclusive'", has_pools),
            ("nodes", "stowplan.dev/numa-zones", has_zones),
            ("pods", "stowplan.dev/numa-feasible", has_zones),
            ("pods", "katalyst.stowplan.dev/let-go", has_zones),
            ("pods", "object.metadata.?annotations == oldObject.metadata.?annotations", !has_zones),
        ] {
            let (spec, _) =
                objects(values).policy(&format!("{CONTROLLER}-{policy}")).expect(policy);
            assert_eq!(spec.to_string().contains(text), is_there, "{values:?}: {text}");
        }
    }
}

/// The price of the sidecar: the account of the webhook's pods has the rights of both.
#[test]
fn as_a_sidecar_the_controller_brings_its_rights_to_the_webhooks_account() {
    let own = objects(&[]);
    let objects = objects(&[SIDECAR]);
    let (pod, container) = objects.container("controller").expect("a controller");
    assert_eq!(pod["serviceAccountName"], "stowplan");
    let containers = pod["containers"].as_array().expect("containers");
    let names: Vec<_> = containers.iter().map(|container| &container["name"]).collect();
    assert_eq!(names, ["webhook", "controller"]);
    let [webhook, controller] = ["stowplan", CONTROLLER].map(|account| own.rights(account));
    let sum = (&webhook.0 | &controller.0, &webhook.1 | &controller.1);
    assert_eq!(objects.rights("stowplan"), sum);
    for kind in ["Deployment", "PodDisruptionBudget", "ServiceAccount"] {
        assert!(objects.find(kind, CONTROLLER).is_none(), "{kind}");
    }
    // Both share one network: no port twice, and none that only one of them opens is probed at the
    // other. The readiness of the webhook does not depend on the controller.
    let ports: Vec<_> = containers.iter().flat_map(|it| it["ports"].as_array().unwrap()).collect();
    for field in ["containerPort", "name"] {
        let distinct: BTreeSet<_> = ports.iter().map(|port| port[field].to_string()).collect();
        assert_eq!(distinct.len(), ports.len(), "{ports:?}");
    }
    assert!(container["readinessProbe"].is_null() && container["livenessProbe"].is_object());
    assert!(containers[0]["readinessProbe"].is_object());
}

/// It is for users. The snapshot of the defaults shows that it only reads, and no secrets.
#[test]
fn the_reader_is_bound_to_no_user() {
    let aggregation = "rbac.authorization.k8s.io/aggregate-to-view";
    for (values, expected) in [
        (&[][..], Some(false)),
        (&["reader.aggregateToView=true"], Some(true)),
        (&["reader.create=false"], None),
    ] {
        for ((kind, name), object) in &objects(values).0 {
            assert_ne!(object["roleRef"]["name"], "stowplan-reader", "{kind} {name}");
        }
        let reader = objects(values).find("ClusterRole", "stowplan-reader");
        let aggregated = reader.map(|it| it["metadata"]["labels"].get(aggregation).is_some());
        assert_eq!(aggregated, expected, "{values:?}");
    }
}

/// `stowplan check` asks the API server for each right of its tables: they are those of the chart.
#[test]
fn what_check_expects_of_the_accounts_is_what_they_have() {
    fn named<'r>(rights: impl Iterator<Item = &'r Right>) -> Rights {
        rights.map(ToString::to_string).collect()
    }
    for render in [Render::defaults(), Render::bare()] {
        let objects = render.objects();
        for (role, account) in [("webhook", "stowplan"), ("controller", CONTROLLER)] {
            let args: Vec<_> = objects.args(role).into_iter().map(str::to_owned).collect();
            let table = of_account(role, &args);
            assert_eq!(objects.all_rights(account), named(table.iter()), "{role}");
            let own = named(table.iter().filter(|right| right.is_own));
            assert_eq!(objects.rights(account).1, own, "{role}");
        }
        let mut wanted = named(of_account("reader", &[]).iter());
        let reader = rights(objects.get("ClusterRole", "stowplan-reader"));
        assert!(wanted.is_subset(&reader), "{wanted:?} {reader:?}");
        // The account of `helm test` has these, and the trial pod.
        wanted.insert("create pods".to_owned());
        assert_eq!(objects.all_rights("stowplan-test"), wanted);
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
        let is_rule = |pair: &&[&str]| pair[1].starts_with("- apiGroups:");
        assert!(lines.windows(2).any(|pair| is_rule(&pair)), "{name} has no rules");
        for pair in lines.windows(2).filter(is_rule) {
            assert!(pair[0].starts_with("# "), "{name}: why? {pair:?}");
        }
    }
}
