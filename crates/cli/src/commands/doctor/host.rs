//! Checks of the kernel and the host's settings.

use super::Finding;
use rustix::process::Resource;
use std::fs;

/// All findings about the host.
pub fn findings() -> Vec<Finding> {
    vec![
        cores(),
        shared_memory(),
        huge_pages(),
        landlock(),
        seccomp(),
        cgroup(),
        kernel_tls(),
        locked_memory(),
        descriptors(),
    ]
}

fn text(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn cores() -> Finding {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match cores {
        1 => Finding::weak(
            "processors",
            "1",
            "client and executor share it: expect additional microseconds per command",
        ),
        n => Finding::good("processors", n.to_string()),
    }
}

fn shared_memory() -> Finding {
    const WHAT: &str = "sealed memfd";
    let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create("baltra-doctor", flags) {
        Ok(_) => Finding::good(WHAT, "works"),
        Err(error) => Finding::bad(
            WHAT,
            error.to_string(),
            "sessions need memfd_create with sealing: Linux 3.17 or newer, and no seccomp filter that forbids it",
        ),
    }
}

fn huge_pages() -> Finding {
    const WHAT: &str = "huge pages in shared memory";
    const PATH: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    let setting = text(PATH).unwrap_or_default();
    let chosen = setting
        .split_whitespace()
        .find_map(|w| w.strip_prefix('[')?.strip_suffix(']'));
    match chosen {
        Some(on @ ("advise" | "always" | "within_size" | "force")) => Finding::good(WHAT, on),
        Some(off) => Finding::weak(
            WHAT,
            off,
            format!("large transfers lose up to a third of their throughput: as root, echo advise > {PATH}"),
        ),
        None => Finding::weak(
            WHAT,
            "not supported by this kernel",
            "large transfers lose up to a third of their throughput: use a kernel with CONFIG_TRANSPARENT_HUGEPAGE",
        ),
    }
}

fn landlock() -> Finding {
    const WHAT: &str = "landlock";
    let modules = text("/sys/kernel/security/lsm").unwrap_or_default();
    if modules.split(',').any(|m| m == "landlock") {
        Finding::good(WHAT, "executors can access only their own files")
    } else if modules.is_empty() {
        Finding::weak(
            WHAT,
            "unknown: /sys/kernel/security is not mounted",
            "as root: mount -t securityfs none /sys/kernel/security",
        )
    } else {
        Finding::weak(
            WHAT,
            "not enabled in this kernel: executors can read all files of the daemon's user",
            "boot with lsm=landlock,… (Linux 5.13 or newer), or run the daemon as a dedicated user",
        )
    }
}

fn seccomp() -> Finding {
    let status = text("/proc/self/status").unwrap_or_default();
    if status
        .lines()
        .any(|l| l.starts_with("Seccomp_filters:") || l.starts_with("Seccomp:"))
    {
        Finding::good(
            "seccomp",
            "executors drop system calls that they do not need",
        )
    } else {
        Finding::weak(
            "seccomp",
            "not supported by this kernel",
            "use a kernel with CONFIG_SECCOMP_FILTER",
        )
    }
}

fn cgroup() -> Finding {
    const WHAT: &str = "cgroup";
    match baltra_sandbox::group::own_group() {
        Ok(dir) => Finding::good(WHAT, format!("{} is delegated", dir.display())),
        Err(reason) => Finding::weak(
            WHAT,
            format!("{reason}: the memory of executors is not limited"),
            "run the daemon under systemd with Delegate=yes",
        ),
    }
}

fn kernel_tls() -> Finding {
    const WHAT: &str = "kernel TLS";
    let available = text("/proc/sys/net/ipv4/tcp_available_ulp").unwrap_or_default();
    if available.split_whitespace().any(|u| u == "tls") {
        Finding::good(WHAT, "loaded")
    } else {
        Finding::weak(
            WHAT,
            "not loaded: relays encrypt in user space",
            "as root: modprobe tls (speeds up only clients over TLS)",
        )
    }
}

fn limit_text(value: Option<u64>) -> String {
    value.map_or_else(|| "unlimited".into(), crate::output::bytes)
}

fn locked_memory() -> Finding {
    const WHAT: &str = "locked memory";
    let limit = rustix::process::getrlimit(Resource::Memlock).maximum;
    match limit {
        Some(bytes) if bytes < 256 << 20 => Finding::weak(
            WHAT,
            limit_text(limit),
            "drivers that pin host memory (GPUs) need more: LimitMEMLOCK=infinity, or ulimit -l unlimited",
        ),
        _ => Finding::good(WHAT, limit_text(limit)),
    }
}

fn descriptors() -> Finding {
    const WHAT: &str = "open files";
    let limit = rustix::process::getrlimit(Resource::Nofile).maximum;
    match limit {
        Some(n) if n < 4096 => Finding::weak(
            WHAT,
            n.to_string(),
            "many sessions at once need more: LimitNOFILE=65536, or ulimit -n 65536",
        ),
        Some(n) => Finding::good(WHAT, n.to_string()),
        None => Finding::good(WHAT, "unlimited"),
    }
}
