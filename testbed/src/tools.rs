//! The control plane's programs: built from Go modules once, then kept.
//!
//! `controlplane/go.mod` pins etcd, Kubernetes, kwok and helm by version, `go.sum` by content. Both
//! are compiled into this crate, and their hash is the name of the folder in the cache, so a cached
//! folder is always the right one, whichever clone or branch asks, and outlives all of them.
//!
//! The cache is `$STOWPLAN_TESTBED_CACHE`, else `stowplan-testbed` in `$XDG_CACHE_HOME` or
//! `~/.cache`. The first build compiles Kubernetes: several minutes and about half a gigabyte.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, io};

use anyhow::{Context as _, Result, bail, ensure};
use sha2::{Digest as _, Sha256};

use crate::process::{Supervisor, gated};

const GO_MOD: &str = include_str!("../controlplane/go.mod");
const GO_SUM: &str = include_str!("../controlplane/go.sum");

/// Increased when the same module is to be built in another way.
const RECIPE: u8 = 1;

/// The names of programs: from `go install`, and in the cache. etcd's main package is called
/// "server".
const PROGRAMS: [(&str, &str); 7] = [
    ("server", "etcd"),
    ("kube-apiserver", "kube-apiserver"),
    ("kube-controller-manager", "kube-controller-manager"),
    ("kube-scheduler", "kube-scheduler"),
    ("kubectl", "kubectl"),
    ("kwok", "kwok"),
    ("helm", "helm"),
];

/// kwok's stages for nodes and pods, as paths in its module; without stages it does nothing.
const STAGES: [&str; 5] = [
    "kustomize/stage/node/fast/node-initialize.yaml",
    "kustomize/stage/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "kustomize/stage/pod/fast/pod-ready.yaml",
    "kustomize/stage/pod/fast/pod-complete.yaml",
    "kustomize/stage/pod/fast/pod-delete.yaml",
];

/// Between two lines of progress.
const TICK: Duration = Duration::from_secs(5);

/// The programs of a control plane, ready to run.
#[derive(Clone, Debug)]
pub struct Tools {
    dir: PathBuf,
}

impl Tools {
    /// Finds the programs in the cache, or builds them, telling `progress` line by line.
    ///
    /// Blocks; for minutes when it builds. Two processes that ask at once build once.
    ///
    /// # Errors
    /// Go is missing or older than `go.mod` asks for, the modules cannot be fetched, the disk is
    /// full. Nothing half-built is left in the cache.
    pub fn ensure(progress: &dyn Fn(&str)) -> Result<Self> {
        let cache = cache_dir(&|name| env::var_os(name))?;
        let key = key(GO_MOD, GO_SUM);
        let dir = cache.join(&key);
        // The folder appears by one rename: where it is, it is whole.
        if !dir.is_dir() {
            fs::create_dir_all(&cache)
                .with_context(|| format!("cannot make the cache {}", cache.display()))?;
            let _lock = lock(&cache.join(format!("{key}.lock")), progress)?;
            if !dir.is_dir() {
                build(&cache, &key, &dir, progress)?;
                for removed in prune(&cache, &key, &is_running_from) {
                    progress(&format!("removed the programs of another version: {removed}"));
                }
            }
        }
        Ok(Self { dir })
    }

    /// The folder that holds them.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// One program, by its usual name (`etcd`, `kube-apiserver`, `kubectl`, `helm`, …).
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        debug_assert!(PROGRAMS.iter().any(|&(_, known)| known == name), "{name} is not built");
        self.dir.join(name)
    }

    /// kwok's stages: nodes become Ready, pods Running, pods of Jobs Succeeded.
    #[must_use]
    pub fn stages(&self) -> PathBuf {
        self.dir.join("stages.yaml")
    }

    /// The Kubernetes release that is built, such as `v1.36.3`.
    ///
    /// # Panics
    /// Never for the `go.mod` of this crate (a test reads it).
    #[must_use]
    pub fn kubernetes_version() -> &'static str {
        required_version(GO_MOD, "k8s.io/kubernetes").expect("go.mod requires k8s.io/kubernetes")
    }
}

