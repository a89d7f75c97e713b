//! Decodes JSON from an API server into texts that are borrowed from its bytes.
//!
//! An explicit null means the same as an absent field, an object is never read from a list, and a key
//! that occurs twice in a map is an error.

use std::borrow::{Borrow, Cow};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A string that is borrowed where JSON allows it (no escapes) and owned otherwise.
#[derive(Clone, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd)]
pub struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

impl Text<'_> {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

// `Borrow` requires the order of `str`; the derived one compares the characters alone, as `str` does.
impl Borrow<str> for Text<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// A map of strings, as labels and annotations are.
///
/// A key that occurs twice is an error: which value counts must not depend on the parser. (An API
/// server never sends one: it keeps the last value before it calls webhooks.)
#[derive(Debug, Default)]
pub struct TextMap<'a>(BTreeMap<Text<'a>, Text<'a>>);

impl TextMap<'_> {
    /// The value under `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(Text::as_str)
    }

    /// All pairs, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for TextMap<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = TextMap<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a map of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = BTreeMap::new();
                while let Some(key) = map.next_key::<Text<'de>>()? {
                    let value: Text<'de> = map.next_value().map_err(|error| {
                        A::Error::custom(format_args!("{:.100}: {error}", key.0.escape_debug()))
                    })?;
                    if let Some(_earlier) = entries.insert(key.clone(), value) {
                        return Err(A::Error::custom(format_args!(
                            "duplicate key `{:.100}`",
                            key.0.escape_debug()
                        )));
                    }
                }
                Ok(TextMap(entries))
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

/// Decodes an object, and null as `None`. Anything else is an error: derived decoders also accept a
/// list of the members, and a patch operation on such an "object" would not apply.
pub(crate) fn optional_object<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Members<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
        type Value = Option<T>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an object")
        }

        fn visit_none<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_some<D: Deserializer<'de>>(
            self,
            deserializer: D,
        ) -> Result<Self::Value, D::Error> {
            deserializer.deserialize_map(self)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map)).map(Some)
        }
    }

    deserializer.deserialize_option(Members(PhantomData))
}

/// Decodes an object, and null as the default.
pub(crate) fn object_or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(optional_object(deserializer)?.unwrap_or_default())
}

/// Decodes null as the default: JSON writers in other languages send null for an absent field.
pub(crate) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// An item of a list that must be an object; null is the default.
pub(crate) struct Item<T>(pub(crate) T);

impl<'de, T: Default + Deserialize<'de>> Deserialize<'de> for Item<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        object_or_default(deserializer).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_and_plain_text_is_borrowed() {
        let map: TextMap<'_> = serde_json::from_str(r#"{"p":"plain","e":"\u0041\n"}"#).unwrap();
        assert_eq!(map.get("e"), Some("A\n"));
        assert!(map.0.values().any(|value| matches!(value.0, Cow::Borrowed("plain"))));
    }
}
