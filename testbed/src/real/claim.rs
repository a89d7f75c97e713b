//! One cluster with real nodes at a time: their addresses and groups are the same for all.

use std::fs::{self, File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use crate::process::table;

/// Names the run directory of the last cluster; locked while its owner lives. It stays: a lock
/// whose file is removed protects nothing.
const FILE: &str = "/run/stowplan-testbed";

/// The right to have real nodes on this machine.
#[derive(Debug)]
pub(crate) struct Claim {
    _file: File,
}

impl Claim {
    /// Takes it for a run directory, and removes what a killed cluster has left.
    pub(crate) fn take(run_directory: &Path) -> Result<Self> {
        let cannot = || format!("cannot use {FILE}");
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(FILE)
            .with_context(cannot)?;
        let locked = file.try_lock();
        let mut last = String::new();
        file.read_to_string(&mut last).with_context(cannot)?;
        let last = PathBuf::from(last.trim());
        match locked {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!(
                "another cluster with real nodes runs in {}, and a machine has one at a time; wait \
                 for its end, or end it",
                last.display(),
            ),
            Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
        }
        if last.is_absolute() {
            let running = table::read(&last.join("pids"))?;
            ensure!(
                !running.iter().any(|(_, identity)| identity.runs()),
                "another cluster with real nodes runs in {0}, and a machine has one at a time; end \
                 it with `cargo testbed down --dir {0}`",
                last.display(),
            );
            super::clean_up(&last)?;
        }
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", run_directory.display()).with_context(cannot)?;
        Ok(Self { _file: file })
    }

    /// Whether this run directory was the last to take it.
    pub(crate) fn is_last(run_directory: &Path) -> bool {
        fs::read_to_string(FILE).is_ok_and(|last| Path::new(last.trim()) == run_directory)
    }
}
