//! Requests to an API server: lists, and why a request has failed.

use std::error::Error as _;
use std::fmt::Debug;
use std::iter;

use kube::Api;
use kube::api::ListParams;
use serde::de::DeserializeOwned;

use stowplan_core::kubernetes::is_missing_right;

/// The number of objects in one page of a list, as for kubectl.
const PAGE: u32 = 500;

/// The HTTP status codes for a request that is denied, for an object or a kind that does not exist, for
/// an object that has changed, and for a patch that does not apply to it.
pub(super) const FORBIDDEN: u16 = 403;
pub(super) const NOT_FOUND: u16 = 404;
pub(super) const CONFLICT: u16 = 409;
pub(super) const INVALID: u16 = 422;

/// Lists the objects that `wanted` selects, page by page.
pub(super) async fn list_pages<K>(api: &Api<K>, wanted: ListParams) -> kube::Result<Vec<K>>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut parameters = wanted.limit(PAGE);
    let mut objects = Vec::new();
    loop {
        let page = api.list(&parameters).await?;
        objects.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(objects),
        }
    }
}

/// Returns true if the API server answered with one of these codes.
pub(super) fn has_code(error: &kube::Error, codes: &[u16]) -> bool {
    matches!(error, kube::Error::Api(status) if codes.contains(&status.code))
}

/// Returns true if the API server has refused a write with a precondition because the object has changed: the `test` of
/// a JSON patch has failed, or another version is stored. A refusal for another reason has causes.
pub(super) fn has_changed(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let has_causes = status.details.as_ref().is_some_and(|details| !details.causes.is_empty());
    status.code == CONFLICT || status.code == INVALID && !has_causes
}

/// Returns true if the user lacks a right, and the answer is not that of a proxy.
pub(super) fn lacks_right(error: &kube::Error) -> bool {
    has_code(error, &[FORBIDDEN]) && message(error).is_some_and(is_missing_right)
}

/// Returns the message of the API server, without the other fields of its status, which repeat it.
/// `None`: it has not answered, or says nothing.
pub(super) fn message(error: &kube::Error) -> Option<&str> {
    let kube::Error::Api(status) = error else { return None };
    Some(status.message.as_str()).filter(|message| !message.is_empty())
}

/// Returns the text of the last cause of an error. `None`: it has none.
pub(super) fn root_cause(error: &kube::Error) -> Option<String> {
    let causes = iter::successors(error.source(), |&cause| cause.source());
    causes.last().map(ToString::to_string)
}
