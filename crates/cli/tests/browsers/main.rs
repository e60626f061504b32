//! Real browsers against ours. Where one is not installed, its cases are skipped by name.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of real programs wait in real time"
)]

mod browser;
#[path = "../common/mod.rs"]
mod common;
mod site;

use std::fs;
use std::time::Duration;

use browser::Browser;
use common::Scratch;
use serde_json::{Value, json};
use site::Site;

/// For a whole run of a page, on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(120);
const FILES: usize = 1_000;

/// Files of all sizes, the page that fetches them, and the list of their lengths.
fn fill(scratch: &Scratch) {
    let folder = scratch.path("site");
    fs::create_dir_all(&folder).unwrap();
    let mut lengths = Vec::new();
    for number in 0..FILES {
        // One is large, one is empty, most are small.
        let length = match number {
            0 => 4_000_000,
            1 => 0,
            number => number * 37 % 30_000,
        };
        let content: Vec<u8> = (0..length)
            .map(|at| (number * 31 + at + (at >> 8) * 7) as u8)
            .collect();
        fs::write(folder.join(format!("{number}.bin")), content).unwrap();
        lengths.push(length);
    }
    let write = |name: &str, content: &str| {
        fs::write(folder.join(name), content).unwrap();
    };
    write("list.json", &Value::from(lengths).to_string());
    write("index.html", include_str!("files.html"));
    write("files.js", include_str!("files.js"));
}

#[test]
fn chromium_fetches_a_site_of_a_thousand_files_over_http3() {
    let scratch = Scratch::new();
    fill(&scratch);
    let folder = scratch.path("site");
    let folder = folder.to_str().unwrap();
    let server = scratch.listen(["serve", "--listen", "127.0.0.1:0", "--web", folder]);
    let (_, pin) = server.url.split_once("#sha256/").unwrap();
    let results = Site::start();
    let page = format!(
        "https://{}/?to=http://{}/result",
        server.address, results.address
    );
    let trust = [
        format!("--origin-to-force-quic-on={}", server.address),
        format!("--ignore-certificate-errors-spki-list={}", base64(pin)),
    ];
    let Some(_running) = Browser::Chromium.open(&page, &trust) else {
        return;
    };
    let found = results.result(PATIENCE).expect("the page never answered");
    assert_eq!(found["wrong"], json!([]), "{found}");
    assert_eq!(found["right"], FILES);
    assert_eq!(found["protocols"], json!({ "h3": FILES }));
    assert_eq!(found["ranges"], json!([[206, 10], [206, 5], [416, 0]]));
    assert_eq!(found["missing"], 404);
}

/// 32 bytes in hexadecimal, in base64.
fn base64(hex: &str) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: String = hex
        .chars()
        .map(|digit| format!("{:04b}", digit.to_digit(16).unwrap()))
        .collect();
    let bits = format!("{bits}00");
    let sixes = bits.as_bytes().chunks(6);
    let digit = |six: &[u8]| {
        six.iter()
            .fold(0, |sum, bit| sum * 2 + usize::from(bit - b'0'))
    };
    let text: String = sixes.map(|six| DIGITS[digit(six)] as char).collect();
    format!("{text}=")
}
