//! Names, links, renames, listings.

use crate::cluster::{errno, with_cluster, with_mount};
use crate::consistency::soon;
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, symlink};
use std::path::Path;

fn rename_with(from: &Path, to: &Path, flags: RenameFlags) -> std::io::Result<()> {
    Ok(rustix::fs::renameat_with(CWD, from, CWD, to, flags)?)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("readable")
}

#[test]
fn a_name_of_255_bytes_works_and_one_of_256_is_too_long() {
    with_mount(|m| {
        let longest = m.path("n".repeat(255));
        fs::write(&longest, b"x").expect("255 bytes are a name");
        assert_eq!(read(&longest), "x");
        let beyond = m.path("n".repeat(256));
        assert_eq!(errno(fs::write(&beyond, b"x")), Errno::NAMETOOLONG);
        assert_eq!(errno(fs::metadata(&beyond)), Errno::NAMETOOLONG);
        assert_eq!(errno(fs::create_dir(&beyond)), Errno::NAMETOOLONG);
        assert_eq!(errno(fs::rename(&longest, &beyond)), Errno::NAMETOOLONG);
        assert_eq!(errno(symlink("x", &beyond)), Errno::NAMETOOLONG);
    });
}

#[test]
fn names_are_bytes_and_come_back_as_they_were() {
    with_mount(|m| {
        let names: Vec<&[u8]> =
            vec![b"\xff\xfe", b"a b", b"new\nline", b"\xc3\x28", "Vazão".as_bytes(), b"...", b"\\", b"-rf"];
        for name in &names {
            fs::write(m.path(OsStr::from_bytes(name)), name).expect("any bytes are a name");
        }
        let listed: BTreeSet<Vec<u8>> = fs::read_dir(m.root())
            .expect("listed")
            .map(|e| e.expect("an entry").file_name().into_vec())
            .collect();
        assert_eq!(listed, names.iter().map(|name| name.to_vec()).collect());
        for name in names {
            assert_eq!(fs::read(m.path(OsStr::from_bytes(name))).expect("found by the same bytes"), name);
        }
    });
}

#[test]
fn a_path_of_4095_bytes_works_and_one_of_4096_is_too_long() {
    with_mount(|m| {
        let mut directory = m.root().to_owned();
        while directory.as_os_str().len() + 2 * 202 < 4095 {
            directory.push("d".repeat(200));
            fs::create_dir(&directory).expect("created");
        }
        let room = 4095 - directory.as_os_str().len() - 1;
        directory.push("e".repeat(room / 2));
        fs::create_dir(&directory).expect("created");
        let longest = directory.join("f".repeat(4095 - directory.as_os_str().len() - 1));
        assert_eq!(longest.as_os_str().len(), 4095);
        fs::write(&longest, b"deep").expect("a path of 4,095 bytes");
        assert_eq!(read(&longest), "deep");
        let mut beyond = longest.into_os_string();
        beyond.push("f");
        assert_eq!(errno(fs::metadata(&beyond)), Errno::NAMETOOLONG);
    });
}

#[test]
fn rename_replaces_moves_and_refuses_as_the_manual_says() {
    with_mount(|m| {
        let (a, b) = (m.path("a"), m.path("b"));
        fs::write(&a, b"A").expect("written");
        fs::write(&b, b"B").expect("written");
        let inode = fs::metadata(&a).expect("there").ino();
        fs::rename(&a, &b).expect("replaces");
        assert_eq!((read(&b).as_str(), fs::metadata(&b).expect("there").ino()), ("A", inode));
        assert_eq!(errno(fs::metadata(&a)), Errno::NOENT);
        fs::create_dir_all(m.path("d/inner")).expect("created");
        fs::create_dir(m.path("empty")).expect("created");
        assert_eq!(errno(fs::rename(m.path("empty"), m.path("d"))), Errno::NOTEMPTY);
        assert_eq!(errno(fs::rename(m.path("d"), m.path("d/inner/x"))), Errno::INVAL);
        assert_eq!(errno(fs::rename(&b, m.path("d"))), Errno::ISDIR);
        assert_eq!(errno(fs::rename(m.path("d"), &b)), Errno::NOTDIR);
        assert_eq!(errno(fs::rename(&a, &b)), Errno::NOENT);
        fs::rename(m.path("d"), m.path("empty")).expect("an empty directory is replaced");
        fs::rename(&b, m.path("empty/inner/b")).expect("moved");
        assert_eq!(read(&m.path("empty/inner/b")), "A");
    });
}

