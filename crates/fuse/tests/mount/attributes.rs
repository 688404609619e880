//! Modes, owners, times, extended attributes, space.

use crate::cluster::{Mounted, errno, with_cluster, with_mount};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use vazao_fuse::MountOptions;
use vazao_testing::programs::RunBounded;

/// An ordinary user.
const NOBODY: u32 = 65534;

pub(crate) fn needs_root() {
    assert!(rustix::process::geteuid().is_root(), "this test changes owners and must run as root");
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("there").mode() & 0o7777
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("allowed");
}

#[test]
fn modes_owners_and_times_are_kept_over_a_new_mount() {
    needs_root();
    with_cluster(|cluster| {
        let m = cluster.mount();
        let path = m.path("f");
        fs::write(&path, b"x").expect("written");
        set_mode(&path, 0o4751);
        chown(&path, Some(1234), Some(5678)).expect("root may");
        set_mode(&path, 0o751);
        let day = std::time::UNIX_EPOCH + std::time::Duration::new(86_400, 123_456_789);
        let file = fs::File::options().write(true).open(&path).expect("opened");
        file.set_times(fs::FileTimes::new().set_modified(day).set_accessed(day)).expect("set");
        drop(file);
        m.unmount();
        let m = cluster.mount();
        let found = fs::metadata(m.path("f")).expect("there");
        assert_eq!((found.mode() & 0o7777, found.uid(), found.gid()), (0o751, 1234, 5678));
        assert_eq!((found.mtime(), found.mtime_nsec()), (86_400, 123_456_789));
        assert_eq!((found.atime(), found.atime_nsec()), (86_400, 123_456_789));
        m.unmount();
    });
}

#[test]
fn a_time_set_on_a_file_being_written_outlives_its_close() {
    use std::io::Write;
    with_mount(|m| {
        for bytes in [10, 500_000] {
            let path = m.path("f");
            let mut file = fs::File::create(&path).expect("created");
            file.write_all(&vec![1; bytes]).expect("written");
            let then = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
            file.set_times(fs::FileTimes::new().set_modified(then)).expect("set");
            drop(file);
            assert_eq!(fs::metadata(&path).expect("there").mtime(), 1_000_000_000, "{bytes} bytes");
        }
    });
}

#[test]
fn times_far_from_now_are_exact_and_harm_nobody() {
    with_mount(|m| {
        let path = m.path("f");
        fs::write(&path, b"x").expect("written");
        for (seconds, nanoseconds) in
            [(i64::MIN, 0), (-2, 800_000_000), (-1, 999_999_999), (1 << 40, 1), (i64::MAX, 0)]
        {
            let time = rustix::fs::Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
            let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
            rustix::fs::utimensat(rustix::fs::CWD, &path, &times, rustix::fs::AtFlags::empty())
                .expect("any time");
            let found = fs::metadata(&path).expect("the mount still answers");
            assert_eq!((found.mtime(), found.mtime_nsec()), (seconds, nanoseconds));
            assert_eq!((found.atime(), found.atime_nsec()), (seconds, nanoseconds));
        }
    });
}

#[test]
fn writing_shows_in_size_and_times_at_once_and_touching_does_not_change_contents() {
    use std::io::Write;
    with_mount(|m| {
        let path = m.path("f");
        let mut file = fs::File::create(&path).expect("created");
        let before = fs::metadata(&path).expect("there");
        file.write_all(&[1; 70_000]).expect("written");
        let after = fs::metadata(&path).expect("there");
        assert_eq!(after.len(), 70_000);
        let time = |m: &fs::Metadata| (m.mtime(), m.mtime_nsec());
        assert!(time(&after) > time(&before), "{:?} {:?}", time(&before), time(&after));
        let changed = |m: &fs::Metadata| (m.ctime(), m.ctime_nsec());
        set_mode(&path, 0o600);
        let touched = fs::metadata(&path).expect("there");
        assert!(changed(&touched) > changed(&after));
        assert_eq!(time(&touched), time(&after));
    });
}

#[test]
fn the_umask_and_the_callers_ids_are_applied() {
    needs_root();
    with_cluster(|cluster| {
        let m = cluster.mount_with(MountOptions { allow_other: true, ..MountOptions::default() });
        set_mode(m.root(), 0o1777);
        let script = "umask 027; echo x > file; mkdir dir; ln -s x link";
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(m.root()).uid(NOBODY).gid(NOBODY);
        assert!(shell.run_bounded().status.success());
        assert_eq!((mode(&m.path("file")), mode(&m.path("dir"))), (0o640, 0o750));
        for name in ["file", "dir", "link"] {
            let found = fs::symlink_metadata(m.path(name)).expect("there");
            assert_eq!((found.uid(), found.gid()), (NOBODY, NOBODY), "{name}");
        }
        m.unmount();
    });
}

