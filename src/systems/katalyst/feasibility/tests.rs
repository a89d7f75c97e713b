//! The oracle of Katalyst's own agent test, and random machines against a naive evaluation of the same
//! conditions.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;
use crate::systems::katalyst::qos::Qos;

const NUMA: Zone = Zone::Numa;
const SOCKET: Zone = Zone::Socket;

type Labels = BTreeMap<&'static str, &'static str>;

fn selector(labels: &Labels, zone: Zone) -> Selector {
    let labels = labels.iter().map(|(key, value)| ((*key).into(), (*value).into()));
    Selector { labels: labels.collect(), zone }
}

fn role(value: &'static str, zone: Zone) -> Selector {
    selector(&BTreeMap::from([("role", value)]), zone)
}

fn pod(labels: &Labels, affinity: &[Selector], anti: &[Selector], is_exclusive: bool) -> NumaPod {
    NumaPod {
        qos: Qos { is_dedicated: true, is_bound: true, is_exclusive },
        labels: labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
        affinity: affinity.to_vec(),
        anti_affinity: anti.to_vec(),
        ..NumaPod::default()
    }
}

fn declared(keys: &[&str]) -> Katalyst {
    let declared_labels = keys.iter().map(|key| (*key).to_owned()).collect();
    Katalyst { declared_labels, ..Katalyst::default() }
}

fn names(count: usize) -> Vec<Name> {
    (0..count).map(|number| Name::new("ns", &format!("p{number}"))).collect()
}

fn feasible(machine: &Machine<'_>, newcomer: &NumaPod, policy: &Katalyst) -> Vec<u8> {
    // The lifetimes of a machine and of a newcomer are one.
    let machine = machine.clone();
    let verdicts = machine.verdicts(Newcomer { pod: newcomer, policy, leads: false });
    verdicts.filter(|of| of.obstacle.is_none()).map(|of| of.zone).collect()
}

/// The rows of the agent's own test (katalyst-core, pull request 347): two sockets of two NUMA nodes.
#[test]
fn the_oracle_of_the_agent() {
    let labelled = |value: &'static str| Labels::from([("role", value)]);
    let (anti, aff, none) = (labelled("anti"), labelled("aff"), Labels::new());
    let present = [
        pod(&anti, &[], &[], true),
        pod(&anti, &[], &[role("anti", NUMA)], false),
        pod(&aff, &[], &[], false),
        pod(&none, &[], &[role("anti", SOCKET)], false),
    ];
    let names = names(4);
    let occupant = |index: usize| vec![Occupant { name: &names[index], pod: &present[index] }];
    let machine = Machine {
        sockets: vec![
            Socket { name: "0", zones: vec![(0, occupant(0)), (1, occupant(1))] },
            Socket { name: "1", zones: vec![(2, occupant(2)), (3, occupant(3))] },
        ],
        anywhere: Vec::new(),
    };
    let policy = declared(&["role"]);
    let near = |zone| [role("aff", zone)];
    let away = |zone| [role("anti", zone)];
    for (new, wanted) in [
        (pod(&anti, &[], &away(NUMA), false), &[][..]),
        (pod(&anti, &[], &[], false), &[]),
        (pod(&anti, &[], &away(SOCKET), false), &[]),
        (pod(&none, &[], &away(NUMA), false), &[2, 3]),
        (pod(&aff, &near(NUMA), &[], false), &[2]),
        (pod(&none, &near(NUMA), &[], false), &[2]),
        (pod(&aff, &near(NUMA), &away(NUMA), false), &[2]),
        (pod(&aff, &[], &[], false), &[1, 2, 3]),
        (pod(&aff, &near(SOCKET), &[], false), &[2, 3]),
        // Its hints are not filtered: CPUs alone decide.
        (pod(&none, &[], &away(NUMA), true), &[0, 1, 2, 3]),
        // The agent fails.
        (pod(&none, &near(NUMA), &[], true), &[]),
    ] {
        assert_eq!(feasible(&machine, &new, &policy), wanted, "{new:?}");
    }
    let mut leader = machine.clone();
    let new = pod(&labelled("new"), &[role("new", NUMA)], &[], false);
    assert!(feasible(&leader, &new, &policy).is_empty());
    let leads = Newcomer { pod: &new, policy: &policy, leads: true };
    assert_eq!(machine.find_feasible(leads), Some(1), "without its affinity");
    leader.anywhere = occupant(2);
    assert!(feasible(&leader, &pod(&none, &near(NUMA), &[], false), &policy) == [2]);
    assert!(feasible(&leader, &pod(&none, &[], &[role("aff", NUMA)], false), &policy).is_empty());
}

#[test]
fn labels_that_are_not_declared_and_pods_that_are_not_bound_do_not_count() {
    let other = Labels::from([("team", "a")]);
    let by_team = selector(&other, NUMA);
    let mut present = pod(&other, &[], &[role("x", NUMA)], false);
    let new = pod(&Labels::from([("role", "x")]), &[], std::slice::from_ref(&by_team), false);
    let names = names(1);
    let on = |present: &NumaPod, policy: &Katalyst| {
        let zones = vec![(0, vec![Occupant { name: &names[0], pod: present }])];
        let machine = Machine { sockets: vec![Socket { name: "0", zones }], anywhere: Vec::new() };
        feasible(&machine, &new, policy).len()
    };
    assert_eq!(on(&present, &declared(&["role"])), 0, "the pod avoids role=x");
    present.qos.is_bound = false;
    assert_eq!(on(&present, &declared(&["role"])), 1, "it is not bound, and team is not declared");
    assert_eq!(on(&present, &declared(&["role", "team"])), 0, "the new pod avoids team=a");
    assert_eq!(on(&present, &declared(&[])), 0, "without declared labels, all count");
}

