//! Tekton's driver and the volumes, as the tests of coscheduling use them; and what goes wrong
//! without coscheduling, which those tests must be able to show.

mod ends;
mod timelines;

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use kube::{Api, Client};
use serde_json::{Value, json};
use testbed::control_plane::{ControlPlane, NodeSpec, Options};
use testbed::tekton::{DURATION, Ended, FAIL, RESULTS, Tekton, ended};
use testbed::volumes::{IMMEDIATE, LOCAL, Volumes, WAITING};
use testbed::wait::{Seen, until};
use testbed::workload;

const LIMIT: Duration = Duration::from_secs(60);

/// A control plane with four nodes in two zones, volumes and Tekton.
struct World {
    plane: ControlPlane,
    client: Client,
    _volumes: Volumes,
    _tekton: Tekton,
}

impl World {
    async fn start() -> Self {
        let nodes = (1..=4).map(|number| {
            NodeSpec::new(&format!("node-{number}")).zone(if number % 2 == 1 {
                "east"
            } else {
                "west"
            })
        });
        let options = Options { nodes: nodes.collect(), ..Options::default() };
        let plane = ControlPlane::start(options).await.unwrap();
        let client = plane.client().await.unwrap();
        let volumes = Volumes::start(&client).await.unwrap();
        let tekton = Tekton::start(&client).await.unwrap();
        Self { plane, client, _volumes: volumes, _tekton: tekton }
    }

    fn objects(&self, namespace: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("tekton.dev", version, kind);
        Api::namespaced_with(self.client.clone(), namespace, &ApiResource::from_gvk(&kind))
    }

