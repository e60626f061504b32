use super::{Finder, bugs, head, patched_files, verdict_of_swarm, verdict_of_test};

const PATCH: &str = "\
what: a lost FIN is not sent again
test: towline-quic loss lost_fin_is_sent_again
seeds: 10 200

diff --git a/crates/quic/src/x.rs b/crates/quic/src/x.rs
--- a/crates/quic/src/x.rs
+++ b/crates/quic/src/x.rs
@@ -1 +1 @@
-a
+b
";

#[test]
fn the_head_of_a_patch_says_what_it_breaks_and_who_finds_it() {
    let (what, finders) = head(PATCH).unwrap();
    assert_eq!(what, "a lost FIN is not sent again");
    let test = Finder::Test {
        package: "towline-quic".to_owned(),
        target: "loss".to_owned(),
        name: "lost_fin_is_sent_again".to_owned(),
    };
    let seeds = Finder::Seeds {
        start: 10,
        count: 200,
    };
    assert_eq!(seeds.to_string(), "seeds 10 to 209 of the swarm");
    assert_eq!(finders, [test, seeds]);
    assert_eq!(
        patched_files(PATCH).collect::<Vec<_>>(),
        ["crates/quic/src/x.rs"]
    );
}

#[test]
fn a_patch_that_nobody_looks_for_is_refused() {
    for (text, part) in [
        ("what: something\n", "names no"),
        ("test: towline-quic loss name\n", "what:"),
        (
            "what: something\ntest: towline-quic\n",
            "is not what, test or seeds",
        ),
        ("what: something\nseeds: 1 many\n", "no number"),
        ("what: something\nfound by: luck\n", "is not what"),
    ] {
        let error = head(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn every_patch_of_the_tree_has_a_good_head() {
    assert!(bugs(&[]).unwrap().len() >= 7);
}

#[test]
fn a_test_that_was_not_run_is_not_taken_for_a_verdict() {
    let failed = "test a::b ... FAILED\nthread 'a::b' (7) panicked at src/a.rs:1:2:\n  left: 3\n";
    assert_eq!(
        verdict_of_test(failed, "a::b").unwrap().as_deref(),
        Some("src/a.rs:1:2: left: 3")
    );
    assert_eq!(verdict_of_test("test a::b ... ok\n", "a::b"), Ok(None));
    assert!(verdict_of_test("running 0 tests\n", "a::b").is_err());
    assert!(verdict_of_test(failed, "a::c").is_err());
}

#[test]
fn the_first_failing_seed_is_the_swarms_verdict() {
    let failed = "make sim SEED=7 features 0x1 [Loss]\n  I2 liveness at 3 s: stuck\nsim: 6 passed, 1 failed\n";
    assert_eq!(
        verdict_of_swarm(failed).unwrap().as_deref(),
        Some("make sim SEED=7: I2 liveness at 3 s: stuck")
    );
    assert_eq!(verdict_of_swarm("sim: 200 passed, 0 failed\n"), Ok(None));
    assert!(verdict_of_swarm("killed\n").is_err());
}
