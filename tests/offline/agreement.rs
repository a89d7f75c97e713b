//! `plan` and the webhook agree: random objects are planned, and what an API server would make of
//! them is reviewed. Compared are the verdict, the reasons, the changes, the warnings, and the
//! object after the patch.

mod cases;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};
use stowplan_core::admission::validate::validate;
use stowplan_core::admission::{Decision, Review};
use stowplan_core::systems;
use stowplan_core::systems::View;
use stowplan_core::systems::policy::Policy;

use cases::{made_claim, mistyped, pod_of_task_run, run, task_run, tekton, template_of};

use crate::cli::command::Folder;
use crate::planned_cases::{WORKLOADS, made, member, misshapen, pool_spec, workload};
use crate::pods::{Kind, patch_of, patched, random_cases, review_of, view_of};
use crate::properties::cluster::{Cluster, cluster, policy_text};
use crate::properties::job::job;
use crate::properties::pod::any_pod;

const OWN: &str = "stowplan.dev/v1alpha1";

/// The report about an object.
#[derive(Clone, Debug, PartialEq)]
struct Said {
    is_allowed: bool,
    reasons: Vec<String>,
    changes: Vec<String>,
    warnings: Vec<String>,
    /// The object that an API server would store; null if it is refused.
    stored: Value,
}

fn texts(list: &Value, key: &str) -> Vec<String> {
    let texts = list.as_array().into_iter().flatten();
    let text =
        |of: &Value| if key.is_empty() { of.as_str() } else { of[key].as_str() }.map(str::to_owned);
    texts.filter_map(text).collect()
}

impl Said {
    /// Reads the webhook's decision on an object that it is sent.
    fn by_webhook(decision: &Decision, sent: &Value) -> Self {
        let (findings, intents, warnings) = match decision {
            Decision::Refuse(refusal) => (&refusal.findings[..], &[][..], &refusal.warnings[..]),
            Decision::Admit(of) => (&of.findings[..], &of.intents[..], &of.warnings[..]),
            _ => (&[][..], &[][..], &[][..]),
        };
        let stored = patch_of(decision).map(|patch| patched(sent, &patch).expect("it applies"));
        Self {
            is_allowed: !matches!(decision, Decision::Refuse(_)),
            reasons: findings.iter().map(|of| of.reason.to_string()).collect(),
            changes: intents.iter().map(|of| of.change.to_string()).collect(),
            warnings: warnings.iter().map(|of| of.as_str().to_owned()).collect(),
            stored: stored.unwrap_or_default(),
        }
    }

    /// Plans each object of `input`; an error if it cannot read it. `store` makes
    /// of the patched object, and the number of what was said about it, what an API server would
    /// store.
    fn by_plan(
        input: &[Value],
        cluster: &[Value],
        policy: &str,
        store: impl Fn(usize, &Value) -> Value,
    ) -> Result<Vec<Self>, String> {
        let items = plan(input, cluster, policy)?;
        let said = items.iter().enumerate().map(|(number, item)| {
            let patch = serde_json::from_value::<json_patch::Patch>(item["patch"].clone());
            let object = input.get(number).unwrap_or(&input[0]);
            let object = patched(object, &patch.expect("a patch")).expect("it applies");
            let is_allowed = item["allowed"] == true;
            Self {
                is_allowed,
                reasons: texts(&item["findings"], "reason"),
                changes: texts(&item["intents"], "what"),
                warnings: texts(&item["warnings"], ""),
                stored: if is_allowed { store(number, &object) } else { Value::Null },
            }
        });
        Ok(said.collect())
    }
}

