//! How often the simulators of the reconcilers run.

use proptest::test_runner::Config;

/// The number of cases of a property without an own number.
const USUAL: u32 = 256;

/// The longest time in milliseconds that a failing case is made smaller: a case that never rests takes seconds.
const LONGEST: u32 = 60_000;

/// The configuration of a simulator: `default` cases, because each one makes many plans, or as many as
/// the environment variable `PROPTEST_CASES` says, which proptest reads.
pub(crate) fn cases(default: u32) -> Config {
    let config = Config::default();
    let cases = if config.cases == USUAL { default } else { config.cases };
    Config { cases, max_shrink_time: LONGEST, ..config }
}
