//! JSON text that is written straight into a buffer.
//!
//! A patch is a few hundred bytes of which most are known beforehand. Building a tree of them to have it
//! serialised costs several times what the decision does, so what is known is written as it stands, and
//! only what came from a pod or from the cluster is looked at for characters to escape.

use serde_json::Value;

/// What can write itself as JSON.
pub trait Json {
    /// Appends one JSON value to `json`.
    fn write(&self, json: &mut Vec<u8>);
}

impl Json for str {
    fn write(&self, json: &mut Vec<u8>) {
        json.push(b'"');
        characters(json, self);
        json.push(b'"');
    }
}

impl Json for String {
    fn write(&self, json: &mut Vec<u8>) {
        self.as_str().write(json);
    }
}

impl Json for Value {
    fn write(&self, json: &mut Vec<u8>) {
        serde_json::to_writer(json, self).expect("a tree is JSON, and a Vec takes it all");
    }
}

impl<T: Json> Json for [T] {
    fn write(&self, json: &mut Vec<u8>) {
        list(json, self, T::write);
    }
}

/// Appends a list of what `write` makes of each of `items`.
pub fn list<T>(
    json: &mut Vec<u8>,
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(T, &mut Vec<u8>),
) {
    json.push(b'[');
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            json.push(b',');
        }
        write(item, json);
    }
    json.push(b']');
}

/// Appends an object of these members, in their order. Their names must be distinct.
pub fn members<'m, V: Json + ?Sized + 'm>(
    json: &mut Vec<u8>,
    members: impl IntoIterator<Item = (&'m str, &'m V)>,
) {
    json.push(b'{');
    for (index, (name, value)) in members.into_iter().enumerate() {
        if index > 0 {
            json.push(b',');
        }
        name.write(json);
        json.push(b':');
        value.write(json);
    }
    json.push(b'}');
}

/// Appends what stands between the quotation marks of a JSON string.
pub fn characters(json: &mut Vec<u8>, text: &str) {
    let mut rest = text;
    while let Some(at) = first_special(rest) {
        let (plain, special) = rest.split_at(at);
        json.extend_from_slice(plain.as_bytes());
        let byte = special.as_bytes()[0];
        match byte {
            b'"' => json.extend_from_slice(br#"\""#),
            b'\\' => json.extend_from_slice(br"\\"),
            b'\n' => json.extend_from_slice(br"\n"),
            b'\r' => json.extend_from_slice(br"\r"),
            b'\t' => json.extend_from_slice(br"\t"),
            _ => {
                let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
                json.extend_from_slice(br"\u00");
                json.extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
            }
        }
        // Special characters are ASCII: the next one begins a byte later.
        rest = &special[1..];
    }
    json.extend_from_slice(rest.as_bytes());
}

/// Where the first character is that a JSON string must escape.
fn first_special(text: &str) -> Option<usize> {
    let special = |byte: u8| byte < b' ' || byte == b'"' || byte == b'\\';
    // Nearly every text has none. Without a way out early, many bytes are looked at at once.
    let any = text.bytes().fold(false, |any, byte| any | special(byte));
    if any { text.bytes().position(special) } else { None }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn text(value: &(impl Json + ?Sized)) -> String {
        let mut json = Vec::new();
        value.write(&mut json);
        String::from_utf8(json).unwrap()
    }

    #[test]
    fn what_is_special_is_escaped() {
        assert_eq!(text("a\"b\\c\nd\re\tf\u{1}\u{1f}é"), r#""a\"b\\c\nd\re\tf\u0001\u001fé""#);
        assert_eq!(text(""), r#""""#);
    }

    #[test]
    fn lists_have_commas_between_their_items() {
        assert_eq!(text(&["a".to_owned(), "b".to_owned()][..]), r#"["a","b"]"#);
        assert_eq!(text(&[][..] as &[String]), "[]");
        assert_eq!(text(&[json!({"a": [1, null]})][..]), r#"[{"a":[1,null]}]"#);
    }

    #[test]
    fn objects_have_their_members_in_order() {
        let mut json = Vec::new();
        members(&mut json, [("b\"", "1"), ("a", "é")]);
        assert_eq!(String::from_utf8(json).unwrap(), r#"{"b\"":"1","a":"é"}"#);
        let mut json = Vec::new();
        members::<str>(&mut json, []);
        assert_eq!(json, b"{}");
    }

    proptest! {
        #[test]
        fn every_text_is_read_back(value in "(?s).*") {
            prop_assert_eq!(serde_json::from_str::<String>(&text(&*value)).unwrap(), value);
        }
    }
}
