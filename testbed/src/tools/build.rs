//! Builds the programs of one Go module into one folder of the cache.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use sha2::{Digest as _, Sha256};

use crate::process::{Supervisor, gated};

/// Between two lines of progress.
const TICK: Duration = Duration::from_secs(5);

/// The parts to build from a Go module.
pub(super) struct Recipe {
    /// Increased when the same module is to be built in another way.
    pub(super) revision: u8,
    /// The start of the folder's name, before the hash.
    pub(super) prefix: &'static str,
    /// The module: paths and texts, `go.mod` first.
    pub(super) files: &'static [(&'static str, &'static str)],
    /// The programs together, in messages.
    pub(super) of: &'static str,
    pub(super) steps: &'static [Step],
    /// The names of the programs.
    pub(super) programs: &'static [&'static str],
    /// Of the compilers.
    pub(super) niceness: u8,
}

/// One run of `go install`.
pub(super) struct Step {
    pub(super) packages: &'static [&'static str],
    /// Build tags, separated by commas.
    pub(super) tags: &'static str,
    /// Says whether C is compiled. None: as Go chooses.
    pub(super) cgo: Option<bool>,
}

impl Recipe {
    /// The name of its folder in the cache.
    pub(super) fn key(&self) -> String {
        let files: Vec<_> = self.files.iter().map(|&(_, text)| text).collect();
        format!("{}{}", self.prefix, hash(self.revision, &files))
    }

    pub(super) fn has(&self, program: &str) -> bool {
        self.programs.contains(&program)
    }

    fn go_mod(&self) -> &'static str {
        self.files.first().map_or("", |&(_, text)| text)
    }
}

/// The folder with the programs of `recipe`, which is built if the cache has none. `finish` adds
/// to a new one: it gets the module's folder and that of the programs.
pub(super) fn ensure_built(
    recipe: &Recipe,
    cache: &Path,
    finish: &dyn Fn(&Path, &Path) -> Result<()>,
    progress: &dyn Fn(&str),
) -> Result<PathBuf> {
    let key = recipe.key();
    let dir = cache.join(&key);
    // The folder appears by one rename: where it is, it is complete.
    if !dir.is_dir() {
        fs::create_dir_all(cache)
            .with_context(|| format!("cannot make the cache {}", cache.display()))?;
        let _lock = lock(&cache.join(format!("{key}.lock")), recipe.of, progress)?;
        if !dir.is_dir() {
            build(recipe, cache, &key, finish, progress)?;
            for removed in prune(cache, recipe.prefix, &key, &is_running_from) {
                progress(&format!("removed the programs of another version: {removed}"));
            }
        }
    }
    Ok(dir)
}

fn hash(revision: u8, texts: &[&str]) -> String {
    let mut hash = Sha256::new();
    hash.update([revision]);
    for text in texts {
        // With its length, so that text cannot wander from one file to the other.
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Waits until we are the only one to build this key. The lock ends with the file, and with us.
fn lock(path: &Path, of: &str, progress: &dyn Fn(&str)) -> Result<File> {
    let problem = || format!("cannot lock {}", path.display());
    let file = File::create(path).with_context(problem)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            progress(&format!("another process builds {of}; waiting for it"));
            file.lock().with_context(problem)?;
        }
        Err(TryLockError::Error(error)) => return Err(error).with_context(problem),
    }
    Ok(file)
}

fn build(
    recipe: &Recipe,
    cache: &Path,
    key: &str,
    finish: &dyn Fn(&Path, &Path) -> Result<()>,
    progress: &dyn Fn(&str),
) -> Result<()> {
    check_go(recipe)?;
    let target = cache.join(key);
    // Left by a killed build; this process holds the lock, so no other build is running.
    let prefix = format!("staging-{key}-");
    for entry in fs::read_dir(cache)?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    // Beside the target, so that a rename is enough; removed on every way out.
    let staging = tempfile::Builder::new().prefix(&prefix).tempdir_in(cache)?;
    let module = staging.path().join("module");
    let programs = staging.path().join("programs");
    fs::create_dir(&module)?;
    fs::create_dir(&programs)?;
    for (path, text) in recipe.files {
        let path = module.join(path);
        fs::create_dir_all(path.parent().context("a file has a folder")?)?;
        fs::write(path, text)?;
    }

    progress(&format!(
        "building {}{} ({}); the first build takes several minutes, later starts need none",
        recipe.of,
        required_version(recipe.go_mod(), "k8s.io/kubernetes")
            .map_or_else(String::new, |version| format!(" of Kubernetes {version}")),
        recipe.programs.join(", "),
    ));
    let begun = Instant::now();
    for step in recipe.steps {
        install(recipe, step, &module, &programs, progress)?;
    }
    finish(&module, &programs)?;
    for name in recipe.programs {
        ensure!(programs.join(name).is_file(), "go install made no {name}");
    }
    fs::rename(&programs, &target)
        .with_context(|| format!("cannot move the programs to {}", target.display()))?;
    progress(&format!("built in {}, kept in {}", elapsed(begun), target.display()));
    Ok(())
}