#[test]
fn rename_can_keep_what_is_there_or_exchange_the_two() {
    with_mount(|m| {
        let (a, b, d) = (m.path("a"), m.path("b"), m.path("d"));
        fs::write(&a, b"A").expect("written");
        fs::write(&b, b"B").expect("written");
        fs::create_dir(&d).expect("created");
        assert_eq!(errno(rename_with(&a, &b, RenameFlags::NOREPLACE)), Errno::EXIST);
        rename_with(&a, &m.path("c"), RenameFlags::NOREPLACE).expect("the name is free");
        rename_with(&m.path("c"), &b, RenameFlags::EXCHANGE).expect("both are there");
        assert_eq!((read(&m.path("c")).as_str(), read(&b).as_str()), ("B", "A"));
        rename_with(&b, &d, RenameFlags::EXCHANGE).expect("a file and a directory");
        assert!(fs::metadata(&b).expect("there").is_dir() && fs::metadata(&d).expect("there").is_file());
        assert_eq!(errno(rename_with(&b, &m.path("nothing"), RenameFlags::EXCHANGE)), Errno::NOENT);
        assert_eq!(errno(rename_with(&b, &m.path("x"), RenameFlags::WHITEOUT)), Errno::INVAL);
    });
}

#[test]
fn an_open_file_lives_on_without_a_name() {
    with_mount(|m| {
        for by_rename in [false, true] {
            let path = m.path("f");
            let mut file =
                fs::File::options().read(true).write(true).create_new(true).open(&path).expect("created");
            file.write_all(&vec![7; 300_000]).expect("written");
            if by_rename {
                fs::write(m.path("g"), b"other").expect("written");
                fs::rename(m.path("g"), &path).expect("replaced");
                assert_eq!(read(&path), "other");
                fs::remove_file(&path).expect("removed");
            } else {
                fs::remove_file(&path).expect("removed");
                assert_eq!(errno(fs::metadata(&path)), Errno::NOENT);
            }
            assert_eq!(file.metadata().expect("still there").nlink(), 0);
            file.write_all(&vec![8; 300_000]).expect("still writable");
            file.sync_all().expect("still syncable");
            file.seek(SeekFrom::Start(0)).expect("seekable");
            let mut contents = Vec::new();
            file.read_to_end(&mut contents).expect("still readable");
            assert_eq!(contents.len(), 600_000);
            assert!(
                contents[..300_000].iter().all(|&b| b == 7) && contents[300_000..].iter().all(|&b| b == 8)
            );
        }
    });
}

#[test]
fn hard_links_are_one_file_with_several_names() {
    with_mount(|m| {
        let (a, b) = (m.path("a"), m.path("b"));
        fs::write(&a, b"one").expect("written");
        fs::hard_link(&a, &b).expect("linked");
        let (first, second) = (fs::metadata(&a).expect("there"), fs::metadata(&b).expect("there"));
        assert_eq!((first.ino(), first.nlink()), (second.ino(), 2));
        fs::write(&b, b"two").expect("written");
        assert_eq!(read(&a), "two");
        assert_eq!(errno(fs::hard_link(&a, &b)), Errno::EXIST);
        fs::create_dir(m.path("d")).expect("created");
        assert_eq!(errno(fs::hard_link(m.path("d"), m.path("e"))), Errno::PERM);
        fs::remove_file(&a).expect("removed");
        assert_eq!((read(&b).as_str(), fs::metadata(&b).expect("there").nlink()), ("two", 1));
    });
}

