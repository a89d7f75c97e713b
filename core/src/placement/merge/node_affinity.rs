//! Adds required node affinity to what the pod has.
//!
//! Each of the pod's own terms is combined with each of the wanted alternatives: a term that implies an
//! alternative stays as it is, and alternatives that a term excludes are left out. If every term keeps
//! at most one alternative, its requirements are appended to the term; else the list of terms is
//! written anew.

use k8s_openapi::api::core::v1::NodeSelectorTerm;
use serde_json::{Value, json};

use super::Merge;
use crate::kubernetes::{NODE_TERMS, REQUIRED, required_node_terms};
use crate::placement::affinity::{Requirement, Requirements, excludes, implies, matches_nothing};
use crate::placement::intent::{Change, NodeTerm};
use crate::placement::patch::Editor;
use crate::placement::pod::Pod;
use crate::placement::reason::{Finding, Reason};

/// The most node selector terms that a merge creates. Every scheduling attempt reads them all; 1,000
/// were seen to be accepted and scheduled.
pub(super) const MAX_NODE_TERMS: usize = 256;

/// A node selector term with the requirements that were added to it.
#[derive(Clone)]
struct Term<'t> {
    /// The pod's own term and its index; `None` if the pod has no required node affinity.
    own: Option<(usize, &'t NodeSelectorTerm)>,
    /// The requirements that are added to it.
    added: Vec<&'t NodeTerm>,
}

impl<'t> Term<'t> {
    fn with(&self, alternative: &'t NodeTerm) -> Self {
        let added = self.added.iter().copied().chain([alternative]).collect();
        Self { own: self.own, added }
    }
}

impl Requirements for Term<'_> {
    fn fields(&self) -> impl Iterator<Item = Requirement<'_>> {
        let own = self.own.iter().flat_map(|(_, term)| term.fields());
        own.chain(self.added.iter().flat_map(|term| term.fields()))
    }

    fn expressions(&self) -> impl Iterator<Item = Requirement<'_>> {
        let own = self.own.iter().flat_map(|(_, term)| term.expressions());
        own.chain(self.added.iter().flat_map(|term| term.expressions()))
    }
}

/// The result of combining terms with alternatives.
struct Combined<'t> {
    terms: Vec<Term<'t>>,
    /// True if a node can match one of the terms, as far as [`excludes`] sees.
    is_possible: bool,
    /// True if a term was combined with several alternatives, and so became several terms.
    is_multiplied: bool,
}

impl Merge<'_> {
    /// Adds the node affinity of the intents to the pod's own.
    pub(super) fn add_node_affinity(&mut self) {
        let requests = self.intents.iter().filter_map(|intent| match &intent.change {
            Change::NodeAffinity(alternatives) => Some((intent.key, alternatives.as_slice())),
            _ => None,
        });
        match combine_all(self.pod, &requests.collect::<Vec<_>>()) {
            Ok((terms, is_multiplied)) => write(self.pod, &terms, is_multiplied, &mut self.editor),
            Err(finding) => self.findings.push(finding),
        }
    }
}

/// Combines the pod's own terms with the alternatives of each request (its annotation key and its
/// alternatives). Also returns whether terms were multiplied.
fn combine_all<'t>(
    pod: &'t Pod<'_>,
    requests: &[(&'static str, &'t [NodeTerm])],
) -> Result<(Vec<Term<'t>>, bool), Finding> {
    let conflict = |key: &str, problem: String, remedy: &str| {
        Err(Finding::new(Reason::NodeAffinityConflict, key, problem, remedy))
    };
    let Some(&(first, _)) = requests.first() else { return Ok((Vec::new(), false)) };
    let mut terms = own_terms(pod);
    if terms.is_empty() {
        let problem = "the pod's required node affinity has only empty terms, which match no node";
        let remedy = "remove the empty terms from nodeSelectorTerms";
        return conflict(first, problem.to_owned(), remedy);
    }
    let mut is_multiplied = false;
    for &(key, alternatives) in requests {
        let combined = combine(&terms, alternatives);
        if !combined.is_possible {
            let problem = "the pod's own required node affinity excludes every node that would do";
            let remedy = "change the pod's nodeAffinity, or this constraint";
            return conflict(key, problem.to_owned(), remedy);
        }
        // The pod's own terms may be more.
        if combined.terms.len() > MAX_NODE_TERMS.max(terms.len()) {
            let problem = format!(
                "{} node selector terms would be needed, at most {MAX_NODE_TERMS} are made",
                combined.terms.len()
            );
            let remedy = "use fewer terms in the pod's nodeAffinity, or a smaller pool";
            return conflict(key, problem, remedy);
        }
        is_multiplied |= combined.is_multiplied;
        terms = combined.terms;
    }
    Ok((terms, is_multiplied))
}

