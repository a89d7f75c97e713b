//! StreamsJobs that are placed as a whole, on nodes that are alike: what a plan of the controller and the
//! validation of a new job cost, with the search for a placement and without.

use std::hint::black_box;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use stowplan_core::admission::validate::validate;
use stowplan_core::admission::{Decision, Review};
use stowplan_core::systems::plan::Write;

use crate::answers;
use crate::objects::{Scene, node};
use crate::player::Player;
use crate::table::{Table, count, median_time};
use crate::world::{TAG, TAG_LABEL};

/// The sizes of jobs, and of clusters.
const ELEMENTS: [usize; 3] = [10, 100, 1_000];
const NODES: [usize; 4] = [10, 100, 1_000, 5_000];

/// Vertices and edges of a graph that hardly can be coloured with three colours, or hardly cannot.
const VERTICES: usize = 600;
const EDGES: usize = 1_390;

/// The work that is measured, by the word that orders it.
const WORK: [(&str, &str); 6] = [
    ("job-plan-free", "a plan, no element depends on another"),
    ("job-plan-apart", "a plan, placed as a whole"),
    ("job-plan-short", "a plan, the whole job has no placement"),
    ("job-validate-free", "validation, no element depends on another"),
    ("job-validate-apart", "validation, placed as a whole"),
    ("job-validate-short", "validation, the whole job has no placement"),
];

/// An order, with the cluster for it.
pub(crate) struct Job {
    scene: Scene,
    /// The request that creates the job; `None`: the job is in the cluster, and a plan is made.
    review: Option<Vec<u8>>,
    /// True if the job is refused, or the search ends without an answer.
    refused: bool,
    hard: bool,
}

impl Job {
    /// `job-plan-apart NODES ELEMENTS`; `None`: another order.
    pub(crate) fn read(order: &str) -> anyhow::Result<Option<Self>> {
        let words: Vec<&str> = order.split(' ').collect();
        let [word, nodes, elements] = words.as_slice() else { return Ok(None) };
        let Some(of) = word.strip_prefix("job-") else { return Ok(None) };
        let (work, kind) = of.split_once('-').context("job-WORK-KIND")?;
        let (nodes, elements) = (nodes.parse()?, elements.parse()?);
        let spec = match kind {
            // They ask for nothing.
            "free" => json!({"processingElements": self::elements(elements, |_| json!({}))}),
            "apart" => apart(elements, nodes, 1),
            "short" => apart(elements, nodes, nodes),
            "hard" => colouring(),
            _ => anyhow::bail!("{kind} is no kind of job"),
        };
        let mut scene = Scene::new()?;
        for number in 0..nodes {
            scene.show(&node(&format!("node-{number}"), TAG_LABEL, TAG))?;
        }
        let job = json!({
            "apiVersion": "stowplan.dev/v1alpha1", "kind": "StreamsJob",
            "metadata": {"name": "job", "namespace": "streams-apps", "uid": "u", "generation": 1, "resourceVersion": "1"},
            "spec": spec,
        });
        let review = match work {
            "validate" => Some(serde_json::to_vec(&answers::review(&job))?),
            _ => {
                scene.show(&job)?;
                None
            }
        };
        let job = Self { scene, review, refused: kind == "short", hard: kind == "hard" };
        job.run()?;
        Ok(Some(job))
    }

    /// Does it once; an error if the answer is not what the order implies.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let Some(review) = &self.review else {
            let plan = black_box(black_box(&self.scene).plan());
            let accepted = plan.actions.iter().find_map(|action| match &action.write {
                Write::Status { status, .. } => {
                    let mut conditions = status["conditions"].as_array()?.iter();
                    conditions.find(|of| of["type"] == "Accepted")
                }
                _ => None,
            });
            let accepted = accepted.context("the job gets no condition Accepted")?;
            let message = accepted["message"].as_str().unwrap_or_default();
            let answer = [accepted["status"] != "True", message.contains("without an answer")];
            ensure!(answer == [self.refused, self.hard], "{accepted}");
            return Ok(());
        };
        let review = Review::parse(review)?;
        let decision = validate(&review, black_box(&self.scene.view), &self.scene.policy)?;
        let is_refused = matches!(black_box(&decision), Decision::Refuse { .. });
        ensure!(is_refused == self.refused, "{decision:?}");
        Ok(())
    }
}

