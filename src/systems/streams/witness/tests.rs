//! Compares the search with the enumeration of all placements.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::contention::find_contended;
use super::contradiction::find_contradiction;
use super::*;
use crate::systems::simulation::cases;

const STEPS: u64 = 2_000_000;

/// A small random problem. Each node is a class by itself or one of two.
fn problems() -> impl Strategy<Value = Problem> {
    let classes = prop::collection::vec((1..3usize, 0..3u8), 1..5);
    (classes, any::<u64>()).prop_map(|(classes, seed)| {
        let mut random = Random(seed);
        let classes: Vec<Class> =
            classes.into_iter().map(|(count, rank)| Class { count, rank }).collect();
        let mut problem = Problem { classes, ..Problem::default() };
        problem.open = random.classes(&problem, 5);
        for _ in 0..random.below(3) {
            let eligible = random.classes(&problem, 3);
            let mut pool = Pool {
                size: 1 + random.below(3),
                required: random.below(4) > 0,
                exclusive: random.below(2) == 0,
                eligible,
                ..Pool::default()
            };
            if random.below(3) == 0 {
                let singles: Vec<usize> = (0..problem.classes.len())
                    .filter(|of| problem.classes[*of].count == 1)
                    .collect();
                let taken: Vec<usize> = problem
                    .pools
                    .iter()
                    .flat_map(|pool: &Pool| pool.members.values().copied())
                    .collect();
                if let Some(class) = singles.get(random.below(4)).filter(|of| !taken.contains(of)) {
                    let index = u32::try_from(random.below(pool.size)).unwrap();
                    pool.members.insert(index, *class);
                }
            }
            problem.pools.push(pool);
        }
        for _ in 0..random.below(7) {
            let mut unit = Unit::default();
            match random.below(5) {
                0 => {
                    let within = random.classes(&problem, 2);
                    unit.claims.push(Claim::Within(within));
                }
                1 | 2 if !problem.pools.is_empty() => {
                    let pool = random.below(problem.pools.len());
                    let size = problem.pools[pool].size;
                    let index =
                        (random.below(3) == 0).then(|| u32::try_from(random.below(size)).unwrap());
                    // Units with the same member are one unit.
                    let claim = Claim::Member { pool, index };
                    let is_new = |claim: &Claim| {
                        !problem.units.iter().any(|unit: &Unit| unit.claims.contains(claim))
                    };
                    if index.is_none() || is_new(&claim) {
                        unit.claims.push(claim);
                    }
                    if random.below(6) == 0 {
                        let within = random.classes(&problem, 3);
                        unit.claims.push(Claim::Within(within));
                    }
                }
                _ => {}
            }
            for token in 0..2 {
                if random.below(3) == 0 {
                    unit.tokens.push(token);
                }
            }
            unit.alone = random.below(6) == 0;
            if random.below(8) == 0 {
                let class = random.below(problem.classes.len());
                unit.at = Some(class).filter(|class| problem.classes[*class].count == 1);
            }
            problem.units.push(unit);
        }
        problem
    })
}

/// A generator of its own, so that a case is one number.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % limit as u64).unwrap()
    }

    /// Each class with a probability of `share` in 6.
    fn classes(&mut self, problem: &Problem, share: usize) -> Classes {
        let mut classes = problem.no_classes();
        for class in 0..problem.classes.len() {
            classes.set(class, self.below(6) < share);
        }
        classes
    }
}

fn nodes(problem: &Problem) -> Vec<Place> {
    let classes = problem.classes.iter().enumerate();
    classes
        .flat_map(|(class, of)| (0..of.count).map(move |number| Place { class, number }))
        .collect()
}

