use towline_wire::http3::ErrorCode;

use super::*;

const GET: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":authority", "example.org"),
    (":path", "/a?b"),
];

fn section(kind: Kind, fields: &[(&str, &str)]) -> Section {
    let mut section = Section::new(kind);
    for (name, value) in fields {
        section.field(name.as_bytes(), value.as_bytes());
    }
    section
}

fn request(fields: &[(&str, &str)]) -> Result<Request, StreamError> {
    section(Kind::Request, fields).into_request(true)
}

/// A good request with more fields.
fn with(more: &[(&str, &str)]) -> Result<Request, StreamError> {
    request(&[&GET, more].concat())
}

/// What is wrong with a request.
fn breach(fields: &[(&str, &str)]) -> &'static str {
    let error = request(fields).expect_err("a malformed request");
    assert_eq!(error.code, ErrorCode::H3_MESSAGE_ERROR);
    error.reason
}

fn without(name: &str) -> Vec<(&'static str, &'static str)> {
    let kept = GET.into_iter().filter(|field| field.0 != name);
    kept.collect()
}

#[test]
fn a_request_becomes_a_method_a_target_and_fields() {
    let request = with(&[("accept", "a"), ("accept", "b"), ("content-length", "12")]).unwrap();
    assert_eq!(request.head.method, Method::GET);
    assert_eq!(request.head.uri, "https://example.org/a?b");
    assert_eq!(request.head.version, http::Version::HTTP_3);
    assert_eq!(request.head.headers.get_all("accept").iter().count(), 2);
    assert_eq!(request.content_length, Some(12));
    assert_eq!(request.protocol, None);
}

#[test]
fn a_request_without_a_pseudo_header_field_it_needs_is_malformed() {
    assert_eq!(breach(&without(":method")), "a request without :method");
    assert_eq!(breach(&without(":scheme")), "a request without :scheme");
    assert_eq!(breach(&without(":path")), "a request without :path");
    let reason = "a request without :authority or Host";
    assert_eq!(breach(&without(":authority")), reason);
    let mut host = without(":authority");
    host.push(("host", "example.org"));
    assert_eq!(request(&host).unwrap().head.uri, "https://example.org/a?b");
}

#[test]
fn a_pseudo_header_field_that_comes_twice_is_malformed() {
    for field in GET {
        let twice = [&GET[..], &[field]].concat();
        assert_eq!(breach(&twice), "a pseudo-header field came twice");
    }
}

#[test]
fn a_pseudo_header_field_after_others_is_malformed() {
    let mut late = without(":path");
    late.extend([("accept", "*/*"), (":path", "/")]);
    assert_eq!(breach(&late), "a pseudo-header field after other fields");
}

#[test]
fn a_pseudo_header_field_that_is_prohibited_is_malformed() {
    let reason = "a pseudo-header field that does not belong here";
    assert_eq!(with(&[(":status", "200")]).unwrap_err().reason, reason);
    assert_eq!(with(&[(":foo", "bar")]).unwrap_err().reason, reason);
    let response = section(Kind::Response, &[(":status", "200"), (":path", "/")]);
    assert_eq!(response.into_response().unwrap_err().reason, reason);
    let trailers = section(Kind::Trailers, &[(":status", "200")]);
    assert_eq!(trailers.into_trailers().unwrap_err().reason, reason);
}