/// Runs a shell command in the mount as an ordinary user; true when it succeeded.
pub(crate) fn as_nobody(m: &Mounted, script: &str) -> bool {
    let mut command = Command::new("sh");
    command.args(["-c", script]).uid(NOBODY).gid(NOBODY).stderr(std::process::Stdio::null());
    command.current_dir("/").env("M", m.root()).run_bounded().status.success()
}

#[test]
fn permission_bits_are_checked_for_other_users() {
    needs_root();
    with_cluster(|cluster| {
        let m = cluster.mount_with(MountOptions { allow_other: true, ..MountOptions::default() });
        set_mode(m.root(), 0o755);
        fs::write(m.path("secret"), b"x").expect("written");
        set_mode(&m.path("secret"), 0o600);
        fs::write(m.path("public"), b"x").expect("written");
        set_mode(&m.path("public"), 0o644);
        assert!(as_nobody(&m, "cat $M/public"));
        for refused in [
            "cat $M/secret",
            "echo y > $M/public",
            "echo y > $M/new",
            "rm -f $M/public",
            "chmod 777 $M/public",
        ] {
            assert!(!as_nobody(&m, refused), "{refused}");
        }
        fs::DirBuilder::new().mode(0o1777).create(m.path("tmp")).expect("created");
        set_mode(&m.path("tmp"), 0o1777);
        fs::write(m.path("tmp/roots"), b"x").expect("written");
        assert!(as_nobody(&m, "echo y > $M/tmp/mine && rm $M/tmp/mine"));
        assert!(!as_nobody(&m, "rm -f $M/tmp/roots"), "the sticky bit protects it");
        m.unmount();
    });
}

#[test]
fn without_allow_other_nobody_else_gets_in() {
    needs_root();
    with_mount(|m| {
        set_mode(m.root(), 0o777);
        assert!(!as_nobody(m, "ls $M/"));
    });
}

#[test]
fn writing_and_changing_the_owner_clear_set_id_bits() {
    needs_root();
    with_cluster(|cluster| {
        let m = cluster.mount_with(MountOptions { allow_other: true, ..MountOptions::default() });
        set_mode(m.root(), 0o755);
        let path = m.path("f");
        fs::write(&path, b"x").expect("written");
        for change in
            ["echo y >> $M/f", "echo y > $M/f", "truncate -s 1 $M/f", ": > $M/f", "truncate -s 70000 $M/f"]
        {
            set_mode(&path, 0o6777);
            assert_eq!(mode(&path), 0o6777);
            assert!(as_nobody(&m, change), "{change}");
            assert_eq!(mode(&path), 0o777, "{change}");
        }
        set_mode(&path, 0o6777);
        chown(&path, Some(NOBODY), None).expect("root may");
        assert_eq!(mode(&path), 0o777);
        set_mode(&path, 0o6777);
        fs::write(&path, b"root keeps them").expect("written");
        assert_eq!(mode(&path), 0o6777);
        m.unmount();
    });
}

/// `copy_file_range` and `fallocate` by a user without rights left the bits as they were, and a write left
/// set-group-id to who is not in the group.
#[test]
fn each_way_to_change_contents_clears_set_id_bits_as_a_local_file_system_does() {
    needs_root();
    with_cluster(|cluster| {
        let m = cluster.mount_with(MountOptions { allow_other: true, ..MountOptions::default() });
        set_mode(m.root(), 0o755);
        let mut program = Command::new("python3");
        let output = program.args(["-c", include_str!("set_id.py")]).arg(m.root()).run_bounded();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(said, "408 tried\n", "{}", String::from_utf8_lossy(&output.stderr));
        m.unmount();
    });
}

