//! What a View holds for coscheduling: runs, claims, volumes, placeholders and the pods of groups.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::index::Sets;
use super::placeholder::FIRST;
use super::{
    Claim, Identity, Member, Name, NamedPipeline, PipelineRun, Placeholder, PlaceholderPod,
    Resources, StorageClass, TaskRun, Usage, View, Volume,
};
use crate::view::pipeline_run::{PipelineSource, WorkspaceSource};

/// What is known of runs and groups, with the indices by which decisions find it.
#[derive(Debug, Default)]
pub(super) struct Coscheduled {
    task_runs: HashMap<Name, TaskRun>,
    /// What the TaskRuns of a run say, by its namespace and UID.
    tasks_by_run: HashMap<Name, TaskCounts>,
    /// The namespace and UID of the runs of which Tekton's own affinity assistant places a TaskRun: none,
    /// where it is off.
    assisted_runs: HashSet<Name>,
    pipeline_runs: HashMap<Name, PipelineRun>,
    runs_by_uid: HashMap<Box<str>, Name>,
    /// The runs that use a claim, by the claim.
    runs_by_claim: Sets<Name>,
    /// The runs that a run has made, by its UID.
    runs_by_parent: Sets<Box<str>>,
    pipelines: HashMap<Name, NamedPipeline>,
    claims: HashMap<Name, Claim>,
    /// The claims that a run owns, by its UID.
    claims_by_run: Sets<Box<str>>,
    storage_classes: HashMap<Box<str>, StorageClass>,
    volumes: HashMap<Box<str>, Volume>,
    placeholders: HashMap<Name, Placeholder>,
    /// The placeholders that a run owns, by its UID.
    placeholders_by_run: Sets<Box<str>>,
    /// The placeholders that mount a claim by its name, by the claim.
    placeholders_by_claim: Sets<Name>,
    placeholder_pods: HashMap<Name, PlaceholderPod>,
    members: HashMap<Name, Member>,
    /// The members of a placeholder, by the placeholder.
    members_by_placeholder: Sets<Name>,
    /// What pods take of their nodes.
    taken: HashMap<Name, Usage>,
    usage: HashMap<Box<str>, NodeUsage>,
    /// The claims that a pod mounts which has not ended, by the pod. Those without one are not here.
    mounts: HashMap<Name, Box<[Arc<Name>]>>,
    /// How many such pods mount a claim.
    mounted: HashMap<Arc<Name>, u32>,
    /// Seen from outside: nothing is absent until somebody says so.
    controller_absent: bool,
    tekton_absent: bool,
}

/// What the pods that are bound to a node and have not ended take of it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NodeUsage {
    /// How many they are.
    pub pods: usize,
    /// What they request.
    pub requested: Resources,
}

/// What the TaskRuns of a run say together, whether they go on or have ended.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TaskCounts {
    /// How many there are.
    pub made: u32,
    /// How many of them Tekton's own affinity assistant places.
    pub assisted: u32,
}

/// The run that a TaskRun says has made it. An owner is in the namespace of what it owns.
fn maker(name: &Name, task_run: &TaskRun) -> Option<Name> {
    task_run.run.as_ref().map(|run| Name::new(&name.namespace, &run.uid))
}

/// The claims that a run uses, as far as it says.
fn named_claims(run: &PipelineRun) -> impl Iterator<Item = &str> {
    let named = run.workspaces.iter().filter_map(|workspace| match &workspace.source {
        WorkspaceSource::Claim(claim) => Some(&**claim),
        WorkspaceSource::Template(template) => Some(&*template.claim),
        WorkspaceSource::Unresolved | WorkspaceSource::Free => None,
    });
    let of_tasks = run.task_overrides.iter().flat_map(|of_task| of_task.mounted.iter().flatten());
    let written = match &run.pipeline {
        PipelineSource::Inline(pipeline) => &*pipeline.tasks,
        _ => &[],
    };
    let written = written.iter().flat_map(|task| &task.mounted);
    named.chain(run.mounted.iter().chain(of_tasks).chain(written).map(AsRef::as_ref))
}

fn placeholder_of(name: &Name, member: &Member) -> Option<Name> {
    member.placeholder.as_deref().map(|placeholder| Name::new(&name.namespace, placeholder))
}

