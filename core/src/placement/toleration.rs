//! The taints that a toleration tolerates (Kubernetes, "Taints and Tolerations").

use k8s_openapi::api::core::v1::Toleration;

/// Returns true if `toleration` tolerates a taint with this key, value and effect.
#[must_use]
pub(crate) fn tolerates(toleration: &Toleration, key: &str, value: &str, effect: &str) -> bool {
    let own_key = toleration.key.as_deref().unwrap_or_default();
    let own_effect = toleration.effect.as_deref().unwrap_or_default();
    (own_effect.is_empty() || own_effect == effect)
        && match toleration.operator.as_deref() {
            // `Exists` without a key tolerates every taint.
            Some("Exists") => own_key.is_empty() || own_key == key,
            None | Some("" | "Equal") => {
                own_key == key && toleration.value.as_deref().unwrap_or_default() == value
            }
            // `Lt` and `Gt` are an alpha feature of Kubernetes.
            Some(_) => false,
        }
}

/// Returns true if one of `tolerations` tolerates the taint of a cordoned node.
pub(crate) fn tolerates_cordon<'t>(tolerations: impl IntoIterator<Item = &'t Toleration>) -> bool {
    const CORDON: &str = "node.kubernetes.io/unschedulable";
    tolerations.into_iter().any(|toleration| tolerates(toleration, CORDON, "", "NoSchedule"))
}
