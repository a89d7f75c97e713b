//! Colocation and exlocation tokens: arbitrary strings of the application, and the labels derived
//! from them.

use serde_json::json;

use crate::names::{is_label_name, sha1_hex};
use crate::placement::reason::{Finding, Reason, quoted, shorten};

/// The most tokens that one annotation may list.
const MAX_TOKENS: usize = 64;

/// The longest token, in bytes. SPL sets no limit; a longer token is taken for a mistake.
const MAX_BYTES: usize = 1024;

/// The most characters of a remedy that show what to write instead.
const SHOWN: usize = 100;

/// A colocation or exlocation token, or the name of an operator.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Token(String);

/// The noun of a token in findings.
pub(crate) const TOKEN: &str = "the token";

/// An invalid token, or an invalid list of tokens.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Invalid {
    pub problem: String,
    pub remedy: String,
}

impl Invalid {
    fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { problem: problem.into(), remedy: remedy.into() }
    }

    /// Returns the finding about the annotation with this key.
    pub(crate) fn in_annotation(self, key: &'static str) -> Finding {
        Finding::new(Reason::InvalidToken, key, self.problem, self.remedy)
    }
}

impl Token {
    /// Parses the tokens of an annotation: one bare token, or a JSON array of 1 to 64 distinct
    /// ones. Problems call a token `noun`.
    ///
    /// # Errors
    /// The problem of an invalid value, and its remedy.
    pub(crate) fn parse_list(noun: &str, value: &str) -> Result<Vec<Self>, Invalid> {
        if value.starts_with('"') {
            let problem = format!("{} is quoted twice", quoted(value));
            let remedy = "write the token bare, without quotation marks of its own";
            return Err(Invalid::new(problem, remedy));
        }
        if !value.starts_with('[') {
            let token = Self::parse(noun, value)?;
            if value.contains(',') {
                let several: Vec<&str> = value.split(',').map(str::trim).collect();
                return Err(Invalid::new(
                    format!("{} could be several tokens or one", quoted(value)),
                    format!(
                        "write {} for several, or {} for one",
                        shorten(&json!(several).to_string(), SHOWN),
                        shorten(&json!([value]).to_string(), SHOWN)
                    ),
                ));
            }
            return Ok(vec![token]);
        }
        // Checked before parsing: the size of 64 tokens with every byte escaped.
        if value.len() > MAX_TOKENS * (6 * MAX_BYTES + 3) + 2 {
            let problem = format!("{} bytes are too long for a list of tokens", value.len());
            return Err(Invalid::new(problem, "list at most 64 tokens of at most 1024 bytes"));
        }
        let list: Vec<String> = serde_json::from_str(value).map_err(|error| {
            let value = quoted(value);
            let problem =
                format!("{value} starts with [ and is not a JSON array of strings ({error})");
            let remedy = "write [\"a\", \"b\"], or a bare token that does not start with [";
            Invalid::new(problem, remedy)
        })?;
        if list.is_empty() || list.len() > MAX_TOKENS {
            let problem = format!("lists {} tokens, and 1 to {MAX_TOKENS} are allowed", list.len());
            let remedy = "list at least one token, or remove the annotation";
            return Err(Invalid::new(problem, remedy));
        }
        let mut tokens: Vec<Self> = Vec::with_capacity(list.len());
        for text in &list {
            let token = Self::parse(noun, text)?;
            if tokens.contains(&token) {
                let problem = format!("lists {} twice", quoted(text));
                return Err(Invalid::new(problem, "list each token once"));
            }
            tokens.push(token);
        }
        Ok(tokens)
    }

    /// Parses a single token, as a StreamsJob has them: it is never a list, even if it begins with `[`.
    /// Problems call it `noun`.
    ///
    /// # Errors
    /// The problem of an invalid token, and its remedy.
    pub(crate) fn parse(noun: &str, text: &str) -> Result<Self, Invalid> {
        if text.is_empty() {
            let problem = format!("{noun} is empty");
            return Err(Invalid::new(problem, "give a token, or remove the annotation"));
        }
        if text.len() > MAX_BYTES {
            let length = text.len();
            let problem =
                format!("{noun} is {length} bytes long, and at most {MAX_BYTES} are allowed");
            return Err(Invalid::new(problem, "use a shorter token"));
        }
        if text.trim() != text {
            let problem = format!("{} has white space at its ends", quoted(text));
            let remedy =
                "remove it (YAML's `|` and `>` add a newline: write the value on the key's line)";
            return Err(Invalid::new(problem, remedy));
        }
        if text.chars().any(char::is_control) {
            let problem = format!("{} has control characters", quoted(text));
            return Err(Invalid::new(problem, "remove them"));
        }
        Ok(Self(text.to_owned()))
    }