/// The items of the plan of `input`; an error if it cannot be read.
fn plan(input: &[Value], cluster: &[Value], policy: &str) -> Result<Vec<Value>, String> {
    let list = |items: &[Value]| json!({"apiVersion": "v1", "kind": "List", "items": items});
    let cluster = list(cluster).to_string();
    let folder = Folder::new(&[("cluster.json", &*cluster), ("policy.yaml", policy)]);
    let words = "--cluster cluster.json --policy policy.yaml -o json";
    let output = folder.plan_of(words, list(input).to_string());
    match output.code {
        0 | 1 => Ok(output.json()["items"].as_array().expect("a list").clone()),
        _ => Err(output.stderr),
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
    Said::by_webhook(&validate(&review, view, policy).unwrap(), object)
}

/// The decision on the creation of a pod or a claim; `None`: it cannot be read. It exists from then
/// on.
fn created(kind: Kind, object: &Value, view: &mut View, policy: &Policy) -> Option<Said> {
    let said = Said::by_webhook(&kind.decide("default", object, view, policy).ok()?, object);
    if let Ok(Some(object)) = systems::object(said.stored.clone()) {
        view.apply(object);
    }
    Some(said)
}

/// Policies of all systems.
fn policies() -> impl Strategy<Value = String> {
    let others = (
        select(vec!["adopt", "provision"]),
        select(vec!["disabled", "workspaces", "pipelineruns", "isolate-pipelinerun"]),
        select(vec!["{}", "{mode: enforced, declaredLabels: [app]}", "{declaredLabels: [tier]}"]),
        prop::bool::weighted(0.9),
    );
    (policy_text(), others).prop_map(|(text, (volumes, mode, katalyst, mpi))| {
        format!(
            "{text}\ncoschedule: {{volumes: {volumes}, mode: {mode}}}\nkatalyst: {katalyst}\nmpi: {{enabled: {mpi}}}"
        )
    })
}

/// Policies under which some jobs and pools ask for too much.
fn limits() -> impl Strategy<Value = String> {
    let on_invalid = select(vec!["refuse", "warn"]);
    (1..9_u32, 1..5_u32, on_invalid).prop_map(|(nodes, pools, on_invalid)| {
        format!(
            "onInvalid: {on_invalid}\n\
             hostPools: {{maxExclusiveNodesPerNamespace: {nodes}, maxPoolsPerNamespace: {pools}}}"
        )
    })
}

/// A cluster with storage classes: `now` binds at once, and `waits` is its sibling.
fn objects_of(cluster: &Cluster) -> Vec<Value> {
    let class = |(name, mode): (&str, &str)| {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": "example.com/disk", "volumeBindingMode": mode,
        })
    };
    let classes = [("now", "Immediate"), ("waits", "WaitForFirstConsumer")].map(class);
    [cluster.objects(), classes.to_vec()].concat()
}

/// The object that an API server reads: it takes null as absent.
fn without_null(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.iter().filter(|(_, value)| !value.is_null());
            Value::Object(members.map(|(key, value)| (key.clone(), without_null(value))).collect())
        }
        Value::Array(items) => items.iter().map(without_null).collect(),
        other => other.clone(),
    }
}

