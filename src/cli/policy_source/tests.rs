//! Every content of the source, and what becomes of the policy in force.

use std::collections::VecDeque;
use std::time::Duration;

use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::controller::fake::{Api, Call, Reply};
use stowplan_core::policy::MAX_BYTES;

const WARN: &str = "onInvalid: warn\n";

struct Bench {
    keeper: Keeper,
    metrics: Arc<Metrics>,
}

impl Bench {
    fn new() -> Self {
        let metrics = Arc::new(Metrics::new());
        let filter = Filter::new("info", Box::new(|_| Ok(())));
        let keeper = Keeper::new("stowplan-system", "own:1", &metrics, filter);
        Self { keeper, metrics }
    }

    /// Names the effect of a finding.
    fn judge(&mut self, finding: Finding) -> &'static str {
        match self.keeper.judge(finding) {
            PolicyChange::None => "none",
            PolicyChange::New(_) => "new",
            PolicyChange::Rejected(_) => "rejected",
        }
    }

    /// Names the effect of a state of the ConfigMap.
    fn see(&mut self, map: Option<Value>) -> &'static str {
        let map = map.map(|map| serde_json::from_value(map).unwrap());
        self.judge(find_in_map("stowplan-system/p", Ok(map)))
    }

    fn problem(&self) -> String {
        self.keeper.state().problem.unwrap_or_default()
    }
}

fn map(text: &str) -> Option<Value> {
    Some(json!({"metadata": {"name": "p"}, "data": {"policy.yaml": text}}))
}

#[test]
fn only_a_valid_text_replaces_the_policy_in_force() {
    let mut bench = Bench::new();
    assert_eq!(bench.see(map("onInvald: warn")), "rejected");
    assert_eq!(bench.keeper.state().digest, None);
    assert!(bench.problem().starts_with("ConfigMap stowplan-system/p: onInvald: there is no key"));
    // The same problem is one report.
    assert_eq!(bench.see(map("onInvald: warn")), "none");
    assert_eq!(bench.see(map(WARN)), "new");
    let digest = Some(fingerprint(WARN));
    let state = PolicyStatus { digest: digest.clone(), problem: None };
    assert_eq!(bench.keeper.state(), state);
    assert_eq!(bench.see(map(WARN)), "none");
    // Each of these is reported once, and changes nothing.
    let long = "#".repeat(MAX_BYTES + 1);
    let bytes = ByteString(vec![0xff, 0xfe]);
    let binary = json!({"metadata": {"name": "p"}, "binaryData": {"policy.yaml": bytes}});
    let others = json!({"metadata": {"name": "p"}, "data": {"a": "", "b.yaml": ""}});
    for (state, problem) in [
        (None, "p does not exist; `helm upgrade`"),
        (map("repair: no"), "p: repair: false is not"),
        (map("{"), "p: not YAML"),
        (map(&long), "p: 1048577 bytes long"),
        (map("log: info,stowplan=loud"), "p: log: \"stowplan=loud\" in \"info,stowplan=loud\""),
        (Some(binary), "p has policy.yaml under binaryData, so it is no UTF-8 text"),
        (Some(json!({"metadata": {"name": "p"}})), "p has no key policy.yaml (it has none); "),
        (Some(others), "p has no key policy.yaml (it has a, b.yaml); "),
    ] {
        assert_eq!(bench.see(state.clone()), "rejected", "{problem}");
        assert_eq!(bench.see(state), "none", "{problem}");
        assert!(bench.problem().contains(problem), "{}", bench.problem());
        assert_eq!(bench.keeper.state().digest, digest, "{problem}");
    }
    // The valid one again: the problem ends, and no new policy is in force.
    assert_eq!(bench.see(map(WARN)), "none");
    assert_eq!(bench.keeper.state(), state);
    // An empty text is all defaults; a text of the most bytes is one, too.
    for text in ["", "{}", &format!("{WARN}{}", "#".repeat(256 * 1024))] {
        assert_eq!(bench.see(map(text)), "new", "{} bytes", text.len());
        assert_eq!(bench.keeper.state().digest, Some(fingerprint(text)));
        let metrics = bench.metrics.to_text();
        assert_eq!(metrics.matches("stowplan_policy_info{").count(), 1, "{metrics}");
    }
}

