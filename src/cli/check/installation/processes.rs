//! Diagnoses what the processes of stowplan run: their policy, their versions and their leader.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt as _;

use super::facts::{Facts, Read, Role, Unread};
use crate::cli::policy_source::KEY;
use crate::names::fingerprint;
use crate::server::admin::status::PolicyStatus;
use crate::systems::check::installation::{Findings, Item};
use crate::systems::policy::Policy;
use crate::view::ControllerState;

/// The oldest Kubernetes that this version supports: the minor number of 1.x.
const OLDEST_MINOR: u32 = 33;

/// The label of objects of the chart with its version.
const VERSION: &str = "app.kubernetes.io/version";

/// The remedy if a process has no policy because the API server does not answer it.
const UNREACHABLE: &str = "nothing is wrong with the policy: look at the network between this pod and the API server, \
                           and at the pod's log";

/// The policy of the cluster; the default one if it cannot be read or is invalid.
pub(super) fn find_policy(facts: &Facts) -> Policy {
    find_text(facts).and_then(|text| Policy::from_yaml(text).ok()).unwrap_or_default()
}

fn find_text(facts: &Facts) -> Option<&str> {
    let map = facts.policy.as_ref().ok()?.as_ref()?;
    map.data.as_ref()?.get(KEY).map(String::as_str)
}

/// Diagnoses the policy, and whether each process has it.
pub(super) fn check_policy(facts: &Facts) -> Vec<Item> {
    let mut findings = Findings::new("policy");
    let name = facts.policy_name.as_deref().unwrap_or("with the policy");
    let (namespace, map) = name.split_once('/').unwrap_or(("stowplan-system", "stowplan-policy"));
    let runbook = &*format!(
        "kubectl get configmap {map} -n {namespace} -o jsonpath='{{.data.policy\\.yaml}}' | stowplan policy check -f -; helm upgrade with a valid policy"
    );
    let mut wanted = None;
    match &facts.policy {
        Err(unread) => {
            findings.unknown(format!("the policy is not known: {unread}"), unread.remedy());
        }
        Ok(None) => findings.problem(
            format!("there is no ConfigMap {name}: a process that starts has no policy"),
            "helm upgrade creates it",
        ),
        Ok(Some(_)) => match find_text(facts) {
            None => findings.problem(format!("ConfigMap {name} has no key {KEY}"), runbook),
            Some(text) => match Policy::from_yaml(text) {
                Err(problem) => {
                    let problem = problem.lines().collect::<Vec<_>>().join("; ");
                    findings.problem(format!("ConfigMap {name} is invalid: {problem}"), runbook);
                }
                Ok(_) => wanted = Some(fingerprint(text)),
            },
        },
    }
    let mut without = 0;
    let mut unread = None;
    let mut others = BTreeMap::<&str, Vec<&str>>::new();
    for replica in facts.replicas.iter().flatten() {
        let status = match &replica.status {
            Ok(status) => status,
            Err(problem) => {
                without += 1;
                unread = unread.or(Some(problem));
                continue;
            }
        };
        let PolicyStatus { digest, problem } = &status.policy;
        match (digest, problem) {
            (Some(digest), Some(problem)) => findings.problem(
                format!("pod {} keeps the previous policy ({digest}): {problem}", replica.pod),
                runbook,
            ),
            (None, Some(problem)) => findings.problem(
                format!("no policy is in force in {}: {problem}", replica.pod),
                if is_unreachable(problem) { UNREACHABLE } else { runbook },
            ),
            (_, None) => {}
        }
        match digest.as_deref() {
            None if problem.is_some() => {}
            None => without += 1,
            Some(digest) if wanted.as_deref().is_some_and(|wanted| wanted != digest) => {
                others.entry(digest).or_default().push(&replica.pod);
            }
            Some(_) => {}
        }
    }
    for (digest, pods) in others {
        findings.warning(
            format!("another policy is in force ({digest}) in {}", pods.join(", ")),
            "wait a minute; then look at the logs of these pods",
        );
    }
    let why = match &facts.replicas {
        Err(unread) => Some((format!(": {unread}"), unread.remedy())),
        Ok(replicas) if replicas.is_empty() => {
            Some((": no pod of stowplan exists".to_owned(), "the line service says what to do"))
        }
        Ok(_) if without > 0 => {
            let why = unread.map_or_else(String::new, |unread| format!(": {unread}"));
            let processes = if without == 1 { "process" } else { "processes" };
            let remedy = match unread {
                None | Some(Unread::Forbidden(_)) => "run this command as an administrator",
                Some(unread) => unread.remedy(),
            };
            Some((format!(" of {without} {processes}{why}"), remedy))
        }
        Ok(_) => None,
    };
    if let (Some(wanted), Some((why, remedy))) = (&wanted, why) {
        let what = format!(
            "ConfigMap {name} is valid ({wanted}); whether it is in force is not known{why}"
        );
        findings.unknown(what, remedy);
    }
    findings.or_ok(format!(
        "ConfigMap {name} is valid and in force everywhere ({})",
        wanted.unwrap_or_default()
    ))
}

