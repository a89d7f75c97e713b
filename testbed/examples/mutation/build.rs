//! A copy of the sources with many changes, each behind a number, and its test programs.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::sites::{IN_FORCE, Site};

/// The environment variable with the number of the change that is in force.
pub(crate) const VARIABLE: &str = "STOWPLAN_MUTANT";

/// The environment variable with a file to which a process adds the numbers of the changes that it reaches.
pub(crate) const REACHED: &str = "STOWPLAN_MUTANTS_REACHED";

/// The function that is added to the crate.
const QUESTION: &str = r#"
/// Returns true if the change of this number is in force.
pub fn is_in_force(number: usize) -> bool {
    use std::io::Write as _;
    use std::sync::{Mutex, OnceLock};
    static IN_FORCE: OnceLock<Option<usize>> = OnceLock::new();
    static REACHED: OnceLock<Option<std::ffi::OsString>> = OnceLock::new();
    static SEEN: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    if let Some(path) = REACHED.get_or_init(|| std::env::var_os("STOWPLAN_MUTANTS_REACHED")) {
        let mut seen = SEEN.lock().expect("no thread panics here");
        if !seen.contains(&number) {
            seen.push(number);
            let file = std::fs::File::options().append(true).create(true).open(path);
            let written = file.and_then(|mut file| file.write_all(format!("{number}\n").as_bytes()));
            written.expect("room on the disk");
        }
    }
    let read = || std::env::var("STOWPLAN_MUTANT").ok()?.parse().ok();
    *IN_FORCE.get_or_init(read) == Some(number)
}
"#;

/// How often changes that do not compile are replaced.
const ATTEMPTS: usize = 12;

/// Returns the workspace's folder.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("testbed is in a workspace").to_owned()
}

/// A copy with changes, compiled.
pub(crate) struct Build {
    pub(crate) copy: PathBuf,
    /// The changes that are in it, by their numbers.
    pub(crate) sites: Vec<Site>,
    /// The unit tests of `core`, and the tests that need no cluster.
    pub(crate) unit: PathBuf,
    pub(crate) offline: PathBuf,
}

impl Build {
    /// Returns the two test programs, the faster one first.
    pub(crate) fn programs(&self) -> [&PathBuf; 2] {
        [&self.unit, &self.offline]
    }

    /// Builds the first `count` changes that compile, of which none is within another.
    pub(crate) fn of(mut candidates: Vec<Site>, count: usize) -> Result<Self> {
        let copy = root().join("target/mutation/source");
        for attempt in 1..=ATTEMPTS {
            let sites = choose(&candidates, count);
            copy_sources(&copy)?;
            write(&copy, &sites)?;
            eprintln!("{} changes are compiled, attempt {attempt}", sites.len());
            let refused = refused(&copy)?;
            if refused.is_empty() {
                let [unit, offline] = test_programs(&copy)?;
                return Ok(Self { copy, sites, unit, offline });
            }
            let is_refused = |site: &Site| {
                refused.iter().any(|(file, line)| *file == site.file && *line == site.line)
                    && sites.iter().any(|of| of.file == site.file && of.text == site.text)
            };
            let before = candidates.len();
            candidates.retain(|site| !is_refused(site));
            ensure!(candidates.len() < before, "the copy does not compile: {refused:?}");
        }
        bail!("changes that do not compile were replaced {ATTEMPTS} times, and there are more")
    }
}

fn choose(candidates: &[Site], count: usize) -> Vec<Site> {
    let mut chosen: Vec<Site> = Vec::new();
    for site in candidates {
        let meets = |other: &Site| {
            let (a, b) = (&site.range, &other.range);
            site.file == other.file && a.start <= b.end && b.start <= a.end
        };
        if chosen.len() < count && !chosen.iter().any(meets) {
            chosen.push(site.clone());
        }
    }
    chosen
}

/// Copies the files of the repository that differ, so that cargo does not compile the others again.
fn copy_sources(copy: &Path) -> Result<()> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()?;
    ensure!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    for name in String::from_utf8(listed.stdout)?.split('\0').filter(|name| !name.is_empty()) {
        let (from, to) = (root().join(name), copy.join(name));
        if !from.exists() {
            continue;
        }
        let content = fs::read(&from).with_context(|| from.display().to_string())?;
        if fs::read(&to).is_ok_and(|before| before == content) {
            continue;
        }
        fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
        fs::copy(&from, &to)?;
        fs::write(&to, content)?;
    }
    Ok(())
}

fn write(copy: &Path, sites: &[Site]) -> Result<()> {
    let mut by_file: HashMap<&Path, Vec<(usize, &Site)>> = HashMap::new();
    for (number, site) in sites.iter().enumerate() {
        by_file.entry(&site.file).or_default().push((number, site));
    }
    by_file.entry(Path::new("lib.rs")).or_default();
    for (file, mut sites) in by_file {
        let path = copy.join("core/src").join(file);
        let mut text = fs::read_to_string(&path)?;
        sites.sort_by_key(|(_, site)| std::cmp::Reverse(site.range.start));
        for (number, site) in sites {
            let question = format!("crate::is_in_force({number})");
            text.replace_range(site.range.clone(), &site.text.replace(IN_FORCE, &question));
        }
        if file == Path::new("lib.rs") {
            text += QUESTION;
        }
        fs::write(&path, text)?;
    }
    Ok(())
}

/// A cargo command in the copy, whose own crate is compiled to be fast.
fn cargo(copy: &Path, subcommand: &str) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.arg(subcommand).arg("--locked").current_dir(copy);
    cargo.arg("--config").arg("profile.dev.package.stowplan-core.opt-level=1");
    cargo.env("CARGO_TARGET_DIR", root().join("target/mutation/target"));
    cargo.env("CARGO_INCREMENTAL", "0").env("RUSTFLAGS", "--cap-lints=allow");
    cargo.arg("--message-format=json").stderr(Stdio::inherit());
    cargo
}

/// Returns the lines of `core/src` that do not compile.
fn refused(copy: &Path) -> Result<Vec<(PathBuf, usize)>> {
    let output = cargo(copy, "check").args(["-p", "stowplan-core"]).output()?;
    let mut lines = Vec::new();
    for message in messages(&output.stdout) {
        let message = &message["message"];
        if message["level"] != "error" {
            continue;
        }
        for span in message["spans"].as_array().into_iter().flatten() {
            let file = Path::new(span["file_name"].as_str().unwrap_or_default());
            if let Ok(file) = file.strip_prefix("core/src") {
                let number = |key: &str| span[key].as_u64().unwrap_or_default() as usize;
                let range = number("line_start")..=number("line_end");
                lines.extend(range.map(|line| (file.to_owned(), line)));
            }
        }
    }
    ensure!(output.status.success() || !lines.is_empty(), "cargo check has failed");
    Ok(lines)
}

fn messages(output: &[u8]) -> impl Iterator<Item = Value> {
    output.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok())
}

fn test_programs(copy: &Path) -> Result<[PathBuf; 2]> {
    let output = cargo(copy, "test")
        .args(["--no-run", "-p", "stowplan-core", "-p", "stowplan", "--lib", "--test", "offline"])
        .output()?;
    ensure!(output.status.success(), "the tests do not compile");
    let programs: Vec<Value> = messages(&output.stdout).collect();
    let find = |name: &str| {
        let program = programs
            .iter()
            .find(|message| message["target"]["name"] == name && message["executable"].is_string());
        program
            .and_then(|message| message["executable"].as_str())
            .map(PathBuf::from)
            .with_context(|| format!("cargo does not say where the test {name} is"))
    };
    Ok([find("stowplan_core")?, find("offline")?])
}
