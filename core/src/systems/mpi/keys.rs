//! The keys of MPI clusters: annotations of pod templates, labels, the gate, and the names of what
//! stowplan adds to pods.

/// The prefix of all keys.
pub(crate) const PREFIX: &str = "mpi.stowplan.dev/";

/// Annotation and label: the name of the cluster. The label selects the pods of its Service.
pub(crate) const CLUSTER: &str = "mpi.stowplan.dev/cluster";
/// Annotation and label: `launcher` or `worker`.
pub(crate) const ROLE: &str = "mpi.stowplan.dev/role";
/// Annotation: the number of workers, which is checked against the workload.
pub(crate) const WORKERS: &str = "mpi.stowplan.dev/workers";
/// Annotation: the number of processes that a worker takes.
pub(crate) const SLOTS: &str = "mpi.stowplan.dev/slots";
/// Annotation: `openmpi`, `intel` or `mpich`.
pub(crate) const IMPLEMENTATION: &str = "mpi.stowplan.dev/implementation";
/// Annotation: the directory of the ssh keys.
pub(crate) const SSH_DIR: &str = "mpi.stowplan.dev/ssh-dir";
/// Annotation: the port of the workers' ssh servers.
pub(crate) const SSH_PORT: &str = "mpi.stowplan.dev/ssh-port";
/// Annotation: the container that runs `mpirun` or the ssh server.
pub(crate) const CONTAINER: &str = "mpi.stowplan.dev/container";
/// Annotation: whether the launcher is a host of the cluster too.
pub(crate) const LAUNCHER_AS_WORKER: &str = "mpi.stowplan.dev/launcher-as-worker";
/// Annotation: what happens to the workers when the launcher's Job has ended.
pub(crate) const CLEAN_UP: &str = "mpi.stowplan.dev/clean-up";

/// Label of what stowplan makes for a cluster: its name.
pub(crate) const MADE_FOR: &str = "mpi.stowplan.dev/made-for";
/// Annotation of a cluster's ConfigMap: how far its Secret is.
pub(crate) const KEY_STATE: &str = "mpi.stowplan.dev/key";

/// The value of [`KEY_STATE`] while the Secret is being made.
pub(crate) const KEY_IN_THE_MAKING: &str = "making";
/// The value of [`KEY_STATE`] while the Secret is being made again, after its deletion.
pub(crate) const KEY_IN_THE_MAKING_AGAIN: &str = "making again";
/// The value of [`KEY_STATE`] once the Secret is there and its UID is not known; else the UID.
pub(crate) const KEY_MADE: &str = "made";
/// Annotation of a workload of workers: the UID of the launcher after whose end they were stopped.
pub(crate) const CLEANED_AFTER: &str = "mpi.stowplan.dev/cleaned-after";

/// All annotations of pod templates.
pub(crate) const ANNOTATIONS: &[&str] = &[
    CLUSTER,
    ROLE,
    WORKERS,
    SLOTS,
    IMPLEMENTATION,
    SSH_DIR,
    SSH_PORT,
    CONTAINER,
    LAUNCHER_AS_WORKER,
    CLEAN_UP,
];

/// Annotation: the container that kubectl takes, which service meshes set on the pods that they change.
pub(crate) const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// The gate of launchers.
pub(crate) const GATE: &str = "stowplan.dev/mpi-workers";

/// The label that gives the pods of an Indexed Job their index (Kubernetes).
pub(crate) const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// The init container that copies the keys.
pub(crate) const KEYS_CONTAINER: &str = "stowplan-mpi-keys";
/// The volume that shows the Secret.
pub(crate) const SECRET_VOLUME: &str = "stowplan-mpi-secret";
/// The volume in memory that the keys are copied to.
pub(crate) const MEMORY_VOLUME: &str = "stowplan-mpi-ssh";
/// The volume that shows the ConfigMap.
pub(crate) const CONFIG_VOLUME: &str = "stowplan-mpi-config";

/// Where launchers and workers find the hostfile.
pub(crate) const CONFIG_DIR: &str = "/etc/mpi";

/// The Secret with the keys of a cluster.
pub(crate) fn secret(cluster: &str) -> String {
    format!("{cluster}-ssh")
}

/// The ConfigMap of a cluster.
pub(crate) fn config_map(cluster: &str) -> String {
    format!("{cluster}-mpi")
}

/// The hostname of the launcher of a cluster.
pub(crate) fn launcher(cluster: &str) -> String {
    format!("{cluster}-launcher")
}