/// Writes a line of progress to standard error, past the capture of the test harness: a build of
/// minutes must not look like a hang.
pub fn to_stderr(line: &str) {
    let _ = writeln!(io::stderr(), "testbed: {line}");
}

fn cache_dir(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let dir = set("STOWPLAN_TESTBED_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("stowplan-testbed")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/stowplan-testbed")))
        .context("no place for the control plane's programs: set STOWPLAN_TESTBED_CACHE")?;
    // Programs are run from other working directories.
    std::path::absolute(&dir).with_context(|| format!("cannot use the cache {}", dir.display()))
}

fn key(go_mod: &str, go_sum: &str) -> String {
    let mut hash = Sha256::new();
    hash.update([RECIPE]);
    for text in [go_mod, go_sum] {
        // With its length, so that text cannot wander from one file to the other.
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Waits until we are the only one to build this key. The lock ends with the file, and with us.
fn lock(path: &Path, progress: &dyn Fn(&str)) -> Result<File> {
    let problem = || format!("cannot lock {}", path.display());
    let file = File::create(path).with_context(problem)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            progress("another process builds the control plane; waiting for it");
            file.lock().with_context(problem)?;
        }
        Err(TryLockError::Error(error)) => return Err(error).with_context(problem),
    }
    Ok(file)
}

fn build(cache: &Path, key: &str, target: &Path, progress: &dyn Fn(&str)) -> Result<()> {
    check_go()?;
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
    fs::write(module.join("go.mod"), GO_MOD)?;
    fs::write(module.join("go.sum"), GO_SUM)?;

    progress(&format!(
        "building Kubernetes {} (etcd, kube-apiserver, kube-controller-manager, kube-scheduler, \
         kubectl, kwok, helm); the first build takes several minutes, later starts need none",
        Tools::kubernetes_version(),
    ));
    let begun = Instant::now();
    install(&module, &programs, progress)?;
    fs::write(programs.join("stages.yaml"), stages(&module)?)?;
    for (made, wanted) in PROGRAMS {
        fs::rename(programs.join(made), programs.join(wanted))
            .with_context(|| format!("go install made no {made}"))?;
    }
    fs::rename(&programs, target)
        .with_context(|| format!("cannot move the programs to {}", target.display()))?;
    progress(&format!("built in {}, kept in {}", elapsed(begun), target.display()));
    Ok(())
}

/// Removes the programs of other keys, half a gigabyte each, unless `is_used` or being built.
/// Returns the names of what it removed. Errors are no reason to fail: it is tried again after the
/// next build.
fn prune(cache: &Path, key: &str, is_used: &dyn Fn(&Path) -> bool) -> Vec<String> {
    let is_key = |name: &str| name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut removed = Vec::new();
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        // `<key>` itself, or what a build that was killed has left: `staging-<key>-<letters>`.
        let of_key = name.strip_prefix("staging-").and_then(|rest| rest.split('-').next());
        let of_key = of_key.unwrap_or(&name);
        if !is_key(of_key) || of_key == key || is_used(&entry.path()) {
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

/// Whether a process of this machine runs a program of this folder: a control plane of another
/// version, perhaps one that was left running.
fn is_running_from(folder: &Path) -> bool {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|process| fs::read_link(process.path().join("exe")).ok())
        .any(|program| program.starts_with(folder))
}

/// Says what to do before a compiler would say what went wrong.
fn check_go() -> Result<()> {
    let floor = directive(GO_MOD, "go").context("go.mod names no Go version")?;
    let remedy = format!("install Go {floor} or newer (https://go.dev/dl) and put it on the PATH");
    let output = match go(Path::new("/")).arg("version").output() {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("building the control plane needs Go, and there is no `go` on the PATH; {remedy}")
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
            "building the control plane needs Go {floor} or newer, and `go` on the PATH is \
             {version}; {remedy}",
        );
    }
    Ok(())
}

