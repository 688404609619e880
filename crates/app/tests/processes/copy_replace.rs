//! `vazao cp` onto names that exist: what is replaced, what is written into, and what is left alone.

use crate::support::{self, Cluster, VAZAO, failed, noise, noise_file, succeeded, text};
use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use vazao_testing::programs::{RunBounded, WaitBounded};

/// A user that owns nothing here.
const NOBODY: u32 = 65_534;

fn scratch() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn cp(arguments: &[&Path]) -> Command {
    let mut command = Command::new(VAZAO);
    command.arg("cp").args(arguments);
    command
}

fn file(directory: &Path, name: &str, contents: &[u8], mode: u32) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, contents).expect("written");
    fs::set_permissions(&path, Permissions::from_mode(mode)).expect("set");
    path
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("there").mode() & 0o7777
}

fn names(directory: &Path) -> usize {
    fs::read_dir(directory).expect("listed").count()
}

#[test]
fn a_fifo_gets_the_bytes_in_order_holes_as_zeros_and_stays_a_fifo() {
    let scratch = scratch();
    let source = file(scratch.path(), "source", &noise(70_000), 0o644);
    let sparse = fs::File::options().write(true).open(&source).expect("opened");
    sparse.set_len(5_000_000).expect("extended");
    let fifo = scratch.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).run_bounded().status.success());
    let said = failed(cp(&[&source, &fifo]).run_bounded(), 1);
    assert!(said.contains("start the reader"), "{said}");
    // Opened for both, so that it does not wait for a writer; then the copy has its reader.
    let mut reader = fs::File::options().read(true).write(true).open(&fifo).expect("opened");
    let copying = support::spawn(cp(&[&source, &fifo]));
    let mut got = vec![1; 5_000_000];
    reader.read_exact(&mut got).expect("read");
    succeeded(copying.output_bounded());
    assert!(got == fs::read(&source).expect("read"));
    assert!(fs::symlink_metadata(&fifo).expect("there").file_type().is_fifo());
}

#[test]
fn a_device_is_written_into_and_stays_a_device() {
    let scratch = scratch();
    let source = file(scratch.path(), "source", &noise(5_000_000), 0o644);
    let device = scratch.path().join("null");
    let made = Command::new("mknod").arg(&device).args(["c", "1", "3"]).run_bounded();
    // Without the right to make a device: a link to one, which was replaced as well.
    if !made.status.success() || fs::write(&device, "").is_err() {
        let _ = fs::remove_file(&device);
        symlink("/dev/null", &device).expect("linked");
    }
    let before = fs::symlink_metadata(&device).expect("there");
    succeeded(cp(&[&source, &device]).run_bounded());
    let after = fs::symlink_metadata(&device).expect("there");
    assert_eq!((before.ino(), before.file_type()), (after.ino(), after.file_type()));
}

#[test]
fn a_socket_is_left_alone() {
    let scratch = scratch();
    let source = file(scratch.path(), "source", b"new", 0o644);
    let socket = scratch.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("bound");
    let said = failed(cp(&[&source, &socket]).run_bounded(), 1);
    assert!(said.contains("is a socket and is not replaced"), "{said}");
    assert!(fs::symlink_metadata(&socket).expect("there").file_type().is_socket());
    assert_eq!(names(scratch.path()), 2);
}

#[test]
fn a_link_is_followed_to_the_file_it_leads_to() {
    let scratch = scratch();
    let source = file(scratch.path(), "source", b"new", 0o644);
    fs::create_dir(scratch.path().join("d")).expect("made");
    let target = file(&scratch.path().join("d"), "target", b"old", 0o644);
    let link = scratch.path().join("link");
    symlink("d/target", &link).expect("linked");
    succeeded(cp(&[&source, &link]).run_bounded());
    assert_eq!(fs::read_link(&link).expect("still a link"), Path::new("d/target"));
    assert_eq!(fs::read(&target).expect("read"), b"new");
    fs::remove_file(&target).expect("removed");
    let said = failed(cp(&[&source, &link]).run_bounded(), 1);
    assert!(said.contains("a symbolic link to nothing"), "{said}");
    assert!(!target.exists() && link.is_symlink());
}

#[test]
fn a_link_in_the_volume_is_followed_from_the_directory_it_lies_in() {
    let cluster = Cluster::start(1);
    let [old, new] = [("old", 100), ("new", 200)].map(|(name, size)| noise_file(&cluster.local(name), size));
    cluster.ok(&["mkdir", "-p", "vz:/a/b"]);
    cluster.ok(&["cp", &old, "vz:/a/target"]);
    cluster.ok(&["ln", "-s", "/a/b", "vz:/far"]);
    cluster.ok(&["ln", "-s", "../target", "vz:/a/b/link"]);
    cluster.ok(&["cp", &new, "vz:/far/link"]);
    let listed = cluster.ok(&["ls", "-l", "vz:/a/b"]);
    assert!(listed.contains("link -> ../target"), "{listed}");
    assert_eq!(cluster.command(&["cat", "vz:/a/target"]).run_bounded().stdout, noise(200));
    cluster.ok(&["ln", "-s", "nowhere", "vz:/dangling"]);
    assert!(cluster.fails(&["cp", &new, "vz:/dangling"]).contains("a symbolic link to nothing"));
    assert_eq!(cluster.ok(&["ls", "-a", "vz:/"]), "a\ndangling\nfar\n");
}

