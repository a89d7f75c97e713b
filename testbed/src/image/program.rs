//! What a program has to be if it is the only file of an image: static, and without paths of the
//! machine that built it.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_NEEDED: u64 = 1;

/// Refuses a program that needs a file of the root file system to start: a loader or a library.
///
/// # Errors
/// It does, or it is not an ELF file of a 64-bit little-endian machine.
pub fn check_static(program: &[u8]) -> Result<()> {
    let broken = "its headers end early";
    ensure!(program.starts_with(b"\x7fELF\x02\x01"), "it is not an ELF program of 64 bits");
    let at = usize::try_from(number(program, 0x20, 8).context(broken)?)?;
    let size = usize::try_from(number(program, 0x36, 2).context(broken)?)?;
    let count = usize::try_from(number(program, 0x38, 2).context(broken)?)?;
    let mut dynamic: &[u8] = &[];
    for index in 0..count {
        let header = index
            .checked_mul(size)
            .and_then(|o| program.get(at.checked_add(o)?..))
            .context(broken)?;
        let kind = number(header, 0, 4).context(broken)?;
        let start = usize::try_from(number(header, 8, 8).context(broken)?)?;
        let length = usize::try_from(number(header, 32, 8).context(broken)?)?;
        let segment =
            || start.checked_add(length).and_then(|end| program.get(start..end)).context(broken);
        if kind == u64::from(PT_INTERP) {
            let loader = String::from_utf8_lossy(segment()?).trim_end_matches('\0').to_owned();
            anyhow::bail!("it is not static: it needs the loader {loader}");
        }
        if kind == u64::from(PT_DYNAMIC) {
            // A static program has this segment too if it may be loaded at any address.
            dynamic = segment()?;
        }
    }
    let needs = dynamic.chunks_exact(16).any(|entry| number(entry, 0, 8) == Some(DT_NEEDED));
    ensure!(!needs, "it is not static: it needs shared libraries");
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

    /// The headers of a program with one segment.
    fn program(kind: u32, segment: &[u8]) -> Vec<u8> {
        let mut program = b"\x7fELF\x02\x01".to_vec();
        program.resize(64, 0);
        program[0x20] = 64;
        program[0x36] = 56;
        program[0x38] = 1;
        program.extend(kind.to_le_bytes());
        program.extend([0; 4]);
        program.extend(120_u64.to_le_bytes());
        program.extend([0; 16]);
        program.extend((segment.len() as u64).to_le_bytes());
        program.resize(120, 0);
        program.extend(segment);
        program
    }

    #[test]
    fn a_program_with_a_loader_or_libraries_is_refused() {
        let refused = |program: &[u8]| check_static(program).unwrap_err().to_string();
        let of_loader = refused(&program(PT_INTERP, b"/lib/ld.so\0"));
        assert_eq!(of_loader, "it is not static: it needs the loader /lib/ld.so");
        let entries = [DT_NEEDED, 8, 0, 0].map(u64::to_le_bytes).concat();
        let of_libraries = refused(&program(PT_DYNAMIC, &entries));
        assert_eq!(of_libraries, "it is not static: it needs shared libraries");
        // This test has a loader, whatever its name is here.
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(refused(&own).contains("needs the loader /"), "{}", refused(&own));

        let relocations = [7_u64, DT_NEEDED, 0, 0].map(u64::to_le_bytes).concat();
        check_static(&program(PT_DYNAMIC, &relocations)).unwrap();
        check_static(&program(1, b"")).unwrap();
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
