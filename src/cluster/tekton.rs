//! The watches of Tekton's kinds, which a cluster may not have, or not yet.
//!
//! A kind that the API server does not know is a watch that has seen all there is: nothing. It is looked
//! for again every few seconds, and followed as soon as it is there.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use tokio::time::sleep;
use tracing::{info, warn};

use super::{Cluster, Forget};
use crate::telemetry::KindLabels;
use crate::view::{Name, Object};

/// Between two looks for a kind that is not there.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The versions that are read, the one that is preferred first.
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// One of Tekton's kinds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// As in `kind`.
    pub(crate) kind: &'static str,
    /// The plural name, which is also that of the store.
    pub(crate) plural: &'static str,
    /// How an object is projected; `None` where nothing asks for it.
    pub(crate) project: fn(&DynamicObject) -> Option<Object>,
    /// How it is forgotten.
    pub(super) forget: Forget,
}

impl Kind {
    /// The kind in each version that is read, the one that is preferred first.
    pub(crate) fn resources(self) -> impl Iterator<Item = ApiResource> {
        VERSIONS.iter().map(move |version| {
            let of_version = GroupVersionKind::gvk("tekton.dev", version, self.kind);
            ApiResource::from_gvk_with_plural(&of_version, self.plural)
        })
    }
}

/// Follows a kind for as long as the process lives.
pub(super) fn follow(cluster: &Arc<Cluster>, client: &Client, kind: Kind) {
    let following = Following {
        cluster: Arc::clone(cluster),
        client: client.clone(),
        kind,
        store: cluster.store(kind.plural),
        held: HashSet::new(),
    };
    tokio::spawn(following.run());
}

struct Following {
    cluster: Arc<Cluster>,
    client: Client,
    kind: Kind,
    store: usize,
    held: HashSet<Name>,
}

impl Following {
    async fn run(mut self) {
        let mut told = false;
        loop {
            match self.served().await {
                Ok(Some(resource)) => {
                    told = false;
                    self.cluster.set_tekton(self.kind.plural, true);
                    self.watch(&resource).await;
                    // Gone, it seems: the next look says.
                    continue;
                }
                Ok(None) => {
                    if !told {
                        info!(kind = self.kind.plural, "the cluster does not know Tekton's kind");
                        told = true;
                    }
                    self.cluster.set_tekton(self.kind.plural, false);
                    self.cluster.empty(self.store, &mut self.held, self.kind.forget);
                }
                Err(error) => self.failed(&error),
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    fn failed(&self, error: &(dyn std::error::Error + 'static)) {
        let kind = self.kind.plural;
        self.cluster.metrics.watch_errors.get_or_create(&KindLabels { kind }).inc();
        warn!(kind, error = %error, "a watch failed; it is started again");
    }

    /// The version of the kind that the API server serves, if it does.
    async fn served(&self) -> Result<Option<ApiResource>, kube::Error> {
        let one = ListParams::default().limit(1);
        for resource in self.kind.resources() {
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
            match api.list_metadata(&one).await {
                Ok(_) => return Ok(Some(resource)),
                Err(error) if is_not_found(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Follows the kind until the API server does not know it any more.
    async fn watch(&mut self, resource: &ApiResource) {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), resource);
        let events = watcher(api, watcher::Config::default()).default_backoff();
        let mut events = std::pin::pin!(events);
        let mut listed = HashSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.cluster.take(
                    self.store,
                    event,
                    &mut self.held,
                    &mut listed,
                    self.kind.project,
                    self.kind.forget,
                ),
                Err(watcher::Error::InitialListFailed(error)) if is_not_found(&error) => return,
                Err(error) => self.failed(&error),
            }
        }
    }
}

fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