/// Elements with one operator each, of which `of` gives the constraints.
fn elements(count: usize, of: impl Fn(usize) -> Value) -> Vec<Value> {
    let element = |number: usize| {
        let mut operator = of(number);
        operator["name"] = json!(format!("Op{number}"));
        json!({"name": format!("e{number}"), "operators": [operator]})
    };
    (0..count).map(element).collect()
}

/// As many elements as half of the nodes are apart from each other, one is alone, and two are in pools, of
/// which the exclusive one has this size.
fn apart(count: usize, nodes: usize, exclusive: usize) -> Value {
    let operator = |number: usize| {
        let mut operator = json!({"hostExlocation": [format!("t{}", number / (nodes / 2))]});
        match number {
            0 => operator["host"] = json!({"pool": "Shared"}),
            1 => operator["host"] = json!({"pool": "Own"}),
            2 => operator["hostIsolation"] = json!(true),
            _ => {}
        }
        operator
    };
    json!({
        "pools": [{"name": "Shared", "size": 2}, {"name": "Own", "size": exclusive, "exclusivity": "Exclusive"}],
        "processingElements": elements(count, operator),
    })
}

/// Elements that are apart from their neighbours in a graph.
fn colouring() -> Value {
    let mut tokens = vec![Vec::new(); VERTICES];
    let mut state = 1_u64;
    let mut random = |below: usize| {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut of = state;
        of = (of ^ (of >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        of = (of ^ (of >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((of ^ (of >> 31)) % below as u64).unwrap_or_default()
    };
    for edge in 0..EDGES {
        let one = random(VERTICES);
        let other = (one + 1 + random(VERTICES - 1)) % VERTICES;
        for vertex in [one, other] {
            tokens[vertex].push(format!("t{edge}"));
        }
    }
    let elements = elements(VERTICES, |number| json!({"hostExlocation": tokens[number]}));
    json!({"processingElements": elements})
}

/// Prints what jobs of several sizes cost on clusters of several sizes. Counts instructions where that is
/// possible.
pub(crate) fn measure(mut player: Option<&mut Player>) -> anyhow::Result<()> {
    let unit = if player.is_some() { "instructions" } else { "microseconds" };
    let mut cost = |order: &str| match &mut player {
        Some(player) => player.count(order),
        None => {
            let job = Job::read(order)?.context("not an order of jobs")?;
            Ok(median_time(|| job.run())? * 1e3)
        }
    };
    let nodes: Vec<String> =
        NODES.iter().map(|nodes| format!("{} nodes", count(*nodes as f64))).collect();
    for (word, title) in WORK {
        let mut table = Table::new(&format!("elements | {}", nodes.join(" | ")));
        for elements in ELEMENTS {
            let costs = NODES.iter().map(|nodes| cost(&format!("{word} {nodes} {elements}")));
            let costs = costs.collect::<anyhow::Result<Vec<_>>>()?;
            table.row(&count(elements as f64), costs.into_iter().map(count));
        }
        table.print(&format!("A StreamsJob: {title}, {unit}"));
    }
    let mut table = Table::new(&format!("a graph to be coloured, without an answer | {unit}"));
    for (word, label) in [("job-plan-hard", "a plan"), ("job-validate-hard", "validation")] {
        table.row(label, [count(cost(&format!("{word} 3 {VERTICES}"))?)]);
    }
    table.print(&format!("A StreamsJob of {VERTICES} elements: the search ends at its budget"));
    Ok(())
}
