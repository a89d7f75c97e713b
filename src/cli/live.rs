//! The cluster of the current kubeconfig context, read once: what `--live` means.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::{self, Debug};
use std::iter;

use anyhow::Context as _;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1 as core;
use kube::api::{DynamicObject, ListParams};
use kube::config::KubeConfigOptions;
use kube::{Api, Client, Config};
use serde::de::DeserializeOwned;

use super::check;
use crate::cluster::{is_held, tekton, tekton_kinds};
use crate::controller::lease;
use crate::view::member::MEMBER;
use crate::view::placeholder::PLACEHOLDER;
use crate::view::streams_pod::{APP, APP_VALUE, JOB};
use crate::view::{Object, View};

/// How many objects are asked for at a time, as kubectl does.
const PAGE: u32 = 500;

/// The API server's answers to who may not, and to who asks for what it does not know.
const FORBIDDEN: u16 = 403;
const NOT_FOUND: u16 = 404;

/// What a cluster says of itself.
pub(super) struct Live {
    pub(super) view: View,
    /// The namespace of the context.
    pub(super) namespace: String,
    /// What was missing and can be.
    pub(super) warnings: Vec<String>,
}

/// Reads the cluster.
///
/// # Errors
/// What could not be listed, and why.
pub(super) fn read() -> anyhow::Result<Live> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(list()).context("--live")
}

/// What a diagnosis looks at.
pub(super) struct Whole {
    pub(super) cluster: check::Cluster,
    /// The namespace that was read.
    pub(super) namespace: String,
    /// What was missing and can be.
    pub(super) warnings: Vec<String>,
}

/// Reads the cluster as far as a diagnosis asks for: all of `namespace` (else of the context's), and
/// what is in no namespace. `rooms`: also what the pods of all namespaces take of the nodes.
///
/// # Errors
/// What could not be listed, and why.
pub(super) fn read_whole(namespace: Option<&str>, rooms: bool) -> anyhow::Result<Whole> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(list_whole(namespace, rooms))
}

async fn list_whole(namespace: Option<&str>, rooms: bool) -> anyhow::Result<Whole> {
    let (client, of_context) = connect().await?;
    let namespace = namespace.map_or(of_context, str::to_owned);
    let mut cluster = check::Cluster::default();
    let mut lists = Lists { client, namespace: Some(namespace), warnings: Vec::new() };
    for node in all::<core::Node>(&lists.client, "nodes", None).await? {
        cluster.add_node(node);
    }
    lists.common(true, &mut cluster.view, &mut cluster.known).await?;
    lists.controller(&mut cluster).await?;
    let namespace = lists.namespace.unwrap_or_default();
    if rooms {
        let refused = "the room that pods of other namespaces leave on nodes is not told";
        let everywhere = all::<core::Pod>(&lists.client, "pods", None).await;
        for pod in allowed(everywhere, refused, &mut lists.warnings)?.unwrap_or_default() {
            if pod.metadata.namespace.as_ref() != Some(&namespace) {
                Object::whole_pod(&pod).into_iter().for_each(|object| cluster.view.apply(object));
            }
        }
    }
    cluster.known.insert("Pod".to_owned());
    let pods = Api::<core::Pod>::namespaced(lists.client, &namespace);
    for pod in pages(&pods, "pods", None).await? {
        cluster.add_pod(pod);
    }
    Ok(Whole { cluster, namespace, warnings: lists.warnings })
}

async fn connect() -> anyhow::Result<(Client, String)> {
    let config = Config::from_kubeconfig(&KubeConfigOptions::default())
        .await
        .context("no usable kubeconfig (set KUBECONFIG, or use --cluster)")?;
    let namespace = config.default_namespace.clone();
    let client = Client::try_from(config).context("the kubeconfig's context is not usable")?;
    Ok((client, namespace))
}

