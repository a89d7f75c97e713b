use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use testbed::control_plane::NodeSpec;

use super::random::numbers;
use crate::planned_cases::{WORKLOADS, made, member, misshapen, pool_spec, workload};
use crate::streams_cases::{any_model, job_spec};
use crate::world::{Space, World, element, host_pool, job, succeeds};

/// So many objects of each kind.
const ROUNDS: usize = 40;

fn node_name(node: usize) -> String {
    format!("planned-hh{node}")
}

/// Random objects: `plan --live` admits what the API server takes in a dry run, and refuses what that
/// refuses.
pub(crate) async fn plan_says_what_the_api_server_says(world: Arc<World>) -> Result<()> {
    let node = |number: usize| {
        let node = NodeSpec::new(&node_name(number));
        match number < 3 {
            true => node
                .label("streams.ibm.com/hostpool", "ib")
                .label("hostpool.streams.ibm.com/ib", ""),
            false => node,
        }
    };
    world.plane.add_nodes(&(0..6).map(node).collect::<Vec<_>>()).await?;
    let space = world.namespace("planned").await?;
    let pod = element("job", "pe", &[("host", &node_name(5))]);
    succeeds("the webhook knows the nodes", async || space.admitted(&pod).await).await?;
    let (seed, rng) = numbers(211)?;
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..ROUNDS {
        let service = select(vec!["pi", "other", ""]);
        let any = (any_model(), pool_spec(), member(), select(WORKLOADS.to_vec()), service);
        let wrong = (misshapen("HostPool"), misshapen("StreamsJob"));
        let ((model, pool, template, kind, service), (of_pool, of_job)) =
            (any, wrong).new_tree(&mut runner).map_err(anyhow::Error::msg)?.current();
        let job = job("j", &job_spec(&model, node_name));
        let pool = host_pool("p", &pool);
        let (wrong_job, wrong_pool) = (changed(&job, of_job), changed(&pool, of_pool));
        let pod = made(kind, service, &node_name(0), &template);
        let pair = (workload(kind, service, &template), pod);
        let own = [job, pool, wrong_job, wrong_pool].map(|object| (object.clone(), object));
        for (planned, sent) in own.into_iter().chain([pair]) {
            let is_accepted = agree(&space, &planned, &sent).await;
            match is_accepted.with_context(|| format!("seed {seed}: {planned}"))? {
                true => accepted += 1,
                false => refused += 1,
            }
        }
    }
    eprintln!("{accepted} objects were accepted, {refused} were refused");
    ensure!(accepted > 10 && refused > 10, "the objects are not of every kind");
    let nodes: Vec<String> = (0..6).map(node_name).collect();
    world.run(&format!("delete node {}", nodes.join(" "))).await.map(drop)
}

/// The object with a field of another form.
fn changed(object: &Value, (parent, key, value, _): (&str, &str, Value, bool)) -> Value {
    let mut object = object.clone();
    if let Some(Value::Object(parent)) = object.pointer_mut(parent) {
        parent.insert(key.to_owned(), value);
    }
    object
}

/// Plans an object, and sends what is made of it; returns whether both accept it.
async fn agree(space: &Space, planned: &Value, sent: &Value) -> Result<bool> {
    let plan = space.stowplan("plan -f - --live -o json", &planned.to_string()).await?;
    let is_read = !plan.err.contains("not a valid");
    let list = match is_read {
        true => serde_json::from_str(&plan.out).with_context(|| plan.err.clone())?,
        false => json!({"items": []}),
    };
    let arguments = ["-n", &space.name, "create", "--dry-run=server", "-f", "-"];
    let answer = space.world.kubectl(&arguments, &sent.to_string()).await?;
    // A StatefulSet has items for its claims, too, which are right.
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_allowed = !items.is_empty() && items.iter().all(|item| item["allowed"] == true);
    let (said, answer_said) = (&plan.err, &answer.err);
    ensure!(is_allowed == answer.success, "plan: {list} {said}; the API server: {answer_said}");
    Ok(is_allowed)
}
