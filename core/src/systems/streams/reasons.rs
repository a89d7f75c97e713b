//! The reasons of the conditions of HostPools and StreamsJobs: the controller writes them, and `check`
//! has a remedy for each.

macro_rules! reasons {
    ($(#[doc = $doc:literal])+ $name:ident {
        $($(#[doc = $of:literal])+ $reason:ident,)+
    }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub(crate) enum $name {
            $($(#[doc = $of])+ $reason,)+
        }

        impl $name {
            /// All of them.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$reason),+];

            /// The stable word.
            pub(crate) const fn as_str(self) -> &'static str {
                match self { $(Self::$reason => stringify!($reason),)+ }
            }

            /// The reason of this word.
            pub(crate) fn find(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|reason| reason.as_str() == word)
            }
        }
    };
}

reasons! {
    /// A reason of a HostPool.
    PoolReason {
        /// The pool can be served.
        Accepted,
        /// The spec is invalid.
        InvalidPool,
        /// The policy turns pools off, or not on for this namespace.
        NotAllowed,
        /// The namespace has more pools than the policy allows.
        TooManyPools,
        /// The namespace would have more exclusive nodes than the policy allows.
        TooManyExclusiveNodes,
        /// All members have their nodes.
        Allocated,
        /// Nodes are being marked as the pool's.
        Reserving,
        /// Too few nodes are eligible.
        InsufficientNodes,
        /// A listed host is not exactly one node.
        UnknownHost,
        /// No node has the tags.
        NoTaggedNode,
        /// The job of the pool cannot be placed as a whole.
        WaitingForJob,
    }
}

reasons! {
    /// A reason of a StreamsJob, besides those of the findings about its spec.
    JobReason {
        /// The job can be placed.
        Accepted,
        /// The pods can be created.
        PoolsReady,
        /// Pools of the job are not ready yet.
        WaitingForPools,
        /// A HostPool has the name that a pool of the job needs.
        PoolNameTaken,
        /// The condition Accepted is False.
        NotAccepted,
        /// A pod found no room on its reserved node, and others are reserved now.
        NodesReservedAnew,
    }
}
