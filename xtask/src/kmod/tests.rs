use std::fs;

use crate::exec::root;

/// What stands between quotes after `key` in the file.
fn quoted(file: &str, key: &str) -> String {
    let text = fs::read_to_string(root().join(file)).unwrap();
    let rest = text.split_once(key).expect(key).1;
    rest.split('"').nth(1).expect(key).to_owned()
}

#[test]
fn dkms_and_the_readme_know_the_modules_version() {
    let version = quoted("kmod/stcp/main.c", "MODULE_VERSION(");
    assert_eq!(quoted("kmod/stcp/dkms.conf", "PACKAGE_VERSION="), version);
    assert_eq!(quoted("Cargo.toml", "\nversion = "), version);
    let readme = fs::read_to_string(root().join("kmod/README.md")).unwrap();
    assert!(readme.contains(&format!("dkms install stcp/{version} ")));
}

#[test]
fn the_modules_limits_are_the_librarys() {
    // What stands after the name, up to one of the ends, as one word.
    let limit = |file: &str, name: &str, ends: &[char]| {
        let text = fs::read_to_string(root().join(file)).unwrap();
        let rest = text.split_once(name).expect(name).1;
        let value: String = rest.split(ends).next().unwrap().replace("UL", "");
        value.replace(['_', '(', ')', ' '], "")
    };
    for (library, name, module, same) in [
        (
            "limits",
            "MAX_RECORDS_WITHOUT_DATA: u8 = ",
            "records.c",
            "STCP_WITHOUT_DATA ",
        ),
        (
            "post_handshake",
            "MAX_MESSAGE: usize = ",
            "records.c",
            "STCP_MAX_MESSAGE ",
        ),
        (
            "limits",
            "AES_GCM_BLOCKS: u64 = ",
            "main.c",
            "stcp_gcm_blocks = ",
        ),
    ] {
        let ours = limit(&format!("crates/stcp/src/{library}.rs"), name, &[';']);
        let its = limit(&format!("kmod/stcp/{module}"), same, &[';', '\n']);
        assert_eq!(ours, its, "{name}");
    }
}

#[test]
fn dkms_builds_for_the_series_of_the_guest_and_6_6_and_no_other() {
    let pattern = quoted("kmod/stcp/dkms.conf", "BUILD_EXCLUSIVE_KERNEL=");
    let matches = |release: &str| {
        let script = format!("[[ {release} =~ {pattern} ]]");
        let bash = std::process::Command::new("bash")
            .args(["-c", &script])
            .status();
        bash.unwrap().success()
    };
    for release in [
        "6.1.0-56-cloud-amd64",
        "6.6.120-generic",
        "6.12.95+deb12-cloud-amd64",
    ] {
        assert!(matches(release), "{release}");
    }
    for release in [
        "5.10.0-30-amd64",
        "6.0.3",
        "6.9.7-amd64",
        "6.13.1",
        "6.120.1",
        "7.1.0",
    ] {
        assert!(!matches(release), "{release}");
    }
}

/// The preprocessor's word on `stcp.h`'s floor for this kernel.
fn is_taken(version: (u32, u32, u32)) -> bool {
    let header = fs::read_to_string(root().join("kmod/stcp/stcp.h")).unwrap();
    let (begin, end) = ("#define STCP_HAS", "#endif\n");
    let from = &header[header.find(begin).expect(begin)..];
    let floor = &from[..from.find(end).expect(end) + end.len()];
    let (major, series, sublevel) = version;
    let code = major << 16 | series << 8 | sublevel.min(255);
    let mut gcc = std::process::Command::new("gcc")
        .args(["-E", "-x", "c", "-o", "/dev/null", "-"])
        .arg(format!("-DLINUX_VERSION_CODE={code}"))
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut input = gcc.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, floor.as_bytes()).unwrap();
    drop(input);
    gcc.wait().unwrap().success()
}

#[test]
fn kernels_whose_tls_has_known_holes_are_refused() {
    for fine in [
        (6, 1, 154),
        (6, 1, 192),
        (6, 6, 108),
        (6, 12, 49),
        (6, 12, 300),
    ] {
        assert!(is_taken(fine), "{fine:?}");
    }
    for old in [
        (5, 1, 200),
        (6, 1, 153),
        (6, 5, 200),
        (6, 6, 107),
        (6, 9, 7),
        (6, 12, 48),
        (6, 13, 1),
        (7, 1, 200),
    ] {
        assert!(!is_taken(old), "{old:?}");
    }
}
