//! Every committed fuzz input, replayed: what once broke an engine stays harmless.

#![expect(
    clippy::print_stdout,
    reason = "says what is skipped, and which input fails"
)]

use std::path::Path;

use towline_lab::fuzz::{TARGETS, Target};

fn replay(target: &Target) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target.name);
    let Ok(entries) = std::fs::read_dir(&corpus) else {
        println!("SKIPPED fuzz corpus {}: there is none", target.name);
        return;
    };
    let mut inputs: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    inputs.sort();
    assert!(!inputs.is_empty(), "{} is empty", corpus.display());
    for path in inputs {
        // The output is shown only where the target panics, and then names the input.
        println!("{}", path.display());
        (target.run)(&std::fs::read(&path).unwrap());
    }
}

#[test]
fn packet_corpus_is_harmless() {
    replay(TARGETS.iter().find(|t| t.name == "packet").unwrap());
}

#[test]
fn frame_corpus_is_harmless() {
    replay(TARGETS.iter().find(|t| t.name == "frame").unwrap());
}

#[test]
fn message_corpus_is_harmless() {
    replay(TARGETS.iter().find(|t| t.name == "message").unwrap());
}

#[cfg(debug_assertions)]
#[test]
fn connection_corpus_is_harmless() {
    replay(TARGETS.iter().find(|t| t.name == "connection").unwrap());
}

#[test]
fn agent_corpus_is_harmless() {
    replay(TARGETS.iter().find(|t| t.name == "agent").unwrap());
}

#[test]
fn http3_frames_capsules_corpus_is_harmless() {
    replay(
        TARGETS
            .iter()
            .find(|t| t.name == "http3_frames_capsules")
            .unwrap(),
    );
}

#[test]
fn http3_server_corpus_is_harmless() {
    replay(TARGETS.iter().find(|t| t.name == "http3_server").unwrap());
}

#[test]
fn link_codec_corpus_is_harmless() {
    replay(TARGETS.iter().find(|t| t.name == "link_codec").unwrap());
}

#[test]
fn link_messages_corpus_is_harmless() {
    replay(TARGETS.iter().find(|t| t.name == "link_messages").unwrap());
}

#[test]
fn link_spool_corpus_is_harmless() {
    replay(TARGETS.iter().find(|t| t.name == "link_spool").unwrap());
}

#[test]
fn qpack_decoder_corpus_is_harmless() {
    replay(TARGETS.iter().find(|t| t.name == "qpack_decoder").unwrap());
}
