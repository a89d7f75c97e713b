//! The contribution of a system to the diagnosis of the installation: `stowplan check` without an object.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Serialize;

use crate::systems::policy::Policy;

/// The state of an item of the installation.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Ok,
    /// It cannot be read: a right is missing, or something does not answer.
    Unknown,
    /// It works, and should be changed.
    Warning,
    /// Pods are not placed, or objects are not served, until it is mended.
    Problem,
}

/// One line about the installation.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Item {
    /// A stable word. Several lines may have the same name.
    pub name: &'static str,
    pub state: State,
    pub message: String,
    /// The remedy; empty: there is nothing to do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

/// Collects what is found about one item.
#[derive(Debug)]
pub struct Findings {
    name: &'static str,
    items: Vec<Item>,
}

impl Findings {
    pub fn new(name: &'static str) -> Self {
        Self { name, items: Vec::new() }
    }

    pub fn problem(&mut self, message: impl Into<String>, remedy: impl Into<String>) {
        self.add(State::Problem, message.into(), remedy.into());
    }

    pub fn warning(&mut self, message: impl Into<String>, remedy: impl Into<String>) {
        self.add(State::Warning, message.into(), remedy.into());
    }

    pub fn unknown(&mut self, message: impl Into<String>, remedy: impl Into<String>) {
        self.add(State::Unknown, message.into(), remedy.into());
    }

    fn add(&mut self, state: State, message: String, remedy: String) {
        let item = Item { name: self.name, state, message, remedy };
        // Several webhooks or replicas may have the same problem.
        if !self.items.contains(&item) {
            self.items.push(item);
        }
    }

    /// The lines, or one that is fine with this message.
    pub fn or_ok(mut self, message: impl Into<String>) -> Vec<Item> {
        if self.items.is_empty() {
            self.add(State::Ok, message.into(), String::new());
        }
        self.items
    }
}

/// The facts that the diagnosis of a system is based on.
#[derive(Clone, Copy, Debug)]
pub struct Installed<'i> {
    /// The definitions of the kinds that systems read, as far as the cluster has them. `None`: they
    /// cannot be read.
    pub definitions: Option<&'i [CustomResourceDefinition]>,
    /// The data of the system's [`ConfigMapName`]; `Ok(None)`: it does not exist.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub settings: Result<Option<&'i BTreeMap<String, String>>, &'i str>,
    /// The policy of the cluster, or the default one.
    pub policy: &'i Policy,
}

impl Installed<'_> {
    /// The definition of this name, such as `hostpools.stowplan.dev`.
    pub(crate) fn definition(&self, name: &str) -> Option<&CustomResourceDefinition> {
        let mut definitions = self.definitions.into_iter().flatten();
        definitions.find(|of| of.metadata.name.as_deref() == Some(name))
    }
}

/// The namespace and the name of a ConfigMap.
pub(crate) type ConfigMapName = (&'static str, &'static str);

/// The contribution of a system to the diagnosis of the installation.
#[derive(Debug)]
pub struct Installation {
    /// The words that a match condition of the webhook for pods has to name, so that the API server
    /// sends the system's pods.
    pub sent_by: &'static [&'static str],
    /// The webhook for pods without keys of the system, in namespaces that ask for it.
    pub webhook: Option<AskedFor>,
    /// The annotations of a pod that the system always changes, whatever the cluster has.
    pub trial: &'static [(&'static str, &'static str)],
    /// The ConfigMap with the settings of the project that the system works with.
    pub settings: Option<ConfigMapName>,
    /// Diagnoses that project. `None`: there is nothing to diagnose.
    pub check: Option<fn(&Installed<'_>) -> Vec<Item>>,
}

impl Installation {
    /// Adds nothing.
    pub(crate) const NONE: Self =
        Self { sent_by: &[], webhook: None, trial: &[], settings: None, check: None };
}

/// A webhook for the pods of the namespaces that ask for it.
#[derive(Clone, Copy, Debug)]
pub struct AskedFor {
    pub name: &'static str,
    /// The label of these namespaces, with the value `"true"`.
    pub label: &'static str,
    /// The names of its match conditions.
    pub conditions: &'static [&'static str],
    /// The consequence if there is no such webhook.
    pub without: &'static str,
}
