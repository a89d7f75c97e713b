//! The webhook as a process, met by clients that misbehave on purpose.
//!
//! The clients write their bytes by hand: a library would not send what these tests are about. Tests
//! are named for the rows of the fault matrix that they show. Nothing here measures time; bounds
//! are wide and only tell "ends" from "hangs".

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

#[path = "common/pods.rs"]
mod pods;

mod webhook {
    pub(crate) mod client;
    pub(crate) mod pool;
    pub(crate) mod process;

    mod certificates;
    mod limits;
    mod operation;
    mod protocol;
    mod reviews;
    mod stop;
}
