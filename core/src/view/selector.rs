//! Matches nodes with node selector terms, from the required node affinity of pods and volumes.

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};

/// Returns true if one of `terms` may select the node with this name. `label` returns `None` for a label of
/// which nothing is known: a requirement on it counts as satisfied. An empty list of terms, a term
/// without requirements, and a term with an invalid operator select no node. Without a `name`, requirements on
/// fields count as satisfied: of a volume's terms, Kubernetes looks at labels alone.
#[must_use]
pub(crate) fn may_select<'l>(
    terms: &[NodeSelectorTerm],
    name: Option<&str>,
    label: impl Fn(&str) -> Option<Option<&'l str>>,
) -> bool {
    terms.iter().any(|term| {
        let fields = term.match_fields.as_deref().unwrap_or_default();
        let expressions = term.match_expressions.as_deref().unwrap_or_default();
        let matches_field = |requirement: &NodeSelectorRequirement, name| {
            matches_value(requirement, (requirement.key == "metadata.name").then_some(name))
        };
        let may_match = |requirement: &NodeSelectorRequirement| {
            label(&requirement.key).is_none_or(|value| matches_value(requirement, value))
        };
        !(fields.is_empty() && expressions.is_empty())
            && fields.iter().all(|of| name.is_none_or(|name| matches_field(of, name)))
            && expressions.iter().all(may_match)
    })
}

fn matches_value(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let is_among = |value: &str| values.iter().any(|wanted| wanted == value);
    let compare = |than: fn(&i64, &i64) -> bool| match (value, values) {
        (Some(value), [bound]) => match (value.parse(), bound.parse()) {
            (Ok(value), Ok(bound)) => than(&value, &bound),
            _ => false,
        },
        _ => false,
    };
    match requirement.operator.as_str() {
        "In" => value.is_some_and(is_among),
        "NotIn" => !value.is_some_and(is_among),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(i64::gt),
        "Lt" => compare(i64::lt),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_node_must_match_all_requirements_of_one_term() {
        let labels = BTreeMap::from([("zone", "a"), ("cpus", "8")]);
        let selects = |terms| {
            let terms: Vec<NodeSelectorTerm> = serde_json::from_value(terms).unwrap();
            may_select(&terms, Some("n1"), |key| Some(labels.get(key).copied()))
        };
        let requirement = |key: &str, operator: &str, values: &[&str]| json!([{"key": key, "operator": operator, "values": values}]);
        let label = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": requirement(key, operator, values)});
        let name = |operator: &str| json!({"matchFields": requirement("metadata.name", operator, &["n1"])});
        for (yes, term) in [
            (true, label("zone", "In", &["b", "a"])),
            (false, label("zone", "In", &["b"])),
            (false, label("zone", "In", &[])),
            (false, label("rack", "In", &["a"])),
            (true, label("rack", "NotIn", &["a"])),
            (false, label("zone", "NotIn", &["a"])),
            (true, label("zone", "Exists", &[])),
            (true, label("rack", "DoesNotExist", &[])),
            (true, label("cpus", "Gt", &["7"])),
            (false, label("cpus", "Lt", &["8"])),
            (false, label("zone", "Gt", &["7"])),
            (false, label("zone", "Gt", &[])),
            (false, label("zone", "Is", &["a"])),
            (false, json!({})),
            (false, json!({"matchExpressions": [], "matchFields": []})),
            (true, name("In")),
            (false, name("NotIn")),
        ] {
            assert_eq!(selects(json!([term.clone()])), yes, "{term}");
        }
        assert!(!selects(json!([])));
        let other = json!([{"matchFields": requirement("metadata.name", "In", &["n2"])}]);
        let terms: Vec<NodeSelectorTerm> = serde_json::from_value(other.clone()).unwrap();
        assert!(!selects(other) && may_select(&terms, None, |_| None), "without a name");
        assert!(selects(json!([label("zone", "In", &["b"]), label("cpus", "Exists", &[])])));
    }
}
