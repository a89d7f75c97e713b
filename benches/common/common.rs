//! Parts that benches share: control planes, processes, counted instructions, objects and tables.

#![allow(dead_code, reason = "each bench uses its own part")]

pub(crate) mod answers;
pub(crate) mod callgrind;
pub(crate) mod objects;
pub(crate) mod plane;
pub(crate) mod player;
pub(crate) mod process;
pub(crate) mod server;
pub(crate) mod table;
