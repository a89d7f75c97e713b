//! Previews for the command `plan` of objects from which a controller creates other objects: the
//! claims and pods of a PipelineRun, and the check of a complete StreamsJob.
//!
//! A system imitates that controller as far as placement is concerned and passes each created
//! object to the function `decide`, a parameter: this module does not depend on admission.

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::systems::View;
use crate::systems::policy::Policy;
use crate::view::Name;
use crate::view::resource::Resource;

/// Ends a sentence whose statement could differ if a cluster were given.
pub const NO_CLUSTER: &str = "(no cluster given: use --cluster or --live)";

/// The beginning of the UID of an object of the input that the API server has not created yet.
pub const ASSUMED_UID: &str = "assumed UID of ";

/// A kind of objects that a system previews.
#[derive(Debug)]
pub struct PreviewedKind {
    /// The kind; objects of every version are previewed.
    pub resource: Resource,
    /// Adds to an object from a file the fields that the API server would set at its creation,
    /// before the object is added to the View. `None`: there are none.
    pub complete: Option<CompleteFn>,
    /// Previews one object.
    ///
    /// # Errors
    /// If the object is invalid, or one that would be created from it.
    pub preview: PreviewFn,
}

/// The inputs for completing an object from a file. Its name is set already.
#[derive(Clone, Copy, Debug)]
pub struct Completion<'d> {
    /// Identifies the object among all objects of the input.
    pub position: &'d str,
    /// The time of its creation.
    pub now: Timestamp,
}

/// The object to be previewed.
#[derive(Clone, Copy, Debug)]
pub struct Given<'d> {
    /// Its namespace, and its name in the View.
    pub name: &'d Name,
    /// The object as written in the file, with `apiVersion` and `kind`.
    pub document: &'d Value,
    /// True if the View contains the objects of a cluster.
    pub has_cluster: bool,
}

/// Several objects of the input together, such as the workloads of a cluster, and what the controller makes
/// for them.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Whole {
    pub system: &'static str,
    /// The kind, for people and programs; Kubernetes does not know it.
    pub kind: &'static str,
    pub namespace: String,
    pub name: String,
    /// The objects that the controller creates, without generated content.
    pub makes: Vec<Value>,
    /// The reason why the controller does not let it start; `None`: it does.
    pub problem: Option<String>,
    /// True if the problem is in the input, and not in what is missing beside it.
    #[serde(skip)]
    pub is_refused: bool,
    /// Lines for people, without an indent.
    #[serde(skip)]
    pub text: Vec<String>,
}

/// The explanation that a system shows of pods, beside the decision.
#[derive(Debug)]
pub struct Explanation {
    /// The annotation keys of the pods that it is about.
    pub keys: &'static [&'static str],
    /// True if it depends on the pods of all namespaces.
    pub needs_all_pods: fn(&View) -> bool,
    /// Explains a pod of the View. `None`: there is nothing to show.
    pub explain: fn(&View, &Policy, &Name) -> Option<Explained>,
}

/// The explanation of a pod.
#[derive(Clone, Debug, Default)]
pub struct Explained {
    /// Lines for people, indented; each ends with a line feed.
    pub text: String,
    /// The reason why the pod waits behind a gate of stowplan.
    pub waits: Option<String>,
    /// Fields for programs.
    pub fields: Map<String, Value>,
}

/// Completes the metadata of an object from a file.
pub(crate) type CompleteFn = fn(&mut Map<String, Value>, &Completion<'_>);

/// Previews one object.
pub(crate) type PreviewFn =
    fn(&Given<'_>, &mut View, &Policy, Decide<'_>) -> Result<Preview, String>;

/// Decides on the creation of an object of a kind, in the namespace of the previewed object.
///
/// # Errors
/// If the object is not valid for its kind.
pub(crate) type Decide<'d> = &'d mut dyn FnMut(&Resource, &Value, &View) -> Result<Decided, String>;

/// The parts of a decision that previews use.
#[derive(Clone, Debug)]
pub struct Decided {
    /// The index among all decisions of this preview.
    pub number: usize,
    pub verdict: Verdict,
    /// The changes to the object, each as a line of text.
    pub changes: Vec<String>,
    /// The warnings for the object's author.
    pub warnings: Vec<String>,
    /// The message of a refusal.
    pub refusal: Option<String>,
}

/// The result of a decision.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// No system concerns the object.
    Passed,
    /// The object is admitted without changes.
    Admitted,
    /// The object is admitted with changes, or with those of an earlier admission round.
    Placed,
    /// The object is refused.
    Refused,
}

/// The preview of one object.
#[derive(Clone, Debug, Default)]
pub struct Preview {
    /// The decision that represents the object, by [`Decided::number`]. `None`: there was no
    /// decision.
    pub decision: Option<usize>,
    /// True if that decision is about the object itself, so that its patch applies to it.
    pub is_of_object: bool,
    /// The result in a few words. `None`: that of the decision.
    pub verdict: Option<String>,
    /// Further lines for people, indented; each ends with a line feed.
    pub text: String,
    /// Further fields for programs.
    pub fields: Map<String, Value>,
    /// The reason why its pod waits behind a gate of stowplan, once it is admitted.
    pub waits: Option<String>,
    /// True if the object is accepted and yet not ready, as `text` explains.
    pub is_unready: bool,
    /// Unknown facts that could change the decision.
    pub unknown: Option<String>,
    /// Names that depend on a UID which does not exist yet, each with the object that will have it.
    pub assumed: Vec<(String, String)>,
}
