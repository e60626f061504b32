//! Headless browsers: started on a page with a profile of their own, ended when dropped.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Between two tries to remove a profile.
const STEP: Duration = Duration::from_millis(50);

/// Which one, and how it is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Browser {
    Chromium,
    /// With what it keeps behind a flag: statistics, draining, send groups.
    ChromiumExperimental,
    /// Speaking draft-07.
    ChromiumDraft07,
    Firefox,
}

/// Preferences of a fresh Firefox: WebTransport on, and nothing that talks to anybody else.
const FIREFOX_PREFERENCES: &str = r#"
user_pref("network.http.http3.enable", true);
user_pref("network.webtransport.enabled", true);
user_pref("network.webtransport.datagrams.enabled", true);
user_pref("browser.shell.checkDefaultBrowser", false);
user_pref("browser.startup.homepage_override.mstone", "ignore");
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("toolkit.telemetry.enabled", false);
user_pref("app.update.enabled", false);
user_pref("network.captive-portal-service.enabled", false);
user_pref("network.connectivity-service.enabled", false);
user_pref("extensions.update.enabled", false);
user_pref("browser.safebrowsing.malware.enabled", false);
user_pref("browser.safebrowsing.phishing.enabled", false);
"#;

/// A browser under way.
pub(crate) struct Running {
    child: Child,
    profile: PathBuf,
}

impl Browser {
    /// Opens a page; `None`, said loudly, where the browser is not installed.
    pub(crate) fn open(self, url: &str, flags: &[String]) -> Option<Running> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("towline-browser-{}-{number}", std::process::id());
        let profile = std::env::temp_dir().join(name);
        fs::create_dir_all(&profile).unwrap();
        let mut command = match self {
            Self::Firefox => firefox(&profile),
            _ => chromium(&profile),
        };
        match self {
            Self::ChromiumExperimental => {
                command.arg("--enable-experimental-web-platform-features");
            }
            Self::ChromiumDraft07 => {
                command.arg("--enable-features=EnableWebTransportDraft07");
            }
            Self::Chromium | Self::Firefox => {}
        }
        command.args(flags);
        command
            .arg(url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        match command.spawn() {
            Ok(child) => Some(Running { child, profile }),
            Err(error) => {
                let _ = fs::remove_dir_all(&profile);
                // The tests' own output is shown only when one fails.
                let _ = writeln!(
                    std::io::stderr(),
                    "SKIPPED browser cases in {self:?}: {error} (make setup-system)"
                );
                None
            }
        }
    }
}

fn chromium(profile: &std::path::Path) -> Command {
    let mut command = Command::new("chromium");
    command
        .args(["--headless=new", "--no-sandbox", "--disable-gpu"])
        .args(["--disable-dev-shm-usage", "--no-first-run"])
        .arg(format!("--user-data-dir={}", profile.display()));
    command
}

fn firefox(profile: &std::path::Path) -> Command {
    fs::write(profile.join("user.js"), FIREFOX_PREFERENCES).unwrap();
    let mut command = Command::new("firefox-esr");
    command
        .args(["--headless", "--no-remote", "--profile"])
        .arg(profile)
        .env("HOME", profile);
    command
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Its helper processes end a moment later, and may write until then.
        for _ in 0..100 {
            match fs::remove_dir_all(&self.profile) {
                Err(error) if error.kind() != ErrorKind::NotFound => std::thread::sleep(STEP),
                _ => return,
            }
        }
    }
}
