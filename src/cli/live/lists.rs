//! Reads lists of objects, with the rights that the user has.
//!
//! A kind that may not be listed in all namespaces is listed in one. What cannot be read at all is
//! reported with the right that is missing and with the consequence.

use std::collections::BTreeSet;
use std::fmt::Debug;

use anyhow::anyhow;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1 as core;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, TypeMeta};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::access::Connection;
use crate::cli::print_notice;
use crate::cli::requests::{
    FORBIDDEN, NOT_FOUND, has_code, lacks_right, list_pages, message, root_cause,
};
use crate::cluster::{is_held, time_of_cluster};
use crate::controller::lease;
use stowplan_core::kubernetes::OTHER_DENIAL;
use stowplan_core::systems::check::events::{AUTOSCALERS, CONTROLLER, FAILED_CREATE};
use stowplan_core::systems::check::queue::{self, Workload};
use stowplan_core::systems::{Object, TABLES, TableType, View};
use stowplan_core::view::resource::{NAMESPACE, NODE, POD, Resource};
use stowplan_core::view::table::{Definition, Watch};
use stowplan_core::view::{ControllerState, Kind, Scope};

/// The consequence if nodes may not be listed.
pub(in crate::cli) const WITHOUT_NODES: &str =
    "which hosts, tags and members of pools exist is not known";

/// Reads lists, and collects a warning for each that the user may not read.
pub(in crate::cli) struct Lists {
    pub(super) connection: Connection,
    /// True if the objects of all namespaces are asked for, and not only those of `namespace`.
    all: bool,
    /// The namespace that is read if not all are.
    namespace: String,
    /// The kinds that may be listed in `namespace` only, by their plural names.
    narrowed: BTreeSet<&'static str>,
    warnings: Vec<String>,
    /// The kinds of which all objects in question were read.
    pub(in crate::cli) known: BTreeSet<String>,
}

impl Lists {
    pub(in crate::cli) fn new(connection: Connection, namespace: String, all: bool) -> Self {
        Self {
            connection,
            all,
            namespace,
            narrowed: BTreeSet::new(),
            warnings: Vec::new(),
            known: BTreeSet::new(),
        }
    }

    /// Prints the warnings about lists that could not be read, and what that means for the result.
    pub(in crate::cli) fn print_warnings(&self) {
        self.warnings.iter().for_each(|warning| print_notice(warning));
        if !self.narrowed.is_empty() {
            let kinds: Vec<&str> = self.narrowed.iter().copied().collect();
            print_notice(&format!(
                "read in namespace {} only, because the right to list them in all namespaces is \
                 missing: {}; objects of other namespaces are not known",
                self.namespace,
                kinds.join(", ")
            ));
        }
    }

    pub(super) fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    /// Reads the nodes and the pods that a webhook reads. `keep` gets the nodes.
    pub(super) async fn add_nodes_and_pods(
        &mut self,
        view: &mut View,
        keep: &mut dyn FnMut(Value),
    ) -> anyhow::Result<()> {
        let is_of = |kind: Resource| move |table: &TableType| table.kind().resource == kind;
        self.add(is_of(NODE), Scope::Admission, view, keep).await?;
        // The controller sees all pods: they are listed without a selector.
        self.add(is_of(POD), Scope::Admission, view, &mut |_| {}).await
    }

    /// Reads all kinds but nodes and pods, as far as commands read them. `keep` gets each object.
    pub(in crate::cli) async fn add_other_kinds(
        &mut self,
        scope: Scope,
        view: &mut View,
        keep: &mut dyn FnMut(Value),
    ) -> anyhow::Result<()> {
        let is_other = |table: &TableType| {
            let Kind { resource, is_for_controller, .. } = table.kind();
            ![NODE, POD].contains(resource) && !is_for_controller
        };
        self.add(is_other, scope, view, keep).await
    }