async fn list() -> anyhow::Result<Live> {
    let (client, namespace) = connect().await?;
    let mut view = View::default();
    let mut lists = Lists { client, namespace: None, warnings: Vec::new() };
    for node in all::<core::Node>(&lists.client, "nodes", None).await? {
        Object::node(&node).into_iter().for_each(|object| view.apply(object));
    }
    let mut known = BTreeSet::new();
    lists.common(false, &mut view, &mut known).await?;
    // A selector cannot say "or". A pod that two of them select is something else to each.
    type Project = fn(&core::Pod) -> Option<Object>;
    let selected: [(String, Project); 4] = [
        (JOB.to_owned(), Object::streams_pod),
        (format!("{APP}={APP_VALUE}"), Object::streams_pod),
        (PLACEHOLDER.to_owned(), Object::placeholder_pod),
        (MEMBER.to_owned(), Object::member),
    ];
    for (selector, project) in selected {
        for pod in all::<core::Pod>(&lists.client, "pods", Some(&selector)).await? {
            project(&pod).into_iter().for_each(|object| view.apply(object));
        }
    }
    Ok(Live { view, namespace, warnings: lists.warnings })
}

/// Reads lists, and goes without those that the user may not read.
struct Lists {
    client: Client,
    /// The only namespace of what is in one; `None`: all.
    namespace: Option<String>,
    warnings: Vec<String>,
}

impl Lists {
    /// What every View has, but for nodes and pods. `whole` keeps what a controller knows, and runs that
    /// have ended. Adds to `known` the kinds that were read.
    async fn common(
        &mut self,
        whole: bool,
        view: &mut View,
        known: &mut BTreeSet<String>,
    ) -> Result<(), Unlisted> {
        let client = self.client.clone();
        let mut add = |kind: &str, objects: Option<Vec<Object>>| {
            if let Some(objects) = objects {
                known.insert(kind.to_owned());
                objects.into_iter().for_each(|object| view.apply(object));
            }
        };

        let api = Api::all(client.clone());
        let without = "what namespaces say of placement is not known";
        add("Namespace", self.list(&api, "namespaces", without, Object::namespace).await?);

        let api = Api::all(client.clone());
        let without = "pools are told of as if there were none";
        match self.own(&api, "hostpools", without, Object::host_pool).await? {
            Some(pools) => add("HostPool", pools),
            None if whole => {}
            None => self.warnings.push(
                "the cluster does not know HostPools: stowplan is not installed in it".to_owned(),
            ),
        }
        let api = Api::all(client.clone());
        let without = "jobs are told of as if there were none";
        let jobs = self.own(&api, "streamsjobs", without, Object::streams_job).await?;
        jobs.into_iter().for_each(|jobs| add("StreamsJob", jobs));

        let api = self.of_namespace();
        let without = "every claim counts as one that one node uses at a time";
        let plural = "persistentvolumeclaims";
        add("PersistentVolumeClaim", self.list(&api, plural, without, Object::claim).await?);
        let api = Api::all(client.clone());
        let without = "where volumes can be used is not known";
        add(
            "PersistentVolume",
            self.list(&api, "persistentvolumes", without, Object::volume).await?,
        );
        let api = Api::all(client);
        let without = "claims are told of as if they kept their class";
        let plural = "storageclasses";
        add("StorageClass", self.list(&api, plural, without, Object::storage_class).await?);

        let api = self.of_namespace();
        let without = "placeholders are told of as if there were none";
        let project = move |set: &apps::StatefulSet| Object::placeholder(set, whole);
        let sets = pages(&api, "statefulsets", Some(PLACEHOLDER)).await;
        let sets = allowed(sets, without, &mut self.warnings)?;
        add("StatefulSet", sets.map(|sets| sets.iter().filter_map(project).collect()));

        for kind in tekton_kinds(whole) {
            add(kind.kind, self.tekton(kind).await?);
        }
        Ok(())
    }

    /// The objects of a kind; `None`, and a warning, where they may not be listed.
    async fn list<K>(
        &mut self,
        api: &Api<K>,
        plural: &'static str,
        without: &str,
        project: impl Fn(&K) -> Option<Object>,
    ) -> Result<Option<Vec<Object>>, Unlisted>
    where
        K: Clone + Debug + DeserializeOwned,
    {
        let objects = allowed(pages(api, plural, None).await, without, &mut self.warnings)?;
        Ok(objects.map(|objects| objects.iter().filter_map(project).collect()))
    }

