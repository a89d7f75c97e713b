//! What commands read: Kubernetes objects and policies, from files, folders and standard input.
//!
//! Everything that is wrong is told at once, each with its file, document and line.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context as _, bail};
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use serde_saphyr::{MessageFormatter as _, UserMessageFormatter};

use super::yaml;
use crate::policy::Policy;
use crate::view::{Object, View};

/// The longest file that is read, in bytes.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// The most problems that are told.
const MAX_PROBLEMS: usize = 50;

/// The path that stands for standard input.
const STDIN: &str = "-";

/// Endings of the files that are read from a folder, as kubectl's.
const ENDINGS: [&str; 3] = ["json", "yaml", "yml"];

/// Everything that is wrong with the input.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<String>);

impl Problems {
    pub(super) fn push(&mut self, problem: String) {
        self.0.push(problem);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Nothing, where nothing is wrong.
    ///
    /// # Errors
    /// All of them.
    pub(super) fn settle(mut self) -> Result<(), Self> {
        let more = self.0.len().saturating_sub(MAX_PROBLEMS);
        if more > 0 {
            self.0.truncate(MAX_PROBLEMS);
            self.0.push(format!("and {more} more problems"));
        }
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for Problems {}

/// Where a document stands.
#[derive(Clone, Debug)]
pub(super) struct Place {
    file: Rc<str>,
    /// Counted from 1, without those that hold nothing.
    index: usize,
    /// Its first line, where it is not the file's; JSON has no such lines.
    line: Option<usize>,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}, document {}", self.file, self.index)?;
        self.line.map_or(Ok(()), |line| write!(formatter, " (line {line})"))
    }
}

/// A document that holds something.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) place: Place,
    pub(super) value: Value,
}

/// An object in a document: the document itself, or an item of a list in it.
#[derive(Clone, Debug)]
pub(super) struct Item<'d> {
    pub(super) version: String,
    pub(super) kind: String,
    /// JSON pointer from the document to the object.
    pub(super) pointer: String,
    pub(super) value: &'d Value,
}

impl Item<'_> {
    /// The object, with the kind that its list gave it.
    pub(super) fn to_object(&self) -> Value {
        let mut value = self.value.clone();
        if let Value::Object(members) = &mut value {
            members.insert("apiVersion".to_owned(), self.version.as_str().into());
            members.insert("kind".to_owned(), self.kind.as_str().into());
        }
        value
    }
}

impl Document {
    /// The objects in it, lists opened.
    pub(super) fn items(&self, problems: &mut Problems) -> Vec<Item<'_>> {
        let mut items = Vec::new();
        self.open(&self.value, String::new(), None, &mut items, problems);
        items
    }

    fn open<'d>(
        &self,
        value: &'d Value,
        pointer: String,
        list: Option<(&str, &str)>,
        items: &mut Vec<Item<'d>>,
        problems: &mut Problems,
    ) {
        let place = |what: &str| match pointer.as_str() {
            "" => format!("{}: {what}", self.place),
            pointer => format!("{}, {}: {what}", self.place, pointer.trim_start_matches('/')),
        };
        let Value::Object(members) = value else {
            problems.push(place(&format!("{} is not a Kubernetes object", told(value))));
            return;
        };
        let mut word = |key: &str, inherited: Option<&str>| match (members.get(key), inherited) {
            (Some(Value::String(word)), _) if !word.is_empty() => Some(word.clone()),
            (None | Some(Value::Null), Some(word)) => Some(word.to_owned()),
            (None | Some(Value::Null | Value::String(_)), None) => {
                problems.push(place(&format!("has no {key}, so it is not a Kubernetes object")));
                None
            }
            (Some(other), _) => {
                problems.push(place(&format!("{key} is {}, and must be a word", told(other))));
                None
            }
        };
        let version = word("apiVersion", list.map(|(version, _)| version));
        let kind = word("kind", list.map(|(_, kind)| kind));
        let (Some(version), Some(kind)) = (version, kind) else { return };
        match (kind.strip_suffix("List"), members.get("items")) {
            (Some(of), Some(Value::Array(inner))) => {
                // The items of a `PodList` may leave their kind out, those of a `List` may not.
                let list = Some((version.as_str(), of)).filter(|(_, of)| !of.is_empty());
                for (index, item) in inner.iter().enumerate() {
                    self.open(item, format!("{pointer}/items/{index}"), list, items, problems);
                }
            }
            (Some(_), None | Some(Value::Null)) => {}
            (Some(_), Some(other)) => {
                problems.push(place(&format!("items is {}, and must be a list", told(other))));
            }
            (None, _) => items.push(Item { version, kind, pointer, value }),
        }
    }
}

