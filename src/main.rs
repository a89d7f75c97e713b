//! The `stowplan` binary: the crypto provider, and then what the command line says.

use std::process::ExitCode;

fn main() -> ExitCode {
    // The only provider in the tree; who connects or listens takes it from here. It fails only where
    // one is installed already, and nothing ran before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    stowplan::cli::run()
}
