//! Random machines against a naive evaluation of the same conditions. The rows of the agent's own test are in
//! `fixtures/katalyst/oracle-*`.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;
use crate::systems::katalyst::qos::Qos;

const NUMA: Zone = Zone::Numa;
const SOCKET: Zone = Zone::Socket;

type Labels = BTreeMap<Box<str>, Box<str>>;

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

/// A pod with the NUMA nodes where it is; none: they are not known.
type Placed = (NumaPod, Vec<usize>);

/// The conditions word for word, for the NUMA node `z`. `socket_of`: the socket of each NUMA node.
fn naive(z: usize, socket_of: &[usize], pods: &[Placed], new: &NumaPod, keys: &[&str]) -> bool {
    if new.qos.is_exclusive {
        return new.affinity.is_empty();
    }
    let is_near = |zones: &[usize], zone: Zone| {
        let is_beside = |own: &usize| zone == SOCKET && socket_of[z] == socket_of[*own];
        zones.is_empty() || zones.iter().any(|own| *own == z || is_beside(own))
    };
    let counts = |key: &str| keys.is_empty() || keys.contains(&key);
    let selects = |selectors: &[Selector], of: &NumaPod, zones: &[usize]| {
        selectors.iter().filter(|selector| is_near(zones, selector.zone)).any(|selector| {
            let mut pairs = selector.labels.iter();
            pairs.any(|(key, value)| counts(key) && of.labels.get(key) == Some(value))
        })
    };
    let any = |holds: &dyn Fn(&NumaPod, &[usize]) -> bool| {
        pods.iter().any(|(pod, zones)| holds(pod, zones))
    };
    let e = any(&|pod, zones| pod.qos.is_bound && selects(&pod.anti_affinity, new, zones));
    let x = any(&|pod, zones| pod.qos.is_exclusive && is_near(zones, NUMA));
    let n = any(&|pod, zones| selects(&new.anti_affinity, pod, zones));
    let a = any(&|pod, zones| !zones.is_empty() && selects(&new.affinity, pod, zones));
    !(e || x || n) && (new.affinity.is_empty() || a)
}

fn any_labels(least: usize) -> impl Strategy<Value = Labels> {
    let pairs = vec![("role", "ps"), ("role", "worker"), ("app", "a"), ("team", "t")];
    subsequence(pairs, least..=2).prop_map(|pairs| labels(&pairs))
}

fn selectors() -> impl Strategy<Value = Vec<Selector>> {
    let one = (any_labels(1), select(vec![NUMA, SOCKET]));
    prop::collection::vec(one.prop_map(|(labels, zone)| Selector { labels, zone }), 0..3)
}

fn placed(zones: usize) -> impl Strategy<Value = Placed> {
    let on = prop_oneof![
        8 => subsequence((0..zones).collect::<Vec<_>>(), 1..=2.min(zones)),
        1 => Just(Vec::new()),
    ];
    let qos = (prop::bool::weighted(0.9), prop::bool::weighted(0.2))
        .prop_map(|(is_bound, is_exclusive)| Qos { is_dedicated: true, is_bound, is_exclusive });
    let pod = (qos, any_labels(0), selectors(), selectors()).prop_map(
        |(qos, labels, affinity, anti_affinity)| NumaPod {
            qos,
            labels,
            affinity,
            anti_affinity,
            ..NumaPod::default()
        },
    );
    (pod, on)
}

/// The socket of each NUMA node, the pods that are there, the new pod, and the declared keys.
fn cases() -> impl Strategy<Value = (Vec<usize>, Vec<Placed>, Placed, Vec<&'static str>)> {
    let machines = prop::collection::vec(1_usize..4, 1..3).prop_map(|sockets| {
        let each = sockets.iter().enumerate();
        each.flat_map(|(socket, count)| vec![socket; *count]).collect::<Vec<_>>()
    });
    machines.prop_flat_map(|sockets| {
        let count = sockets.len();
        let keys = subsequence(vec!["role", "app"], 0..=2);
        (Just(sockets), prop::collection::vec(placed(count), 0..6), placed(count), keys)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn random_machines_agree_with_a_naive_evaluation((socket_of, pods, (new, _), keys) in cases()) {
        let declared_labels = keys.iter().map(|key| (*key).to_owned()).collect();
        let policy = Katalyst { declared_labels, ..Katalyst::default() };
        let name = |number| Name::new("ns", &format!("p{number}"));
        let names: Vec<Name> = (0..pods.len()).map(name).collect();
        let occupants = |is_here: &dyn Fn(&[usize]) -> bool| -> Vec<Occupant<'_>> {
            let here = names.iter().zip(&pods).filter(|(_, (_, zones))| is_here(zones));
            here.map(|(name, (pod, _))| Occupant { name, pod }).collect()
        };
        let anywhere = occupants(&|zones| zones.is_empty());
        let mut machine = Machine { sockets: Vec::new(), anywhere };
        for (zone, socket) in socket_of.iter().enumerate() {
            if machine.sockets.len() <= *socket {
                machine.sockets.push(Socket::default());
            }
            let number = u8::try_from(zone).expect("few NUMA nodes");
            let here = occupants(&|zones| zones.contains(&zone));
            machine.sockets[*socket].zones.push((number, here));
        }
        let wanted: Vec<u8> = (0..socket_of.len())
            .filter(|zone| naive(*zone, &socket_of, &pods, &new, &keys))
            .filter_map(|zone| u8::try_from(zone).ok())
            .collect();
        let verdicts = machine.verdicts(Newcomer { pod: &new, policy: &policy, leads: false });
        let feasible = verdicts.filter(|of| of.obstacle.is_none()).map(|of| of.zone);
        prop_assert_eq!(feasible.collect::<Vec<u8>>(), wanted);
    }
}
