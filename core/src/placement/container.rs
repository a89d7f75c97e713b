//! The containers and volumes of a pod. They are decoded only for a system that changes them: nearly no
//! decision needs them, and they are most of a pod's bytes.

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, ContainerPort, EnvVar, PodDNSConfig, VolumeMount,
};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::object::decode_member;
use super::pod::Pod;
use crate::wire::{Item, Text, null_is_default, optional_object};

/// A container, as far as changes read it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Container<'a> {
    /// Its name.
    #[serde(borrow, default, deserialize_with = "null_is_default")]
    pub name: Text<'a>,
    /// Its image, which a workload of a higher level may set later.
    #[serde(borrow, default)]
    pub image: Option<Text<'a>>,
    /// `imagePullPolicy`.
    #[serde(borrow, default)]
    pub image_pull_policy: Option<Text<'a>>,
    /// Its command; `None` for absent and for null.
    #[serde(borrow, default)]
    pub command: Option<Vec<Text<'a>>>,
    /// Its arguments; `None` for absent and for null.
    #[serde(borrow, default)]
    pub args: Option<Vec<Text<'a>>>,
    /// The ports that it declares; `None` for absent and for null.
    #[serde(default)]
    pub ports: Option<Vec<ContainerPort>>,
    /// The resources that it requests and may use.
    #[serde(borrow, default)]
    pub resources: Option<&'a RawValue>,
    /// Its environment; `None` for absent and for null.
    #[serde(default)]
    pub env: Option<Vec<EnvVar>>,
    /// Where it mounts volumes; `None` for absent and for null.
    #[serde(default)]
    pub volume_mounts: Option<Vec<VolumeMount>>,
    /// Its readiness probe.
    #[serde(borrow, default)]
    pub readiness_probe: Option<&'a RawValue>,
    /// Its security context.
    #[serde(borrow, default)]
    pub security_context: Option<&'a RawValue>,
}

/// A volume.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Volume<'a> {
    /// Its name.
    #[serde(borrow, default, deserialize_with = "null_is_default")]
    pub name: Text<'a>,
    /// The ConfigMap that it shows.
    #[serde(default)]
    pub config_map: Option<ConfigMapVolumeSource>,
}

/// The security context of a pod or a container: only the user.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SecurityContext {
    #[serde(default)]
    run_as_user: Option<i64>,
    #[serde(default)]
    run_as_non_root: Option<bool>,
}

/// The user that a container runs as, as far as the pod says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum User {
    /// Root.
    Root,
    /// Another user.
    Other,
    /// The user that the image names.
    OfImage,
}

impl User {
    /// The user of a container with these fields of its security context, or its pod's.
    pub(crate) fn of(run_as_user: Option<i64>, run_as_non_root: Option<bool>) -> Self {
        match run_as_user {
            Some(0) => Self::Root,
            Some(_) => Self::Other,
            None if run_as_non_root == Some(true) => Self::Other,
            None => Self::OfImage,
        }
    }
}

/// The parts of a pod that only some decisions read.
#[derive(Debug, Default)]
pub(crate) struct Parts<'a> {
    /// `spec.containers`.
    pub containers: Vec<Container<'a>>,
    /// The names of `spec.initContainers`; `None` for absent and for null.
    pub init_containers: Option<Vec<Text<'a>>>,
    /// `spec.volumes`; `None` for absent and for null.
    pub volumes: Option<Vec<Volume<'a>>>,
    /// `spec.hostname`, unless empty.
    pub hostname: Option<Text<'a>>,
    /// `spec.subdomain`, unless empty.
    pub subdomain: Option<Text<'a>>,
    /// `spec.hostNetwork`.
    pub host_network: bool,
    /// `spec.dnsPolicy`, unless empty.
    pub dns_policy: Option<Text<'a>>,
    /// `spec.dnsConfig`; `None` for absent and for null.
    pub dns_config: Option<PodDNSConfig>,
    run_as_user: Option<i64>,
    run_as_non_root: Option<bool>,
}

/// An init container, of which only the name is read.
#[derive(Default, Deserialize)]
struct Named<'a> {
    #[serde(borrow, default, deserialize_with = "null_is_default")]
    name: Text<'a>,
}

/// A container that is not null: nothing can be added to null.
struct Changeable<'a>(Container<'a>);

impl<'de: 'a, 'a> Deserialize<'de> for Changeable<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let container = optional_object(deserializer)?;
        container.map(Self).ok_or_else(|| D::Error::custom("null in place of a container"))
    }
}

impl<'a> Parts<'a> {
    /// Decodes the parts of a pod.
    ///
    /// # Errors
    /// The JSON error if a field has the wrong type, as in no valid pod.
    pub(crate) fn decode(pod: &Pod<'a>) -> Result<Self, serde_json::Error> {
        let members = pod.members;
        let containers: Option<Vec<Changeable<'a>>> = decode_member(members.containers)?;
        let init: Option<Vec<Item<Named<'a>>>> = decode_member(members.init_containers)?;
        let volumes: Option<Vec<Item<Volume<'a>>>> = decode_member(members.volumes)?;
        let context: Option<SecurityContext> = decode_member(members.security_context)?;
        let SecurityContext { run_as_user, run_as_non_root } = context.unwrap_or_default();
        let text = |member| -> Result<Option<Text<'a>>, serde_json::Error> {
            Ok(decode_member::<Text<'a>>(member)?.filter(|text| !text.as_str().is_empty()))
        };
        Ok(Self {
            containers: containers.into_iter().flatten().map(|Changeable(of)| of).collect(),
            init_containers: init.map(|of| of.into_iter().map(|Item(of)| of.name).collect()),
            volumes: volumes.map(|of| of.into_iter().map(|Item(of)| of).collect()),
            hostname: text(members.hostname)?,
            subdomain: text(members.subdomain)?,
            host_network: decode_member(members.host_network)?.unwrap_or_default(),
            dns_policy: text(members.dns_policy)?,
            dns_config: decode_member(members.dns_config)?,
            run_as_user,
            run_as_non_root,
        })
    }

    /// The user that a container runs as.
    ///
    /// # Errors
    /// The JSON error if its security context has the wrong type.
    pub(crate) fn user(&self, container: &Container<'_>) -> Result<User, serde_json::Error> {
        let own: Option<SecurityContext> = decode_member(container.security_context)?;
        let own = own.unwrap_or_default();
        Ok(User::of(
            own.run_as_user.or(self.run_as_user),
            own.run_as_non_root.or(self.run_as_non_root),
        ))
    }
}
