//! A StreamsJob is placed as a whole: what is refused is impossible, and what is accepted runs, in whatever
//! order its pods are created and wherever the scheduler puts them. Decided by an oracle that tries every
//! placement.

mod life;
mod world;

use std::collections::BTreeSet;

use self::world::World;
use crate::streams_cases::{
    any_model, element_name, job_spec, must_be_refused, node_name, pool_name,
};
use crate::streams_oracle::{Element, Form, Host, Model, Node, Others, Pool, Set};
use life::any_life;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;

/// As many cases as the environment variable `PROPTEST_CASES` says, which proptest reads, or 300.
fn cases() -> Config {
    let config = Config::default();
    let cases = if config.cases == 256 { 300 } else { config.cases };
    // About half of the random jobs are impossible.
    Config { cases, max_global_rejects: cases * 8, ..config }
}

/// A job and its cluster, briefly.
fn describe(model: &Model) -> String {
    let nodes = model.nodes.iter().enumerate().map(|(number, node)| {
        let labels = crate::streams_cases::node_labels(node);
        format!("{} {:?} {labels}", node_name(number), node.others)
    });
    format!("{}\n{}", nodes.collect::<Vec<_>>().join("\n"), job_spec(model, node_name))
}

/// The part of a job that texts are about: the elements, tokens and pools that they name.
fn named(model: &Model, texts: &str) -> Model {
    let words: BTreeSet<&str> =
        texts.split(|of: char| !(of.is_alphanumeric() || of == '_')).collect();
    let has = |word: String| words.contains(word.as_str());
    let is_named = |(number, element): &(usize, &Element)| {
        let has_token = |prefix: &str, tokens: Set| {
            (0..3).any(|token| tokens & 1 << token != 0 && has(format!("{prefix}{token}")))
        };
        has(element_name(*number))
            || (0..2).any(|operator| has(format!("Op{number}_{operator}")))
            || has_token("with", element.together)
            || has_token("apart", element.apart)
            || element.hosts.iter().any(|host| host.pool().is_some_and(|pool| has(pool_name(pool))))
    };
    let elements = model.elements.iter().enumerate().filter(is_named);
    let elements: Vec<Element> = elements.map(|(_, element)| element.clone()).collect();
    // The others stay in their places, so that they keep their numbers, and ask for nothing.
    let pools = model.pools.iter().enumerate().map(|(number, pool)| {
        let asks = |of: &Element| of.hosts.iter().any(|host| host.pool() == Some(number));
        match has(pool_name(number)) || elements.iter().any(asks) {
            true => pool.clone(),
            false => Pool { form: Form::Tagged(0), is_exclusive: false },
        }
    });
    Model { pools: pools.collect(), nodes: model.nodes.clone(), elements: elements.clone() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn a_job_is_refused_exactly_if_it_is_impossible(model in any_model()) {
        let mut world = World::new(&model);
        let is_possible = model.is_possible();
        match world.validate(&model) {
            Ok(()) => prop_assert!(is_possible || !must_be_refused(&model), "accepted\n{}", describe(&model)),
            Err(texts) => {
                let texts = texts.join("\n");
                prop_assert!(!is_possible, "refused: {}\n{}", texts, describe(&model));
                let part = named(&model, &texts);
                prop_assert!(!part.is_possible(), "what it names is possible: {}\n{}", texts, describe(&model));
            }
        }
    }

    #[test]
    fn a_possible_job_runs_whole(model in any_model(), life in any_life()) {
        prop_assume!(model.is_possible());
        if let Err(why) = life::live(&model, &life) {
            prop_assert!(false, "{}\n{}", why, describe(&model));
        }
    }
}

/// A refusal named the token and the pool, and not what joins the elements that are in the pool and those that
/// have the token: what it named was possible.
#[test]
fn a_refusal_names_what_joins_elements_that_must_be_apart() {
    let free = Node { tags: 0b01, others: Others::Nobody, is_lost: false };
    let in_pool = || vec![Host::Any { pool: 0 }];
    let element = |hosts, together, apart| Element { hosts, together, apart, is_isolated: false };
    let model = Model {
        nodes: vec![free; 5],
        pools: vec![Pool { form: Form::Sized(1, 0), is_exclusive: false }],
        elements: vec![
            element(in_pool(), 0b100, 0),
            element(Vec::new(), 0b010, 0b010),
            element(in_pool(), 0, 0b010),
            element(Vec::new(), 0b110, 0),
        ],
    };
    let texts = World::new(&model).validate(&model).unwrap_err().join("\n");
    assert!(texts.contains("TooManyExlocated"), "{texts}");
    assert!(!named(&model, &texts).is_possible(), "{texts}");
}

/// A refusal named a pool and two elements with hosts, and not the third one that joins one of them with an element
/// of the pool.
#[test]
fn a_refusal_names_what_joins_elements_that_ask_for_two_places() {
    let free = Node { tags: 0b01, others: Others::Nobody, is_lost: false };
    let in_pool = Host::Any { pool: 0 };
    let element = |hosts, together| Element { hosts, together, apart: 0, is_isolated: false };
    let model = Model {
        nodes: vec![free; 5],
        pools: vec![Pool { form: Form::Sized(1, 0), is_exclusive: false }],
        elements: vec![
            element(vec![Host::Node(0), in_pool], 0),
            element(vec![Host::Node(1)], 0b01),
            element(vec![in_pool], 0b10),
            element(Vec::new(), 0b11),
        ],
    };
    let texts = World::new(&model).validate(&model).unwrap_err().join("\n");
    assert!(texts.contains("hostColocation"), "{texts}");
    assert!(!named(&model, &texts).is_possible(), "{texts}");
}

/// The nodes of others' pools without marks are free for elements and shared pools, and for no exclusive one.
#[test]
fn an_exclusive_pool_of_a_job_gets_no_host_of_another_pool() {
    for spec in [json!({"hosts": ["hh1"]}), json!({"tags": ["other"]})] {
        let free = Node { tags: 0, others: Others::Nobody, is_lost: false };
        let pool = Pool { form: Form::Sized(2, 0), is_exclusive: true };
        let element = Element { hosts: vec![Host::Any { pool: 0 }], ..Element::default() };
        let (pools, elements) = (vec![pool], vec![element]);
        for (nodes, is_possible) in [(2, false), (3, true)] {
            let nodes = vec![free.clone(); nodes];
            let model = Model { nodes, pools: pools.clone(), elements: elements.clone() };
            let mut world = World::new(&model);
            world.label_node(0, "streams.ibm.com/hostpool", "other");
            world.create_pool("hosts", &spec);
            assert_eq!(world.validate(&model).is_ok(), is_possible, "{spec}");
            world.create_job(&model);
            world.settle();
            let expected = if is_possible { vec![Some(1), Some(2)] } else { vec![None, None] };
            assert_eq!(world.placement(&model).pools[0], expected, "{spec}");
        }
    }
}

#[test]
fn the_jobs_are_of_every_kind() {
    // A property over jobs that are all alike would prove nothing.
    let mut runner = TestRunner::deterministic();
    let (mut possible, mut lives, mut lost, mut survived, mut reserved) = (0, 0, 0, 0, 0);
    for _ in 0..300 {
        let (model, life) = (any_model(), any_life()).new_tree(&mut runner).unwrap().current();
        if !model.is_possible() {
            continue;
        }
        possible += 1;
        if possible % 3 == 0 {
            lives += 1;
            let seen = life::live(&model, &life)
                .unwrap_or_else(|why| panic!("{why}\n{}", describe(&model)));
            lost += u32::from(seen.lost);
            survived += u32::from(seen.survived);
            reserved += u32::from(seen.reserved);
        }
    }
    assert!((150..=240).contains(&possible), "{possible} of 300 are possible");
    assert!(
        lost * 5 >= lives && survived * 10 >= lives && reserved * 5 >= lives,
        "{lives} lives: {lost} lost a node, {survived} survived it, {reserved} reserved nodes"
    );
}
