//! The keys of NUMA affinity: Katalyst's annotations, and what stowplan adds.

/// The prefix of the annotations that users write.
pub(crate) const PREFIX: &str = "katalyst.kubewharf.io/microtopology_";

/// Annotation: the pod shares NUMA nodes or sockets with other pods.
pub(crate) const AFFINITY: &str = "katalyst.kubewharf.io/microtopology_affinity";
/// Annotation: the pod avoids the NUMA nodes or sockets of other pods.
pub(crate) const ANTI_AFFINITY: &str = "katalyst.kubewharf.io/microtopology_antiaffinity";

/// The annotations of pods.
pub(crate) const ANNOTATIONS: &[&str] = &[AFFINITY, ANTI_AFFINITY];

/// Annotation of Katalyst: the QoS level of the pod.
pub(crate) const QOS_LEVEL: &str = "katalyst.kubewharf.io/qos_level";
/// Annotation of Katalyst: how the pod's memory is bound, a JSON object of strings.
pub(crate) const MEMORY_ENHANCEMENT: &str = "katalyst.kubewharf.io/memory_enhancement";

/// Annotation: the preferred part of an affinity that requires nothing.
pub(crate) const PREFERRED_AFFINITY: &str = "katalyst.stowplan.dev/preferred-affinity";
/// Annotation: when the controller removed the gate, in RFC 3339.
pub(crate) const LET_GO: &str = "katalyst.stowplan.dev/let-go";
/// Annotation: the affinity that the controller removed from the first pod of a group.
pub(crate) const LEADER_OF: &str = "katalyst.stowplan.dev/leader-of";

/// The gate of pods that wait for a feasible NUMA node.
pub(crate) const GATE: &str = "stowplan.dev/numa-feasible";

/// Node label: the number of its NUMA nodes, where its CustomNodeResource lists them.
pub(crate) const NUMA_ZONES: &str = "stowplan.dev/numa-zones";