/// Whether this placement satisfies all constraints.
fn holds(problem: &Problem, units: &[Place], pools: &[BTreeMap<u32, Place>]) -> Result<(), String> {
    for (number, (pool, members)) in problem.pools.iter().zip(pools).enumerate() {
        let distinct: BTreeSet<&Place> = members.values().collect();
        if distinct.len() != members.len() {
            return Err(format!("pool {number} has a node twice"));
        }
        if members.len() > pool.size || (pool.required && members.len() < pool.size) {
            return Err(format!("pool {number} has {} members", members.len()));
        }
        for (index, place) in members {
            if *index as usize >= pool.size {
                return Err(format!("pool {number} has index {index}"));
            }
            match pool.members.get(index) {
                Some(class) if *class != place.class => return Err("a member has moved".into()),
                Some(_) => {}
                None if !pool.eligible[place.class] => return Err("not eligible".into()),
                None => {}
            }
        }
        for index in pool.members.keys() {
            if !members.contains_key(index) {
                return Err("a member is lost".into());
            }
        }
        if pool.exclusive {
            for (other, of) in pools.iter().enumerate() {
                if other != number && of.values().any(|place| distinct.contains(place)) {
                    return Err(format!("pools {number} and {other} share a node"));
                }
            }
        }
    }
    for (number, (unit, place)) in problem.units.iter().zip(units).enumerate() {
        // What is on nodes already may contradict everything but those that are not.
        if let Some(class) = unit.at {
            if class != place.class {
                return Err(format!("unit {number} has moved"));
            }
            for (number, (pool, members)) in problem.pools.iter().zip(pools).enumerate() {
                let claims =
                    |claim: &Claim| matches!(claim, Claim::Member { pool, .. } if *pool == number);
                let is_new =
                    |(index, of): (&u32, &Place)| of == place && !pool.members.contains_key(index);
                if pool.exclusive && members.iter().any(is_new) && !unit.claims.iter().any(claims) {
                    return Err(format!("unit {number} runs on a node that became exclusive"));
                }
            }
            continue;
        }
        if unit.claims.is_empty() && !problem.open[place.class] {
            return Err(format!("unit {number} is on a closed node"));
        }
        for claim in &unit.claims {
            let is_met = match claim {
                Claim::Within(classes) => classes[place.class],
                Claim::Member { pool, index: None } => pools[*pool].values().any(|of| of == place),
                Claim::Member { pool, index: Some(index) } => {
                    pools[*pool].get(index) == Some(place)
                }
            };
            if !is_met {
                return Err(format!("unit {number} is not where it must be"));
            }
        }
        for (pool, members) in pools.iter().enumerate() {
            let is_of_pool = unit
                .claims
                .iter()
                .any(|claim| matches!(claim, Claim::Member { pool: of, .. } if *of == pool));
            if problem.pools[pool].exclusive
                && !is_of_pool
                && members.values().any(|of| of == place)
            {
                return Err(format!("unit {number} is in the exclusive pool {pool}"));
            }
        }
        for (other, (of, at)) in problem.units.iter().zip(units).enumerate() {
            let apart =
                unit.alone || of.alone || unit.tokens.iter().any(|it| of.tokens.contains(it));
            if other != number && apart && at == place {
                return Err(format!("units {number} and {other} are together"));
            }
        }
    }
    Ok(())
}

/// All ways to choose the members of a pool.
fn choices(problem: &Problem, pool: &Pool) -> Vec<BTreeMap<u32, Place>> {
    let there = pool.members.iter();
    let there: BTreeMap<u32, Place> =
        there.map(|(index, class)| (*index, Place { class: *class, number: 0 })).collect();
    let mut all = vec![there];
    for index in 0..u32::try_from(pool.size).unwrap() {
        if pool.members.contains_key(&index) {
            continue;
        }
        let mut next = if pool.required { Vec::new() } else { all.clone() };
        for before in &all {
            for place in nodes(problem).into_iter().filter(|of| pool.eligible[of.class]) {
                if !before.values().any(|of| *of == place) {
                    let mut members = before.clone();
                    members.insert(index, place);
                    next.push(members);
                }
            }
        }
        all = next;
    }
    all
}

