//! Situations of runs and groups. A file in `situations` has some of them, and the obstacles that `check` finds
//! there are in the snapshot `check_<name of the file>`. Objects are written as in a fixture (`fixtures/README.md`).

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::objects::Findings;
use crate::fixtures::shared::{Shared, entries, name_of, read};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/offline/check/situations");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    /// The behaviour that the situations show.
    why: String,
    situations: Vec<Situation>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Situation {
    label: String,
    /// The object that `check` is asked about.
    asked: String,
    /// Names of shared clusters, and objects.
    objects: Vec<Value>,
    /// True if the complete output is compared, and not only the obstacles.
    #[serde(default)]
    complete: bool,
}

fn shared() -> Shared {
    Shared::read(Path::new(FOLDER)).unwrap_or_else(|problem| panic!("{problem}"))
}

/// The objects of a list as a situation has it.
pub(super) fn objects(items: Value) -> Vec<Value> {
    shared().objects(serde_json::from_value(items).unwrap()).unwrap()
}

#[test]
fn each_situation_has_the_reviewed_obstacles() {
    let shared = shared();
    let files = entries(Path::new(FOLDER)).unwrap().into_iter().filter(|path| path.is_file());
    for file in files {
        let name = name_of(&file).replace(".yaml", "");
        let document: Document = serde_saphyr::from_str(&read(&file).unwrap())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!document.why.is_empty() && !document.situations.is_empty(), "{name}");
        let mut found = Findings::default();
        for Situation { label, asked, objects, complete } in document.situations {
            let objects = shared.objects(objects);
            let objects = objects.unwrap_or_else(|problem| panic!("{name}: {label}: {problem}"));
            match complete {
                true => found.show(&label, &objects, &asked),
                false => found.add(&label, &objects, &asked),
            };
        }
        found.compare(&name);
    }
    assert_eq!(shared.unused(), [""; 0]);
}
