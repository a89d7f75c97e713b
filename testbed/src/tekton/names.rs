//! The names of the objects that Tekton creates.

use sha2::{Digest as _, Sha256};

/// The longest name of a child, in bytes: it is also used as a label value.
const LONGEST: usize = 63;
const HASH: usize = 32;

/// Joins `parent` and `suffix` into a name of at most 63 characters. Tekton shortens longer names
/// with an MD5 hash; this function uses the beginning of a SHA-256 hash of the same length instead.
pub(super) fn child(parent: &str, suffix: &str) -> String {
    if parent.len() + suffix.len() <= LONGEST {
        return format!("{parent}{suffix}");
    }
    match (LONGEST - HASH).checked_sub(suffix.len()).filter(|length| *length > 0) {
        Some(length) => format!("{}{}{suffix}", head(parent, length), hash(parent, HASH)),
        None => {
            let joined = format!("{parent}{suffix}");
            format!("{}{}", head(parent, LONGEST - HASH), hash(&joined, HASH))
        }
    }
}

/// The name of the claim for a `volumeClaimTemplate` of this workspace, in the run with this UID.
pub(super) fn claim(template: &str, workspace: &str, uid: &str) -> String {
    let prefix = if template.is_empty() { "pvc" } else { template };
    format!("{prefix}-{}", hash(&format!("{workspace}{uid}"), 10))
}

/// The name of the volume for a workspace in a pod, different from all names that are `taken`.
pub(super) fn volume(workspace: &str, taken: &dyn Fn(&str) -> bool) -> String {
    let mut seed = workspace.to_owned();
    loop {
        let hash = seed
            .bytes()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let mut digits = format!("{hash:x}");
        digits.truncate(5);
        let name = format!("ws-{digits:0<5}");
        if !taken(&name) {
            return name;
        }
        seed.push('$');
    }
}

fn hash(text: &str, digits: usize) -> String {
    let mut hex: String = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
    hex.truncate(digits);
    hex
}

/// At most the first `length` bytes, cut at a character boundary.
fn head(text: &str, length: usize) -> &str {
    &text[..text.floor_char_boundary(length)]
}
