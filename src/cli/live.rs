//! The cluster of the current kubeconfig context, read once: what `--live` means.

use std::error::Error;
use std::fmt::{self, Debug};
use std::iter;

use anyhow::Context as _;
use k8s_openapi::api::core::v1 as core;
use kube::api::ListParams;
use kube::config::KubeConfigOptions;
use kube::{Api, Client, Config};
use serde::de::DeserializeOwned;

use super::check;
use crate::api;
use crate::view::streams_pod::{APP, APP_VALUE, JOB};
use crate::view::{Object, View};

/// How many objects are asked for at a time, as kubectl does.
const PAGE: u32 = 500;

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

/// Reads the cluster as far as a diagnosis asks for, and the namespace of the context: all pods of
/// `namespace` (else of the context's), and the Streams pods of all others.
///
/// # Errors
/// What could not be listed, and why.
pub(super) fn read_whole(namespace: Option<&str>) -> anyhow::Result<(check::Cluster, String)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(list_whole(namespace))
}

async fn list_whole(namespace: Option<&str>) -> anyhow::Result<(check::Cluster, String)> {
    let (client, of_context) = connect().await?;
    let namespace = namespace.map_or(of_context, str::to_owned);
    let mut cluster = check::Cluster::default();
    for node in all::<core::Node>(&client, "nodes", None).await? {
        cluster.add_node(node);
    }
    for object in all::<core::Namespace>(&client, "namespaces", None).await? {
        Object::namespace(&object).into_iter().for_each(|object| cluster.view.apply(object));
    }
    for pool in own::<api::HostPool>(&client, "hostpools").await?.unwrap_or_default() {
        Object::host_pool(&pool).into_iter().for_each(|object| cluster.view.apply(object));
    }
    for job in own::<api::StreamsJob>(&client, "streamsjobs").await?.unwrap_or_default() {
        Object::streams_job(&job).into_iter().for_each(|object| cluster.view.apply(object));
    }
    let pods = Api::<core::Pod>::namespaced(client, &namespace);
    for pod in pages(&pods, "pods", None).await? {
        cluster.add_pod(pod);
    }
    Ok((cluster, namespace))
}

async fn connect() -> anyhow::Result<(Client, String)> {
    let config = Config::from_kubeconfig(&KubeConfigOptions::default())
        .await
        .context("no usable kubeconfig (set KUBECONFIG, or use --cluster)")?;
    let namespace = config.default_namespace.clone();
    let client = Client::try_from(config).context("the kubeconfig's context is not usable")?;
    Ok((client, namespace))
}

/// The objects of a kind of ours; `None` where the cluster does not know the kind.
async fn own<K>(client: &Client, plural: &'static str) -> Result<Option<Vec<K>>, Unlisted>
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    match all(client, plural, None).await {
        Ok(objects) => Ok(Some(objects)),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn list() -> anyhow::Result<Live> {
    let (client, namespace) = connect().await?;
    let mut view = View::default();
    let mut warnings = Vec::new();

    for node in all::<core::Node>(&client, "nodes", None).await? {
        Object::node(&node).into_iter().for_each(|object| view.apply(object));
    }
    for namespace in all::<core::Namespace>(&client, "namespaces", None).await? {
        Object::namespace(&namespace).into_iter().for_each(|object| view.apply(object));
    }
    match own::<api::HostPool>(&client, "hostpools").await? {
        Some(pools) => {
            pools.iter().filter_map(Object::host_pool).for_each(|object| view.apply(object));
        }
        None => {
            warnings.push(
                "the cluster does not know HostPools: stowplan is not installed in it".to_owned(),
            );
        }
    }
    for job in own::<api::StreamsJob>(&client, "streamsjobs").await?.unwrap_or_default() {
        Object::streams_job(&job).into_iter().for_each(|object| view.apply(object));
    }
    // A selector cannot say "or".
    for selector in [JOB.to_owned(), format!("{APP}={APP_VALUE}")] {
        for pod in all::<core::Pod>(&client, "pods", Some(&selector)).await? {
            Object::streams_pod(&pod).into_iter().for_each(|object| view.apply(object));
        }
    }
    Ok(Live { view, namespace, warnings })
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

fn is_not_found(error: &Unlisted) -> bool {
    matches!(&error.error, kube::Error::Api(status) if status.code == 404)
}
