//! The events that explain to users why members wait, each with its stable reason.

use std::fmt;

use super::next::Trouble;
use super::reason;
use crate::view::Resources;

/// Why members of a group wait.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Why {
    /// An earlier run or group uses one of its claims. The text of the event.
    SharedClaim(String),
    /// The StatefulSet with this name has no pod.
    NotMade(Box<str>),
    /// The placeholder has no node.
    NotPlaced {
        /// Its name.
        placeholder: Box<str>,
        /// The room that it reserves.
        room: Resources,
        /// The scheduler's message.
        message: String,
    },
    /// The placeholder should leave its node, but no other node is eligible.
    NoOtherNode(Trouble),
    /// A member still runs. The text of the event.
    Members(String),
    /// The placeholder should leave its node, but only that node can mount the group's volumes, which
    /// are described.
    Pinned(Trouble, String),
    /// The scheduler refuses the waiting pods on the group's node.
    Unschedulable {
        /// The node.
        node: Box<str>,
        /// The scheduler's message; `None` about pods that it does not look at, because they are gated.
        message: Option<String>,
    },
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
            Self::NotPlaced { .. } | Self::NoOtherNode(_) => reason::PLACEHOLDER_NOT_PLACED,
            Self::Members(_) => reason::WAITS_FOR_MEMBERS,
            Self::Pinned(..) => reason::VOLUME_PINS_NODE,
            Self::Unschedulable { .. } => reason::MEMBERS_UNSCHEDULABLE,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SharedClaim(note) | Self::Members(note) => formatter.write_str(note),
            Self::NotMade(name) => write!(
                formatter,
                "StatefulSet {name} has no pod; a quota, Pod Security or a priority class that does not exist may be the cause, see its events (kubectl describe statefulset {name})"
            ),
            Self::NotPlaced { placeholder, room, message } => {
                write!(formatter, "placeholder {placeholder}")?;
                if !room.is_zero() {
                    write!(formatter, ", which reserves {room} for its group,")?;
                }
                write!(formatter, " has no node: {message}")
            }
            Self::NoOtherNode(trouble) => {
                write!(formatter, "{trouble}, and no other node is eligible for the placeholder")
            }
            Self::Pinned(trouble, pins) => write!(formatter, "{trouble}, and {pins}"),
            Self::Unschedulable { node, message } => {
                write!(
                    formatter,
                    "node {node}, where the group is, does not take the waiting pods"
                )?;
                match message {
                    Some(message) => write!(formatter, "; the scheduler says: {message}"),
                    None => Ok(()),
                }
            }
        }
    }
}