/// `1.26.8` and `1.27rc1` as something to compare. A release candidate counts as its release.
fn numbers(version: &str) -> Vec<u32> {
    let end = version.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(version.len());
    version[..end].split('.').map_while(|part| part.parse().ok()).collect()
}

fn go(working_dir: &Path) -> Command {
    let mut command = Command::new("go");
    command.current_dir(working_dir);
    set_environment(&mut command);
    command
}

/// What a user has set for other work and would lead astray here.
fn set_environment(command: &mut Command) {
    command
        // Never fetch another toolchain behind the user's back.
        .env("GOTOOLCHAIN", "local")
        .env("GOWORK", "off")
        .env_remove("GOOS")
        .env_remove("GOARCH");
}

/// Builds every tool of the module into `programs`.
fn install(module: &Path, programs: &Path, progress: &dyn Fn(&str)) -> Result<()> {
    let version = Tools::kubernetes_version();
    let flags = ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"]
        .map(|package| format!("-X {package}.gitVersion={version}"))
        .join(" ");
    let mut command = gated(Path::new("go"));
    command
        .args(["install", "-v", "-trimpath", "-mod=readonly", "-ldflags"])
        .arg(format!("-s -w {flags}"))
        .arg("tool")
        .current_dir(module)
        .env("GOBIN", programs)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    set_environment(&mut command);
    // In our process group: Ctrl-C ends it and its compilers. Killed alone, we take it with us.
    let mut supervisor = Supervisor::start()?;
    let (mut child, _) = supervisor.launch(&mut command).context("cannot run `go install`")?;
    let output = child.stderr.take().context("`go install` has no output")?;

    // With -v, Go prints each module that it fetches and each package that it compiles.
    let (sender, lines) = channel();
    let reader = thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let begun = Instant::now();
    let mut next = begun + TICK;
    let (mut compiled, mut messages) = (0_u32, Vec::new());
    let mut last = String::from("reading modules");
    loop {
        match lines.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(line) if line.starts_with("go: downloading ") => last = line,
            Ok(line) if is_package(&line) => {
                compiled += 1;
                last = line;
            }
            Ok(line) => messages.push(line),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if Instant::now() >= next {
            next += TICK;
            let ready = fs::read_dir(programs).map_or(0, Iterator::count);
            progress(&format!(
                "  {}: {compiled} packages compiled, {ready} of {} programs ready; {last}",
                elapsed(begun),
                PROGRAMS.len(),
            ));
        }
    }
    let _ = reader.join();
    let status = child.wait()?;
    if !status.success() {
        let end = messages.len().saturating_sub(20);
        bail!("`go install` failed ({status}):\n{}", messages[end..].join("\n"));
    }
    Ok(())
}

/// An import path, as opposed to a message: one word with a slash or without punctuation.
fn is_package(line: &str) -> bool {
    !line.is_empty()
        && line.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '/' | '-' | '_'))
}

/// kwok's stages as one file, from its module.
fn stages(module: &Path) -> Result<String> {
    let output = go(module)
        .args(["list", "-mod=readonly", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok"])
        .output()
        .context("cannot run `go list`")?;
    ensure!(
        output.status.success(),
        "cannot find kwok's module: {}",
        String::from_utf8_lossy(&output.stderr).trim(),
    );
    let dir = PathBuf::from(String::from_utf8(output.stdout)?.trim());
    let texts: Vec<String> = STAGES
        .iter()
        .map(|stage| {
            let path = dir.join(stage);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        })
        .collect::<Result<_>>()?;
    Ok(texts.join("\n---\n"))
}

/// The value of a one-word directive such as `go 1.26.0`.
fn directive<'a>(go_mod: &'a str, name: &str) -> Option<&'a str> {
    go_mod.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).map(str::trim)
}

