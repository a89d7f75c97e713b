//! How the cost of a decision grows: with the cluster and its runs (not at all), and with the pod
//! and what it is of (linearly).
//!
//! A copy of this binary decides under callgrind ([`player`]); no sockets.

use std::hint::black_box;

use anyhow::{Context as _, bail, ensure};
use stowplan_core::admission::{self, Decision, answer, decide};
use stowplan_core::systems::View;
use stowplan_core::systems::policy::Policy;

use crate::player::{self, Player};
use crate::reviews::{self, Review};
use crate::table::{Table, count, ratio, tenths};
use crate::world;

/// With the cluster: the same pod, more of everything. Counted is [`decide`] alone.
const FLAT: [(&str, &str); 7] = [
    ("host-name", "host by name"),
    ("host-address", "host by address"),
    ("pool-literal", "pool of 3 hosts"),
    ("pool-tagged", "pool of 2 tags"),
    ("pool-torn", "pool of 2 tags that no node has both of"),
    ("colocation", "host and colocation, 4 pods of the group there"),
    ("one-group", "host and colocation, all pods in one group"),
];

/// With the runs of the cluster: the same run's pod or claim, more of other runs. Counted is
/// [`decide`] alone.
const FLAT_RUNS: [(&str, &str); 2] = [
    ("run-member", "pod of a run's task"),
    ("run-claim", "claim of a run, whose class is replaced"),
];

/// With the pod. Counted are reading, deciding and writing the answer.
const LINEAR: [(&str, &str, [usize; 3]); 13] = [
    ("annotations", "annotations of others", [10, 100, 1_000]),
    ("unknown", "unknown annotations under our prefixes", [10, 100, 1_000]),
    ("labels", "labels, beside one of stowplan's keys", [10, 100, 1_000]),
    ("variables", "environment variables", [15, 150, 1_500]),
    ("variables-host", "environment variables, beside one of stowplan's keys", [15, 150, 1_500]),
    ("foreign-bytes", "bytes of an annotation of others", [4_096, 32_768, 262_144]),
    ("own-bytes", "bytes of `host`, refused", [4_096, 32_768, 262_144]),
    ("tokens", "exlocation tokens", [1, 8, 64]),
    ("pool", "hosts of a literal pool", [4, 32, 256]),
    ("job", "elements of the pod's StreamsJob", [10, 100, 1_000]),
    ("new-job", "elements of a StreamsJob that no controller has accepted yet", [10, 100, 1_000]),
    ("run-tasks", "tasks of the pod's run, all with one workspace", [10, 100, 1_000]),
    ("run-workspaces", "workspaces of the pod's run, a claim each", [10, 100, 1_000]),
];

/// The part that measures the cost of a turn in which nothing is done.
const NOTHING: &str = "nothing";

pub(crate) fn measure(quick: bool) -> anyhow::Result<()> {
    let large = if quick { 1_000 } else { 10_000 };
    let mut player = Player::start("role:growth", &format!("{NOTHING} 0"))?;
    let mut count_of = |part: &str, size: usize| player.count(&format!("{part} {size}"));
    let few = "10 of each".to_owned();
    let many = format!("{} of each", count(large as f64));
    for (what, by, parts) in [
        ("nodes, pods, HostPools", "the size of the cluster", &FLAT[..]),
        ("runs, TaskRuns, claims, placeholders", "the runs in the cluster", &FLAT_RUNS[..]),
    ] {
        let mut table = Table::new(&format!("{what} | {few} | {many} | ratio"));
        for (part, label) in parts {
            let (few, many) = (count_of(part, 10)?, count_of(part, large)?);
            table.row(label, [count(few), count(many), ratio(many / few)]);
        }
        table.print(&format!("Instructions of one decision, by {by} (flat is 1)"));
    }

    let mut table = Table::new(
        "number of | sizes | instructions | slope, first step | slope, second step | \
         second / first",
    );
    for (part, label, sizes) in LINEAR {
        let counts = sizes.iter().map(|size| count_of(part, *size));
        let counts = counts.collect::<anyhow::Result<Vec<_>>>()?;
        let slope = |step: usize| {
            (counts[step + 1] - counts[step]) / (sizes[step + 1] - sizes[step]) as f64
        };
        let list =
            |of: &[f64]| of.iter().map(|value| count(*value)).collect::<Vec<_>>().join(" / ");
        let figures = [
            list(&sizes.map(|size| size as f64)),
            list(&counts),
            tenths(slope(0)),
            tenths(slope(1)),
            ratio(slope(1) / slope(0)),
        ];
        table.row(label, figures);
    }
    table.print("Instructions from bytes to bytes, by the size of the pod (linear is 1)");
    Ok(())
}

