//! Ends the mounts of a test that was killed.
//!
//! A test serves its own mounts: killed, it has threads that wait in the kernel for answers that no thread of it gives
//! any more, and the connection, which would tell them so, is held open by these very threads. A process of its own
//! looks on, and breaks the connection once the test's main thread is dead.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use vazao_testing::programs::WaitBounded;

/// Arguments: the test's process, and the mountpoint. Unmounting by force breaks the connection, also when something is
/// still open and the mount itself has to be taken away after it.
const LOOK_ON: &str = r#"
while read -r stat 2>/dev/null <"/proc/$1/stat"; do
    case "${stat##*) }" in Z* | X*) break ;; esac
    sleep 1
done
umount --force --no-canonicalize "$2"
umount --lazy --no-canonicalize "$2"
"#;

/// Looks on until it is dropped.
pub(crate) struct Watcher(Child);

impl Watcher {
    /// Watches this process on behalf of a mount.
    pub(crate) fn start(mountpoint: &Path) -> Watcher {
        let mut command = Command::new("sh");
        command.args(["-c", LOOK_ON, "watcher", &std::process::id().to_string()]).arg(mountpoint);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // In a group of its own: what ends a test that hangs ends its whole group.
        command.process_group(0);
        Watcher(command.spawn().expect("there is a shell"))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.kill_bounded();
    }
}
