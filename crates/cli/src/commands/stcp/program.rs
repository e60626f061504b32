//! Whether a program is static: then a preload shim does not reach it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// What is read of a file: the ELF header and its program headers.
const HEAD: u64 = 16 * 1024;
/// The program header that names the dynamic linker.
const PT_INTERP: u32 = 3;

/// Whether the program, found as a shell finds it, is an executable without a dynamic linker.
/// Whatever cannot be told is taken for dynamic.
pub(crate) fn is_static(program: &OsStr) -> bool {
    let mut head = Vec::new();
    let read = find(program).and_then(|path| File::open(path).ok());
    read.is_some_and(|file| file.take(HEAD).read_to_end(&mut head).is_ok())
        && names_no_linker(&head).unwrap_or(false)
}

fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(program.into());
    }
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(program))
        .find(|file| Path::is_file(file))
}

/// `None` if this is no 64-bit ELF of this machine's byte order.
fn names_no_linker(elf: &[u8]) -> Option<bool> {
    let little = cfg!(target_endian = "little");
    let is_ours = elf.starts_with(b"\x7fELF\x02") && (elf.get(5)? == &1) == little;
    is_ours.then_some(())?;
    let half = |at: usize| Some(u16::from_ne_bytes(elf.get(at..at + 2)?.try_into().ok()?));
    let offset = u64::from_ne_bytes(elf.get(32..40)?.try_into().ok()?);
    let (size, count) = (half(54)?, half(56)?);
    for index in 0..count {
        let at = usize::try_from(offset).ok()? + usize::from(size) * usize::from(index);
        let kind = elf.get(at..at.checked_add(4)?)?;
        if u32::from_ne_bytes(kind.try_into().ok()?) == PT_INTERP {
            return Some(false);
        }
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::{is_static, names_no_linker};

    #[test]
    fn dynamic_programs_scripts_and_missing_ones_are_not_static() {
        for program in ["sh", "/bin/sh", "/etc/passwd", "no-such-program"] {
            assert!(!is_static(OsStr::new(program)), "{program}");
        }
    }

    #[test]
    fn a_file_without_a_linker_is_static_and_a_short_one_is_not_known() {
        let mut elf = vec![0; 64 + 2 * 56];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[32..40].copy_from_slice(&64_u64.to_ne_bytes());
        elf[54..56].copy_from_slice(&56_u16.to_ne_bytes());
        elf[56..58].copy_from_slice(&2_u16.to_ne_bytes());
        assert_eq!(names_no_linker(&elf), Some(true));
        elf[64 + 56] = 3;
        assert_eq!(names_no_linker(&elf), Some(false));
        for len in 0..64 + 56 {
            assert_eq!(names_no_linker(&elf[..len]), None, "{len}");
        }
    }
}
