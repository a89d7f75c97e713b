//! The rights that the accounts of stowplan need. `tests/offline/chart` compares them with the roles of the chart.

use std::fmt;

use clap::ValueEnum as _;

use super::facts::{Facts, Role, Unread, known};
use stowplan_core::systems::check::installation::{Findings, Item};

/// The rights of the webhook: resources, verbs, and the name if only one object is meant. A group stands
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

/// The rights of the controller, with all parts of the chart's value `controller.rbac`.
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
    /// True if only the namespace of the installation counts.
    pub is_own: bool,
}

impl fmt::Display for Right {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, resource, group, name, .. } = self;
        let dot = if group.is_empty() { "" } else { "." };
        write!(formatter, "{verb} {resource}{dot}{group}")?;
        name.as_ref().map_or(Ok(()), |name| write!(formatter, " {name}"))
    }
}

/// Reads a table: the rights that an account needs if its container has these arguments.
fn parse(table: &str, arguments: &[String]) -> Vec<Right> {
    let value_of = |flag: &str| {
        arguments.iter().find_map(|of| of.strip_prefix(flag)?.strip_prefix('=').map(str::to_owned))
    };
    let mut rights = Vec::new();
    for line in table.lines() {
        let mut words = line.split(' ');
        let (Some(resources), Some(verbs)) = (words.next(), words.next()) else { continue };
        let object = words.next();
        let flag = object.filter(|of| of.contains("--")).map(|of| of.trim_start_matches('?'));
        let value = flag.map(value_of);
        let name = match (object, value) {
            (_, Some(None)) => continue,
            (Some(object), Some(_)) if object.starts_with('?') => None,
            (_, Some(value)) => value,
            (name, None) => name.map(str::to_owned),
        };
        let own = resources.strip_prefix("own:");
        for resource in own.unwrap_or(resources).split(',') {
            let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
            rights.extend(verbs.split(',').map(|verb| Right {
                verb: verb.to_owned(),
                resource: resource.to_owned(),
                group: group.to_owned(),
                name: name.clone(),
                is_own: own.is_some(),
            }));
        }
    }
    rights
}

/// Returns the rights that the account of a role needs, whose container has these arguments.
pub(super) fn needed_by(role: Role, arguments: &[String]) -> Vec<Right> {
    match role {
        Role::Webhook => parse(WEBHOOK, arguments),
        Role::Controller => parse(CONTROLLER, arguments),
    }
}

/// Returns the rights of an account, `webhook` or `controller`, for the tests of the chart.
#[must_use]
pub fn of_account(account: &str, arguments: &[String]) -> Vec<Right> {
    Role::from_str(account, false).map(|role| needed_by(role, arguments)).unwrap_or_default()
}

/// Diagnoses the rights of stowplan's accounts.
pub(super) fn check(facts: &Facts) -> Vec<Item> {
    let mut findings = Findings::new("rights");
    let mut accounts = Vec::new();
    for (role, read) in &facts.rights {
        let what = format!("the rights of the {role}'s account are not known");
        let Some((account, answers)) = known(&mut findings, &what, read) else { continue };
        accounts.push(format!("{account} ({} rights)", answers.len()));
        let missing = answers.iter().filter(|(_, is_allowed)| !is_allowed).map(|(right, _)| right);
        let is_reading = |right: &&Right| ["get", "list", "watch"].contains(&&*right.verb);
        let (reading, writing): (Vec<_>, Vec<_>) = missing.partition(is_reading);
        let remedy = "helm upgrade restores the roles of the chart";
        if !reading.is_empty() {
            let reading = join(&reading);
            let what = format!("{account}, of the {role}, may not: {reading}; its watches fail");
            findings.problem(what, remedy);
        }
        if !writing.is_empty() {
            let writing = join(&writing);
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
    let missing = facts.missing.iter().map(String::as_str).collect::<Vec<_>>().join("; ");
    if !missing.is_empty() {
        findings.unknown(
            format!("missing: {missing}; the lines above say what is therefore not known"),
            "bind the ClusterRole that ends in -reader, or run this command as an administrator",
        );
    }
    findings.or_ok("no right is missing")
}

/// Joins rights: the verbs of one resource in one entry.
fn join(rights: &[&Right]) -> String {
    let named: Vec<String> = rights.iter().map(ToString::to_string).collect();
    let split = named.iter().filter_map(|right| right.split_once(' '));
    let mut joined: Vec<(&str, Vec<&str>)> = Vec::new();
    for (verb, object) in split {
        match joined.iter_mut().find(|(of, _)| *of == object) {
            Some((_, verbs)) => verbs.push(verb),
            None => joined.push((object, vec![verb])),
        }
    }
    let joined = joined.iter().map(|(object, verbs)| format!("{} {object}", verbs.join(",")));
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
        assert_eq!(join(&parse(table, &arguments).iter().collect::<Vec<_>>()), "get,list nodes");
    }
}
