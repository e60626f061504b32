//! Paths, messages and varints by themselves.

use towline_wire::Reader;

use crate::caps::{
    MAX_ITEMS_PER_MESSAGE, MAX_MESSAGE_BYTES, MAX_NAME_BYTES, MAX_PATH_DEPTH, MAX_TEXT_BYTES,
};
use crate::encoding::{put_varint, varint4};
use crate::message::{
    Answer, Entry, FileFacts, FolderFacts, Message, Modified, Reason, Refusal, read_message,
};
use crate::path::{LinkTarget, RelativePath, printable};

fn path(text: &str) -> RelativePath {
    RelativePath::parse(text.as_bytes()).unwrap()
}

#[test]
fn ordinary_and_odd_paths_are_accepted() {
    for good in [
        "a",
        "a/b",
        "...",
        "..a",
        "a..",
        "C:\\x",
        "CON",
        "a b",
        "-rf",
        ".hidden",
        "\u{1f600}",
    ] {
        assert_eq!(
            RelativePath::parse(good.as_bytes()).map(|path| path.as_bytes().to_vec()),
            Ok(good.into())
        );
    }
    assert!(
        RelativePath::parse(b"\xff\xfe/\x01").is_ok(),
        "names are bytes"
    );
    assert!(RelativePath::parse(&vec![b'a'; MAX_NAME_BYTES]).is_ok());
}

#[test]
fn paths_that_leave_or_confuse_the_destination_are_refused() {
    let long_name = "a".repeat(MAX_NAME_BYTES + 1);
    let deep = vec!["a"; MAX_PATH_DEPTH + 1].join("/");
    let long = vec!["a".repeat(200); 21].join("/");
    for bad in [
        "",
        "/",
        "/a",
        "a/",
        "a//b",
        ".",
        "..",
        "a/..",
        "../a",
        "a/./b",
        "a\0b",
        ".towline-part",
        ".towline-part/a",
    ]
    .into_iter()
    .chain([long_name.as_str(), deep.as_str(), long.as_str()])
    {
        assert!(
            RelativePath::parse(bad.as_bytes()).is_err(),
            "{bad:?} must be refused"
        );
    }
}

#[test]
fn a_joined_path_is_checked_again() {
    let deep = path(&vec!["a"; MAX_PATH_DEPTH].join("/"));
    assert!(path("b").below(Some(&deep)).is_err());
    assert_eq!(path("b/c").below(Some(&path("a"))), Ok(path("a/b/c")));
}

#[test]
fn a_link_may_lead_to_places_within_the_destination_only() {
    let stays = |place: &str, target: &str| {
        let target = LinkTarget::parse(target.as_bytes()).unwrap();
        target.stays_inside(&path(place))
    };
    for (place, target) in [
        ("l", "file"),
        ("l", "folder/file"),
        ("l", "."),
        ("l", "./file"),
        ("l", "folder/"),
        ("l", "folder//./file"),
        ("l", "..."),
        ("l", "missing/thing"),
        ("a/l", ".."),
        ("a/l", "../file"),
        ("a/b/l", ".././../x/..y"),
        ("a/b/l", "../.."),
    ] {
        assert!(stays(place, target), "{place} -> {target}");
    }
    for (place, target) in [
        ("l", "/"),
        ("l", "/etc/passwd"),
        ("l", "//etc/passwd"),
        ("l", ".."),
        ("l", "./.."),
        ("l", "../x"),
        ("a/l", "../.."),
        ("a/l", ".././../x"),
        ("a/b/l", "../../../x"),
        // `..` behind a name leads up from wherever a link of that name leads.
        ("a/b/l", "name/.."),
        ("a/b/l", "../name/../x"),
        ("l", "name/../../x"),
        ("l", ".towline-part/x"),
        ("a/l", "../.towline-part/x"),
    ] {
        assert!(!stays(place, target), "{place} -> {target}");
    }
    for target in [&b""[..], b"a\0b", &[b'a'; 4096]] {
        assert!(LinkTarget::parse(target).is_err());
    }
}

#[test]
fn a_mode_has_permission_bits_only() {
    let entry = |mode: u16| {
        let mut body = vec![1, 1, b'd'];
        body.extend_from_slice(&mode.to_be_bytes());
        body.extend_from_slice(&[0; 12]);
        Message::decode(0x10, &body)
    };
    assert!(entry(0o777).is_ok());
    for mode in [0o1777, 0o2755, 0o4755, 0o10_000, 0xffff] {
        assert!(entry(mode).is_err(), "{mode:o}");
    }
}

#[test]
fn control_characters_never_reach_the_terminal() {
    assert_eq!(printable(b"a\x1b[31mb\n"), "a\\u{1b}[31mb\\n");
    assert!(!path("x\x1b[2J").to_string().contains('\x1b'));
}

