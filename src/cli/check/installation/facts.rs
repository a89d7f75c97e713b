//! The facts that were read about an installation. The diagnosis is a function of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, ServiceReference};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;

use super::rights::Right;
use super::trial::Trial;
use crate::server::admin::status::Status;
use stowplan_core::kubernetes::OTHER_DENIAL;
use stowplan_core::systems::CustomResourceDefinition;
use stowplan_core::systems::check::installation::Findings;
use stowplan_core::view::ControllerState;

/// The reason why something was not read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Unread {
    /// The right that is missing.
    Forbidden(String),
    /// It was denied for another reason than a right, with this answer.
    Denied(String),
    /// It did not answer as expected, for this reason.
    Failed(String),
    /// A pod of stowplan did not answer through the API server, for this reason.
    Unanswered(String),
    /// Where it would be is not known.
    Nowhere,
    /// The webhook configurations of the installation would name it, and are missing or incomplete.
    Unnamed,
}

impl fmt::Display for Unread {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forbidden(right) => write!(formatter, "the right is missing: {right}"),
            Self::Denied(answer) => write!(formatter, "{answer} ({OTHER_DENIAL})"),
            Self::Failed(problem) | Self::Unanswered(problem) => formatter.write_str(problem),
            Self::Nowhere => formatter.write_str("where stowplan is installed is not known"),
            Self::Unnamed => formatter.write_str("no webhook configuration of stowplan names it"),
        }
    }
}

impl Unread {
    /// Returns what the user can do about it.
    pub(super) fn remedy(&self) -> &'static str {
        match self {
            Self::Forbidden(_) => "see the line rights-of-this-command",
            Self::Denied(_) => {
                "see whose text that is: HTTPS_PROXY and NO_PROXY of this command and of the API server, \
                 and `kubectl get validatingwebhookconfigurations,validatingadmissionpolicies`"
            }
            Self::Failed(_) => "look at the network between API server and pods, and at their logs",
            Self::Unanswered(_) => {
                "with the chart's networkPolicy: networkPolicy.metricsFrom has to let the API servers in; \
                 else look at the network between API server and pods, and at their logs"
            }
            Self::Nowhere => "name the namespace: --installed-in",
            Self::Unnamed => {
                "`helm upgrade` with the same values writes the webhook configurations again"
            }
        }
    }
}

pub(super) type Read<T> = Result<T, Unread>;

/// The name of an account, and each right that it needs, with whether it has it.
pub(super) type AccountRights = (String, Vec<(Right, bool)>);

/// Returns what was read, or notes that `what` is the consequence.
pub(super) fn known<'r, T>(
    findings: &mut Findings,
    what: &str,
    read: &'r Read<T>,
) -> Option<&'r T> {
    let note = |unread: &Unread| findings.unknown(format!("{what}: {unread}"), unread.remedy());
    read.as_ref().map_err(note).ok()
}

/// A container of stowplan, by the subcommand that it runs.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, ValueEnum)]
pub(super) enum Role {
    Webhook,
    Controller,
}

impl Role {
    pub(super) fn of(container: &Container) -> Option<Self> {
        Self::from_str(container.args.as_ref()?.first()?, false).ok()
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        formatter.write_str(value.as_ref().map_or("", PossibleValue::get_name))
    }
}

/// A process in a pod.
#[derive(Debug)]
pub(super) struct Replica {
    pub(super) pod: String,
    pub(super) role: Role,
    /// The status that it reports.
    pub(super) status: Read<Status>,
}

/// A webhook configuration. The two kinds have no type in common; the fields of a validating webhook
/// are those of a mutating one.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Configuration {
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) webhooks: Vec<MutatingWebhook>,
}

/// The facts that were read.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) now: Timestamp,
    /// The version of this program.
    pub(super) version: &'static str,
    /// The configurations with a webhook of stowplan.
    pub(super) mutating: Read<Vec<Configuration>>,
    pub(super) validating: Read<Vec<Configuration>>,
    /// The namespace in which stowplan is installed.
    pub(super) namespace: Option<String>,
    /// The Service that the webhook configurations name.
    pub(super) service: Read<Option<Service>>,
    pub(super) slices: Read<Vec<EndpointSlice>>,
    pub(super) deployments: Read<Vec<Deployment>>,
    pub(super) replicas: Read<Vec<Replica>>,
    /// The chain in the Secret of the leaf, as PEM; read only if no replica could be asked.
    pub(super) secret: Read<Vec<u8>>,
    pub(super) policy: Read<Option<ConfigMap>>,
    /// `NAMESPACE/NAME` of the ConfigMap with the policy.
    pub(super) policy_name: Option<String>,
    /// The Lease of the controller, and what it says.
    pub(super) lease: Read<(ControllerState, Option<Lease>)>,
    /// The rights of the accounts of the webhook and the controller.
    pub(super) rights: BTreeMap<Role, Read<AccountRights>>,
    /// The definitions of stowplan's kinds and of those that it reads, as far as they exist.
    pub(super) definitions: Read<Vec<CustomResourceDefinition>>,
    /// The settings of other projects, by the name of the system that reads them.
    pub(super) settings: BTreeMap<&'static str, Read<Option<BTreeMap<String, String>>>>,
    /// `None`: no namespace was named.
    pub(super) trial: Option<Read<Trial>>,
    /// The rights that this command did not have.
    pub(super) missing: BTreeSet<String>,
}

impl Facts {
    /// Returns the webhooks, each with the name of its configuration.
    pub(super) fn webhooks(&self) -> impl Iterator<Item = (&str, &MutatingWebhook)> {
        self.mutating.iter().chain(&self.validating).flatten().flat_map(|of| {
            let name = of.metadata.name.as_deref().unwrap_or_default();
            of.webhooks.iter().map(move |webhook| (name, webhook))
        })
    }

    /// Returns the Service that the webhook configurations call: the one in the namespace of the
    /// installation, if there is one.
    pub(super) fn called_service(&self) -> Option<&ServiceReference> {
        let mut called: Vec<_> =
            self.webhooks().filter_map(|(_, of)| of.client_config.service.as_ref()).collect();
        called.sort_by_key(|of| Some(&of.namespace) != self.namespace.as_ref());
        called.first().copied()
    }

    /// Returns the containers of the Deployments, with their roles.
    pub(super) fn containers(&self) -> impl Iterator<Item = (Role, &Deployment, &Container)> {
        self.deployments.iter().flatten().flat_map(|deployment| {
            let pod = deployment.spec.iter().filter_map(|spec| spec.template.spec.as_ref());
            let containers = pod.flat_map(|pod| &pod.containers);
            containers.filter_map(move |of| Some((Role::of(of)?, deployment, of)))
        })
    }

    /// Returns the replicas of the webhook.
    pub(super) fn webhook_replicas(&self) -> impl Iterator<Item = &Replica> {
        self.replicas.iter().flatten().filter(|replica| replica.role == Role::Webhook)
    }
}