#[test]
fn set_id_programs_and_devices_take_effect_only_where_the_mount_asks_for_it() {
    needs_root();
    with_cluster(|cluster| {
        for takes_effect in [false, true] {
            let options =
                MountOptions { set_id: takes_effect, devices: takes_effect, ..MountOptions::default() };
            let m = cluster.mount_with(MountOptions { allow_other: true, ..options });
            set_mode(m.root(), 0o755);
            let program = m.path("id");
            fs::copy("/usr/bin/id", &program).expect("copied");
            set_mode(&program, 0o4755);
            let script = "test $($M/id -u) = 0";
            assert_eq!(as_nobody(&m, script), takes_effect, "a set-user-id program");
            let null = m.path("null");
            let device = rustix::fs::makedev(1, 3);
            let (kind, mode) =
                (rustix::fs::FileType::CharacterDevice, rustix::fs::Mode::from_raw_mode(0o666));
            rustix::fs::mknodat(rustix::fs::CWD, &null, kind, mode, device).expect("root may");
            assert_eq!(fs::write(&null, b"gone").is_ok(), takes_effect, "a device");
            fs::remove_file(&null).expect("removed");
            m.unmount();
        }
    });
}

#[test]
fn extended_attributes_come_back_and_limits_are_told() {
    with_mount(|m| {
        let path = m.path("f");
        fs::write(&path, b"x").expect("written");
        let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&path, name, value, flags);
        set("user.a", b"value", XattrFlags::empty()).expect("set");
        set("user.empty", b"", XattrFlags::empty()).expect("set");
        let mut buffer = vec![0; 100_000];
        assert_eq!(rustix::fs::getxattr(&path, "user.a", &mut buffer[..]), Ok(5));
        assert_eq!(&buffer[..5], b"value");
        assert_eq!(rustix::fs::getxattr_query(&path, "user.a"), Ok(5));
        assert_eq!(rustix::fs::getxattr(&path, "user.a", &mut buffer[..4]), Err(Errno::RANGE));
        assert_eq!(rustix::fs::getxattr(&path, "user.empty", &mut buffer[..]), Ok(0));
        assert_eq!(rustix::fs::getxattr(&path, "user.b", &mut buffer[..]), Err(Errno::NODATA));
        assert_eq!(set("user.a", b"", XattrFlags::CREATE), Err(Errno::EXIST));
        assert_eq!(set("user.b", b"", XattrFlags::REPLACE), Err(Errno::NODATA));
        assert_eq!(set("system.nfs4_acl", b"x", XattrFlags::empty()), Err(Errno::OPNOTSUPP));
        assert_eq!(set("user.huge", &vec![9; 65_537], XattrFlags::empty()), Err(Errno::TOOBIG));
        set("user.big", &vec![9; 65_536], XattrFlags::empty()).expect("64 KiB");
        assert_eq!(rustix::fs::getxattr(&path, "user.big", &mut buffer[..]), Ok(65_536));
        let listed = rustix::fs::listxattr(&path, &mut buffer[..]).expect("listed");
        let mut names: Vec<&[u8]> = buffer[..listed].split(|&b| b == 0).filter(|n| !n.is_empty()).collect();
        names.sort_unstable();
        assert_eq!(names, [&b"user.a"[..], b"user.big", b"user.empty"]);
        rustix::fs::removexattr(&path, "user.a").expect("removed");
        assert_eq!(rustix::fs::removexattr(&path, "user.a"), Err(Errno::NODATA));
    });
}

#[test]
fn statfs_counts_the_space_of_all_targets_and_names_its_limits() {
    with_mount(|m| {
        let below = rustix::fs::statvfs("/tmp").expect("answered");
        let found = rustix::fs::statvfs(m.root()).expect("answered");
        assert_eq!((found.f_namemax, found.f_frsize), (255, 4096));
        assert!(found.f_blocks * 4096 >= below.f_blocks * below.f_frsize);
        assert!(found.f_bavail > 0 && found.f_bavail <= found.f_blocks);
        assert!(found.f_ffree > 1_000_000 && found.f_files > found.f_ffree);
        let df = Command::new("df").arg(m.root()).run_bounded();
        assert!(String::from_utf8_lossy(&df.stdout).contains("vz:/"));
    });
}

#[test]
fn a_read_only_mount_refuses_every_change() {
    with_cluster(|cluster| {
        let writable = cluster.mount();
        fs::write(writable.path("f"), b"x").expect("written");
        let m = cluster.mount_with(MountOptions { read_only: true, ..MountOptions::default() });
        assert_eq!(fs::read(m.path("f")).expect("readable"), b"x");
        assert_eq!(errno(fs::write(m.path("f"), b"y")), Errno::ROFS);
        assert_eq!(errno(fs::create_dir(m.path("d"))), Errno::ROFS);
        assert_eq!(errno(fs::remove_file(m.path("f"))), Errno::ROFS);
        m.unmount();
        writable.unmount();
    });
}
