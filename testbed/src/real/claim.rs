//! One cluster with real nodes at a time: their addresses and groups are the same for all.

use std::env;
use std::fs::{self, File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::jiff::Timestamp;

use crate::process::table;

/// Names the run directory of the last cluster; locked while its owner lives. It stays: a lock
/// whose file is removed protects nothing.
const FILE: &str = "/run/stowplan-testbed";

/// The file of a run directory with the process that claimed the machine, and its command line.
const OWNER: &str = "owner";

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
            Err(TryLockError::WouldBlock) => bail!(in_use(&last, since(&file), &[])),
            Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
        }
        if last.is_absolute() {
            let running = table::read(&last.join("pids"))?;
            let running: Vec<_> =
                running.into_iter().filter(|(_, identity)| identity.runs()).collect();
            if !running.is_empty() {
                let names: Vec<_> = running
                    .iter()
                    .map(|(name, identity)| format!("{name} {}", identity.id()))
                    .collect();
                bail!(in_use(&last, since(&file), &names));
            }
            super::clean_up(&last)?;
        }
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", run_directory.display()).with_context(cannot)?;
        let command: Vec<_> =
            env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        let owner = format!("{}\n{}\n", std::process::id(), command.join(" "));
        fs::write(run_directory.join(OWNER), owner).with_context(cannot)?;
        Ok(Self { _file: file })
    }

    /// Returns true if this run directory was the last to take it.
    pub(crate) fn is_last(run_directory: &Path) -> bool {
        fs::read_to_string(FILE).is_ok_and(|last| Path::new(last.trim()) == run_directory)
    }
}

/// When the file was written, to the second.
fn since(file: &File) -> Option<Timestamp> {
    let written = file.metadata().ok()?.modified().ok()?;
    let age = written.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Timestamp::from_second(i64::try_from(age.as_secs()).ok()?).ok()
}

/// Says who has the machine's cluster: the process that claimed it, or, after it was detached,
/// those that it has left running.
fn in_use(directory: &Path, since: Option<Timestamp>, running: &[String]) -> String {
    let owner = fs::read_to_string(directory.join(OWNER)).unwrap_or_default();
    let mut lines = owner.lines();
    let id = lines.next().filter(|id| !id.is_empty());
    let mut text = format!("another cluster with real nodes runs in {}", directory.display());
    if let Some(since) = since {
        text += &format!(" since {since}");
    }
    if let (Some(id), Some(command)) = (id, lines.next()) {
        text += &match running.is_empty() {
            true => format!(", of process {id} (`{command}`)"),
            false => format!(", started by `{command}`"),
        };
    }
    if !running.is_empty() {
        text += &format!(", with processes {}", running.join(", "));
    }
    format!(
        "{text}; a machine has one at a time: wait for its end, or, only if it is yours, end it \
         with `cargo testbed down --dir {}`",
        directory.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_cluster_is_named_as_far_as_it_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        let since = Timestamp::from_second(1_800_000_000).ok();
        let end = format!(
            "; a machine has one at a time: wait for its end, or, only if it is yours, end it \
             with `cargo testbed down --dir {}`",
            path.display()
        );
        let said = |since, running: &[&str]| {
            let running: Vec<_> = running.iter().map(|&name| name.to_owned()).collect();
            let said = in_use(path, since, &running);
            let start = format!("another cluster with real nodes runs in {}", path.display());
            let rest = said.strip_prefix(&start).and_then(|said| said.strip_suffix(&end));
            rest.unwrap_or_else(|| panic!("{said}")).to_owned()
        };
        assert_eq!(said(None, &[]), "");
        for owner in ["", "\n", "12"] {
            fs::write(path.join(OWNER), owner).unwrap();
            let wanted = " since 2027-01-15T08:00:00Z, with processes etcd 3";
            assert_eq!(said(since, &["etcd 3"]), wanted);
        }
        fs::write(path.join(OWNER), "12\ntestbed up --real 3\n").unwrap();
        assert_eq!(said(None, &[]), ", of process 12 (`testbed up --real 3`)");
        assert_eq!(
            said(since, &["etcd 3", "node-1 4"]),
            " since 2027-01-15T08:00:00Z, started by `testbed up --real 3`, with processes etcd 3, \
             node-1 4"
        );
    }
}
