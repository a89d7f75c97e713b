//! Container images, written without a container engine.
//!
//! [`Image::write`] makes one tar with two indexes over the same blobs: an OCI image layout
//! (`oci-layout`, `index.json`) for `ctr images import` and `skopeo copy oci-archive:…`, and
//! Docker's `manifest.json` for `docker load`, `podman load` and `skopeo copy docker-archive:…`.
//! The same image gives the same bytes: no time, owner or path of the machine gets into the archive.
//!
//! ```
//! # fn main() -> anyhow::Result<()> {
//! # let dir = tempfile::tempdir()?;
//! # let archive = dir.path().join("hello.tar");
//! use testbed::image::{Image, Layer};
//!
//! let digest = Image {
//!     name: "stow.test/hello".to_owned(),
//!     tag: "1".to_owned(),
//!     layers: vec![Layer::Program("hello", b"#!/bin/sh\necho Hello\n".to_vec())],
//!     entrypoint: vec!["/hello".to_owned()],
//!     user: "65532:65532".to_owned(),
//!     ..Image::default()
//! }
//! .write(&archive)?;
//! assert!(digest.starts_with("sha256:"));
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::env::{self, consts};
use std::fmt::{self, Display};
use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Cursor, Read, Seek as _, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

mod layer;
pub mod program;
mod reference;
pub mod stowplan;

pub use layer::Layer;
pub use reference::check as check_reference;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// The architecture that an image is for. Its text is what images name it: `amd64`, `arm64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Architecture {
    /// x86-64.
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

impl Architecture {
    /// That of this machine.
    ///
    /// # Errors
    /// It is neither amd64 nor arm64.
    pub fn of_this_machine() -> Result<Self> {
        match consts::ARCH {
            "x86_64" => Ok(Self::Amd64),
            "aarch64" => Ok(Self::Arm64),
            other => bail!("images are made for amd64 and arm64, and this machine is {other}"),
        }
    }

    /// The name in the targets of rustc and of C compilers: `x86_64`, `aarch64`.
    #[must_use]
    pub fn machine(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }
}

impl Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        })
    }
}

/// An image for one architecture: its layers, and how a container of it is started.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// The repository, as pods name it: `stowplan`, `stow.test/mpi`, `localhost:5000/a/b`.
    pub name: String,
    /// The tag, without the colon.
    pub tag: String,
    /// Bottom layer first; at least one.
    pub layers: Vec<Layer>,
    /// The program and its first arguments.
    pub entrypoint: Vec<String>,
    /// The arguments that a pod's `args` replace.
    pub cmd: Vec<String>,
    /// User and group, as numbers if pods demand `runAsNonRoot`: `65532:65532`. Empty: root.
    pub user: String,
    /// Environment variables.
    pub env: BTreeMap<String, String>,
    /// Labels such as `org.opencontainers.image.version`.
    pub labels: BTreeMap<String, String>,
    /// Seconds since 1970: when the image was made, and the time of a [`Layer::Program`].
    /// 0 unless the sources have a time, such as `SOURCE_DATE_EPOCH`.
    pub created: u64,
    /// `None`: that of this machine.
    pub architecture: Option<Architecture>,
}

/// A blob that is to be written.
struct Blob {
    /// `sha256:` and 64 lower-case digits.
    digest: String,
    size: u64,
    content: Box<dyn Read>,
}

impl Blob {
    fn of(bytes: Vec<u8>) -> Self {
        let size = bytes.len() as u64;
        let digest = format_digest(Sha256::new_with_prefix(&bytes));
        Self { digest, size, content: Box::new(Cursor::new(bytes)) }
    }

    fn of_json(value: &Value) -> Self {
        Self::of(value.to_string().into_bytes())
    }

    /// Of a file that is too large for memory: read once for its digest, and again when written.
    fn of_file(mut file: File) -> io::Result<Self> {
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 1 << 20];
        let mut size = 0;
        loop {
            let read = file.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            hash.update(&buffer[..read]);
            size += read as u64;
        }
        file.rewind()?;
        Ok(Self { digest: format_digest(hash), size, content: Box::new(file) })
    }

    fn descriptor(&self, media_type: &str) -> Value {
        json!({ "mediaType": media_type, "digest": self.digest, "size": self.size })
    }

    /// Where a layout keeps it.
    fn path(&self) -> String {
        format!("blobs/{}", self.digest.replace(':', "/"))
    }

    /// Appends it to the outer tar.
    fn append(self, tar: &mut tar::Builder<impl Write>, path: &str) -> Result<()> {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_mode(0o644);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(self.size);
        let mut content = self.content.take(self.size);
        tar.append_data(&mut header, path, &mut content)?;
        ensure!(content.limit() == 0, "a layer was changed while it was read");
        Ok(())
    }
}

