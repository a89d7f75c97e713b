//! `image`: stowplan as a container image, or an image with MPI for pods of real nodes.
//!
//! The program is linked with musl, which rustc brings along: the same sources and the same Rust
//! give the same program on every machine, and it looks names up as `/etc/resolv.conf` says without
//! another file. A static glibc (`--libc gnu`) does so too, but it is the C library of the machine
//! that builds.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use testbed::command;
use testbed::image::{self, Architecture, Image, Layer, program, stowplan};
use testbed::real::mpi_image::{Implementation, MpiImage};
use testbed::tools::to_stderr;

use self::commit::Commit;
use super::Ended;
use super::cargo::{build, cargo, metadata_of, target_directory};

mod commit;

const EXAMPLES: &str = "\
Examples:
  cargo testbed image
  cargo testbed image --repository registry.example.com/team/stowplan --tag 0.1.0-rc.1
  cargo testbed image --output stowplan.tar && docker load --input stowplan.tar
  cargo testbed image --architecture arm64
  cargo testbed image --mpi openmpi4             Open MPI 4.1 and ssh: an image for pods of MPI jobs
  cargo testbed image --mpi intel --user 1000    the image's own user is mpiuser in place of root";

/// Makes a container image of stowplan's release build, as an archive, without a container engine.
///
/// The archive is for `ctr images import`, `docker load`, `podman load` and `skopeo copy`. The image
/// has one file, the static program, which runs as user 65532. The same sources give the same bytes.
/// SOURCE_DATE_EPOCH sets the time of the image; without it, it is that of the commit.
///
/// With --mpi it is an image with OpenSSH, an implementation of MPI and the test program `ring` in
/// place of stowplan: for pods of `up --real`, which have no registry. That needs root and Debian.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The image's name without its tag: the chart's `image.repository`
    #[arg(long, value_name = "NAME", default_value = "stowplan")]
    repository: String,
    /// The image's tag: the chart's `image.tag` [default: stowplan's version]
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// Build the sources of this commit, such as HEAD~1, instead of the files as they are
    #[arg(long, value_name = "REVISION")]
    commit: Option<String>,
    /// The profile of cargo that the program is built with; `quick` takes a fifth of the time, for
    /// tests
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
    /// The C library that the program is linked with
    #[arg(long, value_name = "NAME", default_value = "musl")]
    libc: Libc,
    /// The architecture of the nodes, if it is not that of this machine: needs Rust's standard library
    /// and a C compiler for it
    #[arg(long, value_name = "NAME")]
    architecture: Option<Architecture>,
    /// Make an image with this implementation of MPI
    #[arg(long, value_name = "NAME", conflicts_with_all = [
        "repository", "tag", "commit", "profile", "libc", "architecture",
    ])]
    mpi: Option<Implementation>,
    /// The number of the user of the image with MPI: root, or mpiuser [default: 0]
    #[arg(long, value_name = "UID", value_parser = ["0", "1000"])]
    user: Option<String>,
    /// The archive [default: target/image/stowplan-VERSION-linux-ARCHITECTURE.tar, or
    /// target/image/mpi-NAME.tar]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Libc {
    /// That of Rust's own target: the same on every machine
    Musl,
    /// glibc of this machine, where Rust's standard library for musl is not installed
    Gnu,
}

impl Libc {
    fn target(self, architecture: Architecture) -> String {
        let libc = match self {
            Self::Musl => "musl",
            Self::Gnu => "gnu",
        };
        format!("{}-unknown-linux-{libc}", architecture.machine())
    }
}

pub(super) fn run(args: &Args) -> Result<Ended> {
    match args.mpi {
        Some(implementation) => make_mpi(args, implementation),
        None => make_stowplan(args),
    }
}

/// Copies an image with MPI from the testbed's cache, where it is made if it is not there.
fn make_mpi(args: &Args, implementation: Implementation) -> Result<Ended> {
    let image = MpiImage { implementation, user: args.user.as_deref() == Some("1000") };
    let reference = image.reference();
    let name = reference.trim_start_matches("stow.test/").trim_end_matches(":1");
    let metadata = metadata_of(super::workspace()?, &["--no-deps"])?;
    let output = output(args, target_directory(&metadata)?, &format!("{name}.tar"))?;
    let cached = image.ensure(&to_stderr)?;
    fs::copy(&cached, &output).with_context(|| format!("cannot write {}", output.display()))?;
    let shown = super::shown(&output);
    say!("{reference}");
    say!("  archive  {shown}  {} MB", fs::metadata(&output)?.len() / 1_000_000);
    say!("Give it to real nodes, where pods name it {reference}:");
    say!("  cargo testbed up --real 3 --image STOWPLAN.tar --import {shown}");
    say!("or load it elsewhere:");
    say!("  ctr --namespace k8s.io images import {shown}");
    say!("  docker load --input {shown}");
    say!("How to run a job with it: docs/mpi.md");
    Ok(Ended::Done)
}

