//! Measures one request, end to end: TLS, HTTP, reading, deciding, answering.

use std::collections::HashMap;

use anyhow::Context as _;

use crate::Extent;
use crate::client::{Connection, Trust};
use crate::contestants::Contestant;
use crate::reviews::Review;
use crate::table::{ROUNDS, Table, count, ratio, spread};

/// One review to send.
struct Case {
    label: String,
    keys: usize,
    bytes: Vec<u8>,
    /// How many requests before the count begins, and how many by its end.
    requests: (u32, u32),
}

pub(crate) fn measure(extent: Extent, counted: bool) -> anyhow::Result<()> {
    let cases = cases(extent)?;
    let trust = Trust::new()?;
    if counted {
        instructions(&cases, &trust, extent)?;
    }
    time(&cases, &trust, extent)
}

fn cases(extent: Extent) -> anyhow::Result<Vec<Case>> {
    let sizes: &[usize] =
        if extent == Extent::Quick { &[3_500, 18_000] } else { &[3_500, 18_000, 46_000, 184_000] };
    let keys: &[usize] = if extent == Extent::Quick { &[0, 1] } else { &[0, 1, 10] };
    let mut cases = Vec::new();
    for &size in sizes {
        let mut review = Review::recorded()?;
        review.grow_to(size)?;
        for &keys in keys {
            let bytes = review.clone().with_keys(keys).bytes();
            // A count differs by less than a part in a thousand from run to run, at any number of
            // reviews; large reviews are counted over fewer, so that the run stays short.
            let requests = match (extent, size) {
                (Extent::Full, _) | (Extent::Standard, ..10_000) => (100, 1_100),
                (Extent::Standard, ..100_000) => (50, 250),
                (Extent::Standard, _) => (10, 50),
                (Extent::Quick, _) => (20, 120),
            };
            let label = format!("{:.1} kB, {keys} keys", bytes.len() as f64 / 1000.0);
            cases.push(Case { label, keys, bytes, requests });
        }
    }
    Ok(cases)
}

fn instructions(cases: &[Case], trust: &Trust, extent: Extent) -> anyhow::Result<()> {
    let mut counts: HashMap<(Contestant, usize), f64> = HashMap::new();
    let mut repeated = Table::new("server | instructions a request, twice | difference");
    for contestant in Contestant::ALL {
        let mut server = contestant.start(trust, true)?;
        let mut connection = Connection::open(server.address, trust)?;
        let mut lap = |case: &Case| {
            let (first, last) = case.requests;
            let counter = server.counter.as_mut().context("counted")?;
            send(contestant, &mut connection, case, first)?;
            counter.lap()?;
            // The lap begins at zero: it is the count at the last request less that at the first.
            send(contestant, &mut connection, case, last - first)?;
            Ok::<_, anyhow::Error>(counter.lap()? as f64 / f64::from(last - first))
        };
        for (index, case) in cases.iter().enumerate() {
            counts.insert((contestant, index), lap(case)?);
        }
        if contestant == Contestant::Ours {
            compare_systems(extent, &mut lap)?;
        }
        if let Some(case) = cases.first() {
            let (once, again) = (counts[&(contestant, 0)], lap(case)?);
            let difference = format!("{:+.2} %", (again / once - 1.0) * 100.0);
            let counts = format!("{} / {}", count(once), count(again));
            repeated.row(contestant.name(), [counts, difference]);
        }
    }
    let mut table = Table::new(
        "review | requests | constant | scan | ours | value + diff | ours / scan | \
         ours / (value + diff)",
    );
    for (index, case) in cases.iter().enumerate() {
        let of = |contestant| counts[&(contestant, index)];
        let each = Contestant::ALL.map(of);
        let ratios = [Contestant::Scan, Contestant::Value].map(|it| of(Contestant::Ours) / of(it));
        let requests = format!("{}, {}", case.requests.0, case.requests.1);
        let figures = each.map(count).into_iter().chain(ratios.map(ratio));
        table.row(&case.label, [requests].into_iter().chain(figures));
    }
    table.print("Instructions a request");
    repeated.print("The same count twice");
    Ok(())
}

/// The annotation of Katalyst's seed beside one of Streams, on the same pod of 18 kB that Katalyst binds.
fn compare_systems(
    extent: Extent,
    lap: &mut impl FnMut(&Case) -> anyhow::Result<f64>,
) -> anyhow::Result<()> {
    let requests = if extent == Extent::Quick { (20, 120) } else { (50, 250) };
    let mut count_of = |with_affinity: bool| {
        let mut review = Review::recorded()?;
        review.grow_to(18_000)?;
        let bytes = review.bound_to_numa(with_affinity).bytes();
        lap(&Case { label: "a pod that Katalyst binds".to_owned(), keys: 1, bytes, requests })
    };
    let (host, affinity) = (count_of(false)?, count_of(true)?);
    let mut table = Table::new("review | host of Streams | NUMA anti-affinity | ratio");
    table.row("18.0 kB, 1 key", [count(host), count(affinity), ratio(affinity / host)]);
    table.print("Instructions a request, the annotations of two systems");
    Ok(())
}

/// Sends a review `times`, and holds every answer to what the contestant must answer.
fn send(
    contestant: Contestant,
    connection: &mut Connection,
    case: &Case,
    times: u32,
) -> anyhow::Result<()> {
    let wrong = || format!("{} answers {} wrongly", contestant.name(), case.label);
    let mut right: Option<Vec<u8>> = None;
    for _ in 0..times {
        let given = connection.review(&case.bytes).with_context(wrong)?;
        match &right {
            Some(right) => anyhow::ensure!(*right == given, "{}, and not as before", wrong()),
            None => {
                contestant.check(&case.bytes, &given).with_context(wrong)?;
                right = Some(given);
            }
        }
    }
    Ok(())
}

/// Processor time, user and kernel, in interleaved rounds: information, never a target.
fn time(cases: &[Case], trust: &Trust, extent: Extent) -> anyhow::Result<()> {
    let requests = if extent == Extent::Quick { 50 } else { 100 };
    let mut running = Vec::new();
    for contestant in Contestant::ALL {
        let server = contestant.start(trust, false)?;
        let connection = Connection::open(server.address, trust)?;
        running.push((contestant, server, connection));
    }
    let mut table = Table::new("review | ours / constant | ours / scan | ours / (value + diff)");
    let others = [Contestant::Constant, Contestant::Scan, Contestant::Value];
    for case in cases.iter().filter(|case| case.keys < 10 && case.bytes.len() < 50_000) {
        let mut ratios = others.map(|_| Vec::new());
        // The first round warms up.
        for round in 0..=ROUNDS {
            let mut took = HashMap::new();
            for (contestant, server, connection) in &mut running {
                let before = server.processor_time()?;
                send(*contestant, connection, case, requests)?;
                took.insert(*contestant, server.processor_time()? - before);
            }
            if round > 0 {
                for (ratios, other) in ratios.iter_mut().zip(others) {
                    ratios.push(took[&Contestant::Ours] / took[&other]);
                }
            }
        }
        table.row(&case.label, ratios.map(|of| spread(of, ratio)));
    }
    table.print(&format!(
        "Processor time, user and kernel: median of {ROUNDS} rounds of {requests} (range)"
    ));
    Ok(())
}
