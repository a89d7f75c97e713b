//! The events that explain to users why members wait, each with its stable reason.

use std::fmt;

use super::reason;

/// The reasons why members of a group wait, each with the text of its event.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Why {
    /// An earlier run or group uses one of its claims.
    SharedClaim(String),
    /// The StatefulSet has no pod.
    NotMade(String),
    /// The placeholder has no node.
    NotPlaced(String),
    /// The placeholder should leave its node, but no other node is eligible.
    NoOtherNode(String),
    /// A member still runs.
    Members(String),
    /// The placeholder should leave its node, but only that node can mount the group's volumes, which
    /// the second text describes.
    Pinned(String, String),
    /// The scheduler refuses the waiting pods on the group's node.
    Unschedulable(String),
}

impl Why {
    /// The reasons of all its events, which are about states.
    pub(super) const REASONS: &'static [&'static str] = &[
        reason::SHARED_CLAIM,
        reason::PLACEHOLDER_NOT_MADE,
        reason::PLACEHOLDER_NOT_PLACED,
        reason::WAITS_FOR_MEMBERS,
        reason::VOLUME_PINS_NODE,
        reason::MEMBERS_UNSCHEDULABLE,
    ];

    /// The reason of its events.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::SharedClaim(_) => reason::SHARED_CLAIM,
            Self::NotMade(_) => reason::PLACEHOLDER_NOT_MADE,
            Self::NotPlaced(_) | Self::NoOtherNode(_) => reason::PLACEHOLDER_NOT_PLACED,
            Self::Members(_) => reason::WAITS_FOR_MEMBERS,
            Self::Pinned(..) => reason::VOLUME_PINS_NODE,
            Self::Unschedulable(_) => reason::MEMBERS_UNSCHEDULABLE,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::SharedClaim(note)
        | Self::NotMade(note)
        | Self::NotPlaced(note)
        | Self::NoOtherNode(note)
        | Self::Members(note)
        | Self::Pinned(note, _)
        | Self::Unschedulable(note)) = self;
        formatter.write_str(note)
    }
}
