//! The annotations, labels and gates of coscheduling, and the names that are derived from a group.

use crate::names::{is_dns_label, is_label_name, short_digest};

/// The annotation that puts a pod or a claim into a group of its namespace. Users write it.
pub const GROUP: &str = "stowplan.dev/coschedule-group";

/// The annotation that selects which pods of a run share a node. Users write it on runs, Pipelines
/// and namespaces; placeholders and their claims carry the mode that they were created for.
pub const MODE: &str = "stowplan.dev/coschedule";

/// The annotation of a claim or a storage class whose value `"false"` lets the pods of a claim run on
/// several nodes, in a namespace with the label [`ONE_NODE_CLAIMS`]. Users write it.
pub const ONE_NODE: &str = "stowplan.dev/one-node";

/// The annotations that users write.
pub const ANNOTATIONS: &[&str] = &[GROUP, MODE, ONE_NODE];

/// The label of a namespace whose value `"true"` makes pods that mount the same claim share a node, if
/// only one node can mount it at a time. Users write it. It is also the label of a pod that has waited
/// behind [`CLAIMS_GATE`], with the value [`WAITED`], or [`WAITED_PINNED`].
pub const ONE_NODE_CLAIMS: &str = "stowplan.dev/one-node-claims";

/// The value of [`ONE_NODE_CLAIMS`] on a pod that has waited.
pub const WAITED: &str = "true";

/// The value of [`ONE_NODE_CLAIMS`] on such a pod whose author requires a node by its name.
pub const WAITED_PINNED: &str = "pinned";

/// The scheduling gate that holds a pod until all pods that mount one of its claims are on one node.
pub const CLAIMS_GATE: &str = "stowplan.dev/one-node-claims";

/// The prefix of the labels of a pod that name the claims it mounts.
pub const CLAIM_PREFIX: &str = "claim.stowplan.dev/";

/// The value of those labels.
pub const MOUNTED: &str = "true";

/// The label of a group's pods; its value is the name of the group's placeholder. The
/// placeholder's own pod has it too: the scheduler counts that pod as a member.
pub const MEMBER: &str = "stowplan.dev/coschedule-member";

/// The scheduling gate that holds a member until its placeholder has a node.
pub const GATE: &str = "stowplan.dev/placeholder";

/// The label of a placeholder, its pod and its claims; its value is the placeholder's name.
pub const PLACEHOLDER: &str = "stowplan.dev/placeholder";

/// The annotation of a run's placeholder: the `Record` of its group. Like [`PLAN`] it has another prefix
/// than the annotations that users write.
pub const RECORD: &str = "coschedule.stowplan.dev/group";

/// The label of a run's placeholder and of its pod, for people: the name of the run, if it is a label
/// value. Nothing reads it.
pub const SERVED_RUN: &str = "coschedule.stowplan.dev/pipelinerun";

/// The label of a native group's placeholder and of its pod, for people: the name of the group.
pub const SERVED_GROUP: &str = "coschedule.stowplan.dev/group-name";

/// The annotation of a placeholder that has no pod, so that new members do not wait for it: `true` if its StatefulSet
/// cannot create one; if it has stepped aside for the pods of its group, because a quota or a queue has no room for
/// both, since when, in seconds since 1970. It is also the label, with the value `true`, of pods that then run without
/// it.
pub const FAILED: &str = "stowplan.dev/placeholder-failed";

/// The annotation of a placeholder without a pod: since when, in seconds since 1970. Rarely
/// written: the StatefulSet controller replaces a deleted pod within moments.
pub const MISSING_SINCE: &str = "stowplan.dev/missing-since";

/// The annotation of a native group's placeholder without members: since when, in seconds since
/// 1970.
pub const IDLE_SINCE: &str = "stowplan.dev/idle-since";

/// The annotation of a placeholder's pod template: its `PodPlan`. It has another
/// prefix than the annotations that users write, because admission refuses unknown keys under that
/// one.
pub const PLAN: &str = "coschedule.stowplan.dev/plan";

/// The label that names the placeholder on its pod.
pub const INSTANCE: &str = "app.kubernetes.io/instance";

/// The label that marks the pods of placeholders.
pub const COMPONENT: &str = "app.kubernetes.io/component";
/// The value of [`COMPONENT`].
pub const COMPONENT_VALUE: &str = "affinity-assistant";

/// The storage class of claims that must never be bound, because the placeholder's own claims
/// replace them (`volumes: provision`). No other class may be mapped to it.
pub const PARKED: &str = "stowplan-parked";

/// Tekton's annotation of the TaskRuns and pods that Tekton's own affinity assistant places.
pub const ASSISTANT: &str = "pipeline.tekton.dev/affinity-assistant";

/// The annotation of a run whose claims Tekton deletes when the run has ended.
pub const AUTO_CLEANUP: &str = "tekton.dev/auto-cleanup-pvc";

/// The label of a TaskRun with the name of its task in the pipeline.
pub const PIPELINE_TASK: &str = "tekton.dev/pipelineTask";

