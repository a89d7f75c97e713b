//! Diagnoses for `stowplan check` whether Tekton leaves the placement of runs to stowplan.

use super::kinds::tekton::GROUP;
use super::resources::PIPELINE_RUN;
use crate::systems::CustomResourceDefinition;
use crate::systems::check::installation::{
    AskedFor, ConfigMapName, Findings, Installation, Installed, Item,
};
use crate::systems::coschedule::keys::ONE_NODE_CLAIMS;

pub(super) const INSTALLATION: Installation = Installation {
    sent_by: &["'tekton.dev/'", "'TaskRun'"],
    webhook: Some(AskedFor {
        name: "one-node-claims.stowplan.dev",
        label: ONE_NODE_CLAIMS,
        conditions: &["mounts-a-claim", "has-no-known-key", "not-a-mirror-pod"],
        without: "pods that mount the same claim do not share a node",
    }),
    settings: Some(FLAGS),
    check: Some(check),
    ..Installation::NONE
};

/// Tekton's feature flags.
const FLAGS: ConfigMapName = ("tekton-pipelines", "feature-flags");

/// The flag for Tekton's own affinity assistant, its value that switches it off, and its default.
const FLAG: &str = "coschedule";
const OFF: &str = "disabled";
const DEFAULT: &str = "workspaces";

/// The labels of Tekton's definitions that have its version.
const VERSION_LABELS: &[&str] =
    &["pipeline.tekton.dev/release", "app.kubernetes.io/version", "version"];

/// The first version that accepts the flag `disabled` without a second flag.
const OLDEST: (u32, u32) = (1, 0);

/// The version whose recorded runs the tests compare with.
const TESTED: &str = "v1.15";

fn check(installed: &Installed<'_>) -> Vec<Item> {
    let mut findings = Findings::new("tekton");
    let name = format!("{}.{GROUP}", PIPELINE_RUN.plural);
    if installed.definitions.is_none() {
        findings.unknown(
            "whether the cluster has Tekton is not known",
            "see the line rights-of-this-command",
        );
        return findings.or_ok("");
    }
    let Some(definition) = installed.definition(&name) else {
        return findings.or_ok("Tekton is not installed");
    };
    if !installed.policy.coschedule.enabled {
        return findings.or_ok("Tekton is installed, and the policy disables coscheduling");
    }
    let switch = format!(
        "kubectl -n {} patch configmap {} -p '{{\"data\":{{\"{FLAG}\":\"{OFF}\"}}}}'",
        FLAGS.0, FLAGS.1
    );
    match installed.settings {
        Err(problem) => {
            findings.unknown(
                format!("whether Tekton's own affinity assistant is off is not known: {problem}"),
                format!("the flag {FLAG} of ConfigMap {}/{} has to be {OFF}", FLAGS.0, FLAGS.1),
            );
        }
        Ok(None) => findings.unknown(
            format!(
                "Tekton is installed, and ConfigMap {}/{} does not exist: its flags are elsewhere",
                FLAGS.0, FLAGS.1
            ),
            format!("set Tekton's feature flag {FLAG} to {OFF} where it is installed"),
        ),
        Ok(Some(flags)) => {
            let value = flags.get(FLAG).map_or(DEFAULT, String::as_str);
            // Tekton ignores case.
            if !value.eq_ignore_ascii_case(OFF) {
                findings.problem(
                    format!(
                        "Tekton's own affinity assistant is on ({FLAG}: {value}): it refuses tasks with two claims, \
                         and stowplan does not place its runs"
                    ),
                    switch,
                );
            }
        }
    }
    let version = find_version(definition);
    match version.map(|version| (version, parse_version(version))) {
        Some((version, Some(parsed))) if parsed < OLDEST => findings.warning(
            format!("Tekton {version} is older than any that stowplan is tested with ({TESTED})"),
            "upgrade Tekton; before v1.0 it rejects the flag unless disable-affinity-assistant is true",
        ),
        _ => {}
    }
    let version = version.unwrap_or("of an unknown version");
    findings.or_ok(format!("Tekton {version}: its own affinity assistant is off"))
}

fn find_version(definition: &CustomResourceDefinition) -> Option<&str> {
    let labels = definition.metadata.labels.as_ref()?;
    VERSION_LABELS.iter().find_map(|label| labels.get(*label)).map(String::as_str)
}

/// The major and the minor version of `v1.15.0`. `None`: it is another text, as `devel`.
fn parse_version(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.strip_prefix('v').unwrap_or(version).split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::systems::check::installation::State;
    use crate::systems::policy::Policy;

    fn definition(version: &str) -> CustomResourceDefinition {
        let mut definition = CustomResourceDefinition::default();
        definition.metadata.name = Some("pipelineruns.tekton.dev".to_owned());
        let labels = [("app.kubernetes.io/version".to_owned(), version.to_owned())];
        definition.metadata.labels = Some(BTreeMap::from(labels));
        definition
    }

    #[test]
    fn tektons_assistant_has_to_be_off() {
        let [off, on] = ["Disabled", "pipelineruns"]
            .map(|flag| BTreeMap::from([(FLAG.to_owned(), flag.to_owned())]));
        let absent = BTreeMap::new();
        let [old, new, unnamed] =
            ["v0.70.1", "v1.15.0", "devel"].map(|version| vec![definition(version)]);
        use State::{Ok as Fine, Problem, Unknown, Warning};
        for (what, enabled, definitions, settings, state) in [
            ("kinds unknown", true, None, Ok(None), Unknown),
            ("no Tekton", true, Some(vec![]), Ok(None), Fine),
            ("off", true, Some(new.clone()), Ok(Some(&off)), Fine),
            ("version unknown", true, Some(unnamed), Ok(Some(&off)), Fine),
            ("absent", true, Some(new.clone()), Ok(Some(&absent)), Problem),
            ("on", true, Some(new.clone()), Ok(Some(&on)), Problem),
            ("disabled by the policy", false, Some(new.clone()), Ok(Some(&on)), Fine),
            ("no settings", true, Some(new.clone()), Ok(None), Unknown),
            ("settings not read", true, Some(new), Err("forbidden"), Unknown),
            ("old", true, Some(old), Ok(Some(&off)), Warning),
        ] {
            let mut policy = Policy::default();
            policy.coschedule.enabled = enabled;
            let definitions = definitions.as_deref();
            let found = check(&Installed { definitions, settings, policy: &policy });
            assert_eq!(found.iter().map(|item| item.state).collect::<Vec<_>>(), [state], "{what}");
        }
    }
}