/// Returns the file to write, in a folder that exists.
fn output(args: &Args, target_directory: &Path, name: &str) -> Result<PathBuf> {
    let output = match &args.output {
        Some(output) => output.clone(),
        None => {
            let folder = target_directory.join("image");
            fs::create_dir_all(&folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
            folder.join(name)
        }
    };
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty());
    ensure!(
        folder.is_none_or(Path::is_dir),
        "{} is in no folder that exists: create it first",
        output.display(),
    );
    ensure!(!output.is_dir(), "{} is a folder: give the path of a file", output.display());
    Ok(output)
}

fn make_stowplan(args: &Args) -> Result<Ended> {
    ensure!(args.user.is_none(), "--user is for an image with MPI: add --mpi NAME");
    let architecture = args.architecture.map_or_else(Architecture::of_this_machine, Ok)?;
    let target = args.libc.target(architecture);
    // All that can be wrong before a build of minutes.
    let toolchain = Toolchain::find(&target, architecture)?;
    let workspace = super::workspace()?;
    let platform = format!("--filter-platform={target}");
    let arguments = ["--locked", &*platform];
    let metadata = metadata_of(workspace, &arguments)?;
    let target_directory = target_directory(&metadata)?;
    let (commit, sources) = match &args.commit {
        None => (Commit::of_files(workspace), workspace.to_owned()),
        Some(revision) => {
            let commit = Commit::find(workspace, revision)?;
            let folder = commit.extract(workspace, target_directory)?;
            (Some(commit), folder)
        }
    };
    let of_sources = metadata_of(&sources, &arguments)?;
    let package = packages(&of_sources)
        .find(|package| package["name"] == "stowplan" && package["source"].is_null())
        .context("the workspace has no package stowplan")?;
    let version = package["version"].as_str().context("stowplan has no version")?;
    let tag = args.tag.clone().unwrap_or_else(|| version.to_owned());
    image::check_reference(&args.repository, &tag)?;
    let created = created(commit.as_ref())?;
    let name = format!("stowplan-{version}-linux-{architecture}.tar");
    let output = output(args, target_directory, &name)?;

    to_stderr(&format!("building stowplan for {target}; a first build takes some minutes"));
    let mut flags = remapped(&metadata, &toolchain)?;
    if matches!(args.libc, Libc::Gnu) {
        // musl's target has it by itself.
        flags.push("-Ctarget-feature=+crt-static".to_owned());
    }
    let mut cargo = toolchain.cargo(&target, &args.profile, &flags)?;
    // With the same flags and in the same folder, so that only stowplan itself is compiled for a commit.
    let path = build(cargo.current_dir(sources).arg("--target-dir").arg(target_directory))?;
    check(&path, &metadata, &toolchain)?;

    let image = Image {
        name: args.repository.clone(),
        tag,
        layers: vec![Layer::Program("stowplan", fs::read(path)?)],
        entrypoint: vec![stowplan::ENTRYPOINT.to_owned()],
        user: stowplan::USER.to_owned(),
        labels: stowplan::labels(package, commit.as_ref().map(|commit| &*commit.revision)),
        created,
        architecture: Some(architecture),
        ..Image::default()
    };
    let digest = image.write(&output)?;
    let size = fs::metadata(&output)?.len();
    let shown = super::shown(&output);
    let reference = image.reference();
    say!("{reference}");
    say!("  digest   {digest}");
    say!("  archive  {shown}  {}.{} MB", size / 1_000_000, size / 100_000 % 10);
    say!("Load it with one of:");
    say!("  ctr --namespace k8s.io images import {shown}");
    say!("  docker load --input {shown}");
    say!("  skopeo copy oci-archive:{shown} docker://REGISTRY/{reference}");
    Ok(Ended::Done)
}

fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    metadata["packages"].as_array().into_iter().flatten()
}

/// The parts of the toolchain that a plain `cargo build` does not need.
struct Toolchain {
    /// The folder of rustc's libraries.
    sysroot: PathBuf,
    commit: String,
    /// Variables that name the C compiler for the target, and the program that links.
    variables: Vec<(String, String)>,
}

