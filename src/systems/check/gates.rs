//! The scheduling gates of a pod: those of stowplan's systems, and those of others.

use k8s_openapi::api::core::v1::Pod;

use super::Diagnosis;
use super::words::some;
use crate::kubernetes::gates;
use crate::systems;

/// Reports the gates of stowplan's systems that hold a pod.
pub(crate) fn report_own(diagnosis: &mut Diagnosis, pod: &Pod) {
    for gate in gates(pod).filter_map(systems::gate) {
        let what = format!("the gate {} holds it until {}", gate.name, gate.until);
        diagnosis.report(what, (gate.remedy)(pod));
    }
}

/// Reports the gates that hold a pod and are not stowplan's.
pub(crate) fn report_foreign(diagnosis: &mut Diagnosis, pod: &Pod) {
    let others: Vec<&str> = gates(pod).filter(|gate| systems::gate(gate).is_none()).collect();
    if !others.is_empty() {
        diagnosis.report(
            format!("scheduling gates hold it: {}", some(&others)),
            "whoever set them lifts them",
        );
    }
}
