//! The tags of pools, and the labels of the nodes that have them.

use std::fmt;

use crate::placement::intent::{NodeTerm, on_labels};
use crate::systems::View;
use crate::systems::check::words::{nodes, some};

/// The node label of a pool with one tag: `streams.ibm.com/hostpool=<tag>` (Streams design, "Any
/// host from a hostpool").
pub(crate) const TAG_KEY: &str = "streams.ibm.com/hostpool";

/// The prefix of the node labels of pools with several tags. A node must have all of them, and one
/// key has one value, so each tag is a key of its own.
pub(crate) const TAG_PREFIX: &str = "hostpool.streams.ibm.com/";

/// Formats the only tag of a pool as nodes are indexed by it.
pub(super) fn only_tag(name: &str) -> Box<str> {
    format!("{TAG_KEY}={name}").into()
}

/// Formats one of several tags of a pool as nodes are indexed by it.
pub(super) fn one_of_tags(name: &str) -> Box<str> {
    format!("{TAG_PREFIX}{name}").into()
}

/// A function that formats a tag as nodes are indexed by it.
type FormatTag = fn(&str) -> Box<str>;

/// The tags of a pool: its nodes have all of them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Tags {
    /// The tags as the author of the pool writes them.
    pub names: Vec<Box<str>>,
    /// The tags as nodes are indexed by them: labels with a value for one tag, keys of labels for several.
    pub keys: Vec<Box<str>>,
}

/// The tags of a pool that has none.
pub(super) static NO_TAGS: Tags = Tags { names: Vec::new(), keys: Vec::new() };

impl Tags {
    /// Returns the tags with these names, which the author of a pool writes.
    pub(crate) fn new<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let names: Vec<Box<str>> = names.into_iter().map(Into::into).collect();
        let format = if names.len() == 1 { only_tag } else { one_of_tags };
        Self { keys: names.iter().map(|name| format(name)).collect(), names }
    }

    /// Returns true if there is no tag.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns true if they are all among the tags of a node.
    pub(crate) fn are_among(&self, present: &[Box<str>]) -> bool {
        has_tags(present, &self.keys)
    }

    /// Returns the term that selects the nodes with these tags.
    pub(crate) fn term(&self) -> NodeTerm {
        let labels = self.keys.iter().map(|key| match key.split_once('=') {
            Some((key, tag)) => (key, Some(tag)),
            None => (&**key, None),
        });
        on_labels(&labels.collect::<Vec<_>>())
    }

    /// Returns the labels of a node with these tags as `kubectl label` takes them, for people.
    pub(crate) fn labels(&self) -> String {
        let label = |key: &str| if key.contains('=') { key.to_owned() } else { format!("{key}=") };
        self.keys.iter().map(|key| label(key)).collect::<Vec<String>>().join(" and ")
    }

    /// Says in brackets which tags nodes have in the form that does not count for this pool: one
    /// key has one value, so a pool with several tags is found by other labels than one with one tag. Empty if
    /// no node has any.
    pub(crate) fn in_other_form(&self, view: &View) -> String {
        let (own_form, other_form, counts): (FormatTag, FormatTag, _) = match self.names.len() {
            1 => (only_tag, one_of_tags, "several tags"),
            _ => (one_of_tags, only_tag, "one tag"),
        };
        let find = |name: &str| {
            let other = [other_form(name)];
            if view.nodes_with_tags(&other) == 0 {
                return None;
            }
            let own = [own_form(name)];
            let is_other = |node: &&str| {
                let tags = view.node_tags(node);
                has_tags(tags, &other) && !has_tags(tags, &own)
            };
            let mut found: Vec<&str> =
                view.nodes().map(|(node, _)| node).filter(is_other).collect();
            found.sort_unstable();
            (!found.is_empty()).then(|| format!("{} on {}", other[0], nodes(&found)))
        };
        match &*self.names.iter().filter_map(|name| find(name)).collect::<Vec<String>>() {
            [] => String::new(),
            found => format!(" ({} counts only for a pool with {counts})", some(found)),
        }
    }
}

/// The tags after the nodes of a pool: ` tagged a and b`, or nothing.
impl fmt::Display for Tags {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_empty() {
            true => Ok(()),
            false => write!(formatter, " tagged {}", self.names.join(" and ")),
        }
    }
}

/// Returns true if a node with the tags `present` has all of the others.
pub(crate) fn has_tags(present: &[Box<str>], tags: &[Box<str>]) -> bool {
    tags.iter().all(|tag| present.contains(tag))
}
