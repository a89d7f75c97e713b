//! From a cluster to what is in the way of a Tekton run, or of another group that shares a node.
//!
//! Its groups are those that the webhook and the controller find. Of each, its placeholder is told, the
//! claims that this mounts and the pods that go where it is; each obstacle once, where it arises.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{NodeSelectorTerm, Pod};

use super::diagnose::{counted, is_finished, label, living, missing, node_of, scheduler, some};
use super::nodes::{is_ready, is_selected, node_named_by, obstacle};
use super::{Cluster, Diagnosis};
use crate::policy::{CoscheduleMode, IsolationScope, Policy};
use crate::systems::coschedule::family;
use crate::systems::coschedule::groups::{self, Conflict, Group, Groups};
use crate::systems::coschedule::member::{Belonging, belonging};
use crate::systems::coschedule::{keys, mode};
use crate::systems::vocabulary::IGNORE;
use crate::view::member;
use crate::view::pipeline_run::{PipelineSource, WorkspaceSource};
use crate::view::placeholder::{self, FIRST, PlaceholderPod};
use crate::view::{Key, Member, Name, Owner, PipelineRun, Resources, View, selector};

/// Where nobody makes, moves and removes placeholders.
const SEE_CONTROLLER: &str =
    "see that stowplan's controller runs: `kubectl get lease -A | grep stowplan`";

/// Why a run is where it is, or waits. `None`: there is no such run.
pub(super) fn pipeline_run(
    cluster: &Cluster,
    policy: &Policy,
    namespace: &str,
    name: &str,
) -> Option<Diagnosis> {
    let view = &cluster.view;
    let key = Name::new(namespace, name);
    let run = view.pipeline_run(&key)?;
    let mut told = Diagnosis {
        kind: "PipelineRun",
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..Diagnosis::default()
    };
    if run.done {
        told.decided.push("nothing any more: it has ended".to_owned());
        return Some(told);
    }
    let (root_name, root, missing) = groups::root(&key, run, view);
    if let Some(above) = missing {
        told.object(
            format!("it is a part of {above}, of which nothing is known: it is not placed"),
            "see that this run is still there: its groups are those of the run above all",
        );
        return Some(told);
    }
    if *root_name != key {
        told.asked.push(format!("a part of PipelineRun {}, whose groups follow", root_name.name));
    }
    if let Some(why) = left_alone(namespace, view, policy) {
        told.decided.push(format!("nothing: {why}"));
        return Some(told);
    }
    let groups = match groups::of_run(root_name, root, view, policy) {
        Ok(groups) => groups,
        Err(bad) => {
            let finding = bad.finding();
            told.object(format!("{}: {}", finding.subject, finding.problem), &finding.remedy);
            return Some(told);
        }
    };
    if let Some(group) = &root.group {
        told.decided.push(format!(
            "nothing of its own: by its annotation {} its pods are of group {group}",
            keys::GROUP
        ));
        return Some(told);
    }
    let source = mode_source(root_name, root, view);
    told.asked.push(format!("mode {}, by {source}", mode::word(groups.mode)));
    if groups.mode == CoscheduleMode::Disabled {
        told.decided.push("nothing: each of its pods is placed by itself".to_owned());
        return Some(told);
    }
    Course { cluster, policy, name: root_name, run: root, groups: &groups }.tell(&mut told);
    Some(told)
}

/// What a pod has joined, and what is in the way of that: a row for what it asks, and the placeholder.
pub(super) struct Joined {
    pub(super) asked: String,
    pub(super) placeholder: Diagnosis,
}

/// The group that a pod was admitted for, if it was, or is the placeholder's of.
pub(super) fn joined(
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
            _ => "a group of which nothing is known".to_owned(),
        };
        let placeholder = Stand::new(cluster, policy, &name, Vec::new(), false).placeholder();
        return Some(Joined { asked: format!("a node for {group}"), placeholder });
    }
    let placeholder = label(pod, keys::MEMBER)?;
    let owner = Owner::of_tekton(&pod.metadata, "TaskRun");
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
        _ => {
            let annotations = pod.metadata.annotations.as_ref();
            match annotations.and_then(|all| all.get(keys::GROUP)) {
                Some(group) => format!("one node with the pods of group {group}"),
                None => "one node with a group of which nothing is known".to_owned(),
            }
        }
    };
    let name = Name::new(namespace, placeholder);
    let stand = Stand::new(cluster, policy, &name, claims, isolated);
    let mut told = stand.placeholder();
    if !stand.is_made() {
        stand.tell_not_there(&mut told, "pod", pod.metadata.name.as_deref().unwrap_or_default());
    }
    Some(Joined { asked, placeholder: told })
}

