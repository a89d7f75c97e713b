//! The objects that stowplan makes for clusters, a Service and a ConfigMap, and the EndpointSlices of Services: a
//! hostname has a DNS record once a slice names it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::kubernetes::{annotation, label};
use crate::systems::mpi::keys::{CLUSTER, KEY_STATE, MADE_FOR};
use crate::systems::mpi::resources::{CONFIG_MAP, ENDPOINT_SLICE, SERVICE};
use crate::view::index::Sets;
use crate::view::rows::{GroupedRow, Rows, TableRow};
use crate::view::table::Watch;
use crate::view::{Identity, Kind, Name, Scope};

/// The label of a slice with the name of its Service (Kubernetes).
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The label of the slices of Services without an address of their own (Kubernetes).
const HEADLESS: &str = "service.kubernetes.io/headless";

static SERVICES: Kind = Kind::built_in(SERVICE);
/// RBAC cannot select those of stowplan.
static CONFIG_MAPS: Kind = Kind { is_for_controller: true, ..Kind::built_in(CONFIG_MAP) };
static SLICES: Kind = Kind::built_in(ENDPOINT_SLICE);

/// The watch of the objects that stowplan made for clusters.
fn made(store: &'static str, scope: Scope) -> Vec<Watch> {
    match scope {
        Scope::Controller => vec![Watch { store, selector: MADE_FOR.into() }],
        Scope::Admission | Scope::File => Vec::new(),
    }
}

/// The UIDs of the owners of an object.
fn owners(metadata: &ObjectMeta) -> Box<[Box<str>]> {
    let owners = metadata.owner_references.iter().flatten();
    owners.map(|owner| owner.uid.as_str().into()).collect()
}

/// A Service that stowplan made for a cluster of the same name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClusterService {
    pub identity: Identity,
    /// The UIDs of its owners.
    pub owners: Box<[Box<str>]>,
    /// True if it selects the pods of the cluster, and publishes those that are not ready.
    pub is_as_made: bool,
}

/// The table of these Services.
pub(crate) type ClusterServices = Rows<ClusterService>;

impl TableRow for ClusterService {
    type Object = Service;
    const KIND: &'static Kind = &SERVICES;

    fn watches(scope: Scope) -> Vec<Watch> {
        made("services of MPI clusters", scope)
    }

    fn from_object(service: &Service, scope: Scope) -> Option<Self> {
        let metadata = &service.metadata;
        let cluster = label(metadata, MADE_FOR).filter(|_| scope != Scope::Admission)?;
        let spec = service.spec.as_ref()?;
        let selector = spec.selector.as_ref();
        let is_selected = selector.is_some_and(|selector| {
            selector.len() == 1 && selector.get(CLUSTER).is_some_and(|own| own == cluster)
        });
        Some(Self {
            identity: Identity::from(metadata),
            owners: owners(metadata),
            is_as_made: is_selected && spec.publish_not_ready_addresses == Some(true),
        })
    }

    fn identity(&self) -> Option<&Identity> {
        Some(&self.identity)
    }
}

/// A ConfigMap that stowplan made for a cluster.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClusterConfigMap {
    pub identity: Identity,
    /// The UIDs of its owners.
    pub owners: Box<[Box<str>]>,
    pub data: BTreeMap<String, String>,
    /// How far the Secret is: the annotation [`KEY_STATE`].
    pub key_state: Option<Box<str>>,
    /// True if it has any annotation: a patch cannot add one to nothing.
    pub has_annotations: bool,
}

/// The table of these ConfigMaps.
pub(crate) type ClusterConfigMaps = Rows<ClusterConfigMap>;

impl TableRow for ClusterConfigMap {
    type Object = ConfigMap;
    const KIND: &'static Kind = &CONFIG_MAPS;

    fn watches(scope: Scope) -> Vec<Watch> {
        made("configmaps of MPI clusters", scope)
    }

    fn from_object(map: &ConfigMap, scope: Scope) -> Option<Self> {
        let metadata = &map.metadata;
        label(metadata, MADE_FOR).filter(|_| scope != Scope::Admission)?;
        Some(Self {
            identity: Identity::from(metadata),
            owners: owners(metadata),
            data: map.data.clone().unwrap_or_default(),
            key_state: annotation(metadata, KEY_STATE).map(Into::into),
            has_annotations: metadata.annotations.is_some(),
        })
    }

    fn identity(&self) -> Option<&Identity> {
        Some(&self.identity)
    }
}

/// The hostnames in a slice of a headless Service.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Endpoints {
    pub service: Box<str>,
    pub hostnames: Box<[Box<str>]>,
}

/// The table of these slices.
pub(crate) type EndpointSlices = Rows<Endpoints, Sets<Name>>;

impl TableRow for Endpoints {
    type Object = EndpointSlice;
    const KIND: &'static Kind = &SLICES;

    fn watches(scope: Scope) -> Vec<Watch> {
        match scope {
            Scope::Controller => {
                vec![Watch { store: "slices of headless services", selector: HEADLESS.into() }]
            }
            Scope::Admission | Scope::File => Vec::new(),
        }
    }

    fn from_object(slice: &EndpointSlice, scope: Scope) -> Option<Self> {
        let service = label(&slice.metadata, SERVICE_NAME).filter(|_| scope != Scope::Admission)?;
        let hostnames = slice.endpoints.iter().filter_map(|of| of.hostname.as_deref());
        let hostnames: Box<[Box<str>]> = hostnames.map(Into::into).collect();
        // Slices of Services that give no hostname are most of them.
        (!hostnames.is_empty()).then(|| Self { service: service.into(), hostnames })
    }
}

/// Slices are found by their Service.
impl GroupedRow for Endpoints {
    type Key = Name;

    fn key(&self, name: &Name) -> Option<Name> {
        Some(Name::new(&name.namespace, &self.service))
    }
}
