//! Invalid and hostile input, and the documented answer to each.
//!
//! Bytes that are not a review are an error (the server answers 400, and the cluster's
//! failurePolicy decides); a review whose pod has a malformed request is refused, and the refusal
//! names the key; a review of anything else is passed. Nothing panics, and no answer or error grows
//! with the input.

pub(crate) mod input;

/// Nulls, duplicate keys, nesting, encodings, numbers and wrong types.
mod json;
/// Values, lists and maps that are far too long.
mod large;
/// The review around the object: versions, operations, resources, the request and its uid.
mod review;
/// PipelineRuns of wrong shapes and of great size.
mod run;
