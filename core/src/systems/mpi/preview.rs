//! The preview of a cluster from the manifests of its workloads: what the controller would make for it.

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::NAME;
use super::check::KIND;
use super::cluster::{Cluster, reason, service_field};
use super::config::HOSTFILE;
use super::keys::ROLE;
use super::reconcile;
use super::request::Role;
use crate::systems::View;
use crate::systems::check::words::counted;
use crate::systems::plan::{Confirmation, Write};
use crate::systems::policy::Policy;
use crate::systems::preview::Whole;
use crate::view::{Name, Resource};

/// The most lines of a hostfile that are shown.
const SHOWN: usize = 12;

/// Finds the clusters of the workloads of the input of `plan`, which the View has.
pub fn find_wholes(
    view: &View,
    policy: &Policy,
    now: Timestamp,
    input: &[(Resource, Name)],
) -> Vec<Whole> {
    if !policy.mpi.enabled {
        return Vec::new();
    }
    let clusters = view.mpi_clusters().into_iter().map(|name| Cluster::new(name, view, policy));
    let is_given = |cluster: &Cluster<'_>| {
        let mut workloads = cluster.workloads.iter();
        workloads.any(|(name, of)| {
            input.iter().any(|(resource, given)| *resource == of.resource && given == *name)
        })
    };
    clusters.filter(is_given).map(|cluster| preview(&cluster, now)).collect()
}

fn preview(cluster: &Cluster<'_>, now: Timestamp) -> Whole {
    let plan = reconcile::plan_cluster(cluster, now);
    let mut makes: Vec<Value> = Vec::new();
    for action in plan.actions {
        if let Write::Create(document) = action.write {
            makes.push(document);
        }
        if let Some(Confirmation::Creation(creation)) = action.confirmation {
            let mut secret = creation.object;
            // The keys are generated when the object is sent.
            if let Some(fields) = secret.as_object_mut() {
                fields.remove("stringData");
            }
            makes.push(secret);
        }
    }
    makes.sort_by_key(|object| object["kind"].as_str().map(str::to_owned));
    let hosts = cluster.hosts();
    let problem = hosts.as_ref().err().cloned().or_else(|| cluster.problem());
    let mut text: Vec<String> = makes.iter().flat_map(lines).collect();
    if let (Ok(hosts), None) = (&hosts, &problem) {
        text.push(
            match (cluster.launcher(), hosts.iter().filter(|host| host.port.is_some()).count()) {
                (None, workers) => format!(
                    "{} without a launcher: no workload that is admitted here has {ROLE}: launcher",
                    counted(workers, "worker")
                ),
                (Some(_), 0) => "the launcher starts at once: it is the only host".to_owned(),
                (Some(_), 1) => {
                    "the launcher starts when the worker is Ready and has a DNS name".to_owned()
                }
                (Some(_), workers) => format!(
                    "the launcher starts when all {workers} workers are Ready and have DNS names"
                ),
            },
        );
    }
    for (name, of, service) in cluster.elsewhere() {
        text.push(format!(
            "the pods of {} {} have their names in Service {service}, which stowplan does not make",
            of.resource.kind, name.name
        ));
        text.push(format!(
            "  write {}: {}, the Service that it makes; or make Service {service} with clusterIP None",
            service_field(of.resource),
            cluster.name.name
        ));
    }
    if let Some(problem) = &problem {
        // With the same reason, workers may be there that none of the workloads here makes.
        if problem.reason == reason::NO_WORKERS && cluster.of_role(Role::Worker).next().is_none() {
            text.push("the launcher waits for workers: no workload here makes any".to_owned());
        } else {
            text.push(format!("{}: does not start: {}", problem.reason, problem.text));
            text.push(format!("  {}", problem.remedy));
        }
    }
    Whole {
        system: NAME,
        kind: KIND,
        namespace: cluster.name.namespace.to_string(),
        name: cluster.name.name.to_string(),
        makes,
        is_refused: problem.as_ref().is_some_and(|of| of.reason != reason::NO_WORKERS),
        problem: problem.map(|problem| problem.text),
        text,
    }
}

/// An object for people. Of a ConfigMap, the hostfile.
fn lines(object: &Value) -> Vec<String> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let kind = text("/kind");
    let about = match kind {
        "Service" => ": DNS names of its pods",
        "Secret" => ": an Ed25519 key pair",
        _ => ": the hostfile",
    };
    let mut lines = vec![format!("makes {kind} {}{about}", text("/metadata/name"))];
    let mut hosts = text(&format!("/data/{HOSTFILE}")).lines();
    lines.extend(hosts.by_ref().take(SHOWN).map(|host| format!("    {host}")));
    match hosts.count() {
        0 => {}
        more => lines.push(format!("    and {more} more (-o json shows all)")),
    }
    lines
}
