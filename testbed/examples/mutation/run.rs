//! Runs of the tests with one change in force.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
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

/// Calls `work` with each number below `count`, in one thread for each processor, until a call fails.
pub(crate) fn on_all_processors(
    count: usize,
    work: impl Fn(usize) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let run = || -> Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return Ok(());
            }
            work(number)?;
        }
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no thread panics"))
    })
}

/// How many cases each random test has, if not as many as otherwise.
type Cases = Option<&'static str>;

/// Random tests are most of the time.
const FEW: Cases = Some("32");

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

/// The tests, how long they may take, and which of them reach which changes.
pub(crate) struct Tests<'b> {
    build: &'b Build,
    longest: Duration,
    /// For each program, the names of the tests that reach a change, by its number.
    reached: [HashMap<usize, BTreeSet<String>>; 2],
}

impl<'b> Tests<'b> {
    /// Runs each test by itself without a change; they must succeed. So what a test reaches in a thread or process that
    /// it starts is found, too.
    pub(crate) fn new(build: &'b Build) -> Result<Self> {
        let begun = Instant::now();
        let longest = Duration::from_secs(3_600);
        let mut tests = Self { build, longest, reached: Default::default() };
        for (which, program) in build.programs().into_iter().enumerate() {
            let listed = tests.command(program, None, FEW).arg("--list").output()?;
            let listed = String::from_utf8(listed.stdout)?;
            let names: Vec<&str> =
                listed.lines().filter_map(|line| line.strip_suffix(": test")).collect();
            ensure!(!names.is_empty(), "{} has no tests", program.display());
            let reached = Mutex::new(HashMap::<usize, BTreeSet<String>>::new());
            on_all_processors(names.len(), |index| {
                let name = names[index];
                let numbers = tests.find_reached(program, name, index)?;
                let mut reached = reached.lock().expect("no thread panics");
                for number in numbers {
                    reached.entry(number).or_default().insert(name.to_owned());
                }
                Ok(())
            })?;
            tests.reached[which] = reached.into_inner().expect("no thread panics");
        }
        tests.longest = begun.elapsed() * PATIENCE;
        eprintln!("without a change the tests take {} s", begun.elapsed().as_secs());
        Ok(tests)
    }

    /// Runs one test without a change. Returns the numbers of the changes that it reaches.
    fn find_reached(&self, program: &Path, name: &str, index: usize) -> Result<BTreeSet<usize>> {
        let file = self.build.copy.with_file_name(format!("reached-{index}"));
        fs::write(&file, "")?;
        let mut command = self.command(program, None, FEW);
        command.env(REACHED, &file).args(["--exact", name]);
        let outcome = self.watch(command)?;
        ensure!(outcome == Outcome::Survived, "without a change: {outcome}");
        let numbers = fs::read_to_string(&file)?;
        fs::remove_file(&file)?;
        numbers.lines().map(|number| number.parse().context("a number")).collect()
    }

    /// Runs the tests that reach a change until one fails: with few random cases first, and then with as many as the
    /// tests have otherwise.
    pub(crate) fn run(&self, number: usize) -> Result<Outcome> {
        let programs = self.build.programs().into_iter().zip(&self.reached);
        let runs: Vec<_> =
            programs.filter_map(|(program, of)| Some((program, of.get(&number)?))).collect();
        for cases in [FEW, None] {
            for (program, names) in &runs {
                let mut command = self.command(program, Some(number), cases);
                command.arg("--exact").args(*names);
                let outcome = self.watch(command)?;
                if outcome != Outcome::Survived {
                    return Ok(outcome);
                }
            }
        }
        Ok(if runs.is_empty() { Outcome::Unreached } else { Outcome::Survived })
    }

    /// Runs the tests with one change, and shows what they print.
    pub(crate) fn show(&self, number: usize) -> Result<Outcome> {
        for program in self.build.programs() {
            let status =
                self.command(program, Some(number), None).stdout(Stdio::inherit()).status()?;
            eprintln!("{}: {status}", program.display());
        }
        self.run(number)
    }

    fn command(&self, program: &Path, number: Option<usize>, cases: Cases) -> Command {
        let folder = if program == self.build.unit { "core" } else { "" };
        let folder = self.build.copy.join(folder);
        let mut command = Command::new(program);
        command.current_dir(&folder).env("CARGO_MANIFEST_DIR", &folder);
        command.args(LEFT_OUT.iter().flat_map(|name| ["--skip", name]));
        command.env("RUST_TEST_THREADS", "2");
        if let Some(cases) = cases {
            command.env("PROPTEST_CASES", cases);
        }
        // The first failure is enough, and the next change meets the same tests.
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
