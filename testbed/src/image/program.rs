//! Checks a program that is the only file of an image: it is static, and without paths of the
//! machine that built it.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

const PT_INTERP: u64 = 3;

/// Refuses a program that needs a loader to start, which finds its libraries: files of the root file
/// system.
///
/// # Errors
/// It does, or it is not an ELF file of a 64-bit little-endian machine.
pub fn check_static(program: &[u8]) -> Result<()> {
    let broken = "its headers end early";
    ensure!(program.starts_with(b"\x7fELF\x02\x01"), "it is not an ELF program of 64 bits");
    let at = usize::try_from(number(program, 0x20, 8).context(broken)?)?;
    let size = usize::try_from(number(program, 0x36, 2).context(broken)?)?;
    let count = usize::try_from(number(program, 0x38, 2).context(broken)?)?;
    for index in 0..count {
        let header = index.checked_mul(size).and_then(|offset| at.checked_add(offset));
        let kind = header.and_then(|header| number(program, header, 4)).context(broken)?;
        ensure!(kind != PT_INTERP, "it is not static: it needs a loader");
    }
    Ok(())
}

/// A little-endian number of `size` bytes at `offset`.
fn number(bytes: &[u8], offset: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(offset..offset.checked_add(size)?)?;
    Some(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

/// Returns the first path in `program` that lies in one of the absolute `folders`.
#[must_use]
pub fn find_path(program: &[u8], folders: &[&Path]) -> Option<String> {
    // The end of another path is none: a checkout in /src would be found in "/cargo/serde/src/".
    let continues = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+/".contains(&byte);
    folders.iter().find_map(|folder| {
        let folder = format!("{}/", folder.to_str()?.trim_end_matches('/'));
        // The root directory is a part of every path.
        let folder = Some(folder.as_bytes()).filter(|folder| folder.len() > 1)?;
        let at = memchr::memmem::find_iter(program, folder)
            .find(|&at| at == 0 || !continues(program[at - 1]))?;
        let length = program[at..].iter().take(200).take_while(|&&byte| continues(byte)).count();
        Some(String::from_utf8_lossy(&program[at..at + length]).into_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_program_with_a_loader_is_refused() {
        let refused = |program: &[u8]| check_static(program).unwrap_err().to_string();
        assert_eq!(refused(b"#!/bin/sh"), "it is not an ELF program of 64 bits");
        // This test has a loader, whatever its name is here.
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(refused(&own), "it is not static: it needs a loader");
        let mut head = own[..64].to_vec();
        assert_eq!(refused(&head), "its headers end early");
        // Without headers of segments.
        head[0x38..0x3a].fill(0);
        check_static(&head).unwrap();
    }

    #[test]
    fn a_path_of_the_machine_is_found_where_it_begins() {
        let text = b"x\0/cargo/serde-1.0/src/lib.rs\0at /src/a.rs:1/home/me/.cargo/x";
        let found = |folder: &str| find_path(text, &[Path::new(folder)]);
        assert_eq!(found("/src").unwrap(), "/src/a.rs");
        assert_eq!(found("/cargo/").unwrap(), "/cargo/serde-1.0/src/lib.rs");
        assert_eq!(found("/serde-1.0"), None);
        assert_eq!(found("/sr"), None);
        assert_eq!(found("/"), None);
        let both = [Path::new("/none"), Path::new("/src")];
        assert_eq!(find_path(text, &both).unwrap(), "/src/a.rs");
        assert_eq!(find_path(b"/src/x", &both).unwrap(), "/src/x");
    }
}