#[test]
fn fields_of_an_http_1_connection_and_bad_names_and_values_are_malformed() {
    for (name, value) in [
        ("connection", "close"),
        ("keep-alive", "1"),
        ("proxy-connection", "close"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("te", "gzip"),
        ("Accept", "*/*"),
        ("sp ace", "1"),
        ("", "1"),
        ("x", "a\r\nb"),
        ("x", "a\0b"),
        ("x", " a"),
        ("x", "a\t"),
        ("content-length", "-1"),
        ("content-length", "1,1"),
        ("content-length", ""),
        ("content-length", "99999999999999999999"),
        ("host", "other.org"),
    ] {
        let error = with(&[(name, value)]).unwrap_err();
        assert_eq!(error.code, ErrorCode::H3_MESSAGE_ERROR, "{name}: {value}");
    }
    let two = [("content-length", "1"), ("content-length", "2")];
    assert!(with(&two).is_err());
    assert!(with(&[two[0], two[0], ("te", "trailers")]).is_ok());
}

#[test]
fn a_target_that_is_none_is_malformed() {
    for (name, value) in [
        (":path", ""),
        (":path", "a"),
        (":path", "*"),
        (":path", "/ a"),
        (":path", "/admin#/../public"),
        (":scheme", "ht tp"),
        (":authority", ""),
        (":authority", "user@example.org"),
        (":authority", "exa mple"),
        (":method", "G T"),
        (":method", ""),
    ] {
        let mut fields = without(name);
        fields.push((name, value));
        breach(&fields);
    }
    let mut options = without(":method");
    options.retain(|field| field.0 != ":path");
    options.extend([(":method", "OPTIONS"), (":path", "*")]);
    assert_eq!(request(&options).unwrap().head.uri.path(), "*");
}

#[test]
fn connect_has_an_authority_alone_or_a_protocol_and_all_the_rest() {
    let plain = [(":method", "CONNECT"), (":authority", "example.org:443")];
    assert_eq!(request(&plain).unwrap().head.uri, "example.org:443");
    breach(&[plain[0], plain[1], (":path", "/")]);
    breach(&plain[..1]);
    let mut extended = without(":method");
    extended.extend([(":method", "CONNECT"), (":protocol", "webtransport")]);
    let request = section(Kind::Request, &extended)
        .into_request(true)
        .unwrap();
    assert_eq!(request.protocol.unwrap(), "webtransport");
    let refused = section(Kind::Request, &extended).into_request(false);
    assert_eq!(refused.unwrap_err().code, ErrorCode::H3_MESSAGE_ERROR);
    assert!(with(&[]).is_ok());
    breach(&[&GET[..], &[(":protocol", "webtransport")]].concat());
}

#[test]
fn cookies_in_several_fields_are_one() {
    let request = with(&[("cookie", "a=1"), ("x", "y"), ("cookie", "b=2")]).unwrap();
    let cookies: Vec<_> = request.head.headers.get_all("cookie").iter().collect();
    assert_eq!(cookies, ["a=1; b=2"]);
}

#[test]
fn a_response_needs_one_status_of_three_digits_that_is_not_101() {
    let response = |fields: &[_]| section(Kind::Response, fields).into_response();
    let good = response(&[(":status", "204"), ("server", "x")]).unwrap();
    assert_eq!(good.head.status, StatusCode::NO_CONTENT);
    for bad in ["", "20", "2000", "abc", "101"] {
        assert!(response(&[(":status", bad)]).is_err(), "{bad}");
    }
    assert!(response(&[("server", "x")]).is_err());
}

#[test]
fn what_is_sent_is_what_is_understood() {
    let mut head = http::Request::new(()).into_parts().0;
    head.method = Method::POST;
    head.uri = "https://example.org:444/p?q=1".parse().unwrap();
    head.headers.insert("x-a", HeaderValue::from_static("b"));
    let lines = request_lines(&head, None).unwrap();
    let mut section = Section::new(Kind::Request);
    for (name, value, _) in &lines {
        section.field(name, value);
    }
    let back = section.into_request(false).unwrap().head;
    assert_eq!(
        (back.method, back.uri),
        (head.method.clone(), head.uri.clone())
    );
    assert_eq!(back.headers, head.headers);
    head.headers
        .insert("connection", HeaderValue::from_static("close"));
    assert!(request_lines(&head, None).is_err());
    let mut response = http::Response::new(()).into_parts().0;
    response.status = StatusCode::SWITCHING_PROTOCOLS;
    assert!(response_lines(&response).is_err());
}

#[test]
fn a_sections_size_counts_32_bytes_for_each_field() {
    let lines: Lines<'_> = vec![(b"ab", b"c", false), (b"d", b"", false)];
    assert_eq!(size(&lines), 3 + 1 + 64);
}
