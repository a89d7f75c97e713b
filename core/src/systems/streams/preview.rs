//! Previews a HostPool and a StreamsJob: the decision about their creation, the members that the
//! controller would choose, the nodes that it would reserve, and the processing elements that share a host.

use serde_json::{Map, Value, json};

use crate::systems::View;
use crate::systems::policy::Policy;
use crate::systems::preview::{
    ASSUMED_UID, Decide, Decided, Given, Preview, PreviewedKind, Verdict,
};
use crate::systems::streams::api::streams_job::{self as api, ReservedNode};
use crate::systems::streams::kinds::{JobPool, StreamsJob};
use crate::systems::streams::resources::{HOST_POOL, STREAMS_JOB};
use crate::view::Name;

/// The kinds of objects that the Streams constraints preview.
pub(super) const KINDS: &[PreviewedKind] = &[
    PreviewedKind { resource: STREAMS_JOB, complete: None, preview: preview_job },
    PreviewedKind { resource: HOST_POOL, complete: None, preview: preview_pool },
];

/// Previews a StreamsJob.
///
/// # Errors
/// The reason why the document is not a valid StreamsJob.
fn preview_job(
    given: &Given<'_>,
    view: &mut View,
    _: &Policy,
    decide: Decide<'_>,
) -> Result<Preview, String> {
    let decided = decide(&STREAMS_JOB, given.document, view)?;
    let job = view.streams_job(given.name);
    let groups = job.map(find_groups).unwrap_or_default();
    let mut text: String =
        groups.iter().map(|group| format!("  on one host: {}\n", group.join(", "))).collect();
    let mut fields = Map::new();
    if !groups.is_empty() {
        fields.insert("groups".to_owned(), json!(groups));
    }
    let written = job.and_then(|job| Some((job, job.spec.as_ref().ok()?)));
    let pools =
        written.into_iter().flat_map(|(job, spec)| spec.pools.iter().zip(&job.closure.pools));
    let serve = |(pool, made): (&api::Pool, &JobPool)| {
        let key = Name::new(&given.name.namespace, &made.host_pool);
        Served::find(pool.name.clone(), &key, view)
    };
    let served: Vec<Served> = pools.filter_map(serve).collect();
    for pool in &served {
        text += &pool.format(&format!("pool {}", pool.name));
    }
    if let Some(witness) = job.and_then(|job| job.status.witness.as_ref()) {
        text += &format_reserved(&witness.nodes);
        fields.insert("reserved".to_owned(), json!(witness.nodes));
    }
    Ok(build(&decided, text, fields, &served))
}

/// Previews a HostPool.
///
/// # Errors
/// The reason why the document is not a valid HostPool.
fn preview_pool(
    given: &Given<'_>,
    view: &mut View,
    _: &Policy,
    decide: Decide<'_>,
) -> Result<Preview, String> {
    let decided = decide(&HOST_POOL, given.document, view)?;
    let name = given.name.name.to_string();
    let served: Vec<Served> = Served::find(name, given.name, view).into_iter().collect();
    let text = served.iter().map(|pool| pool.format("members")).collect();
    Ok(build(&decided, text, Map::new(), &served))
}

/// The nodes that a job reserves for elements.
fn format_reserved(nodes: &[ReservedNode]) -> String {
    let reserve =
        |of: &ReservedNode| format!("  {} (the controller would reserve it now)\n", of.format());
    match nodes {
        [] => "  placed as a whole: no node has to be reserved\n".to_owned(),
        nodes => nodes.iter().map(reserve).collect(),
    }
}

fn build(
    decided: &Decided,
    text: String,
    mut fields: Map<String, Value>,
    served: &[Served],
) -> Preview {
    // A pool of an object that is refused will not exist.
    let served = if decided.verdict == Verdict::Refused { &[][..] } else { served };
    let pools = served.iter().filter(|pool| !pool.members.is_empty() || pool.problem.is_some());
    let pools: Vec<Value> = pools
        .map(|pool| json!({"name": pool.name, "members": pool.members, "problem": pool.problem}))
        .collect();
    if !pools.is_empty() {
        fields.insert("pools".to_owned(), pools.into());
    }
    Preview {
        decision: Some(decided.number),
        text: if decided.verdict == Verdict::Refused { String::new() } else { text },
        fields,
        is_unready: served.iter().any(|pool| pool.problem.is_some()),
        assumed: served.iter().filter_map(|pool| pool.assumed.clone()).collect(),
        ..Preview::default()
    }
}

/// A pool as the controller would leave it.
struct Served {
    name: String,
    /// The nodes of its members, by index.
    members: Vec<String>,
    /// The reason why it is not ready.
    problem: Option<String>,
    /// The hash of its UID, if that does not exist yet, and the pool.
    assumed: Option<(String, String)>,
}

impl Served {
    fn find(name: String, key: &Name, view: &View) -> Option<Self> {
        let pool = view.host_pool(key)?;
        let members = pool.status.members.iter().filter_map(|member| member.node.clone());
        let is_assumed = pool.identity.uid.starts_with(ASSUMED_UID);
        let object = format!("{} {}/{}", HOST_POOL.kind, key.namespace, key.name);
        let hash = pool.hash.as_deref().filter(|_| is_assumed);
        Some(Self {
            name,
            members: members.collect(),
            problem: pool.unready_reason(),
            assumed: hash.map(|hash| (hash.to_owned(), object)),
        })
    }

    fn format(&self, title: &str) -> String {
        let problem = self.problem.as_ref().map(|problem| format!("  not ready: {problem}\n"));
        let nodes = self.members.join(", ");
        let members = match self.members.len() {
            0 if problem.is_some() && title != "members" => format!("  {title}: no members\n"),
            0 => String::new(),
            1 => format!("  {title}: {nodes} (the controller would choose it now)\n"),
            _ => format!("  {title}: {nodes} (the controller would choose them now)\n"),
        };
        members + &problem.unwrap_or_default()
    }
}

/// The names of the processing elements that share a host.
fn find_groups(job: &StreamsJob) -> Vec<Vec<String>> {
    let Ok(spec) = &job.spec else { return Vec::new() };
    let units = job.closure.units.iter().filter(|unit| unit.group.is_some());
    let name = |element: &usize| spec.processing_elements[*element].name.clone();
    units.map(|unit| unit.elements.iter().map(name).collect()).collect()
}