impl Image {
    /// The reference that pods use: `name:tag`.
    #[must_use]
    pub fn reference(&self) -> String {
        format!("{}:{}", self.name, self.tag)
    }

    /// Writes the archive; returns the digest of the image's manifest, which `ctr images ls` shows.
    /// The file appears when it is complete, and replaces an earlier one.
    ///
    /// # Errors
    /// The name or the tag is invalid, there is no layer, a layer cannot be read or is not an
    /// uncompressed tar, or the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<String> {
        let reference = self.reference();
        self.write_to(path)
            .with_context(|| format!("cannot write {reference} to {}", path.display()))
    }

    fn write_to(&self, path: &Path) -> Result<String> {
        reference::check(&self.name, &self.tag)?;
        ensure!(!self.layers.is_empty(), "an image needs at least one layer");
        let mut layers = Vec::new();
        for layer in &self.layers {
            layers.push(match layer {
                Layer::Tar(path) => Blob::of_file(layer::open(path)?)
                    .with_context(|| format!("cannot read {}", path.display()))?,
                Layer::Program(name, program) => {
                    Blob::of(layer::pack(name, program, self.created)?)
                }
            });
        }
        let config = Blob::of_json(&self.config(&layers)?);
        let manifest = Blob::of_json(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor(CONFIG),
            "layers": layers.iter().map(|layer| layer.descriptor(LAYER)).collect::<Vec<_>>(),
        }));
        let index = self.index(&manifest)?;
        let docker = json!([{
            "Config": config.path(),
            "RepoTags": [self.reference()],
            "Layers": layers.iter().map(Blob::path).collect::<Vec<_>>(),
        }]);

        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let file = NamedTempFile::new_in(folder.unwrap_or_else(|| Path::new(".")))?;
        let mut tar = tar::Builder::new(BufWriter::new(file));
        let digest = manifest.digest.clone();
        for blob in layers.into_iter().chain([config, manifest]) {
            let path = blob.path();
            blob.append(&mut tar, &path)?;
        }
        let layout = json!({ "imageLayoutVersion": "1.0.0" });
        for (path, value) in
            [("index.json", index), ("manifest.json", docker), ("oci-layout", layout)]
        {
            Blob::of_json(&value).append(&mut tar, path)?;
        }
        let file = tar.into_inner()?.into_inner()?;
        // A temporary file is readable for its owner alone.
        file.as_file().set_permissions(Permissions::from_mode(0o644))?;
        file.persist(path)?;
        Ok(digest)
    }

    fn architecture(&self) -> Result<Architecture> {
        self.architecture.map_or_else(Architecture::of_this_machine, Ok)
    }

    /// How containers are started, and which layers make their root file system.
    fn config(&self, layers: &[Blob]) -> Result<Value> {
        let created = i64::try_from(self.created)
            .ok()
            .and_then(|seconds| Timestamp::from_second(seconds).ok())
            .with_context(|| format!("{} is not a time in seconds since 1970", self.created))?;
        let created = created.to_string();
        let env: Vec<_> = self.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        // Absent and empty mean the same; with absent ones the file shows what is set.
        let mut config = serde_json::Map::new();
        for (name, value, is_set) in [
            ("User", json!(self.user), !self.user.is_empty()),
            ("Env", json!(env), !env.is_empty()),
            ("Entrypoint", json!(self.entrypoint), !self.entrypoint.is_empty()),
            ("Cmd", json!(self.cmd), !self.cmd.is_empty()),
            ("Labels", json!(self.labels), !self.labels.is_empty()),
        ] {
            if is_set {
                config.insert(name.to_owned(), value);
            }
        }
        // Layers are not compressed, so the digest of each is that of its content as well.
        let contents: Vec<_> = layers.iter().map(|layer| &layer.digest).collect();
        let history: Vec<_> =
            layers.iter().map(|_| json!({ "created": created, "created_by": "testbed" })).collect();
        Ok(json!({
            "created": created,
            "architecture": self.architecture()?.to_string(),
            "os": "linux",
            "config": config,
            "rootfs": { "type": "layers", "diff_ids": contents },
            "history": history,
        }))
    }

    fn index(&self, manifest: &Blob) -> Result<Value> {
        let mut descriptor = manifest.descriptor(MANIFEST);
        descriptor["platform"] =
            json!({ "architecture": self.architecture()?.to_string(), "os": "linux" });
        descriptor["annotations"] = json!({
            // containerd looks an image up by its complete name; the kubelet asks for that name.
            "io.containerd.image.name": reference::complete(&self.name, &self.tag),
            "org.opencontainers.image.ref.name": self.tag,
        });
        Ok(json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [descriptor],
        }))
    }
}

