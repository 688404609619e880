//! Programs that handle signals.

use crate::cluster::with_mount;
use std::process::Command;
use vazao_testing::programs::RunBounded;

/// Makes calls that are refused, and some that are not, while a signal that it handles comes over and over. Prints each
/// call that ended with EINTR. Python repeats none of these calls by itself, but for `open`, hence the handler's count.
const PROGRAM: &str = r#"
import errno, os, random, signal, sys
came = 0
def handle(number, frame):
    global came
    came += 1
    signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0001, 0.0009))
def stop():
    # Before the timer, which a handler that is due would set again: the interpreter lets go of its handlers as it ends,
    # and the next signal killed it.
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 0)
signal.signal(signal.SIGALRM, handle)
signal.siginterrupt(signal.SIGALRM, sys.argv[1] == "interrupts")
os.mkdir("directory")
open("file", "w").close()
calls = {
    "stat": (lambda: os.stat("absent"), errno.ENOENT),
    "mkdir": (lambda: os.mkdir("directory"), errno.EEXIST),
    "link": (lambda: os.link("file", "directory"), errno.EEXIST),
    "symlink": (lambda: os.symlink("x", "file"), errno.EEXIST),
    "mknod": (lambda: os.mknod("file"), errno.EEXIST),
    "rename": (lambda: os.rename("absent", "other"), errno.ENOENT),
    "rename over": (lambda: os.rename("file", "directory"), errno.EISDIR),
    "unlink": (lambda: os.unlink("absent"), errno.ENOENT),
    "rmdir": (lambda: os.rmdir("absent"), errno.ENOENT),
    "truncate": (lambda: os.truncate("absent", 0), errno.ENOENT),
    "make and remove": (lambda: (os.mkdir("new"), os.rmdir("new")), 0),
    "link and unlink": (lambda: (os.link("file", "second"), os.unlink("second")), 0),
    "rename there and back": (lambda: (os.rename("file", "moved"), os.rename("moved", "file")), 0),
    "list": (lambda: os.listdir("."), 0),
}
signal.setitimer(signal.ITIMER_REAL, 0.0005)
while came < 300:
    for name, (call, expected) in calls.items():
        try:
            call()
            ended = 0
        except OSError as error:
            ended = error.errno
        if ended != expected:
            print(name, errno.errorcode.get(ended, ended))
            stop()
            sys.exit(1)
stop()
"#;

#[test]
fn a_call_that_is_answered_is_not_cut_short_by_a_signal_that_the_program_handles() {
    with_mount(|m| {
        for kind in ["interrupts", "restarts"] {
            let directory = m.path(kind);
            std::fs::create_dir(&directory).expect("created");
            let mut program = Command::new("python3");
            let output = program.args(["-c", PROGRAM, kind]).current_dir(&directory).run_bounded();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let complained = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{kind}: {}: {said}{complained}", output.status);
        }
    });
}