/// Says why a pod that has no node does not come in where its placeholder is.
pub(super) fn outside(
    told: &mut Diagnosis,
    cluster: &Cluster,
    policy: &Policy,
    pod: &Pod,
    namespace: &str,
) {
    let Some(placeholder) = label(pod, keys::MEMBER) else { return };
    let name = Name::new(namespace, placeholder);
    Stand::new(cluster, policy, &name, Vec::new(), false).tell_outside(told, pod);
}

/// Why nothing in a namespace is coscheduled.
fn left_alone(namespace: &str, view: &View, policy: &Policy) -> Option<String> {
    let labels = view.namespace_labels(namespace);
    let ignored = labels.and_then(|labels| labels.get(IGNORE)).is_some_and(|v| &**v == "true");
    if !policy.coschedule.enabled {
        Some("the policy has coscheduling disabled".to_owned())
    } else if policy.excludes(namespace) {
        Some(format!("the policy excludes namespace {namespace}"))
    } else if ignored {
        Some(format!("namespace {namespace} has the label {IGNORE}: \"true\""))
    } else {
        None
    }
}

/// Who says the mode of a run, for people.
fn mode_source(name: &Name, run: &PipelineRun, view: &View) -> String {
    match mode::source(name, run, view) {
        mode::Source::Placeholder(_) => "what its first placeholder was made for".to_owned(),
        mode::Source::Run(_) => format!("its annotation {}", keys::MODE),
        mode::Source::Pipeline { name, .. } => format!("the annotation of Pipeline {name}"),
        mode::Source::Namespace(_) => {
            format!("the annotation of Namespace {}", name.namespace)
        }
        mode::Source::Policy => "the policy".to_owned(),
    }
}

fn claims_of(group: &Group) -> Vec<String> {
    group.claims.iter().map(|claim| claim.name.to_string()).collect()
}

/// A run that goes on, and its groups.
struct Course<'c> {
    cluster: &'c Cluster,
    policy: &'c Policy,
    name: &'c Name,
    run: &'c PipelineRun,
    groups: &'c Groups,
}