impl Coscheduled {
    pub(super) fn add_task_run(&mut self, name: Name, run: TaskRun) {
        self.remove_task_run(&name);
        if let Some(maker) = maker(&name, &run) {
            if run.assisted {
                self.assisted_runs.insert(maker.clone());
            }
            let counts = self.tasks_by_run.entry(maker).or_default();
            counts.made += 1;
            counts.assisted += u32::from(run.assisted);
        }
        self.task_runs.insert(name, run);
    }

    fn remove_task_run(&mut self, name: &Name) {
        let Some(run) = self.task_runs.remove(name) else { return };
        let Some(maker) = maker(name, &run) else { return };
        let Entry::Occupied(mut counts) = self.tasks_by_run.entry(maker) else { return };
        counts.get_mut().made -= 1;
        counts.get_mut().assisted -= u32::from(run.assisted);
        if counts.get().assisted == 0 {
            self.assisted_runs.remove(counts.key());
        }
        if counts.get().made == 0 {
            counts.remove();
        }
    }

    pub(super) fn add_pipeline_run(&mut self, name: Name, run: PipelineRun) {
        self.remove_pipeline_run(&name);
        for claim in named_claims(&run) {
            self.runs_by_claim.add(Name::new(&name.namespace, claim), &name);
        }
        if let Some(parent) = &run.parent {
            self.runs_by_parent.add(parent.uid.clone(), &name);
        }
        if !run.identity.uid.is_empty() {
            self.runs_by_uid.insert(run.identity.uid.clone(), name.clone());
        }
        self.pipeline_runs.insert(name, run);
    }

    fn remove_pipeline_run(&mut self, name: &Name) {
        let Some(run) = self.pipeline_runs.remove(name) else { return };
        for claim in named_claims(&run) {
            self.runs_by_claim.remove(Name::new(&name.namespace, claim), name);
        }
        if let Some(parent) = run.parent {
            self.runs_by_parent.remove(parent.uid, name);
        }
        // Another run may be known under the UID by now.
        if self.runs_by_uid.get(&run.identity.uid) == Some(name) {
            self.runs_by_uid.remove(&run.identity.uid);
        }
    }

    pub(super) fn add_pipeline(&mut self, name: Name, pipeline: NamedPipeline) {
        self.pipelines.insert(name, pipeline);
    }

    pub(super) fn add_claim(&mut self, name: Name, claim: Claim) {
        self.remove_claim(&name);
        if let Some(run) = &claim.run {
            self.claims_by_run.add(run.uid.clone(), &name);
        }
        self.claims.insert(name, claim);
    }

    fn remove_claim(&mut self, name: &Name) {
        if let Some(run) = self.claims.remove(name).and_then(|claim| claim.run) {
            self.claims_by_run.remove(run.uid, name);
        }
    }

    pub(super) fn add_storage_class(&mut self, name: Box<str>, class: StorageClass) {
        self.storage_classes.insert(name, class);
    }

    pub(super) fn add_volume(&mut self, name: Box<str>, volume: Volume) {
        self.volumes.insert(name, volume);
    }

    pub(super) fn add_placeholder(&mut self, name: Name, placeholder: Placeholder) {
        self.remove_placeholder(&name);
        if let Some(run) = &placeholder.run {
            self.placeholders_by_run.add(run.uid.clone(), &name);
        }
        for claim in placeholder.mounted(&name) {
            self.placeholders_by_claim.add(claim, &name);
        }
        self.placeholders.insert(name, placeholder);
    }

    fn remove_placeholder(&mut self, name: &Name) {
        let Some(placeholder) = self.placeholders.remove(name) else { return };
        for claim in placeholder.mounted(name) {
            self.placeholders_by_claim.remove(claim, name);
        }
        if let Some(run) = placeholder.run {
            self.placeholders_by_run.remove(run.uid, name);
        }
    }

    pub(super) fn add_placeholder_pod(&mut self, name: Name, pod: PlaceholderPod) {
        self.placeholder_pods.insert(name, pod);
    }

    pub(super) fn version_of_placeholder_pod(&self, name: &Name) -> Option<&Identity> {
        Some(&self.placeholder_pods.get(name)?.identity)
    }