#[test]
fn a_source_that_does_not_answer_changes_nothing_that_is_known() {
    let mut bench = Bench::new();
    let silent = || Finding::Unreachable("no answer".to_owned());
    assert_eq!(bench.judge(silent()), "none");
    assert_eq!(bench.problem(), "no answer");
    assert_eq!(bench.see(None), "rejected");
    assert_eq!(bench.judge(silent()), "none");
    assert!(bench.problem().contains("does not exist"));
    assert_eq!(bench.see(map("")), "new");
    assert_eq!(bench.judge(silent()), "none");
    assert_eq!(bench.problem(), "");
}

#[test]
fn the_policy_in_force_has_the_process_s_own_parts() {
    let mut bench = Bench::new();
    let text = "excludedNamespaces: [a]".to_owned();
    let finding = Finding::Text { place: "p".to_owned(), text };
    let PolicyChange::New(policy) = bench.keeper.judge(finding) else { panic!("not new") };
    assert!(policy.excludes("a") && policy.excludes("stowplan-system"));
    assert_eq!(policy.coschedule.placeholder.image, "own:1");
}

/// An API server with the ConfigMap `p`, whose watches do not answer.
fn answer(call: &Call, states: &mut VecDeque<Reply>) -> Reply {
    assert_eq!(call.path, "/api/v1/namespaces/stowplan-system/configmaps");
    // Otherwise a right by name would not be enough.
    assert!(call.query.contains("fieldSelector=metadata.name%3Dp"), "{}", call.query);
    if call.query.contains("watch=") {
        return Reply::Hang;
    }
    states.pop_front().unwrap_or(Reply::Hang)
}

#[tokio::test(start_paused = true)]
async fn a_refused_watch_says_which_rights_it_needs_and_continues_with_them() {
    let map = map(WARN).unwrap();
    let denied = |message: &str| {
        Reply::json(403, &json!({"kind": "Status", "message": message, "code": 403}))
    };
    let by_proxy = denied("denied destination");
    let by_rbac = denied("configmaps \"p\" is forbidden: User \"u\" cannot list resource");
    let states = [by_proxy, by_rbac, Reply::Drop, Reply::list(&[map])];
    let mut states = VecDeque::from(states);
    let api = Api::new(move |call| answer(call, &mut states));
    let source =
        Source::ConfigMap { namespace: "stowplan-system".to_owned(), name: "p".to_owned() };
    let (sender, mut findings) = mpsc::unbounded_channel();
    let metrics = Arc::new(Metrics::new());
    let take = move |finding| sender.send(finding).unwrap();
    source.follow(Some(&api.client()), Arc::clone(&metrics), take).unwrap();
    let mut next = async || tokio::time::timeout(Duration::from_secs(600), findings.recv()).await;
    let mut bench = Bench::new();
    // Another program on the way has answered: that is no missing right.
    let Finding::Unreachable(denied) = next().await.unwrap().unwrap() else { panic!("it is") };
    assert!(denied.contains("denied destination (no right is missing: a proxy"), "{denied}");
    let refused = next().await.unwrap().unwrap();
    assert_eq!(bench.judge(refused), "rejected");
    let problem = bench.problem();
    assert!(
        problem.starts_with("ConfigMap stowplan-system/p may not be read: configmaps \"p\" is")
    );
    assert!(problem.contains("the rights get, list and watch"), "{problem}");
    // A connection that breaks changes nothing of that.
    let found = loop {
        match next().await.unwrap().unwrap() {
            Finding::Unreachable(broken) => {
                assert_eq!(bench.judge(Finding::Unreachable(broken)), "none");
                assert_eq!(bench.problem(), problem);
            }
            found => break found,
        }
    };
    assert_eq!(bench.judge(found), "new");
    let text = metrics.to_text();
    assert!(text.contains("stowplan_watch_errors_total{kind=\"policy\"} "), "{text}");
}
