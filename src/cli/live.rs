//! Reads the cluster of the current kubeconfig context once, for `plan --live` and `check`.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::{self, Debug};
use std::iter;

use anyhow::Context as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1 as core;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::config::KubeConfigOptions;
use kube::{Api, Client, Config};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cluster::is_held;
use crate::controller::lease;
use crate::systems::check::Cluster;
use crate::systems::{self, TABLES};
use crate::view::resource::{NODE, POD};
use crate::view::table::{Definition, Watch};
use crate::view::{Kind, Object, Scope, TableType, View};

/// The number of objects in one page of a list, as for kubectl.
const PAGE: u32 = 500;

/// The HTTP status codes for a list that the user may not read, and for a kind that is not served.
const FORBIDDEN: u16 = 403;
const NOT_FOUND: u16 = 404;

/// The cluster, for `plan`.
pub(super) struct Live {
    pub(super) view: View,
    /// The namespace of the kubeconfig context.
    pub(super) namespace: String,
    /// What could not be read, and what that means for the result.
    pub(super) warnings: Vec<String>,
}

/// Reads the cluster for `plan`.
///
/// # Errors
/// Which list could not be read, and why.
pub(super) fn read() -> anyhow::Result<Live> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(list()).context("--live")
}

/// The cluster, for `check`.
pub(super) struct LiveCheck {
    pub(super) cluster: Cluster,
    /// The namespace that was read.
    pub(super) namespace: String,
    /// What could not be read, and what that means for the result.
    pub(super) warnings: Vec<String>,
}

/// Reads the cluster for `check`: the objects of `namespace` (by default the context's), and those
/// without a namespace. `with_all_pods`: also the pods of other namespaces, for the free capacity
/// of nodes.
///
/// # Errors
/// Which list could not be read, and why.
pub(super) fn read_for_check(
    namespace: Option<&str>,
    with_all_pods: bool,
) -> anyhow::Result<LiveCheck> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(list_for_check(namespace, with_all_pods))
}

async fn list_for_check(namespace: Option<&str>, with_all_pods: bool) -> anyhow::Result<LiveCheck> {
    let (client, of_context) = connect().await?;
    let namespace = namespace.map_or(of_context, str::to_owned);
    let mut cluster = Cluster::default();
    let mut lists = Lists { client, namespace: Some(namespace), warnings: Vec::new() };
    for node in list_all::<core::Node>(&lists.client, "nodes", None).await? {
        cluster.add_node(node);
    }
    lists.add_other_kinds(Scope::Controller, &mut cluster.view, &mut cluster.known).await?;
    lists.find_controller(&mut cluster).await?;
    let namespace = lists.namespace.unwrap_or_default();
    if with_all_pods {
        let without = "the capacity that pods of other namespaces leave on nodes is not known";
        let everywhere = list_all::<core::Pod>(&lists.client, "pods", None).await;
        for pod in unless_forbidden(everywhere, without, &mut lists.warnings)?.unwrap_or_default() {
            if pod.metadata.namespace.as_ref() != Some(&namespace) {
                let object = systems::project(&pod, Scope::Controller);
                object.into_iter().for_each(|object| cluster.view.apply(object));
            }
        }
    }
    cluster.known.insert("Pod".to_owned());
    let pods = Api::<core::Pod>::namespaced(lists.client, &namespace);
    for pod in list_pages(&pods, "pods", None).await? {
        cluster.add_pod(pod);
    }
    Ok(LiveCheck { cluster, namespace, warnings: lists.warnings })
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
    let mut view = systems::view();
    let mut lists = Lists { client, namespace: None, warnings: Vec::new() };
    let mut known = BTreeSet::new();
    for of_all in [NODE, POD] {
        let tables = TABLES.iter().filter(|table| table.kind().resource == of_all);
        for watch in find_watches(tables, Scope::Admission) {
            lists.add(watch, Scope::Admission, &mut view, &mut known).await?;
        }
    }
    lists.add_other_kinds(Scope::Admission, &mut view, &mut known).await?;
    Ok(Live { view, namespace, warnings: lists.warnings })
}

/// Reads lists, and collects a warning for each that the user may not read and that is not
/// essential.
struct Lists {
    client: Client,
    /// The namespace whose objects are read; `None` for all namespaces.
    namespace: Option<String>,
    warnings: Vec<String>,
}

impl Lists {
    /// Reads all kinds but nodes and pods. Adds to `known` the kinds that were read.
    async fn add_other_kinds(
        &mut self,
        scope: Scope,
        view: &mut View,
        known: &mut BTreeSet<String>,
    ) -> Result<(), Unlisted> {
        let others = |table: &&TableType| ![NODE, POD].contains(&table.kind().resource);
        for list in find_watches(TABLES.iter().filter(others), scope) {
            self.add(list, scope, view, known).await?;
        }
        Ok(())
    }

