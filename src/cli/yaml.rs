//! Reads and writes YAML as kubectl does, so that both give a document the same meaning.

use serde_json::Value;

/// The options for reading documents.
///
/// Numbers and booleans are those of YAML 1.1, as for kubectl: `defaultMode: 0644` is 420, and `on`
/// is true. The expansion of aliases is limited. The number of values is limited only by the size
/// of the file: the nodes of a large cluster are one document of millions of values.
pub(super) fn read_options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        legacy_octal_numbers: true,
        with_snippet: false,
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 100_000,
            max_replay_stack_depth: 16,
        },
        budget: serde_saphyr::budget! {
            max_events: usize::MAX,
            max_nodes: usize::MAX,
            max_depth: 128,
            enforce_alias_anchor_ratio: true,
        },
    }
}

/// Writes documents, each after a line `---`.
///
/// Keys are sorted, as by kubectl. Text that a YAML reader could take for a number, a boolean, a
/// date or null is quoted.
pub(super) fn write(documents: &[Value]) -> Result<String, serde_saphyr::SerializeError> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let mut text = String::new();
    for document in documents {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string_with_options(document, options.clone())?);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Value {
        serde_saphyr::from_str_with_options(text, read_options()).expect(text)
    }

    fn assert_kept(value: &Value) {
        let written = write(std::slice::from_ref(value)).expect("written");
        assert_eq!(read(&written), *value, "{written}");
    }

    #[test]
    fn text_that_looks_like_something_else_stays_text() {
        let short = [
            "5", "-5", "+5", "true", "True", "yes", "on", "y", "N", "null", "~", "", "1e3", "0x1",
            "0o7", "0755", "1_000", ".5", "5.", ".inf", "-.INF", ".nan", "12:30:45", "=", "<<",
            "-", "- a", "a: b", "a:", ": a", "#a", "a #b", " a", "a ", "\ta", "a\n", "a\nb", "\n",
            "a\r\n", "---", "...", "--- a", "*a", "&a", "!a", "|", ">", "%a", "@a", "`a", "[a]",
            "{a}", "a, b", "'", "\"", "\\", "é", "\u{85}", "\u{2028}", "\u{0}", "😀", "NO", "0b1",
            "1__0", "1e", "e1", "0.1.2", "1,000", "?", "? a", "-a", ":a",
        ];
        let long = [
            "2001-01-01",
            "2001-12-14t21:59:43.10-05:00",
            "\u{feff}a",
            "\u{1b}[31m",
            "18446744073709551616",
            "a very long text that continues beyond all the widths at which a line could be broken into several",
            "  indented\nand not\n\n\n",
        ];
        for text in short.into_iter().chain(long) {
            assert_kept(&json!({"labels": {"a": text, text: "b"}, "list": [text, [text]]}));
        }
    }

    #[test]
    fn numbers_and_empty_collections_stay_what_they_are() {
        let whole = [json!(0), json!(-1), json!(i64::MAX), json!(i64::MIN), json!(u64::MAX)];
        let others = [0.5, 1.0, -0.25, 1e300, 1e-7, 123_456_789.125].map(Value::from);
        for number in whole.into_iter().chain(others) {
            assert_kept(&json!({"n": number, "l": [number]}));
        }
        // Empty collections and nulls stay what they are, too.
        assert_kept(&json!({"a": {}, "b": [], "c": null, "d": [{}, [], null, {"e": []}]}));
    }

    #[test]
    fn yaml_is_read_as_kubectl_reads_it() {
        let text = "octal: 0644\nhex: 0x10\ngroups: 1_000\ny: y\non: on\nno: no\nquoted: '0644'\nfloat: 1e3\ndate: 2001-01-01\n";
        let wanted = json!({
            "octal": 420, "hex": 16, "groups": 1000, "y": true, "on": true, "no": false, "quoted": "0644",
            "float": 1000.0, "date": "2001-01-01",
        });
        assert_eq!(read(text), wanted);
    }
}
