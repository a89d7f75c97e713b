//! Diagnoses for `stowplan check` whether the cluster has the Katalyst that the policy counts on.

use super::policy::KatalystMode;
use super::resources::CUSTOM_NODE_RESOURCE;
use crate::systems::check::installation::{Findings, Installation, Installed, Item};

pub(super) const INSTALLATION: Installation = Installation {
    sent_by: &["'katalyst.kubewharf.io/microtopology_'"],
    check: Some(check),
    ..Installation::NONE
};

/// Only the mode `enforced` needs Katalyst: the others claim nothing about the nodes.
fn check(installed: &Installed<'_>) -> Vec<Item> {
    let mut findings = Findings::new("katalyst");
    if installed.policy.katalyst.mode != KatalystMode::Enforced {
        return Vec::new();
    }
    let name = format!("{}.{}", CUSTOM_NODE_RESOURCE.plural, CUSTOM_NODE_RESOURCE.group);
    if installed.definitions.is_none() {
        findings.unknown(
            format!("whether the cluster has {name} is not known"),
            "see the line rights-of-this-command",
        );
    } else if installed.definition(&name).is_none() {
        findings.problem(
            format!(
                "the policy says katalyst.mode: enforced, and the cluster does not serve {name}: pods with NUMA \
                 affinity wait for gateDeadline"
            ),
            "install Katalyst, or set katalyst.mode: advisory",
        );
    }
    findings.or_ok(format!("the cluster serves {name}, as katalyst.mode: enforced needs"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::CustomResourceDefinition;
    use crate::systems::check::installation::State;
    use crate::systems::policy::Policy;

    #[test]
    fn only_an_enforced_affinity_needs_katalyst() {
        let mut of_katalyst = CustomResourceDefinition::default();
        of_katalyst.metadata.name =
            Some("customnoderesources.node.katalyst.kubewharf.io".to_owned());
        let mut policy = Policy::default();
        let states = |policy: &Policy, definitions| {
            let installed = Installed { definitions, settings: Ok(None), policy };
            check(&installed).into_iter().map(|item| item.state).collect::<Vec<_>>()
        };
        assert_eq!(states(&policy, Some(&[])), []);
        policy.katalyst.mode = KatalystMode::Enforced;
        assert_eq!(states(&policy, Some(&[])), [State::Problem]);
        assert_eq!(states(&policy, None), [State::Unknown]);
        assert_eq!(states(&policy, Some(&[of_katalyst])), [State::Ok]);
    }
}
