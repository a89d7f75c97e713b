//! Waiting colocation groups that the scheduler has forgotten ([`wake`]): one pod is woken, and
//! with it the whole group.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::systems::plan::Plan;
use crate::systems::wake;
use crate::view::{Name, PodEstate, View};

/// How long a group waits before it is called: when its last pod goes, all of it is forgotten.
const PATIENCE: SignedDuration = SignedDuration::from_secs(3);

/// The waiting pods of a group, and whether one of its pods has a node.
#[derive(Default)]
struct Group<'v> {
    assigned: bool,
    waiting: BTreeMap<&'v Name, &'v PodEstate>,
}

/// Wakes each group that waits as a whole.
pub(super) fn plan(view: &View, now: Timestamp) -> Plan {
    let mut groups: BTreeMap<(&str, &str, &str), Group<'_>> = BTreeMap::new();
    for (name, pod) in view.pods().filter(|(_, pod)| !pod.finished) {
        for (key, value) in &pod.groups {
            let group = groups.entry((&name.namespace, key, value)).or_default();
            if pod.node.is_some() {
                group.assigned = true;
            } else if pod.unschedulable_since.is_some() && !pod.identity.deleting {
                group.waiting.insert(name, pod);
            }
        }
    }
    let mut plan = Plan::default();
    let mut called: BTreeSet<&Name> = BTreeSet::new();
    for group in groups.values().filter(|group| !group.assigned) {
        let Some(due) = group.due() else { continue };
        let Some((&name, pod)) = group.waiting.first_key_value() else { continue };
        if due > now {
            plan.recheck_by(due);
        } else if called.insert(name) {
            plan.actions.push(wake::call(name, &pod.identity.uid, now, "colocation group"));
        }
    }
    plan
}

impl Group<'_> {
    /// When it is to be woken: a while after its pods began to wait, and after the last time. The
    /// longer they wait, the rarer it is tried: then it is not the scheduler's memory that is at fault.
    fn due(&self) -> Option<Timestamp> {
        let since = self.waiting.values().filter_map(|pod| pod.unschedulable_since).min()?;
        let woken = self.waiting.values().filter_map(|pod| pod.woken).max();
        wake::due(since, woken, PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::systems::streams::keys::WAKE;
    use crate::view::Object;

    /// The second `at` of an hour.
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
        Object::whole_pod(&serde_json::from_value(pod).unwrap()).unwrap()
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
    fn a_group_with_a_pod_on_a_node_is_the_schedulers_business() {
        let assigned = [pod("a", "t", None, Some(0), 0), pod("b", "t", Some("n1"), None, 0)];
        assert_eq!(planned(&assigned, 100), (vec![], None));
        let others = [pod("a", "t", None, Some(0), 0), pod("b", "u", Some("n1"), None, 0)];
        assert_eq!(planned(&others, 100), (vec!["a".to_owned()], None));
    }

    #[test]
    fn calls_become_rarer() {
        let woken = |at| [pod("a", "t", None, Some(0), at), pod("b", "t", None, Some(0), 0)];
        assert_eq!(planned(&woken(4), 13), (vec![], Some(14)));
        assert_eq!(planned(&woken(4), 14), (vec!["a".to_owned()], None));
        assert_eq!(planned(&woken(100), 124), (vec![], Some(125)));
        assert_eq!(planned(&woken(10_000), 10_299), (vec![], Some(10_300)));
        let again = [pod("a", "t", None, Some(200), 100)];
        assert_eq!(planned(&again, 203), (vec!["a".to_owned()], None), "it waits anew since then");
    }

    #[test]
    fn a_pod_of_two_groups_is_one_action() {
        let mut both = pod("a", "t", None, Some(0), 0);
        if let Object::Pod(_, pod) = &mut both {
            let estate = pod.streams.as_mut().unwrap().estate.as_mut().unwrap();
            estate.groups =
                estate.groups.iter().cloned().chain([("k".into(), "v".into())]).collect();
        }
        assert_eq!(planned(&[both], 100), (vec!["a".to_owned()], None));
    }

    #[test]
    fn who_ended_or_was_never_tried_does_not_wait() {
        assert_eq!(planned(&[pod("a", "t", None, None, 0)], 100), (vec![], None));
    }
}
