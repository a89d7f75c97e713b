//! The View, kept true by watches.
//!
//! Each kind has one watch. Objects are projected as they arrive and never stored whole; a watch that
//! starts anew forgets what it no longer sees. Until every watch has seen all of its objects once,
//! the View must not be decided on.

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1 as core;
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::api::{HostPool, StreamsJob};
use crate::telemetry::{KindLabels, Metrics};
use crate::view::streams_pod::{APP, APP_VALUE, JOB};
use crate::view::{Name, Object, View};

/// The View and what is known of it.
#[derive(Debug)]
pub struct Cluster {
    view: RwLock<View>,
    changes: watch::Sender<()>,
    stores: Vec<Store>,
    metrics: Arc<Metrics>,
}

/// One watch.
#[derive(Debug)]
struct Store {
    /// The plural name, with what tells two watches of a kind apart.
    kind: &'static str,
    synced: AtomicBool,
}

/// The watches that every View has, in order.
const COMMON: [&str; 4] = ["nodes", "namespaces", "hostpools", "streamsjobs"];

/// What a watch of all pods tells of a pod, before it is projected.
#[derive(Clone, Copy, Debug)]
pub enum Passing<'p> {
    /// This is it now.
    Pod(&'p core::Pod),
    /// It is gone.
    Gone(&'p Name),
    /// All pods follow: one that does not is gone.
    Relisting,
}

/// How an object that a watch reported is forgotten.
type Forget = fn(&mut View, &Name);

impl Cluster {
    /// A View that does not change: from files, for tests and for trying things out.
    #[must_use]
    pub fn fixed(view: View, metrics: Arc<Metrics>) -> Self {
        let cluster = Self {
            view: RwLock::new(view),
            changes: watch::Sender::new(()),
            stores: Vec::new(),
            metrics,
        };
        cluster.count();
        cluster
    }

    /// A View that follows a cluster as far as decisions ask for, on tasks of the current runtime.
    #[must_use]
    pub fn watching(client: &Client, metrics: Arc<Metrics>) -> Arc<Self> {
        let kinds = ["pods of jobs", "pods without a job"];
        let cluster = Self::following(&kinds, metrics);
        cluster.follow_common(client, Object::node);
        // A label selector has no "or"; these two select no pod twice.
        let selectors = [JOB.to_owned(), format!("{APP}={APP_VALUE},!{JOB}")];
        for (index, selector) in (COMMON.len()..).zip(selectors) {
            let config = watcher::Config::default().labels(&selector);
            cluster.follow(
                index,
                watcher(Api::<core::Pod>::all(client.clone()), config),
                |pod: &core::Pod| Object::streams_pod(pod),
                |view, name| view.remove_streams_pod(name),
            );
        }
        cluster
    }

    /// A View that follows a cluster as far as a controller writes it: nodes as a whole, and all pods,
    /// each of which `look` sees as it passes.
    #[must_use]
    pub fn watching_all(
        client: &Client,
        metrics: Arc<Metrics>,
        look: impl Fn(Passing<'_>) + Send + 'static,
    ) -> Arc<Self> {
        let cluster = Self::following(&["pods"], metrics);
        cluster.follow_common(client, Object::whole_node);
        let pods = watcher(Api::<core::Pod>::all(client.clone()), watcher::Config::default());
        let pods = pods.inspect(move |event| match event {
            Ok(Event::Init) => look(Passing::Relisting),
            Ok(Event::InitApply(pod) | Event::Apply(pod)) => look(Passing::Pod(pod)),
            Ok(Event::Delete(pod)) => look(Passing::Gone(&name(pod))),
            Ok(Event::InitDone) | Err(_) => {}
        });
        cluster.follow(
            COMMON.len(),
            pods,
            |pod: &core::Pod| Object::whole_pod(pod),
            |view, name| view.remove_pod(name),
        );
        cluster
    }

    fn following(kinds: &[&'static str], metrics: Arc<Metrics>) -> Arc<Self> {
        let kinds = COMMON.iter().chain(kinds);
        let stores = kinds.map(|kind| Store { kind, synced: AtomicBool::new(false) });
        let cluster = Arc::new(Self {
            view: RwLock::default(),
            changes: watch::Sender::new(()),
            stores: stores.collect(),
            metrics,
        });
        for store in &cluster.stores {
            cluster.metrics.store_synced.get_or_create(&KindLabels { kind: store.kind }).set(0);
        }
        cluster
    }

    /// The watches of [`COMMON`].
    fn follow_common(self: &Arc<Self>, client: &Client, node: fn(&core::Node) -> Option<Object>) {
        let every = watcher::Config::default();
        self.follow(
            0,
            watcher(Api::<core::Node>::all(client.clone()), every.clone()),
            node,
            |view, name| view.remove_node(&name.name),
        );
        self.follow(
            1,
            watcher(Api::<core::Namespace>::all(client.clone()), every.clone()),
            |namespace: &core::Namespace| Object::namespace(namespace),
            |view, name| view.remove_namespace(&name.name),
        );
        // Guarded: one object that does not decode must not blind us to the others.
        self.follow(
            2,
            watcher(Api::<DeserializeGuard<HostPool>>::all(client.clone()), every.clone()),
            |pool: &DeserializeGuard<HostPool>| match &pool.0 {
                Ok(pool) => Object::host_pool(pool),
                Err(invalid) => {
                    Object::unreadable_host_pool(&invalid.metadata, &invalid.error.to_string())
                }
            },
            |view, name| view.remove_host_pool(name),
        );
        self.follow(
            3,
            watcher(Api::<DeserializeGuard<StreamsJob>>::all(client.clone()), every),
            |job: &DeserializeGuard<StreamsJob>| match &job.0 {
                Ok(job) => Object::streams_job(job),
                Err(invalid) => {
                    Object::unreadable_streams_job(&invalid.metadata, &invalid.error.to_string())
                }
            },
            |view, name| view.remove_streams_job(name),
        );
    }

    /// Takes in what the API server answered to a write, before the watch tells of it.
    pub fn learn(&self, object: Object) {
        self.view.write().unwrap_or_else(PoisonError::into_inner).learn(object);
        self.changes.send_replace(());
    }

    /// The View as it is now. Held for as short as a decision takes: the watches wait for it.
    pub fn view(&self) -> RwLockReadGuard<'_, View> {
        // A watch that panicked in the middle of a change left one object out of an index: better
        // than no answer at all.
        self.view.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Told at every change of the View.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// The watches that have not seen all of their objects yet.
    #[must_use]
    pub fn unsynced(&self) -> Vec<&'static str> {
        self.stores
            .iter()
            .filter(|store| !store.synced.load(Ordering::Acquire))
            .map(|store| store.kind)
            .collect()
    }

    /// Whether the View may be decided on.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.stores.iter().all(|store| store.synced.load(Ordering::Acquire))
    }

    fn follow<K>(
        self: &Arc<Self>,
        store: usize,
        events: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send + 'static,
        project: impl Fn(&K) -> Option<Object> + Send + 'static,
        forget: Forget,
    ) where
        K: Resource + DeserializeOwned + Clone + Debug + Send + 'static,
    {
        let cluster = Arc::clone(self);
        tokio::spawn(async move {
            let mut held: HashSet<Name> = HashSet::new();
            let mut listed: HashSet<Name> = HashSet::new();
            let mut events = std::pin::pin!(events.default_backoff());
            while let Some(event) = events.next().await {
                match event {
                    Ok(event) => {
                        cluster.take(store, event, &mut held, &mut listed, &project, forget)
                    }
                    Err(error) => {
                        let kind = cluster.stores[store].kind;
                        cluster.metrics.watch_errors.get_or_create(&KindLabels { kind }).inc();
                        warn!(kind, error = %error, "a watch failed; it is started again");
                    }
                }
            }
        });
    }

    fn take<K: Resource>(
        &self,
        store: usize,
        event: Event<K>,
        held: &mut HashSet<Name>,
        listed: &mut HashSet<Name>,
        project: impl Fn(&K) -> Option<Object>,
        forget: Forget,
    ) {
        let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(object) => {
                let name = name(&object);
                if let Some(object) = project(&object) {
                    listed.insert(name.clone());
                    held.insert(name);
                    view.apply(object);
                }
            }
            Event::InitDone => {
                for gone in held.difference(listed) {
                    forget(&mut view, gone);
                }
                *held = std::mem::take(listed);
                let Store { kind, synced } = &self.stores[store];
                if !synced.swap(true, Ordering::AcqRel) {
                    info!(kind, objects = held.len(), "synced");
                }
                self.metrics.store_synced.get_or_create(&KindLabels { kind }).set(1);
            }
            Event::Apply(object) => {
                let name = name(&object);
                match project(&object) {
                    // We have written it since.
                    Some(object) if view.outdates(&object) => {}
                    Some(object) => {
                        held.insert(name);
                        view.apply(object);
                    }
                    None => {
                        held.remove(&name);
                        forget(&mut view, &name);
                    }
                }
            }
            Event::Delete(object) => {
                let name = name(&object);
                held.remove(&name);
                forget(&mut view, &name);
                debug!(kind = self.stores[store].kind, name = %name.name, "gone");
            }
        }
        drop(view);
        self.count();
        self.changes.send_replace(());
    }

    fn count(&self) {
        for (kind, count) in self.view().counts() {
            let gauge = self.metrics.store_objects.get_or_create(&KindLabels { kind }).clone();
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}

fn name(object: &impl Resource) -> Name {
    let metadata = object.meta();
    Name::new(
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
    )
}
