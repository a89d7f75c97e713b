//! Compares the search with the enumeration of all placements.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::contention::find_contended;
use super::contradiction::find_contradiction;
use super::*;
use crate::systems::test_cases::cases;

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
                let mut singles =
                    (0..problem.classes.len()).filter(|of| problem.classes[*of].count == 1);
                let has = |pool: &Pool, class| pool.members.values().any(|of| *of == class);
                let class = singles.nth(random.below(4));
                if let Some(class) = class.filter(|of| !problem.pools.iter().any(|it| has(it, *of)))
                {
                    let index = u32::try_from(random.below(pool.size)).unwrap();
                    pool.members.insert(index, class);
                }
            }
            problem.pools.push(pool);
        }
        for _ in 0..random.below(7) {
            let mut unit = Unit::default();
            match random.below(5) {
                0 => unit.claims.push(Claim::Within(random.classes(&problem, 2))),
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
                        unit.claims.push(Claim::Within(random.classes(&problem, 3)));
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

/// The members of a pool, by index.
type Members = BTreeMap<u32, Place>;

/// Returns true if the members of these pools satisfy all constraints.
fn pools_hold(problem: &Problem, pools: &[Members]) -> bool {
    problem.pools.iter().zip(pools).enumerate().all(|(number, (pool, members))| {
        let distinct: BTreeSet<&Place> = members.values().collect();
        let shares = |(other, of): (usize, &Members)| {
            other != number && of.values().any(|place| distinct.contains(place))
        };
        distinct.len() == members.len()
            && (!pool.required || members.len() == pool.size)
            && members.keys().all(|index| (*index as usize) < pool.size)
            && pool.members.keys().all(|index| members.contains_key(index))
            && members.iter().all(|(index, place)| match pool.members.get(index) {
                Some(class) => *class == place.class,
                None => pool.eligible[place.class],
            })
            && !(pool.exclusive && pools.iter().enumerate().any(shares))
    })
}

/// Returns true if this placement satisfies all constraints.
fn holds(problem: &Problem, units: &[Place], pools: &[Members]) -> bool {
    let placed = || problem.units.iter().zip(units).enumerate();
    let unit_holds = |(number, (unit, place)): (usize, (&Unit, &Place))| {
        let is_of = |pool: usize| {
            let claims =
                |claim: &Claim| matches!(claim, Claim::Member { pool: of, .. } if *of == pool);
            unit.claims.iter().any(claims)
        };
        // Whether an exclusive pool of others has the node, or has newly got it.
        let is_kept_out = |newly: bool| {
            problem.pools.iter().zip(pools).enumerate().any(|(number, (pool, members))| {
                let has = |(index, of): (&u32, &Place)| {
                    of == place && !(newly && pool.members.contains_key(index))
                };
                pool.exclusive && !is_of(number) && members.iter().any(has)
            })
        };
        // What is on nodes already may contradict everything but those that are not.
        if let Some(class) = unit.at {
            return class == place.class && !is_kept_out(true);
        }
        let meets = |claim: &Claim| match claim {
            Claim::Within(classes) => classes[place.class],
            Claim::Member { pool, index: None } => pools[*pool].values().any(|of| of == place),
            Claim::Member { pool, index: Some(index) } => pools[*pool].get(index) == Some(place),
        };
        (!unit.claims.is_empty() || problem.open[place.class])
            && unit.claims.iter().all(meets)
            && !is_kept_out(false)
            && !placed()
                .any(|(other, (of, at))| other != number && at == place && is_apart(unit, of))
    };
    pools_hold(problem, pools) && placed().all(unit_holds)
}

fn is_apart(one: &Unit, other: &Unit) -> bool {
    one.alone || other.alone || one.tokens.iter().any(|token| other.tokens.contains(token))
}

/// All ways to choose the members of a pool.
fn choices(problem: &Problem, pool: &Pool) -> Vec<Members> {
    let there = pool.members.iter();
    let mut all: Vec<Members> =
        vec![there.map(|(index, class)| (*index, Place { class: *class, number: 0 })).collect()];
    for index in (0..u32::try_from(pool.size).unwrap()).filter(|of| !pool.members.contains_key(of))
    {
        let mut next = if pool.required { Vec::new() } else { all.clone() };
        for before in &all {
            let is_free =
                |of: &Place| pool.eligible[of.class] && !before.values().any(|taken| taken == of);
            for place in nodes(problem).into_iter().filter(is_free) {
                let mut members = before.clone();
                members.insert(index, place);
                next.push(members);
            }
        }
        all = next;
    }
    all
}

/// Returns true if there is a placement, by trying all of them.
fn is_possible(problem: &Problem) -> bool {
    let mut pools: Vec<Vec<Members>> = vec![Vec::new()];
    for pool in &problem.pools {
        let of_pool = choices(problem, pool);
        let with = |before: &Vec<Members>| -> Vec<_> {
            of_pool.iter().map(|members| [before, std::slice::from_ref(members)].concat()).collect()
        };
        pools = pools.iter().flat_map(with).collect();
    }
    let nodes = nodes(problem);
    pools.retain(|pools| pools_hold(problem, pools));
    pools.iter().any(|pools| extends(problem, &nodes, pools, &mut Vec::new()))
}

fn extends(problem: &Problem, nodes: &[Place], pools: &[Members], units: &mut Vec<Place>) -> bool {
    if units.len() == problem.units.len() {
        return true;
    }
    nodes.iter().any(|node| {
        units.push(*node);
        let extends = holds(problem, units, pools) && extends(problem, nodes, pools, units);
        units.pop();
        extends
    })
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
            assert!(holds(&problem, &witness.units, &witness.pools), "{witness:?}");
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
                prop_assert!(holds(&problem, &witness.units, &witness.pools), "{:?}", witness);
                let again = solve(&problem, &mut Budget::new(STEPS)).unwrap();
                prop_assert_eq!(Some(witness), again.as_ref());
            }
            None => {
                prop_assert!(!is_possible(&problem));
                let found = find_contradiction(&problem, &mut Budget::new(STEPS));
                prop_assert!(found.is_irreducible);
                let is_irreducible = contradiction::tests::is_irreducible;
                prop_assert!(is_irreducible(&problem, &found.constraints), "{:?}", found.constraints);
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
        let apart = |one: usize, other: usize| is_apart(&problem.units[one], &problem.units[other]);
        let there = problem.units.iter().enumerate();
        let mut placed: BTreeMap<usize, Place> =
            there.filter_map(|(unit, of)| Some((unit, Place { class: of.at?, number: 0 }))).collect();
        order.retain(|unit| !placed.contains_key(unit));
        for unit in order {
            let may = |place: &Place| {
                let part = Problem { units: vec![problem.units[unit].clone()], ..problem.clone() };
                holds(&part, &[*place], &witness.pools)
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
