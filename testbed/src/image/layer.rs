//! Layers: tars that exist, and tars made of entries.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// A layer of an image.
#[derive(Clone, Debug)]
pub enum Layer {
    /// A tar without compression, taken as it is: its maker decides whether it is reproducible.
    Tar(PathBuf),
    /// Files by their paths in the image, without the leading slash.
    Entries(BTreeMap<String, Entry>),
}

/// A file, a directory or a link of a layer. Parents of files need no entry of their own.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Permissions, such as 0o755.
    pub mode: u32,
    /// User and group.
    pub owner: (u32, u32),
    /// What it is.
    pub content: Content,
}

/// What an entry is.
#[derive(Clone, Debug)]
pub enum Content {
    /// A file with these bytes.
    Bytes(Vec<u8>),
    /// A file with the bytes of a file of this machine.
    File(PathBuf),
    /// A directory.
    Directory,
    /// A symbolic link, with its target as it is written.
    Link(String),
}

impl Entry {
    /// A program of root that all users may run.
    #[must_use]
    pub fn program(path: impl Into<PathBuf>) -> Self {
        Self { mode: 0o755, owner: (0, 0), content: Content::File(path.into()) }
    }

    /// A file of root that all users may read.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { mode: 0o644, owner: (0, 0), content: Content::Bytes(text.into().into_bytes()) }
    }

    /// A directory of root that all users may list.
    #[must_use]
    pub fn directory() -> Self {
        Self { mode: 0o755, owner: (0, 0), content: Content::Directory }
    }
}

/// Opens a layer's tar, at its start.
pub(super) fn open(path: &Path) -> Result<File> {
    let cannot = || format!("cannot read {}", path.display());
    let mut file = File::open(path).with_context(cannot)?;
    let mut start = Vec::new();
    file.by_ref().take(512).read_to_end(&mut start).with_context(cannot)?;
    file.rewind().with_context(cannot)?;
    ensure!(
        start.get(257..262) == Some(b"ustar"),
        "{} is not a tar without compression: decompress it first, for example with `zstd -d` or \
         `gunzip`",
        path.display(),
    );
    Ok(file)
}

/// The tar of `entries`, by path, with `modified` as the time of each.
pub(super) fn pack(entries: &BTreeMap<String, Entry>, modified: u64) -> Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, entry) in entries {
        let is_plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
        ensure!(
            path.split('/').all(is_plain),
            "{path:?} is not a path in an image: it starts at the image's root, without a slash",
        );
        let mut header = tar::Header::new_gnu();
        header.set_mode(entry.mode);
        header.set_uid(entry.owner.0.into());
        header.set_gid(entry.owner.1.into());
        header.set_mtime(modified);
        header.set_size(0);
        let read;
        let bytes = match &entry.content {
            Content::Bytes(bytes) => &**bytes,
            Content::File(file) => {
                read = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
                &*read
            }
            Content::Directory => {
                header.set_entry_type(tar::EntryType::Directory);
                tar.append_data(&mut header, format!("{path}/"), &[][..])?;
                continue;
            }
            Content::Link(target) => {
                header.set_entry_type(tar::EntryType::Symlink);
                tar.append_link(&mut header, path, target)?;
                continue;
            }
        };
        header.set_entry_type(tar::EntryType::Regular);
        header.set_size(bytes.len() as u64);
        tar.append_data(&mut header, path, bytes)?;
    }
    Ok(tar.into_inner()?)
}
