use super::*;

const HASH: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

fn path(url: &str) -> Option<String> {
    url.parse::<Url>()
        .unwrap()
        .path
        .map(|path| path.to_string())
}

#[test]
fn a_whole_url_survives_printing() {
    let text = format!("towline://boat.example:5000/a%20b/c.txt#sha256/{HASH}");
    let url: Url = text.parse().unwrap();
    assert_eq!((url.host.as_str(), url.port), ("boat.example", 5000));
    assert_eq!(
        url.path.as_ref().map(ToString::to_string).as_deref(),
        Some("a b/c.txt")
    );
    assert_eq!(url.pins.len(), 2);
    assert_eq!(url.to_string(), text);
    assert_eq!(url.to_string().parse(), Ok(url));
}

#[test]
fn several_pins_and_a_raw_key_are_said_in_the_fragment() {
    let other = HASH.replace('0', "f");
    let text = format!("towline://h:1/#sha256/{HASH}&sha256/{other}&raw-key");
    let url: Url = text.parse().unwrap();
    assert_eq!((url.pins.len(), url.raw_key), (4, true));
    assert_eq!(url.to_string(), text);
}

#[test]
fn port_path_and_pin_may_be_missing() {
    for text in ["towline://h", "towline://h/", "towline://h:4433"] {
        let url: Url = text.parse().unwrap();
        assert_eq!(
            (url.host.as_str(), url.port, url.path, url.pins.len()),
            ("h", DEFAULT_PORT, None, 0)
        );
    }
    let url: Url = "towline://[::1]:9/x".parse().unwrap();
    assert_eq!((url.host.as_str(), url.port), ("::1", 9));
    assert_eq!(url.to_string(), "towline://[::1]:9/x");
}

#[test]
fn a_trailing_slash_is_no_name() {
    assert_eq!(path("towline://h/folder/"), Some("folder".into()));
    assert_eq!(path("towline://h/"), None);
}

#[test]
fn base64_pins_with_their_slashes_are_understood() {
    let url: Url = "towline://h/#sha256/ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8="
        .parse()
        .unwrap();
    let same: Url = format!("towline://h/#sha256/{HASH}").parse().unwrap();
    assert_eq!(url.pins, same.pins);
    assert!(
        parse_pin(HASH).unwrap_err().contains("sha256/"),
        "one spelling"
    );
}

#[test]
fn what_is_not_a_url_is_explained() {
    for (text, word) in [
        ("h:4433", "not a URL"),
        ("https://h/", "not a URL"),
        ("towline://", "no host"),
        ("towline://:1", "no host"),
        ("towline://h:0", "port"),
        ("towline://h:99999", "port"),
        ("towline://::1", "brackets"),
        ("towline://[::1", "closing"),
        ("towline://h/a/../b", ".."),
        ("towline://h//etc", "absolute"),
        ("towline://h/%2e%2e/x", ".."),
        ("towline://h/%zz", "hexadecimal"),
        ("towline://h/%00", "NUL"),
        ("towline://h/#pin=1", "not understood"),
        ("towline://h/#sha256/12", "sha256"),
    ] {
        let error = text.parse::<Url>().unwrap_err();
        assert!(error.contains(word), "{text}: {error}");
    }
}

#[test]
fn a_web_url_keeps_its_target_as_written() {
    let url: WebUrl = format!("https://boat.example:4433/a%20b?x=1#sha256/{HASH}")
        .parse()
        .unwrap();
    assert_eq!(url.target, "/a%20b?x=1");
    assert_eq!(url.authority(), "boat.example:4433");
    assert_eq!((url.server.port, url.server.pins.len()), (4433, 2));
    assert_eq!(
        url.to_string(),
        format!("https://boat.example:4433/a%20b?x=1#sha256/{HASH}")
    );
    let url: WebUrl = "https://[::1]".parse().unwrap();
    assert_eq!(
        (url.target.as_str(), url.authority()),
        ("/", "[::1]".into())
    );
    assert_eq!(url.server.port, 443);
    assert!("http://h/".parse::<WebUrl>().is_err());
    assert!("https:///x".parse::<WebUrl>().is_err());
}