impl Course<'_> {
    fn tell(&self, told: &mut Diagnosis) {
        let Name { namespace, name } = self.name;
        if let Some(problem) = &self.run.problem {
            told.object(
                format!("it cannot be read: {problem}"),
                format!("kubectl get pipelinerun {name} -n {namespace} -o yaml"),
            );
        }
        self.pipeline(told);
        if self.signs().is_assisted {
            told.object(
                "Tekton's own affinity assistant places this run, and stowplan leaves it alone",
                "set `coschedule: disabled` in Tekton's ConfigMap feature-flags; runs that are made then are stowplan's",
            );
            return;
        }
        if self.groups.groups.is_empty() {
            told.decided.push("nothing: none of its claims needs one node".to_owned());
            return;
        }
        let is_managed = self.cluster.view.controller_present();
        if !is_managed {
            told.object(
                "no controller of stowplan renews its Lease: nobody makes, moves and removes placeholders",
                SEE_CONTROLLER,
            );
        }
        for conflict in &self.groups.conflicts {
            told.object(conflict.to_string(), remedy_of(conflict));
        }
        let has_started = self.has_started();
        if !has_started && self.cluster.knows("TaskRun") {
            told.object(
                "Tekton has made no TaskRun of it yet, and placeholders are made with the first",
                format!("kubectl describe pipelinerun {name} -n {namespace}"),
            );
        }
        for group in &self.groups.groups {
            let is_due = is_managed && has_started;
            let part = self.group(told, group, is_due);
            told.parts.push(part);
        }
        self.strays(told);
    }

    /// What it runs, as far as that shapes the groups.
    fn pipeline(&self, told: &mut Diagnosis) {
        let whole = "all claims that need one node make one group";
        match &self.run.pipeline {
            PipelineSource::Resolver => {
                told.decided.push(format!("its pipeline is a resolver's, so {whole}"));
            }
            PipelineSource::Named(named) if self.cluster.knows("Pipeline") => {
                let awaited = |key: &Key| matches!(key, Key::Pipeline(_));
                if self.groups.awaited.iter().any(awaited) {
                    told.object(
                        format!("Pipeline {named} is not there; until it is, {whole}"),
                        format!("kubectl get pipeline {named} -n {}", self.name.namespace),
                    );
                }
            }
            PipelineSource::Inline(pipeline) if pipeline.nested => {
                told.decided.push(format!("it has pipelines in its pipeline, so {whole}"));
            }
            _ => {}
        }
        for workspace in &self.run.workspaces {
            if workspace.source == WorkspaceSource::Unresolved {
                told.decided.push(format!(
                    "workspace {}: its claim is a task's result, and joins when it is known",
                    workspace.name
                ));
            }
        }
    }

    /// What its TaskRuns say, and those of the runs that it has made.
    fn signs(&self) -> family::Signs {
        family::signs(self.name, self.run, &self.cluster.view)
    }

    fn has_started(&self) -> bool {
        let view = &self.cluster.view;
        let has_members = |group: &Group| {
            view.members_of(&Name::new(&self.name.namespace, &group.name)).next().is_some()
        };
        self.signs().has_started || self.groups.groups.iter().any(has_members)
    }

    /// One group: its placeholder, its claims, its pods. `is_due`: the placeholder should be there.
    fn group(&self, told: &mut Diagnosis, group: &Group, is_due: bool) -> Diagnosis {
        let Name { namespace, name } = self.name;
        let placeholder = Name::new(namespace, &group.name);
        let stand =
            Stand::new(self.cluster, self.policy, &placeholder, claims_of(group), group.isolated);
        let mut part = stand.placeholder();
        part.asked.insert(0, asked_by(group));
        let is_held = self.follows(told, group);
        if is_due && !is_held && !stand.is_made() {
            stand.tell_not_there(&mut part, "pipelinerun", name);
        }
        part.parts.extend(stand.claims.iter().map(|claim| self.claim(&stand, group, claim)));
        for (member, _) in self.cluster.view.members_of(&placeholder) {
            let pod = self.cluster.pod(namespace, &member.name);
            part.parts.extend(pod.map(|pod| stand.member(pod)));
        }
        part
    }

    /// Says whose node a group must be on because of a claim that an earlier run uses, too. Returns
    /// whether that holds it up.
    fn follows(&self, told: &mut Diagnosis, group: &Group) -> bool {
        let view = &self.cluster.view;
        let leader = groups::leader(self.name, self.run, group, view, self.policy);
        let Some(groups::Leader { who, placeholder, claim }) = leader else { return false };
        let shared = format!("claim {claim} is also used by the earlier {who}");
        if group.isolated {
            told.object(
                format!("{shared}, and runs are isolated"),
                format!("wait until {who} has ended, or give each run a claim of its own"),
            );
            return true;
        }
        let placeholder = Name::new(&self.name.namespace, &placeholder);
        let see = match &who {
            groups::Who::Run(run) => {
                format!("stowplan check pipelinerun/{} -n {}", run.name, run.namespace)
            }
            groups::Who::Group(_) => {
                format!("kubectl describe pod {}-0 -n {}", placeholder.name, placeholder.namespace)
            }
        };
        let pod = view.placeholder_pod(&placeholder);
        match pod.and_then(|pod| pod.place()) {
            Some(node) => {
                told.decided.push(format!("{shared}: on the same node, {node}"));
                false
            }
            None => {
                told.object(format!("{shared}, whose placeholder has no node yet"), see);
                true
            }
        }
    }

    fn claim(&self, stand: &Stand<'_>, group: &Group, claim: &str) -> Diagnosis {
        let of_template = group.claims.iter().any(|own| own.template && *own.name == *claim);
        stand.claim(claim, of_template)
    }

    /// The run's pods that wait and were admitted as nobody's.
    fn strays(&self, told: &mut Diagnosis) {
        let namespace = &self.name.namespace;
        for pod in self.cluster.in_namespace(namespace).filter(|pod| !is_finished(pod)) {
            let Some(owner) = Owner::of_tekton(&pod.metadata, "TaskRun") else { continue };
            if label(pod, keys::MEMBER).is_some() || node_of(pod).is_some() {
                continue;
            }
            let of = belonging(namespace, &owner, &self.cluster.view, self.policy);
            if !matches!(of, Belonging::Run(of) if of.name == self.name) {
                continue;
            }
            let mut part = of_pod(pod, namespace);
            missing(&mut part, pod, namespace, self.cluster, self.policy);
            if part.has_obstacle() {
                told.parts.push(part);
            }
        }
    }
}

fn remedy_of(conflict: &Conflict) -> &'static str {
    match conflict {
        Conflict::Volumes { .. } => {
            "give the run claims of a class that binds with its first pod (WaitForFirstConsumer), or one claim with a subPath for each"
        }
        Conflict::Selectors { .. } => {
            "let both tasks ask for the same nodes, or share a claim that several nodes can mount (ReadWriteMany)"
        }
    }
}

fn asked_by(group: &Group) -> String {
    let tasks = match &group.tasks {
        Some(tasks) if tasks.is_empty() => "no task".to_owned(),
        Some(tasks) => {
            let tasks: Vec<String> = tasks.iter().map(ToString::to_string).collect();
            format!("{} {}", if tasks.len() == 1 { "task" } else { "tasks" }, some(&tasks))
        }
        None => "every task".to_owned(),
    };
    let alone = if group.isolated { ", without other runs" } else { "" };
    format!("one node{alone} for {tasks}")
}

