//! The section `mpi` of the policy.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::form;

/// MPI clusters.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Mpi {
    /// Whether the annotations are acted on.
    pub enabled: bool,
    /// The cluster's DNS domain.
    #[schemars(schema_with = "form::object_name")]
    pub cluster_domain: String,
    /// Labels of the namespaces in which MPI clusters may be made. Empty: all.
    #[schemars(schema_with = "form::labels")]
    pub namespaces: BTreeMap<String, String>,
}

impl Default for Mpi {
    fn default() -> Self {
        Self {
            enabled: true,
            cluster_domain: "cluster.local".to_owned(),
            namespaces: BTreeMap::new(),
        }
    }
}
