//! Access control lists, capabilities and the attributes of the system, with the programs that people use for them.

use crate::attributes::{as_nobody, needs_root, set_mode};
use crate::cluster::{Mounted, with_cluster};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;
use vazao_fuse::MountOptions;
use vazao_testing::programs::RunBounded;

/// Runs a script with `$M` for the mount; its output, which must be a success.
fn sh(m: &Mounted, script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).env("M", m.root()).run_bounded();
    let (said, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}: {said}{error}");
    said.into_owned()
}

/// Runs a script that must fail.
fn refused(m: &Mounted, script: &str) {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).env("M", m.root()).stderr(std::process::Stdio::null());
    assert!(!shell.run_bounded().status.success(), "{script} must be refused");
}

/// Runs the test in a mount that others may use.
fn with_shared_mount(body: impl FnOnce(&Mounted)) {
    needs_root();
    with_cluster(|cluster| {
        let m = cluster.mount_with(MountOptions { allow_other: true, ..MountOptions::default() });
        set_mode(m.root(), 0o755);
        body(&m);
        m.unmount();
    });
}

fn mode(m: &Mounted, name: &str) -> u32 {
    fs::metadata(m.path(name)).expect("there").permissions().mode() & 0o7777
}

fn list(m: &Mounted, name: &str) -> Vec<String> {
    let shown = sh(m, &format!("getfacl -cpE $M/{name}"));
    shown.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn a_named_user_gets_in_by_the_list_and_only_as_far_as_the_mask() {
    with_shared_mount(|m| {
        fs::write(m.path("f"), b"secret").expect("written");
        set_mode(&m.path("f"), 0o600);
        assert!(!as_nobody(m, "cat $M/f"));
        sh(m, "setfacl -m u:nobody:rw $M/f");
        assert_eq!(mode(m, "f"), 0o660, "the group bits show the mask");
        assert_eq!(list(m, "f"), ["user::rw-", "user:nobody:rw-", "group::---", "mask::rw-", "other::---"]);
        assert!(as_nobody(m, "cat $M/f && echo more >> $M/f"));
        set_mode(&m.path("f"), 0o640);
        assert!(list(m, "f").contains(&"mask::r--".to_owned()), "chmod sets the mask");
        assert!(as_nobody(m, "cat $M/f") && !as_nobody(m, "echo more >> $M/f"));
        sh(m, "setfacl -m m::rwx,o::r $M/f");
        assert_eq!(mode(m, "f"), 0o674);
        sh(m, "setfacl -b $M/f");
        assert_eq!(list(m, "f"), ["user::rw-", "group::---", "other::r--"]);
        assert_eq!(mode(m, "f"), 0o604);
        sh(m, "setfacl -b $M/f");
    });
}

#[test]
fn new_inodes_inherit_the_default_list_and_the_umask_holds_where_there_is_none() {
    with_shared_mount(|m| {
        sh(m, "umask 027; mkdir $M/plain; touch $M/plain/f; mkfifo $M/plain/p; mkdir $M/plain/d");
        assert_eq!((mode(m, "plain"), mode(m, "plain/f")), (0o750, 0o640));
        assert_eq!((mode(m, "plain/p"), mode(m, "plain/d")), (0o640, 0o750));
        sh(m, "mkdir $M/d; setfacl -d -m u:nobody:rwx,g::rx,o::- $M/d");
        sh(m, "umask 077; touch $M/d/f; mkdir $M/d/sub; mkfifo $M/d/p; touch $M/d/sub/deep; ln -s f $M/d/l");
        for name in ["d/f", "d/p", "d/sub/deep"] {
            let expected =
                ["user::rw-", "user:nobody:rwx", "group::r-x", "mask::rw-", "other::---"].map(str::to_owned);
            assert_eq!(list(m, name), expected, "{name}");
            assert_eq!(mode(m, name), 0o660, "{name}");
        }
        assert_eq!(mode(m, "d/sub"), 0o770);
        let sub = list(m, "d/sub");
        assert!(sub.contains(&"default:user:nobody:rwx".to_owned()), "{sub:?}");
        assert!(as_nobody(m, "echo hello > $M/d/sub/by-nobody"));
        sh(m, "setfacl -k $M/d; setfacl -k $M/d; umask 077; touch $M/d/late");
        assert_eq!(mode(m, "d/late"), 0o600);
        refused(m, "setfacl -d -m u:nobody:r $M/d/f");
        refused(m, "setfattr -n system.posix_acl_access -v 0sAAAA $M/d/f");
    });
}

#[test]
fn a_program_outside_of_the_group_loses_the_set_group_id_bit_with_a_new_list() {
    with_shared_mount(|m| {
        fs::write(m.path("f"), b"x").expect("written");
        std::os::unix::fs::chown(m.path("f"), Some(65_534), Some(0)).expect("root may");
        set_mode(&m.path("f"), 0o2755);
        assert!(as_nobody(m, "setfacl -m u:daemon:r $M/f"));
        assert_eq!(mode(m, "f") & 0o2000, 0);
        set_mode(&m.path("f"), 0o2755);
        sh(m, "setfacl -m u:daemon:rw $M/f");
        assert_eq!(mode(m, "f") & 0o2000, 0o2000, "root keeps it");
    });
}

#[test]
fn capabilities_are_kept_and_go_with_a_write_a_cut_and_a_new_owner() {
    with_shared_mount(|m| {
        let path = m.path("program");
        let give = |m: &Mounted| {
            fs::copy("/bin/true", &path).expect("copied");
            sh(m, "/usr/sbin/setcap cap_net_raw+ep $M/program");
            let shown = sh(m, "/usr/sbin/getcap $M/program");
            assert!(shown.contains("cap_net_raw=ep"), "{shown}");
        };
        for change in [
            "printf x >> $M/program",
            "printf x | dd of=$M/program bs=1 conv=notrunc",
            "truncate -s 100 $M/program",
            "chown daemon $M/program",
            ": > $M/program",
        ] {
            give(m);
            sh(m, &format!("{change} 2>/dev/null"));
            assert_eq!(sh(m, "/usr/sbin/getcap $M/program"), "", "{change}");
        }
        give(m);
        let file = fs::OpenOptions::new().write(true).open(&path).expect("opened");
        sh(m, "/usr/sbin/setcap cap_net_raw+ep $M/program");
        std::io::Write::write_all(&mut &file, b"x").expect("written");
        assert_eq!(sh(m, "/usr/sbin/getcap $M/program"), "", "set while it was open");
    });
}

#[test]
fn attributes_of_the_system_are_for_those_who_may_see_them() {
    with_shared_mount(|m| {
        sh(m, "touch $M/f; setfattr -n trusted.a -v 1 $M/f; setfattr -n security.b -v 2 $M/f");
        set_mode(&m.path("f"), 0o666);
        assert_eq!(sh(m, "getfattr --absolute-names -m - $M/f | grep -cE '^(trusted|security)'").trim(), "2");
        assert!(!as_nobody(m, "getfattr -n trusted.a $M/f"));
        assert!(!as_nobody(m, "setfattr -n trusted.c -v 1 $M/f"));
        assert!(!as_nobody(m, "setfattr -n security.c -v 1 $M/f"));
        assert!(as_nobody(m, "getfattr -n security.b $M/f && setfattr -n user.c -v 1 $M/f"));
        assert!(!as_nobody(m, "getfattr -m - $M/f | grep trusted"));
        sh(m, "mkdir $M/sticky; chmod 1777 $M/sticky; ln -s f $M/l");
        assert!(!as_nobody(m, "setfattr -n user.a -v 1 $M/sticky"), "only its owner may");
        refused(m, "setfattr -h -n user.a -v 1 $M/l");
        sh(m, "setfattr -h -n trusted.a -v 1 $M/l");
    });
}

#[test]
fn rsync_and_cp_bring_lists_attributes_links_and_owners_over() {
    with_shared_mount(|m| {
        sh(
            m,
            "mkdir -p $M/a/d; echo x > $M/a/f; ln $M/a/f $M/a/hard; ln -s f $M/a/link; mkfifo $M/a/d/pipe
             chown daemon:nogroup $M/a/f; chmod 4750 $M/a/f; setfattr -n user.note -v hi $M/a/f
             setfacl -m u:nobody:rx $M/a/f; setfacl -d -m g:daemon:rwx $M/a/d; setfacl -m g:daemon:r $M/a/d
             find $M/a -exec touch -h -d '2001-02-03 04:05:06.789' {} +
             rsync -aHAX $M/a/ $M/b/; cp -a $M/a $M/c",
        );
        let look = "find . -printf '%p %y %m %U %G %s %n %T@ %l\\n' | sort | grep -v '^\\./d .*pipe'; \
                    getfacl -R . ; getfattr -R -d -m - .";
        let expected = sh(m, &format!("cd $M/a; {look}"));
        assert!(expected.contains("user:nobody:r-x") && expected.contains("user.note"), "{expected}");
        for copy in ["b", "c"] {
            assert_eq!(sh(m, &format!("cd $M/{copy}; {look}")), expected, "{copy}");
            let links = fs::metadata(m.path(copy).join("f")).expect("there").nlink();
            assert_eq!(links, 2, "{copy}");
        }
        assert_eq!(sh(m, "rsync -aHAXni $M/a/ $M/b/"), "", "nothing is left to be done");
    });
}
