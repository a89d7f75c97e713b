//! What was read about an installation. The diagnosis is a function of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::version::Info;
use k8s_openapi::jiff::Timestamp;

use super::rights::Right;
use crate::kubernetes::OTHER_DENIAL;
use crate::server::admin::status::Status;
use crate::systems::CustomResourceDefinition;
use crate::systems::check::installation::Findings;
use crate::view::ControllerState;

/// Why something was not read.
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
}

impl fmt::Display for Unread {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forbidden(right) => write!(formatter, "the right is missing: {right}"),
            Self::Denied(answer) => write!(formatter, "{answer} ({OTHER_DENIAL})"),
            Self::Failed(problem) | Self::Unanswered(problem) => formatter.write_str(problem),
            Self::Nowhere => formatter.write_str("where stowplan is installed is not known"),
        }
    }
}

impl Unread {
    /// What the user can do about it.
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
        }
    }
}

pub(super) type Read<T> = Result<T, Unread>;

/// Notes what is not known.
pub(super) trait Known {
    /// Returns what was read, or notes that `what` is the consequence.
    fn known<'r, T>(&mut self, what: &str, read: &'r Read<T>) -> Option<&'r T>;
}

impl Known for Findings {
    fn known<'r, T>(&mut self, what: &str, read: &'r Read<T>) -> Option<&'r T> {
        let note = |unread: &Unread| self.unknown(format!("{what}: {unread}"), unread.remedy());
        read.as_ref().map_err(note).ok()
    }
}

/// A container of stowplan.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Role {
    Webhook,
    Controller,
}

impl Role {
    /// The subcommand that a container runs, which is the role.
    pub(super) fn of(container: &Container) -> Option<Self> {
        match container.args.as_deref()?.first()?.as_str() {
            "webhook" => Some(Self::Webhook),
            "controller" => Some(Self::Controller),
            _ => None,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Webhook => "webhook",
            Self::Controller => "controller",
        })
    }
}

/// A process in a pod.
#[derive(Clone, Debug)]
pub(super) struct Replica {
    pub(super) pod: String,
    pub(super) role: Role,
    /// What it reports; read only of pods that are ready.
    pub(super) status: Read<Status>,
}

/// The result of creating a test pod.
#[derive(Clone, Debug, Default)]
pub(super) struct Trial {
    pub(super) namespace: String,
    /// The pod carries the annotations of a system that always changes it, or else a key that
    /// stowplan does not know.
    pub(super) expects_patch: bool,
    pub(super) is_created: bool,
    pub(super) is_patched: bool,
    pub(super) is_warned: bool,
    /// The API server's message, if it was not created.
    pub(super) message: String,
}

/// The Lease of the controller.
#[derive(Clone, Debug)]
pub(super) struct LeaseFacts {
    pub(super) state: ControllerState,
    pub(super) lease: Option<Lease>,
}

/// Whether a service account has a right.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) right: Right,
    pub(super) is_allowed: bool,
}

/// What was read.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) now: Timestamp,
    /// The version of this program.
    pub(super) version: &'static str,
    /// Those with a webhook of stowplan.
    pub(super) mutating: Read<Vec<MutatingWebhookConfiguration>>,
    pub(super) validating: Read<Vec<ValidatingWebhookConfiguration>>,
    /// Where stowplan is installed.
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
    pub(super) server: Read<Info>,
    pub(super) lease: Read<LeaseFacts>,
    /// The rights of the accounts of the webhook and the controller, with the name of the account.
    pub(super) rights: BTreeMap<Role, Read<(String, Vec<Answer>)>>,
    /// The definitions of stowplan's kinds and of those that it reads, as far as they exist.
    pub(super) definitions: Read<Vec<CustomResourceDefinition>>,
    /// The settings of other projects, by the name of the system that reads them.
    pub(super) settings: BTreeMap<&'static str, Read<Option<BTreeMap<String, String>>>>,
    /// `None`: no namespace was named.
    pub(super) trial: Option<Read<Trial>>,
}

impl Facts {
    /// The containers of the Deployments, with their roles.
    pub(super) fn containers(&self) -> impl Iterator<Item = (Role, &Deployment, &Container)> {
        let deployments = self.deployments.iter().flatten();
        deployments.flat_map(|deployment| {
            let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
            let containers = pod.into_iter().flat_map(|pod| &pod.containers);
            containers.filter_map(move |of| Some((Role::of(of)?, deployment, of)))
        })
    }

    /// The replicas of a role.
    pub(super) fn replicas_of(&self, role: Role) -> impl Iterator<Item = &Replica> {
        self.replicas.iter().flatten().filter(move |replica| replica.role == role)
    }

    /// The rights that this command did not have.
    pub(super) fn missing_rights(&self) -> BTreeSet<&str> {
        fn unread<T>(read: &Read<T>) -> Option<&Unread> {
            read.as_ref().err()
        }
        let every = [
            unread(&self.mutating),
            unread(&self.validating),
            unread(&self.service),
            unread(&self.slices),
            unread(&self.deployments),
            unread(&self.replicas),
            unread(&self.policy),
            unread(&self.server),
            unread(&self.lease),
            unread(&self.definitions),
        ];
        let every = every.into_iter().chain(self.rights.values().map(unread));
        let every = every.chain(self.settings.values().map(unread));
        let statuses = self.replicas.iter().flatten().map(|replica| unread(&replica.status));
        let missing = every.chain(statuses).flatten().filter_map(|unread| match unread {
            Unread::Forbidden(right) => Some(right.as_str()),
            _ => None,
        });
        missing.collect()
    }

    /// Whether a controller is installed; `None`: not known.
    pub(super) fn has_controller(&self) -> Option<bool> {
        self.deployments.as_ref().ok()?;
        Some(self.containers().any(|(role, _, _)| role == Role::Controller))
    }
}
