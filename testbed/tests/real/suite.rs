//! Cases of a suite on real nodes: they run one at a time, in order, on one cluster.

use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use libtest_mimic::{Arguments, Trial};
use testbed::control_plane::ControlPlane;
use testbed::real;

pub(crate) type Test<W> = fn(Arc<W>) -> Pin<Box<dyn Future<Output = Result<()>>>>;

pub(crate) struct Case<W> {
    pub(crate) name: &'static str,
    pub(crate) test: Test<W>,
    left_out: Option<String>,
}

impl<W> Case<W> {
    pub(crate) fn new(name: &'static str, test: Test<W>) -> Self {
        Self { name, test, left_out: None }
    }

    /// It cannot run here, for this reason.
    pub(crate) fn left_out(mut self, reason: Option<String>) -> Self {
        self.left_out = reason;
        self
    }
}

/// The case of a function, named `suite::module::function`.
macro_rules! case {
    ($suite:ident, $test:path) => {
        crate::suite::Case::new(concat!(stringify!($suite), "::", stringify!($test)), |world| {
            Box::pin($test(world))
        })
    };
}
pub(crate) use case;

/// Runs the cases that the command line selects. `start` makes what they share, if one of them
/// runs, and `end` ends it; it learns whether a case has failed.
pub(crate) fn run<W: Send + Sync + 'static>(
    cases: Vec<Case<W>>,
    start: impl AsyncFnOnce() -> Result<W>,
    end: impl AsyncFnOnce(W, bool),
) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let asked = match real::asked_for_tests() {
        Ok(asked) => asked,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let is_wanted = |name: &str| {
        let matches = |filter: &String| match arguments.exact {
            true => name == filter,
            false => name.contains(filter.as_str()),
        };
        arguments.filter.as_ref().is_none_or(matches) && !arguments.skip.iter().any(matches)
    };
    let runs = |case: &Case<W>| case.left_out.is_none() && is_wanted(case.name);
    let is_needed = asked && !arguments.list && cases.iter().any(runs);
    let world = match is_needed.then(|| runtime.block_on(start())).transpose() {
        Ok(world) => world.map(Arc::new),
        Err(error) => {
            eprintln!("the cluster did not start, so no test can run: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let trials = cases.into_iter().map(|Case { name, test, left_out }| {
        if let Some(reason) = left_out.as_ref().filter(|_| asked) {
            eprintln!("{name} is left out: {reason}");
        }
        let is_left_out = !asked || left_out.is_some();
        let (world, handle) = (world.clone(), runtime.handle().clone());
        let trial = Trial::test(name, move || {
            let world = world.ok_or("no real nodes were started")?;
            let begun = Instant::now();
            let outcome = handle.block_on(test(world));
            eprintln!("{name} took {:.1} s", begun.elapsed().as_secs_f64());
            outcome.map_err(|error| format!("{error:#}").into())
        });
        match is_left_out {
            true => trial.with_ignored_flag(true).with_kind("left out"),
            false => trial,
        }
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    if let Some(world) = world.and_then(Arc::into_inner) {
        runtime.block_on(end(world, conclusion.has_failed()));
    }
    conclusion.exit_code()
}

/// Ends a control plane, and keeps its logs if a case has failed.
pub(crate) async fn stop(plane: ControlPlane, has_failed: bool) {
    if has_failed && plane.keep_dir() {
        eprintln!("the logs are kept in {}", plane.dir().join("logs").display());
    }
    plane.stop().await;
}