/// A pod of the naive evaluation.
#[derive(Clone, Debug)]
struct Plain {
    labels: Labels,
    affinity: Vec<(Labels, Zone)>,
    anti: Vec<(Labels, Zone)>,
    is_exclusive: bool,
    is_bound: bool,
    /// Where it is; empty: not known.
    zones: BTreeSet<usize>,
}

/// The conditions word for word, for the NUMA node `z`. `socket_of`: the socket of each NUMA node.
fn naive(z: usize, socket_of: &[usize], pods: &[Plain], new: &Plain, keys: &[&str]) -> bool {
    let widened = |pod: &Plain, zone: Zone| -> BTreeSet<usize> {
        let mut all = BTreeSet::new();
        for y in 0..socket_of.len() {
            for own in &pod.zones {
                if y == *own || (zone == SOCKET && socket_of[y] == socket_of[*own]) {
                    all.insert(y);
                }
            }
            if pod.zones.is_empty() {
                all.insert(y);
            }
        }
        all
    };
    let matches = |selector: &Labels, labels: &Labels| {
        let mut found = false;
        for (key, value) in selector {
            for (own_key, own_value) in labels {
                found |=
                    key == own_key && value == own_value && (keys.is_empty() || keys.contains(key));
            }
        }
        found
    };
    if new.is_exclusive {
        return new.affinity.is_empty();
    }
    let (mut e, mut x, mut n, mut a) = (false, false, false, false);
    for pod in pods {
        for (selector, zone) in &pod.anti {
            e |= pod.is_bound && matches(selector, &new.labels) && widened(pod, *zone).contains(&z);
        }
        x |= pod.is_exclusive && widened(pod, NUMA).contains(&z);
        for (selector, zone) in &new.anti {
            n |= matches(selector, &pod.labels) && widened(pod, *zone).contains(&z);
        }
        for (selector, zone) in &new.affinity {
            let is_known = !pod.zones.is_empty();
            a |= is_known && matches(selector, &pod.labels) && widened(pod, *zone).contains(&z);
        }
    }
    match (e, x, n) {
        (false, false, false) => new.affinity.is_empty() || a,
        _ => false,
    }
}

fn labels() -> impl Strategy<Value = Labels> {
    let pairs = vec![("role", "ps"), ("role", "worker"), ("app", "a"), ("team", "t")];
    subsequence(pairs, 0..=2).prop_map(|pairs| pairs.into_iter().collect())
}

fn selectors() -> impl Strategy<Value = Vec<(Labels, Zone)>> {
    let one = (labels().prop_filter("empty", |of| !of.is_empty()), select(vec![NUMA, SOCKET]));
    prop::collection::vec(one, 0..3)
}

fn plain(zones: usize) -> impl Strategy<Value = Plain> {
    let on = prop_oneof![
        8 => subsequence((0..zones).collect::<Vec<_>>(), 1..=2.min(zones)),
        1 => Just(Vec::new()),
    ];
    (labels(), selectors(), selectors(), prop::bool::weighted(0.2), prop::bool::weighted(0.9), on)
        .prop_map(|(labels, affinity, anti, is_exclusive, is_bound, zones)| Plain {
            labels,
            affinity,
            anti,
            is_exclusive,
            is_bound,
            zones: zones.into_iter().collect(),
        })
}

/// The socket of each NUMA node, the pods that are there, the new pod, and the declared keys.
fn cases() -> impl Strategy<Value = (Vec<usize>, Vec<Plain>, Plain, Vec<&'static str>)> {
    let machines = prop::collection::vec(1_usize..4, 1..3).prop_map(|sockets| {
        let each = sockets.iter().enumerate();
        each.flat_map(|(socket, count)| vec![socket; *count]).collect::<Vec<_>>()
    });
    machines.prop_flat_map(|sockets| {
        let count = sockets.len();
        let keys = subsequence(vec!["role", "app"], 0..=2);
        (Just(sockets), prop::collection::vec(plain(count), 0..6), plain(count), keys)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn random_machines_agree_with_a_naive_evaluation((socket_of, plain, new, keys) in cases()) {
        let to_pod = |of: &Plain| {
            let all = |of: &[(Labels, Zone)]| -> Vec<Selector> {
                of.iter().map(|(labels, zone)| selector(labels, *zone)).collect()
            };
            let mut pod = pod(&of.labels, &all(&of.affinity), &all(&of.anti), of.is_exclusive);
            pod.qos.is_bound = of.is_bound;
            pod
        };
        let pods: Vec<NumaPod> = plain.iter().map(to_pod).collect();
        let names = names(pods.len());
        let occupants = |is_here: &dyn Fn(&Plain) -> bool| -> Vec<Occupant<'_>> {
            let here = plain.iter().enumerate().filter(|(_, of)| is_here(of));
            here.map(|(index, _)| Occupant { name: &names[index], pod: &pods[index] }).collect()
        };
        let mut machine = Machine::default();
        for (zone, socket) in socket_of.iter().enumerate() {
            if machine.sockets.len() <= *socket {
                machine.sockets.push(Socket::default());
            }
            let here = occupants(&|of| of.zones.contains(&zone));
            let number = u8::try_from(zone).expect("few NUMA nodes");
            machine.sockets[*socket].zones.push((number, here));
        }
        machine.anywhere = occupants(&|of| of.zones.is_empty());
        let new_pod = to_pod(&new);
        let found = feasible(&machine, &new_pod, &declared(&keys));
        let wanted: Vec<u8> = (0..socket_of.len())
            .filter(|zone| naive(*zone, &socket_of, &plain, &new, &keys))
            .filter_map(|zone| u8::try_from(zone).ok())
            .collect();
        prop_assert_eq!(found, wanted);
    }
}
