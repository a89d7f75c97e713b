//! Claims, storage classes and volumes.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::core::v1::NodeSelectorTerm;
use k8s_openapi::api::storage::v1 as storage;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

use crate::kubernetes::{annotation, label};
use crate::systems::coschedule::keys::{MODE, ONE_NODE, PARKED, PLACEHOLDER};
use crate::systems::coschedule::resources::{CLAIM, STORAGE_CLASS, VOLUME};
use crate::view::index::Sets;
use crate::view::owner::Owner;
use crate::view::rows::{GroupedRow, Rows, TableRow};
use crate::view::{Identity, Kind, Name, Scope};

/// The annotation that set a claim's storage class before `spec.storageClassName` existed.
/// Kubernetes prefers it to the field.
pub(crate) const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// The annotations that make a storage class the default one.
const DEFAULT: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];

/// The provisioner of classes whose volumes an administrator creates.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// How many nodes and pods can mount a claim at a time, by its access modes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Access {
    /// All pods that mount the claim must be on one node.
    #[default]
    OneNode,
    /// Pods on several nodes.
    ManyNodes,
    /// One pod in the whole cluster.
    OnePod,
}

impl Access {
    /// Reads the names of access modes, and ignores unknown ones. A claim without known modes needs one node, and
    /// so does one that several nodes may read but only one may write: a volume is mounted in one mode at a
    /// time, and tasks write.
    pub(crate) fn of_modes<'w>(names: impl IntoIterator<Item = &'w str>) -> Self {
        let names: Vec<&str> = names.into_iter().collect();
        let has = |name: &str| names.contains(&name);
        if has("ReadWriteOncePod") {
            return Self::OnePod;
        }
        let only_readers = has("ReadOnlyMany") && !has("ReadWriteOnce");
        if has("ReadWriteMany") || only_readers { Self::ManyNodes } else { Self::OneNode }
    }

    /// Returns true if all pods that mount the claim must be on one node.
    pub(crate) fn needs_one_node(self) -> bool {
        self == Self::OneNode
    }
}

/// The fields of a PersistentVolumeClaim that decide where its pods may run, and its cleanup.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Claim {
    pub identity: Identity,
    pub access: Access,
    /// The effective storage class: that of the beta annotation, else `spec.storageClassName`. Empty
    /// for a claim that requests a volume without a class.
    pub class: Option<Box<str>>,
    /// `spec.volumeName`: the volume that it is bound to or requests.
    pub volume: Option<Box<str>>,
    /// True if its phase is `Bound`.
    pub bound: bool,
    /// The PipelineRun that owns it.
    pub run: Option<Owner>,
    /// The label [`PLACEHOLDER`]: the placeholder that the claim was created for.
    pub placeholder: Option<Box<str>>,
    /// The unparsed annotation [`MODE`]. On the claim of a placeholder it is the mode that the run had
    /// when the placeholder was created.
    pub mode: Option<Box<str>>,
    /// The index of the finalizer [`PROTECTION`] in `metadata.finalizers`.
    pub protection: Option<usize>,
    /// The unparsed annotation [`ONE_NODE`].
    pub one_node: Option<Box<str>>,
}

/// The finalizer with which Kubernetes keeps a claim while a pod names it, even an ended one.
pub(crate) const PROTECTION: &str = "kubernetes.io/pvc-protection";

impl Claim {
    /// Returns true if it is parked, because a placeholder's own claim replaces it.
    pub(crate) fn is_parked(&self) -> bool {
        self.class.as_deref() == Some(PARKED)
    }
}

/// A StorageClass. Two classes that differ only in `waits` are siblings.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StorageClass {
    /// True if its binding mode is `WaitForFirstConsumer`: a volume is created where its first pod is.
    pub waits: bool,
    /// For a default class: when it was created. Of several default classes the newest is used.
    pub default_since: Option<Timestamp>,
    /// The class without its name and its binding mode, with defaults, and with sorted lists: equal for two
    /// classes that create the same volumes.
    pub provisioning: storage::StorageClass,
    /// The unparsed annotation [`ONE_NODE`].
    pub one_node: Option<Box<str>>,
}

impl StorageClass {
    /// Returns true if an administrator creates the volumes of the class. Two such classes can be equal in
    /// all fields and still have different volumes.
    pub(crate) fn is_manual(&self) -> bool {
        self.provisioning.provisioner == NO_PROVISIONER
    }
}

fn provisioning(class: &storage::StorageClass) -> storage::StorageClass {
    let mut of = class.clone();
    of.metadata = ObjectMeta::default();
    of.volume_binding_mode = None;
    of.allow_volume_expansion.get_or_insert_default();
    of.parameters.get_or_insert_default();
    of.reclaim_policy.get_or_insert_with(|| "Delete".to_owned());
    of.mount_options.get_or_insert_default().sort_unstable();
    let terms = of.allowed_topologies.get_or_insert_default();
    for term in &mut *terms {
        let expressions = term.match_label_expressions.get_or_insert_default();
        expressions.iter_mut().for_each(|of| of.values.sort_unstable());
        expressions.sort_by_cached_key(|of| (of.key.clone(), of.values.clone()));
    }
    terms.sort_by_cached_key(|term| {
        let expressions = term.match_label_expressions.iter().flatten();
        expressions.map(|of| (of.key.clone(), of.values.clone())).collect::<Vec<_>>()
    });
    of
}

