//! Decides at admission about a pod with a NUMA affinity: checks it, makes its annotations canonical, and
//! derives what the scheduler can follow.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::NodeSelectorTerm;

use super::NAME;
use super::keys::{self, AFFINITY, ANTI_AFFINITY, NUMA_ZONES};
use super::policy::KatalystMode;
use super::qos::Qos;
use super::selector::{Parsed, Selector, Selectors, Zone, parse};
use crate::kubernetes::{required_node_terms, required_pod_terms};
use crate::placement::affinity::{Requirements as _, bound_to};
use crate::placement::intent::{Change, Intent, Mates, on_labels};
use crate::placement::pod::Pod;
use crate::placement::reason::{Finding, Reason, Warning, quoted};
use crate::placement::record;
use crate::systems::policy::Policy;
use crate::systems::{Outcome, View};

/// Decides about a pod with one of the annotations.
pub(super) fn request(pod: &Pod<'_>, view: &View, policy: &Policy) -> Outcome {
    let mut outcome = Outcome::default();
    let mut member = Member { pod, view, policy, outcome: &mut outcome };
    let (affinity, anti_affinity) = (member.parse(AFFINITY), member.parse(ANTI_AFFINITY));
    member.decide(&affinity, &anti_affinity);
    outcome
}

struct Member<'m> {
    pod: &'m Pod<'m>,
    view: &'m View,
    policy: &'m Policy,
    outcome: &'m mut Outcome,
}

