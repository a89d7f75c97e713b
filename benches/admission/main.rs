//! Measures an admission, as ratios within one run: instructions a request against servers that
//! do less or do it in the customary way, growth with pod and cluster, and memory.
//!
//! `docs/performance.md` says how to read the tables. Nothing printed here is stored: every figure
//! is measured in the run that prints it, and a contestant that answers wrongly ends the run.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "tables go to a terminal")]

mod client;
#[path = "../common/common.rs"]
mod common;
mod contestants;
mod growth;
mod memory;
mod requests;
mod reviews;
mod world;

use std::time::Instant;

use clap::Parser;

use common::{answers, callgrind, objects, player, process, server, table};

/// How much is measured.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Extent {
    /// Enough to see that the harness works and where the figures roughly are.
    Quick,
    /// The extent that `docs/performance.md` shows.
    Standard,
    /// 100 and 1,100 requests for every size, and a minute's rest after the burst.
    Full,
}

/// Measures what an admission costs, and prints tables for `docs/performance.md`.
#[derive(Parser)]
struct Arguments {
    /// Two sizes and few requests: about a minute
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// 100 and 1,100 requests whatever the size, and 60 s of rest
    #[arg(long)]
    full: bool,
    /// How long the server rests after the burst before its memory is read [default: 5]
    #[arg(long, value_name = "SECONDS")]
    rest: Option<u64>,
    /// Only these parts
    #[arg(value_parser = ["requests", "growth", "memory"])]
    parts: Vec<String>,
    /// From cargo
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> anyhow::Result<()> {
    // The crate has one crypto provider; the client's and the contestants' configurations take it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let words: Vec<String> = std::env::args().skip(1).collect();
    // The part that the measuring process gives to a copy of itself.
    match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["role:growth"] => return growth::play(),
        ["role:memory", kind, count] => return memory::play(kind, count.parse()?),
        [role, folder] if role.starts_with("role:") => {
            return contestants::play(role, folder.as_ref());
        }
        _ => {}
    }
    let Arguments { quick, full, rest, parts, .. } = Arguments::parse();
    let extent = match (quick, full) {
        (true, _) => Extent::Quick,
        (_, true) => Extent::Full,
        _ => Extent::Standard,
    };
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
    let started = Instant::now();
    let counted = callgrind::announce();
    println!("extent: {extent:?}");
    if wanted("requests") {
        requests::measure(extent, counted)?;
    }
    if wanted("growth") && counted {
        growth::measure(quick)?;
    }
    if wanted("memory") {
        memory::measure(rest.unwrap_or(if full { 60 } else { 5 }))?;
    }
    println!("\nmeasured in {} s", started.elapsed().as_secs());
    Ok(())
}
