//! The bench `tekton` without real nodes: its arguments, its figures, and what it reads of this machine and of
//! the audit log.

#![allow(dead_code, reason = "the bench has more than is tested here")]
#![allow(clippy::print_stdout, reason = "tables go to a terminal")]

use std::time::Duration;

use clap::Parser as _;
use serde_json::json;
use testbed::tools::TektonTools;

#[path = "../../benches/tekton/arguments.rs"]
mod arguments;
#[path = "../../benches/tekton/figures.rs"]
mod figures;
#[path = "../../benches/tekton/load.rs"]
mod load;
#[path = "../../benches/tekton/requests.rs"]
mod requests;

use arguments::{Arguments, Arm};

fn parse(arguments: &[&str]) -> Result<Arguments, String> {
    let arguments = ["tekton"].into_iter().chain(arguments.iter().copied());
    Arguments::try_parse_from(arguments).map_err(|error| error.to_string())
}

#[test]
fn its_arguments_have_defaults_and_limits() {
    let arguments = parse(&["--bench"]).unwrap();
    assert_eq!((arguments.runs, arguments.nodes), (100, 5));
    assert_eq!(arguments.arms, [Arm::Neither, Arm::Assistant, Arm::Stowplan]);
    assert_eq!(
        (arguments.image, &*arguments.profile, arguments.requests),
        (None, "release", false)
    );

    let arms = "--arms=stowplan,neither,stowplan";
    let arguments = parse(&["--runs", "5", arms, "--requests", "--profile=quick"]).unwrap();
    assert_eq!((arguments.runs, arguments.requests), (5, true));
    assert_eq!(arguments.arms, [Arm::Stowplan, Arm::Neither, Arm::Stowplan]);

    for (refused, message) in [
        (&["--runs", "0"][..], "1..=300"),
        (&["--runs", "301"], "1..=300"),
        (&["--runs", "many"], "invalid digit"),
        (&["--nodes", "2"], "3..=20"),
        (&["--arms", "nobody"], "neither, assistant, stowplan"),
        (&["--arms", ""], "neither, assistant, stowplan"),
        (&["--image", "a.tar", "--profile", "quick"], "cannot be used with"),
        (&["5"], "unexpected argument"),
    ] {
        let said = parse(refused).unwrap_err();
        assert!(said.contains(message), "{refused:?}: {said}");
    }
}

#[test]
fn figures_are_those_of_the_runs() {
    let times: Vec<_> = (1..=10).rev().map(Duration::from_secs).collect();
    let quantiles = [50, 90, 100].map(|percent| figures::quantile(&times, percent).as_secs());
    assert_eq!(quantiles, [5, 9, 10]);
    assert_eq!(figures::quantile(&times[..1], 50).as_secs(), 10);
    assert_eq!(figures::quantile(&[], 50), Duration::ZERO);

    let seconds = |arm, seconds| (arm, Duration::from_secs(seconds));
    let rounds = [
        seconds(Arm::Neither, 90),
        seconds(Arm::Neither, 110),
        seconds(Arm::Assistant, 150),
        seconds(Arm::Stowplan, 180),
    ];
    let ratios = figures::ratios(rounds.into_iter());
    assert_eq!(
        ratios,
        ["assistant/neither 1.50", "stowplan/neither 1.80", "stowplan/assistant 1.20"]
    );
    let ratios = figures::ratios(rounds.into_iter().filter(|(arm, _)| *arm != Arm::Neither));
    assert_eq!(ratios, ["stowplan/assistant 1.20"]);
    assert_eq!(figures::ratios([].into_iter()), Vec::<String>::new());
}

#[test]
fn processor_time_is_read_from_the_kernels_files() {
    assert_eq!(load::parse_busy("cpu  100 20 30 4000 500 6 7 8 0 0\ncpu0 1 1"), Some(163));
    assert_eq!(load::parse_busy("cpu  100 x"), None);
    assert_eq!(load::parse_busy(""), None);
    let stat = "12 (a (b) c) S 1 12 12 0 -1 4194560 1 2 3 4 50 60 7 8 20 0 1 0 1234";
    assert_eq!(load::parse_process(stat), Some(("a (b) c", 125)));
    assert_eq!(load::parse_process("12 (short) S 1"), None);

    assert_eq!(load::program("stowplan", b"/stowplan\0controller\0--x\0"), "stowplan controller");
    assert_eq!(load::program("controller", b"/ko-app/controller\0-x\0"), "controller");
    assert_eq!(load::program("stowplan", b""), "stowplan");

    let own = load::Load::now().unwrap();
    assert!(own.busy() > Duration::ZERO);
    assert_eq!(own.since(&own).busy(), Duration::ZERO);
}

#[test]
fn answered_requests_are_counted_by_client() {
    let event = |verb: &str, user: &str, resource: &str, code: u32| {
        json!({
            "stage": "ResponseComplete", "verb": verb, "user": {"username": user},
            "objectRef": {"resource": resource}, "responseStatus": {"code": code},
        })
    };
    let mut status = event("patch", "system:node:node-1", "pods", 200);
    status["objectRef"]["subresource"] = json!("status");
    let mut begun = event("create", "tekton", "pods", 201);
    begun["stage"] = json!("RequestReceived");
    let mut requests = requests::Requests::default();
    for event in [
        &event("create", "tekton", "pods", 201),
        &event("create", "tekton", "pods", 201),
        &event("update", "tekton", "taskruns", 409),
        &status,
        &begun,
        &event("watch", "tekton", "pods", 200),
        &json!({"stage": "ResponseComplete", "verb": "get"}),
    ] {
        requests.count(event);
    }
    let lines = requests.lines(2);
    assert_eq!(
        lines,
        [
            "tekton: 1.5 requests a run: 1.0 create pods, 0.5 update taskruns (409)",
            "system:node: 0.5 requests a run: 0.5 patch pods/status",
        ]
    );
}

#[test]
fn the_documents_name_the_release() {
    let versions = include_str!("../../../docs/versions.md");
    let row = versions.lines().find(|line| line.starts_with("| Tekton Pipelines | ")).unwrap();
    let (minor, _) = TektonTools::version().rsplit_once('.').unwrap();
    assert!(row.contains(&format!("| {minor},")), "{minor}: {row}");
}
