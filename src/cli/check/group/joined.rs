//! From a pod to the group that it belongs to.

use k8s_openapi::api::core::v1::Pod;

use super::Facts;
use crate::cli::check::reconciler::Planned;
use crate::cli::check::run::claims_of;
use crate::cli::check::{Cluster, Diagnosis};
use crate::kubernetes::{annotation, label};
use crate::systems::coschedule::keys;
use crate::systems::coschedule::kinds::CoscheduleView as _;
use crate::systems::coschedule::kinds::placeholder::PlaceholderPod;
use crate::systems::coschedule::member::{Belonging, belonging};
use crate::systems::coschedule::resources::TASK_RUN;
use crate::systems::policy::Policy;
use crate::view::resource::POD;
use crate::view::{Name, Owner};

/// The group of a pod.
pub(in crate::cli::check) struct Joined {
    /// What the pod asks for.
    pub(in crate::cli::check) asked: String,
    pub(in crate::cli::check) placeholder: Diagnosis,
}

/// The group that a pod was admitted to, or whose placeholder's pod it is.
pub(in crate::cli::check) fn joined(
    cluster: &Cluster,
    policy: &Policy,
    pod: &Pod,
    namespace: &str,
) -> Option<Joined> {
    if let Some(own) = PlaceholderPod::of(&pod.metadata) {
        let name = Name::new(namespace, own);
        let made = cluster.view.placeholder(&name);
        let group = match made.map(|made| (&made.run, &made.group)) {
            Some((Some(run), _)) => format!(
                "a group of PipelineRun {0}: stowplan check pipelinerun/{0} -n {namespace}",
                run.name
            ),
            Some((None, Some(group))) => format!("the pods of group {group}"),
            _ => "a group that is unknown".to_owned(),
        };
        let placeholder = Facts::new(cluster, policy, &name, Vec::new(), false).placeholder();
        return Some(Joined { asked: format!("a node for {group}"), placeholder });
    }
    let placeholder = label(&pod.metadata, keys::MEMBER)?;
    let owner = Owner::of_tekton(&pod.metadata, TASK_RUN.kind);
    let of_run = owner.map(|owner| belonging(namespace, &owner, &cluster.view, policy));
    let mut isolated = false;
    let mut claims = Vec::new();
    let asked = match &of_run {
        Some(Belonging::Run(of)) => {
            let group = of.groups.groups.iter().find(|group| *group.name == *placeholder);
            isolated = group.is_some_and(|group| group.isolated);
            claims = group.map(claims_of).unwrap_or_default();
            let name = &of.name.name;
            format!(
                "one node with its group of PipelineRun {name}: stowplan check pipelinerun/{name} -n {namespace}"
            )
        }
        _ => match annotation(&pod.metadata, keys::GROUP) {
            Some(group) => format!("one node with the pods of group {group}"),
            None => "one node with a group that is unknown".to_owned(),
        },
    };
    let name = Name::new(namespace, placeholder);
    let facts = Facts::new(cluster, policy, &name, claims, isolated);
    let mut diagnosis = facts.placeholder();
    if !facts.is_made() {
        let own = pod.metadata.name.as_deref().unwrap_or_default();
        let planned = Planned::new(cluster, policy);
        let member = Name::new(namespace, own);
        let mut waits = planned.shared_claims(POD, &member).peekable();
        if waits.peek().is_none() {
            facts.report_missing(&mut diagnosis, "pod", own);
        }
        for note in waits {
            diagnosis.report(note, "wait until that one has a node, or has ended");
        }
    }
    Some(Joined { asked, placeholder: diagnosis })
}

/// Reports why a pod without a node is not beside its placeholder, and what the controller does with
/// it.
pub(in crate::cli::check) fn report_member_outside(
    diagnosis: &mut Diagnosis,
    cluster: &Cluster,
    policy: &Policy,
    pod: &Pod,
    namespace: &str,
) {
    let Some(placeholder) = label(&pod.metadata, keys::MEMBER) else { return };
    let name = Name::new(namespace, placeholder);
    Facts::new(cluster, policy, &name, Vec::new(), false).report_outside(diagnosis, pod);
}
