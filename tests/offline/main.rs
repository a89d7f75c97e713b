//! Everything that needs no cluster: decisions, the command line, the webhook as a process, the
//! chart as rendered, documents and releases.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests fail as tests do; clippy.toml frees only the tests"
)]

#[path = "../common/histories.rs"]
mod histories;
mod metrics;
#[path = "../common/planned_cases.rs"]
mod planned_cases;
mod pods;
#[path = "../common/scheduling.rs"]
mod scheduling_questions;
#[path = "../common/streams_cases.rs"]
mod streams_cases;
#[path = "../common/streams_oracle.rs"]
mod streams_oracle;

mod agreement;
mod bad_input;
mod chart;
mod check;
mod cli;
mod dependencies;
mod documents;
mod fixtures;
mod group_histories;
mod one_node;
mod pause;
mod properties;
mod purity;
mod readme;
mod releases;
mod scheduling;
mod streams_whole;
mod webhook;
