//! Reads lists of objects, with the rights that the user has.
//!
//! A kind that may not be listed in all namespaces is listed in one. What cannot be read at all is
//! reported with the right that is missing and with the consequence.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::{self, Debug};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1 as core;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::access::Connection;
use crate::cli::requests::{self, FORBIDDEN, NOT_FOUND, has_code};
use crate::cluster::{is_held, time_of_cluster};
use crate::controller::lease;
use stowplan_core::kubernetes::OTHER_DENIAL;
use stowplan_core::systems::check::events::{AUTOSCALERS, CONTROLLER, FAILED_CREATE};
use stowplan_core::systems::check::queue::{self, Workload};
use stowplan_core::systems::{Object, TABLES, TableType, View};
use stowplan_core::view::resource::{NODE, POD};
use stowplan_core::view::table::{Definition, Watch};
use stowplan_core::view::{ControllerState, Kind, Scope};

const NAMESPACE: &str = "Namespace";

/// The consequence if nodes may not be listed.
pub(super) const WITHOUT_NODES: &str = "which hosts, tags and members of pools exist is not known";

/// Reads lists, and collects a warning for each that the user may not read.
pub(super) struct Lists {
    pub(super) client: Client,
    /// The URL of the API server, for messages.
    server: String,
    /// True if the objects of all namespaces are asked for, and not only those of `namespace`.
    all: bool,
    /// The namespace that is read if not all are.
    pub(super) namespace: String,
    /// The kinds that may be listed in `namespace` only, by their plural names.
    narrowed: BTreeSet<&'static str>,
    warnings: Vec<String>,
    /// The kinds of which all objects in question were read.
    pub(super) known: BTreeSet<String>,
}

impl Lists {
    pub(super) fn new(connection: Connection, namespace: String, all: bool) -> Self {
        Self {
            client: connection.client,
            server: connection.server,
            all,
            namespace,
            narrowed: BTreeSet::new(),
            warnings: Vec::new(),
            known: BTreeSet::new(),
        }
    }

    /// Returns the warnings about lists that could not be read, and what that means for the result.
    pub(super) fn into_warnings(mut self) -> Vec<String> {
        if !self.narrowed.is_empty() {
            let kinds: Vec<&str> = self.narrowed.into_iter().collect();
            self.warnings.push(format!(
                "read in namespace {} only, because the right to list them in all namespaces is \
                 missing: {}; objects of other namespaces are not known",
                self.namespace,
                kinds.join(", ")
            ));
        }
        self.warnings
    }

    pub(super) fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    /// Reads the nodes and the pods that a webhook reads.
    pub(super) async fn add_nodes_and_pods(
        &mut self,
        view: &mut View,
        keep: &mut dyn FnMut(Value),
    ) -> Result<(), Unlisted> {
        for of_all in [NODE, POD] {
            let tables = TABLES.iter().filter(|table| table.kind().resource == of_all);
            for watch in find_watches(tables, Scope::Admission) {
                // The controller sees all pods: they are listed without a selector.
                let mut keep_node = |document| {
                    if of_all == NODE {
                        keep(document);
                    }
                };
                self.add(watch, Scope::Admission, view, &mut keep_node).await?;
            }
        }
        Ok(())
    }

    /// Reads all kinds but nodes and pods, as far as commands read them. `keep` gets each object.
    pub(super) async fn add_other_kinds(
        &mut self,
        scope: Scope,
        view: &mut View,
        keep: &mut dyn FnMut(Value),
    ) -> Result<(), Unlisted> {
        let others = |table: &&TableType| {
            let Kind { resource, is_for_controller, .. } = table.kind();
            ![NODE, POD].contains(resource) && !is_for_controller
        };
        for list in find_watches(TABLES.iter().filter(others), scope) {
            self.add(list, scope, view, keep).await?;
        }
        Ok(())
    }

