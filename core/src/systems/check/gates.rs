//! The scheduling gates of a pod: those of stowplan's systems, and those of others.

use k8s_openapi::api::core::v1::Pod;

use super::{Cluster, Diagnosis, queue};
use crate::kubernetes::{domain, gates};
use crate::systems;

/// Reports the gates of stowplan's systems that hold a pod.
pub fn report_own(diagnosis: &mut Diagnosis, pod: &Pod) {
    for gate in gates(pod).filter_map(systems::gate) {
        let what = format!("the gate {} holds it until {}", gate.name, gate.until);
        diagnosis.report(what, (gate.remedy)(pod));
    }
}

/// The owners of well-known gates: how their names begin, and the objects that say why they hold a pod.
const OWNERS: &[(&str, &str, &str)] = &[
    ("kueue.x-k8s.io/", "Kueue", "workloads.kueue.x-k8s.io"),
    ("scheduling.volcano.sh/", "Volcano", "podgroups.scheduling.volcano.sh"),
];

/// Reports the gates that hold a pod and are not stowplan's, with what their owner says.
pub fn report_foreign(diagnosis: &mut Diagnosis, pod: &Pod, cluster: &Cluster) {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let workload = cluster.workload(pod);
    for gate in gates(pod).filter(|gate| systems::gate(gate).is_none()) {
        let known = OWNERS.iter().find(|(prefix, ..)| gate.starts_with(prefix));
        let mut says = String::new();
        let (whose, remedy) = match known {
            Some((_, owner, objects)) => {
                let workload = workload.filter(|_| objects.ends_with(queue::GROUP));
                says.extend(workload.map(|workload| format!(": {workload}")));
                let name = workload.map(|of| format!(" {}", of.name())).unwrap_or_default();
                let remedy = format!("kubectl describe {objects}{name} -n {namespace}");
                (format!("of {owner}"), remedy)
            }
            None => {
                let domain = domain(gate).unwrap_or(gate);
                let remedy = format!("see what the controller of {domain} waits for");
                ("which stowplan has not set".to_owned(), remedy)
            }
        };
        let what =
            format!("the scheduling gate {gate}, {whose}, holds it until its owner lifts it{says}");
        diagnosis.report(what, remedy);
    }
}
