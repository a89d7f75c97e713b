//! Named tests in suites. The tests of a suite share one control plane, which is started before the
//! first of them that runs and stopped after the last.

use std::future::Future;
use std::io::Write as _;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Result, anyhow};
use futures::FutureExt as _;
use libtest_mimic::{Arguments, Trial};
use testbed::tools::{self, Kubernetes, Tools};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

use crate::world::World;

/// A future that a test awaits, of any type.
pub(crate) type Boxed<T> = Pin<Box<dyn Future<Output = T>>>;

/// The result of a test, to be awaited.
pub(crate) type Outcome = Boxed<Result<()>>;

/// A test: its name and its function.
pub(crate) type Case = (&'static str, fn(Arc<World>) -> Outcome);

/// The tests of the modules in a parent module, named `parent::module::test`; with `as`, the names
/// begin with another text.
macro_rules! cases {
    ($parent:ident, $($rest:tt)+) => { cases!($parent as stringify!($parent), $($rest)+) };
    ($parent:ident as $prefix:expr, $($module:ident: $($name:ident),+ $(,)?);+ $(;)?) => {
        &[$($((
            concat!($prefix, "::", stringify!($module), "::", stringify!($name)),
            |world| Box::pin(crate::$parent::$module::$name(world)),
        )),+),+]
    };
}
pub(crate) use cases;

tokio::task_local! {
    /// True if the test that runs holds the installation for reading.
    pub(crate) static IS_SHARED: bool;
}

/// Tests that share one control plane.
pub(crate) struct Suite {
    /// These need stowplan as it was installed.
    pub(crate) cases: Vec<Case>,
    /// These stop it or change its policy, and have [`World::alone`] meanwhile, if they need it.
    pub(crate) alone: Vec<Case>,
    /// How many of all run side by side.
    pub(crate) at_once: usize,
    /// The Kubernetes that its control plane runs.
    pub(crate) kubernetes: Kubernetes,
    pub(crate) start: fn() -> Boxed<Result<World>>,
}

/// How many control planes run at once, on the two cores of a small machine: while some wait, others
/// compute. One whose tests run side by side in great number counts twice.
const PLANES: usize = 3;

/// A control plane, and what it takes of [`PLANES`].
type Running = (Arc<World>, OwnedSemaphorePermit);

/// The control plane of a suite while its tests run.
struct Shared {
    start: fn() -> Boxed<Result<World>>,
    /// From the first test on; an error is why there is none.
    running: Mutex<Option<Result<Running, String>>>,
    /// Tests that have not ended yet.
    left: AtomicUsize,
    has_failed: AtomicBool,
    at_once: Arc<Semaphore>,
    /// How many of [`PLANES`] its control plane counts as.
    weight: u32,
}

impl Shared {
    async fn world(&self, planes: &Arc<Semaphore>) -> Result<Arc<World>> {
        let mut running = self.running.lock().await;
        if running.is_none() {
            let permit = Arc::clone(planes).acquire_many_owned(self.weight).await?;
            let started = (self.start)().await.map(|world| (Arc::new(world), permit));
            *running = Some(started.map_err(|error| format!("no control plane: {error:#}")));
        }
        match running.as_ref().expect("it was started above") {
            Ok((world, _)) => Ok(Arc::clone(world)),
            Err(error) => Err(anyhow!("{error}")),
        }
    }

    async fn run(&self, (name, case): Case, is_alone: bool, planes: &Arc<Semaphore>) -> Result<()> {
        let permit = Arc::clone(&self.at_once).acquire_owned().await?;
        let result = match self.world(planes).await {
            Ok(world) => {
                let whole = Arc::clone(&world);
                let installation = whole.installation.read();
                let _running = if is_alone { None } else { Some(installation.await) };
                let started = Instant::now();
                // The message of a panic is on standard error. The control plane must not stay.
                let caught =
                    AssertUnwindSafe(IS_SHARED.scope(!is_alone, case(world))).catch_unwind().await;
                note_time(name, started);
                caught.unwrap_or_else(|_| Err(anyhow!("the test panicked")))
            }
            Err(error) => Err(error),
        };
        drop(permit);
        if let Err(error) = &result {
            eprintln!("{name}: {error:#}");
        }
        self.has_failed.fetch_or(result.is_err(), Ordering::Relaxed);
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(Ok((world, _permit))) = self.running.lock().await.take()
            && let Some(world) = Arc::into_inner(world)
        {
            world.stop(self.has_failed.load(Ordering::Relaxed)).await;
        }
        result
    }
}

/// Appends how long a test took, without its wait for a turn, to the file `STOWPLAN_TEST_TIMES`.
fn note_time(name: &str, started: Instant) {
    let Some(path) = std::env::var_os("STOWPLAN_TEST_TIMES") else { return };
    let seconds = started.elapsed().as_secs_f64();
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| writeln!(file, "{seconds:8.1} {name}")).unwrap();
}

/// A part of the tests, with control planes of its own.
pub(crate) enum Part {
    Suite(Suite),
    /// The name and the function of a test that starts what it needs.
    Lone(&'static str, fn() -> Boxed<()>),
}

/// Runs the tests that the command line selects. The parts get control planes in this order.
pub(crate) fn run(parts: Vec<Part>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    let wanted = |name: &str| {
        let matches = |filter: &String| match arguments.exact {
            true => name == filter,
            false => name.contains(filter.as_str()),
        };
        arguments.filter.as_ref().is_none_or(matches) && !arguments.skip.iter().any(matches)
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let planes = Arc::new(Semaphore::new(PLANES));
    let mut trials = Vec::new();
    for part in parts {
        let Suite { cases, alone, at_once, kubernetes, start } = match part {
            Part::Suite(suite) => suite,
            Part::Lone(name, case) => {
                let (planes, handle) = (Arc::clone(&planes), runtime.handle().clone());
                trials.push(Trial::test(name, move || {
                    handle.block_on(async {
                        let _permit = planes.acquire_owned().await;
                        let started = Instant::now();
                        case().await;
                        note_time(name, started);
                    });
                    Ok(())
                }));
                continue;
            }
        };
        let cases = cases.into_iter().map(|case| (case, false));
        let cases: Vec<_> = cases.chain(alone.into_iter().map(|case| (case, true))).collect();
        let left = cases.iter().filter(|((name, _), _)| wanted(name)).count();
        if left > 0 && !arguments.list {
            // Built once a machine, before any test runs: it would take the processor from them.
            Tools::ensure_of(kubernetes, &tools::to_stderr).unwrap();
        }
        let shared = Arc::new(Shared {
            start,
            running: Mutex::new(None),
            left: AtomicUsize::new(left),
            has_failed: AtomicBool::new(false),
            at_once: Arc::new(Semaphore::new(at_once)),
            weight: if at_once > 6 { 2 } else { 1 },
        });
        trials.extend(cases.into_iter().map(|((name, case), is_alone)| {
            let (shared, planes) = (Arc::clone(&shared), Arc::clone(&planes));
            let handle = runtime.handle().clone();
            Trial::test(name, move || {
                let result = handle.block_on(shared.run((name, case), is_alone, &planes));
                result.map_err(|error| format!("{error:#}").into())
            })
        }));
    }
    // Tests that wait for their turn need a thread, too.
    arguments.test_threads.get_or_insert(trials.len());
    libtest_mimic::run(&arguments, trials).exit_code()
}
