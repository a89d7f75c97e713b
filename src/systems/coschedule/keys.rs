//! The vocabulary of coscheduling, and the names that follow from it.

use crate::view::digest;

pub use crate::policy::PARKED;
pub use crate::view::member::{GATE, INSTANCE, MEMBER};
pub use crate::view::pipeline_run::{AUTO_CLEANUP, MODE};
pub use crate::view::placeholder::{FAILED, KEY as GROUP_KEY, PLACEHOLDER};
pub use crate::view::storage::GROUP;
pub use crate::view::task_run::ASSISTANT;

/// All annotations that an author writes.
pub const ANNOTATIONS: &[&str] = &[GROUP, MODE];

/// What the name of every placeholder begins with. TEP-0135 calls them so.
pub const NAME_PREFIX: &str = "affinity-assistant-";

/// The label that says what a placeholder's pod is, and its value.
pub const COMPONENT: &str = "app.kubernetes.io/component";
/// The value of [`COMPONENT`].
pub const COMPONENT_VALUE: &str = "affinity-assistant";

/// The longest name of a claim template: it becomes the name of a volume in the pod.
const MAX_TEMPLATE: usize = 63;

/// The placeholder's name of a group of a run. By the UID, so that a run that is made again under the
/// same name has placeholders of its own.
#[must_use]
pub fn of_run(root_uid: &str, key: &str) -> String {
    name(&format!("{root_uid}/{key}"))
}

/// The placeholder's name of a native group.
#[must_use]
pub fn of_native(namespace: &str, group: &str) -> String {
    name(&format!("native/{namespace}/{group}"))
}

fn name(of: &str) -> String {
    [NAME_PREFIX, &digest::ten(of)].concat()
}

/// The name of the claim template that stands for a claim of a run: the claim's, cut to what the name
/// of a volume may be, as Tekton does (tektoncd/pipeline#9739). That is a DNS label, while a claim's own
/// name may have dots: they are replaced, and the digest tells the name from others.
#[must_use]
pub fn template(claim: &str) -> String {
    let of_label = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-';
    let is_label = !claim.is_empty()
        && claim.chars().all(|c| of_label(&c))
        && !claim.starts_with('-')
        && !claim.ends_with('-');
    if is_label && claim.len() <= MAX_TEMPLATE {
        return claim.to_owned();
    }
    let digest = digest::ten(claim);
    let kept = claim.chars().map(|c| Some(c).filter(of_label).unwrap_or('-'));
    let kept: String = kept.take(MAX_TEMPLATE - 1 - digest.len()).collect();
    match kept.trim_start_matches('-') {
        "" => digest,
        kept => format!("{kept}-{digest}"),
    }
}

/// The claim that the StatefulSet of a placeholder makes of that template.
#[must_use]
pub fn provisioned(claim: &str, placeholder: &str) -> String {
    format!("{}-{placeholder}-0", template(claim))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::pipeline_run::claim_name;

    #[test]
    fn names_are_tektons_where_they_must_be() {
        assert_eq!(claim_name(Some("pvc1"), "myws1", "taskrun1"), "pvc1-ad02547921");
        assert_eq!(claim_name(None, "foo", ""), "pvc-2c26b46b68");
        assert_eq!(claim_name(None, "test-workspace-vct", ""), "pvc-b9eea16dce");
        let long = "master-pipeline-700-generic-feature-execution-15943-error-handle";
        let claim = claim_name(Some(long), "my-workspace", "uid-1234");
        assert_eq!(claim.len(), 75);
        assert_eq!(
            provisioned(&claim, "affinity-assistant-0b79942a50"),
            "master-pipeline-700-generic-feature-execution-15943--2d329a96ae-affinity-assistant-0b79942a50-0"
        );
    }

    #[test]
    fn a_template_is_never_longer_than_a_volumes_name() {
        for length in [0, 1, 62, 63, 64, 253] {
            let claim = "é".repeat(length / 2) + &"a".repeat(length % 2);
            assert!(template(&claim).len() <= MAX_TEMPLATE, "{length}");
        }
        assert_eq!(template(&"a".repeat(63)), "a".repeat(63));
    }

    /// A claim's name may have dots, a volume's may not.
    #[test]
    fn a_template_is_always_the_name_of_a_volume() {
        let is_label = |name: &str| {
            let of_label = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            (1..=MAX_TEMPLATE).contains(&name.len())
                && name.chars().all(of_label)
                && !name.starts_with('-')
                && !name.ends_with('-')
        };
        assert_eq!(template("pvc-45de63a3f7"), "pvc-45de63a3f7");
        assert_eq!(template("my.src-45de63a3f7"), "my-src-45de63a3f7-6b0d35de56");
        assert_ne!(template("my.src-45de63a3f7"), template("my-src-45de63a3f7"));
        let long = ["a.b-".repeat(60), "c".to_owned()].concat();
        for claim in [
            "",
            ".",
            "-",
            "a.",
            ".a",
            "A",
            "é",
            "a b",
            "0.0",
            &long,
            &"é".repeat(200),
            &"-".repeat(70),
        ] {
            assert!(is_label(&template(claim)), "{claim:?}: {}", template(claim));
        }
    }

    #[test]
    fn no_two_groups_share_a_name() {
        let names = [
            of_run("u", ""),
            of_run("u", "a"),
            of_run("ua", ""),
            of_native("u", "a"),
            of_native("ua", ""),
        ];
        assert!(names.iter().all(|name| name.len() == 29 && name.starts_with(NAME_PREFIX)));
        let different: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(different.len(), names.len());
    }
}