/// Refuses an archive that does not have the image `name:tag`, which pods will ask for.
///
/// # Errors
/// The file cannot be read, is no archive of an image, or has images of other names.
pub fn check_archive(path: &Path, name: &str, tag: &str) -> Result<()> {
    let found = references_in(path)
        .with_context(|| format!("{} is not an archive of an image", path.display()))?;
    let complete = |reference: &str| {
        let (name, tag) = reference.rsplit_once(':').unwrap_or((reference, "latest"));
        reference::complete(name, tag)
    };
    let wanted = reference::complete(name, tag);
    ensure!(
        found.iter().any(|reference| complete(reference) == wanted),
        "{} has the image {}, and {name}:{tag} is needed: make that with `cargo testbed image`",
        path.display(),
        if found.is_empty() { "without a name".to_owned() } else { found.join(", ") },
    );
    Ok(())
}

/// The names of the images of an archive.
fn references_in(path: &Path) -> Result<Vec<String>> {
    let mut archive = tar::Archive::new(File::open(path)?);
    for entry in archive.entries()? {
        let entry = entry?;
        if entry.path()?.as_os_str() != "manifest.json" {
            continue;
        }
        let manifests: Value = serde_json::from_reader(entry.take(1 << 20))?;
        let manifests = manifests.as_array().context("manifest.json is not a list")?;
        let tags = manifests.iter().filter_map(|manifest| manifest["RepoTags"].as_array());
        return Ok(tags.flatten().filter_map(|tag| tag.as_str().map(str::to_owned)).collect());
    }
    bail!("it has no manifest.json");
}

fn format_digest(hash: Sha256) -> String {
    let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// The `--libc` of `testbed image` that this machine can build with: `musl`, or `gnu` where Rust's
/// standard library for musl is not installed. For tests; a release is always linked with musl.
#[must_use]
pub fn libc_for_tests() -> &'static str {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let output = Command::new(rustc).arg("--print=sysroot").current_dir(root).output();
    let sysroot = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let target = format!("lib/rustlib/{}-unknown-linux-musl/lib", consts::ARCH);
    match sysroot.is_ok_and(|sysroot| Path::new(&sysroot).join(target).is_dir()) {
        true => "musl",
        false => "gnu",
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn check(path: &Path) -> String {
        match check_archive(path, "stowplan", "0.1.0") {
            Ok(()) => String::new(),
            Err(error) => format!("{error:#}"),
        }
    }

    #[test]
    fn an_archive_with_another_image_is_refused_with_both_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image.tar");
        let write = |name: &str, tag: &str| {
            let layers = vec![Layer::Program("program", b"#!/bin/sh\n".to_vec())];
            let (name, tag) = (name.to_owned(), tag.to_owned());
            Image { name, tag, layers, ..Image::default() }.write(&path).unwrap();
        };
        for (name, tag, is_taken) in [
            ("stowplan", "0.1.0", true),
            ("docker.io/library/stowplan", "0.1.0", true),
            ("stowplan", "0.2.0", false),
            ("registry:5000/stowplan", "0.1.0", false),
        ] {
            write(name, tag);
            let said = check(&path);
            assert_eq!(said.is_empty(), is_taken, "{said}");
            let names = [format!("{name}:{tag}"), "stowplan:0.1.0".to_owned()];
            assert!(is_taken || names.iter().all(|name| said.contains(name)), "{said}");
        }
    }

    #[test]
    fn a_file_that_is_no_archive_of_an_image_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image.tar");
        assert!(check(&path).contains("image.tar is not an archive of an image: No such file"));
        let mut other = tar::Builder::new(Vec::new());
        Blob::of_json(&json!({})).append(&mut other, "manifest.json").unwrap();
        for (bytes, wanted) in [
            (Vec::new(), "has no manifest.json"),
            (b"text".repeat(1000), "is not an archive of an image"),
            (other.into_inner().unwrap(), "manifest.json is not a list"),
        ] {
            fs::write(&path, bytes).unwrap();
            let said = check(&path);
            assert!(said.contains(wanted), "{said}");
        }
    }
}
