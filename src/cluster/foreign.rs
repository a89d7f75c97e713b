//! Watches kinds that a cluster may not serve yet, such as Tekton's.
//!
//! While the API server does not serve a kind, its watch counts as synced, without objects. The
//! kind is requested again every few seconds and followed as soon as it is served.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{ApiResource, ListParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use tokio::time::sleep;
use tracing::info;

use super::{Cluster, Reported, Store};
use stowplan_core::systems::Projected;
use stowplan_core::view::table::ApiType as _;

/// The time between two requests for a kind that is not served.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// Follows one kind.
pub(super) struct Following {
    pub(super) cluster: Arc<Cluster>,
    pub(super) client: Client,
    pub(super) config: watcher::Config,
    pub(super) store: Arc<Store>,
    pub(super) reported: Reported,
}

impl Following {
    /// Follows the kind for as long as the process lives.
    pub(super) async fn run<K: Projected>(mut self) {
        let kind = self.store.kind;
        let mut is_logged = false;
        loop {
            match self.find_served::<K>().await {
                Ok(Some(resource)) => {
                    is_logged = false;
                    self.cluster.set_served(kind, true);
                    self.watch::<K>(&resource).await;
                    // The kind may no longer be served: the next request shows it.
                    continue;
                }
                Ok(None) => {
                    if !is_logged {
                        info!(kind = kind.resource.plural, "the cluster does not serve the kind");
                        is_logged = true;
                    }
                    self.cluster.set_served(kind, false);
                    self.cluster.empty(&self.store, &mut self.reported);
                }
                Err(error) => self.cluster.failed(&self.store, &error),
            }
            sleep(ASK_AGAIN).await;
        }
    }

    /// Finds the version of the kind that the API server serves. `Ok(None)`: it serves none.
    async fn find_served<K: Projected>(&self) -> Result<Option<ApiResource>, kube::Error> {
        let one = ListParams::default().limit(1);
        for resource in self.store.kind.api_resources() {
            let api = Api::<K>::all_with(self.client.clone(), &K::DynamicType::of(&resource));
            match api.list_metadata(&one).await {
                Ok(_) => return Ok(Some(resource)),
                Err(error) if is_not_found(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Follows the kind until the API server no longer serves it.
    async fn watch<K: Projected>(&mut self, resource: &ApiResource) {
        let Self { cluster, client, config, store, reported } = self;
        let api = Api::<K>::all_with(client.clone(), &K::DynamicType::of(resource));
        let events = watcher(api, config.clone()).default_backoff();
        let mut events = std::pin::pin!(events);
        reported.listed.clear();
        while let Some(event) = events.next().await {
            match event {
                Err(
                    watcher::Error::InitialListFailed(error)
                    | watcher::Error::WatchStartFailed(error),
                ) if is_not_found(&error) => return,
                event => cluster.take(store, event, reported, |object: &K| store.read(object)),
            }
        }
    }
}

fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