/// The pod's own terms that are not empty. Without required node affinity, one that allows every node.
fn own_terms<'t>(pod: &'t Pod<'_>) -> Vec<Term<'t>> {
    let Some(present) = required_node_terms(Some(&pod.affinity)) else {
        return vec![Term { own: None, added: Vec::new() }];
    };
    let own = present.iter().enumerate().filter(|&(index, term)| !is_empty(pod, index, term));
    own.map(|own| Term { own: Some(own), added: Vec::new() }).collect()
}

/// Combines each term with the alternatives that it does not exclude.
fn combine<'t>(terms: &[Term<'t>], alternatives: &'t [NodeTerm]) -> Combined<'t> {
    let mut combined = Combined {
        terms: Vec::with_capacity(terms.len()),
        is_possible: false,
        is_multiplied: false,
    };
    for term in terms {
        if alternatives.iter().any(|alternative| implies(term, alternative)) {
            combined.is_possible = true;
            combined.terms.push(term.clone());
            continue;
        }
        let before = combined.terms.len();
        let possible = alternatives.iter().filter(|alternative| !excludes(term, *alternative));
        combined.terms.extend(possible.map(|alternative| term.with(alternative)));
        match combined.terms.len() - before {
            // The user's term is kept although no node can match it any more.
            0 => combined.terms.extend(alternatives.first().map(|first| term.with(first))),
            1 => combined.is_possible = true,
            _ => {
                combined.is_possible = true;
                combined.is_multiplied = true;
            }
        }
    }
    combined
}

fn write(pod: &Pod<'_>, terms: &[Term<'_>], is_multiplied: bool, editor: &mut Editor) {
    if terms.iter().all(|term| term.added.is_empty()) {
        return;
    }
    let Some(present) = required_node_terms(Some(&pod.affinity)).filter(|_| !is_multiplied) else {
        let documents = terms.iter().map(|term| build_document(pod, term)).collect();
        editor.set_list(&NODE_TERMS, documents);
        return;
    };
    append_requirements(terms, editor);
    // From the end, so that the indexes before stay valid.
    for (index, term) in present.iter().enumerate().rev() {
        if is_empty(pod, index, term) {
            editor.remove(&path(&[&index.to_string()]));
        }
    }
}

/// Appends what was added to the pod's own terms, which keep their indexes.
fn append_requirements(terms: &[Term<'_>], editor: &mut Editor) {
    for term in terms {
        let Some((index, _)) = term.own else { continue };
        let index = index.to_string();
        for added in &term.added {
            for requirement in added.fields() {
                editor.append(&path(&[&index, "matchFields"]), json!(requirement));
            }
            for requirement in added.expressions() {
                editor.append(&path(&[&index, "matchExpressions"]), json!(requirement));
            }
        }
    }
}

fn path<'s>(below: &[&'s str]) -> Vec<&'s str> {
    [NODE_TERMS.as_slice(), below].concat()
}

/// Returns the pod's own term as it was sent, or a new one, with the added requirements appended.
fn build_document(pod: &Pod<'_>, term: &Term<'_>) -> Value {
    let own = term.own.and_then(|(index, _)| term_document(pod, index));
    let mut document = own.cloned().unwrap_or_else(|| json!({}));
    let mut append = |member: &str, requirement: Requirement<'_>| {
        let list = &mut document[member];
        if !list.is_array() {
            *list = json!([]);
        }
        if let Value::Array(items) = list {
            items.push(json!(requirement));
        }
    };
    for added in &term.added {
        added.fields().for_each(|requirement| append("matchFields", requirement));
        added.expressions().for_each(|requirement| append("matchExpressions", requirement));
    }
    document
}

fn term_document<'p>(pod: &'p Pod<'_>, index: usize) -> Option<&'p Value> {
    let pointer = format!("/nodeAffinity/{REQUIRED}/nodeSelectorTerms");
    pod.affinity_document.pointer(&pointer)?.get(index)
}

/// Returns true if a term of the pod's own has no content, not even in fields that stowplan does not know.
fn is_empty(pod: &Pod<'_>, index: usize, term: &NodeSelectorTerm) -> bool {
    let nothing = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    let document = term_document(pod, index).and_then(Value::as_object);
    matches_nothing(term) && document.is_none_or(|members| members.values().all(nothing))
}
