//! The real programs that tests run against, and the ground they run on: binaries, directories, ports, addresses.
//! How they are built is the business of `tests/parts/build`.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Once};

mod control_plane;
mod kubelet;
mod prometheus;

pub(crate) use control_plane::{ControlPlane, User};
pub(crate) use kubelet::Kubelet;
pub(crate) use prometheus::{Prometheus, ScrapeTarget, write_targets};

/// The binary of a part. A test without its part fails; it is never skipped.
pub(crate) fn binary(name: &str) -> PathBuf {
    let cache = std::env::var_os("TRADEGUARD_CACHE").filter(|path| !path.is_empty()).map_or_else(
        || std::env::home_dir().expect("this user has a home directory").join(".cache/tradeguard"),
        PathBuf::from,
    );
    let path = cache.join("bin").join(name);
    assert!(path.is_file(), "{name} is not at {}: run `make parts`", path.display());
    path
}

/// An empty directory of this name, kept for reading until the next run of the test binary.
pub(crate) fn directory(name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    static RUN: LazyLock<PathBuf> = LazyLock::new(|| {
        let runs = Path::new(env!("CARGO_TARGET_TMPDIR"));
        remove_ended_runs(runs);
        runs.join(format!("it-{}", std::process::id()))
    });
    let path = RUN.join(format!("{name}-{}", COUNT.fetch_add(1, Ordering::Relaxed)));
    fs::create_dir_all(&path).expect("the target directory is writable");
    path
}

fn remove_ended_runs(runs: &Path) {
    for entry in fs::read_dir(runs).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let run = name.to_str().and_then(|name| name.strip_prefix("it-"));
        if run.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // Another binary that starts now may be faster; then there is nothing left to do.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A port on 127.0.0.1 that nobody listens on, and that this process hands out once. Below the range from which the
/// kernel takes the ports of outgoing connections: a part that is stopped for a while finds its port free again.
pub(crate) fn free_port() -> u16 {
    const FIRST: u32 = 12_000;
    const COUNT: u32 = 20_000;
    // Test binaries that run at the same time start far apart.
    static NEXT: LazyLock<AtomicU32> = LazyLock::new(|| AtomicU32::new(std::process::id().wrapping_mul(97)));
    loop {
        let candidate = FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let port = u16::try_from(candidate).expect("the range lies below 32768");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// A loopback address that this process hands out once, so that each Pod has one of its own.
pub(crate) fn pod_address() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // 127.64.0.0/10 in blocks of 1,024, so that binaries running at the same time rarely meet.
    let block = std::process::id() % 4_096;
    let host = NEXT.fetch_add(1, Ordering::Relaxed);
    Ipv4Addr::from_bits(0x7F40_0000 | (block << 10) | (host % 1_022 + 1))
}

/// TLS needs one crypto provider for the whole process, and which test comes first is anyone's guess.
pub(crate) fn install_crypto_provider() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Refused where the code under test was earlier, with the same one.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}
