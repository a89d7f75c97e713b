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

fn changes(outcome: &Outcome) -> String {
    let changes = outcome.intents.iter().map(|intent| intent.change.to_string());
    changes.collect::<Vec<_>>().join("\n")
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
    let view = View::default();
    let text = changes(&admit(&[("role", "worker")], &view, ""));
    assert!(text.contains("at /root/.ssh") && text.contains("-p 2222"), "{text}");
    let policy = "mpi: {sshDir: /keys, sshPort: 2200}";
    let text = changes(&admit(&[("role", "worker")], &view, policy));
    assert!(text.contains("at /keys") && text.contains("-p 2200"), "{text}");
    let text = changes(&admit(&[("role", "worker")], &view, "mpi: {clusterDomain: kube.local}"));
    assert!(text.contains("DNS search c.ns.svc.kube.local"), "{text}");
    let own = [("role", "worker"), ("ssh-dir", "/own"), ("ssh-port", "23")];
    let text = changes(&admit(&own, &view, policy));
    assert!(text.contains("at /own") && text.contains("-p 23"), "{text}");
}
