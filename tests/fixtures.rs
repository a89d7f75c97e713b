//! Every case under `fixtures/`, and every recorded review.
//!
//! A case is a folder `fixtures/<system>/<behaviour>/`: `pod.yaml`, `claim.yaml` or `review.json`, the
//! objects of the cluster in `cluster/*.yaml`, `policy.yaml`, and what is expected in `expect.yaml` (with
//! `result.yaml`, where the object afterwards is known from elsewhere). A new behaviour is a new folder
//! and no new code.
//!
//! `STOWPLAN_REFRESH=1 cargo test --test fixtures` writes every `expect.yaml` anew. What it writes
//! is what came out, not what is right: read the difference before it is kept.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "how a helper of tests fails; clippy.toml frees only the tests"
)]

#[path = "fixtures/case.rs"]
mod case;
#[path = "fixtures/legs.rs"]
mod legs;
#[path = "common/pods.rs"]
mod pods;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use case::{Case, Expectation, entries, name_of};
use pods::{Kind, keeps, patch_of, patched, with_unknown_fields};
use serde_json::Value;
use stowplan::admission::{Decision, Pass, Review, decide};
use stowplan::policy::Policy;
use stowplan::view::task_run::ASSISTANT;
use stowplan::view::{Key, Object, View};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures");

/// Not a system: reviews as an API server sent them.
const RECORDED: &str = "recorded";

#[test]
fn every_case_is_answered_as_expected() {
    let refresh = std::env::var_os("STOWPLAN_REFRESH").is_some_and(|value| value == "1");
    let folders = case_folders();
    let seen = folders.len();
    assert!(seen > 0, "no case was found under {FIXTURES}");
    let run = |folder: &PathBuf| {
        let case = Case::read(folder)?;
        if refresh {
            case.record(&legs::library(&case)?)?;
        }
        check(&case)
    };
    // A case starts two processes and waits for them, so that several go side by side.
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(folder) = folders.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(problem) = run(folder) {
                        let name = folder.strip_prefix(FIXTURES).unwrap_or(folder).display();
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

#[test]
fn a_folder_that_is_no_case_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let case = folder.path().join("streams/behaviour");
    std::fs::create_dir_all(&case).unwrap();
    let problem = |case: &Path| match Case::read(case) {
        Err(problem) => problem,
        Ok(case) => case.expectation().unwrap_err(),
    };
    assert!(problem(&case).contains("one of review.json, pod.yaml and claim.yaml"));
    std::fs::write(case.join("claim.yaml"), "{metadata: {name: c}}").unwrap();
    std::fs::write(case.join("pod.yaml"), "{metadata: {name: p}}").unwrap();
    assert!(problem(&case).contains("one of review.json, pod.yaml and claim.yaml"));
    std::fs::remove_file(case.join("claim.yaml")).unwrap();
    assert!(problem(&case).contains("no expect.yaml"));
    std::fs::write(case.join("expect.yaml"), "allowd: true").unwrap();
    assert!(problem(&case).contains("allowd"));
    std::fs::write(case.join("expected.yaml"), "").unwrap();
    assert!(problem(&case).contains("expected.yaml belongs to no case"));
}

#[test]
fn recorded_reviews_carry_no_key_and_are_left_alone_or_wait_for_their_run() {
    let mut files = Vec::new();
    collect(&Path::new(FIXTURES).join(RECORDED), &mut files);
    assert!(files.len() > 100, "only {} recorded reviews were found", files.len());
    let mut waiting = 0;
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        let review =
            Review::parse(&bytes).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
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
            let Decision::Wait { awaited: Key::TaskRun(_) | Key::PipelineRun(_), otherwise } =
                &decision
            else {
                panic!("{}: {decision:?}", file.display());
            };
            assert!(patch_of(otherwise).unwrap().is_empty(), "{}", file.display());
            waiting += 1;
            continue;
        }
        let Decision::Pass(pass) = decision else {
            panic!("{}: {decision:?}", file.display());
        };
        assert_eq!(pass == Pass::OutOfScope, !creates, "{}: {pass:?}", file.display());
        assert!(!document["request"]["uid"].as_str().unwrap().is_empty());
        assert_eq!(review.request.uid.as_str(), document["request"]["uid"]);
    }
    assert!(waiting > 20, "only {waiting} are of runs");
}

/// The folders of all cases.
fn case_folders() -> Vec<PathBuf> {
    let systems = entries(Path::new(FIXTURES)).unwrap();
    let systems = systems.iter().filter(|folder| name_of(folder) != RECORDED);
    systems.flat_map(|system| entries(system).unwrap()).collect()
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

fn check(case: &Case) -> Result<(), String> {
    let expected = case.expectation()?;
    let got = legs::library(case)?;
    compare(&expected, &got)?;
    // The other ways tell the answer alone: neither why it was passed on nor what it waited for.
    let answer = Expectation { pass: None, waits_for: None, ..expected.clone() };
    for (way, got) in [
        ("HTTP", legs::http(case).map(Some)),
        ("stowplan review", legs::review_command(case).map(Some)),
        ("stowplan plan", legs::plan_command(case)),
    ] {
        let got = got.map_err(|problem| format!("{way}: {problem}"))?;
        let Some(mut got) = got else { continue };
        // A plan's operations are on the file's object, which may lack what a controller adds: other
        // operations may come to the same.
        let object = &case.object;
        if way == "stowplan plan" && outcome(object, &got)? == outcome(object, &answer)? {
            got.patch.clone_from(&answer.patch);
        }
        compare(&answer, &got).map_err(|problem| format!("{way}: {problem}"))?;
    }
    if !expected.allowed {
        let complete =
            expected.code.is_some() && expected.reason.is_some() && expected.patch.is_empty();
        return if complete {
            Ok(())
        } else {
            Err("a refusal has a code, a reason and no patch".to_owned())
        };
    }
    if expected.pass.is_some() {
        return if got.patch.is_empty() {
            Ok(())
        } else {
            Err("passed on, and patched".to_owned())
        };
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
    kind.check(&result)?;
    if let Some(written) = case.result()? {
        for pointer in ["/metadata/labels", "/spec"] {
            let (written, result) = (written.pointer(pointer), result.pointer(pointer));
            if written != result {
                return Err(format!("{pointer} should be {written:?} and is {result:?}"));
            }
        }
    }

    let touched = kind.touched_by_others(&result);
    for (who, object) in [("itself", &result), ("other webhooks", &touched)] {
        match admit(object, &view).map_err(|problem| format!("sent back by {who}: {problem}"))? {
            (_, 0) => {}
            (after, _) => return Err(format!("sent back by {who}: changed again, to {after}")),
        }
    }
    // The nodes, pools, runs and classes may all be gone by the next round: what is there is kept.
    if !expected.patch.is_empty() && case.policy.record_placement {
        match admit(&result, &namespaces_alone(case)?)
            .map_err(|problem| format!("View moved on: {problem}"))?
        {
            (_, 0) => {}
            (after, _) => return Err(format!("View moved on: changed again, to {after}")),
        }
    }

    let enriched = with_unknown_fields(&case.object);
    let (result, _) =
        admit(&enriched, &view).map_err(|problem| format!("with unknown fields: {problem}"))?;
    keeps(&enriched, &result).map_err(|problem| format!("with unknown fields: {problem}"))?;
    kind.check(&result)?;
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

fn namespaces_alone(case: &Case) -> Result<View, String> {
    let mut view = View::default();
    for document in case.cluster.iter().filter(|document| document["kind"] == "Namespace") {
        Object::from_document(document.clone())?.into_iter().for_each(|object| view.apply(object));
    }
    Ok(view)
}
