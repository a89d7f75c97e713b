//! The claims of a group: their volumes, and the pods that use them on other nodes.

use k8s_openapi::api::core::v1::Pod;

use super::CheckedGroup;
use crate::kubernetes::{claims, node_name};
use crate::systems::check::Diagnosis;
use crate::systems::check::words::{counted, some};
use crate::systems::coschedule::keys;
use crate::systems::coschedule::resources::CLAIM;
use crate::systems::fit::Candidate;
use crate::view::Name;

impl CheckedGroup<'_> {
    /// The claims of the group.
    pub(in crate::systems::coschedule::check) fn claim_parts(
        &self,
    ) -> impl Iterator<Item = Diagnosis> {
        self.claims.iter().map(|claim| self.claim(claim))
    }

    /// Returns true if Tekton creates a claim from a template.
    fn is_of_template(&self, claim: &str) -> bool {
        let mut claims = self.group.into_iter().flat_map(|group| &group.claims);
        claims.any(|own| own.template && *own.name == *claim)
    }

    fn claim(&self, claim: &str) -> Diagnosis {
        let view = &self.cluster.view;
        let namespace = &self.name.namespace;
        let name = Name::new(namespace, claim);
        let mut diagnosis = Diagnosis::new(CLAIM.kind, &name);
        let Some(known) = view.claim(&name) else {
            if self.cluster.knows(CLAIM.kind) {
                let (what, remedy) = if self.is_of_template(claim) {
                    ("Tekton has not created it yet", format!("kubectl get events -n {namespace}"))
                } else {
                    ("it does not exist", "create it, or let the run name another".to_owned())
                };
                diagnosis.report(what, remedy);
            }
            return diagnosis;
        };
        let class = known.class.as_deref().filter(|class| !class.is_empty());
        diagnosis
            .asked
            .push(class.map_or_else(|| "no class".to_owned(), |class| format!("class {class}")));
        match (&known.volume, known.bound) {
            (Some(volume), true) => {
                let mut volumes = self.volumes.iter();
                let restricted = volumes.find(|volume| *volume.claim == *claim);
                let can_mount =
                    |node: &Candidate<'_>| restricted.is_none_or(|volume| volume.reaches(*node));
                let (nodes, others): (Vec<_>, Vec<_>) =
                    self.cluster.candidates().partition(can_mount);
                let names: Vec<&str> = nodes.iter().map(|node| node.name).collect();
                let place = match names.len() {
                    _ if others.is_empty() => "any node".to_owned(),
                    0 => "no node".to_owned(),
                    count => format!("{}: {}", counted(count, "node"), some(&names)),
                };
                diagnosis.placed.push(format!("volume {volume}, on {place}"));
                if names.is_empty() && !others.is_empty() {
                    diagnosis.report(
                        format!("volume {volume} can be mounted on none of the nodes"),
                        format!(
                            "kubectl describe pv {volume}: bring a node of its node affinity back"
                        ),
                    );
                }
            }
            _ if class == Some(keys::PARKED) => {
                diagnosis
                    .decided
                    .push("parked: the placeholder's own claim takes its place".to_owned());
            }
            _ => self.report_unbound(&mut diagnosis, class, claim),
        }
        self.report_use_elsewhere(&mut diagnosis, claim, known.access.needs_one_node());
        diagnosis
    }

    fn report_unbound(&self, diagnosis: &mut Diagnosis, class: Option<&str>, claim: &str) {
        let known = class.and_then(|class| self.cluster.view.storage_class(class));
        match (class, known) {
            (_, Some(known)) if known.waits => {
                diagnosis
                    .placed
                    .push("no volume yet: it is created where the placeholder is".to_owned());
            }
            (Some(class), None) if self.cluster.knows("StorageClass") => diagnosis.report(
                format!("it has no volume, and StorageClass {class} does not exist"),
                "create the class, or create the claim again with another",
            ),
            _ => diagnosis.report(
                "it has no volume yet, and does not wait for a pod",
                format!("kubectl describe pvc {claim} -n {}", self.name.namespace),
            ),
        }
    }

    /// A volume that one node uses at a time, in use on another.
    fn report_use_elsewhere(&self, diagnosis: &mut Diagnosis, claim: &str, one_node: bool) {
        let (Some(pod), Some(node)) = (self.pod, self.node()) else { return };
        let uses = |other: &&Pod| {
            let spec = other.spec.as_ref();
            spec.is_some_and(|spec| claims(spec).any(|own| own == claim))
        };
        let elsewhere = self
            .cluster
            .others(&self.name.namespace, pod)
            .filter(uses)
            .find_map(|other| Some((other, node_name(other).filter(|other| *other != node)?)));
        if let Some((other, where_)) = elsewhere.filter(|_| one_node) {
            let other = other.metadata.name.as_deref().unwrap_or_default();
            diagnosis.report(
                format!("pod {other} uses it on node {where_}, and one node uses it at a time"),
                format!("wait until pod {other} has ended"),
            );
        }
    }
}
