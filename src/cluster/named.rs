//! Follows one object by its name: such a watch needs a right to this object only (a Role with
//! `resourceNames`).

use std::fmt::Debug;

use futures::{Stream, StreamExt as _, stream};
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
    watches.flat_map(until_error).default_backoff()
}

/// The items of a watch up to its first error: one that continued would report only what changes
/// from then on.
fn until_error<T>(
    watch: impl Stream<Item = Result<T, watcher::Error>> + Send,
) -> impl Stream<Item = Result<T, watcher::Error>> + Send
where
    T: Send,
{
    stream::unfold(Some(Box::pin(watch)), |watch| async {
        let mut watch = watch?;
        let item = watch.next().await?;
        let rest = item.is_ok().then_some(watch);
        Some((item, rest))
    })
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    /// The next report of a failed watch is not waited for: that may be hours later.
    #[test]
    fn a_watch_ends_with_its_first_error() {
        let items = stream::iter([Ok(1), Err(watcher::Error::NoResourceVersion), Ok(2)]);
        let endless = items.chain(stream::pending());
        let seen: Vec<_> =
            until_error(endless).map(|item| item.ok()).collect().now_or_never().unwrap();
        assert_eq!(seen, [Some(1), None]);
    }
}
