//! The section `mpi` of the policy.

use std::collections::BTreeMap;
use std::num::NonZero;

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
    /// The directory of the ssh keys in the pods of a cluster, unless their annotations name another.
    #[schemars(schema_with = "form::directory")]
    pub ssh_dir: String,
    /// The port of the workers' ssh servers, unless their annotations name another. `null`: 22 for
    /// root, and 2222 for other users.
    pub ssh_port: Option<NonZero<u16>>,
    /// Whether the controller makes the Secret of a cluster. If not, each cluster NAME needs a Secret
    /// NAME-ssh of type kubernetes.io/ssh-auth, with the key ssh-publickey too.
    pub secrets: bool,
}

/// The directory of root's keys.
pub(crate) const ROOT_SSH_DIR: &str = "/root/.ssh";

impl Default for Mpi {
    fn default() -> Self {
        Self {
            enabled: true,
            cluster_domain: "cluster.local".to_owned(),
            namespaces: BTreeMap::new(),
            ssh_dir: ROOT_SSH_DIR.to_owned(),
            ssh_port: None,
            secrets: true,
        }
    }
}
