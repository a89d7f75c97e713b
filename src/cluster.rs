//! The View, kept true by watches.
//!
//! Each kind has one watch. Objects are projected as they arrive and never stored whole; a watch that
//! starts anew forgets what it no longer sees. Until every watch has seen all of its objects once,
//! the View must not be decided on.

mod presence;
pub(crate) mod tekton;

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::storage::v1 as storage;
use k8s_openapi::jiff::Timestamp;
use kube::core::{DeserializeGuard, DynamicObject};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep};
use tracing::{debug, info, warn};

use crate::api::{HostPool, StreamsJob};
use crate::telemetry::{KindLabels, Metrics};
use crate::view::member::MEMBER;
use crate::view::placeholder::PLACEHOLDER;
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

/// The watches that every View has.
const COMMON: [&str; 11] = [
    "nodes",
    "namespaces",
    "hostpools",
    "streamsjobs",
    "taskruns",
    "pipelineruns",
    "pipelines",
    "persistentvolumeclaims",
    "persistentvolumes",
    "storageclasses",
    "placeholders",
];

/// Between two looks at the controller's Lease.
const LOOK: Duration = Duration::from_secs(5);

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
        let kinds =
            ["pods of jobs", "pods without a job", "pods of placeholders", "pods of groups"];
        let cluster = Self::following(&kinds, metrics);
        cluster.follow_common(client, false);
        // A label selector has no "or"; the first two select no pod twice. A pod that the others select
        // as well is something else to them.
        type Project = fn(&core::Pod) -> Option<Object>;
        let selected: [(String, Project, Forget); 4] = [
            (JOB.to_owned(), Object::streams_pod, View::remove_streams_pod),
            (format!("{APP}={APP_VALUE},!{JOB}"), Object::streams_pod, View::remove_streams_pod),
            (PLACEHOLDER.to_owned(), Object::placeholder_pod, View::remove_placeholder_pod),
            (MEMBER.to_owned(), Object::member, View::remove_member),
        ];
        for (kind, (selector, project, forget)) in kinds.into_iter().zip(selected) {
            let config = watcher::Config::default().labels(&selector);
            let pods = watcher(Api::<core::Pod>::all(client.clone()), config);
            cluster.follow(kind, pods, project, forget);
        }
        cluster
    }

    /// Follows the Lease of this name, on a task of the current runtime: while nobody renews it, no
    /// controller is there.
    pub fn watch_controller(
        self: &Arc<Self>,
        client: &Client,
        namespace: &str,
        lease: &'static str,
    ) {
        let cluster = Arc::clone(self);
        let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
        tokio::spawn(async move {
            let mut presence = presence::Presence::default();
            let mut told = false;
            loop {
                match api.get_opt(lease).await {
                    Ok(found) => {
                        told = false;
                        let now = Instant::now();
                        let present = presence.observe(found.as_ref(), now, Timestamp::now());
                        cluster.set_controller_present(present);
                    }
                    // What cannot be asked is as it was.
                    Err(error) if !told => {
                        told = true;
                        warn!(lease, error = %error, "the controller's lease cannot be read");
                    }
                    Err(_) => {}
                }
                sleep(LOOK).await;
            }
        });
    }

    fn set_controller_present(&self, present: bool) {
        if self.view().controller_present() == present {
            return;
        }
        match present {
            true => info!("the controller is there"),
            false => warn!("no controller has renewed its lease for a while"),
        }
        self.view.write().unwrap_or_else(PoisonError::into_inner).set_controller_present(present);
        self.changes.send_replace(());
    }

    /// Says whether the cluster knows a kind of Tekton's. Whose pods are whose is said by TaskRuns.
    fn set_tekton(&self, plural: &str, present: bool) {
        if plural == "taskruns" && self.view().has_tekton() != present {
            self.view.write().unwrap_or_else(PoisonError::into_inner).set_tekton(present);
            self.changes.send_replace(());
        }
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
        cluster.follow_common(client, true);
        let pods = watcher(Api::<core::Pod>::all(client.clone()), watcher::Config::default());
        let pods = pods.inspect(move |event| match event {
            Ok(Event::Init) => look(Passing::Relisting),
            Ok(Event::InitApply(pod) | Event::Apply(pod)) => look(Passing::Pod(pod)),
            Ok(Event::Delete(pod)) => look(Passing::Gone(&name(pod))),
            Ok(Event::InitDone) | Err(_) => {}
        });
        cluster.follow("pods", pods, Object::whole_pod, View::remove_pod);
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

    /// The watches of [`COMMON`]; `whole` keeps what only a controller needs.
    fn follow_common(self: &Arc<Self>, client: &Client, whole: bool) {
        let every = watcher::Config::default();
        let node = if whole { Object::whole_node } else { Object::node };
        self.follow(
            "nodes",
            watcher(Api::<core::Node>::all(client.clone()), every.clone()),
            node,
            |view, name| view.remove_node(&name.name),
        );
        self.follow(
            "namespaces",
            watcher(Api::<core::Namespace>::all(client.clone()), every.clone()),
            Object::namespace,
            |view, name| view.remove_namespace(&name.name),
        );
        // Guarded: one object that does not decode must not blind us to the others.
        self.follow(
            "hostpools",
            watcher(Api::<DeserializeGuard<HostPool>>::all(client.clone()), every.clone()),
            |pool: &DeserializeGuard<HostPool>| match &pool.0 {
                Ok(pool) => Object::host_pool(pool),
                Err(invalid) => {
                    Object::unreadable_host_pool(&invalid.metadata, &invalid.error.to_string())
                }
            },
            View::remove_host_pool,
        );
        self.follow(
            "streamsjobs",
            watcher(Api::<DeserializeGuard<StreamsJob>>::all(client.clone()), every.clone()),
            |job: &DeserializeGuard<StreamsJob>| match &job.0 {
                Ok(job) => Object::streams_job(job),
                Err(invalid) => {
                    Object::unreadable_streams_job(&invalid.metadata, &invalid.error.to_string())
                }
            },
            View::remove_streams_job,
        );
        self.follow_volumes(client);
        let placeholder = match whole {
            true => |set: &apps::StatefulSet| Object::placeholder(set, true),
            false => |set: &apps::StatefulSet| Object::placeholder(set, false),
        };
        let placeholders = every.labels(PLACEHOLDER);
        self.follow(
            "placeholders",
            watcher(Api::<apps::StatefulSet>::all(client.clone()), placeholders),
            placeholder,
            View::remove_placeholder,
        );
        for kind in tekton_kinds(whole) {
            tekton::follow(self, client, kind);
        }
    }

    fn follow_volumes(self: &Arc<Self>, client: &Client) {
        let every = watcher::Config::default();
        self.follow(
            "persistentvolumeclaims",
            watcher(Api::<core::PersistentVolumeClaim>::all(client.clone()), every.clone()),
            Object::claim,
            View::remove_claim,
        );
        self.follow(
            "persistentvolumes",
            watcher(Api::<core::PersistentVolume>::all(client.clone()), every.clone()),
            Object::volume,
            |view, name| view.remove_volume(&name.name),
        );
        self.follow(
            "storageclasses",
            watcher(Api::<storage::StorageClass>::all(client.clone()), every),
            Object::storage_class,
            |view, name| view.remove_storage_class(&name.name),
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

    /// The place of a watch among all.
    fn store(&self, kind: &str) -> usize {
        let place = self.stores.iter().position(|store| store.kind == kind);
        place.expect("each kind that is followed has a store")
    }

    fn follow<K>(
        self: &Arc<Self>,
        kind: &'static str,
        events: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send + 'static,
        project: impl Fn(&K) -> Option<Object> + Send + 'static,
        forget: Forget,
    ) where
        K: Resource + DeserializeOwned + Clone + Debug + Send + 'static,
    {
        let cluster = Arc::clone(self);
        let store = self.store(kind);
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
                self.synced(store, held.len());
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

    /// Forgets all that a watch holds: there is nothing of its kind.
    fn empty(&self, store: usize, held: &mut HashSet<Name>, forget: Forget) {
        if held.is_empty() && self.stores[store].synced.load(Ordering::Acquire) {
            return;
        }
        let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
        held.drain().for_each(|name| forget(&mut view, &name));
        drop(view);
        self.synced(store, 0);
        self.count();
        self.changes.send_replace(());
    }

    fn synced(&self, store: usize, objects: usize) {
        let Store { kind, synced } = &self.stores[store];
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

/// Tekton's kinds, as they are followed. Only a controller asks for runs that have ended, and keeps of
/// them what it needs to clean up.
pub(crate) fn tekton_kinds(whole: bool) -> [tekton::Kind; 3] {
    fn task_run(run: &DynamicObject) -> Option<Object> {
        Object::task_run(&run.metadata, &run.data)
    }
    fn pipeline_run(run: &DynamicObject) -> Option<Object> {
        Object::pipeline_run(&run.metadata, &run.data, false)
    }
    let task_runs = tekton::Kind {
        kind: "TaskRun",
        plural: "taskruns",
        project: if whole {
            task_run
        } else {
            // One that Tekton's assistant has placed says so of its run for as long as it is there.
            |run| {
                let says_so = |object: &Object| matches!(object, Object::TaskRun(_, task_run) if task_run.assisted);
                task_run(run).filter(|object| !object.is_done_run() || says_so(object))
            }
        },
        forget: View::remove_task_run,
    };
    let pipeline_runs = tekton::Kind {
        kind: "PipelineRun",
        plural: "pipelineruns",
        project: if whole {
            |run| match Object::pipeline_run(&run.metadata, &run.data, true)? {
                Object::PipelineRun(name, run) if run.done => {
                    Some(Object::PipelineRun(name, Box::new(run.without_its_pods())))
                }
                object => Some(object),
            }
        } else {
            |run| pipeline_run(run).filter(|object| !object.is_done_run())
        },
        forget: View::remove_pipeline_run,
    };
    let pipelines = tekton::Kind {
        kind: "Pipeline",
        plural: "pipelines",
        project: |pipeline| Object::pipeline(&pipeline.metadata, &pipeline.data),
        forget: View::remove_pipeline,
    };
    [task_runs, pipeline_runs, pipelines]
}

/// Whether the controller that holds this Lease is there, by our clock and its own.
pub(crate) fn is_held(lease: &Lease) -> bool {
    presence::Presence::default().observe(Some(lease), Instant::now(), Timestamp::now())
}

fn name(object: &impl Resource) -> Name {
    let metadata = object.meta();
    Name::new(
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
    )
}
