use super::*;
use crate::placement::object::Object;

fn admit(annotations: &[(&str, &str)], view: &View, policy: &str) -> Outcome {
    let mut pod = json!({
        "metadata": {
            "annotations": {"mpi.stowplan.dev/cluster": "c"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "w",
                "uid": "w", "controller": true}],
        },
        "spec": {"containers": [{"name": "main", "securityContext": {"runAsUser": 1000}}]},
    });
    for (key, value) in annotations {
        pod["metadata"]["annotations"][format!("mpi.stowplan.dev/{key}")] = json!(value);
    }
    if annotations.contains(&("role", "launcher")) {
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "l", "uid": "l", "controller": true});
        pod["metadata"]["ownerReferences"] = json!([job]);
    }
    let text = pod.to_string();
    let object: Object<'_> = serde_json::from_str(&text).unwrap();
    let pod = Pod::decode("ns", &object).unwrap();
    request(&pod, view, &Policy::from_yaml(policy).unwrap())
}

#[test]
fn a_cluster_that_waits_for_a_controller_gets_a_warning() {
    for (state, said) in [
        (ControllerState::Leads, None),
        (ControllerState::NotYet, Some("no controller of stowplan has led yet")),
        (ControllerState::Stopped, Some("has stopped renewing its Lease")),
    ] {
        for role in ["worker", "launcher"] {
            let mut view = View::default();
            view.set_controller(state);
            let outcome = admit(&[("role", role)], &view, "");
            let warnings: Vec<&str> = outcome.warnings.iter().map(Warning::as_str).collect();
            assert_eq!(warnings.len(), usize::from(said.is_some()), "{warnings:?}");
            assert!(said.is_none_or(|said| warnings[0].contains(said)), "{warnings:?}");
            assert!(!outcome.intents.is_empty(), "it is placed all the same");
        }
    }
}

#[test]
fn the_policy_has_the_directory_and_the_port_of_pods_that_name_none() {
    let own = [("role", "worker"), ("ssh-dir", "/own"), ("ssh-port", "23")];
    let policy = "mpi: {sshDir: /keys, sshPort: 2200}";
    for (annotations, policy, parts) in [
        (&own[..1], "", ["at /root/.ssh", "-p 2222"]),
        (&own[..1], policy, ["at /keys", "-p 2200"]),
        (&own, policy, ["at /own", "-p 23"]),
        (&own[..1], "mpi: {clusterDomain: kube.local}", ["DNS search c.ns.svc.kube.local", ""]),
    ] {
        let outcome = admit(annotations, &View::default(), policy);
        let changes: String = outcome.intents.iter().map(|of| format!("{}\n", of.change)).collect();
        assert!(parts.iter().all(|part| changes.contains(part)), "{policy}: {changes}");
    }
}
