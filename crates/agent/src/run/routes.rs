//! The way back of one run: what programs answer to their peers' addresses comes to the relay.
//!
//! The relay reaches a program from its peer's own address, so the answers are sent to another host.
//! Rules of nftables (`redirect`) mark them, and here what is marked is routed to this one: a rule and a
//! table of routes with the same number, which is the run's. Without them the guard lets no answer out, so
//! there is time to put them back: services that manage the network remove what is not theirs.

use std::fs;
use std::process::Command;

use super::cgroup::{self, PREFIX};

/// Such numbers are this and the process's, which has 22 bits at most. In between two bits are never set: with
/// them Kubernetes marks what is to be dropped, and what gets another source.
const NUMBERS: u32 = 0x5c00_0000;
const NEVER: u32 = 0x0000_c000;
const LOWER: u32 = 0x3fff;
const PROCESS: u32 = 0x003f_ffff;

/// Before others' rules, of which some catch all.
const PREFERENCE: &str = "1";

/// The mark of this process's run.
pub(crate) fn mark() -> u32 {
    mark_of(std::process::id() & PROCESS)
}

fn mark_of(process: u32) -> u32 {
    NUMBERS | (process & !LOWER) << NEVER.count_ones() | process & LOWER
}

/// Whose run has this mark, if it is one.
fn process_of(mark: u32) -> Option<u32> {
    let process = mark >> NEVER.count_ones() & PROCESS & !LOWER | mark & LOWER;
    (mark_of(process) == mark).then_some(process)
}

/// A rule and its table, that are in force for each family of addresses that loopback has.
#[derive(Debug)]
pub(crate) struct Routes {
    families: Vec<&'static str>,
}

impl Routes {
    /// Puts them in force, all or nothing.
    pub(crate) fn install() -> Result<Self, String> {
        let routes = Self {
            families: families(),
        };
        routes.put_up()?;
        Ok(routes)
    }

    fn put_up(&self) -> Result<(), String> {
        // A killed run may have had the same number; or others have removed a part.
        self.take_away();
        let number = mark().to_string();
        for family in &self.families {
            let table = [family, "route", "add", "local", "default", "dev", "lo"];
            let rule = [family, "rule", "add", "pref", PREFERENCE];
            ip(&[&table[..], &["table", &number]].concat())
                .and_then(|_| ip(&[&rule[..], &["fwmark", &number, "lookup", &number]].concat()))
                .inspect_err(|_| self.take_away())?;
        }
        Ok(())
    }

    /// Puts them back if they are gone. An error says nothing of whether they are.
    pub(crate) fn keep(&self) -> Result<(), String> {
        if self.are_there()? {
            return Ok(());
        }
        self.put_up()?;
        tracing::warn!(
            "somebody removed the way back of the programs' answers (a network service that was started again, \
             `ip rule flush`?): it is there again; meanwhile the guard let no answer out"
        );
        Ok(())
    }

    fn are_there(&self) -> Result<bool, String> {
        let local = format!("local default dev lo table {} ", mark());
        for family in &self.families {
            let has_rule = numbers(&ip(&[family, "rule", "show"])?).contains(&mark());
            // Of all tables: one without routes is none, and to ask for it an error like any other.
            let routes = ip(&[family, "route", "show", "table", "all", "type", "local"])?;
            if !has_rule || !routes.lines().any(|line| line.starts_with(&local)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes them, if they are there.
    pub(crate) fn remove(self) -> Result<(), String> {
        self.take_away();
        for family in &self.families {
            if numbers(&ip(&[family, "rule", "show"])?).contains(&mark()) {
                return Err(format!(
                    "ip: the rule with fwmark {} cannot be removed",
                    mark()
                ));
            }
        }
        Ok(())
    }

    fn take_away(&self) {
        for family in &self.families {
            for command in removal(family, mark()) {
                let words: Vec<_> = command.split(' ').collect();
                // Most often they are not there.
                let _ = ip(&words);
            }
        }
    }
}

/// `ip`'s words for the families that loopback has addresses of.
fn families() -> Vec<&'static str> {
    let v6 = fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let has_v6 = v6.lines().any(|line| line.ends_with(" lo"));
    match has_v6 {
        true => vec!["-4", "-6"],
        false => vec!["-4"],
    }
}

/// The numbers of runs, in what `ip rule show` says.
fn numbers(rules: &str) -> Vec<u32> {
    let number = |line: &str| {
        let (_, rest) = line.split_once("fwmark 0x")?;
        let (mark, rest) = rest.split_once(' ')?;
        let mark = u32::from_str_radix(mark, 16).ok()?;
        let table = rest.strip_prefix("lookup ")?.trim().parse::<u32>().ok()?;
        (mark == table && process_of(mark).is_some()).then_some(mark)
    };
    rules.lines().filter_map(number).collect()
}

fn removal(family: &str, number: u32) -> [String; 2] {
    [
        format!("{family} rule del fwmark {number} lookup {number}"),
        format!("{family} route flush table {number}"),
    ]
}

/// The commands that remove those of runs whose process is gone.
pub(crate) fn left_over() -> Vec<String> {
    let mut commands = Vec::new();
    for family in ["-4", "-6"] {
        let rules = ip(&[family, "rule", "show"]).unwrap_or_default();
        for number in numbers(&rules) {
            let is_left = |process| cgroup::is_left_over(&format!("{PREFIX}{process}"));
            if process_of(number).is_some_and(is_left) {
                let [rule, table] = removal(family, number);
                commands.push(format!("ip {rule}; ip {table}"));
            }
        }
    }
    commands
}

/// Whether routes go by marks here.
pub(crate) fn is_available() -> Result<(), String> {
    ip(&["-4", "rule", "show"]).map(drop)
}

/// Runs ip; what it wrote, or what it complained of.
fn ip(arguments: &[&str]) -> Result<String, String> {
    let ended = Command::new("ip").args(arguments).output();
    let ended = ended.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "ip is not installed (apt-get install iproute2)".to_owned(),
        _ => format!("ip: {error}"),
    })?;
    if ended.status.success() {
        return Ok(String::from_utf8_lossy(&ended.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    Err(format!("ip: {}", said.lines().next().unwrap_or("failed")))
}

#[cfg(test)]
mod tests {
    use super::{mark_of, numbers, process_of};

    #[test]
    fn a_mark_is_of_one_process_and_never_one_of_kubernetes() {
        let mut before = 0;
        for process in (0..1 << 22).step_by(37).chain([(1 << 22) - 1]) {
            let mark = mark_of(process);
            assert_eq!(mark & 0xc000, 0, "{process}");
            assert_eq!(process_of(mark), Some(process));
            assert!(mark > before, "{process}");
            before = mark;
        }
        for other in [0x5c00_4000, 0x5c00_8001, 0x5d00_0001, 0x2a, 0x4000] {
            assert_eq!(process_of(other), None, "{other:#x}");
        }
    }

    #[test]
    fn only_runs_rules_are_found_among_others() {
        let rules = "0:\tfrom all lookup local\n\
            1:\tfrom all fwmark 0x5c0104d2 lookup 1543570642\n\
            2:\tfrom all fwmark 0x5c0104d2 lookup 7\n\
            100:\tfrom all fwmark 0x80000/0xff0000 lookup main\n\
            101:\tfrom all fwmark 0x2a lookup 42\n\
            32766:\tfrom all lookup main\n";
        assert_eq!(numbers(rules), [0x5c01_04d2]);
        assert_eq!(0x5c01_04d2, 1_543_570_642);
    }
}
