//! The rights that the accounts of stowplan need. `tests/offline/chart` compares them with the roles of the chart.

use std::fmt;

use super::facts::{Facts, Known as _, Role, Unread};
use crate::systems::check::installation::{Findings, Item};

/// What the webhook needs: resources, verbs, and the name if only one object is meant. A group stands
/// after its resource; `own:` holds in the namespace of the installation only. `--FLAG` is the object
/// that this argument of the container names, `?--FLAG` means all objects; without the argument the
/// right is not needed.
const WEBHOOK: &str = "
nodes,namespaces,pods get,list,watch
pipelineruns.tekton.dev,taskruns.tekton.dev,pipelines.tekton.dev get,list,watch
persistentvolumeclaims,persistentvolumes get,list,watch
storageclasses.storage.k8s.io get,list,watch
statefulsets.apps get,list,watch
hostpools.stowplan.dev,streamsjobs.stowplan.dev get,list,watch
own:leases.coordination.k8s.io get,list,watch stowplan-controller
own:configmaps get,list,watch --policy-config-map
own:secrets get,list,watch --tls-secret
";

/// The same of the controller, with all parts of the chart's value `controller.rbac`.
const CONTROLLER: &str = "
nodes,pods get,list,watch,patch
pods delete
pods/resize,pods/status patch
statefulsets.apps get,list,watch,create,patch,delete
persistentvolumeclaims get,list,watch,patch,delete
jobs.batch get,list,watch,patch
services,configmaps get,list,watch,create,patch,delete
endpointslices.discovery.k8s.io get,list,watch
secrets create
persistentvolumes get,list,watch
storageclasses.storage.k8s.io get,list,watch
pipelineruns.tekton.dev,taskruns.tekton.dev get,list,watch
pipelines.tekton.dev,tasks.tekton.dev get,list,watch
customnoderesources.node.katalyst.kubewharf.io get,list,watch
namespaces get,list,watch
hostpools.stowplan.dev get,list,watch,create,patch
streamsjobs.stowplan.dev get,list,watch
hostpools/status.stowplan.dev,streamsjobs/status.stowplan.dev patch
events.events.k8s.io create,patch
own:leases.coordination.k8s.io get,update stowplan-controller
own:leases.coordination.k8s.io create
own:configmaps get,list,watch --policy-config-map
own:secrets get,list,watch,update --tls-secret
own:secrets get,list,watch,update --ca-secret
own:secrets create ?--ca-secret
mutatingwebhookconfigurations.admissionregistration.k8s.io get,list,watch,patch --webhook-configuration
validatingwebhookconfigurations.admissionregistration.k8s.io get,list,watch,patch --webhook-configuration
";

/// A right.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Right {
    pub verb: String,
    /// The plural name, with `/` and the subresource; a path if the first character is `/`.
    pub resource: String,
    pub group: String,
    /// `None`: all objects.
    pub name: Option<String>,
    /// Whether only the namespace of the installation counts.
    pub is_own: bool,
}

impl Right {
    /// Whether the right only reads.
    pub(super) fn is_reading(&self) -> bool {
        matches!(self.verb.as_str(), "get" | "list" | "watch")
    }
}

impl fmt::Display for Right {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, resource, group, name, .. } = self;
        let dot = if group.is_empty() { "" } else { "." };
        write!(formatter, "{verb} {resource}{dot}{group}")?;
        name.as_ref().map_or(Ok(()), |name| write!(formatter, " {name}"))
    }
}

/// The rights of a table, for a container with these arguments.
fn parse(table: &str, arguments: &[String]) -> Vec<Right> {
    let value_of = |flag: &str| {
        let mut values = arguments.iter().filter_map(|of| of.strip_prefix(flag)?.strip_prefix('='));
        values.next().map(str::to_owned)
    };
    let mut rights = Vec::new();
    for line in table.lines() {
        let mut words = line.split(' ');
        let (Some(resources), Some(verbs)) = (words.next(), words.next()) else { continue };
        let name = match words.next() {
            Some(flag) if flag.starts_with("--") => match value_of(flag) {
                Some(name) => Some(name),
                None => continue,
            },
            Some(flag) if flag.starts_with('?') => match value_of(&flag[1..]) {
                Some(_) => None,
                None => continue,
            },
            name => name.map(str::to_owned),
        };
        let (is_own, resources) = match resources.strip_prefix("own:") {
            Some(resources) => (true, resources),
            None => (false, resources),
        };
        for resource in resources.split(',') {
            let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
            let right = |verb: &str| Right {
                verb: verb.to_owned(),
                resource: resource.to_owned(),
                group: group.to_owned(),
                name: name.clone(),
                is_own,
            };
            rights.extend(verbs.split(',').map(right));
        }
    }
    rights
}

