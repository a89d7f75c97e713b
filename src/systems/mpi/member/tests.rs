use super::*;
use crate::placement::object::Object;

fn admit(annotations: &[(&str, &str)], view: &View, policy: &str) -> Outcome {
    let is_launcher = annotations.contains(&("role", "launcher"));
    let (version, kind) =
        if is_launcher { ("batch/v1", "Job") } else { ("apps/v1", "StatefulSet") };
    let owner =
        json!({"apiVersion": version, "kind": kind, "name": "w", "uid": "w", "controller": true});
    let mut pod = json!({
        "metadata": {"annotations": {"mpi.stowplan.dev/cluster": "c"}, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "main", "securityContext": {"runAsUser": 0}}]},
    });
    for (key, value) in annotations {
        pod["metadata"]["annotations"][format!("mpi.stowplan.dev/{key}")] = json!(value);
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
fn the_directory_and_the_port_of_a_pod_precede_those_of_the_policy() {
    let own = [("role", "worker"), ("ssh-dir", "/own"), ("ssh-port", "23")];
    let outcome = admit(&own, &View::default(), "mpi: {sshDir: /keys, sshPort: 2200}");
    let changes: String = outcome.intents.iter().map(|of| format!("{}\n", of.change)).collect();
    assert!(changes.contains("at /own") && changes.contains("-p 23"), "{changes}");
}
