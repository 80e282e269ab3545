//! The host's memory.

/// Bytes that processes can get now without ending others, as far as the host and this process's
/// control group show it; `None`: unknown.
pub fn available_bytes() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok();
    let host = meminfo.as_deref().and_then(available_of);
    let group = std::fs::read_to_string("/proc/self/cgroup").ok();
    let group = group.as_deref().and_then(group_of).and_then(left_in);
    match (host, group) {
        (Some(host), Some(group)) => Some(host.min(group)),
        (host, group) => host.or(group),
    }
}

/// `MemAvailable` of `/proc/meminfo`.
fn available_of(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The process's control group (cgroup v2).
fn group_of(cgroup: &str) -> Option<&str> {
    cgroup.lines().find_map(|line| line.strip_prefix("0::/"))
}

fn left_in(group: &str) -> Option<u64> {
    let number = |file: &str| -> Option<u64> {
        let text = std::fs::read_to_string(format!("/sys/fs/cgroup/{group}/{file}"));
        text.ok()?.trim().parse().ok()
    };
    // Without a limit it is "max".
    Some(number("memory.max")?.saturating_sub(number("memory.current")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_available_memory_is_read_in_bytes() {
        let text = "MemTotal:       65 kB\nMemFree: 1 kB\nMemAvailable:   12 kB\n";
        assert_eq!(available_of(text), Some(12 << 10));
        assert_eq!(available_of("MemAvailable: much\n"), None);
        assert_eq!(available_of(""), None);
    }

    #[test]
    fn only_a_group_of_the_unified_hierarchy_counts() {
        assert_eq!(group_of("1:memory:/x\n0::/a/b\n"), Some("a/b"));
        assert_eq!(group_of("1:memory:/x\n"), None);
    }
}
