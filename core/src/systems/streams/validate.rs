//! Validates HostPools and StreamsJobs when they are created or changed.

use std::collections::HashMap;

use super::guard;
use super::job::check::check;
use super::job::placement::{Fixed, Judged, STEPS, is_searched, judge, lacks_only_nodes};
use super::job::sites::Sites;
use super::policy::Unmet;
use super::resolve::{find_node, format_twice};
use crate::placement::reason::{Finding, Reason, Warning, quoted};
use crate::systems::check::words::counted;
use crate::systems::policy::Policy;
use crate::systems::streams::api;
use crate::systems::streams::api::streams_job::{Pool, StreamsJobSpec};
use crate::systems::streams::kinds::{Closure, Form, HostPool, JobPool, Location, StreamsJob};
use crate::systems::streams::resources::{HOST_POOL, STREAMS_JOB};
use crate::systems::validation::{Incoming, Validation};
use crate::systems::{Outcome, View};
use crate::view::Name;

/// The kinds that are validated.
pub const VALIDATIONS: &[Validation] = &[
    Validation {
        resource: HOST_POOL,
        unreadable: Reason::MalformedPool,
        check: |incoming, view, policy| {
            let pool = serde_json::from_str::<api::HostPool>(incoming.object)?;
            Ok(host_pool(incoming.name, &HostPool::from(&pool), view, policy).into())
        },
    },
    Validation { resource: STREAMS_JOB, unreadable: Reason::MalformedJob, check: streams_job },
];

fn streams_job(
    incoming: &Incoming<'_>,
    view: &View,
    policy: &Policy,
) -> Result<Outcome, serde_json::Error> {
    let job = serde_json::from_str::<api::StreamsJob>(incoming.object)?;
    // A stored job that does not decode, because it is older than a rule that it breaks, may be mended.
    let before = incoming.old.and_then(|old| serde_json::from_str::<api::StreamsJob>(old).ok());
    let changed = before.and_then(|before| changed(incoming.name, &before.spec, &job.spec));
    Ok(match changed {
        Some(finding) => vec![finding].into(),
        None => {
            let read = StreamsJob::from(&job);
            let mut outcome = judge_job(incoming.name, &read, view, policy);
            outcome.warnings.extend(unused_pools(incoming.name, &job.spec, &read.closure));
            outcome
        }
    })
}

/// Warns of each exclusive pool that no operator uses: it keeps its nodes from all others for nothing.
fn unused_pools(name: &Name, spec: &StreamsJobSpec, closure: &Closure) -> Vec<Warning> {
    let claims = || closure.units.iter().flat_map(|unit| &unit.claims);
    let is_used = |index: usize| {
        claims().any(|of| matches!(of.location, Location::Pool { pool, .. } if pool == index))
    };
    let pools = spec.pools.iter().zip(&closure.pools).enumerate();
    let unused = pools
        .filter(|(index, (_, made))| made.exclusive && made.size() > Some(0) && !is_used(*index));
    let warn = |(_, (pool, made)): (usize, (&Pool, &JobPool))| {
        let nodes = counted(made.size().unwrap_or_default() as usize, "node");
        let text = format!(
            "no operator uses its exclusive pool {}, which keeps {nodes} from all others; remove the \
             pool, or make it Shared",
            quoted(&pool.name)
        );
        Warning::new(&format!("StreamsJob {}", name.name), &text)
    };
    unused.map(warn).collect()
}

/// Checks a job: its parts, and then whether all of it can be placed.
fn judge_job(name: &Name, job: &StreamsJob, view: &View, policy: &Policy) -> Outcome {
    let mut findings = check(name, job, view, policy);
    let may_wait = policy.streams.unmet == Unmet::Wait;
    let is_about_nodes = findings.iter().all(|finding| may_wait && lacks_only_nodes(finding));
    if !is_about_nodes || !is_searched(job) {
        findings.retain(|_| !is_about_nodes);
        return findings.into();
    }
    let sites = Sites::new(view, policy);
    let fixed = Fixed::without_pods(name, job, view);
    match judge(&sites, &fixed) {
        Judged::Possible(_) => Outcome::default(),
        Judged::Impossible(finding, _) if may_wait && lacks_only_nodes(&finding) => {
            Outcome::default()
        }
        Judged::Impossible(finding, _) => vec![finding].into(),
        Judged::Unknown => {
            let text = format!(
                "the search for a placement of the whole job ended after {STEPS} steps without an \
                 answer: its pods may take nodes from each other"
            );
            let warnings = vec![Warning::new(&format!("StreamsJob {}", name.name), &text)];
            Outcome { warnings, ..Outcome::default() }
        }
    }
}

/// Finds a change to an immutable part of a job: to everything but the size of a pool, which may grow. The
/// pods were placed by the old spec. The rules of the CustomResourceDefinition cannot check this: comparing
/// lists exceeds their budget.
fn changed(name: &Name, old: &StreamsJobSpec, new: &StreamsJobSpec) -> Option<Finding> {
    let mut comparable = new.clone();
    for (pool, before) in comparable.pools.iter_mut().zip(&old.pools) {
        if pool.size > before.size && before.size.is_some() {
            pool.size = before.size;
        }
    }
    let what = if comparable.enforcement != old.enforcement {
        "its enforcement".to_owned()
    } else if comparable.pools != old.pools {
        let mut pairs = comparable.pools.iter().zip(&old.pools);
        match pairs.find(|(new, old)| new != old) {
            Some((pool, _)) => format!("pool {}", quoted(&pool.name)),
            None => "its list of pools".to_owned(),
        }
    } else if comparable.processing_elements != old.processing_elements {
        let mut pairs = comparable.processing_elements.iter().zip(&old.processing_elements);
        match pairs.find(|(new, old)| new != old) {
            Some((element, _)) => format!("processing element {}", quoted(&element.name)),
            None => "its list of processing elements".to_owned(),
        }
    } else {
        return None;
    };
    let problem = format!("{what} changes, and only the size of a pool may, to grow");
    let remedy = "make a new job: the pods of this one were placed by what it says";
    Some(Finding::new(Reason::ImmutableSpec, format!("StreamsJob {}", name.name), problem, remedy))
}

/// Finds the rules that a HostPool certainly breaks.
fn host_pool(name: &Name, pool: &HostPool, view: &View, policy: &Policy) -> Vec<Finding> {
    let subject = format!("HostPool {}", name.name);
    let form = match &pool.form {
        Ok(form) => form,
        Err(problem) => {
            let remedy = "give hosts, or size and tags (`kubectl explain hostpool.spec`)";
            return vec![Finding::new(Reason::MalformedPool, subject, problem, remedy)];
        }
    };
    let mut findings = Vec::new();
    let namespace = &name.namespace;
    findings.extend(guard::pools(&subject, namespace, view, policy));
    findings.extend(guard::count(&subject, name, view, policy));
    if pool.exclusive {
        let others = |other: &str, _: &HostPool| *other != *name.name;
        let wanted = pool.size();
        findings.extend(guard::exclusive_hosts(&subject, namespace, wanted, others, view, policy));
    }
    if let Form::Literal(hosts) = form {
        let mut seen = HashMap::new();
        for host in hosts {
            let Some(node) = find_node(view, host) else { continue };
            if let Some(earlier) = seen.insert(node, host) {
                let problem = format_twice(node, earlier, host);
                let remedy = "list each node once";
                findings.push(Finding::new(Reason::InvalidPool, &*subject, problem, remedy));
            }
        }
    }
    findings.sort_by_key(|finding| finding.reason.stage());
    findings
}
