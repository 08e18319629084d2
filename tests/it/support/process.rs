//! Child processes that end with their test: on drop, after a panic, and also when the test binary itself is killed.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use crate::support::wait::wait_until;

const LOG_LINES_SHOWN: usize = 20;

/// A running program with its output in a file. Dropped, it is killed and waited for; dropped by a panic, it shows the
/// end of its log first.
pub(crate) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`, appending both its outputs to `<directory>/<name>.log`.
    pub(crate) fn start(name: &str, directory: &Path, command: &mut Command) -> Self {
        let log = directory.join(format!("{name}.log"));
        let output =
            File::options().create(true).append(true).open(&log).expect("the test's own directory is writable");
        let errors = output.try_clone().expect("a file handle can be cloned");
        let child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .unwrap_or_else(|error| panic!("{name} does not start: {error}: {command:?}"));
        tell_guard(&format!("guard {}", child.id()));
        Self { name: name.to_owned(), child, log }
    }

    /// What it has written so far, outputs mixed.
    pub(crate) fn log(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The status it ended with, `None` while it runs.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("we are its parent and wait for it nowhere else")
    }

    /// SIGKILL: it learns nothing and cleans up nothing.
    pub(crate) fn kill9(mut self) {
        self.end();
    }

    /// SIGTERM, and the status it ends with; panics if it takes longer than `deadline`.
    pub(crate) async fn terminate(mut self, deadline: Duration) -> ExitStatus {
        // By a shell: std has no signal but SIGKILL, and this crate forbids unsafe code.
        let sent = Command::new("sh").args(["-c", "kill -TERM \"$0\"", &self.child.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "SIGTERM does not reach {}", self.name);
        let what = format!("{} ends on SIGTERM", self.name);
        wait_until(&what, deadline, async || self.ended().ok_or("it runs on")).await
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        // Reaped before the guard forgets it, and never the other way round: an id must not be reused while on its list.
        let _ = self.child.wait();
        tell_guard(&format!("forget {}", self.child.id()));
    }
}

impl Drop for Process {
    #[expect(clippy::print_stderr, reason = "the test harness shows it for the failed test alone")]
    fn drop(&mut self) {
        self.end();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<_> = log.lines().collect();
            let shown = lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n");
            eprintln!("--- {}: the end of {} ---\n{shown}\n---", self.name, self.log.display());
        }
    }
}

/// Drops do not run for statics, nor when the test binary is killed. So a shell reads from a pipe whose other end only
/// we hold: at its end, whatever the cause, it kills what is still on its list. (A parent-death signal would not do: it
/// follows the thread that spawned, and a test's thread ends with the test.)
const GUARD: &str = r#"
guarded=" "
while read -r verb pid; do
  case $verb in
    guard) guarded="$guarded$pid " ;;
    forget) guarded="${guarded%% "$pid" *} ${guarded#* "$pid" }" ;;
  esac
done
for pid in $guarded; do kill -9 "$pid"; done
"#;

#[expect(clippy::zombie_processes, reason = "it ends after we have ended")]
fn tell_guard(line: &str) {
    static PIPE: LazyLock<Mutex<ChildStdin>> = LazyLock::new(|| {
        let mut shell = Command::new("sh")
            .args(["-c", GUARD])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Its own group: an interrupt from the terminal must reach us, and not the one that cleans up after us.
            .process_group(0)
            .spawn()
            .expect("there is a shell");
        Mutex::new(shell.stdin.take().expect("it was asked for"))
    });
    let mut pipe = PIPE.lock().unwrap_or_else(PoisonError::into_inner);
    writeln!(pipe, "{line}").expect("the guard reads as long as we live");
}
