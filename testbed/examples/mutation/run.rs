//! Runs of the tests with one change in force.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::build::{Build, REACHED, VARIABLE};

/// Tests that say nothing about decisions, and those that need a cluster or much time.
const LEFT_OUT: [&str; 8] = [
    "tests::explore",
    "documents::",
    "releases::",
    "readme::",
    "dependencies::",
    "purity::",
    "webhook::",
    "chart::",
];

/// How much longer than without a change the tests may take.
const PATIENCE: u32 = 4;

/// The result of the tests with a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// This test failed.
    Noticed(String),
    /// The tests did not end in time.
    NeverEnded,
    Survived,
    /// No test comes there.
    Unreached,
}

impl Outcome {
    pub(crate) fn is_noticed(&self) -> bool {
        matches!(self, Self::Noticed(_) | Self::NeverEnded)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Noticed(test) => write!(f, "noticed by {test}"),
            Self::NeverEnded => f.write_str("noticed: the tests do not end"),
            Self::Survived => f.write_str("NOT NOTICED"),
            Self::Unreached => f.write_str("NOT NOTICED: no test comes there"),
        }
    }
}

/// The tests, how long they take without a change, and which of them reach which changes.
pub(crate) struct Tests<'b> {
    build: &'b Build,
    longest: Duration,
    reached: [Reached; 2],
}

/// The tests of a program that reach a change, by the change's number.
#[derive(Default)]
struct Reached {
    by: HashMap<usize, BTreeSet<String>>,
    /// Changes that are reached in threads or processes that tests start: by some test.
    elsewhere: BTreeSet<usize>,
}

impl Reached {
    /// Reads the lines that a test program has written: a number, and the thread's name, which is that of its test.
    fn read(lines: &str, tests: &BTreeSet<String>) -> Self {
        let mut reached = Self::default();
        for (number, thread) in lines.lines().filter_map(|line| line.split_once(' ')) {
            let Ok(number) = number.parse() else { continue };
            if tests.contains(thread) {
                reached.by.entry(number).or_default().insert(thread.to_owned());
            } else {
                reached.elsewhere.insert(number);
            }
        }
        reached
    }
}

impl<'b> Tests<'b> {
    /// Runs all tests without a change; they must succeed.
    pub(crate) fn new(build: &'b Build) -> Result<Self> {
        let begun = Instant::now();
        let longest = Duration::from_secs(3_600);
        let mut tests = Self { build, longest, reached: Default::default() };
        let file = build.copy.with_file_name("reached");
        for (which, program) in [&build.unit, &build.offline].into_iter().enumerate() {
            fs::write(&file, "")?;
            let mut command = tests.command(program, None);
            command.env(REACHED, &file);
            let outcome = tests.watch(command)?;
            ensure!(outcome == Outcome::Survived, "without a change: {outcome}");
            let listed = tests.command(program, None).arg("--list").output()?;
            let listed = String::from_utf8(listed.stdout)?;
            let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
            let names = names.map(str::to_owned).collect();
            tests.reached[which] = Reached::read(&fs::read_to_string(&file)?, &names);
        }
        tests.longest = begun.elapsed() * PATIENCE;
        eprintln!("without a change the tests take {} s", begun.elapsed().as_secs());
        Ok(tests)
    }

    /// Runs the tests that reach a change until one fails: each program's own ones first, then, if a thread or process
    /// that a test has started reaches it, all.
    pub(crate) fn run(&self, number: usize) -> Result<Outcome> {
        let programs = || [&self.build.unit, &self.build.offline].into_iter().zip(&self.reached);
        let own = programs().filter_map(|(program, of)| Some((program, Some(of.by.get(&number)?))));
        let all = programs().filter(|(_, of)| of.elsewhere.contains(&number));
        let runs: Vec<_> = own.chain(all.map(|(program, _)| (program, None))).collect();
        for (program, names) in &runs {
            let mut command = self.command(program, Some(number));
            if let Some(names) = names {
                command.arg("--exact").args(*names);
            }
            let outcome = self.watch(command)?;
            if outcome != Outcome::Survived {
                return Ok(outcome);
            }
        }
        Ok(if runs.is_empty() { Outcome::Unreached } else { Outcome::Survived })
    }

    /// Runs the tests with one change, and shows what they print.
    pub(crate) fn show(&self, number: usize) -> Result<Outcome> {
        for program in [&self.build.unit, &self.build.offline] {
            let status = self.command(program, Some(number)).stdout(Stdio::inherit()).status()?;
            eprintln!("{}: {status}", program.display());
        }
        self.run(number)
    }

    fn command(&self, program: &Path, number: Option<usize>) -> Command {
        let folder = if program == self.build.unit { "core" } else { "" };
        let folder = self.build.copy.join(folder);
        let mut command = Command::new(program);
        command.current_dir(&folder).env("CARGO_MANIFEST_DIR", &folder);
        command.args(LEFT_OUT.iter().flat_map(|name| ["--skip", name]));
        command.env("RUST_TEST_THREADS", "2");
        // Random tests are most of the time. The first failure is enough, and the next change meets the same tests.
        command.env("PROPTEST_CASES", "32");
        command.env("PROPTEST_MAX_SHRINK_ITERS", "0");
        command.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true");
        command.env("INSTA_UPDATE", "no").stdout(Stdio::piped()).stderr(Stdio::null());
        match number {
            Some(number) => command.env(VARIABLE, number.to_string()),
            None => command.env_remove(VARIABLE),
        };
        command
    }

    /// Runs a test program until its first failure.
    fn watch(&self, mut command: Command) -> Result<Outcome> {
        let mut child = command.process_group(0).spawn().context("a test program")?;
        let output = child.stdout.take().context("it has an output")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let end = Instant::now() + self.longest;
        let (mut outcome, mut is_over) = (None, false);
        while outcome.is_none() && !is_over {
            match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    outcome = line
                        .strip_prefix("test ")
                        .and_then(|line| line.strip_suffix(" ... FAILED"))
                        .map(|test| Outcome::Noticed(test.to_owned()));
                }
                Err(RecvTimeoutError::Timeout) => outcome = Some(Outcome::NeverEnded),
                Err(RecvTimeoutError::Disconnected) => is_over = true,
            }
        }
        if outcome.is_some() {
            let group = Pid::from_child(&child);
            kill_process_group(group, Signal::KILL).context("a test program")?;
        }
        let status = child.wait()?;
        let ended = match status.success() {
            true => Outcome::Survived,
            false => Outcome::Noticed(format!("the whole program: {status}")),
        };
        Ok(outcome.unwrap_or(ended))
    }
}
