//! How the cost of a decision grows: with the cluster and its runs (not at all), and with the pod
//! and what it is of (linearly).
//!
//! A copy of this binary decides under callgrind ([`player`]); no sockets.

use std::fmt::Write as _;

use anyhow::{Context as _, bail, ensure};
use stowplan::testing::admission::{self, Decision, answer, decide};
use stowplan::testing::systems::policy::Policy;
use stowplan::testing::view::View;

use crate::Extent;
use crate::player::{self, Player};
use crate::reviews::Review;
use crate::table::{Table, count, ratio};
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

pub(crate) fn measure(extent: Extent) -> anyhow::Result<()> {
    let large = if extent == Extent::Quick { 1_000 } else { 10_000 };
    let mut player = Player::start("role:growth", &format!("{NOTHING} 0"))?;
    let mut count_of = |part: &str, size: usize| player.count(&format!("{part} {size}"));
    let few = "10 of each".to_owned();
    let many = format!("{} of each", count(large as f64));
    for (what, by, parts) in [
        ("nodes, pods, HostPools", "the size of the cluster", &FLAT[..]),
        ("runs, TaskRuns, claims, placeholders", "the runs in the cluster", &FLAT_RUNS[..]),
    ] {
        let mut table = Table::new(&[what, &few, &many, "ratio"]);
        for (part, label) in parts {
            let (few, many) = (count_of(part, 10)?, count_of(part, large)?);
            table.row([(*label).to_owned(), count(few), count(many), ratio(many / few)]);
        }
        table.print(&format!("Instructions of one decision, by {by} (flat is 1)"));
    }

    let mut table = Table::new(&[
        "number of",
        "sizes",
        "instructions",
        "slope, first step",
        "slope, second step",
        "second / first",
    ]);
    for (part, label, sizes) in LINEAR {
        let mut counts = Vec::new();
        for size in sizes {
            counts.push(count_of(part, size)?);
        }
        let slope = |step: usize| {
            (counts[step + 1] - counts[step]) / (sizes[step + 1] - sizes[step]) as f64
        };
        let list = |values: Vec<f64>| values.into_iter().map(count).collect::<Vec<_>>().join(" / ");
        table.row([
            label.to_owned(),
            list(sizes.iter().map(|&size| size as f64).collect()),
            list(counts.clone()),
            format!("{:.1}", slope(0)),
            format!("{:.1}", slope(1)),
            ratio(slope(1) / slope(0)),
        ]);
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
                std::hint::black_box(
                    decide(std::hint::black_box(&parsed), &view, &policy)?.at_once(),
                );
            } else {
                let review = admission::Review::parse(std::hint::black_box(&bytes))?;
                let decision = decide(&review, &view, &policy)?.at_once();
                std::hint::black_box(answer::write(&review, &decision));
            }
            Ok(())
        })
    })
}

fn view(part: &str, size: usize) -> anyhow::Result<View> {
    match part {
        "pool" => {
            let mut view = View::default();
            world::literal_pool(&mut view, size)?;
            Ok(view)
        }
        "job" | "new-job" => {
            let mut view = View::default();
            world::job(&mut view, size, part == "job")?;
            Ok(view)
        }
        "one-group" => {
            let mut view = world::grown(10)?;
            world::one_group(&mut view, size)?;
            Ok(view)
        }
        "run-member" | "run-claim" => world::runs(size, 2, 1),
        "run-tasks" => world::runs(0, size, 1),
        "run-workspaces" => world::runs(0, 2, size),
        _ if FLAT.iter().any(|(flat, _)| *flat == part) => world::grown(size),
        _ => world::view(),
    }
}

fn review(part: &str, size: usize) -> anyhow::Result<Vec<u8>> {
    let mut review = match part {
        "run-member" | "run-tasks" | "run-workspaces" => Review::of_run()?,
        "run-claim" => Review::of_claim()?,
        _ => Review::recorded()?,
    };
    let host = "streams.ibm.com/host";
    let pool = "streams.ibm.com/host-pool";
    match part {
        NOTHING | "job" | "new-job" => {}
        "run-member" | "run-claim" | "run-tasks" | "run-workspaces" => {}
        "host-name" => review.annotate(host, "ip-10-0-0-3.eu-central-1.compute.internal"),
        "host-address" => review.annotate(host, world::HOST),
        "pool-literal" | "pool" => review.annotate(pool, "literal"),
        "pool-tagged" => review.annotate(pool, "tagged"),
        "pool-torn" => review.annotate(pool, "torn"),
        "colocation" | "one-group" => {
            review.annotate(host, world::HOST);
            review.annotate("streams.ibm.com/host-colocation", "together");
        }
        "annotations" => (0..size)
            .for_each(|i| review.annotate(&format!("example.com/annotation-{i}"), "a value")),
        "unknown" => (0..size)
            .for_each(|i| review.annotate(&format!("stowplan.dev/annotation-{i}"), "a value")),
        "labels" => {
            (0..size).for_each(|i| review.label(&format!("example.com/label-{i}"), "a-value"));
            review.annotate(host, world::HOST);
        }
        "variables" => review.add_variables(size),
        "variables-host" => {
            review.add_variables(size);
            review.annotate(host, world::HOST);
        }
        "foreign-bytes" => review.annotate("example.com/annotation", &"x".repeat(size)),
        "own-bytes" => review.annotate(host, &"x".repeat(size)),
        "tokens" => {
            let mut list = String::new();
            for i in 0..size {
                write!(list, "{}\"token-{i}\"", if i == 0 { "[" } else { "," })?;
            }
            review.annotate("streams.ibm.com/host-exlocation", &format!("{list}]"));
        }
        _ => bail!("{part} is not a part"),
    }
    Ok(review.bytes())
}

/// Whether the decision is the one that the part is about.
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