    pub(super) fn add_member(&mut self, name: Name, member: Member) {
        self.remove_member(&name);
        if let Some(placeholder) = placeholder_of(&name, &member) {
            self.members_by_placeholder.add(placeholder, &name);
        }
        self.members.insert(name, member);
    }

    fn remove_member(&mut self, name: &Name) {
        let Some(member) = self.members.remove(name) else { return };
        if let Some(placeholder) = placeholder_of(name, &member) {
            self.members_by_placeholder.remove(placeholder, name);
        }
    }

    pub(super) fn add_usage(&mut self, name: Name, usage: Usage) {
        self.remove_usage(&name);
        let node = self.usage.entry(usage.node.clone()).or_default();
        node.pods += 1;
        node.requested = node.requested.plus(&usage.requests);
        self.taken.insert(name, usage);
    }

    pub(super) fn remove_usage(&mut self, name: &Name) {
        let Some(usage) = self.taken.remove(name) else { return };
        let Some(node) = self.usage.get_mut(&usage.node) else { return };
        node.pods -= 1;
        node.requested = node.requested.minus(&usage.requests);
        if node.pods == 0 {
            self.usage.remove(&usage.node);
        }
    }

    pub(super) fn add_mounts(&mut self, pod: &Name, claims: &[Box<str>]) {
        if claims.is_empty() {
            return;
        }
        let held = claims.iter().map(|claim| {
            let claim = Name::new(&pod.namespace, claim);
            let known = self.mounted.get_key_value(&claim).map(|(claim, _)| Arc::clone(claim));
            let claim = known.unwrap_or_else(|| Arc::new(claim));
            *self.mounted.entry(Arc::clone(&claim)).or_default() += 1;
            claim
        });
        let held = held.collect();
        self.mounts.insert(pod.clone(), held);
    }

    pub(super) fn remove_mounts(&mut self, pod: &Name) {
        for claim in self.mounts.remove(pod).into_iter().flatten() {
            let Entry::Occupied(mut pods) = self.mounted.entry(claim) else { continue };
            *pods.get_mut() -= 1;
            if *pods.get() == 0 {
                pods.remove();
            }
        }
    }

    pub(super) fn counts(&self) -> [(&'static str, usize); 9] {
        [
            ("taskruns", self.task_runs.len()),
            ("pipelineruns", self.pipeline_runs.len()),
            ("pipelines", self.pipelines.len()),
            ("persistentvolumeclaims", self.claims.len()),
            ("storageclasses", self.storage_classes.len()),
            ("persistentvolumes", self.volumes.len()),
            ("placeholders", self.placeholders.len()),
            ("members", self.members.len()),
            ("bound pods", self.taken.len()),
        ]
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.runs_by_uid.is_empty()
            && self.runs_by_claim.is_empty()
            && self.runs_by_parent.is_empty()
            && self.claims_by_run.is_empty()
            && self.placeholders_by_run.is_empty()
            && self.placeholders_by_claim.is_empty()
            && self.tasks_by_run.is_empty()
            && self.assisted_runs.is_empty()
            && self.mounts.is_empty()
            && self.mounted.is_empty()
            && self.placeholder_pods.is_empty()
            && self.members_by_placeholder.is_empty()
            && self.usage.is_empty()
            && self.counts().iter().all(|(_, count)| *count == 0)
    }
}

impl View {
    /// A TaskRun, once it is known.
    #[must_use]
    pub fn task_run(&self, name: &Name) -> Option<&TaskRun> {
        self.coscheduled.task_runs.get(name)
    }

    /// The runs of which Tekton's own affinity assistant places a TaskRun.
    pub fn assisted_runs(&self) -> impl Iterator<Item = &PipelineRun> {
        self.coscheduled.assisted_runs.iter().filter_map(|of| {
            let (name, run) = self.run_by_uid(&of.name)?;
            (name.namespace == of.namespace).then_some(run)
        })
    }

    /// What the TaskRuns that the PipelineRun with this UID has made say together.
    #[must_use]
    pub fn tasks_of_run(&self, namespace: &str, uid: &str) -> TaskCounts {
        let counts = self.coscheduled.tasks_by_run.get(&Name::new(namespace, uid));
        counts.copied().unwrap_or_default()
    }

    /// Forgets a TaskRun.
    pub fn remove_task_run(&mut self, name: &Name) {
        self.coscheduled.remove_task_run(name);
    }