/// The version in a `require` line such as `k8s.io/kubernetes v1.36.3 // indirect`.
fn required_version<'a>(go_mod: &'a str, module: &str) -> Option<&'a str> {
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
    fn the_key_changes_with_each_file_and_is_the_same_for_the_same() {
        let key_of = |a, b| key(a, b);
        assert_eq!(key_of("mod", "sum"), key_of("mod", "sum"));
        assert_ne!(key_of("mod", "sum"), key_of("mod2", "sum"));
        assert_ne!(key_of("mod", "sum"), key_of("mod", "sum2"));
        assert_ne!(key_of("ab", "c"), key_of("a", "bc"));
        assert_eq!(key_of("mod", "sum").len(), 64);
    }

    #[test]
    fn the_cache_is_where_the_user_wants_it() {
        let with = |set: &[(&str, &str)]| {
            let set: Vec<_> = set.iter().map(|&(n, v)| (n.to_owned(), v.to_owned())).collect();
            cache_dir(&move |name| {
                set.iter().find(|(set, _)| set == name).map(|(_, value)| value.into())
            })
        };
        let own = [("STOWPLAN_TESTBED_CACHE", "/a"), ("XDG_CACHE_HOME", "/b"), ("HOME", "/c")];
        assert_eq!(with(&own).unwrap(), Path::new("/a"));
        assert_eq!(with(&own[1..]).unwrap(), Path::new("/b/stowplan-testbed"));
        assert_eq!(with(&own[2..]).unwrap(), Path::new("/c/.cache/stowplan-testbed"));
        assert_eq!(
            with(&[("STOWPLAN_TESTBED_CACHE", ""), ("HOME", "/c")]).unwrap(),
            Path::new("/c/.cache/stowplan-testbed"),
        );
        assert!(with(&[]).unwrap_err().to_string().contains("STOWPLAN_TESTBED_CACHE"));
    }

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
        let lock = lock(&cache.join(format!("{building}.lock")), &|_| {}).unwrap();
        let in_use = |folder: &Path| folder.ends_with(&used);
        assert_eq!(prune(cache, &own, &in_use), [old.clone(), staging]);
        for name in [&own, &used, &building, &kept, "precious"] {
            assert!(cache.join(name).join("etcd").is_file(), "{name}");
        }
        assert!(!cache.join(&old).exists());
        drop(lock);
        assert_eq!(prune(cache, &own, &in_use), [&*building]);
        assert_eq!(prune(cache, &own, &in_use), Vec::<String>::new());
    }

    #[test]
    fn a_folder_whose_program_runs_is_in_use() {
        let own = env::current_exe().unwrap();
        assert!(is_running_from(own.parent().unwrap()));
        assert!(!is_running_from(tempfile::tempdir().unwrap().path()));
    }

    #[test]
    fn the_module_names_its_versions() {
        assert!(Tools::kubernetes_version().starts_with("v1."));
        assert!(numbers(directive(GO_MOD, "go").unwrap()) >= vec![1, 26]);
        assert_eq!(required_version("require a v1\n\tb v2 // indirect\n", "a"), Some("v1"));
        assert_eq!(required_version("require a v1\n\tb v2 // indirect\n", "b"), Some("v2"));
        assert_eq!(required_version("replace b => c v2\n", "b"), None);
    }

    #[test]
    fn versions_compare_by_number() {
        assert!(numbers("1.26.8") > numbers("1.26.0"));
        assert!(numbers("1.27rc1") > numbers("1.26.10"));
        assert!(numbers("1.9") < numbers("1.26.0"));
        assert!(numbers("1.26-custom") < numbers("1.26.0"));
    }

    #[test]
    fn packages_are_told_from_messages() {
        assert!(is_package("k8s.io/kubernetes/pkg/apis/core"));
        assert!(is_package("unsafe"));
        assert!(!is_package("go: module lookup disabled"));
        assert!(!is_package("# k8s.io/kubernetes/cmd/kubectl"));
        assert!(!is_package(""));
    }
}
