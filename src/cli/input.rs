//! Reads Kubernetes objects and policies from files, folders and standard input.
//!
//! All problems are reported together, each with its file, document and line.

// The paths hold also where a fuzz target includes this file.
#[path = "input/items.rs"]
mod items;
#[path = "input/names.rs"]
pub(super) mod names;
#[path = "input/problems.rs"]
mod problems;
#[path = "input/strict.rs"]
mod strict;

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use serde_saphyr::{MessageFormatter as _, UserMessageFormatter};

use super::yaml;
pub(super) use items::{Document, Item, describe, is_own, read_map, read_texts};
use items::{TEMPLATE, UNRENDERED};
pub(super) use names::Generator;
pub(super) use problems::Problems;
use stowplan_core::systems::policy::Policy;
use stowplan_core::systems::{self, View};
use strict::Strict;

/// The longest file that is read, in bytes.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// The path that means standard input.
const STDIN: &str = "-";

/// The extensions of the files that are read from a folder, as by kubectl.
const EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];

/// The location of a document.
#[derive(Clone, Debug)]
pub(crate) struct Location {
    file: Rc<str>,
    /// The number of the document, counted from 1. Empty documents are not counted.
    index: usize,
    /// The line of the file at which the document begins; `None` in JSON.
    line: Option<usize>,
}

impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}, document {}", self.file, self.index)?;
        self.line.map_or(Ok(()), |line| write!(formatter, " (line {line})"))
    }
}

/// Reads all documents of `paths`, in their order.
pub(super) fn read_documents(paths: &[PathBuf], problems: &mut Problems) -> Vec<Document> {
    let mut documents = Vec::new();
    if paths.iter().filter(|path| is_stdin(path)).count() > 1 {
        problems.push("- is given twice, and standard input can be read once".to_owned());
        return documents;
    }
    for path in paths {
        for file in list_files(path, problems) {
            match read_text(&file) {
                Ok(text) => parse_documents(&format_path(&file), &text, &mut documents, problems),
                Err(error) => problems.push(format!("{}: {error:#}", format_path(&file))),
            }
        }
    }
    documents
}

/// Builds a View of the objects in `paths`, and gives each object to `keep`. Kinds that the View does not
/// keep are ignored. Objects without a name get one of `names`.
///
/// # Errors
/// [`Problems`]: all that cannot be read, or is not an object.
pub(super) fn read_cluster(
    paths: &[PathBuf],
    names: &mut Generator,
    keep: &mut dyn FnMut(Value),
) -> anyhow::Result<View> {
    let mut view = View::default();
    read_objects(paths, names, |object| {
        systems::object(object.clone())?.into_iter().for_each(|read| view.apply(read));
        keep(object);
        Ok(())
    })?;
    Ok(view)
}

/// Refuses a cluster without objects: probably an earlier command of the pipe has failed. Everything would be refused
/// because the cluster has no nodes, and nothing would be found wrong in it.
///
/// # Errors
/// There are paths, and no object.
pub(super) fn ensure_objects(documents: &[Document], paths: &[PathBuf]) -> anyhow::Result<()> {
    let is_read = !documents.is_empty() || paths.is_empty();
    let names = || paths.iter().map(|path| format_path(path)).collect::<Vec<_>>().join(", ");
    ensure!(is_read, "no Kubernetes object in {}", names());
    Ok(())
}

/// Refuses the standard input as the policy and as something else.
///
/// # Errors
/// It is both.
pub(super) fn ensure_other_stdin(policy: Option<&Path>, others: &[PathBuf]) -> anyhow::Result<()> {
    let is_both = policy.is_some_and(is_stdin) && others.iter().any(|path| is_stdin(path));
    ensure!(!is_both, "--policy and another option are -, and standard input can be read once");
    Ok(())
}

/// Gives each object in `paths` to `take`. Objects without a name get one of `names`.
///
/// # Errors
/// [`Problems`]: all that cannot be read, is not an object, or is refused by `take`. Another error if there is no
/// object.
pub(super) fn read_objects(
    paths: &[PathBuf],
    names: &mut Generator,
    mut take: impl FnMut(Value) -> Result<(), String>,
) -> anyhow::Result<()> {
    let mut problems = Problems::default();
    let documents = read_documents(paths, &mut problems);
    for document in &documents {
        for item in document.items(&mut problems) {
            let mut object = item.to_object();
            names.complete(&mut object);
            let name = names::name(&object).map(|(name, _)| name.to_owned());
            if let Err(problem) = take(object) {
                let object = item.locate(&document.location, name.as_deref());
                problems.push(format!("{object}: {problem}"));
            }
        }
    }
    problems.into_result()?;
    ensure_objects(&documents, paths)
}

/// Reads the policy in a file, if there is one.
///
/// # Errors
/// Returns the reason why the file cannot be read, or why the policy is invalid.
pub(super) fn read_policy(path: Option<&Path>) -> anyhow::Result<Option<Policy>> {
    let Some(path) = path else { return Ok(None) };
    let text = read_text(path).with_context(|| format_path(path))?;
    match Policy::from_yaml(&text) {
        Ok(policy) => Ok(Some(policy)),
        Err(problem) => bail!("{}: {problem}", format_path(path)),
    }
}

/// Returns true if a path means standard input.
pub(super) fn is_stdin(path: &Path) -> bool {
    path == Path::new(STDIN)
}

/// Formats a path for messages.
pub(super) fn format_path(path: &Path) -> String {
    if is_stdin(path) { "standard input".to_owned() } else { path.display().to_string() }
}

