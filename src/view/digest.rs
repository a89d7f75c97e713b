//! Short digests for names: the same text gives the same name in every process and release.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// The first ten hexadecimal characters of the SHA-256 of `text`.
#[must_use]
pub fn ten(text: &str) -> String {
    let digest = Sha256::digest(text);
    let mut ten = String::with_capacity(10);
    for byte in &digest[..5] {
        // Writing to a String does not fail.
        let _ = write!(ten, "{byte:02x}");
    }
    ten
}