    /// Reads the kinds that decisions do not need, and that explain them.
    pub(super) async fn add_explaining_kinds(&mut self, view: &mut View) -> anyhow::Result<()> {
        let explains = |table: &TableType| {
            let Kind { resource, is_for_controller, .. } = table.kind();
            let is_read = !table.watches(Scope::Admission).is_empty();
            *resource != POD && !is_for_controller && !is_read
        };
        self.add(explains, Scope::File, view, &mut |_| {}).await
    }

    /// Adds the objects that the watches of some tables would report to the View, and gives them to
    /// `keep`. A list that the user may not read is only a warning.
    async fn add(
        &mut self,
        is_wanted: impl Fn(&TableType) -> bool,
        scope: Scope,
        view: &mut View,
        keep: &mut dyn FnMut(Value),
    ) -> anyhow::Result<()> {
        for (kind, watch) in find_watches(is_wanted, scope) {
            let Resource { kind: name, plural, .. } = kind.resource;
            let without = match kind.without {
                Some(without) => without,
                None if kind.resource == NODE => WITHOUT_NODES,
                None => "the objects of this kind are not known",
            };
            let listed = self.list(kind, &watch.selector).await;
            let Some(listed) = self.unless_forbidden(listed, plural, without)? else { continue };
            if listed.is_none() && kind.definition != Definition::Foreign {
                let warning = kind.unserved.filter(|_| scope == Scope::Admission);
                self.warnings.extend(warning.map(str::to_owned));
                continue;
            }
            self.known.insert(name.to_owned());
            // A kind that is not served has no objects.
            for document in listed.unwrap_or_default() {
                let object = Object::from_document(document.clone(), scope);
                let object = object.map_err(|problem| unlisted(plural, &problem))?;
                object.into_iter().for_each(|object| view.apply(object));
                keep(document);
            }
        }
        Ok(())
    }