/// Removes the programs of other keys with this prefix, hundreds of megabytes each, unless `is_used`
/// or being built. Returns the names of what it removed. Errors are no reason to fail: it is tried again after the
/// next build.
fn prune(cache: &Path, prefix: &str, key: &str, is_used: &dyn Fn(&Path) -> bool) -> Vec<String> {
    let is_hash =
        |name: &str| name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut removed = Vec::new();
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        // `<key>` itself, or what a build that was killed has left: `staging-<key>-<letters>`.
        let of_hash = name.strip_prefix("staging-").unwrap_or(&name).strip_prefix(prefix);
        let of_hash = of_hash.and_then(|rest| rest.split('-').next()).unwrap_or_default();
        let of_key = format!("{prefix}{of_hash}");
        if !is_hash(of_hash) || of_key == key || is_used(&entry.path()) {
            continue;
        }
        let lock = cache.join(format!("{of_key}.lock"));
        // Held until the folder is gone. The lock's file stays: another process may wait for it.
        let is_gone = File::create(&lock)
            .is_ok_and(|file| file.try_lock().is_ok() && fs::remove_dir_all(entry.path()).is_ok());
        if is_gone {
            removed.push(name);
        }
    }
    removed.sort();
    removed
}

/// Returns true if a process of this machine runs a program of this folder: a control plane of another
/// version, perhaps one that was left running.
fn is_running_from(folder: &Path) -> bool {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|process| fs::read_link(process.path().join("exe")).ok())
        .any(|program| program.starts_with(folder))
}

/// Says what to do before a compiler would say what went wrong.
fn check_go(recipe: &Recipe) -> Result<()> {
    let of = recipe.of;
    let floor = directive(recipe.go_mod(), "go").context("go.mod names no Go version")?;
    let remedy = format!("install Go {floor} or newer (https://go.dev/dl) and put it on the PATH");
    let output = match go(Path::new("/")).arg("version").output() {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("building {of} needs Go, and there is no `go` on the PATH; {remedy}")
        }
        Err(error) => return Err(error).context("cannot run `go version`"),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "`go version` failed ({}): {}; {remedy}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim(),
    );
    let found = text.split_whitespace().nth(2).unwrap_or_default();
    // A Go built from its repository calls itself "devel": let it try.
    if let Some(version) = found.strip_prefix("go") {
        ensure!(
            numbers(version) >= numbers(floor),
            "building {of} needs Go {floor} or newer, and `go` on the PATH is {version}; {remedy}",
        );
    }
    Ok(())
}

/// `1.26.8` and `1.27rc1` as something to compare. A release candidate counts as its release.
pub(super) fn numbers(version: &str) -> Vec<u32> {
    let end = version.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(version.len());
    version[..end].split('.').map_while(|part| part.parse().ok()).collect()
}

pub(super) fn go(working_dir: &Path) -> Command {
    let mut command = Command::new("go");
    command.current_dir(working_dir);
    set_environment(&mut command);
    command
}

/// Removes settings of the user that are for other work and would lead astray here.
fn set_environment(command: &mut Command) {
    command
        // Never fetch another toolchain behind the user's back.
        .env("GOTOOLCHAIN", "local")
        .env("GOWORK", "off")
        .env_remove("GOOS")
        .env_remove("GOARCH");
}