/// The prefix of every placeholder's name. TEP-0135 uses it for its affinity assistants.
pub const NAME_PREFIX: &str = "affinity-assistant-";

/// The longest name in a label's key, after its prefix.
const MAX_LABEL_NAME: usize = 63;

/// The key of the label of a pod that mounts this claim. A longer name than a label's key takes is cut, and a
/// digest keeps it unique.
#[must_use]
pub fn of_claim(claim: &str) -> String {
    if is_label_name(claim) {
        return [CLAIM_PREFIX, claim].concat();
    }
    let digest = short_digest(claim);
    let kept = claim.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.'));
    let kept: String = kept.take(MAX_LABEL_NAME - 1 - digest.len()).collect();
    let kept = kept.trim_start_matches(['-', '.']);
    [CLAIM_PREFIX, kept, if kept.is_empty() { "" } else { "-" }, &digest].concat()
}

/// The longest name of a claim template, which is the name of a volume in the pod.
const MAX_TEMPLATE: usize = 63;

/// The name of the placeholder of a run's group. It is derived from the run's UID, so that a run
/// that is created again with the same name gets new placeholders.
#[must_use]
pub fn of_run(root_uid: &str, key: &str) -> String {
    name(&format!("{root_uid}/{key}"))
}

/// The name of the placeholder of a native group.
#[must_use]
pub fn of_native(namespace: &str, group: &str) -> String {
    name(&format!("native/{namespace}/{group}"))
}

fn name(group: &str) -> String {
    [NAME_PREFIX, &short_digest(group)].concat()
}

/// The name of the claim template that replaces a run's claim: the claim's name, shortened to a
/// valid volume name as Tekton does it (tektoncd/pipeline#9739). A volume name is a DNS label, while
/// a claim's name may have dots: these are replaced, and a digest keeps the name unique.
#[must_use]
pub fn template(claim: &str) -> String {
    let is_allowed = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-';
    if is_dns_label(claim) {
        return claim.to_owned();
    }
    let digest = short_digest(claim);
    let kept = claim.chars().map(|c| Some(c).filter(is_allowed).unwrap_or('-'));
    let kept: String = kept.take(MAX_TEMPLATE - 1 - digest.len()).collect();
    match kept.trim_start_matches('-') {
        "" => digest,
        kept => format!("{kept}-{digest}"),
    }
}

/// The name of the claim that the StatefulSet of a placeholder creates from that template.
#[must_use]
pub fn provisioned(claim: &str, placeholder: &str) -> String {
    format!("{}-{placeholder}-0", template(claim))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A claim's name may have dots, a volume's may not.
    #[test]
    fn a_template_name_is_always_a_valid_volume_name() {
        assert_eq!(template("pvc-45de63a3f7"), "pvc-45de63a3f7");
        assert_eq!(template("my.src-45de63a3f7"), "my-src-45de63a3f7-6b0d35de56");
        assert_ne!(template("my.src-45de63a3f7"), template("my-src-45de63a3f7"));
        assert_eq!(template(&"a".repeat(63)), "a".repeat(63));
        let long = ["a.b-".repeat(60), "c".to_owned()].concat();
        let odd = ["", ".", "-", "a.", ".a", "A", "é", "a b", "0.0", &long].map(str::to_owned);
        let repeated = [("é", 31), ("é", 200), ("a", 62), ("a", 64), ("a", 253), ("-", 70)];
        let repeated = repeated.map(|(text, times)| text.repeat(times));
        for claim in odd.iter().chain(&repeated) {
            let name = template(claim);
            assert!(is_dns_label(&name) && name.len() <= MAX_TEMPLATE, "{claim:?}: {name}");
        }
    }

    #[test]
    fn the_label_of_a_claim_is_always_valid_and_its_own() {
        assert_eq!(of_claim("data-db-0"), "claim.stowplan.dev/data-db-0");
        let long = "a".repeat(253);
        let longer = ["a".repeat(252), "b".to_owned()].concat();
        assert_ne!(of_claim(&long), of_claim(&longer));
        let huge = "é".repeat(131_072);
        let odd = ["", "-", ".", "a.", "-a", "é", "a b", "a/b", &long, &longer, &huge];
        let keys: std::collections::BTreeSet<_> = odd.into_iter().map(of_claim).collect();
        assert_eq!(keys.len(), odd.len());
        for key in keys {
            let name = key.strip_prefix(CLAIM_PREFIX).unwrap();
            assert!(is_label_name(name), "{key}");
        }
    }

    #[test]
    fn no_two_groups_share_a_name() {
        let of_runs = [("u", ""), ("u", "a"), ("ua", "")].map(|(uid, key)| of_run(uid, key));
        let native =
            [("u", "a"), ("ua", ""), ("v", "a")].map(|(namespace, key)| of_native(namespace, key));
        let names: std::collections::BTreeSet<_> = of_runs.into_iter().chain(native).collect();
        assert!(names.iter().all(|name| name.len() == 29 && name.starts_with(NAME_PREFIX)));
        assert_eq!(names.len(), 6);
    }
}
