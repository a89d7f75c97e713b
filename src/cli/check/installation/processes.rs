//! Diagnoses what the processes of stowplan run: their policy, their versions and their leader.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;

use super::facts::{Facts, Role, Unread, known};
use crate::cli::policy_source::{KEY, find_text};
use crate::server::admin::status::PolicyStatus;
use stowplan_core::names::fingerprint;
use stowplan_core::systems::check::installation::{Findings, Item};
use stowplan_core::systems::policy::Policy;
use stowplan_core::view::ControllerState;

/// The label of objects of the chart with its version.
const VERSION: &str = "app.kubernetes.io/version";

/// The remedy if a process has no policy because the API server does not answer it.
const UNREACHABLE: &str = "nothing is wrong with the policy: look at the network between this pod and the API server, \
                           and at the pod's log";

/// Returns the policy of the cluster, or the default one if it cannot be read or is invalid.
pub(super) fn find_policy(facts: &Facts) -> Policy {
    let map = facts.policy.iter().flatten().next();
    let text = map.and_then(|map| find_text(map).ok());
    text.and_then(|text| Policy::from_yaml(text).ok()).unwrap_or_default()
}

/// Diagnoses the policy, and whether each process has it.
pub(super) fn check_policy(facts: &Facts) -> Vec<Item> {
    let mut findings = Findings::new("policy");
    let name = facts.policy_name.as_deref().unwrap_or("with the policy");
    let (namespace, map) = name.split_once('/').unwrap_or(("stowplan-system", "stowplan-policy"));
    let runbook = &*format!(
        "kubectl get configmap {map} -n {namespace} -o jsonpath='{{.data.policy\\.yaml}}' | stowplan policy check -f -; helm upgrade with a valid policy"
    );
    let digest = |map: &Option<ConfigMap>| {
        let Some(map) = map else {
            let what = format!("there is no ConfigMap {name}: a process that starts has no policy");
            return Err((what, "helm upgrade creates it"));
        };
        let Ok(text) = find_text(map) else {
            return Err((format!("ConfigMap {name} has no key {KEY}"), runbook));
        };
        Policy::from_yaml(text).map(|_| fingerprint(text)).map_err(|problem| {
            let problem = problem.lines().collect::<Vec<_>>().join("; ");
            (format!("ConfigMap {name} is invalid: {problem}"), runbook)
        })
    };
    let read = known(&mut findings, "the policy is not known", &facts.policy).map(digest);
    let wanted = read
        .and_then(|read| read.map_err(|(problem, remedy)| findings.problem(problem, remedy)).ok());
    let (mut silent, mut why) = (0, None);
    for replica in facts.replicas.iter().flatten() {
        let pod = &replica.pod;
        let PolicyStatus { digest, problem } = match &replica.status {
            Ok(status) => &status.policy,
            Err(unread) => {
                silent += 1;
                why = why.or(Some(unread));
                continue;
            }
        };
        match (digest, problem) {
            (Some(digest), Some(problem)) => findings.problem(
                format!("pod {pod} keeps the previous policy ({digest}): {problem}"),
                runbook,
            ),
            (None, Some(problem)) => findings.problem(
                format!("no policy is in force in {pod}: {problem}"),
                if is_unreachable(problem) { UNREACHABLE } else { runbook },
            ),
            (None, None) => silent += 1,
            (Some(digest), None) if wanted.as_ref().is_some_and(|wanted| wanted != digest) => {
                findings.warning(
                    format!("another policy is in force ({digest}) in {pod}"),
                    "wait a minute; then look at the logs of this pod",
                );
            }
            (Some(_), None) => {}
        }
    }
    let is_empty = facts.replicas.as_ref().is_ok_and(Vec::is_empty);
    why = why.or_else(|| facts.replicas.as_ref().err());
    if let Some(wanted) = &wanted
        && (silent > 0 || is_empty || why.is_some())
    {
        let what =
            format!("ConfigMap {name} is valid ({wanted}); whether it is in force is not known");
        let of = match silent {
            0 if is_empty => ": no pod of stowplan exists".to_owned(),
            0 => String::new(),
            1 => " of 1 process".to_owned(),
            silent => format!(" of {silent} processes"),
        };
        let because = why.map_or_else(String::new, |unread| format!(": {unread}"));
        let remedy = why.map_or("the line service says what to do", Unread::remedy);
        findings.unknown(format!("{what}{of}{because}"), remedy);
    }
    findings.or_ok(format!(
        "ConfigMap {name} is valid and in force everywhere ({})",
        wanted.unwrap_or_default()
    ))
}

