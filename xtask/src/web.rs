//! The browser client in `web/`: whether what is committed is what its source gives, and its tests.
//!
//! Part of `make test`. It takes the TypeScript compiler that the lock file names from npm, and
//! nothing else. Without Node, npm or their registry it is skipped by name.

use std::process::{Command, Stdio};

use crate::Outcome;
use crate::exec::{root, run, run_reading, which};
use crate::report::Skips;

/// `cargo xtask web`.
pub(crate) fn web(skips: &mut Skips) -> Outcome<String> {
    const NOTHING: &str = "0 passed, 0 failed";
    for name in ["node", "npm"] {
        if which(name).is_none() {
            skips.add("web", &format!("{name} is not installed"));
            return Ok(NOTHING.to_owned());
        }
    }
    if !install().status().is_ok_and(|status| status.success()) {
        skips.add("web", "npm cannot fetch the TypeScript compiler");
        return Ok(NOTHING.to_owned());
    }
    run(&mut npm(&["run", "--silent", "check"]))?;
    let mut counts = (None, None);
    let outcome = run_reading(&mut npm(&["run", "--silent", "test"]), |line| {
        counts.0 = count(line, "pass").or(counts.0);
        counts.1 = count(line, "fail").or(counts.1);
    });
    let (passed, failed) = counts;
    let closing = match (passed, failed) {
        (Some(passed), Some(failed)) => format!("{passed} passed, {failed} failed"),
        _ => return Err("node counted no tests".to_owned()),
    };
    println!("{closing}");
    outcome.map(|()| closing)
}

/// Puts the compiler into `web/node_modules`.
pub(crate) fn install() -> Command {
    let mut command = npm(&["ci", "--no-audit", "--no-fund"]);
    command.stdin(Stdio::null());
    command
}

fn npm(arguments: &[&str]) -> Command {
    let mut command = Command::new("npm");
    command.args(arguments).current_dir(root().join("web"));
    command
}

/// The number in one of the last lines of Node's test runner, such as `# pass 12` or `ℹ pass 12`.
fn count(line: &str, what: &str) -> Option<u64> {
    let (_, rest) = line.split_once(' ')?;
    rest.strip_prefix(what)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn counts_are_read_from_both_forms_of_the_last_lines() {
        assert_eq!(count("# pass 12", "pass"), Some(12));
        assert_eq!(count("ℹ fail 0", "fail"), Some(0));
        assert_eq!(count("✔ a pass that counts (1.2ms)", "pass"), None);
        assert_eq!(count("# passed", "pass"), None);
    }
}
