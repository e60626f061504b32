use super::*;

fn words(line: &str) -> impl Iterator<Item = String> {
    line.split(' ')
        .map(str::to_owned)
        .collect::<Vec<_>>()
        .into_iter()
}

#[test]
fn client_arguments_are_read_in_any_order() {
    let line = "client --out o --key-update /a --addr 127.0.0.1:4433 --ca ca.pem /b";
    let Ok(Role::Client(client)) = Role::parse(words(line)) else {
        panic!("not a client");
    };
    assert_eq!(client.paths, ["/a", "/b"]);
    assert!(client.key_update && !client.chacha20 && !client.expect_retry);
    assert_eq!(client.server_name, "localhost");
}

#[test]
fn an_unknown_or_cut_off_argument_is_an_error() {
    assert!(Role::parse(words("server --colour blue")).is_err());
    assert!(Role::parse(words("client --addr")).is_err());
    assert!(Role::parse(words("client --addr 127.0.0.1:1")).is_err());
    assert!(Role::parse(words("dance")).is_err());
}

#[test]
fn a_request_never_leaves_the_root() {
    let root = Path::new("/srv");
    assert_eq!(
        requested_file(root, b"GET /a/b\r\n"),
        Some(PathBuf::from("/srv/a/b"))
    );
    for request in [
        &b"GET /../secret\r\n"[..],
        b"GET //etc/passwd\r\n",
        b"GET /\r\n",
        b"POST /a\r\n",
        b"GET /\xff\r\n",
        b"",
    ] {
        assert_eq!(requested_file(root, request), None, "{request:?}");
    }
}

#[test]
fn a_summary_survives_the_trip_through_json() {
    let summary = Summary {
        resumed: Some(true),
        moved: Some(false),
        ecn: None,
        reliable_size: Some(RELIABLE),
        ok: true,
        files: 2,
        bytes: 10_000_000,
        key_updates: Some(1),
        key_updates_begun: None,
        cipher: "TLS_CHACHA20_POLY1305_SHA256".to_owned(),
        retried: Some(false),
        error: None,
    };
    assert_eq!(Summary::from_json(&summary.to_json()), Some(summary));
    assert_eq!(Summary::from_json("listening 127.0.0.1:1"), None);
}
