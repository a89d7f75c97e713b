//! The names that Tekton gives to what it makes.

use sha2::{Digest as _, Sha256};

/// The longest name of a child: it becomes a label value.
const LONGEST: usize = 63;
const HASH: usize = 32;

/// `parent` and `suffix` as one name of at most 63 characters. Tekton hashes what is too long with
/// MD5; here it is the beginning of a SHA-256, at the same place and as long.
pub(super) fn child(parent: &str, suffix: &str) -> String {
    if parent.len() + suffix.len() <= LONGEST {
        return format!("{parent}{suffix}");
    }
    match (LONGEST - HASH).checked_sub(suffix.len()).filter(|room| *room > 0) {
        Some(room) => format!("{}{}{suffix}", head(parent, room), hash(parent, HASH)),
        None => {
            let whole = format!("{parent}{suffix}");
            format!("{}{}", head(parent, LONGEST - HASH), hash(&whole, HASH))
        }
    }
}

/// The claim of a `volumeClaimTemplate`: of this workspace, in the run with this UID.
pub(super) fn claim(template: &str, workspace: &str, uid: &str) -> String {
    let prefix = if template.is_empty() { "pvc" } else { template };
    format!("{prefix}-{}", hash(&format!("{workspace}{uid}"), 10))
}

/// The volumes of a pod's workspaces: of equal names none is made twice.
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

/// At most the first `length` bytes.
fn head(text: &str, length: usize) -> &str {
    &text[..text.floor_char_boundary(length)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recomputed from Tekton's code.
    #[test]
    fn names_are_tektons() {
        assert_eq!(claim("", "my-workspace", "uid-1234"), "pvc-8494e35dae");
        assert_eq!(claim("pvc1", "myws1", "taskrun1"), "pvc1-ad02547921");
        assert_eq!(claim("", "foo", ""), "pvc-2c26b46b68");
        for (workspace, name) in [
            ("custom", "ws-20573"),
            ("ws1", "ws-e8b6e"),
            ("scratch", "ws-c462a"),
            ("source", "ws-1bcf2"),
            ("my-workspace", "ws-f5d1a"),
        ] {
            assert_eq!(volume(workspace, &|_| false), name);
        }
        assert_ne!(volume("source", &|name| name == "ws-1bcf2"), "ws-1bcf2");
    }

    #[test]
    fn a_child_has_at_most_63_characters() {
        assert_eq!(child("run", "-build"), "run-build");
        let (a, b) = ("a".repeat(60), "b".repeat(63));
        assert_eq!(child(&a, "-pod").len(), 63);
        assert!(child(&a, "-pod").ends_with("-pod"));
        assert_ne!(child(&a, "-pod"), child(&b, "-pod"));
        let long = format!("-{b}");
        assert_eq!(child(&a, &long).len(), 63);
        assert_ne!(child(&a, &long), child(&a, "-bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"));
    }
}
