use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use super::*;

/// Runs itself again, since a umask is a whole process's.
#[test]
fn what_is_installed_is_for_everybody_whatever_the_umask() {
    const FOLDER: &str = "TOWLINE_INSTALL_TEST";
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        let folder = std::env::temp_dir().join(format!("towline-umask-{}", std::process::id()));
        let test = "install::tests::what_is_installed_is_for_everybody_whatever_the_umask";
        let again = Command::new("sh")
            .args(["-c", "umask 077; exec \"$0\" --exact \"$1\""])
            .arg(std::env::current_exe().unwrap())
            .arg(test)
            .env(FOLDER, &folder)
            .output()
            .unwrap();
        let _ = fs::remove_dir_all(&folder);
        assert!(again.status.success(), "{again:?}");
        assert!(String::from_utf8_lossy(&again.stdout).contains("1 passed"));
        return;
    };
    let built = folder.join("built");
    fs::create_dir_all(&built).unwrap();
    for name in ["towline", SHIM] {
        fs::write(built.join(name), "").unwrap();
    }
    let root = folder.join("root");
    let place = Place {
        prefix: "/opt/towline".into(),
        destdir: Some(root.clone()),
    };
    place.fill(&built).unwrap();
    let mut paths = vec![root];
    let mut files = 0;
    while let Some(path) = paths.pop() {
        let metadata = fs::metadata(&path).unwrap();
        let mode = metadata.permissions().mode() & 0o777;
        if metadata.is_dir() {
            assert_eq!(mode, 0o755, "{}", path.display());
            paths.extend(fs::read_dir(&path).unwrap().map(|it| it.unwrap().path()));
        } else {
            assert_eq!(mode & 0o444, 0o444, "{}", path.display());
            files += 1;
        }
    }
    assert!(files >= 3, "{files}");
}

#[test]
fn a_unit_with_a_setting_that_systemd_does_not_know_fails() {
    if which("systemd-analyze").is_none() {
        println!("SKIPPED units: systemd-analyze is not installed");
        return;
    }
    let folder = std::env::temp_dir().join(format!("towline-units-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let unit = folder.join("towline-test.service");
    let text = "[Unit]\nDescription=x\n[Service]\nExecStart=/bin/true\n";
    fs::write(&unit, text).unwrap();
    let good = verify(&unit);
    fs::write(&unit, format!("{text}NoNewPriviledges=yes\n")).unwrap();
    let bad = verify(&unit);
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(good, Ok(()));
    assert!(bad.is_err());
}