    /// Lists the objects of a kind in the preferred version that the cluster serves. `None` if it
    /// serves no version that stowplan reads.
    async fn list(
        &mut self,
        kind: &'static Kind,
        selector: &str,
    ) -> kube::Result<Option<Vec<Value>>> {
        for resource in kind.api_resources() {
            match self.list_version(kind, &resource, selector).await {
                Err(error) if is_unserved(&error) && kind.definition != Definition::BuiltIn => {}
                listed => return Ok(Some(build_documents(listed?, &resource))),
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
    ) -> kube::Result<Vec<DynamicObject>> {
        let Resource { plural, namespaced, .. } = kind.resource;
        let all = ListParams::default();
        let wanted = if selector.is_empty() { all } else { all.labels(selector) };
        let everywhere = Api::<DynamicObject>::all_with(self.connection.client.clone(), resource);
        if !namespaced {
            return match list_pages(&everywhere, wanted).await {
                // A role in the namespace may allow to read the namespace itself.
                Err(error) if lacks_right(&error) && kind.resource == NAMESPACE => {
                    let own = everywhere.get(&self.namespace).await.map_err(|_| error)?;
                    self.narrowed.insert(plural);
                    Ok(vec![own])
                }
                listed => listed,
            };
        }
        let client = self.connection.client.clone();
        let own = Api::namespaced_with(client, &self.namespace, resource);
        if (self.all || kind.across_namespaces) && !self.narrowed.contains(plural) {
            return self.list_or_narrow([everywhere, own], plural, wanted).await;
        }
        list_pages(&own, wanted).await
    }

    /// Lists the objects of all namespaces or, if the user lacks the right to that, of one.
    async fn list_or_narrow<K>(
        &mut self,
        [all, own]: [Api<K>; 2],
        plural: &'static str,
        wanted: ListParams,
    ) -> kube::Result<Vec<K>>
    where
        K: Clone + Debug + DeserializeOwned,
    {
        match list_pages(&all, wanted.clone()).await {
            Err(error) if lacks_right(&error) => {
                let listed = list_pages(&own, wanted).await;
                if listed.as_ref().is_err_and(is_forbidden) {
                    return Err(error);
                }
                self.narrowed.insert(plural);
                listed
            }
            listed => listed,
        }
    }

    /// Lists all nodes. Without the right there are none, and a warning.
    pub(in crate::cli) async fn list_nodes(&mut self) -> anyhow::Result<Vec<core::Node>> {
        let nodes = Api::<core::Node>::all(self.connection.client.clone());
        let listed = list_pages(&nodes, ListParams::default()).await;
        Ok(self.unless_forbidden(listed, NODE.plural, WITHOUT_NODES)?.unwrap_or_default())
    }

    /// Lists the pods of all namespaces, or of one if the user may not list the others. `without`:
    /// the consequence if the user may list none.
    pub(in crate::cli) async fn list_pods(
        &mut self,
        everywhere: bool,
        without: &str,
    ) -> anyhow::Result<Vec<core::Pod>> {
        let client = &self.connection.client;
        let own = Api::<core::Pod>::namespaced(client.clone(), &self.namespace);
        let all = Api::<core::Pod>::all(client.clone());
        let listed = match everywhere {
            true => self.list_or_narrow([all, own], POD.plural, ListParams::default()).await,
            false => list_pages(&own, ListParams::default()).await,
        };
        Ok(self.unless_forbidden(listed, POD.plural, without)?.unwrap_or_default())
    }

    /// Lists objects of another kind in the namespace, or in all of them. Without the right there are
    /// none, and a warning with the consequence.
    pub(in crate::cli) async fn list_documents(
        &mut self,
        resource: &Resource,
        without: &str,
    ) -> anyhow::Result<Vec<Value>> {
        let kind = resource.api_resource();
        let listed = list_pages(&self.documents_of(&kind), ListParams::default()).await;
        let listed = self.unless_forbidden(listed, resource.plural, without)?;
        Ok(build_documents(listed.unwrap_or_default(), &kind))
    }

    /// The objects of another kind that are asked for: in the namespace, or in all of them.
    fn documents_of(&self, resource: &ApiResource) -> Api<DynamicObject> {
        let client = self.connection.client.clone();
        match self.all {
            true => Api::all_with(client, resource),
            false => Api::namespaced_with(client, &self.namespace, resource),
        }
    }

    /// Reads from the Lease whether a controller leads. `None`: the user may not read it.
    pub(in crate::cli) async fn find_controller(
        &mut self,
    ) -> anyhow::Result<Option<ControllerState>> {
        let api = Api::<Lease>::all(self.connection.client.clone());
        let named = ListParams::default().fields(&format!("metadata.name={}", lease::NAME));
        let without = "it is not known whether stowplan's controller runs";
        let leases = list_pages(&api, named).await;
        let leases = self.unless_forbidden(leases, "leases", without)?;
        let now = time_of_cluster(&self.connection.client).await;
        Ok(leases.map(|leases| match leases.as_slice() {
            [] => ControllerState::NotYet,
            some if some.iter().any(|lease| is_held(lease, now)) => ControllerState::Leads,
            _ => ControllerState::Stopped,
        }))
    }

    /// Lists the events of autoscalers about pods, the warnings of stowplan, and the events about pods that could
    /// not be created. Without the right there are none, and a warning.
    pub(in crate::cli) async fn list_events(&mut self) -> anyhow::Result<Vec<core::Event>> {
        let client = self.connection.client.clone();
        let api: Api<core::Event> = match self.all {
            true => Api::all(client),
            false => Api::namespaced(client, &self.namespace),
        };
        let mut events = Vec::new();
        let of_autoscalers = AUTOSCALERS.map(|of| format!("involvedObject.kind=Pod,source={of}"));
        let others =
            [format!("type=Warning,source={CONTROLLER}"), format!("reason={FAILED_CREATE}")];
        for fields in of_autoscalers.into_iter().chain(others) {
            let listed = list_pages(&api, ListParams::default().fields(&fields)).await;
            let without = "what autoscalers say, and what was refused, is not known";
            let listed = self.unless_forbidden(listed, "events", without)?;
            events.extend(listed.into_iter().flatten());
        }
        Ok(events)
    }

    /// Lists Kueue's Workloads. Without Kueue there are none; without the right there are none, and a warning.
    pub(in crate::cli) async fn list_workloads(&mut self) -> anyhow::Result<Vec<Workload>> {
        for version in queue::VERSIONS {
            let kind = GroupVersionKind::gvk(queue::GROUP, version, queue::KIND);
            let resource = ApiResource::from_gvk(&kind);
            let listed = list_pages(&self.documents_of(&resource), ListParams::default()).await;
            if listed.as_ref().is_err_and(is_unserved) {
                continue;
            }
            let without = "why Kueue holds pods is not known";
            let listed = self.unless_forbidden(listed, "workloads", without)?;
            let documents = build_documents(listed.unwrap_or_default(), &resource).into_iter();
            let read = documents.map(serde_json::from_value).collect::<Result<_, _>>();
            return read.map_err(|problem| unlisted("workloads", &problem.to_string()));
        }
        Ok(Vec::new())
    }

    /// Returns the list, or `None` and a warning if it is forbidden. `without` is the consequence, for
    /// the warning.
    pub(super) fn unless_forbidden<T>(
        &mut self,
        listed: kube::Result<T>,
        plural: &str,
        without: &str,
    ) -> anyhow::Result<Option<T>> {
        match listed {
            Ok(listed) => Ok(Some(listed)),
            Err(error) if is_forbidden(&error) => {
                let warning = format!("{}: {without}", self.failed(plural, &error));
                // Several lists of a kind differ in their selectors.
                if !self.warnings.contains(&warning) {
                    self.warnings.push(warning);
                }
                Ok(None)
            }
            Err(error) => Err(self.failed(plural, &error)),
        }
    }

    /// Explains why the objects of a kind cannot be listed.
    pub(super) fn failed(&self, plural: &str, error: &kube::Error) -> anyhow::Error {
        let problem = match message(error) {
            Some(message) if is_forbidden(error) && !lacks_right(error) => {
                format!("{message} ({OTHER_DENIAL})")
            }
            Some(message) => message.to_owned(),
            None => {
                let root = root_cause(error).map(|root| format!(": {root}")).unwrap_or_default();
                format!("{}: {error}{root}", self.connection.server)
            }
        };
        unlisted(plural, &problem)
    }
}

/// The error for a list that cannot be read, or with an object that cannot be decoded.
fn unlisted(plural: &str, problem: &str) -> anyhow::Error {
    anyhow!("{plural} cannot be listed: {problem}")
}

/// Returns true if the API server does not serve the kind.
fn is_unserved(error: &kube::Error) -> bool {
    has_code(error, &[NOT_FOUND])
}

fn is_forbidden(error: &kube::Error) -> bool {
    has_code(error, &[FORBIDDEN])
}

/// Converts the items of a list, which have no kind, to documents with their kind.
fn build_documents(objects: Vec<DynamicObject>, resource: &ApiResource) -> Vec<Value> {
    let types = TypeMeta { api_version: resource.api_version.clone(), kind: resource.kind.clone() };
    let typed = |object| DynamicObject { types: Some(types.clone()), ..object };
    objects.into_iter().filter_map(|of| serde_json::to_value(typed(of)).ok()).collect()
}

/// The kinds of the tables that are wanted with their watches, each watch once.
fn find_watches(
    is_wanted: impl Fn(&TableType) -> bool,
    scope: Scope,
) -> Vec<(&'static Kind, Watch)> {
    let mut watches: Vec<(&'static Kind, Watch)> = Vec::new();
    for table in TABLES.iter().filter(|table| is_wanted(table)) {
        for watch in table.watches(scope) {
            if !watches.iter().any(|(_, known)| known.store == watch.store) {
                watches.push((table.kind(), watch));
            }
        }
    }
    watches
}
