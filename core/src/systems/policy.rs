//! The administrator's policy: a YAML file with a JSON schema. This module combines the sections of
//! the systems.
//!
//! Every key has a default, so an empty file is a valid policy. An unknown key is an error: a
//! misspelt restriction would have no effect.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::coschedule::policy::Coschedule;
use super::katalyst::policy::Katalyst;
use super::mpi::policy::Mpi;
use super::streams::policy::{HostPools, Streams};
use crate::policy::{OnInvalid, Repair, form, parse};

/// What the administrator decides.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Policy {
    /// What becomes of a pod that cannot be placed as it asks. `warn` admits it without our
    /// placement and with a warning.
    pub on_invalid: OnInvalid,
    /// Whether a pod gets the annotation `stowplan.dev/placement`, which says what holds.
    pub record_placement: bool,
    /// Namespaces whose pods are never touched. The webhook's own namespace always belongs to them.
    #[schemars(schema_with = "form::namespaces")]
    pub excluded_namespaces: BTreeSet<String>,
    /// The filter of log lines, such as `info,stowplan::server=debug`. Empty: the filter with which
    /// the process was started.
    #[schemars(schema_with = "form::log_filter")]
    pub log: String,
    /// Names of the conditions that the administrator added to the webhook. The chart writes them:
    /// stowplan cannot know which pods they keep from the webhook, so `recreatePending` is invalid
    /// beside them.
    pub match_conditions: BTreeSet<String>,
    /// What is done about pods that were admitted while the webhook was unavailable. Read by the controller.
    pub repair: Repair,
    /// Who may use HostPools.
    pub host_pools: HostPools,
    /// IBM Streams host constraints.
    pub streams: Streams,
    /// Coscheduling of Tekton runs and of other groups.
    pub coschedule: Coschedule,
    /// MPI clusters.
    pub mpi: Mpi,
    /// Katalyst NUMA affinity.
    pub katalyst: Katalyst,
}

impl Policy {
    /// Parses a policy file. An empty file is the default policy.
    ///
    /// # Errors
    /// If the text is too long or not a valid policy, or fields contradict each other; the message
    /// has a line for each problem.
    pub fn from_yaml(text: &str) -> Result<Self, String> {
        let policy: Self = parse(text, &Self::schema())?;
        if policy.repair == Repair::RecreatePending && !policy.match_conditions.is_empty() {
            let names: Vec<&str> = policy.match_conditions.iter().map(String::as_str).collect();
            return Err(format!(
                "repair is recreatePending, and the webhook has match conditions of the \
                 administrator ({}): stowplan cannot know which pods they keep from the webhook, and \
                 would delete such pods again and again; set repair to report, or exclude by \
                 excludedNamespaces and the label stowplan.dev/ignore instead of conditions",
                names.join(", ")
            ));
        }
        match policy.katalyst.find_problem() {
            Some(problem) => Err(problem.to_owned()),
            None => Ok(policy),
        }
    }

    /// The JSON schema of a policy file (draft 2020-12).
    #[must_use]
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(Self).to_value()
    }

    /// Whether stowplan never changes the pods of this namespace.
    #[must_use]
    pub fn excludes(&self, namespace: &str) -> bool {
        self.excluded_namespaces.contains(namespace)
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            on_invalid: OnInvalid::default(),
            record_placement: true,
            excluded_namespaces: ["kube-system", "kube-node-lease"].map(String::from).into(),
            log: String::new(),
            match_conditions: BTreeSet::new(),
            repair: Repair::default(),
            host_pools: HostPools::default(),
            streams: Streams::default(),
            coschedule: Coschedule::default(),
            mpi: Mpi::default(),
            katalyst: Katalyst::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::MAX_BYTES;

    #[test]
    fn an_empty_file_is_the_default_and_so_is_the_default_that_was_written() {
        let written = serde_json::to_string(&Policy::default()).unwrap();
        for text in ["", "\n", "# nothing\n", "{}", "null", "---\n", &written] {
            assert_eq!(Policy::from_yaml(text), Ok(Policy::default()), "{text:?}");
        }
    }

    #[test]
    fn an_error_names_what_is_wrong() {
        for (text, part) in [
            ("onInvalid: refuze", "onInvalid: \"refuze\" is not refuse or warn"),
            ("onInvald: refuse", "there is no key \"onInvald\" here; did you mean onInvalid?"),
            ("hostPools: []", "hostPools: a list is not a map"),
            ("- a", "the policy: a list is not a map"),
            ("excludedNamespaces: kube-system", "\"kube-system\" is not a list, as [a, b]"),
            ("excludedNamespaces: [Foo_Bar]", "excludedNamespaces[0]: \"Foo_Bar\" is not the name"),
            ("onInvalid: refuse\nonInvalid: warn", "not YAML"),
            ("log: debgu", "log: \"debgu\" is not a level (off, "),
            ("log: info,a=loud", "log: \"a=loud\" in \"info,a=loud\" is not a level"),
            ("log: null", "log: has no value"),
            ("log: [info]", "log: a list is not a level"),
            ("{", "not YAML"),
            ("recordPlacement: \u{0}", ""),
            ("streams:", "streams: has no value"),
            ("streams: ~\nmpi: null", "mpi: has no value"),
            ("mpi: {clusterDomain: a b}", "mpi.clusterDomain: \"a b\" is not the name"),
            ("katalyst: {declaredLabels: [a/b/c]}", "katalyst.declaredLabels[0]"),
        ] {
            let error = Policy::from_yaml(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
        let both = Policy::from_yaml("repair: no\nhostPools: {enabled: 1}").unwrap_err();
        assert_eq!(both.lines().count(), 2, "each problem has its line: {both}");
        assert!(Policy::from_yaml(&"#".repeat(MAX_BYTES + 1)).is_err());
    }

    #[test]
    fn pods_are_not_recreated_beside_conditions_that_are_not_known() {
        let error = Policy::from_yaml("repair: recreatePending\nmatchConditions: [mine]");
        assert!(error.unwrap_err().contains("(mine): stowplan cannot know"));
        for text in ["repair: recreatePending", "matchConditions: [mine]"] {
            assert!(Policy::from_yaml(text).is_ok(), "{text}");
        }
    }
}
