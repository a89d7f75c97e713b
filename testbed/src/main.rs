//! `cargo testbed`: a control plane to try stowplan on.

use std::process::ExitCode;

mod cli;

fn main() -> ExitCode {
    cli::run()
}
