//! The shim under real programs. Without the kernel module the sockets it asks for cannot be made,
//! which is what shows that it asked.
#![cfg(target_os = "linux")]

use std::path::PathBuf;
use std::process::{Command, Output};

/// No protocol of the kernel has this number.
const PROTOCOL: &str = "261";

fn library() -> PathBuf {
    // Beside the folder of this test program.
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    let beside = path.join("libtowline_preload.so");
    if beside.exists() {
        return beside;
    }
    path.pop();
    path.join("libtowline_preload.so")
}

fn bash(script: &str, protocol: Option<&str>) -> Output {
    let mut command = Command::new("bash");
    command
        .args(["-c", script])
        .env("LD_PRELOAD", library())
        .env_remove("TOWLINE_STCP_PROTOCOL");
    if let Some(protocol) = protocol {
        command.env("TOWLINE_STCP_PROTOCOL", protocol);
    }
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn tcp_asks_for_the_modules_protocol() {
    if std::path::Path::new("/dev/stcp").exists() {
        return;
    }
    assert!(library().exists(), "{}", library().display());
    for address in ["127.0.0.1", "::1"] {
        let script = format!("exec 3<>/dev/tcp/{address}/9");
        let upgraded = said(&bash(&script, Some(PROTOCOL)));
        assert!(upgraded.contains("Protocol not supported"), "{upgraded}");
        for protocol in [None, Some(""), Some("26x"), Some("1234567")] {
            let plain = said(&bash(&script, protocol));
            assert!(!plain.contains("Protocol not supported"), "{plain}");
        }
    }
    // Others are left alone.
    let udp = bash("exec 3<>/dev/udp/127.0.0.1/9", Some(PROTOCOL));
    assert!(udp.status.success(), "{udp:?}");
}
