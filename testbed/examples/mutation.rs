//! How many faults the tests notice: `cargo mutation` changes one expression of what decides and plans at a time,
//! and runs the tests that need no cluster.
//!
//! All changes are compiled at once, each behind a number that a test process gets in its environment. So a change
//! costs a run of the tests, and no build.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "figures go to a terminal")]

use std::collections::BTreeMap;
use std::sync::Mutex;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;

#[path = "mutation/build.rs"]
mod build;
#[path = "mutation/run.rs"]
mod run;
#[path = "mutation/sites.rs"]
mod sites;

use build::Build;
use run::{Outcome, Tests, on_all_processors};
use sites::Site;

/// Changes one expression of what decides and plans at a time, and shows which changes no test notices.
///
/// Examples:
///   cargo mutation
///   cargo mutation --sample 50 --seed 7
///   cargo mutation --sample 20 --only systems/streams
#[derive(Parser)]
#[command(name = "mutation", verbatim_doc_comment)]
struct Arguments {
    /// How many changes are tried
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u16).range(1..=5_000))]
    sample: u16,
    /// Chooses them: a seed always chooses the same ones of the same sources
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Only in files of `core/src` whose path begins like this
    #[arg(long, value_name = "PATH", default_value = "")]
    only: String,
    /// Only this one of them, with what its tests print
    #[arg(long, value_name = "NUMBER")]
    number: Option<usize>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let all = sites::find(&build::root().join("core/src"), &arguments.only)?;
    ensure!(!all.is_empty(), "core/src has nothing to change in {:?}", arguments.only);
    eprintln!("{} changes are possible", all.len());
    let build = Build::of(sites::shuffle(all, arguments.seed), arguments.sample.into())?;
    let tests = Tests::new(&build)?;
    if let Some(number) = arguments.number {
        let site = build.sites.get(number).context("there is no change of this number")?;
        println!("{number} {site}: {}", tests.show(number)?);
        return Ok(());
    }
    let outcomes = try_all(&build, &tests)?;
    print(&build.sites, &outcomes);
    Ok(())
}

/// Runs the tests against each change, on all processors.
fn try_all(build: &Build, tests: &Tests) -> Result<Vec<Outcome>> {
    let outcomes = Mutex::new(vec![None; build.sites.len()]);
    on_all_processors(build.sites.len(), |number| {
        let outcome = tests.run(number)?;
        eprintln!("{number} {}: {outcome}", build.sites[number]);
        outcomes.lock().expect("no thread panics")[number] = Some(outcome);
        Ok(())
    })?;
    let outcomes = outcomes.into_inner().expect("no thread panics");
    outcomes.into_iter().collect::<Option<_>>().context("a change was not tried")
}

fn print(sites: &[Site], outcomes: &[Outcome]) {
    let mut rooms: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for (site, outcome) in sites.iter().zip(outcomes) {
        let survives = usize::from(!outcome.is_noticed());
        for room in [site.room(), "~ all"] {
            let [tried, survived] = rooms.entry(room).or_default();
            *tried += 1;
            *survived += survives;
        }
    }
    println!("| Room | Changes | Noticed | Not noticed |\n| --- | ---: | ---: | ---: |");
    for (room, [tried, survived]) in rooms {
        let percent = (tried - survived) * 100 / tried;
        let room = room.trim_start_matches("~ ");
        println!("| {room} | {tried} | {} ({percent} %) | {survived} |", tried - survived);
    }
    println!();
    for (number, (site, outcome)) in sites.iter().zip(outcomes).enumerate() {
        if !outcome.is_noticed() {
            println!("{number} {site}: {outcome}");
        }
    }
}