    /// Adds the objects that a watch would report to the View. If the kind is not essential, a list
    /// that the user may not read is only a warning.
    async fn add(
        &mut self,
        (kind, watch): (&'static Kind, Watch),
        scope: Scope,
        view: &mut View,
        known: &mut BTreeSet<String>,
    ) -> Result<(), Unlisted> {
        let listed = match (self.list(kind, &watch.selector).await, kind.without) {
            (listed, Some(without)) => match unless_forbidden(listed, without, &mut self.warnings)?
            {
                Some(listed) => listed,
                None => return Ok(()),
            },
            (listed, None) => listed?,
        };
        let documents = match (listed, kind.definition) {
            (Some(documents), _) => documents,
            // A kind that is not served has no objects.
            (None, Definition::Foreign) => Vec::new(),
            (None, _) => {
                let warning = kind.unserved.filter(|_| scope == Scope::Admission);
                self.warnings.extend(warning.map(str::to_owned));
                return Ok(());
            }
        };
        known.insert(kind.resource.kind.to_owned());
        for document in documents {
            let object = Object::from_document(TABLES, document, scope);
            let object = object.map_err(|problem| Unlisted::invalid(kind, problem))?;
            object.into_iter().for_each(|object| view.apply(object));
        }
        Ok(())
    }

    /// Lists the objects of a kind in the preferred version that the cluster serves. `None` if it
    /// serves no version that stowplan reads.
    async fn list(
        &self,
        kind: &'static Kind,
        selector: &str,
    ) -> Result<Option<Vec<Value>>, Unlisted> {
        for resource in kind.api_resources() {
            match list_pages(&self.api(kind, &resource), kind.resource.plural, Some(selector)).await
            {
                Err(error) if error.has_code(NOT_FOUND) && !is_built_in(kind) => {}
                Err(error) => return Err(error),
                Ok(objects) => {
                    let document = |object| build_document(object, &resource);
                    return Ok(Some(objects.into_iter().filter_map(document).collect()));
                }
            }
        }
        Ok(None)
    }

    fn api(&self, kind: &Kind, resource: &ApiResource) -> Api<DynamicObject> {
        let own = kind.resource.namespaced && !kind.across_namespaces;
        match self.namespace.as_ref().filter(|_| own) {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, resource),
            None => Api::all_with(self.client.clone(), resource),
        }
    }

    /// Reads whether stowplan's controller runs: one holds the lease.
    async fn find_controller(&mut self, cluster: &mut Cluster) -> Result<(), Unlisted> {
        let api = Api::<Lease>::all(self.client.clone());
        let named = ListParams::default().fields(&format!("metadata.name={}", lease::NAME));
        let leases = api.list(&named).await.map(|list| list.items);
        let leases = leases.map_err(|error| Unlisted::of_request("leases", error));
        let without = "it is not known whether stowplan's controller runs";
        if let Some(leases) = unless_forbidden(leases, without, &mut self.warnings)? {
            cluster.view.set_controller_present(leases.iter().any(is_held));
        }
        Ok(())
    }
}

fn is_built_in(kind: &Kind) -> bool {
    kind.definition == Definition::BuiltIn
}

/// Converts an item of a list, which has no kind, to a document with its kind.
fn build_document(object: DynamicObject, resource: &ApiResource) -> Option<Value> {
    let mut document = serde_json::to_value(object).ok()?;
    let members = document.as_object_mut()?;
    members.insert("apiVersion".to_owned(), resource.api_version.as_str().into());
    members.insert("kind".to_owned(), resource.kind.as_str().into());
    Some(document)
}

/// The kinds of `tables` with their watches, each watch once.
fn find_watches<'t>(
    tables: impl Iterator<Item = &'t TableType>,
    scope: Scope,
) -> Vec<(&'static Kind, Watch)> {
    let mut watches: Vec<(&'static Kind, Watch)> = Vec::new();
    for table in tables {
        for watch in table.watches(scope) {
            if !watches.iter().any(|(_, known)| known.store == watch.store) {
                watches.push((table.kind(), watch));
            }
        }
    }
    watches
}

/// Returns the list, or `None` and a warning if it is forbidden. `without` is the consequence, for
/// the warning.
fn unless_forbidden<T>(
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

async fn list_all<K>(
    client: &Client,
    plural: &'static str,
    selector: Option<&str>,
) -> Result<Vec<K>, Unlisted>
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    list_pages(&Api::all(client.clone()), plural, selector).await
}

async fn list_pages<K>(
    api: &Api<K>,
    plural: &'static str,
    selector: Option<&str>,
) -> Result<Vec<K>, Unlisted>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut parameters = ListParams::default().limit(PAGE);
    if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
        parameters = parameters.labels(selector);
    }
    let mut objects = Vec::new();
    loop {
        let page =
            api.list(&parameters).await.map_err(|error| Unlisted::of_request(plural, error))?;
        objects.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(objects),
        }
    }
}

/// A list that cannot be read.
#[derive(Debug)]
struct Unlisted {
    plural: &'static str,
    error: Problem,
}

/// Why a list cannot be read.
#[derive(Debug)]
enum Problem {
    /// The request failed.
    Request(kube::Error),
    /// An object in the list is invalid.
    Object(String),
}

impl fmt::Display for Unlisted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} cannot be listed: ", self.plural)?;
        match &self.error {
            // Without the other fields of the status, which repeat the message.
            Problem::Request(kube::Error::Api(status)) if !status.message.is_empty() => {
                formatter.write_str(&status.message)
            }
            Problem::Request(error) => {
                let causes = iter::successors(error.source(), |&cause| cause.source());
                write!(formatter, "{error}")?;
                causes.last().map_or(Ok(()), |root| write!(formatter, ": {root}"))
            }
            Problem::Object(problem) => formatter.write_str(problem),
        }
    }
}

impl Error for Unlisted {}

impl Unlisted {
    /// Whether the API server answered with this code.
    fn has_code(&self, code: u16) -> bool {
        matches!(&self.error, Problem::Request(kube::Error::Api(status)) if status.code == code)
    }

    fn of_request(plural: &'static str, error: kube::Error) -> Self {
        Self { plural, error: Problem::Request(error) }
    }

    /// The error for an object of the list that cannot be decoded.
    fn invalid(kind: &Kind, problem: String) -> Self {
        Self { plural: kind.resource.plural, error: Problem::Object(problem) }
    }
}