    /// A PipelineRun, once it is known.
    #[must_use]
    pub fn pipeline_run(&self, name: &Name) -> Option<&PipelineRun> {
        self.coscheduled.pipeline_runs.get(name)
    }

    /// The PipelineRun with this UID, once it is known.
    #[must_use]
    pub fn run_by_uid(&self, uid: &str) -> Option<(&Name, &PipelineRun)> {
        let name = self.coscheduled.runs_by_uid.get(uid)?;
        self.coscheduled.pipeline_runs.get_key_value(name)
    }

    /// What is held under the UID of a run that is known, as far as it is in the run's namespace: an
    /// owner in another one is its author's word only.
    fn owned_by_run<'v>(
        &'v self,
        held: &'v Sets<Box<str>>,
        uid: &str,
    ) -> impl Iterator<Item = &'v Name> + use<'v> {
        let namespace = self.coscheduled.runs_by_uid.get(uid).map(|run| &run.namespace);
        held.get(uid).filter(move |name| Some(&name.namespace) == namespace)
    }

    /// Every PipelineRun.
    pub fn pipeline_runs(&self) -> impl Iterator<Item = (&Name, &PipelineRun)> {
        self.coscheduled.pipeline_runs.iter()
    }

    /// The PipelineRuns that the one with this UID has made, in the order of their names.
    pub fn runs_below(&self, uid: &str) -> impl Iterator<Item = (&Name, &PipelineRun)> {
        let names = self.owned_by_run(&self.coscheduled.runs_by_parent, uid);
        names.filter_map(|name| self.coscheduled.pipeline_runs.get_key_value(name))
    }

    /// The PipelineRuns that use a claim, in the order of their names.
    pub fn runs_with_claim(&self, claim: &Name) -> impl Iterator<Item = (&Name, &PipelineRun)> {
        let names = self.coscheduled.runs_by_claim.get(claim);
        names.filter_map(|name| self.coscheduled.pipeline_runs.get_key_value(name))
    }

    /// Forgets a PipelineRun.
    pub fn remove_pipeline_run(&mut self, name: &Name) {
        self.coscheduled.remove_pipeline_run(name);
    }

    /// A Pipeline, once it is known.
    #[must_use]
    pub fn pipeline(&self, name: &Name) -> Option<&NamedPipeline> {
        self.coscheduled.pipelines.get(name)
    }

    /// Forgets a Pipeline.
    pub fn remove_pipeline(&mut self, name: &Name) {
        self.coscheduled.pipelines.remove(name);
    }

    /// A claim, once it is known.
    #[must_use]
    pub fn claim(&self, name: &Name) -> Option<&Claim> {
        self.coscheduled.claims.get(name)
    }

    /// The claims that the PipelineRun with this UID owns, in the order of their names.
    pub fn claims_of_run(&self, uid: &str) -> impl Iterator<Item = (&Name, &Claim)> {
        let names = self.owned_by_run(&self.coscheduled.claims_by_run, uid);
        names.filter_map(|name| self.coscheduled.claims.get_key_value(name))
    }

    /// Every claim.
    pub fn claims(&self) -> impl Iterator<Item = (&Name, &Claim)> {
        self.coscheduled.claims.iter()
    }

    /// Forgets a claim.
    pub fn remove_claim(&mut self, name: &Name) {
        self.coscheduled.remove_claim(name);
    }

    /// A storage class, once it is known.
    #[must_use]
    pub fn storage_class(&self, name: &str) -> Option<&StorageClass> {
        self.coscheduled.storage_classes.get(name)
    }

    /// Every storage class.
    pub fn storage_classes(&self) -> impl Iterator<Item = (&str, &StorageClass)> {
        self.coscheduled.storage_classes.iter().map(|(name, class)| (&**name, class))
    }

    /// Forgets a storage class.
    pub fn remove_storage_class(&mut self, name: &str) {
        self.coscheduled.storage_classes.remove(name);
    }

    /// A volume, once it is known.
    #[must_use]
    pub fn volume(&self, name: &str) -> Option<&Volume> {
        self.coscheduled.volumes.get(name)
    }

    /// Forgets a volume.
    pub fn remove_volume(&mut self, name: &str) {
        self.coscheduled.volumes.remove(name);
    }

