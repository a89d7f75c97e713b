//! Keeps the View up to date with the cluster by watches.
//!
//! Each table of the View declares the watches that feed it; tables of one kind share a watch.
//! Objects are projected on arrival; complete objects are never stored. A watch that starts again
//! forgets the objects that its new list does not contain. No decision may be made on the View
//! until every watch has received its first complete list.

mod clock;
mod foreign;
mod health;
mod named;
mod pages;
mod pods;
mod presence;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use futures::{Stream, StreamExt as _};
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Duration;
use tracing::{debug, info, warn};

use crate::telemetry::{KindLabels, Metrics};
pub(crate) use clock::{Clock, time_of_server};
pub(crate) use named::watch_named;
pub(crate) use pods::PodChange;
use pods::{PodObserver, notify};
pub(crate) use presence::{Presence, is_held};
use stowplan_core::systems::{self, Object, Projected, TableType, TableVisitor, View};
use stowplan_core::view::table::{ApiType as _, Definition, Watch};
use stowplan_core::view::{Kind, Name, Scope};

/// The View of a cluster and the state of its watches.
#[derive(Debug)]
pub struct Cluster {
    view: RwLock<View>,
    /// Notified of every change of what the View shows.
    changes: watch::Sender<()>,
    /// Notified where only the version of an object has changed.
    versions: watch::Sender<()>,
    stores: Vec<Store>,
    metrics: Arc<Metrics>,
    tasks: health::Tasks,
}

/// One watch.
#[derive(Debug)]
struct Store {
    /// The name in logs and metrics: the plural name of the kind, with a suffix if several watches
    /// follow the kind.
    kind: &'static str,
    synced: AtomicBool,
    heard: Arc<health::Heard>,
}

/// The tables that one watch feeds.
#[derive(Debug)]
struct Feed {
    /// Its index among the stores.
    store: usize,
    kind: &'static Kind,
    /// The tables of the kind that declare the watch.
    tables: Vec<TableType>,
    scope: Scope,
}

/// The objects that a watch has reported.
#[derive(Debug, Default)]
struct Reported {
    /// The objects that the View contains.
    held: HashSet<Name>,
    /// The objects of the list that is being received.
    listed: HashSet<Name>,
    /// True if the observer keeps something of the last event on which plans depend.
    is_observed: bool,
}

impl Feed {
    fn read<K: Projected>(&self, object: &K) -> Option<Object> {
        object.project(&self.tables, self.scope)
    }

    /// Reads an object that may not decode. The other objects of the list are not affected.
    fn read_guarded<K: Projected>(&self, object: &DeserializeGuard<K>) -> Option<Object> {
        match &object.0 {
            Ok(object) => self.read(object),
            Err(invalid) => {
                Object::unreadable(&self.tables, &invalid.metadata, &invalid.error.to_string())
            }
        }
    }

    fn forget(&self, view: &mut View, name: &Name) {
        view.forget_in(self.tables.iter().copied(), name);
    }
}

/// Starts the watches of all tables.
struct Start<'c> {
    cluster: &'c Arc<Cluster>,
    client: &'c Client,
    scope: Scope,
    /// The stores whose watch was started.
    started: BTreeSet<&'static str>,
    observer: Option<PodObserver>,
}

impl TableVisitor for Start<'_> {
    fn visit<K: Projected>(&mut self, table: TableType) {
        let kind = table.kind();
        for Watch { store, selector } in table.watches(self.scope) {
            if !self.started.insert(store) {
                continue;
            }
            let feeds = |table: &TableType| table.is_fed_by(kind, store, self.scope);
            let feed = Feed {
                store: self.cluster.store(store),
                kind,
                tables: systems::TABLES.iter().copied().filter(feeds).collect(),
                scope: self.scope,
            };
            let config = match &*selector {
                "" => watcher::Config::default(),
                selector => watcher::Config::default().labels(selector),
            };
            let config = config.page_size(pages::MOST_OBJECTS);
            let cluster = Arc::clone(self.cluster);
            let client = health::listening(self.client, &cluster.stores[feed.store].heard);
            let tasks = &self.cluster.tasks;
            let types = K::DynamicType::of(&kind.resource.api_resource());
            match kind.definition {
                Definition::BuiltIn => {
                    let is_of_pods = kind.resource == stowplan_core::view::resource::POD;
                    let observer = if is_of_pods { self.observer.take() } else { None };
                    let events = watcher(Api::<K>::all_with(client, &types), config);
                    tasks.spawn(store, cluster.follow(events, feed, observer, Feed::read));
                }
                Definition::Own => {
                    let api = Api::<DeserializeGuard<K>>::all_with(client, &types);
                    let events = watcher(api, config);
                    tasks.spawn(store, cluster.follow(events, feed, None, Feed::read_guarded));
                }
                Definition::Foreign => {
                    let reported = Reported::default();
                    let following = foreign::Following { cluster, client, config, feed, reported };
                    tasks.spawn(store, following.run::<K>());
                }
            }
        }
    }
}