#[test]
fn a_private_file_stays_private_here_and_in_the_volume() {
    let cluster = Cluster::start(1);
    let source = file(&cluster.local(""), "source", b"new", 0o644);
    let private = file(&cluster.local(""), "private", b"old", 0o600);
    cluster.ok(&["cp", &text(&private), "vz:/private"]);
    cluster.ok(&["cp", &text(&source), "vz:/private"]);
    let stat: serde_json::Value =
        serde_json::from_str(&cluster.ok(&["stat", "--json", "vz:/private"])).expect("JSON");
    assert_eq!((&stat["mode"], &stat["size"]), (&"0600".into(), &3.into()));
    cluster.ok(&["cp", &text(&source), "vz:/other"]);
    cluster.ok(&["cp", "vz:/other", &text(&private)]);
    assert_eq!((mode(&private), fs::read(&private).expect("read")), (0o600, b"new".to_vec()));
}

#[test]
fn the_owner_of_what_is_replaced_stays_where_one_may_give_it() {
    let scratch = scratch();
    let source = file(scratch.path(), "source", b"new", 0o644);
    let theirs = file(scratch.path(), "theirs", b"old", 0o640);
    // Root gives the file to another user; other users keep a file of their own.
    let owner = if chown(&theirs, Some(NOBODY), Some(NOBODY)).is_ok() {
        NOBODY
    } else {
        fs::metadata(&source).expect("there").uid()
    };
    succeeded(cp(&[&source, &theirs]).run_bounded());
    assert_eq!((fs::metadata(&theirs).expect("there").uid(), mode(&theirs)), (owner, 0o640));
}

#[test]
fn set_id_bits_are_dropped_with_an_owner_that_cannot_be_given() {
    let scratch = scratch();
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o755)).expect("set");
    let into = scratch.path().join("into");
    fs::create_dir(&into).expect("made");
    fs::set_permissions(&into, Permissions::from_mode(0o777)).expect("set");
    let program = scratch.path().join("vazao");
    fs::copy(VAZAO, &program).expect("copied");
    let is_root = fs::metadata(&program).expect("there").uid() == 0;
    // Somebody else's program with a set-id bit: one of the system's, unless we can make one.
    let source = if is_root {
        file(scratch.path(), "set-id", b"program", 0o4755)
    } else {
        PathBuf::from("/usr/bin/su")
    };
    let copy = into.join("copy");
    let mut command = Command::new(&program);
    command.args(["cp", "-p"]).args([&source, &copy]);
    if is_root {
        command.uid(NOBODY).gid(NOBODY);
    }
    succeeded(command.run_bounded());
    assert_eq!(mode(&source) & 0o4000, 0o4000);
    assert_eq!(mode(&copy), mode(&source) & 0o777);
}

#[test]
fn messages_name_the_destination_and_not_the_temporary_file() {
    let scratch = scratch();
    let source = file(scratch.path(), "source", b"new", 0o644);
    let nowhere = scratch.path().join("nowhere/file");
    let said = failed(cp(&[&source, &nowhere]).run_bounded(), 1);
    assert_eq!(said, format!("vazao: {}: no such file or directory\n", nowhere.display()));
}

#[test]
fn a_file_that_the_user_may_not_write_to_is_replaced_with_f_only() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not tested: not root, who alone can be another user");
        return;
    }
    let scratch = scratch();
    chown(scratch.path(), Some(NOBODY), Some(NOBODY)).expect("given");
    let source = file(scratch.path(), "source", b"new", 0o644);
    let there = file(scratch.path(), "there", b"old", 0o444);
    chown(&there, Some(NOBODY), Some(NOBODY)).expect("given");
    let copy = |options: &[&str]| {
        let mut command = Command::new(VAZAO);
        command.arg("cp").args(options).arg(&source).arg(&there).uid(NOBODY).gid(NOBODY);
        command.run_bounded()
    };
    let said = failed(copy(&[]), 1);
    assert!(said.contains("there: is read-only for you (mode 0444); give -f"), "{said}");
    assert_eq!(fs::read(&there).expect("read"), b"old");
    succeeded(copy(&["-f"]));
    assert_eq!(fs::read(&there).expect("read"), b"new");
    assert_eq!(names(scratch.path()), 2);
}
