//! The table of a run: one line a process, `name pid start-time`. What `down` knows.

use std::path::Path;
use std::{fs, io};

use anyhow::{Context as _, Result};

use super::{Identity, to_pid};

/// The processes that are named, running or not. A missing table is an empty one.
pub(crate) fn read(path: &Path) -> Result<Vec<(String, Identity)>> {
    match fs::read_to_string(path) {
        Ok(text) => text
            .lines()
            .map(|line| {
                parse(line).with_context(|| format!("{}: not a process: {line}", path.display()))
            })
            .collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Replaces the table as a whole: a reader finds the old or the new one.
pub(crate) fn write<'a>(
    path: &Path,
    processes: impl Iterator<Item = (&'a str, Identity)>,
) -> Result<()> {
    let text: String = processes
        .map(|(name, Identity { pid, started })| {
            format!("{name} {} {started}\n", pid.as_raw_nonzero())
        })
        .collect();
    let next = path.with_extension("next");
    fs::write(&next, text)
        .and_then(|()| fs::rename(&next, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn parse(line: &str) -> Option<(String, Identity)> {
    let mut words = line.split_whitespace();
    let (name, pid, started) = (words.next()?, words.next()?, words.next()?);
    let pid = to_pid(pid.parse().ok()?)?;
    Some((name.to_owned(), Identity { pid, started: started.parse().ok()? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_is_none_is_not_guessed_at() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pids");
        assert_eq!(read(&path).unwrap(), []);
        for line in ["etcd", "etcd 0 1", "etcd -1 1", "etcd 12", "etcd twelve 1"] {
            fs::write(&path, line).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains("not a process"), "{line}: {error}");
        }
    }
}
