//! HTTP/3 behind the contract in `../../../README.md`: the roles `http3-server` and `http3-client`.

mod client;
mod server;

use towline::config::Options;
use towline::http3;

use crate::Error;

const USAGE: &str = "\
usage: DRIVER http3-server CERT KEY ROOT
       DRIVER http3-client ADDR CA LIST OUT CASE...";

/// What the body of `/echo` is, and the longest that is read of anything else, in bytes.
const MEBIBYTE: usize = 1 << 20;
/// Half of what `/slow/…` sends, in bytes.
const HALF: usize = 32 * 1024;

/// Runs a role of HTTP/3; `None` where `words` name another.
pub(crate) async fn run(words: &[String]) -> Option<Result<(), Error>> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["http3-server", cert, key, _root] => Some(server::serve(cert, key).await),
        ["http3-client", address, ca, list, out, ref cases @ ..] => {
            match client::Client::new(address, ca, list, out) {
                Ok(client) => {
                    client.run(cases).await;
                    Some(Ok(()))
                }
                Err(error) => Some(Err(error)),
            }
        }
        [role, ..] if role.starts_with("http3-") => Some(Err(USAGE.into())),
        _ => None,
    }
}

fn options() -> Options {
    Options::new(http3::ALPN)
}

/// Bytes in which blocks differ from each other.
fn pattern(length: usize) -> Vec<u8> {
    let byte = |at: usize| (at ^ (at >> 8).wrapping_mul(7) ^ (at >> 16).wrapping_mul(31)) as u8;
    (0..length).map(byte).collect()
}
