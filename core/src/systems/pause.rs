//! Pods of stowplan's own that hold a place on a node, or ask for one. They run `stowplan pause`, which does
//! nothing.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::view::Resources;

/// The annotations by which cluster-autoscaler and Karpenter leave a pod and its node alone, each with
/// its value.
pub(crate) const KEEPS_NODE: [(&str, &str); 2] = [
    ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
    ("karpenter.sh/do-not-disrupt", "true"),
];

/// The user ID of the container if the pod does not set one.
const USER: i64 = 65_532;

/// Returns the container of such a pod, without its resources. `has_user`: the pod sets the user.
#[must_use]
pub(crate) fn container(name: &str, image: &str, is_windows: bool, has_user: bool) -> Value {
    let mut security = match is_windows {
        true => json!({"runAsNonRoot": true}),
        false => json!({
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
            "runAsNonRoot": true,
            "seccompProfile": {"type": "RuntimeDefault"},
        }),
    };
    if !is_windows && !has_user {
        security["runAsUser"] = json!(USER);
    }
    json!({"name": name, "image": image, "args": ["pause"], "securityContext": security})
}

/// Returns the resources of a container that requests these. Of extended resources the limit must be the same.
#[must_use]
pub(crate) fn resources(requests: &Resources) -> Value {
    let others: BTreeMap<&str, String> =
        requests.other.iter().map(|(name, amount)| (&**name, amount.to_string())).collect();
    let is_extended = |name: &&str| name.contains('/') || name.starts_with("hugepages-");
    let limits: BTreeMap<_, _> = others.iter().filter(|(name, _)| is_extended(name)).collect();
    let mut resources = json!({"requests": others, "limits": limits});
    resources["requests"]["cpu"] = json!(format!("{}m", requests.milli_cpu));
    resources["requests"]["memory"] = json!(requests.memory.to_string());
    resources
}
