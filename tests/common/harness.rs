//! Named tests that share one control plane, which is started before them and stopped after them.

#![allow(dead_code, reason = "each suite uses its own part")]

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use libtest_mimic::{Arguments, Trial};

use crate::world::World;

/// The result of a test, to be awaited.
pub(crate) type Outcome = Pin<Box<dyn Future<Output = Result<()>>>>;

/// A test: its name and its function.
pub(crate) type Case = (&'static str, fn(Arc<World>) -> Outcome);

/// The tests of the modules in a parent module.
macro_rules! cases {
    ($parent:ident, $($module:ident: $($name:ident),+ $(,)?);+ $(;)?) => {
        cases!(@ $parent [$($module: $($name),+);+])
    };
    (@ $parent:ident [$($module:ident: $($name:ident),+);+]) => {
        &[$($((concat!(stringify!($module), "::", stringify!($name)), |world| Box::pin(crate::$parent::$module::$name(world)))),+),+]
    };
}
pub(crate) use cases;

/// Runs the tests that the command line selects.
pub(crate) fn run<F>(cases: &[Case], start: impl FnOnce() -> F) -> ExitCode
where
    F: Future<Output = Result<World>>,
{
    run_all(cases, &Arguments::from_args(), start)
}

/// As [`run`], for tests that wait more than they compute: this many at a time, unless the command
/// line sets another number.
pub(crate) fn run_side_by_side<F>(
    cases: &[Case],
    threads: usize,
    start: impl FnOnce() -> F,
) -> ExitCode
where
    F: Future<Output = Result<World>>,
{
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(threads);
    run_all(cases, &arguments, start)
}

fn run_all<F>(cases: &[Case], arguments: &Arguments, start: impl FnOnce() -> F) -> ExitCode
where
    F: Future<Output = Result<World>>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let wanted = |name: &str| {
        let matches = |filter: &String| match arguments.exact {
            true => name == filter,
            false => name.contains(filter.as_str()),
        };
        arguments.filter.as_ref().is_none_or(matches) && !arguments.skip.iter().any(matches)
    };
    // No control plane for listing, nor for a filter that selects no test of this suite.
    let needed = !arguments.list && cases.iter().any(|(name, _)| wanted(name));
    let world = needed.then(|| {
        Arc::new(
            runtime
                .block_on(start())
                .unwrap_or_else(|error| panic!("no control plane, so no test can run: {error:#}")),
        )
    });
    let trials = cases.iter().map(|&(name, case)| {
        let world = world.clone();
        let handle = runtime.handle().clone();
        Trial::test(name, move || {
            let world = world.ok_or("no control plane was started")?;
            handle.block_on(case(world)).map_err(|error| format!("{error:#}").into())
        })
    });
    let conclusion = libtest_mimic::run(arguments, trials.collect());
    if let Some(world) = world.and_then(Arc::into_inner) {
        runtime.block_on(world.stop(conclusion.has_failed()));
    }
    conclusion.exit_code()
}
