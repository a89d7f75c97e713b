//! Keeps the View up to date with the cluster by watches.
//!
//! Each table of the View declares the watches that feed it; tables of one kind share a watch.
//! Objects are projected on arrival; complete objects are never stored. A watch that starts again
//! forgets the objects that its new list does not contain, unless another watch of the same table has
//! them. No decision may be made on the View until every watch has received its first complete list.

mod clock;
mod foreign;
mod health;
mod named;
mod pages;
mod pods;
mod presence;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use futures::{Stream, StreamExt as _};
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Duration;
use tracing::{debug, info, warn};

use crate::telemetry::{KindLabels, Metrics};
pub(crate) use clock::{Clock, time_of_cluster, time_of_server};
pub(crate) use named::watch_named;
pub(crate) use pods::PodChange;
use pods::{PodObserver, notify};
pub(crate) use presence::{Presence, is_held};
use stowplan_core::systems::{Object, Projected, TABLES, TableType, TypeVisitor, View};
use stowplan_core::view::resource::POD;
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
    stores: Vec<Arc<Store>>,
    metrics: Arc<Metrics>,
    tasks: health::Tasks,
}

/// One watch.
#[derive(Debug)]
struct Store {
    watch: Watch,
    kind: &'static Kind,
    /// The tables of the kind that declare the watch, at least one.
    tables: Vec<TableType>,
    scope: Scope,
    synced: AtomicBool,
    heard: Arc<health::Heard>,
    /// The objects that the watch has reported and its tables contain. Locked after the View.
    held: Mutex<Versions>,
}

/// The versions of objects by their names, as numbers (Kubernetes since 1.35); 0 for one that is
/// not a number.
type Versions = HashMap<Name, u64>;

fn version_of(object: &Object) -> u64 {
    object.identity().resource_version.parse().unwrap_or_default()
}

/// The last events of a watch.
#[derive(Debug, Default)]
struct Reported {
    /// The objects of the list that is being received.
    listed: Versions,
    /// True if the observer keeps something of the last event on which plans depend.
    is_observed: bool,
}

impl Store {
    /// The name in logs and metrics: the plural name of the kind, with a suffix if several watches
    /// follow the kind.
    fn name(&self) -> &'static str {
        self.watch.store
    }

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

    fn held(&self) -> MutexGuard<'_, Versions> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts a watch.
struct Start<'c> {
    cluster: &'c Arc<Cluster>,
    store: &'c Arc<Store>,
    client: &'c Client,
    observer: Option<PodObserver>,
}

impl TypeVisitor for Start<'_> {
    fn visit<K: Projected>(self) {
        let kind = self.store.kind;
        let config = match &*self.store.watch.selector {
            "" => watcher::Config::default(),
            selector => watcher::Config::default().labels(selector),
        };
        let config = config.page_size(pages::MOST_OBJECTS);
        let client = health::listening(self.client, &self.store.heard);
        let (cluster, store) = (Arc::clone(self.cluster), Arc::clone(self.store));
        let (tasks, name) = (&self.cluster.tasks, store.name());
        let types = K::DynamicType::of(&kind.resource.api_resource());
        match kind.definition {
            Definition::BuiltIn => {
                let events = watcher(Api::<K>::all_with(client, &types), config);
                tasks.spawn(name, cluster.follow(events, store, self.observer, Store::read));
            }
            Definition::Own => {
                let events = watcher(Api::<DeserializeGuard<K>>::all_with(client, &types), config);
                tasks.spawn(name, cluster.follow(events, store, None, Store::read_guarded));
            }
            Definition::Foreign => {
                tasks.spawn(name, foreign::follow::<K>(cluster, store, client, config));
            }
        }
    }
}

impl Cluster {
    /// A View that does not change, from files or for tests.
    #[must_use]
    pub fn fixed(view: View, metrics: Arc<Metrics>) -> Self {
        let cluster = Self::new(view, Vec::new(), metrics);
        cluster.count_objects();
        cluster
    }