/// Whether there is a placement, by trying all of them.
fn is_possible(problem: &Problem) -> bool {
    let mut pools: Vec<Vec<BTreeMap<u32, Place>>> = vec![Vec::new()];
    for pool in &problem.pools {
        let of_pool = choices(problem, pool);
        pools = pools
            .iter()
            .flat_map(|before| {
                of_pool.iter().map(move |members| {
                    let mut all = before.clone();
                    all.push(members.clone());
                    all
                })
            })
            .collect();
    }
    let nodes = nodes(problem);
    let none = Problem { units: Vec::new(), ..problem.clone() };
    pools.retain(|pools| holds(&none, &[], pools).is_ok());
    pools.iter().any(|pools| extends(problem, &nodes, pools, &mut Vec::new()))
}

fn extends(
    problem: &Problem,
    nodes: &[Place],
    pools: &[BTreeMap<u32, Place>],
    units: &mut Vec<Place>,
) -> bool {
    if units.len() == problem.units.len() {
        return true;
    }
    for node in nodes {
        units.push(*node);
        let part = Problem { units: problem.units[..units.len()].to_vec(), ..problem.clone() };
        if holds(&part, units, pools).is_ok() && extends(problem, nodes, pools, units) {
            return true;
        }
        units.pop();
    }
    false
}

/// Nodes that are preferred stay with the units that prefer them, also where the others come first.
#[test]
fn a_placement_is_found_again_by_its_preferences() {
    let class = |count| Class { count, rank: 0 };
    let within = |problem: &Problem, classes: &[usize]| {
        let mut within = problem.no_classes();
        classes.iter().for_each(|class| within.insert(*class));
        vec![Claim::Within(within)]
    };
    for preferred in [0, 1] {
        let mut problem =
            Problem { classes: vec![class(1), class(1), class(2)], ..Problem::default() };
        let alone = Unit {
            claims: within(&problem, &[0, 1]),
            alone: true,
            preferred: Some(preferred),
            ..Unit::default()
        };
        let free = Unit { claims: within(&problem, &[0, 1, 2]), ..Unit::default() };
        problem.units = vec![alone, free.clone(), free];
        for problem in [problem.with_preferences_held(), problem] {
            let witness = solve(&problem, &mut Budget::new(STEPS)).unwrap().unwrap();
            assert_eq!(witness.units[0].class, preferred, "{witness:?}");
            assert_eq!(holds(&problem, &witness.units, &witness.pools), Ok(()));
        }
    }
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn it_agrees_with_the_enumeration(problem in problems()) {
        let found = solve(&problem, &mut Budget::new(STEPS)).expect("enough");
        match &found {
            Some(witness) => {
                prop_assert_eq!(holds(&problem, &witness.units, &witness.pools), Ok(()));
                let again = solve(&problem, &mut Budget::new(STEPS)).unwrap();
                prop_assert_eq!(Some(witness), again.as_ref());
            }
            None => {
                prop_assert!(!is_possible(&problem));
                let found = find_contradiction(&problem, &mut Budget::new(STEPS));
                prop_assert!(found.is_irreducible);
                prop_assert_eq!(contradiction::tests::is_irreducible(&problem, &found.constraints), Ok(()));
            }
        }
    }

    #[test]
    fn whoever_comes_first_leaves_a_place_for_the_others(problem in problems(), seed in any::<u64>()) {
        let Some(witness) = solve(&problem, &mut Budget::new(STEPS)).unwrap() else { return Ok(()) };
        let bound = find_contended(&problem, &witness);
        let mut random = Random(seed);
        let mut order: Vec<usize> = (0..problem.units.len()).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, random.below(at + 1));
        }
        let mut placed: BTreeMap<usize, Place> = BTreeMap::new();
        let apart = |one: usize, other: usize| {
            let (a, b) = (&problem.units[one], &problem.units[other]);
            a.alone || b.alone || a.tokens.iter().any(|token| b.tokens.contains(token))
        };
        let there = problem.units.iter().enumerate();
        placed.extend(there.filter_map(|(unit, of)| Some((unit, Place { class: of.at?, number: 0 }))));
        order.retain(|unit| !placed.contains_key(unit));
        for unit in order {
            let may = |place: &Place| {
                let part = Problem { units: vec![problem.units[unit].clone()], ..problem.clone() };
                holds(&part, &[*place], &witness.pools).is_ok()
                    && placed.iter().all(|(other, at)| at != place || !apart(unit, *other))
                    && (0..bound.len()).all(|other| other == unit || !bound[other] || !apart(unit, other)
                        || witness.units[other] != *place)
            };
            let nodes: Vec<Place> = match bound[unit] {
                true => vec![witness.units[unit]],
                false => nodes(&problem),
            };
            let nodes: Vec<Place> = nodes.into_iter().filter(may).collect();
            prop_assert!(!nodes.is_empty(), "unit {} is stranded: {:?} {:?}", unit, placed, bound);
            placed.insert(unit, nodes[random.below(nodes.len())]);
        }
    }
}

