//! What mounting and unmounting refuse, without a cluster or a device.

use super::*;

fn refusal(path: &Path) -> String {
    check(path).expect_err("must be refused").to_string()
}

#[test]
fn a_mountpoint_that_is_missing_a_file_or_not_empty_is_refused_with_its_name_and_a_remedy() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().canonicalize().expect("it exists");
    assert_eq!(check(&path).expect("an empty directory"), path);
    let missing = path.join("missing");
    assert!(refusal(&missing).contains(&format!("mkdir -p {}", missing.display())));
    assert!(refusal(&missing.join("below")).contains("no such directory"));
    std::fs::write(path.join("f"), b"x").expect("writable");
    assert!(refusal(&path.join("f")).contains("not a directory"));
    assert!(refusal(&path.join("f/below")).contains("not a directory"));
    assert!(refusal(&path).contains("not empty"));
}

#[test]
fn unmounting_what_is_not_ours_is_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let error = unmount(directory.path(), Detach::IfUnused).expect_err("nothing is mounted");
    assert!(matches!(error, MountError::NotMounted(_)), "{error}");
    let error = unmount(&directory.path().join("missing"), Detach::IfUnused).expect_err("nothing is there");
    assert!(matches!(error, MountError::NotMounted(_)), "{error}");
    let error = unmount(Path::new("/proc"), Detach::IfUnused).expect_err("not ours");
    assert!(error.to_string().contains("not a vazao mount but proc"), "{error}");
}

#[test]
fn waiting_returns_the_error_once_and_then_that_it_is_over() {
    let (device, server) = (OnceLock::new(), OnceLock::new());
    let mount = Mount { mountpoint: PathBuf::from("/nowhere"), device, end: Arc::default(), server };
    mount.end.reach(Err(MountError::NoDevice));
    assert!(matches!(mount.wait(), Err(MountError::NoDevice)));
    assert!(mount.wait().is_ok());
}

#[test]
fn a_mount_whose_process_is_gone_is_named_and_can_be_removed() {
    if std::env::var_os("VAZAO_TEST_NO_FUSE").is_some_and(|value| value == "1") {
        eprintln!("VAZAO_TEST_NO_FUSE=1: mounts are not tested");
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().canonicalize().expect("it exists");
    // Nobody will ever answer this one: its only descriptor is closed at once.
    drop(
        attach::attach(&path, "vz:/", &MountOptions::default())
            .expect("mountable; VAZAO_TEST_NO_FUSE=1 leaves this out"),
    );
    let error = check(&path).expect_err("something is in the way");
    assert!(matches!(error, MountError::Dead(_)), "{error}");
    assert!(error.to_string().contains(&format!("vazao umount {}", path.display())), "{error}");
    unmount(&path, Detach::IfUnused).expect("removed");
    assert_eq!(check(&path).expect("free again"), path);
}