    fn new(view: View, stores: Vec<Store>, metrics: Arc<Metrics>) -> Self {
        Self {
            view: RwLock::new(view),
            changes: watch::Sender::new(()),
            versions: watch::Sender::new(()),
            stores: stores.into_iter().map(Arc::new).collect(),
            metrics,
            tasks: health::Tasks::new(),
        }
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
        mut observer: Option<PodObserver>,
    ) -> Arc<Self> {
        let cluster = Self::following(scope, metrics);
        for store in &cluster.stores {
            let is_of_pods = store.kind.resource == POD;
            let observer = if is_of_pods { observer.take() } else { None };
            store.tables[0].visit(Start { cluster: &cluster, store, client, observer });
        }
        cluster
    }

    /// Records whether the cluster serves an optional kind. Returns whether that has changed.
    fn set_served(&self, kind: &Kind, served: bool) -> bool {
        let has_changed = self.view_mut().set_served(&kind.resource, served);
        if has_changed {
            self.changes.send_replace(());
        }
        has_changed
    }

    fn following(scope: Scope, metrics: Arc<Metrics>) -> Arc<Self> {
        let mut stores: Vec<Store> = Vec::new();
        for table in TABLES {
            for watch in table.watches(scope) {
                if let Some(store) =
                    stores.iter_mut().find(|store| store.watch.store == watch.store)
                {
                    store.tables.push(*table);
                    continue;
                }
                let (kind, tables) = (table.kind(), vec![*table]);
                let (synced, heard) = (AtomicBool::new(false), health::Heard::now());
                let held = Mutex::default();
                stores.push(Store { watch, kind, tables, scope, synced, heard, held });
            }
        }
        let cluster = Arc::new(Self::new(View::default(), stores, metrics));
        for store in &cluster.stores {
            cluster.metrics.store_synced.get_or_create(&KindLabels { kind: store.name() }).set(0);
        }
        cluster
    }

    /// Applies the object that the API server returned for a write, before the watch reports it.
    pub fn learn(&self, object: Object) {
        self.view_mut().learn(object);
        self.changes.send_replace(());
    }