/// What the account of a role needs, whose container has these arguments.
pub(super) fn needed_by(role: Role, arguments: &[String]) -> Vec<Right> {
    let table = match role {
        Role::Webhook => WEBHOOK,
        Role::Controller => CONTROLLER,
    };
    parse(table, arguments)
}

/// The rights of the tables above, for the tests of the chart: `webhook` or `controller`, with the arguments
/// of the container.
#[must_use]
pub fn of_account(account: &str, arguments: &[String]) -> Vec<Right> {
    match account {
        "webhook" => needed_by(Role::Webhook, arguments),
        "controller" => needed_by(Role::Controller, arguments),
        _ => Vec::new(),
    }
}

/// Diagnoses the rights of stowplan's accounts.
pub(super) fn check(facts: &Facts) -> Vec<Item> {
    let mut findings = Findings::new("rights");
    let mut accounts = Vec::new();
    for (role, read) in &facts.rights {
        let what = format!("the rights of the {role}'s account are not known");
        let Some((account, answers)) = findings.known(&what, read) else { continue };
        accounts.push(format!("{account} ({} rights)", answers.len()));
        let missing = |reading: bool| {
            let missing = answers.iter().filter(|answer| !answer.is_allowed);
            let rights = missing.map(|answer| &answer.right);
            join(rights.filter(|right| right.is_reading() == reading))
        };
        let remedy = "helm upgrade restores the roles of the chart";
        let reading = missing(true);
        if !reading.is_empty() {
            let what = format!("{account}, of the {role}, may not: {reading}; its watches fail");
            findings.problem(what, remedy);
        }
        let writing = missing(false);
        if !writing.is_empty() {
            let remedy = format!("{remedy}, except for parts that controller.rbac turns off");
            findings.warning(format!("{account}, of the {role}, may not: {writing}"), remedy);
        }
    }
    if facts.rights.is_empty() {
        let unread = facts.deployments.as_ref().err().unwrap_or(&Unread::Nowhere);
        let what = format!("the accounts of webhook and controller are not known: {unread}");
        findings.unknown(what, unread.remedy());
    }
    findings.or_ok(format!("the accounts have what this version needs: {}", accounts.join(", ")))
}

/// Names the rights that this command did not have.
pub(super) fn check_own(facts: &Facts) -> Vec<Item> {
    let mut findings = Findings::new("rights-of-this-command");
    let missing: Vec<&str> = facts.missing_rights().into_iter().collect();
    if !missing.is_empty() {
        findings.unknown(
            format!(
                "missing: {}; the lines above say what is therefore not known",
                missing.join("; ")
            ),
            "bind the ClusterRole that ends in -reader, or run this command as an administrator",
        );
    }
    findings.or_ok("no right is missing")
}

/// Joins rights: the verbs of one resource in one entry.
fn join<'r>(rights: impl Iterator<Item = &'r Right>) -> String {
    let mut joined: Vec<(String, String)> = Vec::new();
    for right in rights {
        let object = right.to_string();
        let (verb, object) = object.split_once(' ').unwrap_or((&object, ""));
        match joined.iter_mut().find(|(_, of)| of == object) {
            Some((verbs, _)) => *verbs = format!("{verbs},{verb}"),
            None => joined.push((verb.to_owned(), object.to_owned())),
        }
    }
    let joined = joined.into_iter().map(|(verbs, object)| format!("{verbs} {object}"));
    joined.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tables themselves are compared with the roles of the chart, in `tests/offline/chart/rights.rs`.
    #[test]
    fn without_the_argument_that_names_an_object_no_right_is_needed() {
        let table = "secrets get --secret\nsecrets create ?--secret\nnodes get,list\n";
        let arguments = ["--secrets=a", "--secret"].map(str::to_owned);
        assert_eq!(join(parse(table, &arguments).iter()), "get,list nodes");
    }
}
