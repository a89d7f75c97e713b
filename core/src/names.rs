//! The grammar of Kubernetes' names and labels, and the digests that generated names are made of.
//!
//! The checks are those of `k8s.io/apimachinery/pkg/util/validation`, whose function each one
//! names.

use sha1::Sha1;
use sha2::{Digest as _, Sha256};

/// The longest DNS label, label name and label value, in bytes.
const MAX_LABEL: usize = 63;

/// The longest DNS subdomain, in bytes.
const MAX_SUBDOMAIN: usize = 253;

/// Returns true if `text` can be the name of most objects: a DNS subdomain of RFC 1123
/// (`IsDNS1123Subdomain`). Its labels may be longer than 63 bytes, as Kubernetes allows.
#[must_use]
pub(crate) fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= MAX_SUBDOMAIN && text.split('.').all(has_dns_label_form)
}

/// Returns true if `text` can be the name of a namespace, a Service or a volume: a DNS label of RFC 1123
/// (`IsDNS1123Label`).
#[must_use]
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= MAX_LABEL && has_dns_label_form(text)
}

/// Lower-case letters, digits and hyphens, alphanumeric at both ends; of any length but 0.
fn has_dns_label_form(text: &str) -> bool {
    let is_edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    has_form(text, is_edge, |byte| *byte == b'-')
}

/// Returns true if `text` is a label value that is not empty, which is also the form of the name in a label
/// key, after its prefix (`IsValidLabelValue`, `IsQualifiedName`).
#[must_use]
pub(crate) fn is_label_name(text: &str) -> bool {
    text.len() <= MAX_LABEL
        && has_form(text, u8::is_ascii_alphanumeric, |byte| matches!(byte, b'-' | b'.' | b'_'))
}

/// The longest directory, in bytes: Linux' `PATH_MAX` without the names of the files in it.
pub(crate) const LONGEST_DIRECTORY: usize = 4_000;

/// Returns true if `text` is an absolute path of letters, digits, `.`, `_` and `-`, without a slash at its end:
/// a path that needs no quotes in scripts and in the files of ssh.
#[must_use]
pub(crate) fn is_directory(text: &str) -> bool {
    let is_plain = |part: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        !part.is_empty() && part != "." && part != ".." && part.bytes().all(plain)
    };
    let mut parts = text.split('/');
    parts.next() == Some("")
        && text.len() > 1
        && text.len() <= LONGEST_DIRECTORY
        && parts.all(is_plain)
}

/// Returns true if `text` is not empty, has `is_edge` bytes at both ends, and between them those and
/// others.
fn has_form(text: &str, is_edge: impl Fn(&u8) -> bool, is_other: impl Fn(&u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(&is_edge)
        && bytes.last().is_some_and(&is_edge)
        && bytes.iter().all(|byte| is_edge(byte) || is_other(byte))
}

/// The first ten lower-case hexadecimal digits of the SHA-256 of `text`, for names that must be
/// short. The same in every process and release.
#[must_use]
pub(crate) fn short_digest(text: &str) -> String {
    hex(&Sha256::digest(text)[..5], b"0123456789abcdef")
}

/// The first 16 lower-case hexadecimal digits of the SHA-256 of `text`, to compare texts by. Users
/// can compute it with `sha256sum`.
#[must_use]
pub fn fingerprint(text: &str) -> String {
    hex(&Sha256::digest(text)[..8], b"0123456789abcdef")
}

/// Returns true if `text` has the form of a [`short_digest`], whatever the case of its letters.
#[must_use]
pub(crate) fn is_short_digest(text: &str) -> bool {
    text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The SHA-1 of `text`: 40 upper-case hexadecimal digits. A fingerprint that fits a label key, not
/// a protection against forgery.
#[must_use]
pub(crate) fn sha1_hex(text: &str) -> String {
    hex(&Sha1::digest(text), b"0123456789ABCDEF")
}

fn hex(bytes: &[u8], digits: &[u8; 16]) -> String {
    let pair = |byte: &u8| [digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]];
    let text = bytes.iter().map(pair).collect::<Vec<_>>().into_flattened();
    String::from_utf8(text).expect("hexadecimal digits are ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts, and whether each is a DNS subdomain, a DNS label and a label name.
    #[test]
    fn names_are_checked_as_kubernetes_checks_them() {
        let (x63, x64) = ("x".repeat(63), "x".repeat(64));
        let (x253, x254) = ("x".repeat(253), "x".repeat(254));
        let dotted = format!("{x63}.{x63}.{x63}.{}", "x".repeat(61));
        let huge = "a".repeat(262_144);
        for (expected, texts) in [
            ([true, true, true], vec!["a", "0", "a-b", "a--b", &x63]),
            ([true, false, true], vec!["a.b", "0.0"]),
            ([false, false, true], vec!["a_b", "a..b", "a.-b", "A"]),
            ([true, false, false], vec![&x64, &x253, &dotted]),
            ([false, false, false], vec!["", ".", "-", "a-", "-a", ".a", "a.", "a b", "a\n"]),
            ([false, false, false], vec!["a/b", "é", "aéa", "٣", &x254, &huge]),
        ] {
            for text in texts {
                let found = [is_dns_subdomain(text), is_dns_label(text), is_label_name(text)];
                assert_eq!(found, expected, "{text:?}");
            }
        }
    }

    #[test]
    fn digests_are_stable() {
        assert_eq!(short_digest(""), "e3b0c44298");
        assert_eq!(short_digest("foo"), "2c26b46b68");
        assert!(is_short_digest(&short_digest("é")));
        for text in ["", "e3b0c4429", "e3b0c442980", "g3b0c44298", "é3b0c4429"] {
            assert!(!is_short_digest(text), "{text}");
        }
        assert_eq!(sha1_hex("together"), "9034FF9E2B8F00B47A44DFAF3C2A37176C101E2A");
    }
}
