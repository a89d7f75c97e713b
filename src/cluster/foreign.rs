//! Watches kinds that a cluster may not serve yet, such as Tekton's.
//!
//! While the API server does not serve a kind, its watch counts as synced, without objects. The
//! kind is requested again every few seconds and followed as soon as it is served.

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use kube::api::ListParams;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::time::sleep;
use tracing::info;

use super::{Cluster, Reported, Store};
use stowplan_core::systems::Projected;
use stowplan_core::view::Kind;
use stowplan_core::view::table::ApiType as _;

/// The time between two requests for a kind that is not served.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// Follows one kind for as long as the process lives.
pub(super) async fn follow<K: Projected>(
    cluster: Arc<Cluster>,
    store: Arc<Store>,
    client: Client,
    config: watcher::Config,
) {
    let kind = store.kind;
    loop {
        match find_served::<K>(&client, kind).await {
            Ok(Some(api)) => {
                cluster.set_served(kind, true);
                watch(&cluster, &store, watcher(api, config.clone())).await;
                // The kind may no longer be served: the next request shows it.
                continue;
            }
            Ok(None) => {
                if cluster.set_served(kind, false) {
                    info!(kind = kind.resource.plural, "the cluster does not serve the kind");
                }
                cluster.forget_all(&store);
            }
            Err(error) => cluster.report_failure(&store, &error),
        }
        sleep(ASK_AGAIN).await;
    }
}

/// Finds the version of the kind that the API server serves. `Ok(None)`: it serves none.
async fn find_served<K: Projected>(client: &Client, kind: &Kind) -> kube::Result<Option<Api<K>>> {
    let one = ListParams::default().limit(1);
    for resource in kind.api_resources() {
        let api = Api::<K>::all_with(client.clone(), &K::DynamicType::of(&resource));
        match api.list_metadata(&one).await {
            Ok(_) => return Ok(Some(api)),
            Err(error) if is_not_found(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Follows the kind until the API server no longer serves it.
async fn watch<K: Projected>(
    cluster: &Cluster,
    store: &Store,
    events: impl Stream<Item = watcher::Result<Event<K>>>,
) {
    let mut events = std::pin::pin!(events.default_backoff());
    let mut reported = Reported::default();
    while let Some(event) = events.next().await {
        match event {
            Err(
                watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error),
            ) if is_not_found(&error) => return,
            event => cluster.take(store, event, &mut reported, |object: &K| store.read(object)),
        }
    }
}

fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