    async fn create(&self, namespace: &str, object: Value) {
        let version = object["apiVersion"].as_str().unwrap().split_once('/').unwrap().1.to_owned();
        let kind = object["kind"].as_str().unwrap().to_owned();
        let object = serde_json::from_value(object).unwrap();
        let api = self.objects(namespace, &version, &kind);
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    async fn run(&self, namespace: &str, name: &str, spec: Value) {
        let run = json!({
            "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
            "metadata": {"name": name}, "spec": spec,
        });
        self.create(namespace, run).await;
    }

    /// Changes the specification of a run.
    async fn patch_run(&self, namespace: &str, name: &str, spec: Value) {
        let runs = self.objects(namespace, "v1", "PipelineRun");
        let patch = Patch::Merge(json!({"spec": spec}));
        runs.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn succeeds(&self, namespace: &str, run: &str) {
        assert_eq!(ended(&self.client, namespace, run, LIMIT).await.unwrap(), Ended::Succeeded);
    }

    async fn pods(&self, namespace: &str) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        pods.list(&ListParams::default()).await.unwrap().items
    }

    async fn pod_names(&self, namespace: &str) -> Vec<String> {
        self.pods(namespace).await.into_iter().filter_map(|pod| pod.metadata.name).collect()
    }
}

fn claim_template(class: &str) -> Value {
    json!({"spec": {
        "storageClassName": class, "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }})
}

fn task(name: &str, after: &[&str], workspaces: &[&str]) -> Value {
    let named: Vec<_> = workspaces.iter().map(|name| json!({"name": name})).collect();
    json!({
        "name": name, "runAfter": after, "workspaces": named,
        "taskSpec": {
            "workspaces": named,
            "steps": [{"name": "work", "image": "busybox", "script": "true"}],
        },
    })
}

/// The use case of the proposal: clone into one workspace, build with it and a cache.
fn clone_and_build(class: &str) -> Value {
    json!({
        "workspaces": [
            {"name": "source", "volumeClaimTemplate": claim_template(class)},
            {"name": "cache", "volumeClaimTemplate": claim_template(class)},
        ],
        "pipelineSpec": {
            "workspaces": [{"name": "source"}, {"name": "cache"}],
            "tasks": [
                task("clone", &[], &["source"]),
                task("build", &["clone"], &["source", "cache"]),
            ],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_end_as_tektons_do_and_show_what_coscheduling_is_for() {
    let _one = crate::CONTROL_PLANE.lock().await;
    let world = World::start().await;
    for namespace in ["usual", "zones", "order", "flaky", "names", "alone", "reclaim", "lost"] {
        workload::namespace(&world.client, namespace).await.unwrap();
    }
    tokio::join!(
        the_use_case_with_volumes_that_wait(&world),
        two_volumes_in_two_zones_leave_a_pod_pending_for_ever(&world),
        tasks_come_in_the_order_of_the_pipeline(&world),
        an_attempt_that_fails_is_retried_and_finally_runs_all_the_same(&world),
        pipelines_by_name_by_resolver_in_pipelines_and_of_the_old_version(&world),
        a_task_run_of_its_own(&world),
        volumes_go_with_their_claims(&world),
        ends::a_task_that_times_out_is_retried(&world),
        ends::a_cancelled_run_cancels_the_runs_below_it(&world),
        ends::a_deleted_pod_without_a_node_is_made_again(&world),
        ends::a_deleted_pod_that_ran_fails_its_task(&world),
    );
    tokio::join!(
        timelines::a_run_of_five_tasks(&world),
        timelines::a_sidecar_outlives_its_task(&world),
        timelines::a_cancelled_run(&world),
        timelines::a_run_that_times_out(&world),
        timelines::a_retry_starts_before_the_last_pod_has_ended(&world),
        timelines::an_evicted_pod_is_retried(&world),
        timelines::a_quota_refuses_a_pod_for_a_while(&world),
    );
    a_lost_machine_ends_nothing(&world).await;
    world.plane.stop().await;
}

async fn the_use_case_with_volumes_that_wait(world: &World) {
    world.run("usual", "ci", clone_and_build(WAITING)).await;
    world.succeeds("usual", "ci").await;
    assert_eq!(world.pod_names("usual").await, ["ci-build-pod", "ci-clone-pod"]);
    // Nothing keeps pods without a volume in common together, not even those of one run.
    let spread = json!({
        "taskRunTemplate": {"podTemplate": {"topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"tekton.dev/pipelineRun": "spread"}},
        }]}},
        "pipelineSpec": {"tasks": [task("a", &[], &[]), task("b", &[], &[])]},
    });
    world.run("usual", "spread", spread).await;
    world.succeeds("usual", "spread").await;
    let pods = world.pods("usual").await;
    let of_spread =
        pods.iter().filter(|pod| pod.metadata.name.as_ref().unwrap().starts_with("spread"));
    let nodes: BTreeSet<_> =
        of_spread.map(|pod| pod.spec.as_ref().unwrap().node_name.clone()).collect();
    assert_eq!(nodes.len(), 2, "{nodes:?}");
}

async fn two_volumes_in_two_zones_leave_a_pod_pending_for_ever(world: &World) {
    world.run("zones", "ci", clone_and_build(IMMEDIATE)).await;
    let why = workload::unschedulable(&world.client, "zones", "ci-build-pod").await.unwrap();
    assert!(why.contains("didn't match PersistentVolume's node affinity"), "{why}");
    let error = ended(&world.client, "zones", "ci", Duration::from_secs(5)).await.unwrap_err();
    let text = format!("{error:#}");
    assert!(text.contains("ci-build-pod Pending on no node"), "{text}");
}

async fn tasks_come_in_the_order_of_the_pipeline(world: &World) {
    let mut make = task("make", &[], &[]);
    make["taskSpec"]["metadata"] = json!({"annotations": {
        RESULTS: r#"{"claim": "made"}"#, DURATION: "2s",
    }});
    let mut matrix = task("test", &["make"], &["later"]);
    matrix["matrix"] = json!({"params": [{"name": "os", "value": ["linux", "mac"]}]});
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(world.client.clone(), "order");
    let claim = json!({
        "metadata": {"name": "made"}, "spec": claim_template(LOCAL)["spec"],
    });
    claims.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    let spec = json!({
        "workspaces": [
            {"name": "later", "persistentVolumeClaim": {"claimName": "$(tasks.make.results.claim)"}},
        ],
        "pipelineSpec": {
            "workspaces": [{"name": "later"}],
            "tasks": [matrix, make],
            "finally": [task("tell", &[], &[])],
        },
    });
    world.run("order", "ci", spec).await;
    world.succeeds("order", "ci").await;
    let pods = world.pods("order").await;
    let pod =
        |name: &str| pods.iter().find(|pod| pod.metadata.name.as_deref() == Some(name)).unwrap();
    let began = |name: &str| pod(name).metadata.creation_timestamp.clone().unwrap();
    for test in ["ci-test-0-pod", "ci-test-1-pod"] {
        assert!(began(test) > began("ci-make-pod") && began("ci-tell-pod") >= began(test));
        let volumes = pod(test).spec.as_ref().unwrap().volumes.as_ref().unwrap();
        let claims = volumes.iter().filter_map(|it| it.persistent_volume_claim.as_ref());
        assert_eq!(claims.map(|claim| &*claim.claim_name).collect::<Vec<_>>(), ["made"]);
    }
}

async fn an_attempt_that_fails_is_retried_and_finally_runs_all_the_same(world: &World) {
    let mut flaky = task("flaky", &[], &[]);
    flaky["retries"] = json!(1);
    let spec = json!({
        "pipelineSpec": {
            "tasks": [flaky, task("after", &["flaky"], &[])],
            "finally": [task("tell", &[], &[])],
        },
        "taskRunSpecs": [{"pipelineTaskName": "flaky", "metadata": {
            "annotations": {FAIL: "once"}, "labels": {"tekton.dev/pipelineRun": "another"},
        }}],
    });
    world.run("flaky", "once", spec.clone()).await;
    let mut always = spec;
    always["taskRunSpecs"][0]["metadata"]["annotations"][FAIL] = json!("always");
    world.run("flaky", "always", always).await;
    world.succeeds("flaky", "once").await;
    let end = ended(&world.client, "flaky", "always", LIMIT).await.unwrap();
    assert!(matches!(end, Ended::Failed(_)), "{end:?}");
    let names = world.pod_names("flaky").await;
    let wanted = [
        "always-flaky-pod",
        "always-flaky-pod-retry1",
        "always-tell-pod",
        "once-after-pod",
        "once-flaky-pod",
        "once-flaky-pod-retry1",
        "once-tell-pod",
    ];
    assert_eq!(names, wanted);
    let pods = world.pods("flaky").await;
    let labels = pods[0].metadata.labels.as_ref().unwrap();
    assert_eq!(labels["tekton.dev/pipelineRun"], "another");
    assert_eq!(labels["tekton.dev/taskRun"], "always-flaky");
}

async fn pipelines_by_name_by_resolver_in_pipelines_and_of_the_old_version(world: &World) {
    let spec = clone_and_build(WAITING);
    let pipeline = json!({
        "apiVersion": "tekton.dev/v1", "kind": "Pipeline",
        "metadata": {"name": "build"}, "spec": spec["pipelineSpec"],
    });
    world.create("names", pipeline).await;
    let with = |pipeline: Value| {
        let mut run = json!({"workspaces": spec["workspaces"]});
        run.as_object_mut().unwrap().extend(pipeline.as_object().cloned().unwrap());
        run
    };
    world.run("names", "name", with(json!({"pipelineRef": {"name": "build"}}))).await;
    let resolver = json!({"resolver": "cluster", "params": [{"name": "name", "value": "build"}]});
    world.run("names", "resolver", with(json!({"pipelineRef": resolver}))).await;
    let workspaces = json!([{"name": "source"}, {"name": "cache"}]);
    let nested = json!({"pipelineSpec": {
        "workspaces": workspaces,
        "tasks": [{"name": "inner", "workspaces": workspaces, "pipelineSpec": spec["pipelineSpec"]}],
    }});
    world.run("names", "outer", with(nested)).await;
    world.run("names", "none", json!({"pipelineRef": {"name": "none"}})).await;
    let old = json!({
        "apiVersion": "tekton.dev/v1beta1", "kind": "PipelineRun", "metadata": {"name": "old"},
        "spec": {
            "podTemplate": {"nodeSelector": {"kubernetes.io/hostname": "node-3"}},
            "pipelineSpec": {"tasks": [task("only", &[], &[])]},
        },
    });
    world.create("names", old).await;
    for run in ["name", "resolver", "outer", "old"] {
        world.succeeds("names", run).await;
    }
    let none = ended(&world.client, "names", "none", LIMIT).await.unwrap();
    assert_eq!(none, Ended::Failed("no such Pipeline".to_owned()));
    assert_eq!(
        workload::scheduled(&world.client, "names", "old-only-pod").await.unwrap(),
        "node-3"
    );
    // The claims of the inner run are the outer one's.
    let inner = world.objects("names", "v1", "PipelineRun").get("outer-inner").await.unwrap();
    let claims = inner.data["spec"]["workspaces"].as_array().unwrap();
    assert!(
        claims.iter().all(|it| it["persistentVolumeClaim"]["claimName"].is_string()),
        "{claims:?}"
    );
}

async fn a_task_run_of_its_own(world: &World) {
    let spec = task("only", &[], &["source"])["taskSpec"].clone();
    let task_run = json!({
        "apiVersion": "tekton.dev/v1", "kind": "TaskRun", "metadata": {"name": "only"},
        "spec": {
            "taskSpec": spec,
            "workspaces": [{"name": "source", "volumeClaimTemplate": claim_template(WAITING)}],
        },
    });
    world.create("alone", task_run).await;
    workload::scheduled(&world.client, "alone", "only-pod").await.unwrap();
    let pod = &world.pods("alone").await[0];
    let owner = &pod.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((&*owner.kind, owner.controller), ("TaskRun", Some(true)));
}

async fn volumes_go_with_their_claims(world: &World) {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(world.client.clone(), "reclaim");
    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
    for name in ["a", "b"] {
        let claim = json!({"metadata": {"name": name}, "spec": claim_template(IMMEDIATE)["spec"]});
        claims
            .create(&PostParams::default(), &serde_json::from_value(claim).unwrap())
            .await
            .unwrap();
    }
    let bound = until("both claims to be bound", LIMIT, async || {
        let claims = claims.list(&ListParams::default()).await?.items;
        let bound: Vec<String> =
            claims.into_iter().filter_map(|claim| claim.spec?.volume_name).collect();
        Ok(if bound.len() == 2 { Seen::Done(bound) } else { Seen::NotYet(format!("{bound:?}")) })
    })
    .await
    .unwrap();
    let mut zones = BTreeSet::new();
    for name in &bound {
        let affinity = volumes.get(name).await.unwrap().spec.unwrap().node_affinity.unwrap();
        zones.insert(serde_json::to_value(affinity).unwrap().to_string());
    }
    assert_eq!(zones.len(), 2, "{zones:?}");
    for name in ["a", "b"] {
        claims.delete(name, &DeleteParams::default()).await.unwrap();
    }
    until("the volumes to go", LIMIT, async || {
        let mut left = Vec::new();
        for name in &bound {
            left.extend(volumes.get_metadata_opt(name).await?.and_then(|it| it.metadata.name));
        }
        Ok(if left.is_empty() { Seen::Done(()) } else { Seen::NotYet(format!("{left:?}")) })
    })
    .await
    .unwrap();
}

async fn a_lost_machine_ends_nothing(world: &World) {
    let mut only = task("only", &[], &[]);
    only["taskSpec"]["metadata"] = json!({"annotations": {DURATION: "2s"}});
    let spec = json!({
        "taskRunTemplate": {"podTemplate": {"nodeSelector": {"kubernetes.io/hostname": "node-4"}}},
        "pipelineSpec": {"tasks": [only]},
    });
    world.run("lost", "ci", spec).await;
    workload::scheduled(&world.client, "lost", "ci-only-pod").await.unwrap();
    world.plane.lose_node("node-4").await.unwrap();
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), "lost");
    pods.delete("ci-only-pod", &DeleteParams::default()).await.unwrap();
    ended(&world.client, "lost", "ci", Duration::from_secs(5)).await.unwrap_err();
    let pod = pods.get("ci-only-pod").await.unwrap();
    assert!(pod.metadata.deletion_timestamp.is_some());
    world.plane.recover_node("node-4").await.unwrap();
    // The kubelet ends the pod that was deleted meanwhile, and the TaskRun fails.
    let end = ended(&world.client, "lost", "ci", LIMIT).await.unwrap();
    assert!(matches!(end, Ended::Failed(_)), "{end:?}");
    assert_eq!(world.pod_names("lost").await, ["ci-only-pod"; 0]);
}