impl Cluster {
    /// A View that does not change, from files or for tests.
    #[must_use]
    pub fn fixed(view: View, metrics: Arc<Metrics>) -> Self {
        let cluster = Self {
            view: RwLock::new(view),
            changes: watch::Sender::new(()),
            versions: watch::Sender::new(()),
            stores: Vec::new(),
            metrics,
            tasks: health::Tasks::new(),
        };
        cluster.count();
        cluster
    }

    /// A View for admission that follows a cluster, on tasks of the current runtime.
    #[must_use]
    pub fn watching(client: &Client, metrics: Arc<Metrics>) -> Arc<Self> {
        Self::start(client, metrics, Scope::Admission, None)
    }

    /// A View for the controller that follows a cluster, on tasks of the current runtime.
    /// `observer` is called with each change of a pod, and returns whether plans may depend on it.
    #[must_use]
    pub(crate) fn watching_all(
        client: &Client,
        metrics: Arc<Metrics>,
        observer: impl Fn(PodChange<'_>) -> bool + Send + 'static,
    ) -> Arc<Self> {
        Self::start(client, metrics, Scope::Controller, Some(Box::new(observer)))
    }

    fn start(
        client: &Client,
        metrics: Arc<Metrics>,
        scope: Scope,
        observer: Option<PodObserver>,
    ) -> Arc<Self> {
        let cluster = Self::following(scope, metrics);
        let started = BTreeSet::new();
        let mut start = Start { cluster: &cluster, client, scope, started, observer };
        systems::for_each_table(&mut start);
        cluster
    }

    /// Records whether the cluster serves an optional kind.
    fn set_served(&self, kind: &Kind, served: bool) {
        let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
        if view.set_served(&kind.resource, served) {
            drop(view);
            self.changes.send_replace(());
        }
    }

    fn following(scope: Scope, metrics: Arc<Metrics>) -> Arc<Self> {
        let mut stores: Vec<Store> = Vec::new();
        for watch in systems::TABLES.iter().flat_map(|table| table.watches(scope)) {
            if !stores.iter().any(|store| store.kind == watch.store) {
                let (synced, heard) = (AtomicBool::new(false), health::Heard::now());
                stores.push(Store { kind: watch.store, synced, heard });
            }
        }
        let cluster = Arc::new(Self {
            view: RwLock::new(View::default()),
            changes: watch::Sender::new(()),
            versions: watch::Sender::new(()),
            stores,
            metrics,
            tasks: health::Tasks::new(),
        });
        for store in &cluster.stores {
            cluster.metrics.store_synced.get_or_create(&KindLabels { kind: store.kind }).set(0);
        }
        cluster
    }

    /// Applies the object that the API server returned for a write, before the watch reports it.
    pub fn learn(&self, object: Object) {
        self.view.write().unwrap_or_else(PoisonError::into_inner).learn(object);
        self.changes.send_replace(());
    }

    /// Locks the View for reading. Hold the lock only for one decision: the watches wait for it.
    pub fn view(&self) -> RwLockReadGuard<'_, View> {
        // If a watch panicked during a change, one object is missing from an index. That is better
        // than no answers at all.
        self.view.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// A receiver that is notified of every change of what the View shows. A new version of an object
    /// that changes nothing else is not one: a kubelet reports its node every few minutes, and most
    /// changes of most pods concern no system.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// A receiver that is notified of new versions of objects that change nothing else. They are in
    /// the preconditions of writes.
    pub(crate) fn versions(&self) -> watch::Receiver<()> {
        self.versions.subscribe()
    }

    /// The watches that have not received their first complete list.
    #[must_use]
    pub fn unsynced(&self) -> Vec<&'static str> {
        self.stores
            .iter()
            .filter(|store| !store.synced.load(Ordering::Acquire))
            .map(|store| store.kind)
            .collect()
    }