#[test]
fn varints_are_those_of_quic() {
    for value in [
        0,
        63,
        64,
        16_383,
        16_384,
        (1 << 30) - 1,
        1 << 30,
        (1 << 62) - 1,
    ] {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, value);
        assert_eq!(Reader::new(&bytes).varint(), Ok(value));
    }
    assert_eq!(Reader::new(&varint4(131_068)).varint(), Ok(131_068));
}

fn samples() -> Vec<Message> {
    let modified = Modified {
        seconds: -5,
        nanoseconds: 999_999_999,
    };
    let facts = FileFacts {
        size: 1 << 40,
        modified,
        mode: 0o640,
    };
    vec![
        Message::Open {
            session: 7,
            path: None,
        },
        Message::Open {
            session: u64::MAX >> 2,
            path: Some(path("some/where")),
        },
        Message::Accept,
        Message::Entries(vec![
            Entry::Folder {
                path: path("folder"),
                facts: FolderFacts {
                    modified,
                    mode: 0o750,
                },
            },
            Entry::File {
                path: path("folder/file"),
                facts,
            },
            Entry::Link {
                path: path("folder/link"),
                target: LinkTarget::parse(b"../folder").unwrap(),
            },
            Entry::EndOfFolder,
            Entry::LeftOut {
                path: "folder/socket".into(),
                refusal: Refusal::new(Reason::Special, "a socket"),
            },
        ]),
        Message::EndOfList {
            entries: 5,
            bytes: 1 << 40,
        },
        Message::Answers(vec![
            (0, Answer::Skip { is_wider: false }),
            (4, Answer::Skip { is_wider: true }),
            (2, Answer::Made),
            (
                1,
                Answer::Want {
                    have: 0,
                    hash: None,
                    only_if_identical: false,
                    is_wider: false,
                },
            ),
            (
                70_000,
                Answer::Want {
                    have: 9,
                    hash: Some([3; 32]),
                    only_if_identical: true,
                    is_wider: true,
                },
            ),
            (3, Answer::Refuse(Refusal::new(Reason::Exists, "why"))),
        ]),
        Message::Results(vec![
            (0, Ok(())),
            (1, Err(Refusal::new(Reason::Other(999), ""))),
        ]),
        Message::Done { cpu_micros: 5 },
        Message::Fatal(Refusal::new(Reason::DiskFull, "full")),
    ]
}

#[tokio::test]
async fn every_message_survives_its_encoding() {
    let mut stream = Vec::new();
    for message in samples() {
        stream.extend_from_slice(&message.encode());
    }
    let mut stream = &stream[..];
    for message in samples() {
        assert_eq!(read_message(&mut stream).await.unwrap(), Some(message));
    }
    assert_eq!(read_message(&mut stream).await.unwrap(), None);
}

#[tokio::test]
async fn truncated_and_mutated_messages_never_panic() {
    for message in samples() {
        let bytes = message.encode();
        for cut in 0..bytes.len() {
            let _ = read_message(&mut &bytes[..cut]).await;
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut mutated = bytes.clone();
                mutated[at] ^= 1 << bit;
                let _ = read_message(&mut &mutated[..]).await;
            }
        }
    }
}

#[test]
fn a_full_batch_with_the_longest_words_fits_into_a_message() {
    let refusal = Refusal::new(Reason::Io, "x".repeat(2 * MAX_TEXT_BYTES));
    let results = (0..MAX_ITEMS_PER_MESSAGE as u64)
        .map(|index| (index | 1 << 40, Err(refusal.clone())))
        .collect();
    assert!(Message::Results(results).encode().len() <= MAX_MESSAGE_BYTES);
}

#[test]
fn reasons_keep_their_numbers() {
    for code in 1..=15 {
        let reason = Reason::from_code(code);
        assert!(!matches!(reason, Reason::Other(_)));
        assert_eq!(reason.code(), code);
    }
    assert_eq!(Reason::from_code(99), Reason::Other(99));
}

#[test]
fn an_explanation_over_512_bytes_is_refused_and_ours_are_cut() {
    let mut body = Vec::new();
    put_varint(&mut body, Reason::Io.code());
    put_varint(&mut body, MAX_TEXT_BYTES as u64 + 1);
    body.resize(body.len() + MAX_TEXT_BYTES + 1, b'x');
    assert!(Message::decode(0x30, &body).is_err());
    let long = "\u{e9}".repeat(MAX_TEXT_BYTES);
    let cut = Message::Fatal(Refusal::new(Reason::Io, long)).encode();
    let mut reader = Reader::new(&cut);
    let (kind, length) = (reader.varint().unwrap(), reader.varint().unwrap());
    assert!(length <= MAX_TEXT_BYTES as u64 + 3);
    assert!(Message::decode(kind, reader.rest()).is_ok());
}
