//! The real nodes of one control plane.

use std::path::Path;

use anyhow::{Result, ensure};

use super::claim::Claim;
use super::disks;
use super::node::{FOLDER, Node, PAUSE, PAUSE_IMAGE};
use super::{MOST, RealNodes};
use crate::image::{Image, Layer};
use crate::tools::{self, NodeTools};

/// Their programs, and the right to have them.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) tools: NodeTools,
    pub(crate) options: RealNodes,
    /// In order, once they were started.
    pub(crate) nodes: std::sync::OnceLock<Vec<Node>>,
    _claim: Claim,
}

impl Cluster {
    /// Builds what is missing, and removes what a killed cluster has left. Blocks.
    pub(crate) fn prepare(options: &RealNodes, run_directory: &Path) -> Result<Self> {
        super::check()?;
        ensure!(
            (1..=MOST).contains(&options.count),
            "{} real nodes: choose 1 to {MOST}",
            options.count,
        );
        let tools = NodeTools::ensure(&tools::to_stderr)?;
        let claim = Claim::take(run_directory)?;
        let folder = run_directory.join(FOLDER);
        std::fs::create_dir_all(&folder)?;
        disks::install(run_directory)?;
        let (name, tag) = PAUSE_IMAGE;
        let program = std::fs::read(tools.program("pause"))?;
        Image {
            name: name.to_owned(),
            tag: tag.to_owned(),
            layers: vec![Layer::Program("pause", program)],
            entrypoint: vec!["/pause".to_owned()],
            user: "65535:65535".to_owned(),
            ..Image::default()
        }
        .write(&folder.join(PAUSE))?;
        Ok(Self {
            tools,
            options: options.clone(),
            nodes: std::sync::OnceLock::new(),
            _claim: claim,
        })
    }
}