#[test]
fn symbolic_links_keep_any_target_up_to_4095_bytes() {
    with_mount(|m| {
        fs::write(m.path("f"), b"x").expect("written");
        for target in ["f", "nowhere", "../../outside", "\u{fffd}", &"t/".repeat(2047)] {
            let link = m.path("l");
            symlink(target, &link).expect("linked");
            assert_eq!(fs::read_link(&link).expect("a link"), Path::new(target));
            assert_eq!(fs::symlink_metadata(&link).expect("there").len(), target.len() as u64);
            fs::remove_file(&link).expect("removed");
        }
        symlink("f", m.path("to_f")).expect("linked");
        assert_eq!(read(&m.path("to_f")), "x");
        symlink("loop", m.path("loop")).expect("linked");
        assert_eq!(errno(fs::metadata(m.path("loop"))), Errno::LOOP);
        assert_eq!(errno(symlink("x".repeat(4096), m.path("long"))), Errno::NAMETOOLONG);
    });
}

#[test]
fn directories_count_their_subdirectories_and_go_only_when_empty() {
    with_mount(|m| {
        let links = || fs::metadata(m.root()).expect("there").nlink();
        let before = links();
        fs::create_dir(m.path("d")).expect("created");
        assert_eq!(links(), before + 1);
        fs::write(m.path("d/f"), b"").expect("written");
        assert_eq!(errno(fs::remove_dir(m.path("d"))), Errno::NOTEMPTY);
        assert_eq!(errno(fs::remove_file(m.path("d"))), Errno::ISDIR);
        assert_eq!(errno(fs::remove_dir(m.path("d/f"))), Errno::NOTDIR);
        assert_eq!(errno(fs::create_dir(m.path("d"))), Errno::EXIST);
        fs::remove_file(m.path("d/f")).expect("removed");
        fs::remove_dir(m.path("d")).expect("empty now");
        assert_eq!(links(), before);
    });
}

#[test]
fn a_large_directory_lists_every_entry_once_and_can_be_removed_while_listed() {
    with_mount(|m| {
        let directory = m.path("large");
        fs::create_dir(&directory).expect("created");
        let names: BTreeSet<String> =
            (0..3000).map(|n| format!("entry-{n}-{}", "x".repeat(n % 100))).collect();
        for name in &names {
            fs::File::create(directory.join(name)).expect("created");
        }
        let list = || -> Vec<String> {
            let entries = fs::read_dir(&directory).expect("listed");
            entries.map(|e| e.expect("an entry").file_name().into_string().expect("ASCII")).collect()
        };
        let listed = list();
        assert_eq!((listed.len(), &listed.into_iter().collect::<BTreeSet<_>>()), (names.len(), &names));
        for entry in fs::read_dir(&directory).expect("listed") {
            let entry = entry.expect("an entry");
            assert_eq!(entry.metadata().expect("there").ino(), rustix_ino(&entry));
            fs::remove_file(entry.path()).expect("listed, so it is there");
        }
        assert_eq!(list(), Vec::<String>::new());
        fs::remove_dir(&directory).expect("empty");
    });
}

fn rustix_ino(entry: &fs::DirEntry) -> u64 {
    std::os::unix::fs::DirEntryExt::ino(entry)
}

