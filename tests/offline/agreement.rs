//! `plan` and the webhook agree: random objects are planned, and what an API server would make of them is
//! reviewed.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use stowplan::testing::admission::validate::validate;
use stowplan::testing::admission::{Decision, Review};
use stowplan::testing::systems;
use stowplan::testing::systems::policy::Policy;
use stowplan::testing::view::View;

use crate::cli::command::Folder;
use crate::planned_cases::{WORKLOADS, made, member, pool_spec, workload};
use crate::pods::{decide_pod, review_of, view_of};
use crate::properties::cluster::{cluster, policy_text};
use crate::properties::job::job;
use crate::properties::pod::any_pod;

const OWN: &str = "stowplan.dev/v1alpha1";

/// What is said about an object.
#[derive(Debug, PartialEq)]
struct Said {
    is_allowed: bool,
    reasons: Vec<String>,
    changes: Vec<String>,
}

impl Said {
    fn by_webhook(decision: &Decision) -> Self {
        let (findings, intents) = match decision {
            Decision::Refuse(refusal) => (&refusal.findings[..], &[][..]),
            Decision::Admit(admission) => (&admission.findings[..], &admission.intents[..]),
            _ => (&[][..], &[][..]),
        };
        Self {
            is_allowed: !matches!(decision, Decision::Refuse(_)),
            reasons: findings.iter().map(|of| of.reason.to_string()).collect(),
            changes: intents.iter().map(|of| of.change.to_string()).collect(),
        }
    }

    /// What `plan` says about each object of `input`; an error if it cannot read it.
    fn by_plan(input: &[Value], cluster: &[Value], policy: &str) -> Result<Vec<Self>, String> {
        let list = |items: &[Value]| json!({"apiVersion": "v1", "kind": "List", "items": items});
        let folder =
            Folder::new(&[("cluster.json", &*list(cluster).to_string()), ("policy.yaml", policy)]);
        let words = "--cluster cluster.json --policy policy.yaml -o json";
        let output = folder.plan_of(words, list(input).to_string());
        if output.code > 1 {
            return Err(output.stderr);
        }
        let texts = |list: &Value, key: &str| -> Vec<String> {
            let texts = list.as_array().into_iter().flatten();
            texts.filter_map(|of| of[key].as_str()).map(str::to_owned).collect()
        };
        let list = output.json();
        let said = list["items"].as_array().expect("a list").iter().map(|item| Self {
            is_allowed: item["allowed"] == true,
            reasons: texts(&item["findings"], "reason"),
            changes: texts(&item["intents"], "what"),
        });
        Ok(said.collect())
    }
}

/// The decision on a HostPool or a StreamsJob, created or in place of another.
fn validated(object: &Value, old: Option<&Value>, view: &View, policy: &Policy) -> Said {
    let mut review = review_of("default", object);
    let plural = if object["kind"] == "HostPool" { "hostpools" } else { "streamsjobs" };
    let request = &mut review["request"];
    request["resource"] =
        json!({"group": "stowplan.dev", "version": "v1alpha1", "resource": plural});
    if let Some(old) = old {
        request["operation"] = json!("UPDATE");
        request["oldObject"] = old.clone();
    }
    let bytes = review.to_string();
    let review = Review::parse(bytes.as_bytes()).unwrap();
    Said::by_webhook(&validate(&review, view, policy).unwrap())
}

/// Policies under which some jobs and pools ask for too much.
fn limits() -> impl Strategy<Value = String> {
    (1..9_u32, 1..5_u32).prop_map(|(nodes, pools)| {
        format!(
            "hostPools: {{maxExclusiveNodesPerNamespace: {nodes}, maxPoolsPerNamespace: {pools}}}"
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn on_pods_and_on_those_of_workloads(
        template in prop_oneof![any_pod().boxed(), member().boxed()],
        kind in select([&["Pod"], &WORKLOADS[..]].concat()),
        service in select(vec!["pi", "other", ""]),
        cluster in cluster(),
        policy in policy_text(),
    ) {
        let (object, pod) = match kind {
            "Pod" => {
                let mut pod = template;
                pod["apiVersion"] = json!("v1");
                pod["kind"] = json!("Pod");
                pod["metadata"]["name"] = json!("x");
                (pod.clone(), pod)
            }
            kind => (workload(kind, service, &template), made(kind, service, &template)),
        };
        let view = cluster.view();
        let webhook = decide_pod("default", &pod, &view, &Policy::from_yaml(&policy).unwrap());
        let webhook = webhook.map(|decision| vec![Said::by_webhook(&decision)]);
        let plan = Said::by_plan(std::slice::from_ref(&object), &cluster.objects(), &policy);
        prop_assert_eq!(plan.as_ref().ok(), webhook.as_ref().ok(), "{:?} {}", plan, object);
    }

    #[test]
    fn on_jobs_that_are_new_or_changed(
        (spec, objects) in job(),
        policy in limits(),
        change in prop::option::of(any::<bool>()),
    ) {
        let metadata = json!({"name": "j", "namespace": "default"});
        let mut object =
            json!({"apiVersion": OWN, "kind": "StreamsJob", "metadata": metadata, "spec": spec});
        let is_node = |object: &&Value| object["kind"] == "Node";
        let cluster: Vec<Value> = match change {
            None => objects.iter().filter(is_node).cloned().collect(),
            Some(_) => objects.clone(),
        };
        let pools = object["spec"]["pools"].as_array_mut();
        if change == Some(true) && let Some(pool) = pools.and_then(|pools| pools.last_mut()) {
            pool["size"] = json!(pool["size"].as_u64().unwrap_or_default() + 1);
        }
        let old = objects.iter().find(|old| old["kind"] == "StreamsJob");
        let old = old.filter(|_| change.is_some());
        let mut sent = object.clone();
        sent["metadata"]["uid"] = json!("u");
        let policy_of = Policy::from_yaml(&policy).unwrap();
        let webhook = validated(&sent, old, &view_of(cluster.clone()), &policy_of);
        let plan = Said::by_plan(std::slice::from_ref(&object), &cluster, &policy);
        prop_assert_eq!(plan, Ok(vec![webhook]), "{:?} {}", change, object);
    }

    #[test]
    fn on_pools_that_are_created_one_after_the_other(
        specs in vec(pool_spec(), 1..5),
        policy in limits(),
    ) {
        let pool = |(number, spec): (usize, &Value)| {
            let name = format!("p{}", 9 - number);
            let metadata = json!({"name": name, "namespace": "default"});
            json!({"apiVersion": OWN, "kind": "HostPool", "metadata": metadata, "spec": spec})
        };
        let pools: Vec<Value> = specs.iter().enumerate().map(pool).collect();
        let policy_of = Policy::from_yaml(&policy).unwrap();
        let mut view = View::default();
        let mut webhook = Vec::new();
        for pool in &pools {
            let said = validated(pool, None, &view, &policy_of);
            if said.is_allowed {
                view.apply(systems::object(pool.clone()).unwrap().unwrap());
            }
            webhook.push(said);
        }
        prop_assert_eq!(Said::by_plan(&pools, &[], &policy), Ok(webhook), "{:?}", pools);
    }
}
