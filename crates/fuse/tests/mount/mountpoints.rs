//! Where mounts go, how they show, how they end.

use crate::cluster::{has_fuse, with_cluster};
use std::fs;
use vazao_fuse::{Detach, MountError, MountOptions, mount, unmount};
use vazao_model::VolumePath;

fn mounts_below(path: &std::path::Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mounts").expect("readable");
    let path = path.to_str().expect("a temporary directory's name is ASCII");
    table.lines().filter(|line| line.contains(path)).map(str::to_owned).collect()
}

#[test]
fn it_shows_with_its_type_and_source_and_reads_ahead() {
    with_cluster(|cluster| {
        let whole = cluster.mount();
        fs::create_dir(whole.path("a b")).expect("created");
        let part = cluster.mount_path("/a b");
        let line = mounts_below(whole.root()).pop().expect("mounted");
        assert!(line.starts_with("vz:/ ") && line.contains(" fuse.vazao rw,nosuid,nodev"), "{line}");
        let line = mounts_below(part.root()).pop().expect("mounted");
        assert!(line.starts_with(r"vz:/a\040b ") && line.contains(" fuse.vazao "), "{line}");
        let root = part.root().to_owned();
        part.unmount();
        assert_eq!(mounts_below(&root), Vec::<String>::new());
        whole.unmount();
    });
}

#[test]
fn a_mountpoint_that_is_missing_not_empty_or_taken_is_refused() {
    with_cluster(|cluster| {
        let outside = cluster.outside("mountpoints");
        let refusal = |path: &std::path::Path| {
            let refused = mount(cluster.client(), path, MountOptions::default());
            refused.map(drop).expect_err("must be refused")
        };
        assert!(matches!(refusal(&outside.join("missing")), MountError::Missing(_)));
        fs::write(outside.join("f"), b"x").expect("written");
        assert!(matches!(refusal(&outside), MountError::NotEmpty(_)));
        assert!(matches!(refusal(&outside.join("f")), MountError::NotDirectory(_)));
        let mounted = cluster.mount();
        let error = refusal(mounted.root());
        assert!(matches!(error, MountError::AlreadyMounted(_, _)), "{error}");
        assert!(error.to_string().contains("vz:/ is already mounted"), "{error}");
        mounted.unmount();
    });
}

#[test]
fn a_path_that_is_missing_or_a_file_cannot_be_mounted() {
    with_cluster(|cluster| {
        let whole = cluster.mount();
        fs::write(whole.path("f"), b"x").expect("written");
        let outside = cluster.outside("root");
        for (path, text) in [("/missing", "no such file"), ("/f", "not a directory")] {
            let options = MountOptions {
                path: VolumePath::parse(path.as_bytes()).expect("valid"),
                ..MountOptions::default()
            };
            let error = mount(cluster.client(), &outside, options).map(drop).expect_err("must be refused");
            assert!(
                error.to_string().contains(&format!("vz:{path}")) && error.to_string().contains(text),
                "{error}"
            );
        }
        assert_eq!(mounts_below(&outside), Vec::<String>::new());
        whole.unmount();
    });
}

#[test]
fn a_mount_in_use_is_not_taken_away_and_one_that_is_not_is() {
    with_cluster(|cluster| {
        let mounted = cluster.mount();
        let file = fs::File::create(mounted.path("f")).expect("created");
        let error = unmount(mounted.root(), Detach::IfUnused).expect_err("a file is open");
        assert!(matches!(error, MountError::Busy(_)), "{error}");
        drop(file);
        unmount(mounted.root(), Detach::IfUnused).expect("nothing is open");
        mounted.mount.wait().expect("ended in order");
        assert!(matches!(unmount(mounted.root(), Detach::IfUnused), Err(MountError::NotMounted(_))));
    });
}

#[test]
fn what_was_written_is_stored_when_unmounting_returns() {
    with_cluster(|cluster| {
        let mounted = cluster.mount();
        fs::write(mounted.path("f"), vec![3; 5_000_000]).expect("written");
        mounted.unmount();
        let mounted = cluster.mount();
        assert!(fs::read(mounted.path("f")).expect("readable").iter().all(|&b| b == 3));
        mounted.unmount();
    });
}

#[test]
fn a_detached_mount_serves_what_is_open_until_the_last_close() {
    use std::io::Write;
    with_cluster(|cluster| {
        let mounted = cluster.mount();
        let mut file = fs::File::create(mounted.path("f")).expect("created");
        mounted.mount.detach().expect("detached");
        assert_eq!(mounts_below(mounted.root()), Vec::<String>::new());
        file.write_all(&vec![4; 3_000_000]).expect("still writable");
        drop(file);
        mounted.mount.wait().expect("everything stored");
        let again = cluster.mount();
        assert_eq!(fs::metadata(again.path("f")).expect("there").len(), 3_000_000);
        again.unmount();
    });
}

#[test]
fn a_mount_is_taken_away_when_the_test_that_made_it_panics() {
    with_cluster(|cluster| {
        let mut root = std::path::PathBuf::new();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mounted = cluster.mount();
            root = mounted.root().to_owned();
            fs::write(mounted.path("f"), b"x").expect("written");
            std::panic::resume_unwind(Box::new("on purpose"));
        }));
        assert!(panicked.is_err());
        assert!(mounts_below(&root).is_empty() && !root.exists());
    });
}

#[test]
fn two_clusters_at_once_do_not_see_each_other() {
    if !has_fuse() {
        return;
    }
    with_cluster(|first| {
        with_cluster(|second| {
            let (a, b) = (first.mount(), second.mount());
            fs::write(a.path("f"), b"first").expect("written");
            fs::write(b.path("f"), b"second").expect("written");
            assert_eq!(fs::read(a.path("f")).expect("readable"), b"first");
            assert_eq!(fs::read(b.path("f")).expect("readable"), b"second");
            a.unmount();
            b.unmount();
        });
    });
}
