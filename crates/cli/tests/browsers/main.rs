//! Real browsers against ours: `files.js` and `cases.js` say what they do, and this what has to come of it.
//!
//! What a browser lacks is asserted as lacking, so that the day it learns is noticed. Where one is not
//! installed, its cases are skipped by name.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of real programs wait in real time"
)]

mod browser;
#[path = "../common/mod.rs"]
mod common;
mod server;
mod site;

use std::fs;
use std::time::Duration;

use browser::Browser;
use common::Scratch;
use serde_json::{Value, json};
use server::Heard;
use site::Site;
use towline::http3::ErrorCode;
use towline::webtransport::{Dialect, http3_code};

/// For a whole run of a page, on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(120);
/// For all cases.
const CASES: Duration = Duration::from_secs(240);
const FILES: usize = 1_000;
/// What the server's `/codes` is asked for.
const CODES: [u64; 7] = [0, 7, 255, 256, 300, 65_536, 0xffff_ffff];

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
    let results = Site::start(&Value::Null);
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

/// One browser at a time: a second would be measured by the first.
static ONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Runs the cases; what the browser found, and what the server heard.
async fn found(browser: Browser) -> Option<(Value, Heard)> {
    let _alone = ONE.lock().await;
    let server = server::Running::start();
    let about = json!({ "url": format!("https://{}", server.address), "pins": [server.pin] });
    let site = Site::start(&about);
    let page = format!("http://{}/tests/cases.html", site.address);
    let running = browser.open(&page, &[])?;
    let result = tokio::task::spawn_blocking(move || site.result(CASES)).await;
    drop(running);
    let result = result.unwrap().expect("the page never answered");
    Some((result, server.heard()))
}

/// What every browser has to find.
fn common(found: &Value, heard: &Heard) {
    let cases = &found["cases"];
    assert!(cases["open by certificate hash"]["milliseconds"].is_number());
    assert_eq!(cases["a wrong hash is refused"], "refused", "{cases}");
    assert_eq!(
        cases["a refusal by status is an error"], "refused",
        "{cases}"
    );
    let streams = &cases["1,000 streams of 64 KB"];
    assert_eq!(streams["right"], 1_000, "{cases}");
    assert!(streams["seconds"].as_f64().unwrap() <= 30.0, "{streams}");
    assert_eq!(cases["one-way streams"], 20, "{cases}");
    let opened = &cases["streams that the server opens"];
    assert_eq!(opened["right"], 20, "{cases}");
    assert_eq!(opened["ended"], 0, "{cases}");
    assert_eq!(opened["reason"], "10 came back", "{cases}");
    let datagrams = &cases["datagrams come back"];
    assert!(
        datagrams["received"].as_u64().unwrap() >= 450,
        "{datagrams}"
    );
    assert!(datagrams["median"].as_f64().unwrap() < 100.0, "{datagrams}");
    let closed = &cases["the server closes with code and reason"];
    assert_eq!(closed["clean"], true, "{cases}");
    assert_eq!(closed["code"], 7, "{cases}");
    assert_eq!(closed["reason"], "bye bye", "{cases}");
    assert!(
        heard.closes.contains(&(300, "that is all".to_owned())),
        "{heard:?}"
    );
    assert_eq!(cases["other sessions live on"], true, "{cases}");
    let resets = [0, 7, 255].iter().all(|code| heard.resets.contains(code));
    assert!(resets, "{heard:?}");
    assert_eq!(
        cases["codes that the page sends"]["300"], "RangeError",
        "{cases}"
    );
}

/// Chromium is exact, but for stops of the server's: it may notice the stream's end before it
/// notices the code.
fn codes_in_chromium(found: &Value, heard: &Heard) {
    let cases = &found["cases"];
    let stops = [0, 7, 255].iter().all(|code| heard.stops.contains(code));
    assert!(stops, "{heard:?}");
    for code in [0, 7, 255] {
        let came = &cases["codes that the page sends"][code.to_string()];
        assert_eq!(came["reset"], code, "{came}");
    }
    for code in CODES {
        let came = &cases["codes that the server sends"][code.to_string()];
        assert_eq!(came["reset"], code, "{came}");
        assert!(came["stop"] == code || came["stop"] == "no code", "{came}");
    }
}

