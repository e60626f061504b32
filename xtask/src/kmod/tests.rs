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
fn dkms_builds_for_every_kernel_of_the_guest_and_no_newer_one() {
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
        "6.9.7-amd64",
        "6.12.95+deb12-cloud-amd64",
    ] {
        assert!(matches(release), "{release}");
    }
    for release in ["5.10.0-30-amd64", "6.0.3", "6.13.1", "6.120.1", "7.1.0"] {
        assert!(!matches(release), "{release}");
    }
}