/// What a value is, for people: `the number 5`.
pub(super) fn told(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(value) => format!("the boolean {value}"),
        Value::Number(value) => format!("the number {value}"),
        Value::String(_) => "a text".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a map".to_owned(),
    }
}

/// All documents of `paths`, in their order.
pub(super) fn documents(paths: &[PathBuf], problems: &mut Problems) -> Vec<Document> {
    let mut documents = Vec::new();
    if paths.iter().filter(|path| is_stdin(path)).count() > 1 {
        problems.push("- is given twice, and standard input can be read once".to_owned());
        return documents;
    }
    for path in paths {
        for file in files(path, problems) {
            match text(&file) {
                Ok(text) => split(&name(&file), &text, &mut documents, problems),
                Err(error) => problems.push(format!("{}: {error:#}", name(&file))),
            }
        }
    }
    documents
}

/// The View that the objects in `paths` make; of other kinds, nothing is taken.
///
/// # Errors
/// [`Problems`]: all that cannot be read or is no object.
pub(super) fn view(paths: &[PathBuf]) -> anyhow::Result<View> {
    let mut view = View::default();
    let mut problems = Problems::default();
    let documents = documents(paths, &mut problems);
    for document in &documents {
        for item in document.items(&mut problems) {
            match Object::from_document(item.to_object()) {
                Ok(object) => object.into_iter().for_each(|object| view.apply(object)),
                Err(problem) => problems.push(format!("{}: {problem}", document.place)),
            }
        }
    }
    // Most likely a command in front that failed: better told than refused for want of nodes.
    if documents.is_empty() && problems.0.is_empty() && !paths.is_empty() {
        problems.push(format!("no Kubernetes object in {}", listed(paths)));
    }
    problems.settle()?;
    Ok(view)
}

/// The policy in a file; the default where there is none.
///
/// # Errors
/// Why it cannot be read, or what is wrong in it.
pub(super) fn policy(path: Option<&Path>) -> anyhow::Result<Policy> {
    let Some(path) = path else { return Ok(Policy::default()) };
    let text = text(path).with_context(|| name(path))?;
    match Policy::from_yaml(&text) {
        Ok(policy) => Ok(policy),
        Err(problem) => bail!("{}: {problem}", name(path)),
    }
}

/// Several paths, for people.
pub(super) fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| name(path)).collect::<Vec<_>>().join(", ")
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new(STDIN)
}

/// A path, for people.
pub(super) fn name(path: &Path) -> String {
    if is_stdin(path) { "standard input".to_owned() } else { path.display().to_string() }
}

/// The files that a path stands for: itself, or those of a folder, sorted by name. Folders in a
/// folder are left alone, as kubectl does.
fn files(path: &Path, problems: &mut Problems) -> Vec<PathBuf> {
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
    let ours = |file: &PathBuf| {
        let ending = file.extension().and_then(|ending| ending.to_str());
        ending.is_some_and(|ending| ENDINGS.contains(&ending)) && !file.is_dir()
    };
    let mut files: Vec<PathBuf> =
        entries.into_iter().map(|entry| entry.path()).filter(ours).collect();
    if files.is_empty() {
        let endings = ENDINGS.map(|ending| format!(".{ending}")).join(", ");
        problems.push(format!("{}: no file in this folder ends in {endings}", path.display()));
    }
    files.sort();
    files
}