/// Decides as ordered on standard input.
pub(crate) fn play() -> anyhow::Result<()> {
    let policy = Policy::default();
    player::play(|order, turn| {
        let (part, size) = order.split_once(' ').context("PART SIZE")?;
        let size = size.parse()?;
        let view = view(part, size)?;
        let bytes = review(part, size)?;
        let parsed = admission::Review::parse(&bytes)?;
        // Done once before it is counted: it must come to what it is meant to, and pages are
        // touched.
        check(part, &decide(&parsed, &view, &policy)?.at_once())?;
        let decision_alone = FLAT.iter().chain(&FLAT_RUNS).any(|(flat, _)| *flat == part);
        turn(&mut || {
            if part == NOTHING {
                return Ok(());
            }
            if decision_alone {
                black_box(decide(black_box(&parsed), &view, &policy)?.at_once());
            } else {
                let review = admission::Review::parse(black_box(&bytes))?;
                let decision = decide(&review, &view, &policy)?.at_once();
                black_box(answer::write(&review, &decision));
            }
            Ok(())
        })
    })
}

fn view(part: &str, size: usize) -> anyhow::Result<View> {
    let mut view = View::default();
    match part {
        "pool" => world::literal_pool(&mut view, size)?,
        "job" | "new-job" => world::job(&mut view, size, part == "job")?,
        "one-group" => {
            view = world::grown(10)?;
            // Beside the first four, which every such cluster has.
            for index in 4..size + 4 {
                world::add_mate(&mut view, index)?;
            }
        }
        "run-member" | "run-claim" => world::runs(&mut view, size, 2, 1)?,
        "run-tasks" => world::runs(&mut view, 0, size, 1)?,
        "run-workspaces" => world::runs(&mut view, 0, 2, size)?,
        _ if FLAT.iter().any(|(flat, _)| *flat == part) => view = world::grown(size)?,
        _ => view = world::view()?,
    }
    Ok(view)
}

fn review(part: &str, size: usize) -> anyhow::Result<Vec<u8>> {
    let mut review = match part {
        "run-member" | "run-tasks" | "run-workspaces" => Review::read(reviews::MEMBER)?,
        "run-claim" => Review::read(reviews::CLAIM)?,
        _ => Review::recorded()?,
    };
    let host = "streams.ibm.com/host";
    let pool = "streams.ibm.com/host-pool";
    match part {
        NOTHING | "job" | "new-job" | "host-address" => {}
        part if part.starts_with("run-") => {}
        "host-name" => review.annotate(host, "ip-10-0-0-3.eu-central-1.compute.internal"),
        "pool-literal" | "pool" => review.annotate(pool, "literal"),
        "pool-tagged" => review.annotate(pool, "tagged"),
        "pool-torn" => review.annotate(pool, "torn"),
        "colocation" | "one-group" => {
            review.annotate("streams.ibm.com/host-colocation", "together");
        }
        "annotations" | "unknown" => {
            let prefix = if part == "unknown" { "stowplan.dev" } else { "example.com" };
            let key = |i| format!("{prefix}/annotation-{i}");
            (0..size).for_each(|i| review.annotate(&key(i), "a value"));
        }
        "labels" => {
            (0..size).for_each(|i| review.label(&format!("example.com/label-{i}"), "a-value"));
        }
        "variables" | "variables-host" => review.add_variables(size),
        "foreign-bytes" => review.annotate("example.com/annotation", &"x".repeat(size)),
        "own-bytes" => review.annotate(host, &"x".repeat(size)),
        "tokens" => {
            let tokens: Vec<_> = (0..size).map(|i| format!("token-{i}")).collect();
            review.annotate("streams.ibm.com/host-exlocation", &serde_json::to_string(&tokens)?);
        }
        _ => bail!("{part} is not a part"),
    }
    if ["host-address", "colocation", "one-group", "labels", "variables-host"].contains(&part) {
        review.annotate(host, world::HOST);
    }
    Ok(review.bytes())
}

/// Returns whether the decision is the one that the part is about.
fn check(part: &str, decision: &Decision) -> anyhow::Result<()> {
    let reason = decision.reason();
    let wanted = match part {
        NOTHING | "annotations" | "variables" | "foreign-bytes" => "NoKeys",
        "own-bytes" => "InvalidHost",
        "pool-torn" => "NoTaggedNode",
        _ => "Placed",
    };
    ensure!(reason == wanted, "{part}: {reason} and not {wanted}");
    Ok(())
}
