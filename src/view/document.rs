//! Reads documents with a foreign schema, which a newer release may have written: a field of the
//! wrong type is recorded as a problem, and the rest of the object is still read.
//!
//! Only the fields that a [`Shape`] lists are kept in memory: the documents of users may have more
//! than a megabyte, of which a projection needs little.

mod foreign;
mod shape;

use std::borrow::Cow;

use serde_json::{Number, Value};

pub(crate) use foreign::{Foreign, Shaped};
pub(crate) use shape::Shape;

/// A JSON value that takes a fifth of the memory of a [`Value`], which reserves room for eleven
/// members in each object.
#[derive(Clone, Debug, Default)]
pub(crate) enum Document {
    #[default]
    Null,
    Bool(bool),
    Number(Number),
    Text(Box<str>),
    List(Box<[Self]>),
    Object(Members),
}

/// The members of an object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Members {
    /// The fields that were kept; `None`: all.
    fields: Option<&'static [Field]>,
    /// Sorted by key, each key once.
    values: Box<[(Cow<'static, str>, Document)]>,
}

/// A field of an object, and which part of it is kept.
pub(crate) type Field = (&'static str, Shape);

impl Document {
    /// The value at a path of keys; null if there is none.
    pub(crate) fn at(&self, path: &[&str]) -> &Self {
        const NULL: &Document = &Document::Null;
        path.iter().try_fold(self, |document, key| document.get(key)).unwrap_or(NULL)
    }

    fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => members.get(key),
            _ => None,
        }
    }

    /// The items of a list; none of any other value.
    pub(crate) fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    /// The members of an object; none of any other value.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&str, &Self)> {
        let values = match self {
            Self::Object(members) => &*members.values,
            _ => &[],
        };
        values.iter().map(|(key, value)| (&**key, value))
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A string or a number as text.
    pub(crate) fn scalar(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Text(text) => Some(Cow::Borrowed(text)),
            Self::Number(number) => Some(Cow::Owned(number.to_string())),
            _ => None,
        }
    }

    /// All strings, of this value and of those in it.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        let mut unvisited = vec![self];
        std::iter::from_fn(move || {
            loop {
                match unvisited.pop()? {
                    Self::Object(members) => {
                        unvisited.extend(members.values.iter().map(|(_, value)| value));
                    }
                    Self::List(items) => unvisited.extend(items),
                    Self::Text(text) => return Some(&**text),
                    Self::Null | Self::Bool(_) | Self::Number(_) => {}
                }
            }
        })
    }

    fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }
}

impl FromIterator<Box<str>> for Document {
    fn from_iter<I: IntoIterator<Item = Box<str>>>(texts: I) -> Self {
        Self::List(texts.into_iter().map(Self::Text).collect())
    }
}

impl From<&Document> for Value {
    fn from(document: &Document) -> Self {
        match document {
            Document::Null => Self::Null,
            Document::Bool(value) => Self::Bool(*value),
            Document::Number(value) => Self::Number(value.clone()),
            Document::Text(text) => Self::String(text.to_string()),
            Document::List(items) => items.iter().map(Self::from).collect(),
            Document::Object(Members { values, .. }) => {
                values.iter().map(|(key, value)| (key.as_ref(), Self::from(value))).collect()
            }
        }
    }
}

impl Members {
    /// An object with all of these members.
    pub(crate) fn new(values: impl IntoIterator<Item = (&'static str, Document)>) -> Self {
        let values = values.into_iter().map(|(key, value)| (Cow::Borrowed(key), value));
        Self::sorted(None, values.collect())
    }

    /// Of a key that occurs twice, the last value counts, as with other JSON parsers.
    fn sorted(
        fields: Option<&'static [Field]>,
        mut values: Vec<(Cow<'static, str>, Document)>,
    ) -> Self {
        values.reverse();
        values.sort_by(|one, other| one.0.cmp(&other.0));
        values.dedup_by(|later, earlier| later.0 == earlier.0);
        Self { fields, values: values.into() }
    }

    fn get(&self, key: &str) -> Option<&Document> {
        debug_assert!(
            self.fields.is_none_or(|fields| fields.iter().any(|(name, _)| *name == key)),
            "the shape of the document drops the field {key:?}, which is read"
        );
        let found = self.values.binary_search_by(|(name, _)| name.as_ref().cmp(key));
        found.ok().map(|index| &self.values[index].1)
    }
}

/// Reads the fields of a document and remembers the first problem.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    problem: Option<String>,
}

/// An object in a document, with its path.
#[derive(Clone, Debug)]
pub(crate) struct Part<'v> {
    members: &'v Members,
    at: String,
}

