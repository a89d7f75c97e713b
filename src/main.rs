//! The `stowplan` binary: installs the crypto provider and runs the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    // The only crypto provider of the process; every TLS client and server uses it. Installing
    // fails only if one is installed already, and nothing ran before this line.
    let _ = rustls::crypto::ring::default_provider().install_default();
    stowplan::run()
}
