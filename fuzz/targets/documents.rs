//! Inputs of `plan`: YAML and JSON documents, as Kubernetes objects. The command line's readers
//! are no part of the library, so they are compiled in here.
//!
//! A document must be the same after it is written and read again.

#![no_main]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde_json::Value;

use stowplan_core::systems;

#[expect(dead_code, unused_imports, reason = "the readers of documents alone are wanted")]
#[path = "../../src/cli/input.rs"]
mod input;
#[path = "../../src/cli/yaml.rs"]
mod yaml;

static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
    std::env::temp_dir().join(format!("stowplan-fuzz-{}.yaml", std::process::id()))
});

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    fs::write(&*FILE, input).expect("the file can be written");
    let documents = read(&FILE);
    let written = yaml::write(&documents).expect("JSON values can be written");
    fs::write(&*FILE, &written).expect("the file can be written");
    assert_eq!(read(&FILE), documents, "written as {written}");
});

/// The documents of a file.
fn read(path: &Path) -> Vec<Value> {
    let mut problems = input::Problems::default();
    let documents = input::read_documents(&[path.to_owned()], &mut problems);
    for document in &documents {
        for item in document.items(&mut problems) {
            if let Err(problem) = systems::object(item.to_object()) {
                problems.push(problem);
            }
        }
    }
    if let Err(problems) = problems.into_result() {
        assert!(problems.iter().all(|problem| !problem.is_empty()), "{problems:?}");
    }
    documents.into_iter().map(|document| document.value).collect()
}
