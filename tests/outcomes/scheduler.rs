//! Random scheduling questions to the scheduler of Kubernetes, the newest and the oldest that stowplan
//! serves. Its answers are compared with those of the model in `core/src/simulation`, on which other tests rely,
//! and with what `fit` says of each node, on which plans and `stowplan check` rely.
//!
//! `STOWPLAN_QUESTIONS` sets the number of questions of each, `STOWPLAN_TEST_SEED` others than the default
//! ones.

mod plane;

use anyhow::{Result, ensure};
use testbed::tools::Kubernetes;

use crate::scheduling_questions::{Draw, FEATURES, Prediction, Tally};
use crate::streams_jobs::random::number;
use plane::{GROUPS, Plane};

/// So many questions, unless `STOWPLAN_QUESTIONS` says otherwise.
const QUESTIONS: usize = 240;

/// The most questions with another answer that are printed.
const PRINTED: usize = 5;

pub(crate) async fn newest() {
    compare(Kubernetes::Newest).await.unwrap();
}

pub(crate) async fn oldest() {
    compare(Kubernetes::Oldest).await.unwrap();
}

/// Asks questions in rounds, with one question for each group of nodes.
async fn compare(kubernetes: Kubernetes) -> Result<()> {
    let questions = number("STOWPLAN_QUESTIONS")?.map_or(Ok(QUESTIONS), usize::try_from)?;
    let seed = number("STOWPLAN_TEST_SEED")?.unwrap_or(1233);
    eprintln!("STOWPLAN_TEST_SEED={seed} asks {kubernetes:?} these questions again");
    let mut draw = Draw::new(seed);
    let mut plane = Plane::start(kubernetes, &mut draw).await?;
    plane.nominate_two().await?;
    let mut tally = Tally::default();
    let (mut asked, mut differing) = (0, 0);
    for round in 0..questions.div_ceil(GROUPS) {
        for (question, answer) in plane.ask(round, &mut draw).await? {
            asked += 1;
            tally.count(&question, &answer);
            let differences = Prediction::of(&question).differences(&answer);
            if differences.is_empty() {
                continue;
            }
            differing += 1;
            if differing <= PRINTED {
                let (what, text) = (differences.join("; "), question.text);
                eprintln!("round {round}, {answer:?}: {what}\n{text}");
            }
        }
    }
    eprintln!("{kubernetes:?}: {asked} questions, differences: {differing}");
    if questions > QUESTIONS {
        eprintln!("{}", tally.table());
    }
    plane.stop().await;
    ensure!(differing == 0, "{differing} answers differ, with seed {seed}");
    for (feature, _) in FEATURES {
        let [bound, refused, gated] = tally.get(feature);
        let has_both = bound > 0 && refused > 0 || gated > 0;
        ensure!(has_both, "{feature}: {bound} bound, {refused} refused");
    }
    Ok(())
}
