//! Every case under `fixtures/` through the four ways to an answer, and every recorded review.
//!
//! `fixtures/README.md` describes the format of a case. A new behaviour is a new file and no new
//! code.
//!
//! `STOWPLAN_REFRESH=1 cargo test --test offline fixtures` rewrites each `expect` that differs from
//! the answer: the answer of the library is not necessarily the right one, so read the diff.
//! `STOWPLAN_EXPORT=DIR cargo test --test offline fixtures` keeps the input and the expected answer
//! of each case as JSON files in `DIR`, for other implementations.

pub(crate) mod case;
mod legs;
pub(crate) mod shared;

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::pods::{Kind, keeps, patch_of, patched, view_of, with_unknown_fields};
use case::{Case, Expectation, RECORDED, Suite};
use serde_json::{Value, json};
use shared::{Shared, entries, name_of};
use stowplan_core::admission::stored::Unreviewed;
use stowplan_core::admission::{Decision, Pass, Review, decide};
use stowplan_core::systems::coschedule::keys::ASSISTANT;
use stowplan_core::systems::coschedule::resources::{PIPELINE_RUN, TASK_RUN};
use stowplan_core::systems::policy::Policy;
use stowplan_core::systems::{SYSTEMS, View};
use stowplan_core::view::{Key, resource};

pub(crate) const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures");

