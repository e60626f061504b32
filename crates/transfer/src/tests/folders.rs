//! Modes of folders, and what is kept beside the files until they are whole.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::world::{Run, Scratch, contents_of, noise};
use crate::caps::MAX_PATH_DEPTH;
use crate::claims::SessionHandle;
use crate::message::{FileFacts, Modified, Reason};
use crate::path::{PART_FOLDER, RelativePath};
use crate::progress::Progress;
use crate::store::{Store, StorePolicy};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A folder that its owner may not write to, with a file of that length, and one beside it.
fn narrow(scratch: &Scratch, length: usize) -> Vec<crate::walk::Root> {
    scratch.write("from/narrow/file", &noise(1, length));
    scratch.write("from/narrow/other", b"x");
    set_mode(&scratch.path("from/narrow"), 0o555);
    contents_of(&scratch.path("from"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_gets_its_narrow_mode_when_everything_in_it_arrived() {
    let scratch = Scratch::new();
    let (_, received) = Run::of(narrow(&scratch, 3_000_000))
        .into(&scratch.path("to"))
        .await;
    assert!(received.report.is_whole());
    assert_eq!(mode(&scratch.path("to/narrow")), 0o555);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_keeps_its_owners_rights_when_a_file_in_it_was_damaged_on_the_way() {
    let scratch = Scratch::new();
    let mut run = Run::of(narrow(&scratch, 500_000));
    run.spoil = Some(250_000);
    run.lanes = 1;
    let (_, received) = run.into(&scratch.path("to")).await;
    assert_eq!(received.report.failed, 1);
    assert_eq!(mode(&scratch.path("to/narrow")), 0o755);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_keeps_its_owners_rights_when_a_file_in_it_is_refused() {
    let scratch = Scratch::new();
    let mut run = Run::of(narrow(&scratch, 2000));
    run.policy.max_file_size = Some(1000);
    let (_, received) = run.into(&scratch.path("to")).await;
    assert_eq!(received.report.failed, 1);
    assert_eq!(mode(&scratch.path("to/narrow")), 0o755);
    // The next run can write there, and it is what it should be.
    let (_, received) = Run::of(contents_of(&scratch.path("from")))
        .into(&scratch.path("to"))
        .await;
    assert!(received.report.is_whole());
    assert_eq!(mode(&scratch.path("to/narrow")), 0o555);
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_above_a_refused_folder_keep_their_owners_rights() {
    let scratch = Scratch::new();
    scratch.write("from/top/narrow/sub/file", b"x");
    set_mode(&scratch.path("from/top/narrow"), 0o555);
    set_mode(&scratch.path("from/top"), 0o555);
    // So deep that there is room for two folders, and `sub` is the third.
    let deep = vec!["p"; MAX_PATH_DEPTH - 2].join("/");
    let mut run = Run::of(contents_of(&scratch.path("from")));
    run.prefix = Some(deep.clone().leak());
    let (_, received) = run.into(&scratch.path("to")).await;
    assert_eq!(received.report.failed, 2);
    for folder in ["top", "top/narrow"] {
        let folder = scratch.path("to").join(&deep).join(folder);
        assert_eq!(mode(&folder), 0o755, "{}", folder.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_session_leaves_no_folder_wider_for_good() {
    let scratch = Scratch::new();
    scratch.write("from/private/big", &noise(3, 24 << 20));
    set_mode(&scratch.path("from/private"), 0o500);
    let roots = || contents_of(&scratch.path("from"));
    let mut run = Run::of(roots());
    run.cut_after = Some(9 << 20);
    run.limit = Some(100 << 20);
    run.into(&scratch.path("to")).await;
    assert_eq!(mode(&scratch.path("to/private")), 0o700);
    // Another sender's folder of that name does not open it.
    scratch.write("other/private/more", b"x");
    set_mode(&scratch.path("other/private"), 0o777);
    let other = contents_of(&scratch.path("other"));
    Run::of(other).into(&scratch.path("to")).await;
    assert_eq!(mode(&scratch.path("to/private")), 0o700);
    let (_, received) = Run::of(roots()).into(&scratch.path("to")).await;
    assert!(received.report.is_whole());
    assert_eq!(mode(&scratch.path("to/private")), 0o500);
    // What somebody makes of it from then on is his.
    set_mode(&scratch.path("to/private"), 0o750);
    Run::of(roots()).into(&scratch.path("to")).await;
    assert_eq!(mode(&scratch.path("to/private")), 0o750);
    let left = fs::read_dir(scratch.path("to").join(PART_FOLDER)).unwrap();
    assert_eq!(left.count(), 0);
}

/// The part file of a destination.
fn part_in(folder: &Path) -> PathBuf {
    fs::read_dir(folder.join(PART_FOLDER))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|it| it == "part"))
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_there_already_with_a_wider_mode_is_named_and_overwriting_narrows_it() {
    let scratch = Scratch::new();
    for (name, length) in [("empty", 0), ("same-time", 2000), ("compared", 2000)] {
        scratch.with_mode(&format!("from/{name}"), &noise(1, length), 0o644);
    }
    let roots = || contents_of(&scratch.path("from"));
    Run::of(roots()).into(&scratch.path("to")).await;
    for name in ["empty", "same-time", "compared"] {
        set_mode(&scratch.path("from").join(name), 0o600);
    }
    scratch.with_mode("from/compared", &noise(1, 2000), 0o600);
    for overwrite in [false, true] {
        let mut run = Run::of(roots());
        run.policy.overwrite = overwrite;
        let (sent, received) = run.into(&scratch.path("to")).await;
        let mode = mode(&scratch.path("to/same-time"));
        for report in [&sent.ended.report, &received.report] {
            assert!(report.is_whole() && report.skipped == 3, "{report:?}");
            let mut names = report.wider_names.clone();
            names.sort();
            match overwrite {
                false => assert_eq!(names, ["compared", "empty", "same-time"]),
                true => assert!(names.is_empty(), "{names:?}"),
            }
            assert_eq!(report.wider, names.len() as u64);
        }
        assert_eq!(mode, if overwrite { 0o600 } else { 0o644 });
    }
    for name in ["empty", "compared"] {
        assert_eq!(mode(&scratch.path("to").join(name)), 0o600, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_of_unfinished_files_that_others_may_use_is_not_trusted() {
    let scratch = Scratch::new();
    let parts = scratch.path("to").join(PART_FOLDER);
    fs::create_dir_all(&parts).unwrap();
    set_mode(&parts, 0o777);
    Store::open(&scratch.path("to"), StorePolicy::default()).unwrap();
    assert_eq!(mode(&parts), 0o700);
    match chown(&parts, Some(65_534), None) {
        Err(error) => eprintln!("skipped: a folder cannot be given away here: {error}"),
        Ok(()) => {
            let opened = Store::open(&scratch.path("to"), StorePolicy::default());
            let error = opened.err().expect("another user's folder is used");
            assert!(error.to_string().contains("another user"), "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_is_continued_is_private_again() {
    let scratch = Scratch::new();
    scratch.write("from/big", &noise(3, 24 << 20));
    let roots = || contents_of(&scratch.path("from"));
    let cut = |bytes| {
        let mut run = Run::of(roots());
        run.cut_after = Some(bytes);
        run.limit = Some(100 << 20);
        run
    };
    cut(5 << 20).into(&scratch.path("to")).await;
    let part = part_in(&scratch.path("to"));
    set_mode(&part, 0o644);
    cut(5 << 20).into(&scratch.path("to")).await;
    assert_eq!(mode(&part), 0o600);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_another_users_or_with_another_name_is_made_anew() {
    let scratch = Scratch::new();
    let data = noise(3, 24 << 20);
    scratch.write("from/big", &data);
    let elsewhere = scratch.path("elsewhere");
    for is_linked in [true, false] {
        let mut run = Run::of(contents_of(&scratch.path("from")));
        run.cut_after = Some(5 << 20);
        run.limit = Some(100 << 20);
        run.into(&scratch.path("to")).await;
        let part = part_in(&scratch.path("to"));
        if is_linked {
            fs::hard_link(&part, &elsewhere).unwrap();
        } else if let Err(error) = chown(&part, Some(65_534), None) {
            eprintln!("skipped: a file cannot be given away here: {error}");
            return;
        }
        let before = fs::metadata(&part).unwrap().len();
        let (_, received) = Run::of(contents_of(&scratch.path("from")))
            .into(&scratch.path("to"))
            .await;
        assert!(received.report.is_whole());
        assert_eq!(received.report.resumed, 0);
        assert_eq!(fs::read(scratch.path("to/big")).unwrap(), data);
        assert_eq!(
            mode(&scratch.path("to/big")),
            mode(&scratch.path("from/big"))
        );
        if is_linked {
            assert_eq!(fs::metadata(&elsewhere).unwrap().len(), before);
        }
        fs::remove_file(scratch.path("to/big")).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_was_swapped_is_not_put_in_place() {
    let scratch = Scratch::new();
    let store = Store::open(&scratch.path("to"), StorePolicy::default()).unwrap();
    let session = SessionHandle::new(Arc::new(Progress::new()));
    let facts = FileFacts {
        size: 4,
        modified: Modified {
            seconds: 1_600_000_000,
            nanoseconds: 0,
        },
        mode: 0o644,
    };
    let path = RelativePath::parse(b"file").unwrap();
    let (_, wanted) = store.prepare(path, facts, None, &session);
    let mut writing = store.begin(wanted.unwrap(), 0).unwrap();
    writing.write(b"data").unwrap();
    let other = scratch.write("other", b"evil");
    fs::rename(other, part_in(&scratch.path("to"))).unwrap();
    let refusal = writing
        .finish(blake3::hash(b"data").as_bytes())
        .unwrap_err();
    assert_eq!(refusal.reason, Reason::Io, "{refusal}");
    assert!(!scratch.path("to/file").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_named_like_that_of_unfinished_files_is_sent_below_the_top() {
    let scratch = Scratch::new();
    scratch.write("from/deep/.towline-part/mine", b"x");
    scratch.write("from/.towline-part/not-mine", b"x");
    let (_, received) = Run::of(contents_of(&scratch.path("from")))
        .into(&scratch.path("to"))
        .await;
    assert_eq!(received.report.files, 1);
    assert!(scratch.path("to/deep/.towline-part/mine").exists());
    assert!(!scratch.path("to/.towline-part/not-mine").exists());
}
