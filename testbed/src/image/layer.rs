//! Layers: tars that exist, and a program alone.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// A layer of an image.
#[derive(Clone, Debug)]
pub enum Layer {
    /// A tar without compression, taken as it is: its maker decides whether it is reproducible.
    Tar(PathBuf),
    /// A program in the root directory, which all users may run: its name and its bytes.
    Program(&'static str, Vec<u8>),
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

/// The tar of a program, with `modified` as its time.
pub(super) fn pack(name: &str, program: &[u8], modified: u64) -> Result<Vec<u8>> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_mode(0o755);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(modified);
    header.set_size(program.len() as u64);
    let mut tar = tar::Builder::new(Vec::new());
    tar.append_data(&mut header, name, program)?;
    Ok(tar.into_inner()?)
}
