//! Random histories of a group, in the simulation. A history that fails is made smaller and printed as a time line,
//! and proptest keeps its seed of 32 bytes in `proptest-regressions`: the next run begins with it.

use proptest::prelude::*;

use crate::histories::{Model, State, Step, step};
use crate::pods::random_cases;

/// Fails with the time line.
fn check(model: &Model, is_kept: bool, rule: &str) -> Result<(), TestCaseError> {
    let state = model.state();
    prop_assert!(is_kept, "{}: {:?}\n{}", rule, state, model.time_line());
    Ok(())
}

fn nodes(state: &State) -> usize {
    let mut nodes: Vec<usize> = state.pods.values().copied().flatten().collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes.len()
}

proptest! {
    #![proptest_config(random_cases(2_000))]

    /// Each step is taken after the minute in which everything comes to rest, or after a few events.
    #[test]
    fn a_group_comes_to_rest_on_one_node(
        history in prop::collection::vec((step(), prop_oneof![Just(None), (0..6_usize).prop_map(Some)]), 1..16)
    ) {
        let mut model = Model::new();
        // The pods that run on a node that takes no pods any more stay there, and new ones begin elsewhere.
        let mut has_closed = false;
        for (step, events) in history {
            if !model.is_possible(step) {
                continue;
            }
            has_closed |= matches!(step, Step::Cordon | Step::Fill(_) | Step::DropSet);
            model.apply(step);
            match events {
                Some(count) => model.advance(count),
                None => {
                    let outcome = model.settle();
                    check(&model, outcome.is_ok(), "there is no end")?;
                }
            }
            check(&model, has_closed || nodes(&model.state()) < 2, "the group is on two nodes")?;
        }
        for step in [Step::Uncordon, Step::Empty] {
            model.apply(step);
        }
        model.add_large_node();
        // The pods that run end one after the other, until each has had a node.
        loop {
            let outcome = model.settle();
            check(&model, outcome.is_ok(), "there is no end")?;
            let state = model.state();
            if state.pods.values().all(Option::is_some) {
                break;
            }
            let running = state.pods.iter().find(|(_, node)| node.is_some());
            check(&model, running.is_some(), "no pod runs, and one waits")?;
            running.iter().for_each(|(number, _)| model.apply(Step::End(**number)));
        }
        let writes = model.writes();
        let outcome = model.settle();
        check(&model, outcome.is_ok() && model.writes() == writes, "there is no rest")?;
    }
}