    /// Returns true if every watch has received its first complete list, so that decisions may be made.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.stores.iter().all(|store| store.synced.load(Ordering::Acquire))
    }

    /// Waits until a watch has ended, which none does by itself, and returns which one. The View is
    /// out of date from then on.
    pub async fn ended(&self) -> String {
        self.tasks.ended().await
    }

    /// For each watch the time since the API server was last heard: an event, a list or a bookmark.
    #[must_use]
    pub fn ages(&self) -> Vec<(&'static str, Duration)> {
        self.stores.iter().map(|store| (store.kind, store.heard.age())).collect()
    }

    /// The index of a watch in `stores`.
    fn store(&self, kind: &str) -> usize {
        let index = self.stores.iter().position(|store| store.kind == kind);
        index.expect("each followed kind has a store")
    }

    async fn follow<K: kube::Resource + 'static>(
        self: Arc<Self>,
        events: impl Stream<Item = watcher::Result<Event<K>>>,
        feed: Feed,
        observer: Option<PodObserver>,
        read: impl Fn(&Feed, &K) -> Option<Object>,
    ) {
        let mut events = std::pin::pin!(events.default_backoff());
        let mut reported = Reported::default();
        while let Some(event) = events.next().await {
            if let (Ok(event), Some(observer)) = (&event, &observer) {
                reported.is_observed = notify(event, feed.kind, observer);
            }
            self.take(&feed, event, &mut reported, |object| read(&feed, object));
        }
    }

    /// Counts and logs the failure of a watch.
    fn failed(&self, feed: &Feed, error: &(dyn std::error::Error + 'static)) {
        let kind = self.stores[feed.store].kind;
        self.metrics.watch_errors.get_or_create(&KindLabels { kind }).inc();
        warn!(kind, error = %error, "a watch failed; it is started again");
    }

    fn take<K: kube::Resource>(
        &self,
        feed: &Feed,
        event: Result<Event<K>, watcher::Error>,
        reported: &mut Reported,
        read: impl Fn(&K) -> Option<Object>,
    ) {
        let event = match event {
            Ok(event) => event,
            Err(error) => return self.failed(feed, &error),
        };
        let name = |object: &K| feed.kind.name(object.meta());
        let Reported { held, listed, is_observed } = reported;
        let mut has_changed = true;
        let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(object) => {
                if let Some(object) = read(&object) {
                    listed.insert(object.name().clone());
                    held.insert(object.name().clone());
                    view.apply(object);
                }
            }
            Event::InitDone => {
                for deleted in held.difference(listed) {
                    feed.forget(&mut view, deleted);
                }
                *held = std::mem::take(listed);
                self.synced(feed.store, held.len());
            }
            Event::Apply(object) => match read(&object) {
                // The View has a newer version already, from the answer to one of stowplan's
                // writes.
                Some(object) if view.outdates(&object) => has_changed = false,
                Some(object) => {
                    held.insert(object.name().clone());
                    has_changed = view.update(object);
                }
                None => {
                    if let Some(name) = name(&object) {
                        has_changed = held.remove(&name);
                        feed.forget(&mut view, &name);
                    }
                }
            },
            Event::Delete(object) => {
                if let Some(name) = name(&object) {
                    held.remove(&name);
                    feed.forget(&mut view, &name);
                    debug!(kind = self.stores[feed.store].kind, name = %name.name, "deleted");
                }
            }
        }
        drop(view);
        if has_changed || *is_observed {
            self.count();
            self.changes.send_replace(());
        } else {
            self.versions.send_replace(());
        }
    }

    /// Forgets all objects of a watch: the cluster does not serve the kind.
    fn empty(&self, feed: &Feed, reported: &mut Reported) {
        self.stores[feed.store].heard.touch();
        let held = &mut reported.held;
        if held.is_empty() && self.stores[feed.store].synced.load(Ordering::Acquire) {
            return;
        }
        let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
        held.drain().for_each(|name| feed.forget(&mut view, &name));
        drop(view);
        self.synced(feed.store, 0);
        self.count();
        self.changes.send_replace(());
    }

    fn synced(&self, store: usize, objects: usize) {
        let Store { kind, synced, .. } = &self.stores[store];
        if !synced.swap(true, Ordering::AcqRel) {
            info!(kind, objects, "synced");
        }
        self.metrics.store_synced.get_or_create(&KindLabels { kind }).set(1);
    }

    fn count(&self) {
        for (kind, count) in self.view().counts() {
            let gauge = self.metrics.store_objects.get_or_create(&KindLabels { kind }).clone();
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}