    /// The same of a kind of ours. The outer `None`: the cluster does not know the kind.
    async fn own<K>(
        &mut self,
        api: &Api<K>,
        plural: &'static str,
        without: &str,
        project: impl Fn(&K) -> Option<Object>,
    ) -> Result<Option<Option<Vec<Object>>>, Unlisted>
    where
        K: Clone + Debug + DeserializeOwned,
    {
        match self.list(api, plural, without, project).await {
            Err(error) if error.has_code(NOT_FOUND) => Ok(None),
            objects => objects.map(Some),
        }
    }

    /// The objects of a kind of Tekton's, in whatever version: none in a cluster without Tekton.
    async fn tekton(&mut self, kind: tekton::Kind) -> Result<Option<Vec<Object>>, Unlisted> {
        const WITHOUT: &str =
            "pods of Tekton's runs are told of as if nothing were known of their run";
        for resource in kind.resources() {
            let api: Api<DynamicObject> = match &self.namespace {
                Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
                None => Api::all_with(self.client.clone(), &resource),
            };
            match self.list(&api, kind.plural, WITHOUT, kind.project).await {
                Err(error) if error.has_code(NOT_FOUND) => {}
                objects => return objects,
            }
        }
        Ok(Some(Vec::new()))
    }

    /// Whether a controller is there.
    async fn controller(&mut self, cluster: &mut check::Cluster) -> Result<(), Unlisted> {
        let api = Api::<Lease>::all(self.client.clone());
        let named = ListParams::default().fields(&format!("metadata.name={}", lease::NAME));
        let leases = api.list(&named).await.map(|list| list.items);
        let leases = leases.map_err(|error| Unlisted { plural: "leases", error });
        let without = "whether stowplan's controller is there is not known";
        if let Some(leases) = allowed(leases, without, &mut self.warnings)? {
            cluster.view.set_controller_present(leases.iter().any(is_held));
        }
        Ok(())
    }

    fn of_namespace<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }
}

/// What was listed; where that is forbidden, `None` and a warning that says what is missing `without`.
fn allowed<T>(
    listed: Result<T, Unlisted>,
    without: &str,
    warnings: &mut Vec<String>,
) -> Result<Option<T>, Unlisted> {
    match listed {
        Ok(listed) => Ok(Some(listed)),
        Err(error) if error.has_code(FORBIDDEN) => {
            warnings.push(format!("{error}: {without}"));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

async fn all<K>(
    client: &Client,
    plural: &'static str,
    selector: Option<&str>,
) -> Result<Vec<K>, Unlisted>
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    pages(&Api::all(client.clone()), plural, selector).await
}

async fn pages<K>(
    api: &Api<K>,
    plural: &'static str,
    selector: Option<&str>,
) -> Result<Vec<K>, Unlisted>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut parameters = ListParams::default().limit(PAGE);
    if let Some(selector) = selector {
        parameters = parameters.labels(selector);
    }
    let mut objects = Vec::new();
    loop {
        let page = api.list(&parameters).await.map_err(|error| Unlisted { plural, error })?;
        objects.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(objects),
        }
    }
}

/// A list that was not to be had.
#[derive(Debug)]
struct Unlisted {
    plural: &'static str,
    error: kube::Error,
}

impl fmt::Display for Unlisted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} cannot be listed: ", self.plural)?;
        match &self.error {
            // Without the rest of the status, which says the same again.
            kube::Error::Api(status) if !status.message.is_empty() => {
                formatter.write_str(&status.message)
            }
            error => {
                let causes = iter::successors(error.source(), |&cause| cause.source());
                write!(formatter, "{error}")?;
                causes.last().map_or(Ok(()), |root| write!(formatter, ": {root}"))
            }
        }
    }
}

impl Error for Unlisted {}

impl Unlisted {
    /// Whether the API server answered with this code.
    fn has_code(&self, code: u16) -> bool {
        matches!(&self.error, kube::Error::Api(status) if status.code == code)
    }
}
