//! Whose the nodes are: the controller, admission, the judgement of jobs and `check` ask here, so that
//! they agree.

use std::fmt;

use super::resolve::find_node;
use crate::systems::View;
use crate::systems::streams::kinds::{Form, HostPool};
use crate::view::Name;

/// Returns the nodes that a pool of this form may have: those that it lists, those with its tags, or all.
pub(crate) fn nodes_of<'v>(form: &'v Form, view: &'v View) -> Vec<&'v str> {
    if let Form::Literal(hosts) = form {
        return hosts.iter().filter_map(|host| find_node(view, host)).collect();
    }
    let nodes = view.nodes().map(|(node, _)| node);
    nodes.filter(|node| form.tags().are_among(view.node_tags(node))).collect()
}

/// Returns the hosts of a pool whose nodes the controller does not mark: those that it lists, or all nodes
/// with its tags. A pool of any node has none for itself.
pub(crate) fn unmarked_hosts<'v>(pool: &'v HostPool, view: &'v View) -> Vec<&'v str> {
    match &pool.form {
        Ok(form) if !pool.is_labelled() && *form != Form::Any => nodes_of(form, view),
        _ => Vec::new(),
    }
}

/// Returns the pool with this hash; `None`: there is no such pool any more.
pub(crate) fn pool_of_hash<'v>(hash: &str, view: &'v View) -> Option<(&'v Name, &'v HostPool)> {
    view.host_pools().find(|(_, pool)| pool.hash.as_deref() == Some(hash))
}

/// Returns the name of the pool with this hash; `None`: there is no such pool any more.
pub(crate) fn find_pool<'v>(hash: &str, view: &'v View) -> Option<&'v Name> {
    pool_of_hash(hash, view).map(|(name, _)| name)
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
