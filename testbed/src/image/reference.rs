//! Names of images.

use anyhow::{Result, ensure};

/// The registry of names that have none.
const DEFAULT_REGISTRY: &str = "docker.io";

/// Refuses the name or the tag of an image that a container engine would refuse.
///
/// # Errors
/// One of them is invalid; the error says how it is written.
pub fn check(name: &str, tag: &str) -> Result<()> {
    let (registry, repository) = split(name);
    let is_registry = |registry: &str| {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b':');
        !registry.is_empty() && registry.bytes().all(allowed)
    };
    ensure!(
        name.len() <= 255
            && registry.is_none_or(is_registry)
            && repository.split('/').all(is_component),
        "{name:?} is not the name of an image: use lower-case letters, digits and separators, as in \
         registry.example.com/team/stowplan",
    );
    let mut bytes = tag.bytes();
    let starts = bytes.next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    ensure!(
        starts && bytes.all(allowed) && tag.len() <= 128,
        "{tag:?} is not a tag: use at most 128 letters, digits, dots, underscores and hyphens, and \
         a letter, digit or underscore first",
    );
    Ok(())
}

/// The name with its registry, as containerd keeps it: `docker.io/library/stowplan:0.1.0`.
pub(super) fn complete(name: &str, tag: &str) -> String {
    match split(name) {
        (Some(_), _) => format!("{name}:{tag}"),
        (None, repository) if repository.contains('/') => {
            format!("{DEFAULT_REGISTRY}/{repository}:{tag}")
        }
        (None, repository) => format!("{DEFAULT_REGISTRY}/library/{repository}:{tag}"),
    }
}

/// The registry, if the name has one, and the rest. A first part is a registry if it cannot be a
/// user's name.
fn split(name: &str) -> (Option<&str>, &str) {
    match name.split_once('/') {
        Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => {
            (Some(first), rest)
        }
        _ => (None, name),
    }
}

/// Lower-case letters and digits, with `.`, `_`, `__` or hyphens between them.
fn is_component(component: &str) -> bool {
    let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    component.starts_with(is_alphanumeric)
        && component.ends_with(is_alphanumeric)
        && component.split(is_alphanumeric).all(|separator| {
            matches!(separator, "" | "." | "_" | "__") || separator.bytes().all(|b| b == b'-')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complete_name_has_a_registry() {
        for (name, wanted) in [
            ("stowplan", "docker.io/library/stowplan:1"),
            ("team/stowplan", "docker.io/team/stowplan:1"),
            ("stow.test/mpi", "stow.test/mpi:1"),
            ("localhost/mpi", "localhost/mpi:1"),
            ("registry:5000/a/b", "registry:5000/a/b:1"),
        ] {
            check(name, "1").unwrap();
            assert_eq!(complete(name, "1"), wanted);
        }
    }
}
