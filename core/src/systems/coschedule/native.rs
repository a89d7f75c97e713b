//! Native groups: pods of a namespace that request by annotation to share a node.

use super::keys;
use crate::names::is_label_name;
use crate::placement::reason::{Finding, Reason, quoted};

/// Parses the annotation [`keys::GROUP`]: the name of the placeholder of the group that it names.
///
/// # Errors
/// If the value is not a valid group name: a nonempty label value.
pub(crate) fn parse_group(namespace: &str, group: &str) -> Result<String, Finding> {
    if !is_label_name(group) {
        return Err(Finding::new(
            Reason::InvalidGroup,
            keys::GROUP,
            format!("{} is not a valid group name", quoted(group)),
            "write 1 to 63 letters, digits, - _ or ., with a letter or digit at both ends",
        ));
    }
    Ok(keys::of_native(namespace, group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_name_is_a_label_value() {
        let (longest, longer, huge) = ("g".repeat(63), "g".repeat(64), "g".repeat(262_144));
        for group in ["a", "A.b-c_d", "1", &longest] {
            assert!(parse_group("ns", group).unwrap().starts_with(keys::NAME_PREFIX));
        }
        for group in ["", " ", "-a", "a-", "a b", "a/b", "é", "a\n", "[\"a\"]", &longer, &huge] {
            let finding = parse_group("ns", group).expect_err(group);
            assert_eq!(finding.reason, Reason::InvalidGroup);
            assert!(finding.to_string().len() < 400);
        }
    }
}
