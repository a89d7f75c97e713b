//! Tests of pools on a simulated cluster.

#![allow(clippy::needless_pass_by_value, reason = "documents are written where they are given")]

mod acceptance;
mod exclusive;
mod members;
mod random;
mod release;
mod replacement;
mod simulator;
mod waiting;

use serde_json::{Value, json};

/// A merge patch that gives a node these labels.
fn labels(labels: Value) -> Value {
    json!({"metadata": {"labels": labels}})
}
