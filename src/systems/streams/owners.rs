//! Whose the nodes are: the controller, admission, the judgement of jobs and `check` ask here, so that
//! they agree.

use std::fmt;

use super::kinds::StreamsView as _;
use super::kinds::host_pool::{Form, HostPool};
use super::kinds::node_marks::{has_tags, tag_keys};
use super::resolve::{Resolved, resolve};
use crate::view::{Name, View};

/// Returns the hosts of a pool whose nodes the controller does not mark: those that it lists, or all nodes
/// with its tags. A pool of any node has none for itself.
pub(crate) fn unmarked_hosts<'v>(pool: &'v HostPool, view: &'v View) -> Vec<&'v str> {
    match &pool.form {
        Ok(Form::Literal(hosts)) if !pool.exclusive => {
            let node = |host| match resolve(view, host) {
                Resolved::Node(node) => Some(node),
                Resolved::Unknown | Resolved::Ambiguous(_) => None,
            };
            hosts.iter().filter_map(node).collect()
        }
        Ok(Form::Tagged(tags)) => {
            let tags = tag_keys(tags);
            let nodes = view.nodes().map(|(node, _)| node);
            nodes.filter(|node| has_tags(view.node_tags(node), &tags)).collect()
        }
        Ok(Form::Literal(_) | Form::Any | Form::Sized(..)) | Err(_) => Vec::new(),
    }
}

/// Returns the name of the pool with this hash; `None`: there is no such pool any more.
pub(crate) fn find_pool<'v>(hash: &str, view: &'v View) -> Option<&'v Name> {
    let mut pools = view.host_pools();
    pools.find(|(_, pool)| pool.hash.as_deref() == Some(hash)).map(|(name, _)| name)
}

/// A pool that has a node, in texts for the users of a namespace.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Owner<'v> {
    /// It is of the same namespace.
    Near(&'v str),
    /// Its name is not for the users of this namespace.
    Far,
    /// It does not exist any more.
    Gone,
}

impl<'v> Owner<'v> {
    /// The pool of this name, for the users of `namespace`.
    pub(crate) fn new(pool: Option<&'v Name>, namespace: &str) -> Self {
        match pool {
            Some(pool) if *pool.namespace == *namespace => Self::Near(&pool.name),
            Some(_) => Self::Far,
            None => Self::Gone,
        }
    }
}

impl fmt::Display for Owner<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Near(name) => write!(formatter, "HostPool {name}"),
            Self::Far => formatter.write_str("a pool of another namespace"),
            Self::Gone => formatter.write_str("a deleted pool"),
        }
    }
}