impl Member<'_> {
    /// Parses an annotation, and makes it canonical. A finding is recorded; what is wrong selects
    /// nothing.
    fn parse(&mut self, key: &'static str) -> Selectors {
        let Some(value) = self.pod.annotation(key) else { return Selectors::default() };
        match parse(key, value, self.policy.katalyst.match_semantics) {
            Err(finding) => {
                self.outcome.findings.push(finding);
                Selectors::default()
            }
            Ok(Parsed { selectors, warnings }) => {
                self.outcome.warnings.extend(warnings);
                self.make_canonical(key, value, selectors)
            }
        }
    }

    /// Returns the selectors that stay on the pod.
    fn make_canonical(
        &mut self,
        key: &'static str,
        value: &str,
        mut selectors: Selectors,
    ) -> Selectors {
        // Katalyst's scheduler takes an affinity that requires nothing as one that is never met.
        if key == AFFINITY && selectors.required.is_empty() {
            if !selectors.preferred.is_empty() {
                let json = std::mem::take(&mut selectors).to_json();
                self.change(
                    key,
                    Change::Annotation { key: keys::PREFERRED_AFFINITY, value: Some(json) },
                );
                let text = format!(
                    "only preferred, which no build of Katalyst reads; moved to {}",
                    keys::PREFERRED_AFFINITY
                );
                self.warn(key, &text);
            } else if !value.is_empty() {
                self.warn(key, "requires nothing and is removed: Katalyst's scheduler would never place the pod");
            }
        } else if !selectors.preferred.is_empty() {
            self.warn(key, "no build of Katalyst reads preferred");
        }
        let is_empty = selectors.required.is_empty() && selectors.preferred.is_empty();
        if is_empty && key == ANTI_AFFINITY && !value.is_empty() {
            self.warn(key, "requires nothing and is removed");
        }
        let canonical = (!is_empty).then(|| selectors.to_json());
        if canonical.as_deref() != Some(value) {
            self.change(key, Change::Annotation { key, value: canonical });
        }
        selectors
    }

    fn change(&mut self, key: &'static str, change: Change) {
        let name = key.rsplit('_').next().unwrap_or_default();
        self.outcome.intents.push(Intent { system: NAME, key, why: name.to_owned(), change });
    }

    fn warn(&mut self, key: &str, text: &str) {
        self.outcome.warnings.push(Warning::new(key, text));
    }

    fn refuse(&mut self, reason: Reason, key: &str, problem: String, remedy: &str) {
        self.outcome.findings.push(Finding::new(reason, key, problem, remedy));
    }

    fn decide(&mut self, affinity: &Selectors, anti_affinity: &Selectors) {
        let sides = [(AFFINITY, affinity), (ANTI_AFFINITY, anti_affinity)];
        let used = |(_, of): &&(_, &Selectors)| !of.required.is_empty() || !of.preferred.is_empty();
        let Some((first, _)) = sides.iter().find(used) else { return };
        let qos = match Qos::parse(|key| self.pod.annotation(key), first) {
            Ok(qos) => qos,
            Err(finding) => {
                self.outcome.findings.push(finding);
                Qos::default()
            }
        };
        for (key, selectors) in sides {
            self.check_declared(key, selectors);
        }
        if self.policy.katalyst.declared_labels.is_empty() {
            let text = "not checked against the labels that Katalyst's agents keep: the policy lists none (katalyst.declaredLabels)";
            self.warn(first, text);
        }
        if qos.is_exclusive && !affinity.required.is_empty() {
            let problem = "the pod has its NUMA nodes alone (numa_exclusive), so it can share none";
            let remedy = "remove the affinity, or numa_exclusive";
            self.refuse(Reason::Contradiction, AFFINITY, problem.to_owned(), remedy);
        }
        self.check_clash(&affinity.required, &anti_affinity.required);
        if !self.outcome.findings.is_empty() {
            return;
        }
        for (key, selectors) in sides {
            let what = key.rsplit('_').next().unwrap_or_default();
            let held = selectors.required.iter().map(|selector| format!("{what}={selector}"));
            self.outcome.holds.extend(held);
        }
        let requires = |(_, of): &&(&'static str, &Selectors)| !of.required.is_empty();
        if let Some((key, _)) = sides.iter().find(requires) {
            let is_enforced = self.policy.katalyst.mode == KatalystMode::Enforced;
            let should_wait = is_enforced && !qos.is_exclusive;
            let waits = should_wait && self.can_wait();
            self.derive(key, affinity, waits);
            if waits {
                self.change(key, Change::Gate(keys::GATE));
            } else if should_wait {
                let text = "does not wait for a feasible NUMA node: no controller of stowplan runs";
                self.warn(key, text);
            }
        }
    }

    /// Refuses selectors by labels that the agents do not keep: the scheduler would follow them, and the
    /// agent would reject the pod or ignore them.
    fn check_declared(&mut self, key: &'static str, selectors: &Selectors) {
        let katalyst = &self.policy.katalyst;
        let all = selectors.required.iter().chain(&selectors.preferred);
        let used: BTreeSet<&str> = all.flat_map(Selector::pairs).map(|(key, _)| key).collect();
        let undeclared = used.into_iter().filter(|label| !katalyst.is_declared(label));
        let undeclared: Vec<String> = undeclared.map(quoted).collect();
        if !undeclared.is_empty() {
            let problem = format!(
                "selects by {}, and Katalyst's agents keep only the labels {}",
                undeclared.join(", "),
                katalyst.declared_labels.join(", ")
            );
            let remedy = "select by one of them, or ask the cluster's administrator to declare the label (katalyst.declaredLabels)";
            self.refuse(Reason::LabelNotDeclared, key, problem, remedy);
        }
    }

    /// Refuses an affinity whose every option the anti-affinity excludes. A neighbour on the same socket
    /// is possible beside an anti-affinity for one NUMA node.
    fn check_clash(&mut self, affinity: &[Selector], anti_affinity: &[Selector]) {
        let excludes = |zone: Zone, key: &str, value: &str| {
            anti_affinity.iter().any(|anti| {
                anti.has(key, value) && (anti.zone == Zone::Socket || zone == Zone::Numa)
            })
        };
        let mut options = affinity.iter().flat_map(|selector| {
            selector.pairs().map(move |(key, value)| (selector.zone, key, value))
        });
        let Some(first) = options.next() else { return };
        let is_dead = |(zone, key, value)| excludes(zone, key, value);
        if is_dead(first) && options.all(is_dead) {
            let (zone, key, value) = first;
            let problem = format!(
                "the anti-affinity excludes every pod that the affinity asks for, as {key}={value} ({})",
                zone.as_str()
            );
            self.refuse(Reason::Contradiction, AFFINITY, problem, "remove one of the two");
        }
    }

    /// Derives what the scheduler can follow. Never a required anti-affinity: two pods may share a node
    /// on different NUMA nodes. A pod that waits for a feasible NUMA node needs a node with the label
    /// in any case: it starts once there is one, and the scheduler could choose another node.
    fn derive(&mut self, key: &'static str, affinity: &Selectors, waits: bool) {
        // The kubelet would reject the pod on a node without the label. Another system may release the name
        // into node affinity.
        let is_bound = |terms| bound_to(terms).is_some();
        let is_bound = required_node_terms(Some(&self.pod.affinity)).is_some_and(is_bound);
        if (self.pod.node_name.is_some() || is_bound) && !self.is_on_numa_nodes() {
            let text = "nothing is derived for the scheduler: the pod names its node";
            return self.warn(key, text);
        }
        let may_derive = (waits || self.view.has_numa_nodes()) && !self.is_recorded();
        if may_derive || self.is_on_numa_nodes() {
            let on_numa_nodes = vec![on_labels(&[(NUMA_ZONES, None)])];
            self.change(key, Change::NodeAffinity(on_numa_nodes));
        } else {
            let text = format!(
                "the scheduler does not look for nodes with NUMA nodes: none is known that has the label {NUMA_ZONES}"
            );
            self.warn(key, &text);
        }
        if affinity.required.is_empty() {
            return;
        }
        self.warn_of_first_pod(&affinity.required);
        match self.find_mates(&affinity.required) {
            Ok(mates) => self.change(AFFINITY, Change::PodAffinityHint(mates)),
            Err(why) => {
                let text = format!("the scheduler does not look for nodes with such pods: {why}");
                self.warn(AFFINITY, &text);
            }
        }
    }

    /// Returns true if an earlier round has decided about the pod, according to its record. What it derived stays,
    /// whichever
    /// nodes have NUMA nodes since.
    fn is_recorded(&self) -> bool {
        let record = self.pod.annotation(record::KEY).unwrap_or_default();
        self.policy.record_placement && !record::entries(record, NAME).is_empty()
    }

    /// Returns true if an earlier round has added the node affinity.
    fn is_on_numa_nodes(&self) -> bool {
        let is_numa =
            |term: &NodeSelectorTerm| term.expressions().any(|label| label.key == NUMA_ZONES);
        required_node_terms(Some(&self.pod.affinity)).is_some_and(|terms| terms.iter().all(is_numa))
    }

    /// The pods of which one must be on the node.
    ///
    /// # Errors
    /// Returns the reason why that cannot be said in a term, or may be wrong.
    fn find_mates(&self, affinity: &[Selector]) -> Result<Mates, String> {
        let katalyst = &self.policy.katalyst;
        if !katalyst.pod_affinity_term {
            return Err("the policy turns it off (katalyst.podAffinityTerm)".to_owned());
        }
        let pairs: BTreeSet<(&str, &str)> = affinity.iter().flat_map(Selector::pairs).collect();
        let keys: BTreeSet<&str> = pairs.iter().map(|(key, _)| *key).collect();
        let mut keys = keys.into_iter();
        let (Some(key), None) = (keys.next(), keys.next()) else {
            return Err("a pod-affinity term cannot select by one of several label keys".to_owned());
        };
        let is_own = |(key, value): &(&str, &str)| self.pod.label(key) == Some(value);
        // Its first pod is placed without the affinity, and may be on any node.
        if katalyst.mode == KatalystMode::Enforced && pairs.iter().any(is_own) {
            return Err(
                "the pod is of the group that it asks for, which may have no pod yet".to_owned()
            );
        }
        let values = pairs.iter().map(|(_, value)| (*value).to_owned()).collect();
        let mates = Mates { key: key.to_owned(), values };
        match required_pod_terms(Some(&self.pod.affinity)) {
            [] => Ok(mates),
            [own] if mates.is_own_mark(own) => Ok(mates),
            _ => Err("the pod has a required pod-affinity term of its own, and the scheduler would count only pods that match both".to_owned()),
        }
    }

    /// Katalyst has no exception for the first pod of a group; under the mode enforced the controller
    /// makes one.
    fn warn_of_first_pod(&mut self, affinity: &[Selector]) {
        let mut pairs = affinity.iter().flat_map(Selector::pairs);
        let is_enforced = self.policy.katalyst.mode == KatalystMode::Enforced;
        if !is_enforced && pairs.all(|(key, value)| self.pod.label(key) == Some(value)) {
            self.warn(AFFINITY, "selects only the pod's own labels, and for Katalyst another pod must have them already: the first pod of such a group does not start");
        }
    }

    /// Returns true if something will remove the gate.
    fn can_wait(&self) -> bool {
        self.view.controller_present() || self.pod.has_gate(keys::GATE)
    }
}