#[test]
fn every_case_is_answered_as_expected() {
    let suite = Suite::read(Path::new(FIXTURES)).unwrap_or_else(|problems| panic!("{problems}"));
    let refresh = std::env::var_os("STOWPLAN_REFRESH").is_some_and(|value| value == "1");
    let temporary = tempfile::tempdir().unwrap();
    let export = std::env::var_os("STOWPLAN_EXPORT").map(PathBuf::from);
    let export = export.unwrap_or_else(|| temporary.path().to_owned());
    let run = |mut case: Case| {
        if refresh {
            let answer = legs::library(&case)?;
            case.refresh(answer)?;
        }
        let folder = export.join(&case.name);
        case.export(&folder)?;
        check(&case, &folder)
    };
    let seen = suite.cases.len();
    // A case waits for two processes, so that several cases run at once.
    let queue = Mutex::new(VecDeque::from(suite.cases));
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some(case) = queue.lock().unwrap().pop_front() else { break };
                    let name = case.name.clone();
                    if let Err(problem) = run(case) {
                        failures.lock().unwrap().push(format!("{name}: {problem}"));
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap();
    failures.sort();
    assert!(failures.is_empty(), "{} of {seen} cases:\n{}", failures.len(), failures.join("\n"));
}

/// A folder of fixtures with these files.
fn fixtures_of(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

const POD: &str = "why: A pod.\npod: {metadata: {name: p}}\n";
const BASE: (&str, &str) = ("_bases/node.yaml", "{kind: Node, metadata: {name: n1}, spec: {a: 1}}");
const PART: (&str, &str) = ("_parts/term.yaml", "{key: '${key}.example.com', values: '${values}'}");

#[test]
fn an_invalid_case_is_reported() {
    let one = "one of `pod`, `claim`, `review` and `recorded`";
    for (text, problem) in [
        ("why: A pod.\n", one),
        ("why: A pod.\npod: {}\nclaim: {}\n", one),
        ("pod: {}\n", "has no `why`"),
        ("why: ' '\npod: {}\n", "has no `why`"),
        ("why: A pod.\npod: {}\npolcy: {}\n", "polcy"),
        ("why: A pod.\npod: {}\npolicy: {onInvalid: never}\n", "never"),
        ("why: A pod.\npod: {}\nexpect: {allowd: true}\n", "allowd"),
        ("why: A pod.\npod: {}\nexpect: {patch: [{ad /spec: {}}]}\n", "`ad /spec` is not add"),
        ("why: A pod.\npod: {}\nexpect: {patch: [{remove /a: 1}]}\n", "without a value"),
        ("why: A review.\nreview: '{}'\n", "expected mapping start"),
        ("why: A review.\nrecorded: none.json\n", "none.json"),
        ("why: A pod.\npod: {}\ncluster: [4]\n", "`cluster` lists names of shared clusters"),
        ("why: A pod.\npod: {}\ncluster: [four]\n", "no shared _clusters/four.yaml"),
        ("why: A pod.\npod: {base: pods}\n", "no shared _bases/pods.yaml"),
        ("why: A pod.\npod: {spec: [{part: terms}]}\n", "no shared _parts/terms.yaml"),
        ("why: A pod.\npod: {base: [node]}\n", "the name of one `base` or of one `part`"),
        ("why: A pod.\npod: {base: node, part: term}\n", "the name of one `base` or of one `part`"),
        ("why: A pod.\npod: {base: node, spec: {b: null}}\n", "node.spec.b: null removes what"),
        ("why: A pod.\npod: {base: node, spec: {a: 1}}\n", "node.spec.a: changes nothing"),
        ("why: A pod.\npod: {base: node, spec: {}}\n", "node.spec: changes nothing"),
        ("why: A pod.\npod: {part: term, key: k}\n", "part term: it needs `values`"),
        ("why: A pod.\npod: {part: term, key: k, values: v, kye: k}\n", "it has no ${kye}"),
        ("why: A pod.\npod: {part: term, key: [k], values: v}\n", "part term: it needs `key`"),
    ] {
        let root = fixtures_of(&[("streams/one.yaml", text), BASE, PART]);
        let problems = Suite::read(root.path()).err().unwrap();
        assert!(problems.starts_with("streams/one: ") && problems.contains(problem), "{problems}");
    }
    let root = fixtures_of(&[("streams/one.yaml", POD)]);
    let suite = Suite::read(root.path()).ok().unwrap();
    assert!(suite.cases[0].expectation().unwrap_err().contains("has no `expect`"));
}

#[test]
fn a_file_outside_the_format_is_reported() {
    let one = ("streams/one.yaml", POD);
    for (path, text, problem) in [
        ("_clusters/unused.yaml", "{}", "_clusters/unused.yaml: no case uses it"),
        ("_bases/unused.yaml", "{}", "_bases/unused.yaml: no case uses it"),
        ("_parts/unused.yaml", "{}", "_parts/unused.yaml: no case uses it"),
        ("_parts/unused.yml", "{}", "_parts/unused.yml: a shared file ends in .yaml"),
        ("_bases/two.yaml", "{}\n---\n{}", "_bases/two: a base or part is one YAML document"),
        ("_parts/other.yaml", "[{base: b}]", "_parts/other: a base or part refers to no other"),
        ("one.yaml", "{}", "one.yaml: a case is in the folder of its system"),
        ("streams/two.json", "{}", "streams/two.json: a case is one file that ends in .yaml"),
        ("streams/two/pod.yaml", "{}", "streams/two: a case is one file that ends in .yaml"),
    ] {
        let root = fixtures_of(&[one, (path, text)]);
        assert_eq!(Suite::read(root.path()).err().unwrap(), problem);
    }
    for empty in [fixtures_of(&[]), fixtures_of(&[("README.md", "")])] {
        assert!(Suite::read(empty.path()).err().unwrap().starts_with("no case was found"));
    }
}

#[test]
fn a_refresh_changes_only_the_expectation() {
    let before = "# A comment.\nwhy: A pod.  # Another.\npod: {metadata: {name: p}}\n\n";
    let after = "# A third.\nresult:\n    spec: {}\n";
    let remove = || json!({"op": "remove", "path": "/c"});
    let answer = || Expectation {
        allowed: true,
        warnings: vec!["one".to_owned()],
        patch: vec![json!({"op": "add", "path": "/a", "value": "b"}), remove()],
        ..Expectation::default()
    };
    let refreshed = |text: &str| {
        let root = fixtures_of(&[("streams/one.yaml", text)]);
        let mut suite = Suite::read(root.path()).unwrap_or_else(|problems| panic!("{problems}"));
        suite.cases[0].refresh(answer()).unwrap();
        fs::read_to_string(root.path().join("streams/one.yaml")).unwrap()
    };
    let expect = "expect:\n  allowed: true\n  warnings:\n  - one\n  patch:\n  - add /a: b\n  - remove /c: null\n";
    let wanted = format!("{before}{expect}{after}");
    for old in ["expect: {allowed: false}\n", "expect:\n  allowed: true\n\n  warnings: []\n"] {
        assert_eq!(refreshed(&format!("{before}{old}{after}")), wanted);
    }
    assert_eq!(refreshed(before), format!("{before}{expect}"));
    let same = format!(
        "{before}expect: {{warnings: [one], allowed: true, patch: [add /a: b, remove /c: ]}} # As it is.\n{after}"
    );
    assert_eq!(refreshed(&same), same);
}

#[test]
fn the_case_in_the_readme_is_a_case() {
    let readme = fs::read_to_string(Path::new(FIXTURES).join("README.md")).unwrap();
    let (_, text) = readme.split_once("```yaml\n").unwrap();
    let (text, _) = text.split_once("```").unwrap();
    let folder = fixtures_of(&[("one.yaml", text)]);
    let shared = Shared::read(Path::new(FIXTURES)).unwrap();
    let file = folder.path().join("one.yaml");
    let case = Case::read("one", &file, folder.path(), &shared).unwrap();
    case.export(folder.path()).unwrap();
    check(&case, folder.path()).unwrap();
}

#[test]
fn recorded_reviews_carry_no_key_and_are_left_alone_or_wait_for_their_run() {
    let mut files = Vec::new();
    collect(&Path::new(FIXTURES).join(RECORDED), &mut files);
    assert!(files.len() > 100, "only {} recorded reviews were found", files.len());
    let mut waiting = 0;
    for file in files {
        let bytes = fs::read(&file).unwrap();
        let file = file.display();
        let review = Review::parse(&bytes).unwrap_or_else(|error| panic!("{file}: {error}"));
        let document: Value = serde_json::from_slice(&bytes).unwrap();
        let request = &document["request"];
        let creates = Kind::ALL.iter().any(|kind| request["resource"]["resource"] == kind.plural())
            && request["operation"] == "CREATE"
            && request.get("subResource").is_none();
        let decision = decide(&review, &View::default(), &Policy::default()).unwrap();
        // Of a run that an empty View does not know: nothing is done without it.
        let made_by_a_run =
            request["object"]["metadata"]["ownerReferences"].as_array().is_some_and(|owners| {
                owners.iter().any(|owner| owner["apiVersion"] == "tekton.dev/v1")
            });
        let assisted = &request["object"]["metadata"]["annotations"][ASSISTANT];
        if creates && made_by_a_run && assisted.is_null() {
            let Decision::Wait { awaited: Key { resource, .. }, otherwise } = &decision else {
                panic!("{file}: {decision:?}");
            };
            assert!([TASK_RUN, PIPELINE_RUN].contains(resource), "{file}: {decision:?}");
            assert!(patch_of(otherwise).unwrap().is_empty(), "{file}");
            waiting += 1;
            continue;
        }
        let Decision::Pass(pass) = decision else { panic!("{file}: {decision:?}") };
        assert_eq!(pass == Pass::OutOfScope, !creates, "{file}: {pass:?}");
        assert!(!document["request"]["uid"].as_str().unwrap().is_empty());
        assert_eq!(review.request.uid.as_str(), document["request"]["uid"]);
    }
    assert!(waiting > 20, "only {waiting} are of runs");
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for path in entries(folder).unwrap() {
        match path.extension() {
            _ if path.is_dir() => collect(&path, files),
            Some(extension) if extension == "json" => files.push(path),
            _ => assert_eq!(name_of(&path), "README.md"),
        }
    }
}

/// Checks the case, whose exported files are in `folder`.
fn check(case: &Case, folder: &Path) -> Result<(), String> {
    let expected = case.expectation()?;
    let got = legs::library(case)?;
    compare(expected, &got)?;
    // The other ways show only the answer: neither why it was passed on nor what it waited for. A plan also
    // shows the feasible NUMA nodes.
    let answer = Expectation { pass: None, waits_for: None, numa: None, ..expected.clone() };
    for (way, got) in [
        ("HTTP", legs::http(case).map(Some)),
        ("stowplan review", legs::review_command(folder).map(Some)),
        ("stowplan plan", legs::plan_command(case, folder)),
    ] {
        let got = got.map_err(|problem| format!("{way}: {problem}"))?;
        let Some(mut got) = got else { continue };
        // A plan's operations apply to the object of a file, which may lack fields that a controller
        // adds: other operations may have the same result.
        let object = &case.object;
        if way == "stowplan plan" && outcome(object, &got)? == outcome(object, &answer)? {
            got.patch.clone_from(&answer.patch);
        }
        let numa = if way == "stowplan plan" { expected.numa.clone() } else { None };
        let answer = Expectation { numa, ..answer.clone() };
        compare(&answer, &got).map_err(|problem| format!("{way}: {problem}"))?;
    }
    if !expected.allowed || expected.pass.is_some() {
        let has_both = expected.code.is_some() && expected.reason.is_some();
        let is_valid = (expected.allowed || has_both) && expected.patch.is_empty();
        let problem = "a refusal has a code and a reason; neither it nor a pass has a patch";
        return is_valid.then_some(()).ok_or_else(|| problem.to_owned());
    }
    let view = case.view()?;
    let kind = case.kind;
    let admit = |object: &Value, view: &View| -> Result<(Value, usize), String> {
        let decision = kind
            .decide(&case.namespace, object, view, &case.policy)
            .map_err(|error| error.to_string())?;
        let patch = patch_of(&decision)?;
        Ok((patched(object, &patch)?, patch.len()))
    };
    let (result, _) = admit(&case.object, &view)?;
    keeps(&case.object, &result)?;
    requests_as_before(&case.object, &result)?;
    kind.check(&result)?;
    if let Some(written) = &case.result {
        for pointer in ["/metadata/labels", "/spec"] {
            let (written, result) = (written.pointer(pointer), result.pointer(pointer));
            if written != result {
                return Err(format!("{pointer} should be {written:?} and is {result:?}"));
            }
        }
    }

    let touched = kind.touched_by_others(&result);
    let namespaces = case.cluster.iter().filter(|document| document["kind"] == "Namespace");
    let moved_on = view_of(namespaces.cloned());
    let mut rounds = vec![
        ("sent back by itself", &result, &view),
        ("sent back by other webhooks", &touched, &view),
    ];
    // The nodes, pools, runs and classes may all be deleted before the next round: a placement stays.
    if !expected.patch.is_empty() && case.policy.record_placement {
        rounds.push(("View moved on", &result, &moved_on));
    }
    for (round, object, view) in rounds {
        match admit(object, view).map_err(|problem| format!("{round}: {problem}"))? {
            (_, 0) => {}
            (after, _) => return Err(format!("{round}: changed again, to {after}")),
        }
    }

    if kind == Kind::Pod && !expected.patch.is_empty() && case.policy.record_placement {
        for bound in [false, true] {
            let stored = stored(&result, bound);
            let decision = Unreviewed {
                resource: &resource::POD,
                namespace: &case.namespace,
                object: &stored,
                view: &view,
                policy: &case.policy,
            }
            .decide_creation()
            .map_err(|error| format!("stored: {error}"))?;
            let patch = patch_of(&decision).map_err(|problem| format!("stored: {problem}"))?;
            if !patch.is_empty() {
                return Err(format!("as the cluster has it, it is reported to lack {patch:?}"));
            }
        }
    }

    let enriched = with_unknown_fields(&case.object);
    let unknown = |problem: String| format!("with unknown fields: {problem}");
    let (result, _) = admit(&enriched, &view).map_err(unknown)?;
    keeps(&enriched, &result).map_err(unknown)?;
    kind.check(&result)
}

/// An admitted pod as the cluster has it once the controller has removed stowplan's gates, and the scheduler has
/// `bound` it.
fn stored(admitted: &Value, bound: bool) -> Value {
    let mut pod = admitted.clone();
    pod["metadata"]["uid"] = json!("u");
    let is_own = |gate: &Value| {
        let mut gates = SYSTEMS.iter().flat_map(|system| system.gates);
        gates.any(|own| gate["name"] == own.name)
    };
    if let Some(gates) = pod["spec"]["schedulingGates"].as_array_mut() {
        gates.retain(|gate| !is_own(gate));
    }
    if bound && pod["spec"]["nodeName"].is_null() {
        pod["spec"]["nodeName"] = json!("somewhere");
    }
    pod
}

/// A pod requests as much as its largest init container or all of its containers, and the QoS class is that of all
/// of them. Neither changes if each added container has the cpu and memory of one of the author's, and nothing else.
fn requests_as_before(before: &Value, after: &Value) -> Result<(), String> {
    let of = |pod: &Value, list: &str| pod["spec"][list].as_array().cloned().unwrap_or_default();
    let shown = |container: &Value| {
        let mut resources = container["resources"].clone();
        for list in ["requests", "limits"] {
            if let Some(amounts) = resources[list].as_object_mut() {
                amounts.retain(|name, _| ["cpu", "memory"].contains(&name.as_str()));
            }
        }
        json!([resources["requests"], resources["limits"]])
    };
    let empty = |amounts: &Value| amounts.as_object().is_none_or(serde_json::Map::is_empty);
    let normal = |amounts: Value| {
        let list = amounts.as_array().into_iter().flatten();
        list.map(|of| if empty(of) { Value::Null } else { of.clone() }).collect::<Vec<_>>()
    };
    let own = of(before, "containers").iter().map(shown).map(normal).collect::<Vec<_>>();
    for list in ["initContainers", "containers"] {
        let names: Vec<Value> = of(before, list).iter().map(|one| one["name"].clone()).collect();
        for added in of(after, list).iter().filter(|one| !names.contains(&one["name"])) {
            let resources = &added["resources"];
            let all = normal(json!([resources["requests"], resources["limits"]]));
            let is_copy = resources["claims"].is_null() && own.contains(&all);
            if list != "initContainers" || !is_copy {
                return Err(format!("the pod requests more by {added}"));
            }
        }
    }
    Ok(())
}

fn outcome(object: &Value, answer: &Expectation) -> Result<Value, String> {
    let patch: json_patch::Patch = serde_json::from_value(Value::Array(answer.patch.clone()))
        .map_err(|error| format!("no patch: {error}"))?;
    patched(object, &patch)
}

fn compare(expected: &Expectation, got: &Expectation) -> Result<(), String> {
    if expected == got {
        return Ok(());
    }
    let text = |expectation: &Expectation| serde_saphyr::to_string(expectation).unwrap();
    Err(format!("expected\n{}\ngot\n{}", text(expected), text(got)))
}