/// Firefox seldom tells a page the code of a reset, and of codes above 255 it tells 0. It stops streams with a code
/// of HTTP/3, whatever the page says.
fn codes_in_firefox(found: &Value, heard: &Heard) {
    let cancelled = |code: &u64| http3_code(*code) == Some(ErrorCode::H3_REQUEST_CANCELLED);
    assert!(heard.stops.iter().all(cancelled), "{heard:?}");
    for code in CODES {
        let came = &found["cases"]["codes that the server sends"][code.to_string()];
        let told = if code <= 255 { code } else { 0 };
        assert!(
            came["reset"] == "no code" || came["reset"] == told,
            "{came}"
        );
        assert_eq!(came["stop"], told, "{came}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chromium_finds_everything_but_what_it_keeps_behind_a_flag() {
    let Some((found, heard)) = found(Browser::Chromium).await else {
        return;
    };
    common(&found, &heard);
    codes_in_chromium(&found, &heard);
    assert_eq!(heard.dialects, [Dialect::Draft02].into());
    assert_eq!(found["cases"]["subprotocol"], "second");
    assert_eq!(found["cases"]["draining"], "lacking");
    assert_eq!(found["features"]["stats"], false);
    assert_eq!(found["features"]["sendGroups"], false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chromium_with_its_flag_hears_of_draining_and_measures() {
    let Some((found, heard)) = found(Browser::ChromiumExperimental).await else {
        return;
    };
    common(&found, &heard);
    codes_in_chromium(&found, &heard);
    assert_eq!(found["cases"]["draining"], "heard");
    assert!(found["cases"]["statistics"]["rtt"].is_number());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chromium_speaks_draft_07_when_it_is_told_to() {
    let Some((found, heard)) = found(Browser::ChromiumDraft07).await else {
        return;
    };
    common(&found, &heard);
    codes_in_chromium(&found, &heard);
    assert_eq!(heard.dialects, [Dialect::Draft07].into());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn firefox_finds_everything_but_what_it_lacks() {
    let Some((found, heard)) = found(Browser::Firefox).await else {
        return;
    };
    common(&found, &heard);
    codes_in_firefox(&found, &heard);
    assert_eq!(heard.dialects, [Dialect::Draft02].into());
    assert_eq!(found["features"]["protocols"], false);
    assert_eq!(found["cases"]["draining"], "lacking");
    assert_eq!(found["cases"]["statistics"]["rtt"], Value::Null);
}

/// What pages of a `serve --web` are told, at an origin of the tests.
fn site_of(server: &common::Server) -> Site {
    let url = format!("https://{}", server.address);
    Site::start(&json!({ "url": url, "pins": server.pins(), "version": "test" }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_tabs_of_chromium_talk_to_each_other() {
    let _alone = ONE.lock().await;
    let scratch = Scratch::new();
    let server = scratch.listen(["serve", "--listen", "127.0.0.1:0", "--web"]);
    let site = site_of(&server);
    let page = format!("http://{}/tests/chat.html", site.address);
    let flags = ["--disable-popup-blocking".to_owned()];
    let Some(_running) = Browser::Chromium.open(&page, &flags) else {
        return;
    };
    let found = site.result(PATIENCE).expect("the page never answered");
    let line = |name: &str, text: &str, kind: &str| json!([name, text, kind]);
    let bow = [line("Bow", "ahoy", "mine"), line("Stern", "aye", "")];
    let stern = [line("Bow", "ahoy", ""), line("Stern", "aye", "mine")];
    assert_eq!(found, json!({ "bow": bow, "stern": stern }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chromium_with_two_hashes_comes_back_after_the_certificate_was_swapped() {
    let _alone = ONE.lock().await;
    let scratch = Scratch::new();
    let [old, new] = scratch.certificates_that_swap_in(Duration::from_secs(25));
    let server = scratch.listen(["serve", "--listen", "127.0.0.1:0", "--web"]);
    let site = site_of(&server);
    assert_eq!(server.pins(), [old, new.clone()]);
    let page = format!("http://{}/tests/swap.html?for=40000", site.address);
    let Some(_running) = Browser::Chromium.open(&page, &[]) else {
        return;
    };
    common::wait_until("the swap", || server.pins()[0] == new);
    let swapped = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let swapped = u64::try_from(swapped.as_millis()).unwrap();
    let found = site.result(PATIENCE).expect("the page never answered");
    assert_eq!(found["failures"], json!([]), "{found}");
    let sessions = found["sessions"].as_array().unwrap();
    let at = |session: Option<&Value>| session.and_then(Value::as_u64).unwrap();
    assert!(at(sessions.first()) < swapped, "{swapped}: {found}");
    assert!(at(sessions.last()) > swapped, "{swapped}: {found}");
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
