//! The arguments of the bench.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};

/// Compares runs of the real Tekton on real nodes without an assistant, with Tekton's own and with stowplan.
#[derive(Debug, Parser)]
#[command(name = "tekton")]
pub(crate) struct Arguments {
    /// How many PipelineRuns each arm creates at once
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=300))]
    pub(crate) runs: u32,
    /// How many real nodes there are; the last one runs Tekton
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(3..=20))]
    pub(crate) nodes: u8,
    /// What is measured, in this order; an arm that is named twice is measured twice
    #[arg(
        long,
        value_name = "ARM,…",
        value_enum,
        value_delimiter = ',',
        default_value = "neither,assistant,stowplan"
    )]
    pub(crate) arms: Vec<Arm>,
    /// An archive with stowplan's image (`cargo testbed image`) [default: it is built]
    #[arg(long, value_name = "FILE", conflicts_with = "profile")]
    pub(crate) image: Option<PathBuf>,
    /// The profile of cargo that stowplan is built with; `quick` builds faster, and stowplan is slower
    #[arg(long, value_name = "NAME", default_value = "release")]
    pub(crate) profile: String,
    /// Also count the requests of each client, by an audit log, which costs time of its own
    #[arg(long)]
    pub(crate) requests: bool,
    /// From cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// How many pods of runs and of those who place them a node has room for: a kubelet runs at most 110 at a time.
const PODS_OF_A_NODE: u32 = 100;

impl Arguments {
    /// Returns an error if the nodes have no room for a task of each run and the pod that keeps its node.
    pub(crate) fn check(&self) -> Result<()> {
        let room = u32::from(self.nodes - 1) * PODS_OF_A_NODE;
        let least = (self.runs * 2).div_ceil(PODS_OF_A_NODE) + 1;
        ensure!(
            self.runs * 2 <= room,
            "--runs {}: each has two pods at a time, and --nodes {} have room for {room}; --nodes {least} has room for all",
            self.runs,
            self.nodes,
        );
        Ok(())
    }
}

/// Who keeps the pods of a run on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Arm {
    /// Nobody: Tekton's flag is `disabled`, and the namespace is ignored by stowplan
    Neither,
    /// Tekton's affinity assistant: its flag is `workspaces`, and the namespace is ignored by stowplan
    Assistant,
    /// stowplan in the mode `workspaces`: Tekton's flag is `disabled`
    Stowplan,
}

impl Arm {
    /// Returns who has placed the pods of its runs, if the arm is as it should be.
    pub(crate) fn placed_by(self) -> PlacedBy {
        PlacedBy { assistant: self == Self::Assistant, stowplan: self == Self::Stowplan }
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Neither => "neither",
            Self::Assistant => "assistant",
            Self::Stowplan => "stowplan",
        })
    }
}

/// The marks of a pod of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PlacedBy {
    /// It has the affinity to an assistant of Tekton.
    pub(crate) assistant: bool,
    /// It has the label of a group of stowplan.
    pub(crate) stowplan: bool,
}