/// Units that are pairwise apart.
fn apart(units: usize, nodes: usize) -> Problem {
    let mut problem =
        Problem { classes: vec![Class { count: nodes, rank: 0 }], ..Problem::default() };
    problem.open = problem.no_classes();
    problem.open.insert(0);
    problem.units = (0..units).map(|_| Unit { tokens: vec![0], ..Unit::default() }).collect();
    problem
}

#[test]
fn more_units_than_nodes_are_impossible_at_once() {
    for (units, nodes) in [(8, 7), (20, 19), (1_000, 999)] {
        let mut budget = Budget::new(10_000);
        assert_eq!(solve(&apart(units, nodes), &mut budget), Ok(None), "{units} on {nodes}");
        let mut budget = Budget::new(1_000_000);
        assert!(solve(&apart(nodes, nodes), &mut budget).unwrap().is_some());
    }
}

/// A graph whose vertices are to be coloured with three colours: units apart from their neighbours, on
/// three nodes.
fn colouring(vertices: usize, edges: usize, seed: u64) -> Problem {
    let mut random = Random(seed);
    let mut problem = apart(0, 3);
    problem.units = vec![Unit::default(); vertices];
    for edge in 0..edges {
        let one = random.below(vertices);
        let other = (one + 1 + random.below(vertices - 1)) % vertices;
        problem.units[one].tokens.push(edge);
        problem.units[other].tokens.push(edge);
    }
    problem
}

#[test]
fn a_hard_problem_ends_at_the_budget_and_always_in_the_same_way() {
    let problem = colouring(600, 1_390, 1);
    for _ in 0..2 {
        let mut budget = Budget::new(100_000);
        assert_eq!(solve(&problem, &mut budget), Err(Exhausted));
    }
    let easy = colouring(100, 150, 2);
    assert!(solve(&easy, &mut Budget::new(STEPS)).unwrap().is_some());
    assert_eq!(solve(&colouring(100, 400, 3), &mut Budget::new(STEPS)), Ok(None));
}

#[test]
fn a_thousand_units_on_thousands_of_nodes_are_few_steps() {
    let mut problem = apart(0, 5_000);
    let of_ten = |of: usize| Unit { tokens: vec![of / 10], ..Unit::default() };
    problem.units = (0..1_000).map(of_ten).collect();
    problem.units[0].alone = true;
    let mut budget = Budget::new(20_000);
    let witness = solve(&problem, &mut budget).unwrap().expect("a witness");
    assert_eq!(find_contended(&problem, &witness), vec![false; 1_000]);
    // On few nodes only the one that is alone is contended: all others may be together but for their ten.
    problem.classes[0].count = 120;
    let witness = solve(&problem, &mut budget).unwrap().expect("a witness");
    let contended = find_contended(&problem, &witness);
    assert!(contended[0] && !contended[1..].contains(&true));
}
