//! What is kept of volumes: claims, the classes that they come from, and the volumes themselves.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::core::v1::NodeSelectorTerm;
use k8s_openapi::api::storage::v1 as storage;
use k8s_openapi::jiff::Timestamp;

use super::estate::Identity;
use super::owner::Owner;
use super::pipeline_run::MODE;

/// The annotation that named a claim's class before `spec.storageClassName` did. Where both stand,
/// Kubernetes follows this one.
pub const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// The annotations by which a class is the one of claims that name none.
const DEFAULT: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];

/// The annotation that puts a pod or a claim into a group of its namespace.
pub const GROUP: &str = "stowplan.dev/coschedule-group";

/// The provisioner of classes whose volumes somebody makes by hand.
const BY_HAND: &str = "kubernetes.io/no-provisioner";

/// How a claim may be mounted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct AccessModes {
    /// ReadWriteOnce: by the pods of one node.
    pub once: bool,
    /// ReadWriteMany: by the pods of several nodes.
    pub many: bool,
    /// ReadOnlyMany: by the pods of several nodes, none of which writes.
    pub many_readers: bool,
    /// ReadWriteOncePod: by one pod in the whole cluster.
    pub one_pod: bool,
}

impl AccessModes {
    /// Reads the words of the API. Others count for nothing.
    pub fn read<'w>(words: impl IntoIterator<Item = &'w str>) -> Self {
        let mut modes = Self::default();
        for word in words {
            match word {
                "ReadWriteOnce" => modes.once = true,
                "ReadWriteMany" => modes.many = true,
                "ReadOnlyMany" => modes.many_readers = true,
                "ReadWriteOncePod" => modes.one_pod = true,
                _ => {}
            }
        }
        modes
    }

    /// Whether all pods that mount it must be on one node. A claim of which nothing is known, or that
    /// says nothing, counts as one that must; so does one that many nodes may read but only one may
    /// write: a volume is used in one mode at a time, and tasks write.
    #[must_use]
    pub fn need_one_node(self) -> bool {
        let only_readers = self.many_readers && !self.once;
        !self.many && !only_readers && !self.one_pod
    }
}

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Claim {
    /// Who it is.
    pub identity: Identity,
    /// `spec.accessModes`.
    pub access_modes: AccessModes,
    /// The class that counts: that of the beta annotation, else `spec.storageClassName`. Empty for a
    /// claim that wants a volume without a class.
    pub class: Option<Box<str>>,
    /// `spec.volumeName`: the volume that it is bound to, or is to be.
    pub volume: Option<Box<str>>,
    /// Whether its phase is Bound.
    pub bound: bool,
    /// The PipelineRun that owns it.
    pub run: Option<Owner>,
    /// The TaskRun that owns it: a run of its own.
    pub task_run: Option<Owner>,
    /// The annotation [`GROUP`].
    pub group: Option<Box<str>>,
    /// Its label `stowplan.dev/placeholder`: the placeholder whose claim it is.
    pub placeholder: Option<Box<str>>,
    /// The annotation `stowplan.dev/coschedule`: on the claim of a placeholder, the mode that the run had
    /// when the placeholder was made.
    pub mode: Option<Box<str>>,
    /// Where the finalizer [`PROTECTION`] is among its finalizers.
    pub protection: Option<usize>,
}

/// The finalizer by which Kubernetes keeps a claim until no pod names it, be it one that has ended.
pub const PROTECTION: &str = "kubernetes.io/pvc-protection";

impl From<&core::PersistentVolumeClaim> for Claim {
    fn from(claim: &core::PersistentVolumeClaim) -> Self {
        let spec = claim.spec.as_ref();
        let annotations = claim.metadata.annotations.as_ref();
        let annotation = |key: &str| annotations.and_then(|map| map.get(key)).map(String::as_str);
        let labels = claim.metadata.labels.as_ref();
        let class = spec.and_then(|spec| spec.storage_class_name.as_deref());
        let status = claim.status.as_ref();
        let placeholder = labels.and_then(|labels| labels.get(super::placeholder::PLACEHOLDER));
        let run = Owner::of_tekton(&claim.metadata, "PipelineRun");
        Self {
            identity: Identity::from(&claim.metadata),
            access_modes: AccessModes::read(
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
            task_run: Owner::of_tekton(&claim.metadata, "TaskRun"),
            group: annotation(GROUP).map(Into::into),
            placeholder: placeholder.map(|name| name.as_str().into()),
            mode: annotation(MODE).map(Into::into),
            protection: claim
                .metadata
                .finalizers
                .iter()
                .flatten()
                .position(|finalizer| finalizer == PROTECTION),
        }
    }
}

/// A StorageClass. Two that are equal in all but `waits` are siblings.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct StorageClass {
    /// Whether its volumes are made where their first pod is (`WaitForFirstConsumer`), and not at once.
    pub waits: bool,
    /// When it was made, for a class of claims that name none: of several the newest counts.
    pub default_since: Option<Timestamp>,
    /// All that makes its volumes what they are.
    pub making: Making,
}

