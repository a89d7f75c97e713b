//! Wakes colocation groups that the scheduler does not try again (see [`wake`]). To wake one pod of
//! a group is enough: once it is bound, the scheduler tries the others.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::systems::plan::Plan;
use crate::systems::streams::kinds::StreamsView as _;
use crate::systems::streams::kinds::streams_pod::PodDetails;
use crate::systems::wake;
use crate::view::{Name, View};

/// How long the pods of a group must be unschedulable before the first wake-up.
const PATIENCE: SignedDuration = SignedDuration::from_secs(3);

/// A colocation group: the namespace, and the key and the value of its label.
type Group<'v> = (&'v str, &'v str, &'v str);

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

/// The colocation groups of a pod.
fn groups<'v>(name: &'v Name, pod: &'v PodDetails) -> impl Iterator<Item = Group<'v>> {
    pod.groups.iter().map(|(key, value)| (&*name.namespace, &**key, &**value))
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
    use crate::systems;
    use crate::systems::streams::kinds::streams_pod::StreamsPods;
    use crate::systems::wake::WAKE;
    use crate::view::Object;
    use crate::view::Scope;

    /// `at` seconds after a fixed time.
    fn time(at: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + at).unwrap()
    }

    fn pod(name: &str, token: &str, node: Option<&str>, since: Option<i64>, woken: i64) -> Object {
        let mut labels = json!({
            "streams.ibm.com/job": "j",
            "streams.ibm.com/pe": name,
            format!("streams.ibm.com/hostcolocation.{token}"): token,
        });
        if woken > 0 {
            labels[WAKE] = json!(time(woken).as_second().to_string());
        }
        let conditions: Vec<Value> = since
            .map(|since| {
                json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                    "lastTransitionTime": time(since).to_string()})
            })
            .into_iter()
            .collect();
        let pod = json!({
            "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"), "labels": labels},
            "spec": {"containers": [], "nodeName": node},
            "status": {"phase": "Pending", "conditions": conditions},
        });
        let pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(pod).unwrap();
        systems::project(&pod, Scope::Controller).unwrap()
    }

    fn planned(pods: &[Object], at: i64) -> (Vec<String>, Option<i64>) {
        let mut view = View::default();
        pods.iter().cloned().for_each(|pod| view.apply(pod));
        let plan = plan(&view, time(at));
        let names = plan.actions.iter().map(|action| action.target.name.to_string()).collect();
        (names, plan.recheck_at.map(|at| at.as_second() - time(0).as_second()))
    }

    #[test]
    fn one_pod_of_a_waiting_group_is_woken_after_a_while() {
        let waiting = [pod("b", "t", None, Some(0), 0), pod("a", "t", None, Some(1), 0)];
        assert_eq!(planned(&waiting, 2), (vec![], Some(3)));
        assert_eq!(planned(&waiting, 3), (vec!["a".to_owned()], None));
    }

    #[test]
    fn a_group_with_a_bound_pod_is_not_woken() {
        let bound = [pod("a", "t", None, Some(0), 0), pod("b", "t", Some("n1"), None, 0)];
        assert_eq!(planned(&bound, 100), (vec![], None));
        let others = [pod("a", "t", None, Some(0), 0), pod("b", "u", Some("n1"), None, 0)];
        assert_eq!(planned(&others, 100), (vec!["a".to_owned()], None));
    }

    #[test]
    fn the_intervals_between_wake_ups_grow() {
        let woken = |at| [pod("a", "t", None, Some(0), at), pod("b", "t", None, Some(0), 0)];
        assert_eq!(planned(&woken(4), 13), (vec![], Some(14)));
        assert_eq!(planned(&woken(4), 14), (vec!["a".to_owned()], None));
        assert_eq!(planned(&woken(100), 124), (vec![], Some(125)));
        assert_eq!(planned(&woken(10_000), 10_299), (vec![], Some(10_300)));
        let again = [pod("a", "t", None, Some(200), 100)];
        assert_eq!(
            planned(&again, 203),
            (vec!["a".to_owned()], None),
            "it became unschedulable again after the wake-up"
        );
    }

    #[test]
    fn a_pod_of_two_groups_is_woken_once() {
        let mut both = pod("a", "t", None, Some(0), 0);
        let details = both.row_mut::<StreamsPods>().unwrap().details.as_mut().unwrap();
        let groups = details.groups.iter().cloned();
        details.groups = groups.chain([("k".into(), "v".into())]).collect();
        assert_eq!(planned(&[both], 100), (vec!["a".to_owned()], None));
    }

    #[test]
    fn a_pod_that_the_scheduler_has_not_tried_is_not_woken() {
        assert_eq!(planned(&[pod("a", "t", None, None, 0)], 100), (vec![], None));
    }
}
