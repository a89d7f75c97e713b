//! The reasons why a pod cannot be placed as it asks: the stable words that answers, metrics, events, the
//! documentation and `plan -o json` share.

use std::fmt;

use serde::Serialize;

pub use crate::text::{escape, quoted};

/// The check that failed. Checks run in this order, and a refusal leads with its first finding.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Stage {
    /// The request itself is malformed or contradicts itself: 422.
    Syntax,
    /// The administrator's policy does not allow it: 403.
    Policy,
    /// The cluster cannot meet it now: 409.
    Cluster,
    /// It contradicts something else that the pod carries: 422.
    Conflict,
}

impl Stage {
    /// The HTTP status code of a refusal at this stage.
    #[must_use]
    pub fn code(self) -> u16 {
        match self {
            Self::Syntax | Self::Conflict => 422,
            Self::Policy => 403,
            Self::Cluster => 409,
        }
    }
}

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident => $stage:ident,)+) => {
        /// The stable word for one kind of refusal.
        ///
        /// Words are never renamed or re-used: alerts and scripts match on them.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum Reason {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Reason {
            /// Every reason, for documentation and metrics.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The stable word.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }

            /// The check that this reason belongs to.
            #[must_use]
            pub fn stage(self) -> Stage {
                match self { $(Self::$name => Stage::$stage,)+ }
            }
        }
    };
}

reasons! {
    /// A key under one of stowplan's prefixes that looks like a misspelt key of stowplan, or a field that
    /// objects of stowplan's kinds do not have.
    UnknownKey => Syntax,
    /// `host` is neither a name nor an IP address.
    InvalidHost => Syntax,
    /// `host-pool` is not `NAME` or `NAME[INDEX]`.
    InvalidPoolReference => Syntax,
    /// A token is empty, too long, padded, quoted or not a valid list.
    InvalidToken => Syntax,
    /// An operator's name is missing or invalid.
    InvalidOperator => Syntax,
    /// `host-enforcement` is neither `required` nor `preferred`.
    InvalidEnforcement => Syntax,
    /// Two constraints that exclude each other.
    Contradiction => Syntax,
    /// A field of the pod has another value than stowplan would give it.
    FieldConflict => Syntax,
    /// A label that the constraint needs is missing.
    MissingLabel => Syntax,
    /// Several colocation tokens on one pod: the scheduler cannot keep them.
    SeveralTokens => Syntax,
    /// A DaemonSet decides the node of its pods itself.
    DaemonSetPod => Syntax,
    /// `streams-job` is not the name of an object.
    InvalidJobReference => Syntax,
    /// A StreamsJob lacks a required field, or has one that cannot be read.
    MalformedJob => Syntax,
    /// An update changes an immutable part of a StreamsJob.
    ImmutableSpec => Syntax,
    /// A key of an MPI cluster is missing, malformed, or not for this pod.
    InvalidMpi => Syntax,
    /// A NUMA affinity is malformed, would be ignored, or makes Katalyst fail.
    InvalidNumaAffinity => Syntax,
    /// The value of `coschedule` is not a mode.
    InvalidMode => Syntax,
    /// The value of `coschedule-group` is not a valid name of a group.
    InvalidGroup => Syntax,
    /// The description of a pool is malformed.
    MalformedPool => Syntax,
    /// Two pools, processing elements or operators have the same name.
    DuplicateName => Syntax,
    /// An operator names a pool that its job does not describe.
    UndefinedPool => Syntax,
    /// Operators that must share a host are bound to different hosts.
    NoCommonHost => Syntax,
    /// Of operators that must share a host, only some are in an exclusive pool.
    ExclusivePoolSplit => Syntax,
    /// Operators that must be on different hosts must also share one.
    ExlocatedTogether => Syntax,
    /// More operators must be on different hosts than the pool has hosts.
    TooManyExlocated => Syntax,
    /// An operator that must be alone on its host must also share it.
    IsolationShared => Syntax,
    /// The pod's processing element is not in its StreamsJob.
    NotInJob => Syntax,
    /// The policy turns host pools off, or not on for this namespace.
    PoolNotAllowed => Policy,
    /// The policy does not allow MPI clusters in this namespace.
    MpiNotAllowed => Policy,
    /// The policy does not allow the value of `coschedule`.
    ModeNotAllowed => Policy,
    /// A NUMA affinity selects by a label that Katalyst's agents do not keep.
    LabelNotDeclared => Policy,
    /// The HostPool belongs to another job, or to another namespace.
    PoolReserved => Policy,
    /// The namespace would have more HostPools than the policy allows.
    TooManyPools => Policy,
    /// The namespace would hold more exclusive nodes than the policy allows.
    TooManyExclusiveNodes => Policy,
    /// The namespace has no StreamsJob of this name.
    UnknownJob => Cluster,
    /// The pod's StreamsJob cannot be placed.
    JobNotAccepted => Cluster,
    /// Fewer nodes carry the pool's tags than the pool must have hosts.
    InsufficientNodes => Cluster,
    /// No node has this name or address.
    UnknownHost => Cluster,
    /// The node belongs to another job's exclusive HostPool.
    HostReserved => Cluster,
    /// Several nodes have this name or address.
    AmbiguousHost => Cluster,
    /// The namespace has no HostPool of this name.
    UnknownPool => Cluster,
    /// The HostPool is invalid.
    InvalidPool => Cluster,
    /// The HostPool has no members yet.
    PoolNotReady => Cluster,
    /// The HostPool has no member with this index.
    IndexOutOfRange => Cluster,
    /// No node carries the HostPool's tags.
    NoTaggedNode => Cluster,
    /// The pod's colocation group already runs on another node.
    GroupElsewhere => Cluster,
    /// `spec.nodeName` names another node, or conflicts with a scheduling gate.
    NodeNameConflict => Conflict,
    /// The pod's own node affinity excludes the placement.
    NodeAffinityConflict => Conflict,
    /// The pod's own required pod affinity cannot be combined with stowplan's.
    PodAffinityConflict => Conflict,
    /// A label that stowplan sets has another value already.
    LabelConflict => Conflict,
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// One problem, with its subject and its remedy, for the author of the object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// The stable word.
    pub reason: Reason,
    /// The subject: an annotation key, a label key, an object.
    pub subject: String,
    /// The problem.
    pub problem: String,
    /// The remedy.
    pub remedy: String,
}

