use super::{allowing_unsafe, reaching_out};
use crate::tree::{Scope, Sources, Tree};

fn tree(text: &str) -> Tree {
    let sources: Sources = [("src/lib.rs".to_owned(), text.to_owned())].into();
    Tree::read(&sources, "src/lib.rs", Scope::Shipped).unwrap()
}

fn lines(text: &str) -> Vec<String> {
    let broken = reaching_out(&tree(text));
    broken
        .iter()
        .map(|rule| rule.split_once(" (").unwrap().0.to_owned())
        .collect()
}

#[test]
fn sockets_files_threads_and_clocks_are_found_however_they_are_named() {
    for (text, found) in [
        ("use std::net::UdpSocket;", "std::net::UdpSocket"),
        ("use std::net;", "std::net"),
        ("use std::time::*;", "std::time::*"),
        ("use std::{fs as f, fmt};", "std::fs"),
        ("use ::std::env;", "std::env"),
        (
            "fn f() { let t = std::time::Instant::now(); }",
            "std::time::Instant::now",
        ),
        (
            "fn f() { g!(std::process::exit(1); 2) }",
            "std::process::exit",
        ),
        (
            "fn f(s: std::thread::JoinHandle<()>) {}",
            "std::thread::JoinHandle",
        ),
    ] {
        assert_eq!(lines(text), [format!("src/lib.rs:1: {found}")], "{text}");
    }
}

#[test]
fn addresses_durations_and_what_only_tests_have_are_fine() {
    let text = "
        use std::net::{IpAddr, SocketAddr};
        use std::time::Duration;
        use std::io::{self, Read};
        #[cfg(test)]
        mod tests { use std::time::Instant; }
        /// Not `std::fs`.
        fn f() -> &'static str { \"std::fs\" }";
    assert_eq!(lines(text), [""; 0]);
}

#[test]
fn unsafe_code_is_forbidden_by_an_attribute_and_not_by_words() {
    for fine in [
        "#![forbid(unsafe_code)]",
        "#![forbid(missing_docs, unsafe_code)]",
    ] {
        assert_eq!(allowing_unsafe(&tree(fine)), None, "{fine}");
    }
    for wrong in [
        "",
        "// #![forbid(unsafe_code)]",
        "#![deny(unsafe_code)]",
        "const S: &str = \"#![forbid(unsafe_code)]\";",
    ] {
        assert!(allowing_unsafe(&tree(wrong)).is_some(), "{wrong}");
    }
}