/// How a class makes volumes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Making {
    /// `provisioner`.
    pub provisioner: Box<str>,
    /// `parameters`.
    pub parameters: BTreeMap<Box<str>, Box<str>>,
    /// `reclaimPolicy`; Delete where it says nothing.
    pub reclaim_policy: Box<str>,
    /// `mountOptions`, sorted.
    pub mount_options: Box<[Box<str>]>,
    /// `allowVolumeExpansion`.
    pub expands: bool,
    /// `allowedTopologies`: terms, each of keys with their values, all sorted.
    pub topologies: Box<[Topology]>,
}

/// A topology that a class allows: keys with their values.
pub type Topology = Box<[(Box<str>, Box<[Box<str>]>)]>;

impl From<&storage::StorageClass> for StorageClass {
    fn from(class: &storage::StorageClass) -> Self {
        let sorted = |texts: &mut dyn Iterator<Item = &String>| {
            let mut texts: Vec<Box<str>> = texts.map(|text| text.as_str().into()).collect();
            texts.sort_unstable();
            texts.into_boxed_slice()
        };
        let terms = class.allowed_topologies.iter().flatten().map(|term| {
            let expressions = term.match_label_expressions.iter().flatten();
            let mut keys: Vec<_> = expressions
                .map(|of| (of.key.as_str().into(), sorted(&mut of.values.iter())))
                .collect();
            keys.sort_unstable();
            keys.into_boxed_slice()
        });
        let mut topologies: Vec<Topology> = terms.collect();
        topologies.sort_unstable();
        let annotations = class.metadata.annotations.as_ref();
        let is_default = annotations.is_some_and(|map| {
            DEFAULT.iter().any(|key| map.get(*key).is_some_and(|v| v == "true"))
        });
        let created = class.metadata.creation_timestamp.as_ref().map(|time| time.0);
        Self {
            default_since: is_default.then(|| created.unwrap_or(Timestamp::MIN)),
            waits: class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
            making: Making {
                provisioner: class.provisioner.as_str().into(),
                parameters: class
                    .parameters
                    .iter()
                    .flatten()
                    .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
                    .collect(),
                reclaim_policy: class.reclaim_policy.as_deref().unwrap_or("Delete").into(),
                mount_options: sorted(&mut class.mount_options.iter().flatten()),
                expands: class.allow_volume_expansion.unwrap_or_default(),
                topologies: topologies.into(),
            },
        }
    }
}

impl Making {
    /// Whether the class says nothing of where its volumes come from: somebody makes them by hand, and two
    /// classes that are equal in all they say may have volumes that are nothing alike.
    #[must_use]
    pub fn is_by_hand(&self) -> bool {
        *self.provisioner == *BY_HAND
    }
}

/// A PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Volume {
    /// The node selector terms of which one must select a node that mounts it; empty where any may.
    pub terms: Box<[NodeSelectorTerm]>,
}

impl From<&core::PersistentVolume> for Volume {
    fn from(volume: &core::PersistentVolume) -> Self {
        let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
        let required = affinity.and_then(|affinity| affinity.required.as_ref());
        Self {
            terms: required
                .map(|required| required.node_selector_terms.clone().into())
                .unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A volume is mounted in one of its modes at a time, and a task writes.
    #[test]
    fn what_one_node_writes_needs_one_node() {
        for (words, needs) in [
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
            assert_eq!(
                AccessModes::read(words.iter().copied()).need_one_node(),
                needs,
                "{words:?}"
            );
        }
    }
}
