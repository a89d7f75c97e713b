//! Wakes colocation groups that the scheduler does not try again (see [`wake`]). To wake one pod of
//! a group is enough: once it is bound, the scheduler tries the others.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{Group, groups};
use crate::systems::View;
use crate::systems::plan::Plan;
use crate::systems::streams::kinds::PodDetails;
use crate::systems::wake;
use crate::view::Name;

/// How long the pods of a group must be unschedulable before the first wake-up.
const PATIENCE: SignedDuration = SignedDuration::from_secs(3);

/// The unschedulable pods of a group.
type Unschedulable<'v> = BTreeMap<&'v Name, &'v PodDetails>;

/// Wakes one pod of each group that has unschedulable pods and no bound ones.
pub(super) fn plan(view: &View, now: Timestamp) -> Plan {
    // Few groups have unschedulable pods: only these are collected.
    let mut waiting: BTreeMap<Group<'_>, Unschedulable<'_>> = BTreeMap::new();
    let pods = || view.pods().filter(|(_, pod)| !pod.finished);
    let is_unschedulable = |pod: &PodDetails| {
        pod.node.is_none() && pod.unschedulable_since.is_some() && !pod.identity.deleting
    };
    for (name, pod) in pods().filter(|(_, pod)| is_unschedulable(pod)) {
        for group in groups(name, pod) {
            waiting.entry(group).or_default().insert(name, pod);
        }
    }
    for (name, pod) in pods().filter(|(_, pod)| pod.node.is_some()) {
        for group in groups(name, pod) {
            waiting.remove(&group);
        }
    }
    let mut plan = Plan::default();
    let mut woken: BTreeSet<&Name> = BTreeSet::new();
    for pods in waiting.values() {
        let Some(due) = due(pods) else { continue };
        let Some((&name, pod)) = pods.first_key_value() else { continue };
        if due > now {
            plan.recheck_by(due);
        } else if woken.insert(name) {
            plan.actions.push(wake::call(name, &pod.identity.uid, now, "colocation group"));
        }
    }
    plan
}

/// When to wake a group: some time after its pods became unschedulable, and after the last wake-up.
/// The longer they are unschedulable, the longer the intervals: a pod that stays unschedulable after
/// a wake-up has another cause.
fn due(pods: &Unschedulable<'_>) -> Option<Timestamp> {
    let since = pods.values().filter_map(|pod| pod.unschedulable_since).min()?;
    let woken = pods.values().filter_map(|pod| pod.woken).max();
    wake::due(since, woken, PATIENCE)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::systems::test_objects::watch;
    use crate::systems::wake::WAKE;
    use crate::view::Scope;

    /// `at` seconds after a fixed time.
    fn time(at: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + at).unwrap()
    }

    fn pod(name: &str, token: &str, node: Option<&str>, since: Option<i64>, woken: i64) -> Value {
        let mut labels = json!({
            "streams.ibm.com/job": "j",
            "streams.ibm.com/pe": name,
            format!("streams.ibm.com/hostcolocation.{token}"): token,
        });
        if woken > 0 {
            labels[WAKE] = json!(time(woken).as_second().to_string());
        }
        let unschedulable = |since| {
            json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "lastTransitionTime": time(since).to_string()})
        };
        let conditions: Vec<Value> = since.map(unschedulable).into_iter().collect();
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"), "labels": labels},
            "spec": {"containers": [], "nodeName": node},
            "status": {"phase": "Pending", "conditions": conditions},
        })
    }

    fn planned(pods: &[Value], at: i64) -> (Vec<String>, Option<i64>) {
        let mut view = View::default();
        pods.iter().for_each(|pod| watch(&mut view, pod.clone(), Scope::Controller));
        let plan = plan(&view, time(at));
        let names = plan.actions.iter().map(|action| action.target.name.to_string()).collect();
        (names, plan.recheck_at.map(|at| at.as_second() - time(0).as_second()))
    }

    #[test]
    fn one_pod_of_a_waiting_group_is_woken_after_intervals_that_grow() {
        let unbound = |name, since, woken| pod(name, "t", None, since, woken);
        let two = |woken| vec![unbound("a", Some(0), woken), unbound("b", Some(0), 0)];
        let bound = |token| vec![unbound("a", Some(0), 0), pod("b", token, Some("n1"), None, 0)];
        let new = vec![unbound("b", Some(0), 0), unbound("a", Some(1), 0)];
        for (what, pods, at, woken, recheck) in [
            ("too early", new.clone(), 2, false, Some(3)),
            ("unschedulable for a while", new, 3, true, None),
            ("a bound pod of the group", bound("t"), 100, false, None),
            ("a bound pod of another group", bound("u"), 100, true, None),
            ("not tried by the scheduler", vec![unbound("a", None, 0)], 100, false, None),
            ("woken early", two(4), 13, false, Some(14)),
            ("woken early, and due", two(4), 14, true, None),
            ("woken later", two(100), 124, false, Some(125)),
            ("woken much later", two(10_000), 10_299, false, Some(10_300)),
            ("unschedulable anew since", vec![unbound("a", Some(200), 100)], 203, true, None),
        ] {
            let names = if woken { vec!["a".to_owned()] } else { vec![] };
            assert_eq!(planned(&pods, at), (names, recheck), "{what}");
        }
    }

    #[test]
    fn a_pod_of_two_groups_is_woken_once() {
        let mut both = pod("a", "t", None, Some(0), 0);
        both["metadata"]["labels"]["streams.ibm.com/hostcolocation.u"] = json!("u");
        assert_eq!(planned(&[both], 100), (vec!["a".to_owned()], None));
    }
}