fn of_pod(pod: &Pod, namespace: &str) -> Diagnosis {
    let mut told = Diagnosis {
        kind: "Pod",
        namespace: namespace.to_owned(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        scheduler: scheduler(pod),
        ..Diagnosis::default()
    };
    told.placed.extend(node_of(pod).map(|node| format!("node {node}")));
    told
}

/// How a pod comes to be admitted anew.
fn made_again(pod: &Pod, namespace: &str) -> String {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let delete = format!("kubectl delete pod {name} -n {namespace}");
    match Owner::of_any(&pod.metadata) {
        Some((kind, _)) => format!("{delete}: its {kind} makes it again"),
        None => format!("{delete}, and create it again: it has no controller"),
    }
}

/// For all that share a node alike, and where to say so.
fn alike(pod: &Pod) -> String {
    match Owner::of_any(&pod.metadata) {
        Some((kind, _)) if &*kind == "TaskRun" => {
            "for all tasks of the group alike, in the run's pod template".to_owned()
        }
        // Its template is that of a Deployment, as a rule.
        Some((kind, owner)) if &*kind == "ReplicaSet" => format!(
            "for all pods of the group alike, in the pod template of what made {kind} {}",
            owner.name
        ),
        Some((kind, owner)) => {
            format!("for all pods of the group alike, in the pod template of {kind} {}", owner.name)
        }
        None => "for all pods of the group alike".to_owned(),
    }
}

/// A placeholder as it stands, or should.
struct Stand<'c> {
    cluster: &'c Cluster,
    policy: &'c Policy,
    name: &'c Name,
    /// The claims that it mounts, or would.
    claims: Vec<String>,
    isolated: bool,
    pod: Option<&'c Pod>,
    /// Its members that have a node and have not ended.
    running: Vec<&'c Pod>,
    /// Its members without a node.
    waiting: Vec<&'c Pod>,
}

impl<'c> Stand<'c> {
    /// `claims` and `isolated`: what it is made of where it does not say so itself.
    fn new(
        cluster: &'c Cluster,
        policy: &'c Policy,
        name: &'c Name,
        claims: Vec<String>,
        isolated: bool,
    ) -> Self {
        let claims = match cluster.view.placeholder(name) {
            Some(made) => made.mounted(name).map(|claim| claim.name.into()).collect(),
            None => claims,
        };
        let isolates = |mode: &str| mode::read(mode) == Some(CoscheduleMode::IsolatePipelinerun);
        let made = cluster.view.placeholder(name);
        // The label alone is its author's word.
        let belongs = |of: &Name, member: &Member| {
            made.is_none_or(|made| {
                let run_uid = made.run.as_ref().map(|run| &*run.uid);
                family::belongs(of, member, &name.name, run_uid, &cluster.view)
            })
        };
        let members = cluster.view.members_of(name).filter(|(of, member)| belongs(of, member));
        let members =
            members.filter_map(|(member, _)| cluster.pod(&member.namespace, &member.name));
        // A dead node never lets go of what is deleted there.
        let goes_on = |pod: &&Pod| match node_of(pod) {
            _ if pod.metadata.deletion_timestamp.is_none() => true,
            Some(node) => cluster.nodes.get(node).is_some_and(is_ready),
            None => false,
        };
        let (running, waiting) = members
            .filter(|pod| !is_finished(pod))
            .filter(goes_on)
            .partition(|pod| node_of(pod).is_some());
        let made = made.and_then(|made| made.mode.as_deref());
        Self {
            cluster,
            policy,
            name,
            claims,
            isolated: made.map_or(isolated, isolates),
            pod: cluster.pod(&name.namespace, &format!("{}{FIRST}", name.name)),
            running,
            waiting,
        }
    }

    fn is_made(&self) -> bool {
        self.cluster.view.placeholder(self.name).is_some() || self.pod.is_some()
    }

