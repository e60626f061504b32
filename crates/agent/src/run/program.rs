//! Whether a program goes past a preload shim: static ones do, Go's, and other machines'.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// What is read of a file: the ELF header and its program headers.
const HEAD: u64 = 16 * 1024;
/// The most that is read of the names of sections.
const NAMES: u64 = 64 * 1024;
/// The program header that names the dynamic linker.
const PT_INTERP: u32 = 3;
/// Go's linker makes it in every program.
const GO: &[u8] = b"\0.go.buildinfo\0";

/// How the program, found as a shell finds it, goes past a preload shim, if it does.
/// Whatever cannot be told is taken for reached.
pub fn past_shim(program: &OsStr) -> Option<&'static str> {
    let (file, elf) = head(&find(program)?)?;
    let (_, own) = head(Path::new("/proc/self/exe"))?;
    if is_foreign(&elf, &own)? {
        return Some("is for another machine (32 bits, say)");
    }
    if names_no_linker(&elf)? {
        return Some("is static");
    }
    // It makes its system calls itself, whatever it is linked to.
    section_names(&file, &elf)?
        .windows(GO.len())
        .any(|name| name == GO)
        .then_some("is written in Go")
}

fn head(path: &Path) -> Option<(File, Vec<u8>)> {
    let file = File::open(path).ok()?;
    let mut head = Vec::new();
    (&file).take(HEAD).read_to_end(&mut head).ok()?;
    Some((file, head))
}

/// By class, byte order and machine; `None` if it is no ELF.
fn is_foreign(elf: &[u8], own: &[u8]) -> Option<bool> {
    let kind = |elf: &[u8]| Some((elf.get(4..6)?.to_vec(), elf.get(18..20)?.to_vec()));
    let is_elf = elf.starts_with(b"\x7fELF");
    is_elf.then_some(kind(elf)? != kind(own)?)
}

fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(program.into());
    }
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(program))
        .find(|file| Path::is_file(file))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_ne_bytes(word.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let half = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_ne_bytes(half.try_into().ok()?))
}

/// The names of a 64-bit ELF's sections, each between zeros.
fn section_names(file: &File, elf: &[u8]) -> Option<Vec<u8>> {
    let (table, size, index) = (word(elf, 40)?, half(elf, 58)?, half(elf, 62)?);
    let at = table.checked_add(u64::from(size) * u64::from(index))?;
    let mut section = [0; 64];
    file.read_exact_at(&mut section, at).ok()?;
    let (at, len) = (word(&section, 24)?, word(&section, 32)?);
    let mut names = vec![0; usize::try_from(len.min(NAMES)).ok()?];
    file.read_exact_at(&mut names, at).ok()?;
    Some(names)
}

/// `None` if this is no 64-bit ELF of this machine's byte order.
fn names_no_linker(elf: &[u8]) -> Option<bool> {
    let little = cfg!(target_endian = "little");
    let is_ours = elf.starts_with(b"\x7fELF\x02") && (elf.get(5)? == &1) == little;
    is_ours.then_some(())?;
    let offset = word(elf, 32)?;
    let (size, count) = (half(elf, 54)?, half(elf, 56)?);
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

    use super::{is_foreign, names_no_linker, past_shim};

    #[test]
    fn dynamic_programs_scripts_and_missing_ones_are_reached() {
        for program in ["sh", "/bin/sh", "/etc/passwd", "no-such-program"] {
            assert_eq!(past_shim(OsStr::new(program)), None, "{program}");
        }
    }

    #[test]
    fn programs_in_go_and_for_other_machines_go_past_the_shim() {
        let mut elf = std::fs::read("/proc/self/exe").unwrap();
        let file = std::env::temp_dir().join(format!("towline-elf-{}", std::process::id()));
        let judged = |elf: &[u8]| {
            std::fs::write(&file, elf).unwrap();
            let judged = past_shim(file.as_os_str());
            std::fs::remove_file(&file).unwrap();
            judged
        };
        assert_eq!(judged(&elf), None);
        // A section is called otherwise.
        let name = b"\0.eh_frame_hdr\0";
        let names = elf.windows(name.len()).rposition(|found| found == name);
        let at = names.unwrap();
        elf[at..at + name.len()].copy_from_slice(super::GO);
        assert_eq!(judged(&elf), Some("is written in Go"));
        let own = elf[..64].to_vec();
        assert_eq!(is_foreign(&elf, &own), Some(false));
        elf[4] = 1;
        assert_eq!(judged(&elf), Some("is for another machine (32 bits, say)"));
        elf[4] = 2;
        elf[18] ^= 1;
        assert_eq!(is_foreign(&elf, &own), Some(true));
        assert_eq!(is_foreign(b"#!/bin/sh, and more than an ELF's", &own), None);
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
