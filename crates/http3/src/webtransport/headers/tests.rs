use super::*;

fn list(lines: &[&str]) -> Vec<String> {
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append(AVAILABLE, HeaderValue::from_str(line).unwrap());
    }
    available(&headers)
}

#[test]
fn a_list_of_strings_is_read_and_anything_else_is_no_list() {
    let cases: [(&[&str], &[&str]); 14] = [
        (&[r#""a""#], &["a"]),
        (&[r#""a", "b""#, r#""c""#], &["a", "b", "c"]),
        (&[r#""a"  ,	"b""#], &["a", "b"]),
        (&[r#""a";q=1;x, "b";v="d,e";w=?0"#], &["a", "b"]),
        (&[r#""say \"x\\\"""#], &[r#"say "x\""#]),
        (&["", r#""a""#], &["a"]),
        (&["token"], &[]),
        (&[r#""a", token"#], &[]),
        (&[r#""a","#], &[]),
        (&[r#""a" "b""#], &[]),
        (&[r#"("a" "b")"#], &[]),
        (&[r#""a"#], &[]),
        (&[r#""a\x""#], &[]),
        (&["\"\u{e9}\""], &[]),
    ];
    for (lines, names) in cases {
        assert_eq!(list(lines), names, "{lines:?}");
    }
}

/// Each is three bytes on the wire and many times as many in memory.
#[test]
fn a_list_of_more_than_1024_protocols_counts_as_none() {
    let line = |count| vec![r#""""#; count].join(",");
    assert_eq!(list(&[&line(MAX_PROTOCOLS)]).len(), MAX_PROTOCOLS);
    assert!(list(&[&line(MAX_PROTOCOLS + 1)]).is_empty());
    let half = line(MAX_PROTOCOLS / 2 + 1);
    assert!(list(&[&half, &half]).is_empty());
}

#[test]
fn the_chosen_protocol_is_one_string() {
    let read = |lines: &[&str]| {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(CHOSEN, HeaderValue::from_str(line).unwrap());
        }
        chosen(&headers)
    };
    assert_eq!(read(&[r#""v2";q=1"#]), Some("v2".to_owned()));
    for lines in [&[][..], &["v2"], &[r#""a", "b""#], &[r#""a""#, r#""b""#]] {
        assert_eq!(read(lines), None, "{lines:?}");
    }
}

#[test]
fn names_are_quoted_so_that_they_read_the_same() {
    let names = ["v1", r#"a "b" \c"#, "d,e;f"];
    let mut headers = HeaderMap::new();
    set_available(&mut headers, &names).unwrap();
    assert_eq!(available(&headers), names);
    set_chosen(&mut headers, names[1]).unwrap();
    assert_eq!(chosen(&headers).as_deref(), Some(names[1]));
    assert!(set_chosen(&mut headers, "\u{e9}").is_err());
    assert!(set_available(&mut headers, &["a\n"]).is_err());
    let mut none = HeaderMap::new();
    set_available(&mut none, &[]).unwrap();
    assert!(none.is_empty());
}
