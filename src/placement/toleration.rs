//! Which taints a toleration tolerates (Kubernetes, "Taints and Tolerations").

use k8s_openapi::api::core::v1::Toleration;

/// Whether `toleration` tolerates a taint with this key, value and effect.
#[must_use]
pub fn tolerates(toleration: &Toleration, key: &str, value: &str, effect: &str) -> bool {
    let own_key = toleration.key.as_deref().unwrap_or_default();
    let own_effect = toleration.effect.as_deref().unwrap_or_default();
    (own_effect.is_empty() || own_effect == effect)
        && match toleration.operator.as_deref() {
            // `Exists` without a key tolerates every taint.
            Some("Exists") => own_key.is_empty() || own_key == key,
            _ => own_key == key && toleration.value.as_deref().unwrap_or_default() == value,
        }
}

/// Whether one of `tolerations` tolerates the taint of a cordoned node.
pub fn tolerates_cordon<'t>(tolerations: impl IntoIterator<Item = &'t Toleration>) -> bool {
    const CORDON: &str = "node.kubernetes.io/unschedulable";
    tolerations.into_iter().any(|toleration| tolerates(toleration, CORDON, "", "NoSchedule"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_toleration_is_read_as_the_scheduler_reads_it() {
        for (toleration, wanted) in [
            (json!({"operator": "Exists"}), true),
            (json!({"operator": "Exists", "effect": "NoExecute"}), false),
            (json!({"key": "k", "operator": "Exists"}), true),
            (json!({"key": "other", "operator": "Exists"}), false),
            (json!({"key": "k", "value": "v"}), true),
            (json!({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}), true),
            (json!({"key": "k", "operator": "Equal", "value": "w", "effect": "NoSchedule"}), false),
            (json!({"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute"}), false),
            (json!({"key": "k"}), false),
            (json!({}), false),
        ] {
            let read: Toleration = serde_json::from_value(toleration.clone()).unwrap();
            assert_eq!(tolerates(&read, "k", "v", "NoSchedule"), wanted, "{toleration}");
        }
    }
}
