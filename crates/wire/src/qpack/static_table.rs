//! The static table (RFC 9204 appendix A).

/// Name and value of each entry.
#[rustfmt::skip]
const ENTRIES: [(&str, &str); 99] = [
    (":authority", ""),
    (":path", "/"),
    ("age", "0"),
    ("content-disposition", ""),
    ("content-length", "0"),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("referer", ""),
    ("set-cookie", ""),
    (":method", "CONNECT"),
    (":method", "DELETE"),
    (":method", "GET"),
    (":method", "HEAD"),
    (":method", "OPTIONS"),
    (":method", "POST"),
    (":method", "PUT"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "103"),
    (":status", "200"),
    (":status", "304"),
    (":status", "404"),
    (":status", "503"),
    ("accept", "*/*"),
    ("accept", "application/dns-message"),
    ("accept-encoding", "gzip, deflate, br"),
    ("accept-ranges", "bytes"),
    ("access-control-allow-headers", "cache-control"),
    ("access-control-allow-headers", "content-type"),
    ("access-control-allow-origin", "*"),
    ("cache-control", "max-age=0"),
    ("cache-control", "max-age=2592000"),
    ("cache-control", "max-age=604800"),
    ("cache-control", "no-cache"),
    ("cache-control", "no-store"),
    ("cache-control", "public, max-age=31536000"),
    ("content-encoding", "br"),
    ("content-encoding", "gzip"),
    ("content-type", "application/dns-message"),
    ("content-type", "application/javascript"),
    ("content-type", "application/json"),
    ("content-type", "application/x-www-form-urlencoded"),
    ("content-type", "image/gif"),
    ("content-type", "image/jpeg"),
    ("content-type", "image/png"),
    ("content-type", "text/css"),
    ("content-type", "text/html; charset=utf-8"),
    ("content-type", "text/plain"),
    ("content-type", "text/plain;charset=utf-8"),
    ("range", "bytes=0-"),
    ("strict-transport-security", "max-age=31536000"),
    ("strict-transport-security", "max-age=31536000; includesubdomains"),
    ("strict-transport-security", "max-age=31536000; includesubdomains; preload"),
    ("vary", "accept-encoding"),
    ("vary", "origin"),
    ("x-content-type-options", "nosniff"),
    ("x-xss-protection", "1; mode=block"),
    (":status", "100"),
    (":status", "204"),
    (":status", "206"),
    (":status", "302"),
    (":status", "400"),
    (":status", "403"),
    (":status", "421"),
    (":status", "425"),
    (":status", "500"),
    ("accept-language", ""),
    ("access-control-allow-credentials", "FALSE"),
    ("access-control-allow-credentials", "TRUE"),
    ("access-control-allow-headers", "*"),
    ("access-control-allow-methods", "get"),
    ("access-control-allow-methods", "get, post, options"),
    ("access-control-allow-methods", "options"),
    ("access-control-expose-headers", "content-length"),
    ("access-control-request-headers", "content-type"),
    ("access-control-request-method", "get"),
    ("access-control-request-method", "post"),
    ("alt-svc", "clear"),
    ("authorization", ""),
    ("content-security-policy", "script-src 'none'; object-src 'none'; base-uri 'none'"),
    ("early-data", "1"),
    ("expect-ct", ""),
    ("forwarded", ""),
    ("if-range", ""),
    ("origin", ""),
    ("purpose", "prefetch"),
    ("server", ""),
    ("timing-allow-origin", "*"),
    ("upgrade-insecure-requests", "1"),
    ("user-agent", ""),
    ("x-forwarded-for", ""),
    ("x-frame-options", "deny"),
    ("x-frame-options", "sameorigin"),
];

/// The entries in the order of their names, and of their numbers where names are equal.
#[rustfmt::skip]
const BY_NAME: [u8; 99] = [
    0, 15, 16, 17, 18, 19, 20, 21, 1, 22, 23, 24, 25, 26, 27, 28, 63, 64, 65, 66,
    67, 68, 69, 70, 71, 29, 30, 31, 72, 32, 73, 74, 33, 34, 75, 76, 77, 78, 35, 79,
    80, 81, 82, 2, 83, 84, 36, 37, 38, 39, 40, 41, 3, 42, 43, 4, 85, 44, 45, 46,
    47, 48, 49, 50, 51, 52, 53, 54, 5, 6, 86, 7, 87, 88, 8, 9, 89, 10, 11, 12,
    90, 91, 55, 13, 92, 14, 56, 57, 58, 93, 94, 95, 59, 60, 61, 96, 97, 98, 62,
];

/// Entry `index` of the static table, name and value; `None` where there is none.
#[inline]
pub fn static_entry(index: u64) -> Option<(&'static [u8], &'static [u8])> {
    let (name, value) = ENTRIES.get(usize::try_from(index).ok()?)?;
    Some((name.as_bytes(), value.as_bytes()))
}

/// What the static table has of a field line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StaticMatch {
    /// Name and value, in this entry.
    Whole(u64),
    /// The name, in this entry.
    Name(u64),
}

/// Looks for a field line in the static table; the first entry with its name where none has both.
pub fn find_static(name: &[u8], value: &[u8]) -> Option<StaticMatch> {
    let name_of = |index: &u8| ENTRIES[usize::from(*index)].0.as_bytes();
    let first = BY_NAME.partition_point(|index| name_of(index) < name);
    let mut same = BY_NAME[first..]
        .iter()
        .take_while(|index| name_of(index) == name)
        .map(|index| u64::from(*index));
    let first = same.clone().next()?;
    let whole = same.find(|index| static_entry(*index).is_some_and(|entry| entry.1 == value));
    Some(whole.map_or(StaticMatch::Name(first), StaticMatch::Whole))
}