impl Finding {
    /// The longest subject and the longest problem, in characters: some list every node of a kind.
    pub const LIMIT: usize = 1024;

    /// A finding about `subject`. Control characters are escaped, and long texts are cut.
    pub fn new(
        reason: Reason,
        subject: impl Into<String>,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            reason,
            subject: escape_and_cut(&subject.into()),
            problem: escape_and_cut(&problem.into()),
            remedy: remedy.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}; {}", self.subject, self.problem, self.remedy)
    }
}

/// A warning that the API server passes on to the client.
///
/// At most [`Warning::LIMIT`] characters, the key first: the API server passes on 256 of each warning,
/// and 4,096 of all warnings of an answer.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Warning(String);

impl Warning {
    /// The longest warning, in characters.
    pub const LIMIT: usize = 256;

    /// A warning about `key`.
    #[must_use]
    pub fn new(key: &str, text: &str) -> Self {
        Self(shorten(&format!("{}: {text}", escape(key)), Self::LIMIT))
    }

    /// A warning that `finding` is not refused: `effect` says what becomes of its subject. If it is
    /// too long, the problem is cut, never the remedy.
    #[must_use]
    pub fn of_finding(effect: &str, finding: &Finding) -> Self {
        let Finding { reason, subject, problem, remedy } = finding;
        let text = |problem: &str| format!("{subject}: {effect} ({reason}): {problem}; {remedy}");
        let least = text("").chars().count();
        let left = Self::LIMIT.saturating_sub(least).max(1);
        Self(shorten(&text(&shorten(problem, left)), Self::LIMIT))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Escapes the characters of `text` that mislead, so that it stays on one line, and cuts it to the
/// limit.
fn escape_and_cut(text: &str) -> String {
    // Cut before, too, so that a text of 256 KiB costs no more than one of the limit.
    shorten(&escape(&shorten(text, Finding::LIMIT + 1)), Finding::LIMIT)
}

/// `text`, cut to at most `limit` characters with an ellipsis at the end.
#[must_use]
pub(crate) fn shorten(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        None => text.to_owned(),
        Some(_) => text.chars().take(limit.saturating_sub(1)).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_warning_is_cut_on_a_character_and_keeps_the_remedy_of_a_finding() {
        let nodes = "né, ".repeat(200);
        let finding = Finding::new(Reason::AmbiguousHost, "streams.ibm.com/host", nodes, "mend it");
        let warning = Warning::of_finding("not placed", &finding);
        let text = warning.as_str();
        assert_eq!(text.chars().count(), Warning::LIMIT);
        assert!(text.starts_with("streams.ibm.com/host: not placed (AmbiguousHost): né, né"));
        assert!(text.ends_with("…; mend it"), "{text}");
        let short = Finding { problem: "is odd".to_owned(), ..finding };
        let text = "streams.ibm.com/host: not placed (AmbiguousHost): is odd; mend it";
        assert_eq!(Warning::of_finding("not placed", &short).as_str(), text);
        let any = Warning::new("streams.ibm.com/host", &"é".repeat(300));
        assert_eq!(any.as_str().chars().count(), Warning::LIMIT);
    }

    #[test]
    fn a_finding_has_no_control_characters_and_is_cut() {
        let find = |problem: &str| Finding::new(Reason::UnknownPool, "k", problem, "r").problem;
        assert_eq!(find("in a\u{1b}[31m\nb\u{202e}"), r"in a\u{1b}[31m\nb\u{202e}");
        let nodes = "n1, ".repeat(100_000);
        let cut = find(&nodes);
        assert_eq!(cut.chars().count(), Finding::LIMIT);
        assert!(nodes.starts_with(cut.trim_end_matches('…')) && cut.ends_with('…'));
        let long = "é".repeat(Finding::LIMIT);
        assert_eq!(find(&long), long);
    }
}
