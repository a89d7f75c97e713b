//! `cargo demo`, the first command that a new user runs.

use std::process::Command;

#[test]
fn the_demo_shows_every_constraint_a_streams_job_refusals_a_run_and_numa_nodes() {
    let said = crate::succeeded(Command::new(env!("CARGO_BIN_EXE_testbed")).arg("demo"));
    let text = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let row = |pod: &str| {
        let is_of = |line: &&str| line.trim_start().starts_with(&format!("{pod} "));
        let line = said.lines().find(is_of).unwrap();
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>()
    };
    assert_eq!(row("trades-source")[1..3], ["host-pool: ingest", "node-1"]);
    assert_eq!(row("trades-lookup")[1..3], ["host: 10.4.40.83", "node-3"]);
    assert_eq!(row("trades-archive")[1..3], ["host-pool: archive[1]", "node-4"]);
    assert_eq!(row("trades-parse")[2], row("trades-enrich")[2]);
    assert_ne!(row("trades-match-a")[2], row("trades-match-b")[2]);
    let names = ["source", "lookup", "archive", "sink", "parse", "enrich", "match-a", "match-b"];
    let trades = names.map(|name| row(&format!("trades-{name}")));
    for row in &trades {
        let constraint = row[1].split(':').next().unwrap();
        assert!(row[3].contains(&format!("{constraint}=")), "{row:?}");
    }
    let isolated = row("trades-sink")[2];
    assert_eq!(trades.iter().filter(|row| row[2] == isolated).count(), 1, "{said}");
    assert!(text.contains("stowplan: ") && text.contains("foo.watson.ibm.com"), "{said}");
    assert_eq!(row("parallel-9")[2], "node-9");
    assert_eq!(row("parallel-2")[2], row("parallel-4")[2]);
    assert!(text.contains("StreamsJob impossible") && text.contains("must share a host"), "{said}");
    assert_eq!(row("image-clone-pod")[2], row("image-build-pod")[2]);
    assert_ne!(row("image-report-pod")[2], row("image-build-pod")[2]);
    assert!(said.contains("stowplan's placeholder was deleted"), "{said}");
    assert!(said.contains("Katalyst itself does not run here"), "{said}");
    assert_eq!(row("train-ps-0")[1], "ps");
    let zones: Vec<_> = said.lines().filter(|line| line.contains("| NUMA ")).collect();
    assert_eq!(zones.len(), 8, "{zones:#?}");
    for pod in ["train-ps-", "train-worker-"] {
        let count: usize = zones.iter().map(|zone| zone.matches(pod).count()).sum();
        assert_eq!(count, if pod == "train-ps-" { 2 } else { 4 }, "{zones:#?}");
    }
    let is_mixed = |zone: &&&str| zone.contains("train-ps-") && zone.contains("train-worker-");
    assert_eq!(zones.iter().find(is_mixed), None);
    let wide: Vec<_> = said.lines().filter(|line| line.chars().count() > 120).collect();
    assert!(wide.is_empty(), "wider than 120 columns: {wide:#?}");
    assert!(row("parallel-8")[3].starts_with("streams-job=parallel: element parallel-8"), "{said}");
    let (_, map) = said.split_once("stowplan map -n default\n").unwrap();
    let own = |node: &str| map.lines().find(|line| line.trim_start().starts_with(node)).unwrap();
    assert!(map.contains("StreamsJob default/parallel"), "{map}");
    assert!(own("node-9 ").contains("NamesPool[0]"), "{map}");
    assert!(map.contains("NUMA 0, socket 0:"), "{map}");
    assert!(said.contains("All started processes have ended."), "{said}");
}