proptest! {
    #![proptest_config(random_cases(100))]

    #[test]
    fn on_pods_and_on_those_of_workloads(
        template in prop_oneof![any_pod().boxed(), member().boxed()],
        kind in select([&["Pod"], &WORKLOADS[..]].concat()),
        service in select(vec!["pi", "other", ""]),
        cluster in cluster(),
        policy in policies(),
    ) {
        let cluster = objects_of(&cluster);
        let mut view = view_of(cluster.clone());
        let policy_of = Policy::from_yaml(&policy).unwrap();
        let mut pod = template.clone();
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"]["name"] = json!("x");
        let object = if kind == "Pod" { pod } else { workload(kind, service, &template) };
        // The node for which `plan` shows a pod of a DaemonSet: one that is selected, if any is.
        let shown = plan(std::slice::from_ref(&object), &cluster, &policy);
        let node = shown.iter().flatten().find_map(|item| item["node"].as_str());
        let make = |object: &Value| match kind {
            "Pod" => object.clone(),
            _ => {
                let template = object.pointer(template_of(kind)).unwrap();
                // The patch of a StatefulSet may name another Service.
                let service = object["spec"]["serviceName"].as_str().unwrap_or_default();
                made(kind, service, node.unwrap_or("unknown"), template)
            }
        };
        let mut webhook = Vec::new();
        if kind == "WithClaim" {
            webhook.push(created(Kind::Claim, &made_claim(&object), &mut view, &policy_of));
        }
        webhook.push(created(Kind::Pod, &make(&object), &mut view, &policy_of));
        let webhook: Option<Vec<Said>> = webhook.into_iter().collect();
        let count = webhook.as_ref().map_or(0, Vec::len);
        let plan = Said::by_plan(std::slice::from_ref(&object), &cluster, &policy, |number, object| {
            if number + 1 < count { made_claim(object) } else { make(object) }
        });
        prop_assert_eq!(plan.as_ref().ok(), webhook.as_ref(), "{:?} {}", plan, object);
    }

    #[test]
    fn on_what_no_api_server_reads(
        mut template in member(),
        (pointer, value) in mistyped(),
        kind in select([&["Pod"], &WORKLOADS[..]].concat()),
        policy in policies(),
    ) {
        // With a key: other pods are not read.
        template["metadata"]["annotations"]["stowplan.dev/coschedule-group"] = json!("night");
        template["metadata"]["labels"] = json!({});
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        template.pointer_mut(parent).unwrap()[key] = value;
        let object = match kind {
            "Pod" => {
                let mut pod = template;
                pod["apiVersion"] = json!("v1");
                pod["kind"] = json!("Pod");
                if pod["metadata"].is_object() {
                    pod["metadata"]["name"] = json!("x");
                }
                pod
            }
            kind => workload(kind, "pi", &template),
        };
        let plan = plan(std::slice::from_ref(&object), &[], &policy);
        prop_assert!(plan.is_err(), "{:?} {}", plan, object);
    }

    #[test]
    fn on_the_claims_and_pods_of_runs(run in run(), cluster in cluster(), policy in policies()) {
        let cluster = objects_of(&cluster);
        let planned = plan(std::slice::from_ref(&run), &cluster, &policy);
        let item = &planned.as_ref().expect("a run is read")[0];
        let claims = item["run"]["claims"].as_array().cloned().unwrap_or_default();
        let name = |of: &Value| (of["workspace"].as_str().unwrap().to_owned(), of["name"].clone());
        let names: Map<String, Value> = claims.iter().map(name).collect();
        let (made_claims, pods) = tekton(&run, &names);
        let mut view = view_of(cluster);
        view.apply(systems::object(run.clone()).unwrap().unwrap());
        let policy = Policy::from_yaml(&policy).unwrap();
        prop_assert_eq!(claims.len(), made_claims.len());
        for (planned, claim) in claims.iter().zip(&made_claims) {
            let webhook = created(Kind::Claim, claim, &mut view, &policy).unwrap();
            let said = (texts(&planned["changes"], ""), texts(&planned["warnings"], ""));
            prop_assert_eq!(said, (webhook.changes, webhook.warnings), "{} {}", planned, run);
        }
        let tasks = item["run"]["tasks"].as_array().cloned().unwrap_or_default();
        prop_assert_eq!(tasks.len(), pods.len());
        for [task_run, _] in &pods {
            view.apply(systems::object(task_run.clone()).unwrap().unwrap());
        }
        let mut all_are_allowed = true;
        for (planned, [_, pod]) in tasks.iter().zip(&pods) {
            // Its tasks may begin at the same time.
            let decision = Kind::Pod.decide("default", pod, &view, &policy).unwrap();
            let mut webhook = Said::by_webhook(&decision, pod);
            let mut changes = texts(&planned["changes"], "");
            // Tekton does not say in what order a pod has the volumes of its workspaces.
            [&mut changes, &mut webhook.changes].into_iter().for_each(|all| all.sort_unstable());
            let said = (planned["allowed"] == true, changes, texts(&planned["warnings"], ""));
            all_are_allowed &= webhook.is_allowed;
            prop_assert_eq!(
                said, (webhook.is_allowed, webhook.changes, webhook.warnings), "{} {}", planned, run
            );
        }
        prop_assert_eq!(item["allowed"] == true, all_are_allowed, "{}", item);
    }

    #[test]
    fn on_the_pods_of_task_runs(
        task_run in task_run(),
        cluster in cluster(),
        policy in policies(),
    ) {
        let cluster = objects_of(&cluster);
        let mut view = view_of(cluster.clone());
        view.apply(systems::object(task_run.clone()).unwrap().unwrap());
        let pod = pod_of_task_run(&task_run);
        let policy_of = Policy::from_yaml(&policy).unwrap();
        let webhook = created(Kind::Pod, &pod, &mut view, &policy_of).expect("it is read");
        let store = |_: usize, _: &Value| webhook.stored.clone();
        let plan = Said::by_plan(std::slice::from_ref(&task_run), &cluster, &policy, store);
        prop_assert_eq!(plan.as_ref(), Ok(&vec![webhook.clone()]), "{}", task_run);
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
        let store = |_: usize, object: &Value| {
            let mut stored = object.clone();
            stored["metadata"]["uid"] = json!("u");
            stored
        };
        let plan = Said::by_plan(std::slice::from_ref(&object), &cluster, &policy, store);
        // The API server does not ask the webhook about what its definition refuses.
        let of_form = ["MalformedJob", "ImmutableSpec"];
        let is_malformed = |said: &Said| said.reasons.iter().any(|of| of_form.contains(&&**of));
        if plan.as_ref().is_ok_and(|said| is_malformed(&said[0])) {
            prop_assert!(!webhook.reasons.is_empty(), "{:?} {}", webhook, object);
        } else {
            prop_assert_eq!(plan, Ok(vec![webhook]), "{:?} {}", change, object);
        }
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
        for (number, pool) in pools.iter().enumerate() {
            let mut said = validated(pool, None, &view, &policy_of);
            if said.reasons.iter().any(|of| of == "MalformedPool") {
                // The definition refuses it, whatever the policy says.
                said = Said { is_allowed: false, warnings: Vec::new(), stored: Value::Null, ..said };
            }
            if said.is_allowed {
                let mut stored = pool.clone();
                stored["metadata"]["creationTimestamp"] =
                    json!(format!("2026-01-01T00:00:0{number}Z"));
                view.apply(systems::object(stored).unwrap().unwrap());
            }
            webhook.push(said);
        }
        let plan = Said::by_plan(&pools, &[], &policy, |_, pool| pool.clone());
        prop_assert_eq!(plan, Ok(webhook), "{:?}", pools);
    }

    #[test]
    fn on_the_form_of_pools_and_jobs(
        (kind, (parent, key, value, is_refused)) in select(vec!["HostPool", "StreamsJob"])
            .prop_flat_map(|kind| (Just(kind), misshapen(kind))),
        pool in pool_spec(),
    ) {
        let metadata = json!({"name": "o", "namespace": "default"});
        let spec = match kind {
            "HostPool" => pool,
            _ => json!({"processingElements": [{"name": "e", "operators": [{"name": "O"}]}]}),
        };
        let mut object = json!({"apiVersion": OWN, "kind": kind, "metadata": metadata, "spec": spec});
        object.pointer_mut(parent).unwrap()[key] = value;
        let plan = Said::by_plan(std::slice::from_ref(&object), &[], "", |_, of| without_null(of));
        let said = plan.as_ref().map(|said| &said[0]);
        if is_refused {
            prop_assert!(!said.is_ok_and(|said| said.is_allowed), "{:?} {}", plan, object);
        } else {
            let policy = Policy::from_yaml("").unwrap();
            let webhook = validated(&without_null(&object), None, &View::default(), &policy);
            prop_assert_eq!(said, Ok(&webhook), "{}", object);
        }
    }
}