    /// A placeholder, once it is known.
    #[must_use]
    pub fn placeholder(&self, name: &Name) -> Option<&Placeholder> {
        self.coscheduled.placeholders.get(name)
    }

    /// Every placeholder.
    pub fn placeholders(&self) -> impl Iterator<Item = (&Name, &Placeholder)> {
        self.coscheduled.placeholders.iter()
    }

    /// The placeholders that the PipelineRun with this UID owns, in the order of their names.
    pub fn placeholders_of_run(&self, uid: &str) -> impl Iterator<Item = (&Name, &Placeholder)> {
        let names = self.owned_by_run(&self.coscheduled.placeholders_by_run, uid);
        names.filter_map(|name| self.coscheduled.placeholders.get_key_value(name))
    }

    /// The placeholders that mount a claim, also one that was made for them, in the order of their names.
    pub fn placeholders_with_claim(
        &self,
        claim: &Name,
    ) -> impl Iterator<Item = (&Name, &Placeholder)> {
        let names = self.coscheduled.placeholders_by_claim.get(claim);
        names.filter_map(|name| self.coscheduled.placeholders.get_key_value(name))
    }

    /// Forgets a placeholder.
    pub fn remove_placeholder(&mut self, name: &Name) {
        self.coscheduled.remove_placeholder(name);
    }

    /// The pod of the placeholder of this name.
    #[must_use]
    pub fn placeholder_pod(&self, placeholder: &Name) -> Option<&PlaceholderPod> {
        let Name { namespace, name } = placeholder;
        let name = Name::new(namespace, &[&**name, FIRST].concat());
        self.coscheduled.placeholder_pods.get(&name)
    }

    /// Every pod of a placeholder.
    pub fn placeholder_pods(&self) -> impl Iterator<Item = (&Name, &PlaceholderPod)> {
        self.coscheduled.placeholder_pods.iter()
    }

    /// Forgets the pod of a placeholder; `name` is the pod's.
    pub fn remove_placeholder_pod(&mut self, name: &Name) {
        self.coscheduled.placeholder_pods.remove(name);
    }

    /// A pod that is, or may be, a group's.
    #[must_use]
    pub fn member(&self, name: &Name) -> Option<&Member> {
        self.coscheduled.members.get(name)
    }

    /// Every pod that is, or may be, a group's.
    pub fn members(&self) -> impl Iterator<Item = (&Name, &Member)> {
        self.coscheduled.members.iter()
    }

    /// The pods that were admitted for a placeholder, in the order of their names.
    pub fn members_of(&self, placeholder: &Name) -> impl Iterator<Item = (&Name, &Member)> {
        let names = self.coscheduled.members_by_placeholder.get(placeholder);
        names.filter_map(|name| self.coscheduled.members.get_key_value(name))
    }

    /// Forgets a pod as one of a group.
    pub fn remove_member(&mut self, name: &Name) {
        self.coscheduled.remove_member(name);
    }

    /// Whether a pod mounts a claim that has not ended, whatever made it and whether it has a node. Known
    /// only to the controller's View.
    #[must_use]
    pub fn is_mounted(&self, claim: &Name) -> bool {
        self.coscheduled.mounted.contains_key(claim)
    }

    /// What the pods on a node take of it; `None` where there is none. Kept only in the controller's
    /// View.
    #[must_use]
    pub fn node_usage(&self, node: &str) -> Option<&NodeUsage> {
        self.coscheduled.usage.get(node)
    }

    /// Whether a controller is there to make placeholders and to lift gates. Nobody asks the cluster
    /// in here: a View begins with one, until it is told otherwise.
    #[must_use]
    pub fn controller_present(&self) -> bool {
        !self.coscheduled.controller_absent
    }

    /// Says whether a controller is there.
    pub fn set_controller_present(&mut self, present: bool) {
        self.coscheduled.controller_absent = !present;
    }

    /// Whether the cluster may have Tekton's runs. A View begins with that, until it is told otherwise.
    #[must_use]
    pub fn has_tekton(&self) -> bool {
        !self.coscheduled.tekton_absent
    }

    /// Says whether the cluster knows Tekton's kinds.
    pub fn set_tekton(&mut self, present: bool) {
        self.coscheduled.tekton_absent = !present;
    }
}
