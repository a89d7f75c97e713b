//! Node selector terms as logic: what implies what, and what excludes what.
//!
//! Terms are ORed and the requirements in a term are ANDed, so a new requirement belongs into every
//! existing term: a term of its own would widen the pod's choice instead of narrowing it. A term
//! without requirements matches nothing (Kubernetes API, `NodeSelectorTerm`).

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};

/// Whether the term has no requirement, hence matches no node.
#[must_use]
pub fn matches_nothing(term: &NodeSelectorTerm) -> bool {
    fields(term).is_empty() && expressions(term).is_empty()
}

/// Whether every node that `term` selects is also selected by `alternative`.
///
/// Sound, not complete: `false` only costs a requirement that was not needed.
#[must_use]
pub fn implies(term: &NodeSelectorTerm, alternative: &NodeSelectorTerm) -> bool {
    let covered = |wanted: &[NodeSelectorRequirement], present: &[NodeSelectorRequirement]| {
        wanted.iter().all(|w| present.iter().any(|p| requirement_implies(p, w)))
    };
    covered(fields(alternative), fields(term))
        && covered(expressions(alternative), expressions(term))
}

/// Whether no node can satisfy both terms.
///
/// Sound, not complete: only `In` against `In` or `NotIn` of the same key is looked at.
#[must_use]
pub fn excludes(term: &NodeSelectorTerm, alternative: &NodeSelectorTerm) -> bool {
    let clash = |left: &[NodeSelectorRequirement], right: &[NodeSelectorRequirement]| {
        left.iter().any(|l| right.iter().any(|r| requirements_clash(l, r)))
    };
    clash(fields(term), fields(alternative)) || clash(expressions(term), expressions(alternative))
}

/// The one node that a term names by `matchFields`, if it does.
#[must_use]
pub fn pinned_node(term: &NodeSelectorTerm) -> Option<&str> {
    fields(term).iter().find_map(|requirement| {
        match (requirement.operator.as_str(), values(requirement)) {
            ("In", [node]) if requirement.key == "metadata.name" => Some(node.as_str()),
            _ => None,
        }
    })
}

/// The requirements on fields.
#[must_use]
pub fn fields(term: &NodeSelectorTerm) -> &[NodeSelectorRequirement] {
    term.match_fields.as_deref().unwrap_or_default()
}

/// The requirements on labels.
#[must_use]
pub fn expressions(term: &NodeSelectorTerm) -> &[NodeSelectorRequirement] {
    term.match_expressions.as_deref().unwrap_or_default()
}

fn values(requirement: &NodeSelectorRequirement) -> &[String] {
    requirement.values.as_deref().unwrap_or_default()
}

fn requirement_implies(
    present: &NodeSelectorRequirement,
    wanted: &NodeSelectorRequirement,
) -> bool {
    if present.key != wanted.key {
        return false;
    }
    match (present.operator.as_str(), wanted.operator.as_str()) {
        // Every operator but these two fails on a node without the key.
        (operator, "Exists") => !matches!(operator, "NotIn" | "DoesNotExist"),
        ("In", "In") => {
            !values(present).is_empty()
                && values(present).iter().all(|v| values(wanted).contains(v))
        }
        _ => present == wanted,
    }
}

fn requirements_clash(left: &NodeSelectorRequirement, right: &NodeSelectorRequirement) -> bool {
    if left.key != right.key {
        return false;
    }
    match (left.operator.as_str(), right.operator.as_str()) {
        ("In", "In") => !values(left).iter().any(|v| values(right).contains(v)),
        ("In", "NotIn") => values(left).iter().all(|v| values(right).contains(v)),
        ("NotIn", "In") => values(right).iter().all(|v| values(left).contains(v)),
        ("In" | "Exists", "DoesNotExist") | ("DoesNotExist", "In" | "Exists") => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::intent::{on_labels, on_node};

    fn term(json: serde_json::Value) -> NodeSelectorTerm {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_narrower_term_implies_a_wider_one() {
        let pinned = on_node("n1");
        assert!(implies(&pinned, &pinned));
        assert!(!implies(&pinned, &on_node("n2")));
        let both = term(serde_json::json!({"matchExpressions": [
            {"key": "k", "operator": "In", "values": ["a"]},
            {"key": "zone", "operator": "Exists"},
        ]}));
        assert!(implies(&both, &on_labels(&[("k", None)])));
        assert!(implies(&both, &on_labels(&[("k", Some("a"))])));
        assert!(!implies(&both, &on_labels(&[("k", Some("b"))])));
        assert!(!implies(&both, &on_labels(&[("k", None), ("other", None)])));
    }

    #[test]
    fn an_in_without_values_implies_nothing() {
        let broken = term(
            serde_json::json!({"matchExpressions": [{"key": "k", "operator": "In", "values": []}]}),
        );
        assert!(!implies(&broken, &on_labels(&[("k", Some("a"))])));
    }

    #[test]
    fn not_in_does_not_imply_exists() {
        for operator in ["NotIn", "DoesNotExist"] {
            let t = term(
                serde_json::json!({"matchExpressions": [{"key": "k", "operator": operator, "values": ["a"]}]}),
            );
            assert!(!implies(&t, &on_labels(&[("k", None)])), "{operator}");
        }
    }

    #[test]
    fn clashes_are_seen() {
        assert!(excludes(&on_node("n1"), &on_node("n2")));
        assert!(!excludes(&on_node("n1"), &on_node("n1")));
        let not_n1 = term(
            serde_json::json!({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}),
        );
        assert!(excludes(&not_n1, &on_node("n1")));
        assert!(!excludes(&not_n1, &on_node("n2")));
        let without = term(
            serde_json::json!({"matchExpressions": [{"key": "k", "operator": "DoesNotExist"}]}),
        );
        assert!(excludes(&without, &on_labels(&[("k", None)])));
        assert!(!excludes(&without, &on_labels(&[("other", None)])));
    }

    #[test]
    fn only_one_name_pins() {
        assert_eq!(pinned_node(&on_node("n1")), Some("n1"));
        assert_eq!(pinned_node(&on_labels(&[("metadata.name", Some("n1"))])), None);
        assert!(matches_nothing(&NodeSelectorTerm::default()));
        assert!(matches_nothing(&term(serde_json::json!({"matchExpressions": []}))));
    }
}