/// The file at `path`, or the files of the folder at `path`, sorted by name. Folders inside the
/// folder are not read, as by kubectl.
fn list_files(path: &Path, problems: &mut Problems) -> Vec<PathBuf> {
    if is_stdin(path) || !path.is_dir() {
        return vec![path.to_owned()];
    }
    let listing = fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let entries = match listing {
        Ok(entries) => entries,
        Err(error) => {
            problems.push(format!("{}: {error}", path.display()));
            return Vec::new();
        }
    };
    let is_read = |file: &PathBuf| {
        let extension = file.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| EXTENSIONS.contains(&extension)) && !file.is_dir()
    };
    let mut files: Vec<PathBuf> =
        entries.into_iter().map(|entry| entry.path()).filter(is_read).collect();
    if files.is_empty() {
        let extensions = EXTENSIONS.map(|extension| format!(".{extension}")).join(", ");
        problems.push(format!("{}: no file in this folder ends in {extensions}", path.display()));
    }
    files.sort();
    files
}

pub(super) fn read_text(path: &Path) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    if is_stdin(path) {
        io::stdin().lock().take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    } else {
        File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    }
    if bytes.len() as u64 > MAX_BYTES {
        bail!("longer than {} MiB; give it in parts", MAX_BYTES >> 20);
    }
    // Some editors write a byte order mark, which has no meaning in UTF-8.
    let rest = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    match std::str::from_utf8(rest) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) if rest.starts_with(b"\xff\xfe") || rest.starts_with(b"\xfe\xff") => {
            bail!("UTF-16 text; save it as UTF-8")
        }
        Err(error) => bail!("not UTF-8 text: {error}"),
    }
}

/// Parses the documents in the text of one file.
fn parse_documents(file: &str, text: &str, documents: &mut Vec<Document>, problems: &mut Problems) {
    let file: Rc<str> = file.into();
    if text.trim_start().starts_with('{') {
        match parse_json(text) {
            Ok(values) => {
                documents.extend((1..).zip(values).map(|(index, value)| {
                    let location = Location { file: Rc::clone(&file), index, line: None };
                    Document { location, value }
                }));
                return;
            }
            Err(error) if file.ends_with(".json") => {
                problems.push(format!("{file}: {error}"));
                return;
            }
            // YAML may begin with a brace, too.
            Err(_) => {}
        }
    }
    let mut index = 0;
    let mut is_unrendered = false;
    for (line, chunk) in split_chunks(text) {
        if chunk.lines().all(is_empty_line) {
            continue;
        }
        index += 1;
        match serde_saphyr::from_str_with_options::<Strict>(chunk, yaml::read_options()) {
            Ok(Strict(Value::Null)) => index -= 1,
            Ok(Strict(value)) => {
                let location = Location { file: Rc::clone(&file), index, line: Some(line) };
                documents.push(Document { location, value });
            }
            // Only counted: the messages of further problems are not shown.
            Err(_) if problems.0.len() > problems::MAX_PROBLEMS => problems.push(String::new()),
            Err(_) if chunk.contains(TEMPLATE) => {
                // Once for each file: its other documents have the same problem.
                if !is_unrendered {
                    let at = chunk.lines().position(|line| line.contains(TEMPLATE)).unwrap_or(0);
                    let place = format!("{file}, document {index}, line {}", line + at);
                    problems.push(format!("{place}: {UNRENDERED}"));
                }
                is_unrendered = true;
            }
            Err(error) => {
                // The parser counts lines from the start of the document; the message, from that of
                // the file.
                let (down, column) = error.location().map_or((1, 1), |at| (at.line(), at.column()));
                let line = line + usize::try_from(down).unwrap_or(1).saturating_sub(1);
                let what = UserMessageFormatter.format_message(&error);
                problems.push(format!(
                    "{file}, document {index}, line {line}, column {column}: {what}"
                ));
            }
        }
    }
}

fn parse_json(text: &str) -> serde_json::Result<Vec<Value>> {
    serde_json::Deserializer::from_str(text)
        .into_iter::<Strict>()
        .map(|value| value.map(|Strict(value)| value))
        .collect()
}

/// Splits a YAML stream at its markers (`---`, `...`) into documents, each with the number of its
/// first line. Documents are parsed separately, so that an error in one does not hide those in the
/// next.
fn split_chunks(text: &str) -> Vec<(usize, &str)> {
    let mut chunks = Vec::new();
    let (mut start, mut first_line, mut at) = (0, 1, 0);
    // Comments and directives (`%YAML 1.2`) before a marker belong to the document after it.
    let mut only_preface = true;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let begins_with = |marker| {
            let rest = line.strip_prefix(marker);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
        };
        if begins_with("---") && !only_preface {
            chunks.push((first_line, &text[start..at]));
            (start, first_line) = (at, number + 1);
        }
        at += line.len();
        if begins_with("...") {
            chunks.push((first_line, &text[start..at]));
            (start, first_line, only_preface) = (at, number + 2, true);
            continue;
        }
        let trimmed = line.trim();
        only_preface = only_preface
            && !begins_with("---")
            && (trimmed.is_empty() || trimmed.starts_with(['#', '%']));
    }
    chunks.push((first_line, &text[start..]));
    chunks
}

/// Returns true if a line of YAML has no content.
fn is_empty_line(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with(['#', '%']) || line == "---" || line == "..."
}

#[cfg(test)]
#[path = "input/tests.rs"]
mod tests;
