//! Random questions to a scheduler, answered in memory: by the model of `core/src/simulation` and by `fit`. The
//! suite `scheduler` of `tests/outcomes` asks the scheduler of Kubernetes.

use crate::scheduling_questions::{Answer, Draw, FEATURES, Group, Prediction, Question, Tally};

/// The features that `fit` does not look at.
const UNSEEN: [&str; 5] = [
    "pod affinity",
    "pod anti-affinity",
    "anti-affinity of placed pods",
    "volumes",
    "nodes without or with a shared hostname",
];

#[test]
fn the_model_of_the_scheduler_allows_no_node_with_an_obstacle() {
    let mut draw = Draw::new(36);
    let mut tally = Tally::default();
    for number in 0..2000 {
        let group = Group::random(number, &mut draw);
        let question = Question::random(&group, number, &mut draw);
        let prediction = Prediction::of(&question);
        let answer = match prediction.model.as_deref() {
            None => Answer::Gated,
            Some([]) => Answer::Refused(String::new()),
            Some([first, ..]) => Answer::Bound(first.clone()),
        };
        tally.count(&question, &answer);
        let Some(allowed) = &prediction.model else { continue };
        let open: Vec<_> = prediction.open().collect();
        let text = || format!("{prediction:?}\n{}", question.text);
        assert!(allowed.iter().all(|node| open.contains(&node)), "{}", text());
        if !question.features.iter().any(|feature| UNSEEN.contains(feature)) {
            assert!(open.iter().all(|node| allowed.contains(node)), "{}", text());
        }
    }
    println!("{}", tally.table());
    for (feature, _) in FEATURES {
        let [bound, refused, _] = tally.get(feature);
        assert!(bound > 10 && refused > 10, "{feature}: {bound} and {refused}");
    }
}