    /// The token as the application writes it.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The SHA-1 of the token's UTF-8 (Streams design, "PEs Must Run Together").
    fn fingerprint(&self) -> String {
        sha1_hex(&self.0)
    }

    /// The key of the token's label.
    pub(crate) fn label_key(&self, prefix: &str) -> String {
        [prefix, &self.fingerprint()].concat()
    }

    /// The value of the token's label: the token itself if it is a valid label value, else its
    /// valid characters and the first 8 digits of its fingerprint.
    pub(crate) fn label_value(&self) -> String {
        if is_label_name(&self.0) {
            return self.0.clone();
        }
        let is_legible = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        // One hyphen for each run of invalid characters.
        let parts = self.0.split(|c| !is_legible(c)).filter(|part| !part.is_empty());
        let legible = parts.collect::<Vec<_>>().join("-");
        let trim = |text: &str| text.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned();
        let trimmed = trim(&legible);
        let cut = trim(&trimmed[..trimmed.len().min(54)]);
        let digits = &self.fingerprint()[..8];
        if cut.is_empty() { digits.to_owned() } else { format!("{cut}-{digits}") }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_valid_value_is_the_token_and_others_keep_their_valid_characters() {
        let (x53, x63) = ("x".repeat(53), "x".repeat(63));
        let long = format!("{x53}.{}", "y".repeat(20));
        for (text, kept) in [
            ("together", None),
            ("a", None),
            ("A.b_c-d", None),
            (&x63, None),
            ("my group/é", Some("my-group-")),
            ("Op[0]", Some("Op-0-")),
            ("é", Some("")),
            ("--", Some("")),
            // A hyphen in the token is not part of a run of invalid characters.
            ("a- b", Some("a--b-")),
            (&long, Some(&*format!("{x53}-"))),
        ] {
            let token = Token::parse(TOKEN, text).unwrap();
            let value = kept.map(|kept| format!("{kept}{}", &token.fingerprint()[..8]));
            assert_eq!(token.label_value(), value.as_deref().unwrap_or(text));
        }
    }

    #[test]
    fn lists_are_parsed() {
        for (value, expected) in [
            ("together", &["together"][..]),
            (r#"["a","b c"]"#, &["a", "b c"]),
            (r#"["\u0041"]"#, &["A"]),
            (r#"["a,b"]"#, &["a,b"]),
            ("{}", &["{}"]),
        ] {
            let tokens = Token::parse_list(TOKEN, value).unwrap();
            assert!(tokens.iter().map(|token| &*token.0).eq(expected.iter().copied()), "{value}");
        }
    }

    #[test]
    fn the_longest_list_is_parsed_however_it_is_written() {
        let longest: Vec<String> = (0..MAX_TOKENS).map(|i| format!("{i:0>MAX_BYTES$}")).collect();
        let escape = |token: &String| {
            let escaped = token.bytes().map(|byte| format!("\\u{byte:04x}"));
            format!("\"{}\"", escaped.collect::<String>())
        };
        let escaped: Vec<String> = longest.iter().map(escape).collect();
        for value in [json!(longest).to_string(), format!("[{}]", escaped.join(","))] {
            let tokens = Token::parse_list(TOKEN, &value).unwrap();
            assert!(tokens.iter().map(Token::as_str).eq(&longest), "{} bytes", value.len());
        }
    }

    #[test]
    fn an_invalid_token_is_refused_with_a_remedy() {
        let many =
            format!("[{}]", (0..65).map(|i| format!("\"{i}\"")).collect::<Vec<_>>().join(","));
        let long = "x".repeat(1025);
        let huge = "x".repeat(262_144);
        let nested = "[".repeat(262_144);
        let short = [
            "", " ", "\n", "a\n", " a", "a\tb", "a\0b", "\"a\"", "\"", "\u{a0}a", "[", "[]", "[1]",
            "[null]", "[\"\"]", "a,b", ",",
        ];
        let lists = [r#"[" a"]"#, r#"["a",]"#, r#"["a"] x"#, r#"[["a"]]"#, r#"["a","a"]"#];
        let longer = lists.into_iter().chain([r#"["a\nb"]"#, &many, &long, &huge, &nested]);
        for value in short.into_iter().chain(longer) {
            let invalid = Token::parse_list(TOKEN, value).expect_err(value);
            let finding = invalid.in_annotation("streams.ibm.com/host-colocation");
            assert_eq!(finding.reason, Reason::InvalidToken);
            assert!(!finding.remedy.is_empty());
            assert!(finding.to_string().len() < 700, "{}", finding.to_string().len());
        }
    }

    proptest! {
        #[test]
        fn label_values_are_valid(text in "\\PC{1,200}") {
            if let Ok(tokens) = Token::parse_list(TOKEN, &text) {
                for token in tokens {
                    prop_assert!(is_label_name(&token.label_value()));
                }
            }
        }
    }
}