fn text(path: &Path) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    if is_stdin(path) {
        io::stdin().lock().take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    } else {
        File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    }
    if bytes.len() as u64 > MAX_BYTES {
        bail!("longer than {} MiB; give it in parts", MAX_BYTES >> 20);
    }
    // Some editors put a byte order mark in front; it means nothing in UTF-8.
    let rest = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    match std::str::from_utf8(rest) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) if rest.starts_with(b"\xff\xfe") || rest.starts_with(b"\xfe\xff") => {
            bail!("UTF-16 text; save it as UTF-8")
        }
        Err(error) => bail!("not UTF-8 text: {error}"),
    }
}

/// Reads the documents of one file.
fn split(file: &str, text: &str, documents: &mut Vec<Document>, problems: &mut Problems) {
    let file: Rc<str> = file.into();
    if text.trim_start().starts_with('{') {
        match json(text) {
            Ok(values) => {
                let place = |index| Place { file: Rc::clone(&file), index: index + 1, line: None };
                documents.extend(
                    values
                        .into_iter()
                        .enumerate()
                        .map(|(index, value)| Document { place: place(index), value }),
                );
                return;
            }
            Err(error) if file.ends_with(".json") => {
                problems.push(format!("{file}: {error}"));
                return;
            }
            // YAML may begin like that too.
            Err(_) => {}
        }
    }
    let mut index = 0;
    for (line, chunk) in chunks(text) {
        if chunk.lines().all(is_empty_line) {
            continue;
        }
        index += 1;
        match serde_saphyr::from_str_with_options::<Strict>(chunk, yaml::read_options()) {
            Ok(Strict(Value::Null)) => index -= 1,
            Ok(Strict(value)) => {
                let place = Place { file: Rc::clone(&file), index, line: Some(line) };
                documents.push(Document { place, value });
            }
            Err(_) if problems.0.len() > MAX_PROBLEMS => problems.push(String::new()),
            Err(error) => {
                // Lines are counted from the start of the document, and told from that of the file.
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

fn json(text: &str) -> serde_json::Result<Vec<Value>> {
    serde_json::Deserializer::from_str(text)
        .into_iter::<Strict>()
        .map(|value| value.map(|Strict(value)| value))
        .collect()
}

/// The parts of a YAML stream between its markers (`---`, `...`), each with the number of its first line. One that
/// is broken then does not hide what is wrong with the next.
fn chunks(text: &str) -> Vec<(usize, &str)> {
    let mut chunks = Vec::new();
    let (mut start, mut first_line, mut at) = (0, 1, 0);
    // Comments and directives (`%YAML 1.2`) in front of a marker belong to the document behind it.
    let mut only_preface = true;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let marks = |marker| {
            let rest = line.strip_prefix(marker);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
        };
        if marks("---") && !only_preface {
            chunks.push((first_line, &text[start..at]));
            (start, first_line) = (at, number + 1);
        }
        at += line.len();
        if marks("...") {
            chunks.push((first_line, &text[start..at]));
            (start, first_line, only_preface) = (at, number + 2, true);
            continue;
        }
        let trimmed = line.trim();
        only_preface = only_preface
            && !marks("---")
            && (trimmed.is_empty() || trimmed.starts_with(['#', '%']));
    }
    chunks.push((first_line, &text[start..]));
    chunks
}

/// Whether a line of YAML says nothing.
fn is_empty_line(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with(['#', '%']) || line == "---" || line == "..."
}

/// A value of which no map has a key twice: which of the two counts must not depend on the reader.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Value;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a value")
            }

            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }

            fn visit_none<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }

            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
                deserializer.deserialize_any(self)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
                Ok(value.into())
            }

            fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
                Ok(value.into())
            }

            fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
                Ok(value.into())
            }

            fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
                Ok(value.into())
            }

            fn visit_str<E>(self, value: &str) -> Result<Value, E> {
                Ok(value.into())
            }

            fn visit_string<E>(self, value: String) -> Result<Value, E> {
                Ok(value.into())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
                let mut values = Vec::new();
                while let Some(Strict(value)) = list.next_element()? {
                    values.push(value);
                }
                Ok(values.into())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
                let mut members = Map::new();
                while let Some((key, Strict(value))) = map.next_entry::<String, Strict>()? {
                    if members.contains_key(&key) {
                        return Err(A::Error::custom(format_args!("duplicate key {key:?}")));
                    }
                    members.insert(key, value);
                }
                Ok(members.into())
            }
        }

        deserializer.deserialize_any(Any).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<(usize, Value)>, Vec<String>) {
        let (mut documents, mut problems) = (Vec::new(), Problems::default());
        split("f.yaml", text, &mut documents, &mut problems);
        (documents.into_iter().map(|d| (d.place.index, d.value)).collect(), problems.0)
    }

    #[test]
    fn documents_are_split_where_yaml_says() {
        let one = Value::from(1);
        for text in [
            "1",
            "1\n",
            "---\n1\n",
            "--- 1\n",
            "--- # c\n1\n",
            "# c\n---\n1\n---\n",
            "%YAML 1.2\n---\n1\n...\n",
            "---\n---\n1\n---\n# c\n---\nnull\n",
            "---\r\n1\r\n",
            "1\n...\n",
        ] {
            assert_eq!(read(text), (vec![(1, one.clone())], vec![]), "{text:?}");
        }
        let two = vec![(1, one.clone()), (2, Value::from(2))];
        for text in [
            "1\n---\n2",
            "1\n--- # c\n2\n",
            "1\n--- 2\n",
            "%YAML 1.2\n---\n1\n...\n%YAML 1.2\n---\n2\n",
        ] {
            assert_eq!(read(text), (two.clone(), vec![]), "{text:?}");
        }
        // Not a marker: indented, or longer.
        assert_eq!(read("a: |\n  ---\n  b\n").0, [(1, serde_json::json!({"a": "---\nb\n"}))]);
        assert_eq!(read("----\n").0, [(1, Value::from("----"))]);
    }

    #[test]
    fn json_is_read_with_and_without_a_break_between_documents() {
        let (documents, problems) = read("{\"a\":1}{\"a\":2}\n\n {\"a\":\"\\ud83d\\ude00\"}");
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(documents[1], (2, serde_json::json!({"a": 2})));
        assert_eq!(documents[2], (3, serde_json::json!({"a": "😀"})));
    }

    #[test]
    fn nothing_is_no_document() {
        for text in
            ["", "\n", "# c\n", "---\n", "---\n# c\n---\n", "null\n", "~\n---\n", "%YAML 1.2\n"]
        {
            assert_eq!(read(text), (vec![], vec![]), "{text:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_does_not_hide_the_rest() {
        let (documents, problems) =
            read("a: 1\n---\nb: 1\nb: 2\n---\nc: [\n---\nd:\n\t- 1\n---\ne: 5\n");
        assert_eq!(documents.len(), 2);
        assert_eq!(documents[1], (5, serde_json::json!({"e": 5})));
        insta::assert_snapshot!(problems.join("\n"), @r"
        f.yaml, document 2, line 4, column 1: duplicate mapping key `b` is not allowed here
        f.yaml, document 3, line 6, column 4: unclosed bracket '['
        f.yaml, document 4, line 9, column 2: tabs disallowed within this context (block indentation)
        ");
    }

    #[test]
    fn a_bomb_of_references_is_defused() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let before = vec![format!("*a{}", level - 1); 10].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{before}]\n"));
        }
        let (documents, problems) = read(&text);
        assert!(documents.is_empty());
        assert_eq!(problems.len(), 1, "{problems:?}");
        let deep = format!("a: {}1{}", "[".repeat(10_000), "]".repeat(10_000));
        assert_eq!(read(&deep).1.len(), 1);
    }

    #[test]
    fn a_large_cluster_is_one_document() {
        // More values than a YAML reader's usual budget.
        let text = format!("apiVersion: v1\nkind: List\nitems: [{}]", "1,".repeat(300_000));
        let (documents, problems) = read(&text);
        assert_eq!((documents.len(), problems), (1, vec![]));
    }
}