    /// Locks the View for reading. Hold the lock only for one decision: the watches wait for it.
    pub fn view(&self) -> RwLockReadGuard<'_, View> {
        // If a watch panicked during a change, one object is missing from an index. That is better
        // than no answers at all.
        self.view.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn view_mut(&self) -> RwLockWriteGuard<'_, View> {
        self.view.write().unwrap_or_else(PoisonError::into_inner)
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
            .map(|store| store.name())
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
        self.stores.iter().map(|store| (store.name(), store.heard.age())).collect()
    }

    async fn follow<K: kube::Resource + 'static>(
        self: Arc<Self>,
        events: impl Stream<Item = watcher::Result<Event<K>>>,
        store: Arc<Store>,
        observer: Option<PodObserver>,
        read: impl Fn(&Store, &K) -> Option<Object>,
    ) {
        let mut events = std::pin::pin!(events.default_backoff());
        let mut reported = Reported::default();
        while let Some(event) = events.next().await {
            if let (Ok(event), Some(observer)) = (&event, &observer) {
                reported.is_observed = notify(event, store.kind, observer);
            }
            self.take(&store, event, &mut reported, |object| read(&store, object));
        }
    }

    /// Counts and logs the failure of a watch.
    fn report_failure(&self, store: &Store, error: &(dyn std::error::Error + 'static)) {
        let kind = store.name();
        self.metrics.watch_errors.get_or_create(&KindLabels { kind }).inc();
        warn!(kind, error = %error, "a watch failed; it is started again");
    }

    fn take<K: kube::Resource>(
        &self,
        store: &Store,
        event: Result<Event<K>, watcher::Error>,
        reported: &mut Reported,
        read: impl Fn(&K) -> Option<Object>,
    ) {
        let event = match event {
            Ok(event) => event,
            Err(error) => return self.report_failure(store, &error),
        };
        let name = |object: &K| store.kind.name(object.meta());
        let Reported { listed, is_observed } = reported;
        let mut has_changed = true;
        let mut view = self.view_mut();
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(object) => {
                if let Some(object) = read(&object) {
                    let is_outdated = self.is_outdated(store, &object);
                    let version = version_of(&object);
                    listed.insert(object.name().clone(), version);
                    store.held().insert(object.name().clone(), version);
                    if !is_outdated {
                        view.apply(object);
                    }
                }
            }
            Event::InitDone => {
                let objects = listed.len();
                let mut deleted = std::mem::replace(&mut *store.held(), std::mem::take(listed));
                deleted.retain(|name, _| !store.held().contains_key(name));
                for name in deleted.keys() {
                    self.forget(store, &mut view, name);
                }
                self.mark_synced(store, objects);
            }
            Event::Apply(object) => match read(&object) {
                // The View has a newer version already, from the answer to one of stowplan's
                // writes or from another watch.
                Some(object) if view.outdates(&object) || self.is_outdated(store, &object) => {
                    has_changed = false;
                }
                Some(object) => {
                    store.held().insert(object.name().clone(), version_of(&object));
                    has_changed = view.update(object);
                }
                None => {
                    if let Some(name) = name(&object) {
                        has_changed = self.forget(store, &mut view, &name);
                    }
                }
            },
            Event::Delete(object) => {
                if let Some(name) = name(&object) {
                    self.forget(store, &mut view, &name);
                    debug!(kind = store.name(), name = %name.name, "deleted");
                }
            }
        }
        drop(view);
        if has_changed || *is_observed {
            self.count_objects();
            self.changes.send_replace(());
        } else {
            self.versions.send_replace(());
        }
    }

    /// Forgets an object that a watch no longer reports, unless another watch of the same table does: the
    /// object has moved there, and the watches report that in any order. An object that is deleted while this
    /// watch is late is forgotten once both have reported it. Returns whether the watch had reported it.
    fn forget(&self, store: &Store, view: &mut View, name: &Name) -> bool {
        let was_held = store.held().remove(name).is_some();
        let is_held_for = |table: &TableType| {
            let mut others = self.stores.iter().filter(|of| of.tables.contains(table));
            others.any(|of| of.held().contains_key(name))
        };
        let tables = store.tables.iter().filter(|table| !is_held_for(table));
        view.forget_in(tables.copied(), name);
        was_held
    }

    /// Returns true if another watch of one of these tables has reported a later version of an object: it has
    /// moved there, and this watch is late.
    fn is_outdated(&self, store: &Store, object: &Object) -> bool {
        let shares = |of: &&Arc<Store>| {
            !std::ptr::eq(&***of, store) && of.tables.iter().any(|it| store.tables.contains(it))
        };
        let mut others = self.stores.iter().filter(shares);
        others
            .any(|of| of.held().get(object.name()).is_some_and(|known| version_of(object) < *known))
    }

    /// Forgets all objects of a watch: the cluster does not serve the kind.
    fn forget_all(&self, store: &Store) {
        store.heard.touch();
        let names = std::mem::take(&mut *store.held());
        if names.is_empty() && store.synced.load(Ordering::Acquire) {
            return;
        }
        let mut view = self.view_mut();
        for name in names.keys() {
            self.forget(store, &mut view, name);
        }
        drop(view);
        self.mark_synced(store, 0);
        self.count_objects();
        self.changes.send_replace(());
    }

    fn mark_synced(&self, store: &Store, objects: usize) {
        let kind = store.name();
        if !store.synced.swap(true, Ordering::AcqRel) {
            info!(kind, objects, "synced");
        }
        self.metrics.store_synced.get_or_create(&KindLabels { kind }).set(1);
    }

    fn count_objects(&self) {
        for (kind, count) in self.view().counts() {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.metrics.store_objects.get_or_create(&KindLabels { kind }).set(count);
        }
    }
}
