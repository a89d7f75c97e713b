//! The members of a pool that a pod names by the label `kubernetes.io/hostname`.

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};

use crate::kubernetes::HOSTNAME;
use crate::systems::streams::kinds::host_pool::POOL_LABEL_PREFIX;

/// The hostnames of the members of a pool that a pod may run on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Listed {
    /// The pool's hash.
    pub hash: Box<str>,
    /// The index, if the pod asks for one member.
    pub index: Option<u32>,
    pub hostnames: Box<[String]>,
}

/// Takes the requirements of hostnames that the webhook wrote out of the terms of a pod: each follows
/// that of the label of its pool. The pool says which members it has now.
pub(super) fn take(terms: &mut [NodeSelectorTerm]) -> Box<[Listed]> {
    let mut all: Vec<Listed> = Vec::new();
    for expressions in terms.iter_mut().filter_map(|term| term.match_expressions.as_mut()) {
        let mut pool: Option<(Box<str>, Option<u32>)> = None;
        expressions.retain(|requirement| {
            let own =
                pool.take().filter(|_| requirement.key == HOSTNAME && requirement.operator == "In");
            let Some((hash, index)) = own else {
                pool = pool_of(requirement);
                return true;
            };
            let hostnames = requirement.values.clone().unwrap_or_default().into();
            let listed = Listed { hash, index, hostnames };
            if !all.contains(&listed) {
                all.push(listed);
            }
            false
        });
    }
    all.into()
}

/// The hash of the pool whose label a requirement is about, and the index if it is for one member.
fn pool_of(requirement: &NodeSelectorRequirement) -> Option<(Box<str>, Option<u32>)> {
    let hash = requirement.key.strip_prefix(POOL_LABEL_PREFIX)?;
    let index = requirement.values.iter().flatten().find_map(|value| value.parse().ok());
    Some((hash.into(), index))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_hostnames_after_the_label_of_a_pool_are_taken() {
        let pool = json!({"key": format!("{POOL_LABEL_PREFIX}0123456789"), "operator": "Exists"});
        let member = json!({"key": format!("{POOL_LABEL_PREFIX}0123456789"), "operator": "In", "values": ["1"]});
        let names = json!({"key": HOSTNAME, "operator": "In", "values": ["a", "b"]});
        let exists = json!({"key": HOSTNAME, "operator": "Exists"});
        let listed = |index| {
            let hostnames = ["a".to_owned(), "b".to_owned()].into();
            Listed { hash: "0123456789".into(), index, hostnames }
        };
        for (expressions, kept, expected) in [
            (json!([pool, names]), json!([pool]), vec![listed(None)]),
            (json!([member, names]), json!([member]), vec![listed(Some(1))]),
            // The author's own, before and after.
            (json!([names, pool, names, names]), json!([names, pool, names]), vec![listed(None)]),
            (json!([names, pool]), json!([names, pool]), vec![]),
            (json!([pool, exists, names]), json!([pool, exists, names]), vec![]),
            (json!([pool]), json!([pool]), vec![]),
            (json!([]), json!([]), vec![]),
        ] {
            let term =
                |of: &Value| serde_json::from_value(json!({"matchExpressions": of})).unwrap();
            let mut terms: [NodeSelectorTerm; 2] = [term(&expressions), term(&expressions)];
            assert_eq!(*take(&mut terms), *expected, "{expressions}");
            assert_eq!(terms, [term(&kept), term(&kept)], "{expressions}");
        }
    }
}