impl Reader {
    /// The document itself; `None` if it is not an object.
    pub(crate) fn whole<'v>(&mut self, document: &'v Document) -> Option<Part<'v>> {
        self.object(Some(document), String::new())
    }

    /// The first problem, with the path of the field.
    pub(crate) fn problem(self) -> Option<Box<str>> {
        self.problem.map(Into::into)
    }

    /// Records a problem, unless there is an earlier one.
    pub(crate) fn report(&mut self, at: &str, problem: &str) {
        self.problem.get_or_insert_with(|| format!("{at}: {problem}"));
    }

    fn object<'v>(&mut self, value: Option<&'v Document>, at: String) -> Option<Part<'v>> {
        match value? {
            Document::Object(members) => Some(Part { members, at }),
            Document::Null => None,
            _ => {
                self.report(&at, "is not an object");
                None
            }
        }
    }

    /// The object under `key`.
    pub(crate) fn part<'v>(&mut self, of: &Part<'v>, key: &str) -> Option<Part<'v>> {
        self.object(of.members.get(key), of.path(key))
    }

    /// The objects in the list under `key`.
    pub(crate) fn parts<'v>(&mut self, of: &Part<'v>, key: &str) -> Vec<Part<'v>> {
        match of.members.get(key) {
            None | Some(Document::Null) => Vec::new(),
            Some(Document::List(items)) => items
                .iter()
                .enumerate()
                .filter_map(|(index, item)| {
                    self.object(Some(item), format!("{}[{index}]", of.path(key)))
                })
                .collect(),
            Some(_) => {
                self.report(&of.path(key), "is not a list");
                Vec::new()
            }
        }
    }

    /// The string under `key`; an empty one counts as absent.
    pub(crate) fn text<'v>(&mut self, of: &Part<'v>, key: &str) -> Option<&'v str> {
        match of.members.get(key)? {
            Document::Text(text) => Some(&**text).filter(|text| !text.is_empty()),
            Document::Null => None,
            _ => {
                self.report(&of.path(key), "is not a string");
                None
            }
        }
    }

    /// The strings in the list under `key`.
    pub(crate) fn texts<'v>(&mut self, of: &Part<'v>, key: &str) -> Vec<&'v str> {
        let items = match of.members.get(key) {
            None | Some(Document::Null) => return Vec::new(),
            Some(Document::List(items)) => items,
            Some(_) => {
                self.report(&of.path(key), "is not a list");
                return Vec::new();
            }
        };
        let texts: Vec<&str> = items.iter().filter_map(Document::as_str).collect();
        if texts.len() < items.len() {
            self.report(&of.path(key), "is not a list of strings");
        }
        texts
    }

    /// The keys and strings of the map under `key`.
    pub(crate) fn map<'v>(&mut self, of: &Part<'v>, key: &str) -> Vec<(&'v str, &'v str)> {
        let Some(part) = self.part(of, key) else { return Vec::new() };
        let texts: Vec<_> = part
            .members
            .values
            .iter()
            .filter_map(|(key, value)| Some((key.as_ref(), value.as_str()?)))
            .collect();
        if texts.len() < part.members.values.len() {
            self.report(&part.at, "is not a map of strings");
        }
        texts
    }
}

impl<'v> Part<'v> {
    /// Whether there is a value under `key` other than null.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.members.get(key).is_some_and(|value| !value.is_null())
    }

    /// The value under `key`; `None` for null.
    pub(crate) fn value(&self, key: &str) -> Option<&'v Document> {
        self.members.get(key).filter(|value| !value.is_null())
    }

    /// The path of `key` in the document, such as `spec.tasks[0].name`.
    pub(crate) fn path(&self, key: &str) -> String {
        if self.at.is_empty() { key.to_owned() } else { format!("{}.{key}", self.at) }
    }
}
