//! The page of `serve --web` over plain HTTP on this machine: by a normal link a browser comes in,
//! and the page tells it which certificate to expect.
//!
//! Page and scripts are in the program. `web/` is where they come from; its README says how.

use bytes::Bytes;
use serde_json::json;

use crate::certs::CertificatePins;
use crate::plain_http::{Content, Site};

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SVG: &str = "image/svg+xml";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const JSON: &str = "application/json";

/// Where the page asks for address and pins.
const ABOUT: &str = "/towline.json";

/// Path, media type, content.
type File = (&'static str, &'static str, &'static [u8]);

macro_rules! page {
    ($path:literal, $kind:expr, $file:literal) => {
        (
            $path,
            $kind,
            include_bytes!(concat!("../../../../../../web/page/", $file)),
        )
    };
}

macro_rules! script {
    ($name:literal) => {
        (
            concat!("/js/", $name),
            SCRIPT,
            include_bytes!(concat!("../../../../../../web/dist/", $name)),
        )
    };
}

const FILES: &[File] = &[
    page!("/", HTML, "index.html"),
    page!("/style.css", CSS, "style.css"),
    page!("/icon.svg", SVG, "icon.svg"),
    script!("backoff.js"),
    script!("browser.js"),
    script!("bytes.js"),
    script!("index.js"),
    script!("messages.js"),
    script!("pins.js"),
    script!("probe.js"),
    script!("reconnect.js"),
    script!("session.js"),
    script!("stats.js"),
    script!("streams.js"),
    script!("page/chat.js"),
    script!("page/datagrams.js"),
    script!("page/echo.js"),
    script!("page/main.js"),
    script!("page/plot.js"),
    script!("page/site.js"),
    script!("page/throughput.js"),
];

/// Where WebTransport is, and the certificates that are shown there.
pub(super) struct Page {
    /// `https://ADDRESS:PORT`.
    pub(super) url: String,
    /// Pins of the certificates of today.
    pub(super) pins: CertificatePins,
}

impl Site for Page {
    async fn get(&self, path: &str) -> Option<Content> {
        if path == ABOUT {
            let about = json!({
                "schema": "towline.web/1",
                "url": self.url,
                "pins": (self.pins)(),
                "version": env!("CARGO_PKG_VERSION"),
            });
            return Some(Content {
                kind: JSON,
                body: Bytes::from(about.to_string()),
            });
        }
        let (_, kind, body) = FILES.iter().find(|(name, ..)| *name == path)?;
        Some(Content {
            kind,
            body: Bytes::from_static(body),
        })
    }

    fn hint(&self) -> &'static str {
        "the page is at /\n"
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    fn names(folder: &Path, prefix: &str, into: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            match entry.file_type().unwrap().is_dir() {
                true => names(&entry.path(), &format!("{name}/"), into),
                false => drop(into.insert(name)),
            }
        }
    }

    #[test]
    fn every_file_of_the_page_is_served() {
        let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web");
        let mut there = BTreeSet::new();
        names(&web.join("page"), "/", &mut there);
        names(&web.join("dist"), "/js/", &mut there);
        there.retain(|name| !name.ends_with(".d.ts"));
        assert!(there.remove("/index.html"));
        there.insert("/".to_owned());
        let served: BTreeSet<String> = FILES.iter().map(|file| file.0.to_owned()).collect();
        assert_eq!(there, served);
    }

    #[tokio::test]
    async fn the_page_is_told_address_and_pins_of_the_day() {
        let page = Page {
            url: "https://127.0.0.1:4433".to_owned(),
            pins: std::sync::Arc::new(|| vec!["sha256/00".to_owned()]),
        };
        let about = page.get(ABOUT).await.unwrap();
        let about: serde_json::Value = serde_json::from_slice(&about.body).unwrap();
        assert_eq!(about["url"], "https://127.0.0.1:4433");
        assert_eq!(about["pins"][0], "sha256/00");
        assert!(page.get("/../Cargo.toml").await.is_none());
        let index = page.get("/").await.unwrap();
        assert_eq!(index.kind, HTML);
        assert!(index.body.starts_with(b"<!doctype html>"));
    }
}