    /// Reads the kinds that decisions do not need, and that explain them.
    pub(super) async fn add_explaining_kinds(&mut self, view: &mut View) -> Result<(), Unlisted> {
        let explain = |table: &&TableType| {
            let Kind { resource, is_for_controller, .. } = table.kind();
            let is_read = !table.watches(Scope::Admission).is_empty();
            *resource != POD && !is_for_controller && !is_read
        };
        for list in find_watches(TABLES.iter().filter(explain), Scope::File) {
            self.add(list, Scope::File, view, &mut |_| {}).await?;
        }
        Ok(())
    }

    /// Adds the objects that a watch would report to the View. A list that the user may not read is
    /// only a warning.
    async fn add(
        &mut self,
        (kind, watch): (&'static Kind, Watch),
        scope: Scope,
        view: &mut View,
        keep: &mut dyn FnMut(Value),
    ) -> Result<(), Unlisted> {
        let without = match kind.without {
            Some(without) => without,
            None if kind.resource == NODE => WITHOUT_NODES,
            None => "the objects of this kind are not known",
        };
        let listed = self.list(kind, &watch.selector).await;
        let Some(listed) = self.unless_forbidden(listed, without)? else { return Ok(()) };
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
        self.known.insert(kind.resource.kind.to_owned());
        for document in documents {
            let object = Object::from_document(document.clone(), scope);
            let object =
                object.map_err(|problem| Unlisted::invalid(kind.resource.plural, problem))?;
            object.into_iter().for_each(|object| view.apply(object));
            keep(document);
        }
        Ok(())
    }

    /// Lists the objects of a kind in the preferred version that the cluster serves. `None` if it
    /// serves no version that stowplan reads.
    async fn list(
        &mut self,
        kind: &'static Kind,
        selector: &str,
    ) -> Result<Option<Vec<Value>>, Unlisted> {
        for resource in kind.api_resources() {
            match self.list_version(kind, &resource, selector).await {
                Err(error) if error.is_unserved() && kind.definition != Definition::BuiltIn => {}
                Err(error) => return Err(error),
                Ok(objects) => {
                    let document = |object| build_document(object, &resource);
                    return Ok(Some(objects.into_iter().filter_map(document).collect()));
                }
            }
        }
        Ok(None)
    }

    /// Lists the objects of one version of a kind: of all namespaces, or of one if that is what is
    /// asked for or allowed.
    async fn list_version(
        &mut self,
        kind: &'static Kind,
        resource: &ApiResource,
        selector: &str,
    ) -> Result<Vec<DynamicObject>, Unlisted> {
        let plural = kind.resource.plural;
        let everywhere = || Api::<DynamicObject>::all_with(self.client.clone(), resource);
        if !kind.resource.namespaced {
            let listed = self.list_pages(&everywhere(), plural, labelled(selector)).await;
            return match listed {
                // A role in the namespace may allow to read the namespace itself.
                Err(error) if error.lacks_right() && kind.resource.kind == NAMESPACE => {
                    let own = everywhere().get(&self.namespace).await.map_err(|_| error)?;
                    self.narrowed.insert(plural);
                    Ok(vec![own])
                }
                listed => listed,
            };
        }
        let own = Api::namespaced_with(self.client.clone(), &self.namespace, resource);
        if (self.all || kind.across_namespaces) && !self.narrowed.contains(plural) {
            return self.list_or_narrow([everywhere(), own], plural, labelled(selector)).await;
        }
        self.list_pages(&own, plural, labelled(selector)).await
    }

    /// Lists the objects of all namespaces or, if the user lacks the right to that, of one.
    async fn list_or_narrow<K>(
        &mut self,
        [all, own]: [Api<K>; 2],
        plural: &'static str,
        wanted: ListParams,
    ) -> Result<Vec<K>, Unlisted>
    where
        K: Clone + Debug + DeserializeOwned,
    {
        match self.list_pages(&all, plural, wanted.clone()).await {
            Err(error) if error.lacks_right() => {
                let listed = self.list_pages(&own, plural, wanted).await;
                if listed.as_ref().is_err_and(Unlisted::is_forbidden) {
                    return Err(error);
                }
                self.narrowed.insert(plural);
                listed
            }
            listed => listed,
        }
    }

    /// Lists all nodes. `None`: the user may not.
    pub(super) async fn list_nodes(&mut self) -> Result<Option<Vec<core::Node>>, Unlisted> {
        let nodes = Api::<core::Node>::all(self.client.clone());
        self.list_known(&nodes, NODE.plural, ListParams::default(), WITHOUT_NODES).await
    }

    /// Lists the pods of all namespaces, or of one if the user may not list the others. `without`:
    /// the consequence if the user may list none.
    pub(super) async fn list_pods(
        &mut self,
        everywhere: bool,
        without: &str,
    ) -> Result<Vec<core::Pod>, Unlisted> {
        let own = Api::<core::Pod>::namespaced(self.client.clone(), &self.namespace);
        let all = Api::<core::Pod>::all(self.client.clone());
        let listed = match everywhere {
            true => self.list_or_narrow([all, own], POD.plural, ListParams::default()).await,
            false => self.list_pages(&own, POD.plural, ListParams::default()).await,
        };
        Ok(self.unless_forbidden(listed, without)?.unwrap_or_default())
    }

    /// Lists objects of another kind in the namespace, or in all of them. Without the right there are
    /// none, and a warning with the consequence.
    pub(super) async fn list_documents(
        &mut self,
        resource: &ApiResource,
        plural: &'static str,
        without: &str,
    ) -> Result<Vec<Value>, Unlisted> {
        let api = self.documents_of(resource);
        let listed = self.list_known(&api, plural, ListParams::default(), without).await?;
        let listed = listed.unwrap_or_default();
        Ok(listed.into_iter().filter_map(|object| build_document(object, resource)).collect())
    }

    /// The objects of another kind that are asked for: in the namespace, or in all of them.
    fn documents_of(&self, resource: &ApiResource) -> Api<DynamicObject> {
        match self.all {
            true => Api::all_with(self.client.clone(), resource),
            false => Api::namespaced_with(self.client.clone(), &self.namespace, resource),
        }
    }

    /// Reads from the Lease whether a controller leads. `None`: the user may not read it.
    pub(super) async fn find_controller(&mut self) -> Result<Option<ControllerState>, Unlisted> {
        let api = Api::<Lease>::all(self.client.clone());
        let named = ListParams::default().fields(&format!("metadata.name={}", lease::NAME));
        let without = "it is not known whether stowplan's controller runs";
        let leases = self.list_known(&api, "leases", named, without).await?;
        let now = time_of_cluster(&self.client).await;
        Ok(leases.map(|leases| match leases.as_slice() {
            [] => ControllerState::NotYet,
            some if some.iter().any(|lease| is_held(lease, now)) => ControllerState::Leads,
            _ => ControllerState::Stopped,
        }))
    }

    /// Returns the list, or `None` and a warning if it is forbidden. `without` is the consequence, for
    /// the warning.
    fn unless_forbidden<T>(
        &mut self,
        listed: Result<T, Unlisted>,
        without: &str,
    ) -> Result<Option<T>, Unlisted> {
        match listed {
            Ok(listed) => Ok(Some(listed)),
            Err(error) if error.is_forbidden() => {
                let warning = format!("{error}: {without}");
                // Several lists of a kind differ in their selectors.
                if !self.warnings.contains(&warning) {
                    self.warnings.push(warning);
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Lists the objects that `wanted` selects. `None`: the user may not, and there is a warning with the
    /// consequence.
    pub(super) async fn list_known<K>(
        &mut self,
        api: &Api<K>,
        plural: &'static str,
        wanted: ListParams,
        without: &str,
    ) -> Result<Option<Vec<K>>, Unlisted>
    where
        K: Clone + Debug + DeserializeOwned,
    {
        let listed = self.list_pages(api, plural, wanted).await;
        self.unless_forbidden(listed, without)
    }

    pub(super) fn failed(&self, plural: &'static str, error: kube::Error) -> Unlisted {
        Unlisted { plural, error: Problem::Request(error), server: self.server.clone() }
    }

    /// Lists the events of autoscalers about pods, the warnings of stowplan, and the events about pods that could
    /// not be created. Without the right there are none, and a warning.
    pub(super) async fn list_events(&mut self) -> Result<Vec<core::Event>, Unlisted> {
        let api: Api<core::Event> = match self.all {
            true => Api::all(self.client.clone()),
            false => Api::namespaced(self.client.clone(), &self.namespace),
        };
        let mut events = Vec::new();
        let of_autoscalers = AUTOSCALERS.map(|of| format!("involvedObject.kind=Pod,source={of}"));
        let others =
            [format!("type=Warning,source={CONTROLLER}"), format!("reason={FAILED_CREATE}")];
        for fields in of_autoscalers.into_iter().chain(others) {
            let wanted = ListParams::default().fields(&fields);
            let without = "what autoscalers say, and what was refused, is not known";
            let listed = self.list_known(&api, "events", wanted, without).await?;
            events.extend(listed.into_iter().flatten());
        }
        Ok(events)
    }

    /// Lists Kueue's Workloads. Without Kueue there are none; without the right there are none, and a warning.
    pub(super) async fn list_workloads(&mut self) -> Result<Vec<Workload>, Unlisted> {
        for version in queue::VERSIONS {
            let kind = GroupVersionKind::gvk(queue::GROUP, version, queue::KIND);
            let resource = ApiResource::from_gvk(&kind);
            let listed = self
                .list_pages(&self.documents_of(&resource), "workloads", ListParams::default())
                .await;
            if listed.as_ref().is_err_and(Unlisted::is_unserved) {
                continue;
            }
            let without = "why Kueue holds pods is not known";
            let listed = self.unless_forbidden(listed, without)?.unwrap_or_default();
            let documents = listed.into_iter().filter_map(|of| build_document(of, &resource));
            let read = |of| {
                serde_json::from_value(of)
                    .map_err(|problem| Unlisted::invalid("workloads", problem.to_string()))
            };
            return documents.map(read).collect();
        }
        Ok(Vec::new())
    }

    /// Lists the objects that `wanted` selects, page by page.
    async fn list_pages<K>(
        &self,
        api: &Api<K>,
        plural: &'static str,
        wanted: ListParams,
    ) -> Result<Vec<K>, Unlisted>
    where
        K: Clone + Debug + DeserializeOwned,
    {
        let listed = requests::list_pages(api, wanted).await;
        listed.map_err(|error| self.failed(plural, error))
    }
}

/// Selects the objects with these labels; empty: all.
fn labelled(selector: &str) -> ListParams {
    let all = ListParams::default();
    if selector.is_empty() { all } else { all.labels(selector) }
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

/// A list that cannot be read.
#[derive(Debug)]
pub(super) struct Unlisted {
    plural: &'static str,
    error: Problem,
    server: String,
}

/// The reason why a list cannot be read.
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
        let error = match &self.error {
            Problem::Request(error) => error,
            Problem::Object(problem) => return formatter.write_str(problem),
        };
        match requests::message(error) {
            Some(message) if self.is_forbidden() && !self.lacks_right() => {
                write!(formatter, "{message} ({OTHER_DENIAL})")
            }
            Some(message) => formatter.write_str(message),
            None => {
                write!(formatter, "{}: {error}", self.server)?;
                let root = requests::root_cause(error);
                root.map_or(Ok(()), |root| write!(formatter, ": {root}"))
            }
        }
    }
}

impl Error for Unlisted {}

impl Unlisted {
    /// Returns true if the API server does not serve the kind.
    fn is_unserved(&self) -> bool {
        matches!(&self.error, Problem::Request(error) if has_code(error, &[NOT_FOUND]))
    }

    fn is_forbidden(&self) -> bool {
        matches!(&self.error, Problem::Request(error) if has_code(error, &[FORBIDDEN]))
    }

    /// Returns true if the user lacks the right, and the answer is not that of a proxy.
    fn lacks_right(&self) -> bool {
        matches!(&self.error, Problem::Request(error) if requests::lacks_right(error))
    }

    /// The error for an object of the list that cannot be decoded.
    fn invalid(plural: &'static str, problem: String) -> Self {
        Self { plural, error: Problem::Object(problem), server: String::new() }
    }
}
