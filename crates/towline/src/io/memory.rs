//! How much memory the machine lets this process have.
//!
//! Asked once by whoever makes an endpoint without naming a limit; reads two files of the system.

use std::fs;

/// Where a process of a version 2 control group reads its limit.
const CGROUP_LIMIT: &str = "/sys/fs/cgroup/memory.max";

/// Bytes of memory of this machine, or of this container if that has less; `None` where the system
/// does not say.
pub(crate) fn machine_memory() -> Option<u64> {
    let machine = parse_meminfo(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let container = fs::read_to_string(CGROUP_LIMIT).ok();
    let container = container.and_then(|text| text.trim().parse().ok());
    Some(container.map_or(machine, |limit: u64| machine.min(limit)))
}

fn parse_meminfo(text: &str) -> Option<u64> {
    let total = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_meminfo_is_found_whatever_stands_around_it() {
        let text = "Foo: 1 kB\nMemTotal:       24576000 kB\nMemFree: 3 kB\n";
        assert_eq!(parse_meminfo(text), Some(24_576_000 * 1024));
        assert_eq!(parse_meminfo("MemFree: 3 kB\n"), None);
        assert_eq!(parse_meminfo("MemTotal: many kB\n"), None);
    }
}