/// Returns true if a process has no policy only because the API server has not answered it: see
/// [`crate::cli::policy_source::Finding::Unreachable`], whose texts these are.
fn is_unreachable(problem: &str) -> bool {
    let after = problem.strip_prefix("ConfigMap ").and_then(|rest| rest.split_once(' '));
    after.is_some_and(|(_, text)| text == "is not read yet" || text.starts_with("cannot be read: "))
}

/// Diagnoses the versions of the processes and of this program.
pub(super) fn check_versions(facts: &Facts) -> Vec<Item> {
    let mut findings = Findings::new("versions");
    let own = facts.version;
    let reported = facts.replicas.iter().flatten().filter_map(|replica| {
        let status = replica.status.as_ref().ok()?;
        Some((replica.role, status.version.as_str()))
    });
    let labelled = facts.containers().filter_map(|(role, deployment, _)| {
        Some((role, deployment.labels().get(VERSION)?.as_str()))
    });
    let versions: BTreeSet<(Role, &str)> = reported.chain(labelled).collect();
    let distinct: BTreeSet<&str> = versions.iter().map(|(_, version)| *version).collect();
    if distinct.len() > 1 {
        let list: Vec<String> =
            versions.iter().map(|(role, version)| format!("{role} {version}")).collect();
        findings.warning(
            format!("different versions run: {}", list.join(", ")),
            "nothing during an upgrade; later: kubectl rollout status",
        );
    } else if let Some(version) = distinct.iter().find(|version| **version != own) {
        findings.warning(
            format!("stowplan {version} is installed, and this command is {own}: it may expect other things"),
            "use the command of the installed version, or upgrade the chart",
        );
    } else if distinct.is_empty() {
        let what = "the installed version is not known";
        if known(&mut findings, what, &facts.deployments).is_some() {
            findings.unknown(format!("{what}: no Deployment"), Unread::Nowhere.remedy());
        }
    }
    findings.or_ok(format!("stowplan {own}, as this command"))
}

/// Diagnoses whether a controller leads.
pub(super) fn check_controller(facts: &Facts) -> Vec<Item> {
    let mut findings = Findings::new("controller");
    let remedy = "see the runbook docs/operations.md#no-controller-leads";
    let read = known(&mut findings, "whether a controller leads is not known", &facts.lease);
    let Some((state, lease)) = read else { return findings.or_ok("") };
    let is_installed = facts.deployments.is_ok().then(|| {
        let mut roles = facts.containers().map(|(role, _, _)| role);
        roles.any(|role| role == Role::Controller)
    });
    let spec = lease.as_ref().and_then(|lease| lease.spec.as_ref());
    let holder = spec.and_then(|spec| spec.holder_identity.as_deref()).unwrap_or("nobody");
    let renewed = spec.and_then(|spec| spec.renew_time.as_ref());
    let age = renewed.map_or(0, |renewed| facts.now.duration_since(renewed.0).as_secs());
    match (state, is_installed) {
        (ControllerState::Leads, Some(false)) => {
            return findings.or_ok(format!("{holder} leads; no Deployment has a controller"));
        }
        (ControllerState::Leads, _) => {}
        (_, Some(false)) => {
            return findings.or_ok("none is installed: sized and exclusive pools get no nodes");
        }
        (ControllerState::Stopped, _) => findings.problem(
            format!(
                "no controller leads: the Lease was renewed {age} s ago, by {}",
                if holder.is_empty() { "a controller that has released it" } else { holder }
            ),
            remedy,
        ),
        (ControllerState::NotYet, Some(true)) => {
            findings.problem("no controller has led yet: there is no Lease", remedy);
        }
        (ControllerState::NotYet, None) => findings.warning(
            "no controller has led yet, and whether one is installed is not known",
            remedy,
        ),
    }
    findings.or_ok(format!("{holder} leads, renewed {} s ago", age.max(0)))
}
