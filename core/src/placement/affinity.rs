//! Compares node selector terms: whether one implies or excludes another.
//!
//! Terms are ORed and the requirements in a term are ANDed. So a new requirement must be added to every
//! existing term: as a term of its own it would allow more nodes instead of fewer. A term without
//! requirements matches no node (Kubernetes API, `NodeSelectorTerm`).

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};
use serde::Serialize;

/// A requirement of a node selector term, borrowed from its author.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub(crate) struct Requirement<'t> {
    /// The key of the field or the label.
    pub key: &'t str,
    /// The operator, as the API writes it.
    pub operator: &'t str,
    /// The values; empty for operators that take none.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub values: &'t [String],
}

impl<'t> From<&'t NodeSelectorRequirement> for Requirement<'t> {
    fn from(requirement: &'t NodeSelectorRequirement) -> Self {
        Self {
            key: &requirement.key,
            operator: &requirement.operator,
            values: requirement.values.as_deref().unwrap_or_default(),
        }
    }
}

/// A term: requirements that must all hold.
pub(crate) trait Requirements {
    /// The requirements on fields.
    fn fields(&self) -> impl Iterator<Item = Requirement<'_>>;
    /// The requirements on labels.
    fn expressions(&self) -> impl Iterator<Item = Requirement<'_>>;
}

impl Requirements for NodeSelectorTerm {
    fn fields(&self) -> impl Iterator<Item = Requirement<'_>> {
        self.match_fields.iter().flatten().map(Requirement::from)
    }

    fn expressions(&self) -> impl Iterator<Item = Requirement<'_>> {
        self.match_expressions.iter().flatten().map(Requirement::from)
    }
}

/// Returns true if the term has no requirement and so matches no node.
#[must_use]
pub(crate) fn matches_nothing(term: &impl Requirements) -> bool {
    term.fields().next().is_none() && term.expressions().next().is_none()
}

/// Returns true if every node that `term` selects is also selected by `alternative`.
///
/// `true` is certain; `false` may be wrong, and then only adds a requirement that was not needed.
#[must_use]
pub(crate) fn implies(term: &impl Requirements, alternative: &impl Requirements) -> bool {
    alternative.fields().all(|wanted| term.fields().any(|present| present.implies(wanted)))
        && alternative
            .expressions()
            .all(|wanted| term.expressions().any(|present| present.implies(wanted)))
}

/// Returns true if no node can satisfy both terms.
///
/// `true` is certain; `false` may be wrong: requirements are compared in pairs of the same key.
#[must_use]
pub(crate) fn excludes(term: &impl Requirements, alternative: &impl Requirements) -> bool {
    alternative.fields().any(|wanted| term.fields().any(|present| present.clashes(wanted)))
        || alternative
            .expressions()
            .any(|wanted| term.expressions().any(|present| present.clashes(wanted)))
}

/// The one node that a term names by `matchFields`, if any.
#[must_use]
pub(crate) fn pinned_node(term: &NodeSelectorTerm) -> Option<&str> {
    let mut requirements = term.match_fields.iter().flatten().map(Requirement::from);
    requirements.find_map(|requirement| match (requirement.operator, requirement.values) {
        ("In", [node]) if requirement.key == "metadata.name" => Some(node.as_str()),
        _ => None,
    })
}

/// Returns true if two requirements of the term exclude each other, so that it matches no node.
///
/// `true` is certain; `false` may be wrong, as for [`excludes`].
fn contradicts_itself(term: &NodeSelectorTerm) -> bool {
    let clash = |of: Option<&Vec<NodeSelectorRequirement>>| {
        let all = of.map(Vec::as_slice).unwrap_or_default();
        all.iter().enumerate().any(|(number, one)| {
            all[..number].iter().any(|other| Requirement::from(one).clashes(other.into()))
        })
    };
    clash(term.match_fields.as_ref()) || clash(term.match_expressions.as_ref())
}

/// The terms that can match a node. The others do not count: terms are ORed.
pub(crate) fn usable(terms: &[NodeSelectorTerm]) -> impl Iterator<Item = &NodeSelectorTerm> {
    terms.iter().filter(|term| !matches_nothing(*term) && !contradicts_itself(term))
}

/// The one node that all of a pod's terms name, if any. Terms that match no node are ignored.
#[must_use]
pub fn bound_to(terms: &[NodeSelectorTerm]) -> Option<&str> {
    let mut nodes = usable(terms).map(pinned_node);
    let first = nodes.next()??;
    nodes.all(|node| node == Some(first)).then_some(first)
}

/// The nodes that all of a pod's terms exclude by their names. Terms that match no node are ignored.
#[must_use]
pub(crate) fn excluded_nodes(terms: &[NodeSelectorTerm]) -> BTreeSet<&str> {
    let mut names = usable(terms).map(names_excluded);
    let first = names.next().unwrap_or_default();
    names.fold(first, |common, of| common.intersection(&of).copied().collect())
}

fn names_excluded(term: &NodeSelectorTerm) -> BTreeSet<&str> {
    let fields = term.match_fields.iter().flatten();
    let by_name = fields.filter(|of| of.key == "metadata.name" && of.operator == "NotIn");
    by_name.flat_map(|of| of.values.iter().flatten()).map(String::as_str).collect()
}

