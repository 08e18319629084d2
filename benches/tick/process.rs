//! What this process has used so far, as Linux says.

use std::fs;
use std::time::Duration;

/// CPU time of all threads that run. Nanoseconds from the scheduler, where getrusage counts in clock ticks.
pub(crate) fn cpu_time() -> Duration {
    let threads = fs::read_dir("/proc/self/task").expect("this is Linux");
    let nanoseconds = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanoseconds.sum())
}

/// Memory that is resident.
pub(crate) fn resident_megabytes() -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("every process has it");
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse().expect("is a number");
    kilobytes / 1024.0
}
