use std::fs;
use std::path::PathBuf;

use super::{Row, Scope, Store, bench_compare, check_name, judge, table};

/// A folder that is gone when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("towline-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("criterion")).expect("a folder");
        Self(path)
    }

    /// What criterion leaves behind of one benchmark.
    fn measured(&self, group: &str, function: &str, baseline: &str, median: f64) {
        let folder = group.replace('/', "_");
        let folder = self.0.join("criterion").join(folder).join(function);
        let folder = folder.join(baseline);
        fs::create_dir_all(&folder).expect("a folder");
        let id = format!("{{\"full_id\": \"{group}/{function}\"}}");
        fs::write(folder.join("benchmark.json"), id).expect("a file");
        let estimates = format!("{{\"median\": {{\"point_estimate\": {median}}}}}");
        fs::write(folder.join("estimates.json"), estimates).expect("a file");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn row(id: &str, base: f64, now: f64) -> Row {
    Row {
        id: id.to_owned(),
        base,
        now,
    }
}

#[test]
fn rows_are_read_from_what_criterion_keeps() {
    let folder = Folder::new("rows");
    for (baseline, median) in [("new", 3e6), ("before", 2e6)] {
        folder.measured("concurrent/streams/2", "loopback", baseline, median);
        folder.measured("streaming/throughput/4096", "virtual_1ms", baseline, 1e6);
    }
    folder.measured("streaming/throughput/4096", "virtual_50ms", "new", 1e6);
    let rows = Store::at(&folder.0).rows("before").expect("readable");
    assert_eq!(
        rows,
        [
            row("streaming/throughput/4096/virtual_1ms", 1e6, 1e6),
            row("concurrent/streams/2/loopback", 2e6, 3e6),
        ]
    );
    folder.measured("concurrent/streams/2", "loopback", "before", 0.0);
    let error = Store::at(&folder.0).rows("before").expect_err("no median");
    assert!(error.contains("estimates.json"), "{error}");
}

#[test]
fn only_virtual_time_fails_the_comparison() {
    let fine = [
        row("a/virtual_1ms", 100.0, 109.0),
        row("a/loopback", 100.0, 300.0),
    ];
    assert_eq!(judge("main", &fine), Ok(()));
    assert!(!table("main", &fine).contains("SLOWER"));
    let slow = [row("a/virtual_1ms", 100.0, 111.0)];
    let error = judge("main", &slow).expect_err("11 %");
    assert!(error.contains("a/virtual_1ms by 11.0 %"), "{error}");
    assert!(table("main", &slow).contains("+11.0 %  SLOWER"));
    assert!(judge("main", &fine[1..]).is_err(), "nothing was compared");
}

#[test]
fn a_revision_measured_on_virtual_time_alone_is_not_complete() {
    let folder = Folder::new("complete");
    let store = Store::at(&folder.0);
    assert!(!store.is_complete("rev-1", Scope::Virtual));
    store.complete("rev-1", Scope::Virtual).expect("a marker");
    assert!(store.is_complete("rev-1", Scope::Virtual));
    assert!(!store.is_complete("rev-1", Scope::Everything));
    store
        .complete("rev-1", Scope::Everything)
        .expect("a marker");
    assert!(store.is_complete("rev-1", Scope::Everything));
}

#[test]
fn names_that_are_no_folders_are_refused() {
    for name in ["before", "v0.1-rc_2"] {
        assert_eq!(check_name(name), Ok(()), "{name}");
    }
    for name in ["", "new", "..", "a/b", "a b"] {
        assert!(check_name(name).is_err(), "{name}");
    }
    for arguments in [&[][..], &["a", "b"], &["a", "--record"], &["--what"]] {
        let arguments: Vec<String> = arguments.iter().map(|a| (*a).to_owned()).collect();
        assert!(bench_compare(&arguments).is_err(), "{arguments:?}");
    }
}
