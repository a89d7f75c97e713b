use super::*;
use crate::placement::object::Object;

fn admit(annotations: &[(&str, &str)], view: &View, policy: &str) -> Outcome {
    admit_with(annotations, &Value::Null, view, policy)
}

/// Admits a pod whose container has these resources.
fn admit_with(
    annotations: &[(&str, &str)],
    resources: &Value,
    view: &View,
    policy: &str,
) -> Outcome {
    let is_launcher = annotations.contains(&("role", "launcher"));
    let (version, kind) =
        if is_launcher { ("batch/v1", "Job") } else { ("apps/v1", "StatefulSet") };
    let owner =
        json!({"apiVersion": version, "kind": kind, "name": "w", "uid": "w", "controller": true});
    let mut pod = json!({
        "metadata": {"annotations": {"mpi.stowplan.dev/cluster": "c"}, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "main", "securityContext": {"runAsUser": 0}, "resources": resources}]},
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

/// The QoS class of a pod with these containers, by Kubernetes' rules.
fn class_of(containers: &[&Value]) -> &'static str {
    let amount = |of: &Value, which: &str, name: &str| of[which][name].as_str().map(str::to_owned);
    let both = ["cpu", "memory"];
    let is_guaranteed = |of: &&Value| {
        both.iter().all(|name| {
            // The API server sets a missing request to the limit.
            let limit = amount(of, "limits", name);
            limit.is_some() && amount(of, "requests", name).is_none_or(|of| Some(of) == limit)
        })
    };
    let asks = |of: &&Value| {
        ["limits", "requests"]
            .iter()
            .any(|which| both.iter().any(|name| amount(of, which, name).is_some()))
    };
    match containers {
        all if all.iter().all(is_guaranteed) => "Guaranteed",
        all if all.iter().any(asks) => "Burstable",
        _ => "BestEffort",
    }
}

/// So a LimitRange that admits the one admits the other: by least and most amounts, and by the ratio of limit and
/// request.
#[test]
fn the_container_that_copies_the_keys_has_the_amounts_of_the_other() {
    let mut classes = std::collections::BTreeSet::new();
    for case in 0..81_usize {
        let mut resources =
            json!({"requests": {"example.com/nic": "1"}, "limits": {"example.com/nic": "1"}});
        let mut wanted = Value::Null;
        for (number, (which, name)) in RESOURCES.into_iter().enumerate() {
            let amount = ["", "500m", "1"][case / 3_usize.pow(number as u32) % 3];
            if !amount.is_empty() {
                resources[which][name] = json!(amount);
                wanted[which][name] = json!(amount);
            }
        }
        let outcome = admit_with(&[("role", "worker")], &resources, &View::default(), "");
        let copies = outcome.intents.iter().find_map(|intent| match &intent.change {
            Change::InitContainer { fields, .. } => Some(fields["resources"].clone()),
            _ => None,
        });
        let copies = copies.expect("an init container");
        assert_eq!(copies, wanted, "{resources}");
        let class = class_of(&[&resources]);
        assert_eq!(class_of(&[&resources, &copies]), class, "{resources}");
        classes.insert(class);
    }
    assert_eq!(classes.len(), 3);
}
