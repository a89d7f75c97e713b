//! The run directory: where one control plane keeps its files, and who may use it.
//!
//! A folder becomes a run directory by its marker, a file that is also the lock of the owner. Only
//! what has a marker is ever cleaned, so that a mistyped `--dir ~` costs nothing.

use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{io, thread};

use anyhow::{Context as _, Result, bail, ensure};

use crate::process::{self, Identity, table};
use crate::real;

const MARKER: &str = ".testbed";

/// All files that a run writes. No other file in the folder is changed.
const ENTRIES: [&str; 15] = [
    "Corefile",
    "certificates",
    "controller",
    "disks",
    "etcd",
    "helm",
    "home",
    "kubeconfig",
    "kubectl",
    "logs",
    "nodes",
    "owner",
    "pids",
    "pids.next",
    "webhook",
];

/// A folder that belongs to one control plane.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    /// Held for as long as the owner lives.
    _lock: Option<File>,
    /// Removed in the end, unless it is kept for its logs.
    temporary: AtomicBool,
}

impl RunDirectory {
    /// Takes `path` for a new run: a new or empty folder, or one whose last run has ended.
    pub(super) fn create(path: &Path) -> Result<Self> {
        fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))?;
        let path = path.canonicalize().with_context(|| format!("cannot use {}", path.display()))?;
        if !path.join(MARKER).exists() {
            let mut entries =
                fs::read_dir(&path).with_context(|| format!("cannot read {}", path.display()))?;
            ensure!(
                entries.next().is_none(),
                "{} is neither empty nor the directory of a testbed; choose another one",
                path.display(),
            );
        }
        let Some(lock) = lock(&path)? else {
            bail!("{} is in use by another testbed; choose another directory", path.display());
        };
        let this = Self { path, _lock: Some(lock), temporary: AtomicBool::new(false) };
        let running = this.running()?;
        ensure!(
            running.is_empty(),
            "{} is in use: {} still run; end them with `cargo testbed down --dir {}`",
            this.path.display(),
            running.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", "),
            this.path.display(),
        );
        this.clean(&ENTRIES)?;
        Ok(this)
    }

    /// A new folder in the system's place for temporary files.
    pub(super) fn temporary() -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("stowplan-testbed-").tempdir()?;
        let this = Self::create(dir.path())?;
        // From here on this process removes it.
        let _ = dir.keep();
        this.temporary.store(true, Ordering::Relaxed);
        Ok(this)
    }

    /// The directory of a run that somebody else started.
    ///
    /// # Errors
    /// When `path` is not the directory of a testbed.
    pub fn open(path: &Path) -> Result<Self> {
        ensure!(
            path.join(MARKER).is_file(),
            "{} is not the directory of a testbed: it holds no {MARKER}",
            path.display(),
        );
        let path = path.canonicalize()?;
        Ok(Self { path, _lock: None, temporary: AtomicBool::new(false) })
    }

    /// Ends what still runs there, and removes what only a running control plane needs. Logs stay.
    ///
    /// Returns the names of what it ended. Called again, it finds nothing to do.
    ///
    /// # Errors
    /// When the table of processes cannot be read, or the owner does not release the directory.
    pub fn end(&self) -> Result<Vec<String>> {
        let running = self.running()?;
        let (names, identities): (Vec<_>, Vec<_>) = running.into_iter().unzip();
        process::end_all(&identities);
        // An `up` in the foreground sees its processes end, and ends too; then we may clean.
        for _ in 0..200 {
            if let Some(_lock) = lock(&self.path)? {
                table::write(&self.pids(), std::iter::empty())?;
                real::clean_up(&self.path)?;
                self.clean(&["etcd", "certificates", "home", "nodes"])?;
                return Ok(names);
            }
            thread::sleep(Duration::from_millis(50));
        }
        bail!("{} is still in use by a testbed that is starting", self.path.display())
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    pub(super) fn pids(&self) -> PathBuf {
        self.join("pids")
    }

    pub(super) fn log(&self, process: &str) -> PathBuf {
        self.join("logs").join(format!("{process}.log"))
    }

    /// Makes a folder in it.
    pub(super) fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.join(name);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(path)
    }

    /// Writes a file in it, for its owner's eyes only: several hold keys, and every user of the
    /// machine can reach a loopback address.
    pub(super) fn write(&self, name: impl AsRef<Path>, text: &str) -> Result<PathBuf> {
        let path = self.join(name);
        File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Keeps the folder although it is a temporary one. Returns whether it was temporary.
    pub(super) fn keep(&self) -> bool {
        self.temporary.swap(false, Ordering::Relaxed)
    }

    fn running(&self) -> Result<Vec<(String, Identity)>> {
        let mut known = table::read(&self.pids())?;
        known.retain(|(_, identity)| identity.runs());
        Ok(known)
    }

    fn clean(&self, entries: &[&str]) -> Result<()> {
        for entry in entries {
            let path = self.join(entry);
            let removed = match path.symlink_metadata() {
                Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(&path),
                Ok(_) => fs::remove_file(&path),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(error),
            };
            removed.with_context(|| format!("cannot remove {}", path.display()))?;
        }
        Ok(())
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        if *self.temporary.get_mut() {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Takes the marker's lock; `None` if another process holds it.
fn lock(dir: &Path) -> Result<Option<File>> {
    let path = dir.join(MARKER);
    let mut file = File::options()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error.into()),
    }
    if file.metadata()?.len() == 0 {
        writeln!(
            file,
            "A run of stowplan's testbed. End it with `down --dir` before removing it."
        )?;
    }
    Ok(Some(file))
}