/// Whether a process has no policy only because the API server has not answered it: see
/// [`crate::cli::policy_source::Finding::Unreachable`], whose texts these are.
fn is_unreachable(problem: &str) -> bool {
    let after = problem.strip_prefix("ConfigMap ").and_then(|rest| rest.split_once(' '));
    after.is_some_and(|(_, text)| text == "is not read yet" || text.starts_with("cannot be read: "))
}

/// Diagnoses the versions of the processes, of this program and of the API server.
pub(super) fn check_versions(facts: &Facts) -> Vec<Item> {
    let mut findings = Findings::new("versions");
    let own = facts.version;
    let reported = facts.replicas.iter().flatten().filter_map(|replica| {
        let status = replica.status.as_ref().ok()?;
        Some((replica.role, status.version.as_str()))
    });
    let mut versions: BTreeSet<(Role, &str)> = reported.collect();
    if versions.is_empty() {
        let labelled = facts.containers().filter_map(|(role, deployment, _)| {
            Some((role, deployment.labels().get(VERSION)?.as_str()))
        });
        versions = labelled.collect();
    }
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
        let unread = facts.deployments.as_ref().err();
        let why = unread.map_or_else(|| "no Deployment".to_owned(), ToString::to_string);
        findings.unknown(
            format!("the installed version is not known: {why}"),
            unread.map_or("name the namespace: --installed-in", |unread| unread.remedy()),
        );
    }
    let server = match &facts.server {
        Err(unread) => {
            let what = format!("the API server's version is not known: {unread}");
            findings.unknown(what, unread.remedy());
            String::new()
        }
        Ok(info) => {
            // Some providers append a sign, as in 33+.
            let minor = info.minor.trim_end_matches(|c: char| !c.is_ascii_digit());
            if info.major == "1" && minor.parse::<u32>().is_ok_and(|minor| minor < OLDEST_MINOR) {
                findings.problem(
                    format!("the API server is {}, and the oldest that stowplan supports is 1.{OLDEST_MINOR}", info.git_version),
                    "upgrade the cluster",
                );
            }
            info.git_version.clone()
        }
    };
    findings.or_ok(format!("stowplan {own}, as this command; API server {server}"))
}

/// Diagnoses whether a controller leads.
pub(super) fn check_controller(facts: &Facts) -> Vec<Item> {
    let mut findings = Findings::new("controller");
    let remedy = "see the runbook docs/operations.md#no-controller-leads";
    let leading: Vec<&str> = facts
        .replicas_of(Role::Controller)
        .filter(|replica| is_leading(&replica.status))
        .map(|replica| replica.pod.as_str())
        .collect();
    if leading.len() > 1 {
        let what = format!("several controllers say that they lead: {}", leading.join(", "));
        findings.warning(what, "run this command again: leaders may have changed in between");
    }
    let lease = match &facts.lease {
        Ok(lease) => lease,
        Err(unread) => {
            let what = format!("whether a controller leads is not known: {unread}");
            findings.unknown(what, unread.remedy());
            return findings.or_ok("");
        }
    };
    let has_controller = facts.has_controller();
    let spec = lease.lease.as_ref().and_then(|lease| lease.spec.as_ref());
    let holder = spec.and_then(|spec| spec.holder_identity.as_deref()).unwrap_or("nobody");
    let renewed = spec.and_then(|spec| spec.renew_time.as_ref());
    let age = renewed.map_or(0, |renewed| facts.now.duration_since(renewed.0).as_secs());
    match (lease.state, has_controller) {
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

fn is_leading(status: &Read<crate::server::admin::status::Status>) -> bool {
    status.as_ref().is_ok_and(|status| status.leads == Some(true))
}
