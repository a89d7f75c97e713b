//! Adds the pods of each group, with its placeholder, to the map of a cluster.

use std::collections::BTreeMap;

use super::kinds::{Member as Row, Placeholder, pod_of};
use super::reconcile::one_node::Sharing;
use super::resources::{CLAIM, PIPELINE_RUN};
use super::{family, keys};
use crate::systems::View;
use crate::systems::check::Context;
use crate::systems::map::{Group, Member, Part};
use crate::view::Name;
use crate::view::resource::STATEFUL_SET;

/// The kind of a group that pods name by an annotation.
const GROUP: &str = "Group";

/// The groups, by the names of their placeholders, which may not exist yet.
pub(super) fn map(context: &Context<'_>) -> Part {
    let view = &context.cluster.view;
    let mut members: BTreeMap<Name, Vec<(&Name, &Row)>> = BTreeMap::new();
    for (name, row) in view.members().filter(|(_, row)| !row.finished) {
        if let Some(placeholder) = &row.placeholder {
            let placeholder = Name::new(&name.namespace, placeholder);
            members.entry(placeholder).or_default().push((name, row));
        }
    }
    view.placeholders().for_each(|(name, _)| _ = members.entry(name.clone()).or_default());
    let groups = members.into_iter().map(|(placeholder, mut pods)| {
        pods.sort_unstable_by_key(|(name, _)| *name);
        find_group(view, &placeholder, &pods)
    });
    Part { groups: groups.chain(find_claims(context)).collect(), ..Part::default() }
}

/// The pods that share the node of a claim, for each claim that several pods mount.
fn find_claims(context: &Context<'_>) -> impl Iterator<Item = Group> {
    let view = &context.cluster.view;
    let mut claims: BTreeMap<Name, Vec<Name>> = BTreeMap::new();
    for pod in Sharing::new(view, context.policy).pods {
        for claim in pod.claims(view) {
            let claim = Name::new(&pod.name.namespace, &claim.name);
            claims.entry(claim).or_default().push(pod.name.clone());
        }
    }
    claims.into_iter().filter(|(_, pods)| pods.len() > 1).map(|(name, mut pods)| {
        pods.sort_unstable();
        let members = pods.into_iter().map(Member::plain).collect();
        let objects = vec![(CLAIM.kind, name.clone())];
        Group { kind: CLAIM.kind, name, detail: String::new(), members, objects }
    })
}

fn find_group(view: &View, placeholder: &Name, pods: &[(&Name, &Row)]) -> Group {
    let made = view.placeholder(placeholder);
    let own = pod_of(placeholder);
    let mut members = vec![Member { pod: own, role: Some("placeholder"), is_placeholder: true }];
    let run = made.and_then(|made| made.run.as_ref());
    let belongs = |(name, row): &&(&Name, &Row)| {
        let uid = run.map(|run| &*run.uid);
        made.is_none() || family::belongs(name, row, &placeholder.name, uid, view)
    };
    let own_pods = pods.iter().filter(belongs);
    members.extend(own_pods.map(|(name, _)| Member::plain((*name).clone())));
    let named = made.and_then(|made| made.group.as_deref());
    let named = named.or_else(|| pods.iter().find_map(|(_, row)| row.group.as_deref()));
    let is_named =
        named.filter(|group| keys::of_native(&placeholder.namespace, group) == *placeholder.name);
    let mut objects = vec![(STATEFUL_SET.kind, placeholder.clone())];
    let (kind, name) = match (run, is_named) {
        (Some(run), _) => (PIPELINE_RUN.kind, &*run.name),
        (None, Some(group)) => (GROUP, group),
        (None, None) => (STATEFUL_SET.kind, &*placeholder.name),
    };
    let name = Name::new(&placeholder.namespace, name);
    objects.push((kind, name.clone()));
    Group { kind, name, detail: describe(made), members, objects }
}

/// Says which of its run's groups it is.
fn describe(made: Option<&Placeholder>) -> String {
    let workspaces = made.and_then(|made| made.record.as_ref()).map(|record| &record.workspaces);
    match workspaces.filter(|workspaces| !workspaces.is_empty()) {
        Some(workspaces) => {
            let names: Vec<&str> = workspaces.iter().map(AsRef::as_ref).collect();
            format!("workspace {}", names.join(", "))
        }
        None => String::new(),
    }
}