/// The fields of a PersistentVolume that decide which nodes can mount it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Volume {
    /// The terms of its required node affinity, of which a node must match one; empty: all nodes can
    /// mount it.
    pub terms: Box<[NodeSelectorTerm]>,
}

static CLAIMS: Kind = Kind {
    without: Some("every claim is treated as one that a single node mounts"),
    ..Kind::built_in(CLAIM)
};

/// The table of claims.
pub(crate) type Claims = Rows<Claim, Sets<Box<str>>>;

impl TableRow for Claim {
    type Object = core::PersistentVolumeClaim;
    const KIND: &'static Kind = &CLAIMS;
    const COUNTED_AS: Option<&'static str> = Some("persistentvolumeclaims");

    fn from_object(claim: &core::PersistentVolumeClaim, _: Scope) -> Option<Self> {
        let spec = claim.spec.as_ref();
        let annotation = |key: &str| annotation(&claim.metadata, key);
        let class = spec.and_then(|spec| spec.storage_class_name.as_deref());
        let status = claim.status.as_ref();
        let placeholder = label(&claim.metadata, PLACEHOLDER);
        let run = Owner::of_tekton(&claim.metadata, "PipelineRun");
        Some(Self {
            identity: Identity::from(&claim.metadata),
            access: Access::of_modes(
                spec.and_then(|spec| spec.access_modes.as_ref())
                    .into_iter()
                    .flatten()
                    .map(String::as_str),
            ),
            class: annotation(BETA_CLASS).or(class).map(Into::into),
            volume: spec
                .and_then(|spec| spec.volume_name.as_deref())
                .filter(|name| !name.is_empty())
                .map(Into::into),
            bound: status.and_then(|status| status.phase.as_deref()) == Some("Bound"),
            run: run.or_else(|| {
                placeholder.and_then(|_| Owner::of_placeholders_claim(&claim.metadata))
            }),
            placeholder: placeholder.map(Into::into),
            mode: annotation(MODE).map(Into::into),
            one_node: annotation(ONE_NODE).map(Into::into),
            protection: claim
                .metadata
                .finalizers
                .iter()
                .flatten()
                .position(|finalizer| finalizer == PROTECTION),
        })
    }

    fn identity(&self) -> Option<&Identity> {
        Some(&self.identity)
    }
}

/// Claims are found by the UID of the run that owns them.
impl GroupedRow for Claim {
    type Key = Box<str>;

    fn key(&self, _: &Name) -> Option<Box<str>> {
        self.run.as_ref().map(|run| run.uid.clone())
    }
}

static STORAGE_CLASSES: Kind = Kind {
    without: Some("claims are reported as if they kept their class"),
    ..Kind::built_in(STORAGE_CLASS)
};

/// The table of storage classes.
pub(crate) type StorageClasses = Rows<StorageClass>;

impl TableRow for StorageClass {
    type Object = storage::StorageClass;
    const KIND: &'static Kind = &STORAGE_CLASSES;
    const COUNTED_AS: Option<&'static str> = Some("storageclasses");

    fn from_object(class: &storage::StorageClass, _: Scope) -> Option<Self> {
        let mut annotations = DEFAULT.iter().map(|key| annotation(&class.metadata, key));
        let is_default = annotations.any(|value| value == Some("true"));
        let created = class.metadata.creation_timestamp.as_ref().map(|time| time.0);
        Some(Self {
            default_since: is_default.then(|| created.unwrap_or(Timestamp::MIN)),
            waits: class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
            provisioning: provisioning(class),
            one_node: annotation(&class.metadata, ONE_NODE).map(Into::into),
        })
    }
}

static VOLUMES: Kind =
    Kind { without: Some("which nodes can mount a volume is not known"), ..Kind::built_in(VOLUME) };

/// The table of volumes.
pub(crate) type Volumes = Rows<Volume>;

impl TableRow for Volume {
    type Object = core::PersistentVolume;
    const KIND: &'static Kind = &VOLUMES;
    const COUNTED_AS: Option<&'static str> = Some("persistentvolumes");

    fn from_object(volume: &core::PersistentVolume, _: Scope) -> Option<Self> {
        let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
        let required = affinity.and_then(|affinity| affinity.required.as_ref());
        Some(Self {
            terms: required
                .map(|required| required.node_selector_terms.clone().into())
                .unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A volume is mounted in one of its modes at a time, and tasks write.
    #[test]
    fn claims_that_one_node_writes_need_one_node() {
        for (names, needs) in [
            (&[][..], true),
            (&["ReadWriteOnce"], true),
            (&["ReadWriteOnce", "ReadOnlyMany"], true),
            (&["ReadWriteOnce", "ReadWriteMany"], false),
            (&["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"], false),
            (&["ReadWriteMany"], false),
            (&["ReadOnlyMany"], false),
            (&["ReadWriteOncePod"], false),
            (&["Unknown"], true),
        ] {
            let access = Access::of_modes(names.iter().copied());
            assert_eq!(access.needs_one_node(), needs, "{names:?}");
        }
    }
}
