//! The testbed's own tests that need no real nodes: its programs, its control plane, what a real
//! API server makes of the chart, images, and the site of the documents.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests fail as tests do; clippy.toml frees only the tests"
)]

mod book;
mod chart;
mod commands;
mod control_plane;
mod demo;
mod image;
mod image_command;
mod tekton;
mod tekton_bench;
mod tools;

use std::process::{Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Returns the standard output of a command, which must succeed.
#[track_caller]
fn succeeded(command: &mut Command) -> String {
    testbed::command::text(command).unwrap()
}

/// Returns the standard error of a command, which must fail.
#[track_caller]
fn refused(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(!status.success(), "{command:?}: {}", String::from_utf8_lossy(&stdout));
    String::from_utf8(stderr).unwrap()
}

/// Repeats `attempt` until it succeeds, and returns the result; its error tells what was found instead.
#[track_caller]
fn eventually<T>(mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        match attempt() {
            Ok(found) => return found,
            Err(why) => assert!(Instant::now() < end, "still: {why}"),
        }
        sleep(Duration::from_millis(100));
    }
}