/// Builds the packages of one step into `programs`.
fn install(
    recipe: &Recipe,
    step: &Step,
    module: &Path,
    programs: &Path,
    progress: &dyn Fn(&str),
) -> Result<()> {
    let mut command = gated(Path::new("nice"));
    command
        .args(["-n", &recipe.niceness.to_string(), "go", "install", "-v", "-trimpath"])
        .args(["-mod=readonly", "-tags", step.tags, "-ldflags"])
        .arg(format!("-s -w{}", version_flags(recipe)))
        .args(step.packages)
        .current_dir(module)
        .env("GOBIN", programs)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    if let Some(cgo) = step.cgo {
        command.env("CGO_ENABLED", if cgo { "1" } else { "0" });
    }
    set_environment(&mut command);
    // In our process group: Ctrl-C ends it and its compilers. Killed alone, we take it with us.
    let mut supervisor = Supervisor::start()?;
    let (mut child, _) = supervisor.launch(&mut command).context("cannot run `go install`")?;
    let output = child.stderr.take().context("`go install` has no output")?;

    // With -v, Go prints each module that it fetches and each package that it compiles.
    let begun = Instant::now();
    let mut next = begun + TICK;
    let (mut compiled, mut messages) = (0_u32, Vec::new());
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if is_package(&line) {
            compiled += 1;
        } else if !line.starts_with("go: downloading ") {
            messages.push(line);
            continue;
        }
        if Instant::now() >= next {
            next = Instant::now() + TICK;
            progress(&format!("  {}: {compiled} packages compiled; {line}", elapsed(begun)));
        }
    }
    let status = child.wait()?;
    if !status.success() {
        let end = messages.len().saturating_sub(20);
        bail!("`go install` failed ({status}):\n{}", messages[end..].join("\n"));
    }
    Ok(())
}

/// The versions that the programs report, for the linker.
fn version_flags(recipe: &Recipe) -> String {
    [
        ("k8s.io/kubernetes", "k8s.io/component-base/version.gitVersion"),
        ("k8s.io/kubernetes", "k8s.io/client-go/pkg/version.gitVersion"),
        (
            "github.com/containerd/containerd/v2",
            "github.com/containerd/containerd/v2/version.Version",
        ),
    ]
    .iter()
    .filter_map(|(module, variable)| {
        required_version(recipe.go_mod(), module).map(|version| format!(" -X {variable}={version}"))
    })
    .collect()
}

/// An import path, as opposed to a message: one word with a slash or without punctuation.
fn is_package(line: &str) -> bool {
    !line.is_empty()
        && line.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '/' | '-' | '_'))
}

/// The value of a one-word directive such as `go 1.26.0`.
pub(super) fn directive<'a>(go_mod: &'a str, name: &str) -> Option<&'a str> {
    go_mod.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).map(str::trim)
}

/// The version in a `require` line such as `k8s.io/kubernetes v1.36.3 // indirect`.
pub(super) fn required_version<'a>(go_mod: &'a str, module: &str) -> Option<&'a str> {
    go_mod.lines().find_map(|line| {
        let mut words = line.trim_start().trim_start_matches("require ").split_whitespace();
        (words.next()? == module).then(|| words.next())?.filter(|word| word.starts_with('v'))
    })
}

fn elapsed(since: Instant) -> String {
    let seconds = since.elapsed().as_secs();
    format!("{} min {:02} s", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_other_versions_are_removed_unless_they_are_used() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path();
        let key = |letter: &str| letter.repeat(64);
        let [own, old, used, building] = ["a", "b", "c", "d"].map(key);
        let staging = format!("staging-{old}-x1");
        let kept = format!("staging-{own}-x1");
        for name in [&own, &old, &used, &building, &staging, &kept, "precious"] {
            fs::create_dir(cache.join(name)).unwrap();
            fs::write(cache.join(name).join("etcd"), "").unwrap();
        }
        let lock = lock(&cache.join(format!("{building}.lock")), "it", &|_| {}).unwrap();
        let in_use = |folder: &Path| folder.ends_with(&used);
        // All that is removed until so many folders are.
        let pruned = |prefix: &str, key: &str, count: usize| {
            let mut removed = Vec::new();
            crate::wait::once_closed(|| {
                removed.extend(prune(cache, prefix, key, &in_use));
                (removed.len() >= count).then_some(())
            });
            removed.sort();
            removed
        };
        assert_eq!(pruned("", &own, 2), [old.clone(), staging]);
        for name in [&own, &used, &building, &kept, "precious"] {
            assert!(cache.join(name).join("etcd").is_file(), "{name}");
        }
        assert!(!cache.join(&old).exists());
        drop(lock);
        let [other, stale] = [&own, &old].map(|key| format!("nodes-{key}"));
        for name in [&other, &stale] {
            fs::create_dir(cache.join(name)).unwrap();
        }
        assert_eq!(pruned("", &own, 1), [&*building], "and none of another recipe");
        assert_eq!(prune(cache, "", &own, &in_use), Vec::<String>::new());
        assert_eq!(pruned("nodes-", &other, 1), [stale]);
        assert!(cache.join(own).is_dir() && cache.join(other).is_dir());
    }
}
