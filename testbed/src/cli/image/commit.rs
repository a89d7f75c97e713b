//! The commit that an image is made of.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

pub(super) struct Commit {
    /// With `-dirty` if tracked files have changes.
    pub(super) revision: String,
    /// Seconds since 1970.
    pub(super) time: u64,
}

impl Commit {
    /// The one that the workspace is at. None if it is no checkout, or git is not installed.
    pub(super) fn of_files(workspace: &Path) -> Option<Self> {
        let mut commit = Self::find(workspace, "HEAD").ok()?;
        let changes = git(workspace, ["status", "--porcelain", "--untracked-files=no"]).ok()?;
        if !changes.is_empty() {
            commit.revision.push_str("-dirty");
        }
        Some(commit)
    }

    pub(super) fn find(workspace: &Path, revision: &str) -> Result<Self> {
        let revision = format!("{revision}^{{commit}}");
        let shown = git(
            workspace,
            ["show", "--no-patch", "--format=%H %ct", "--end-of-options", &revision],
        )?;
        let shown = String::from_utf8(shown)?;
        let (hash, time) = shown.trim().split_once(' ').context("git show has another format")?;
        Ok(Self { revision: hash.to_owned(), time: time.parse()? })
    }

    /// Writes its files into one folder below the target directory, the same for all commits, so
    /// that cargo keeps the programs of one. Returns the folder.
    pub(super) fn extract(&self, workspace: &Path, target: &Path) -> Result<PathBuf> {
        let (folder, mark) = (target.join("commit"), target.join("commit.revision"));
        if fs::read_to_string(&mark).is_ok_and(|revision| revision == self.revision) {
            return Ok(folder);
        }
        for result in [fs::remove_file(&mark), fs::remove_dir_all(&folder)] {
            let gone = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
            result.or_else(|error| if gone(&error) { Ok(()) } else { Err(error) })?;
        }
        let archive = git(workspace, ["archive", "--format=tar", &self.revision])?;
        let mut archive = tar::Archive::new(&*archive);
        // Cargo compiles again what is younger than its last build; the commit is older.
        archive.set_preserve_mtime(false);
        archive
            .unpack(&folder)
            .with_context(|| format!("cannot write the files of {}", self.revision))?;
        fs::write(&mark, &self.revision)?;
        Ok(folder)
    }
}

fn git<const N: usize>(workspace: &Path, arguments: [impl AsRef<OsStr>; N]) -> Result<Vec<u8>> {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(workspace);
    testbed::command::run(&mut command)
}
