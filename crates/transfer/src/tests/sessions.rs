//! Whole sessions between an honest sender and an honest receiver.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::world::{Run, Scratch, contents_of, control, listing, memory_lanes, named, noise};
use crate::caps::MAX_SENT_TWICE;
use crate::message::Reason;
use crate::path::PART_FOLDER;
use crate::progress::Progress;
use crate::receive::receive;
use crate::report::SessionError;
use crate::store::{Store, StorePolicy};

const OVERWRITE: StorePolicy = StorePolicy {
    overwrite: true,
    check: false,
    max_file_size: None,
};

/// Another modification time than anything written now.
fn set_old(file: &Path) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    fs::File::options()
        .write(true)
        .open(file)
        .unwrap()
        .set_modified(time)
        .unwrap();
}

fn set_folder_old(folder: &Path) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    fs::File::open(folder).unwrap().set_modified(time).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn failures(report: &crate::report::Report) -> Vec<Reason> {
    report
        .failures
        .iter()
        .map(|failed| failed.refusal.reason)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_folders_and_links_arrive_whole_with_times_and_modes() {
    let scratch = Scratch::new();
    for (number, length) in [
        0, 1, 4095, 4096, 131_068, 131_072, 131_073, 300_000, 3_000_000,
    ]
    .into_iter()
    .enumerate()
    {
        scratch.write(
            &format!("from/sizes/{length}"),
            &noise(number as u64, length),
        );
    }
    scratch.with_mode("from/bin/tool", b"#!/bin/sh\n", 0o755);
    scratch.with_mode("from/private/key", b"secret", 0o600);
    symlink("../bin/tool", scratch.path("from/private/link")).unwrap();
    symlink("nowhere", scratch.path("from/dangling")).unwrap();
    scratch.write("from/odd names/C:\\x: y\tz", b"fine here");
    fs::create_dir_all(scratch.path("from/empty/folder")).unwrap();
    for (folder, mode) in [("private", 0o700), ("empty", 0o555), ("sizes", 0o750)] {
        let path = scratch.path("from").join(folder);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        set_folder_old(&path);
    }
    let (sent, received) = Run::of(contents_of(&scratch.path("from")))
        .into(&scratch.path("to"))
        .await;
    assert!(sent.ended.error.is_none(), "{:?}", sent.ended.error);
    assert!(received.error.is_none(), "{:?}", received.error);
    assert_eq!((sent.ended.report.files, sent.ended.report.links), (12, 2));
    assert_eq!((received.report.files, received.report.links), (12, 2));
    assert_eq!(listing(&scratch.path("from")), listing(&scratch.path("to")));
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_small_files_arrive_over_one_lane_and_over_many() {
    let scratch = Scratch::new();
    for number in 0..3000u64 {
        let length = (number * 37 % 5000) as usize;
        scratch.write(
            &format!("from/{}/{number}", number % 40),
            &noise(number, length),
        );
    }
    for lanes in [1, 8] {
        let out = scratch.path(&format!("to{lanes}"));
        let mut run = Run::of(contents_of(&scratch.path("from")));
        run.lanes = lanes;
        let (sent, received) = run.into(&out).await;
        assert!(sent.ended.error.is_none() && received.error.is_none());
        assert_eq!(received.report.files, 3000);
        assert_eq!(listing(&scratch.path("from")), listing(&out));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_run_moves_nothing() {
    let scratch = Scratch::new();
    scratch.write("from/a", &noise(1, 10_000));
    scratch.write("from/b/c", &noise(2, 2_000_000));
    Run::of(contents_of(&scratch.path("from")))
        .into(&scratch.path("to"))
        .await;
    let (sent, received) = Run::of(contents_of(&scratch.path("from")))
        .into(&scratch.path("to"))
        .await;
    assert_eq!((sent.ended.report.skipped, received.report.skipped), (2, 2));
    assert_eq!(received.report.bytes_moved, 0);
    assert!(sent.ended.report.is_whole() && received.report.is_whole());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_file_goes_on_where_it_stopped() {
    let scratch = Scratch::new();
    let data = noise(3, 24 << 20);
    scratch.write("from/big", &data);
    let mut run = Run::of(contents_of(&scratch.path("from")));
    run.cut_after = Some(9 << 20);
    run.limit = Some(100 << 20);
    let (first_sent, received) = run.into(&scratch.path("to")).await;
    assert!(matches!(received.error, Some(SessionError::Cancelled)));
    assert!(first_sent.ended.error.is_some());
    assert!(
        !scratch.path("to/big").exists(),
        "a partial file must not look whole"
    );

    let (second_sent, received) = Run::of(contents_of(&scratch.path("from")))
        .into(&scratch.path("to"))
        .await;
    assert!(received.error.is_none());
    assert_eq!(received.report.resumed, 1);
    assert_eq!(second_sent.ended.report.resumed, 1);
    assert_eq!(fs::read(scratch.path("to/big")).unwrap(), data);
    let moved = first_sent.ended.report.bytes_moved + second_sent.ended.report.bytes_moved;
    assert!(
        moved <= data.len() as u64 + MAX_SENT_TWICE,
        "{moved} bytes moved for {}",
        data.len()
    );
    assert_eq!(
        fs::read_dir(scratch.path("to").join(PART_FOLDER))
            .unwrap()
            .count(),
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_part_file_is_noticed_before_anything_is_sent_on_top() {
    let scratch = Scratch::new();
    let data = noise(4, 12 << 20);
    scratch.write("from/big", &data);
    let mut run = Run::of(contents_of(&scratch.path("from")));
    run.cut_after = Some(5 << 20);
    run.limit = Some(100 << 20);
    run.into(&scratch.path("to")).await;
    let part = fs::read_dir(scratch.path("to").join(PART_FOLDER))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| {
            path.extension()
                .is_some_and(|extension| extension == "part")
        })
        .unwrap();
    let mut partial = fs::read(&part).unwrap();
    partial[1000] ^= 1;
    fs::write(&part, partial).unwrap();

    let (_, received) = Run::of(contents_of(&scratch.path("from")))
        .into(&scratch.path("to"))
        .await;
    assert!(received.error.is_none() && received.report.is_whole());
    assert_eq!(received.report.resumed, 0);
    assert_eq!(fs::read(scratch.path("to/big")).unwrap(), data);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_another_version_of_the_file_is_not_resumed() {
    let scratch = Scratch::new();
    scratch.write("from/big", &noise(5, 8 << 20));
    let mut run = Run::of(contents_of(&scratch.path("from")));
    run.cut_after = Some(4 << 20);
    run.limit = Some(100 << 20);
    run.into(&scratch.path("to")).await;
    let data = noise(6, 8 << 20);
    let file = scratch.write("from/big", &data);
    set_old(&file);
    let (_, received) = Run::of(contents_of(&scratch.path("from")))
        .into(&scratch.path("to"))
        .await;
    assert_eq!((received.report.files, received.report.resumed), (1, 0));
    assert_eq!(fs::read(scratch.path("to/big")).unwrap(), data);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_flipped_byte_on_the_way_leaves_no_file_behind() {
    let scratch = Scratch::new();
    scratch.write("from/victim", &noise(7, 500_000));
    let mut run = Run::of(contents_of(&scratch.path("from")));
    run.spoil = Some(250_000);
    run.lanes = 1;
    let (sent, received) = run.into(&scratch.path("to")).await;
    assert_eq!(failures(&received.report), [Reason::Mismatch]);
    assert_eq!(failures(&sent.ended.report), [Reason::Mismatch]);
    assert!(!scratch.path("to/victim").exists());
    assert_eq!(
        fs::read_dir(scratch.path("to").join(PART_FOLDER))
            .unwrap()
            .count(),
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_differs_is_kept_unless_overwriting_is_allowed() {
    let scratch = Scratch::new();
    scratch.write("from/longer", b"new and longer");
    scratch.write("from/equal", b"new!");
    scratch.write("to/longer", b"old");
    set_old(&scratch.write("to/equal", b"old!"));
    let roots = || contents_of(&scratch.path("from"));
    let (sent, received) = Run::of(roots()).into(&scratch.path("to")).await;
    assert_eq!(failures(&received.report), [Reason::Exists, Reason::Exists]);
    assert_eq!(
        failures(&sent.ended.report),
        [Reason::Exists, Reason::Exists]
    );
    assert_eq!(fs::read(scratch.path("to/equal")).unwrap(), b"old!");

    let mut run = Run::of(roots());
    run.policy = OVERWRITE;
    let (_, received) = run.into(&scratch.path("to")).await;
    assert!(received.report.is_whole());
    assert_eq!(listing(&scratch.path("from")), listing(&scratch.path("to")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_in_place_with_equal_contents_and_another_time_is_left_alone() {
    let scratch = Scratch::new();
    let data = noise(8, 300_000);
    scratch.write("from/same", &data);
    let placed = scratch.write("to/same", &data);
    set_old(&placed);
    let (sent, received) = Run::of(contents_of(&scratch.path("from")))
        .into(&scratch.path("to"))
        .await;
    assert_eq!(
        (received.report.skipped, received.report.bytes_moved),
        (1, 0)
    );
    assert_eq!(sent.ended.report.skipped, 1);
    assert_eq!(listing(&scratch.path("from")), listing(&scratch.path("to")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_turns_out_to_be_the_same_is_not_counted_as_sent() {
    let scratch = Scratch::new();
    let data = noise(8, 300_000);
    scratch.write("from/same", &data);
    scratch.write("to/same", &data);
    let mut run = Run::of(contents_of(&scratch.path("from")));
    run.policy = StorePolicy {
        check: true,
        ..OVERWRITE
    };
    let (sent, received) = run.into(&scratch.path("to")).await;
    for report in [&sent.ended.report, &received.report] {
        assert_eq!((report.files, report.skipped, report.resumed), (0, 1, 0));
        assert_eq!((report.bytes, report.bytes_moved), (0, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn symlinks_in_the_destination_are_never_followed() {
    let scratch = Scratch::new();
    scratch.write("from/link/inside", b"payload");
    scratch.write("from/file", b"payload");
    fs::create_dir_all(scratch.path("elsewhere")).unwrap();
    fs::create_dir_all(scratch.path("to")).unwrap();
    symlink(scratch.path("elsewhere"), scratch.path("to/link")).unwrap();
    symlink(scratch.path("elsewhere/file"), scratch.path("to/file")).unwrap();
    let (_, received) = Run::of(contents_of(&scratch.path("from")))
        .into(&scratch.path("to"))
        .await;
    let mut reasons = failures(&received.report);
    reasons.sort();
    assert_eq!(reasons, [Reason::Exists, Reason::BadPath, Reason::BadPath]);
    assert_eq!(fs::read_dir(scratch.path("elsewhere")).unwrap().count(), 0);

    // Overwriting replaces the link itself.
    let mut run = Run::of(named(&scratch.path("from/file"), "file"));
    run.policy = OVERWRITE;
    let (_, received) = run.into(&scratch.path("to")).await;
    assert!(received.report.is_whole());
    assert!(
        fs::symlink_metadata(scratch.path("to/file"))
            .unwrap()
            .is_file()
    );
    assert_eq!(fs::read_dir(scratch.path("elsewhere")).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_out_is_named_at_both_ends() {
    let scratch = Scratch::new();
    scratch.write("from/file", b"x");
    symlink("/etc/passwd", scratch.path("from/link")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(scratch.path("from/socket")).unwrap();
    let mut roots = contents_of(&scratch.path("from"));
    roots.extend(named(&scratch.path("missing"), "missing"));
    let (sent, received) = Run::of(roots).into(&scratch.path("to")).await;
    for report in [&sent.ended.report, &received.report] {
        assert_eq!(failures(report), [Reason::Unreadable]);
        assert_eq!(report.failures[0].path, "missing");
        let mut names: Vec<_> = report
            .left_out_names
            .iter()
            .map(|it| (it.path.as_str(), it.refusal.reason))
            .collect();
        names.sort();
        assert_eq!(
            names,
            [("link", Reason::Outside), ("socket", Reason::Special)]
        );
        assert_eq!((report.left_out, report.is_whole()), (2, false));
        assert!(!report.is_as_asked(true), "one could not be read");
    }
    assert!(fs::symlink_metadata(scratch.path("to/link")).is_err());

    // Asked for, it is no failure.
    let (sent, received) = Run::of(contents_of(&scratch.path("from")))
        .into(&scratch.path("to"))
        .await;
    for report in [&sent.ended.report, &received.report] {
        assert!(report.is_as_asked(true) && !report.is_as_asked(false));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_is_made_once_and_replaces_nothing_unless_overwriting_is_allowed() {
    let scratch = Scratch::new();
    scratch.write("from/file", b"x");
    symlink("file", scratch.path("from/link")).unwrap();
    let roots = || contents_of(&scratch.path("from"));
    for _ in 0..2 {
        let (sent, received) = Run::of(roots()).into(&scratch.path("to")).await;
        assert_eq!((sent.ended.report.links, received.report.links), (1, 1));
    }
    for overwrite in [false, true] {
        fs::remove_file(scratch.path("to/link")).unwrap();
        scratch.write("to/link", b"mine");
        let mut run = Run::of(roots());
        run.policy.overwrite = overwrite;
        let (_, received) = run.into(&scratch.path("to")).await;
        assert_eq!(received.report.is_whole(), overwrite);
        let is_link = fs::symlink_metadata(scratch.path("to/link"))
            .unwrap()
            .is_symlink();
        assert_eq!(is_link, overwrite);
    }
    // A folder is never replaced.
    fs::remove_file(scratch.path("to/link")).unwrap();
    fs::create_dir(scratch.path("to/link")).unwrap();
    let mut run = Run::of(roots());
    run.policy.overwrite = true;
    let (_, received) = run.into(&scratch.path("to")).await;
    assert_eq!(failures(&received.report), [Reason::Exists]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unfinished_file_and_its_folder_are_private() {
    let scratch = Scratch::new();
    scratch.write("from/big", &noise(3, 24 << 20));
    let mut run = Run::of(contents_of(&scratch.path("from")));
    run.cut_after = Some(5 << 20);
    run.limit = Some(100 << 20);
    run.into(&scratch.path("to")).await;
    let parts = scratch.path("to").join(PART_FOLDER);
    assert_eq!(mode(&parts), 0o700);
    let files: Vec<_> = fs::read_dir(&parts).unwrap().collect();
    assert_eq!(files.len(), 2);
    for file in files {
        assert_eq!(mode(&file.unwrap().path()), 0o600);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_folder_of_unfinished_files_is_made_again() {
    let scratch = Scratch::new();
    let store = Store::open(&scratch.path("to"), StorePolicy::default()).unwrap();
    let parts = scratch.path("to").join(PART_FOLDER);
    for (round, size) in [10, 2 << 20].into_iter().enumerate() {
        scratch.write(&format!("from/{round}/file"), &noise(1, size));
        fs::remove_dir(&parts).unwrap();
        if round == 1 {
            // Somebody's link in its place is not followed, and is named.
            fs::create_dir(scratch.path("elsewhere")).unwrap();
            symlink(scratch.path("elsewhere"), &parts).unwrap();
            let run = Run::of(contents_of(&scratch.path("from")));
            let (_, received) = run.into_store(Arc::clone(&store)).await;
            assert_eq!(received.report.failed, 1);
            assert_eq!(fs::read_dir(scratch.path("elsewhere")).unwrap().count(), 0);
            fs::remove_file(&parts).unwrap();
        }
        let run = Run::of(contents_of(&scratch.path("from")));
        let (_, received) = run.into_store(Arc::clone(&store)).await;
        assert!(received.report.is_whole(), "{:?}", received.report);
    }
    // The same for a folder of the destination.
    fs::remove_dir_all(scratch.path("to/1")).unwrap();
    let run = Run::of(contents_of(&scratch.path("from")));
    let (_, received) = run.into_store(store).await;
    assert_eq!((received.report.files, received.report.failed), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_prefix_of_the_url_places_everything_below_it() {
    let scratch = Scratch::new();
    scratch.write("from/a/b", b"x");
    let mut run = Run::of(contents_of(&scratch.path("from")));
    run.prefix = Some("deep/er");
    let (_, received) = run.into(&scratch.path("to")).await;
    assert!(received.report.is_whole());
    assert_eq!(fs::read(scratch.path("to/deep/er/a/b")).unwrap(), b"x");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_size_limit_refuses_single_files() {
    let scratch = Scratch::new();
    scratch.write("from/large", &noise(1, 2000));
    scratch.write("from/small", b"x");
    let mut run = Run::of(contents_of(&scratch.path("from")));
    run.policy.max_file_size = Some(1000);
    let (sent, received) = run.into(&scratch.path("to")).await;
    assert_eq!(failures(&sent.ended.report), [Reason::TooMuch]);
    assert_eq!(received.report.files, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sender_that_comes_back_takes_over_from_its_silent_predecessor() {
    let scratch = Scratch::new();
    let data = noise(9, 6 << 20);
    scratch.write("from/big", &data);
    let out = scratch.path("to");
    let store = Store::open(&out, StorePolicy::default()).unwrap();

    // The first sender announces the file, and dies without a word once it was asked for it.
    let (mut here, there) = control();
    let (_lanes, arrivals) = memory_lanes(None);
    let cancel = tokio::sync::watch::Sender::new(false);
    let stalled = tokio::spawn(receive(
        tokio::io::split(there),
        arrivals,
        Arc::clone(&store),
        None,
        Arc::new(Progress::new()),
        cancel.subscribe(),
    ));
    super::hostile::announce(&mut here, "big", data.len() as u64).await;
    super::hostile::expect_answers(&mut here).await;

    let (second_control, second_there) = control();
    let (lanes, arrivals) = memory_lanes(None);
    let plan = crate::send::SendPlan {
        roots: contents_of(&scratch.path("from")),
        follow_links: false,
        lanes: 2,
    };
    let progress = Arc::new(Progress::new());
    let (sent, received) = tokio::join!(
        crate::send::send(
            tokio::io::split(second_control),
            lanes,
            8,
            plan,
            progress,
            cancel.subscribe()
        ),
        receive(
            tokio::io::split(second_there),
            arrivals,
            Arc::clone(&store),
            None,
            Arc::new(Progress::new()),
            cancel.subscribe()
        ),
    );
    assert!(sent.ended.error.is_none(), "{:?}", sent.ended.error);
    assert!(received.report.is_whole(), "{:?}", received.report);
    assert!(matches!(
        stalled.await.unwrap().error,
        Some(SessionError::Cancelled)
    ));
    assert_eq!(fs::read(out.join("big")).unwrap(), data);
}