impl Toolchain {
    /// Refuses a toolchain that cannot build for `target`, with what to install.
    fn find(target: &str, architecture: Architecture) -> Result<Self> {
        let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let ask = |arguments: &[&str]| -> Result<String> {
            // Where rust-toolchain.toml names the toolchain.
            command::text(Command::new(&rustc).args(arguments).current_dir(super::workspace()?))
        };
        let sysroot = PathBuf::from(ask(&["--print=sysroot"])?.trim());
        ensure!(
            sysroot.join("lib/rustlib").join(target).join("lib").is_dir(),
            "Rust's standard library for {target}, which makes a static program, is not installed: \
             run `rustup target add {target}`, or link with the machine's glibc: --libc gnu",
        );
        let commit = ask(&["--version", "--verbose"])?
            .lines()
            .find_map(|line| line.strip_prefix("commit-hash: ").map(str::to_owned))
            .unwrap_or_default();
        let is_foreign = Architecture::of_this_machine().ok() != Some(architecture);
        let machine = architecture.machine();
        // The parts in C and assembly (ring, psm) call nothing of a C library but `memset`, so a
        // compiler for glibc will do; without these variables they ask for one that knows musl.
        let (compiler, packages) = if is_foreign {
            let name = machine.replace('_', "-");
            let packages = format!("gcc-{name}-linux-gnu libc6-dev-{architecture}-cross");
            (format!("{machine}-linux-gnu-gcc"), packages)
        } else {
            ("cc".to_owned(), "gcc libc6-dev".to_owned())
        };
        let names = [
            format!("CC_{}", target.replace('-', "_")),
            format!("CARGO_TARGET_{}_LINKER", target.replace('-', "_").to_uppercase()),
        ];
        let mut variables = Vec::new();
        for name in names {
            let program = env::var(&name).unwrap_or_else(|_| compiler.clone());
            let mut command = Command::new(&program);
            command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
            ensure!(
                command.status().is_ok_and(|status| status.success()),
                "no C compiler for {machine}: {program} does not run: install one (Debian: \
                 `apt-get install {packages}`), or name another in {name}",
            );
            variables.push((name, program));
        }
        Ok(Self { sysroot, commit, variables })
    }

    fn cargo(&self, target: &str, profile: &str, flags: &[String]) -> Result<Command> {
        let mut cargo = cargo()?;
        cargo
            .envs(self.variables.iter().cloned())
            // Only for the archive: build scripts read it, so another time would be another build.
            .env_remove("SOURCE_DATE_EPOCH")
            // Instead of the user's RUSTFLAGS, which would be in the image.
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
            .args(["build", "--locked", "--package=stowplan"])
            .args(["--profile", profile, "--target", target]);
        Ok(cargo)
    }
}

/// Flags of rustc that replace the paths of this machine.
fn remapped(metadata: &Value, toolchain: &Toolchain) -> Result<Vec<String>> {
    let workspace = metadata["workspace_root"].as_str().context("no workspace")?;
    let target =
        target_directory(metadata)?.to_str().context("the target directory is not UTF-8")?;
    let sources = toolchain.sysroot.join("lib/rustlib/src/rust");
    let mut paths = vec![
        (workspace.to_owned(), "/stowplan".to_owned()),
        // Often in the workspace: of several that fit, rustc takes the last.
        (target.to_owned(), "/target".to_owned()),
        // As in the standard library itself, where its sources are not installed.
        (sources.display().to_string(), format!("/rustc/{}", toolchain.commit)),
    ];
    let mut folders: Vec<_> = packages(metadata)
        .filter(|package| !package["source"].is_null())
        .filter_map(|package| Path::new(package["manifest_path"].as_str()?).parent()?.parent())
        .map(|folder| folder.display().to_string())
        .collect();
    folders.sort();
    folders.dedup();
    paths.extend(folders.into_iter().map(|folder| (folder, "/cargo".to_owned())));
    Ok(paths.iter().map(|(from, to)| format!("--remap-path-prefix={from}={to}")).collect())
}

/// Refuses a program that would not run alone in an image, or that shows where it was built.
fn check(path: &Path, metadata: &Value, toolchain: &Toolchain) -> Result<()> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    program::check_static(&bytes)
        .with_context(|| format!("{} cannot be the only file of an image", path.display()))?;
    // Not the home directory itself: stowplan names root's.
    let in_home = |name: &str| Some(env::home_dir()?.join(name));
    let cargo_home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| in_home(".cargo"));
    let rustup_home = in_home(".rustup");
    let workspace = metadata["workspace_root"].as_str().map(Path::new);
    let folders: Vec<_> = [cargo_home.as_deref(), rustup_home.as_deref(), workspace]
        .into_iter()
        .flatten()
        .chain([target_directory(metadata)?, &toolchain.sysroot])
        .collect();
    if let Some(found) = program::find_path(&bytes, &folders) {
        bail!(
            "the program contains a path of this machine, {found}: its image would not be \
             reproducible. A new dependency may keep such a path; see `remapped` in \
             testbed/src/cli/image.rs"
        );
    }
    Ok(())
}

/// The time of the image, in seconds since 1970.
fn created(commit: Option<&Commit>) -> Result<u64> {
    match env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text.parse().ok().filter(|&seconds| seconds < 1 << 33).with_context(|| {
            format!("SOURCE_DATE_EPOCH is {text:?}: give seconds since 1970, as `date +%s` prints")
        }),
        Err(_) => Ok(commit.map_or(0, |commit| commit.time)),
    }
}
