//! Follows one object by its name: such a watch needs a right to this object only (a Role with
//! `resourceNames`).

use std::fmt::Debug;

use futures::{Stream, StreamExt as _, future, stream};
use kube::core::NamespaceResourceScope;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watch_object};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::health::{Heard, listening};

/// The object `name` in `namespace` now, and after each change; `None`: it does not exist. The
/// stream never ends. After an error it lists again, later after each further one, so the first item
/// after an error is the object as it is then.
///
/// The account needs the rights get, list and watch.
pub(crate) fn watch_named<K>(
    client: &Client,
    namespace: &str,
    name: &str,
) -> impl Stream<Item = Result<Option<K>, watcher::Error>> + Send + use<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let api = Api::<K>::namespaced(listening(client, &Heard::now()), namespace);
    let name = name.to_owned();
    let watches = stream::repeat_with(move || watch_object(api.clone(), &name));
    // A watch that continued after an error would not report what it already has.
    let until_error = |watch| {
        futures::StreamExt::scan(watch, false, |has_failed, item: Result<_, _>| {
            let next = (!*has_failed).then_some(item);
            *has_failed |= next.as_ref().is_some_and(Result::is_err);
            future::ready(next)
        })
    };
    watches.flat_map(until_error).default_backoff()
}
