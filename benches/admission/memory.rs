//! Measures memory: bytes a cached object, and the real binary's before, in and after a burst.

use std::collections::HashSet;
use std::process::Command;
use std::sync::Barrier;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use stowplan_core::systems::View;
use testbed::command;

use crate::client::{Connection, Trust};
use crate::contestants::Contestant;
use crate::process::{mebibytes, memory};
use crate::reviews::Review;
use crate::table::{Table, count};
use crate::world;

pub(crate) fn measure(rest: u64) -> anyhow::Result<()> {
    objects()?;
    burst(rest)
}

/// The slope of the resident memory of a process that holds a View and nothing else.
fn objects() -> anyhow::Result<()> {
    const SIZES: [usize; 2] = [10_000, 50_000];
    let mut table = Table::new("object | bytes each | with its name in the watch");
    for (kind, label) in [
        ("node", "node, with four addresses and two tags"),
        ("pod", "Streams pod, eight to a colocation group"),
        ("lone-pod", "Streams pod, alone in its group"),
        ("claim-pod", "other pod with a claim, in the controller"),
        ("hostpool", "HostPool: a third each of 2 tags, of 8 names, of a size"),
    ] {
        let slope = |kind: &str| {
            let mut held = [0.0; 2];
            for (held, size) in held.iter_mut().zip(SIZES) {
                let mut copy = Command::new(std::env::current_exe()?);
                let text = command::text(copy.args(["role:memory", kind, &size.to_string()]))?;
                *held = text.trim().parse::<f64>()?;
            }
            anyhow::Ok((held[1] - held[0]) / (SIZES[1] - SIZES[0]) as f64)
        };
        table.row(label, [count(slope(kind)?), count(slope(&format!("{kind}+"))?)]);
    }
    table.print(&format!(
        "Memory of a cached object: resident, from {} to {} of them",
        SIZES[0], SIZES[1]
    ));
    Ok(())
}

/// Holds `size` objects and prints what that takes, with the allocator's own part and the table's
/// empty slots.
pub(crate) fn play(kind: &str, size: usize) -> anyhow::Result<()> {
    let mut view = View::default();
    let mut names = HashSet::new();
    for index in 0..size {
        let object = world::object(kind.trim_end_matches('+'), index)?;
        if kind.ends_with('+') {
            names.insert(object.name().clone());
        }
        view.apply(object);
    }
    println!("{}", mebibytes(std::process::id(), "VmRSS")? * f64::from(1 << 20));
    // Dropped after it was measured, not before.
    let mut counts = std::hint::black_box(&view).counts();
    ensure!(counts.any(|(_, held)| held == size), "not all were held");
    drop(std::hint::black_box(names));
    Ok(())
}

/// 500 clients at once, each with a connection and one request of 18 kB.
fn burst(rest: u64) -> anyhow::Result<()> {
    const CLIENTS: usize = 500;
    let trust = Trust::new()?;
    let mut review = Review::recorded()?;
    review.grow_to(18_000)?;
    let bytes = review.with_keys(1).bytes();
    let server = Contestant::Ours.start(&trust, false)?;
    let given = Connection::open(server.address, &trust)?.review(&bytes)?;
    Contestant::Ours.check(&bytes, &given)?;
    let mut table = Table::new("moment | resident, MiB | highest, MiB");
    let mut moment = |label: &str| -> anyhow::Result<()> {
        table.row(label, memory(server.child.0.id())?);
        Ok(())
    };
    moment("idle, after one request")?;
    for burst in ["a burst", "a second burst"] {
        let connected = Barrier::new(CLIENTS + 1);
        let answered = Barrier::new(CLIENTS + 1);
        let right = std::thread::scope(|scope| {
            let client = || {
                let connection = Connection::open(server.address, &trust);
                connected.wait();
                let answer = connection.and_then(|mut connection| connection.review(&bytes));
                answered.wait();
                answer.is_ok_and(|answer| answer == given)
            };
            let start =
                |_| std::thread::Builder::new().stack_size(256 * 1024).spawn_scoped(scope, client);
            let clients = (0..CLIENTS).map(start).collect::<Result<Vec<_>, _>>()?;
            connected.wait();
            answered.wait();
            moment(&format!("in {burst} of {CLIENTS} connections, all open"))?;
            let right = clients.into_iter().filter_map(|client| client.join().ok());
            Ok::<_, anyhow::Error>(right.filter(|right| *right).count())
        })?;
        ensure!(right == CLIENTS, "only {right} of {CLIENTS} were answered rightly");
        std::thread::sleep(Duration::from_secs(1));
        moment(&format!("1 s after {burst}"))?;
    }
    std::thread::sleep(Duration::from_secs(rest));
    moment(&format!("{} s after it", rest + 1))?;
    Connection::open(server.address, &trust)?.review(&bytes).context("after the burst")?;
    table.print("Memory of `stowplan webhook`");
    Ok(())
}