    /// What says which nodes it asks for.
    fn asks(&self) -> &'static str {
        match self.cluster.view.placeholder(self.name) {
            Some(made) if made.group.is_some() => "the group's pods",
            _ => "the run's pod template",
        }
    }

    /// The node where its pod is and stays for now.
    fn node(&self) -> Option<&'c str> {
        self.pod.filter(|pod| !is_finished(pod)).and_then(node_of)
    }

    /// The placeholder itself, and what is in its way.
    fn placeholder(&self) -> Diagnosis {
        let Name { namespace, name } = self.name;
        let mut told = Diagnosis {
            kind: "StatefulSet",
            namespace: namespace.to_string(),
            name: name.to_string(),
            scheduler: self.pod.and_then(scheduler),
            ..Diagnosis::default()
        };
        told.placed.extend(self.node().map(|node| format!("node {node}")));
        match (self.pod, self.node()) {
            (Some(pod), _) if pod.metadata.deletion_timestamp.is_some() => {
                told.decided.push("its pod is being deleted, and is made again".to_owned());
            }
            (Some(pod), Some(node)) => self.tell_placed(&mut told, pod, node),
            (Some(pod), None) if !is_finished(pod) => self.tell_unplaced(&mut told, pod),
            (Some(_), None) => {}
            (None, _) if self.is_made() && self.cluster.knows("Pod") => told.object(
                "it has no pod: a quota, Pod Security or another admission webhook may forbid it",
                format!("kubectl describe statefulset {name} -n {namespace}: its events say why"),
            ),
            (None, _) => {}
        }
        told
    }

    /// Says that there is no placeholder where there should be one.
    fn tell_not_there(&self, told: &mut Diagnosis, kind: &str, name: &str) {
        if self.cluster.knows("StatefulSet") {
            told.object(
                "it is not there: the controller has not made it, or may not",
                format!(
                    "kubectl describe {kind} {name} -n {}: its events say why",
                    self.name.namespace
                ),
            );
        }
    }

    /// Why the node of its pod takes nobody any more, where that holds somebody up.
    fn tell_placed(&self, told: &mut Diagnosis, pod: &Pod, node: &str) {
        let Some(why) = self.closed(pod, node) else { return };
        if self.waiting.is_empty() {
            return;
        }
        let open = match why.as_str() {
            "cordoned" => format!("kubectl uncordon {node}"),
            _ => format!("kubectl describe node {node}"),
        };
        let is_here = |pod: &&&Pod| node_of(pod) == Some(node);
        if let Some(running) = self.running.iter().find(is_here).or_else(|| self.running.first()) {
            let place = match node_of(running).filter(|place| *place != node) {
                Some(other) => format!("on node {other}"),
                None => "there".to_owned(),
            };
            let running = running.metadata.name.as_deref().unwrap_or_default();
            told.object(
                format!("node {node}: {why}; pod {running} still runs {place}, and the group moves when it has ended"),
                format!("wait for pod {running}, or {open}"),
            );
        } else if let Some(claim) = self.pinned_to(node) {
            told.object(
                format!("node {node}: {why}; claim {claim} can be used on no other node, so that the group cannot move"),
                open,
            );
        } else {
            told.object(
                format!("node {node}: {why}; the controller moves the placeholder"),
                format!("wait a moment; if it stays, {SEE_CONTROLLER}"),
            );
        }
    }

    /// Why a node takes nobody, be it the placeholder or one who follows it.
    fn closed(&self, pod: &Pod, node: &str) -> Option<String> {
        match self.cluster.nodes.get(node) {
            None if self.cluster.nodes.is_empty() => None,
            None => Some("gone".to_owned()),
            Some(known) => obstacle(pod, node, known),
        }
    }

    /// Why the node does not take its pod where its members run, which hold it there. Returns whether they do.
    fn tell_held_back(&self, told: &mut Diagnosis, pod: &Pod) -> bool {
        let labels = pod.metadata.labels.as_ref();
        let is_held = placeholder::is_held(pod.spec.as_ref(), labels, &self.name.name);
        let is_placed = |pod: &Pod| {
            let spec = pod.spec.as_ref();
            spec.is_some_and(|spec| member::follows(spec, &self.name.name))
                || node_named_by(pod).is_some()
        };
        let mut placed = self.running.iter().filter(|pod| is_placed(pod)).filter_map(|member| {
            let node = node_of(member)?;
            self.cluster.nodes.contains_key(node).then_some((member, node))
        });
        // A native group is not held to a node that takes nobody.
        let made = self.cluster.view.placeholder(self.name);
        let is_native = made.is_some_and(|made| made.group.is_some());
        let holds = |node: &str| is_held && !(is_native && self.closed(pod, node).is_some());
        let Some((running, node)) = placed.find(|(_, node)| holds(node)) else {
            return false;
        };
        let Name { namespace, name } = self.name;
        let running = running.metadata.name.as_deref().unwrap_or_default();
        let Some((why, remedy)) = self.why_not(pod, node) else {
            told.object(
                format!("it must be on node {node}, where pod {running} runs, which could take it as far as stowplan can see: see what the scheduler says"),
                format!("kubectl describe pod {name}{FIRST} -n {namespace}"),
            );
            return true;
        };
        let instead = match remedy {
            Remedy::Uncordon | Remedy::Describe => format!(", or {}", remedy.text(node)),
            Remedy::Room => format!(", or free room on node {node}"),
            Remedy::Wait => String::new(),
        };
        told.object(
            format!("node {node}: {why}; pod {running} still runs there, and the group moves when it has ended"),
            format!("wait for pod {running}{instead}"),
        );
        true
    }

    /// Why no node takes its pod.
    fn tell_unplaced(&self, told: &mut Diagnosis, pod: &Pod) {
        let nodes = &self.cluster.nodes;
        if nodes.is_empty() || self.tell_held_back(told, pod) {
            return;
        }
        let Name { namespace, name } = self.name;
        let selected: BTreeSet<&str> = nodes
            .iter()
            .filter(|(name, node)| is_selected(pod, name, node))
            .map(|(name, _)| name.as_str())
            .collect();
        if selected.is_empty() {
            told.object(
                format!(
                    "its node selector and node affinity leave it none of {}",
                    counted(nodes.len(), "node")
                ),
                format!("kubectl get statefulset {name} -n {namespace} -o yaml: they are those of {}, without nodes that were full", self.asks()),
            );
            return;
        }
        if self.tell_volumes_apart(told) {
            return;
        }
        let usable: Vec<&str> =
            selected.iter().copied().filter(|node| self.can_mount(node)).collect();
        if usable.is_empty() {
            let can: Vec<String> =
                nodes.keys().filter(|node| self.can_mount(node)).cloned().collect();
            // Otherwise it is told of the claim.
            if !can.is_empty() {
                told.object(
                    format!(
                        "its volumes can be used on node {} only, where its node selector and node affinity do not let it",
                        some(&can)
                    ),
                    format!("let {} ask for nodes that reach the volumes, or use other claims", self.asks()),
                );
            }
            return;
        }
        let only = match self.claims.iter().find(|claim| !self.nodes_of(claim).is_all) {
            Some(claim) => format!("; claim {claim} can be used on no other node"),
            None => String::new(),
        };
        let mut reasons: BTreeMap<(String, Remedy), Vec<String>> = BTreeMap::new();
        for node in usable {
            match self.why_not(pod, node) {
                Some(why) => reasons.entry(why).or_default().push(node.to_owned()),
                None => {
                    told.object(
                        format!("node {node} could take it as far as stowplan can see: see what the scheduler says"),
                        format!("kubectl describe pod {name}{FIRST} -n {namespace}"),
                    );
                    return;
                }
            }
        }
        for ((why, remedy), names) in reasons {
            let text = format!("node {}: {why}{only}", some(&names));
            told.object(text, remedy.text(&names[0]));
        }
    }

    /// Why a node that it asks for, and that reaches its volumes, does not take the placeholder.
    fn why_not(&self, pod: &Pod, node: &str) -> Option<(String, Remedy)> {
        if let Some(why) = self.closed(pod, node) {
            let remedy = if why == "cordoned" { Remedy::Uncordon } else { Remedy::Describe };
            return Some((why, remedy));
        }
        if self.is_anothers(node) {
            return Some(("it is another run's alone".to_owned(), Remedy::Wait));
        }
        lacks(self.cluster, pod, node).map(|lacks| (lacks, Remedy::Room))
    }

    /// Whether isolation keeps it out of a node: its own, or that of the placeholder that is there.
    fn is_anothers(&self, node: &str) -> bool {
        let view = &self.cluster.view;
        view.placeholder_pods().any(|(other, pod)| {
            let in_scope = self.policy.coschedule.isolation_scope == IsolationScope::Cluster
                || other.namespace == self.name.namespace;
            let other = Name::new(&other.namespace, &pod.placeholder);
            let mode = || view.placeholder(&other).and_then(|made| made.mode.as_deref());
            let is_isolated =
                || mode().and_then(mode::read) == Some(CoscheduleMode::IsolatePipelinerun);
            pod.place() == Some(node)
                && other != *self.name
                && in_scope
                && (self.isolated || is_isolated())
        })
    }

    /// Says which two claims can be used on no common node. Returns whether there are any.
    fn tell_volumes_apart(&self, told: &mut Diagnosis) -> bool {
        for (index, claim) in self.claims.iter().enumerate() {
            let own = self.nodes_of(claim).names;
            for other in &self.claims[index + 1..] {
                let theirs = self.nodes_of(other).names;
                if !own.is_empty() && !theirs.is_empty() && own.is_disjoint(&theirs) {
                    let on = |names: BTreeSet<String>| some(&Vec::from_iter(names));
                    told.object(
                        format!(
                            "claim {claim} can be used on node {}, claim {other} on node {}: no node reaches both",
                            on(own),
                            on(theirs)
                        ),
                        "use claims of a class that binds with its first pod (WaitForFirstConsumer)",
                    );
                    return true;
                }
            }
        }
        false
    }

    fn terms_of(&self, claim: &str) -> &'c [NodeSelectorTerm] {
        let view = &self.cluster.view;
        let claim = view.claim(&Name::new(&self.name.namespace, claim));
        let volume = claim.and_then(|claim| view.volume(claim.volume.as_deref()?));
        volume.map_or(&[], |volume| &*volume.terms)
    }

    /// The nodes on which a claim can be used.
    fn nodes_of(&self, claim: &str) -> Reach {
        let terms = self.terms_of(claim);
        let reached = self.cluster.view.nodes().filter(|(name, node)| {
            terms.is_empty()
                || node
                    .estate
                    .as_ref()
                    .is_some_and(|node| selector::selects(terms, name, &node.labels))
        });
        let names: BTreeSet<String> = reached.map(|(name, _)| name.to_owned()).collect();
        Reach { is_all: names.len() == self.cluster.nodes.len(), names }
    }

    fn can_mount(&self, node: &str) -> bool {
        self.claims.iter().all(|claim| self.nodes_of(claim).names.contains(node))
    }

    /// The claim that can be used on no node but this one.
    fn pinned_to(&self, node: &str) -> Option<&str> {
        let is_only = |claim: &&String| {
            let reach = self.nodes_of(claim);
            let others = reach.names.iter().any(|name| name != node);
            !self.terms_of(claim).is_empty() && !others
        };
        self.claims.iter().find(is_only).map(String::as_str)
    }

    /// A pod of the group.
    fn member(&self, pod: &Pod) -> Diagnosis {
        let mut told = of_pod(pod, &self.name.namespace);
        if node_of(pod).is_none() && !is_finished(pod) {
            let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
            let gates = gates.into_iter().flatten().map(|gate| gate.name.clone());
            let others: Vec<String> = gates.filter(|gate| gate != keys::GATE).collect();
            if !others.is_empty() {
                told.object(
                    format!("scheduling gates hold it: {}", some(&others)),
                    "whoever set them lifts them",
                );
            }
            self.tell_outside(&mut told, pod);
        }
        told
    }

    /// Why a pod does not come in where the placeholder is, if that node takes anybody.
    fn tell_outside(&self, told: &mut Diagnosis, pod: &Pod) {
        let (Some(placeholder), Some(node)) = (self.pod, self.node()) else { return };
        let Some(known) = self.cluster.nodes.get(node) else { return };
        if self.closed(placeholder, node).is_some() {
            return;
        }
        match node_named_by(pod).filter(|bound| *bound != node) {
            Some(bound) => {
                told.object(
                    format!("it was bound to node {bound}, and its group is on node {node} by now"),
                    made_again(pod, &self.name.namespace),
                );
                return;
            }
            None if !is_selected(pod, node, known) => {
                told.object(
                    format!("its own node selector or node affinity does not let it on node {node}, where its group is"),
                    format!("ask for nodes {}", alike(pod)),
                );
                return;
            }
            None => {}
        }
        if let Some(why) = obstacle(pod, node, known) {
            told.object(
                format!("node {node}, where its group is: {why}"),
                format!("give the same tolerations {}", alike(pod)),
            );
        } else if let Some(lacks) = lacks(self.cluster, pod, node) {
            told.object(format!("node {node}, where its group is: {lacks}"), self.room_for(pod));
        }
    }

    /// What to do for a pod that the group's node has no room for.
    fn room_for(&self, pod: &Pod) -> String {
        let takes = |name: &&String| {
            let known = &self.cluster.nodes[*name];
            obstacle(pod, name, known).is_none()
                && self.can_mount(name)
                && lacks(self.cluster, pod, name).is_none()
        };
        match (self.running.first(), self.cluster.nodes.keys().find(takes)) {
            (Some(running), _) => {
                let running = running.metadata.name.as_deref().unwrap_or_default();
                format!(
                    "wait for pod {running}: the group moves, or takes it in, when none of its pods runs"
                )
            }
            (None, Some(other)) => format!(
                "wait: after {} the controller moves the group to a node with room, as {other}",
                self.policy.coschedule.grace_period
            ),
            (None, None) => {
                "no node has room for it: free or add one, or let it request less".to_owned()
            }
        }
    }

    fn claim(&self, claim: &str, of_template: bool) -> Diagnosis {
        let view = &self.cluster.view;
        let Name { namespace, .. } = self.name;
        let mut told = Diagnosis {
            kind: "PersistentVolumeClaim",
            namespace: namespace.to_string(),
            name: claim.to_owned(),
            ..Diagnosis::default()
        };
        let Some(known) = view.claim(&Name::new(namespace, claim)) else {
            if self.cluster.knows("PersistentVolumeClaim") {
                let (what, remedy) = if of_template {
                    ("Tekton has not made it yet", format!("kubectl get events -n {namespace}"))
                } else {
                    ("it is not there", "make it, or let the run name another".to_owned())
                };
                told.object(what, remedy);
            }
            return told;
        };
        let class = known.class.as_deref().filter(|class| !class.is_empty());
        told.asked
            .push(class.map_or_else(|| "no class".to_owned(), |class| format!("class {class}")));
        match (&known.volume, known.bound) {
            (Some(volume), true) => {
                let Reach { is_all, names } = self.nodes_of(claim);
                let names = Vec::from_iter(names);
                let place = match names.len() {
                    _ if is_all => "any node".to_owned(),
                    0 => "no node".to_owned(),
                    count => format!("{}: {}", counted(count, "node"), some(&names)),
                };
                told.placed.push(format!("volume {volume}, on {place}"));
                if names.is_empty() && !self.cluster.nodes.is_empty() {
                    told.object(
                        format!("volume {volume} can be used on no node that is there"),
                        format!(
                            "kubectl describe pv {volume}: bring a node of its node affinity back"
                        ),
                    );
                }
            }
            _ if class == Some(keys::PARKED) => {
                told.decided.push("parked: the placeholder's own claim takes its place".to_owned());
            }
            _ => self.tell_unbound(&mut told, class, claim),
        }
        self.tell_used_elsewhere(&mut told, claim, known.access_modes.need_one_node());
        told
    }

    fn tell_unbound(&self, told: &mut Diagnosis, class: Option<&str>, claim: &str) {
        let known = class.and_then(|class| self.cluster.view.storage_class(class));
        match (class, known) {
            (_, Some(known)) if known.waits => {
                told.placed.push("no volume yet: it is made where the placeholder is".to_owned());
            }
            (Some(class), None) if self.cluster.knows("StorageClass") => told.object(
                format!("it has no volume, and StorageClass {class} is not there"),
                "make the class, or make the claim again with another",
            ),
            _ => told.object(
                "it has no volume yet, and does not wait for a pod",
                format!("kubectl describe pvc {claim} -n {}", self.name.namespace),
            ),
        }
    }

    /// A volume that one node uses at a time, in use on another.
    fn tell_used_elsewhere(&self, told: &mut Diagnosis, claim: &str, one_node: bool) {
        let (Some(pod), Some(node)) = (self.pod, self.node()) else { return };
        let uses = |other: &&Pod| {
            let volumes = other.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
            let mut claims = volumes.into_iter().flatten();
            claims.any(|volume| {
                volume.persistent_volume_claim.as_ref().is_some_and(|of| of.claim_name == claim)
            })
        };
        let elsewhere = living(self.cluster, &self.name.namespace, pod)
            .filter(uses)
            .find_map(|other| Some((other, node_of(other).filter(|other| *other != node)?)));
        if let Some((other, where_)) = elsewhere.filter(|_| one_node) {
            let other = other.metadata.name.as_deref().unwrap_or_default();
            told.object(
                format!("pod {other} uses it on node {where_}, and one node uses it at a time"),
                format!("wait until pod {other} has ended"),
            );
        }
    }
}