#[test]
fn pipes_and_sockets_can_be_made() {
    with_mount(|m| {
        let kind = |name: &str| fs::symlink_metadata(m.path(name)).expect("there").file_type();
        rustix::fs::mknodat(CWD, m.path("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("made");
        assert!(kind("pipe").is_fifo());
        let _listener = std::os::unix::net::UnixListener::bind(m.path("s")).expect("made");
        assert!(kind("s").is_socket());
        rustix::fs::mknodat(CWD, m.path("file"), rustix::fs::FileType::RegularFile, 0o640.into(), 0)
            .expect("made");
        assert!(kind("file").is_file());
    });
}

#[test]
fn a_mounted_subdirectory_is_a_root_of_its_own() {
    with_cluster(|cluster| {
        let whole = cluster.mount();
        fs::create_dir_all(whole.path("a/b c")).expect("created");
        fs::write(whole.path("a/b c/f"), b"inside").expect("written");
        fs::write(whole.path("outside"), b"outside").expect("written");
        let part = cluster.mount_path("/a/b c");
        assert_eq!(read(&part.path("f")), "inside");
        assert_eq!(fs::read_dir(part.root()).expect("listed").count(), 1);
        let inode = |path: &Path| fs::metadata(path).expect("there").ino();
        assert_eq!(inode(part.root()), inode(&whole.path("a/b c")));
        fs::create_dir(part.path("new")).expect("created");
        fs::write(part.path("new/g"), b"through the part").expect("written");
        // Another mount made it: this one is notified after a millisecond or so.
        let arrived = || fs::read(whole.path("a/b c/new/g")).is_ok_and(|bytes| bytes == b"through the part");
        soon("a file made through the part", arrived);
        part.unmount();
        whole.unmount();
    });
}

#[test]
fn a_file_without_a_name_gets_one_by_link_and_is_gone_otherwise() {
    use rustix::fs::{AtFlags, Mode, OFlags, linkat, open};
    with_cluster(|cluster| {
        let m = cluster.mount();
        let unnamed = |flags: OFlags| {
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | flags;
            File::from(open(m.root(), flags, Mode::from_raw_mode(0o640)).expect("made"))
        };
        let link = |file: &File, name: &str| {
            let from = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
            linkat(CWD, from, CWD, m.path(name), AtFlags::SYMLINK_FOLLOW)
        };
        let bytes = vec![5; 300_000];
        let file = unnamed(OFlags::empty());
        file.write_all_at(&bytes, 0).expect("written");
        assert_eq!(file.metadata().expect("there").nlink(), 0);
        assert_eq!(fs::read_dir(m.root()).expect("readable").count(), 0);
        link(&file, "named").expect("linked");
        link(&file, "twice").expect("linked");
        file.write_all_at(b"more", bytes.len() as u64).expect("written after it was named");
        drop(file);
        let metadata = fs::metadata(m.path("named")).expect("there");
        assert_eq!((metadata.nlink(), metadata.mode() & 0o777, metadata.len()), (2, 0o640, 300_004));
        let alone = unnamed(OFlags::EXCL);
        assert_eq!(link(&alone, "never"), Err(Errno::NOENT), "O_EXCL forbids it");
        alone.write_all_at(&bytes, 0).expect("written");
        // Longer than the metadata service waits before it asks who holds it.
        let clock = vazao_meter::clock::system();
        vazao_meter::Clock::sleep(&*clock, std::time::Duration::from_millis(4500));
        let mut back = vec![0; bytes.len()];
        alone.read_exact_at(&mut back, 0).expect("read");
        assert!(back == bytes);
        drop(alone);
        let unlinked = File::create(m.path("gone")).expect("created");
        fs::remove_file(m.path("gone")).expect("removed");
        assert_eq!(link(&unlinked, "back"), Err(Errno::NOENT), "what was removed does not come back");
        drop(unlinked);
        m.unmount();
        let m = cluster.mount();
        assert_eq!(fs::read(m.path("twice")).expect("readable").len(), 300_004);
        let expected = ["named", "twice"].map(std::ffi::OsString::from);
        let mut names: Vec<_> =
            fs::read_dir(m.root()).expect("readable").map(|e| e.expect("readable").file_name()).collect();
        names.sort();
        assert_eq!(names, expected);
        m.unmount();
    });
}
