//! Says which members a pool lacks, and why.

use super::choose::{Choice, Refusal};
use super::status::Readiness;
use super::truncate;
use crate::systems::View;
use crate::systems::streams::obstacle::join;
use crate::systems::streams::reasons::PoolReason;

/// The members that a pool lacks, and the reasons.
#[derive(Debug, Default)]
pub(super) struct Lack {
    /// Messages about members that wait for a pod on another node to end.
    pub(super) held: Vec<String>,
    /// The indices of lost members that got no node.
    pub(super) vacant: Vec<u32>,
    /// The number of members that are not recorded yet and got no node.
    pub(super) fresh: usize,
    /// Messages about listed hosts that are not exactly one node.
    unknown: Vec<String>,
    /// Messages about listed hosts that the pool cannot have.
    ineligible: Vec<String>,
    /// The number of nodes that are needed, and of those that are eligible.
    needs: String,
    /// The number of nodes that are needed and not eligible.
    pub(super) missing: usize,
}

impl Lack {
    pub(super) fn add(&mut self, refusal: Refusal) {
        match refusal {
            Refusal::NoneEligible => {}
            Refusal::Unknown(problem) => self.unknown.push(problem),
            Refusal::Ineligible(problem) => self.ineligible.push(problem),
        }
    }

    /// Sets `needs` after all nodes are chosen. The pool keeps `kept` nodes and gives up
    /// `released`.
    pub(super) fn format_needs(
        &mut self,
        choice: &Choice<'_>,
        kept: usize,
        released: usize,
        view: &View,
    ) {
        let need = self.vacant.len() + self.fresh;
        if let (1.., Choice::Free { eligible, .. }) = (need, choice) {
            self.missing = need.saturating_sub(eligible.len() + released);
            let nodes = if need == 1 { "node" } else { "nodes" };
            let other = if kept > 0 { "more " } else { "" };
            self.needs =
                format!("needs {need} {other}{nodes}, {}", choice.format_counts(released, view));
        }
    }

    pub(super) fn into_shortfall(self, limit: Option<&str>) -> Option<Readiness> {
        let reason = if !self.unknown.is_empty() {
            PoolReason::UnknownHost
        } else if !self.held.is_empty() || !self.vacant.is_empty() || self.fresh > 0 {
            PoolReason::InsufficientNodes
        } else {
            let message = limit?.to_owned();
            return Some(Readiness { reason: PoolReason::TooManyExclusiveNodes, message });
        };
        let mut parts = Vec::new();
        if let [index] = self.vacant.as_slice() {
            parts.push(format!("member {index} is vacant"));
        } else if !self.vacant.is_empty() {
            let indices = self.vacant.iter().map(u32::to_string).collect();
            parts.push(format!("members {} are vacant", join(indices)));
        }
        parts.extend(Some(self.needs).filter(|needs| !needs.is_empty()));
        parts.extend([self.unknown, self.ineligible, self.held].into_iter().flat_map(truncate));
        parts.extend(limit.map(str::to_owned));
        Some(Readiness { reason, message: parts.join("; ") })
    }
}