impl Requirement<'_> {
    fn implies(self, wanted: Requirement<'_>) -> bool {
        if self.key != wanted.key {
            return false;
        }
        match (self.operator, wanted.operator) {
            // Every operator except these two fails on a node without the label.
            (operator, "Exists") => !matches!(operator, "NotIn" | "DoesNotExist"),
            ("In", "In") => {
                !self.values.is_empty()
                    && self.values.iter().all(|value| wanted.values.contains(value))
            }
            ("In", "NotIn") => {
                !self.values.is_empty()
                    && !self.values.iter().any(|value| wanted.values.contains(value))
            }
            _ => self == wanted,
        }
    }

    fn clashes(self, other: Requirement<'_>) -> bool {
        if self.key != other.key {
            return false;
        }
        match (self.operator, other.operator) {
            ("In", "In") => !self.values.iter().any(|value| other.values.contains(value)),
            ("In", "NotIn") => self.values.iter().all(|value| other.values.contains(value)),
            ("NotIn", "In") => other.values.iter().all(|value| self.values.contains(value)),
            ("In" | "Exists", "DoesNotExist") | ("DoesNotExist", "In" | "Exists") => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::placement::intent::{off_nodes, on_labels, on_node};

    fn term(json: serde_json::Value) -> NodeSelectorTerm {
        serde_json::from_value(json).unwrap()
    }

    /// A term of one requirement on a label.
    fn label(key: &str, operator: &str, values: &[&str]) -> NodeSelectorTerm {
        let requirement = json!({"key": key, "operator": operator, "values": values});
        term(json!({"matchExpressions": [requirement]}))
    }

    /// A term of one requirement on the name for each of these nodes.
    fn names(operator: &str, nodes: &[&str]) -> NodeSelectorTerm {
        let field = |node| json!({"key": "metadata.name", "operator": operator, "values": [node]});
        let fields: Vec<_> = nodes.iter().map(field).collect();
        term(json!({"matchFields": fields}))
    }

    #[test]
    fn a_narrower_term_implies_a_wider_one() {
        for (narrow, wide, expected) in [
            (names("In", &["n1"]), on_node("n1"), true),
            (names("In", &["n1"]), on_node("n2"), false),
            (label("k", "In", &["a"]), on_labels(&[("k", None)]), true),
            (label("k", "In", &["a"]), on_labels(&[("k", None), ("other", None)]), false),
            (label("k", "In", &[]), on_labels(&[("k", Some("a"))]), false),
            (names("In", &["n3"]), off_nodes(&["n1", "n2"]), true),
            (names("In", &["n1"]), off_nodes(&["n1", "n2"]), false),
            (names("NotIn", &["n1", "n2"]), off_nodes(&["n2"]), true),
            (names("NotIn", &["n2"]), off_nodes(&["n1", "n2"]), false),
        ] {
            assert_eq!(implies(&narrow, &wide), expected, "{narrow:?} {wide:?}");
        }
    }

    #[test]
    fn terms_that_no_node_matches_together_exclude_each_other() {
        for (one, other, expected) in [
            (names("In", &["n1"]), on_node("n2"), true),
            (names("In", &["n1"]), on_node("n1"), false),
            (names("NotIn", &["n1"]), on_node("n1"), true),
            (names("NotIn", &["n1"]), on_node("n2"), false),
            (names("NotIn", &["n1", "n2"]), on_node("n2"), true),
            (names("NotIn", &["n1", "n2"]), on_node("n3"), false),
            (label("k", "DoesNotExist", &[]), on_labels(&[("k", None)]), true),
            (label("k", "DoesNotExist", &[]), on_labels(&[("other", None)]), false),
        ] {
            assert_eq!(excludes(&one, &other), expected, "{one:?} {other:?}");
        }
    }

    #[test]
    fn only_one_name_pins_and_every_term_excludes() {
        let named = json!([{"key": "metadata.name", "operator": "In", "values": ["n1"]}]);
        assert_eq!(pinned_node(&names("In", &["n1"])), Some("n1"));
        assert_eq!(pinned_node(&term(json!({"matchExpressions": named}))), None);
        let (n1, n2, empty) = (names("In", &["n1"]), names("In", &["n2"]), term(json!({})));
        // A member of a list that is not the reserved one: that term matches no node.
        let both = names("In", &["n1", "n2"]);
        for (terms, expected) in [
            (vec![], None),
            (vec![&n1, &n1], Some("n1")),
            (vec![&n1, &n2], None),
            // An empty term matches nothing.
            (vec![&empty, &n1], Some("n1")),
            (vec![&empty], None),
            (vec![&both, &n2], Some("n2")),
            (vec![&both], None),
        ] {
            let terms: Vec<_> = terms.into_iter().cloned().collect();
            assert_eq!(bound_to(&terms), expected, "{terms:?}");
        }
        assert!(matches_nothing(&empty));
        assert!(matches_nothing(&term(json!({"matchExpressions": []}))));
        let terms = [names("NotIn", &["n1", "n2"]), empty, names("NotIn", &["n2", "n3"])];
        assert_eq!(excluded_nodes(&terms), BTreeSet::from(["n2"]));
        assert!(excluded_nodes(&[]).is_empty());
    }
}
