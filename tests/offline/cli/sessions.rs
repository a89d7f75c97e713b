//! Sessions: files, and what is run on them. A file in `sessions` is one; what it prints is in the snapshot
//! with its name.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::command::{Folder, Shown};
use crate::documents::{ROOT, files};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Session {
    /// The behaviour that it shows.
    why: String,
    #[serde(default)]
    files: BTreeMap<String, String>,
    runs: Vec<Run>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    label: String,
    /// The words after `stowplan`.
    words: String,
    /// The text on standard input.
    #[serde(default)]
    input: String,
}

#[test]
fn each_session_prints_what_was_reviewed() {
    let sessions = files(&Path::new(ROOT).join("tests/offline/cli/sessions"), "yaml");
    assert!(sessions.len() > 5, "{} sessions", sessions.len());
    for (path, text) in sessions {
        let session: Session = serde_saphyr::from_str(&text)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(!session.why.is_empty() && !session.runs.is_empty(), "{}", path.display());
        let named: Vec<_> = session.files.iter().map(|(name, text)| (&**name, &**text)).collect();
        let folder = Folder::new(&named);
        let mut shown = Shown::default();
        for run in &session.runs {
            shown.add(&run.label, &folder.run(&run.words, &run.input));
        }
        shown.compare(path.file_stem().unwrap().to_str().unwrap());
    }
}