/// The nodes on which a claim can be used.
struct Reach {
    names: BTreeSet<String>,
    is_all: bool,
}

/// What to do about a node.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Remedy {
    Uncordon,
    Describe,
    Wait,
    Room,
}

impl Remedy {
    fn text(self, node: &str) -> String {
        match self {
            Self::Uncordon => format!("kubectl uncordon {node}"),
            Self::Describe => format!("kubectl describe node {node}"),
            Self::Wait => {
                "wait until one of those runs has ended, or add a node (runs are isolated)"
                    .to_owned()
            }
            Self::Room => "free or add a node".to_owned(),
        }
    }
}

/// What a node lacks for a pod, as far as the pods that are known take of it.
fn lacks(cluster: &Cluster, pod: &Pod, node: &str) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let known = cluster.view.node(node)?.estate.as_deref()?;
    // A node from a file that says nothing of what it has.
    if known.allocatable == Resources::default() {
        return None;
    }
    let usage = cluster.view.node_usage(node);
    if usage.is_some_and(|usage| usage.pods >= known.pod_limit) {
        return Some(format!("it has {}, and takes no more", counted(known.pod_limit, "pod")));
    }
    let free = match usage {
        Some(usage) => known.allocatable.minus(&usage.requested),
        None => known.allocatable.clone(),
    };
    let wanted = Resources::requested(spec);
    if free.covers(&wanted) {
        return None;
    }
    let mut lacks = Vec::new();
    if wanted.milli_cpu > free.milli_cpu {
        lacks.push(format!("cpu {}m of {}m", free.milli_cpu.max(0), wanted.milli_cpu));
    }
    if wanted.memory > free.memory {
        let mebibytes = |bytes: i64| bytes.max(0) / 1024 / 1024;
        lacks.push(format!(
            "memory {} MiB of {} MiB",
            mebibytes(free.memory),
            mebibytes(wanted.memory)
        ));
    }
    for (name, amount) in wanted.other.iter().filter(|(name, amount)| *amount > free.other(name)) {
        lacks.push(format!("{name} {} of {amount}", free.other(name).max(0)));
    }
    Some(format!("it has too little free of what the pod requests: {}", lacks.join(", ")))
}
