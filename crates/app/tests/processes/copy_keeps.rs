//! What a copy keeps, in every direction: the table of docs/grid.md, cell by cell.

use crate::support::{Cluster, text};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags, getxattr, setxattr, utimensat};
use std::fs::{self, File, Metadata, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

/// The columns behind the direction.
const COLUMNS: usize = 9;

/// Owner and group of the source's file.
const OWNER: (u32, u32) = (1234, 1235);

/// Length of the file with holes, and what it may take when they are kept.
const SPARSE_BYTES: u64 = 96 << 20;
const KEPT_BYTES_MAX: u64 = 8 << 20;

/// An access list that gives user 1234 a right of its own: version 2, then tag, permissions and id of each entry
/// (include/uapi/linux/posix_acl_xattr.h).
fn access_list() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] =
        [(1, 7, u32::MAX), (2, 4, 1234), (4, 5, u32::MAX), (0x10, 7, u32::MAX), (0x20, 5, u32::MAX)];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn set_times(path: &Path, seconds: i64) {
    let time = |tv_sec| Timespec { tv_sec, tv_nsec: 123_456_789 };
    let times = Timestamps { last_access: time(seconds + 5_000), last_modification: time(seconds) };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).expect("times set");
}

/// A tree with all that a copy may lose.
fn make_tree(root: &Path) {
    let directory = root.join("directory");
    fs::create_dir_all(&directory).expect("made");
    let sparse = File::create(root.join("sparse")).expect("made");
    sparse.write_all_at(&[7; 4096], 50 << 20).expect("written");
    sparse.set_len(SPARSE_BYTES).expect("extended");
    let file = directory.join("file");
    fs::write(&file, "contents").expect("written");
    fs::hard_link(&file, directory.join("hard")).expect("linked");
    setxattr(&file, "user.note", b"kept?", XattrFlags::empty()).expect("set");
    setxattr(&file, "system.posix_acl_access", &access_list(), XattrFlags::empty()).expect("set");
    chown(&file, Some(OWNER.0), Some(OWNER.1)).expect("given");
    fs::set_permissions(&file, Permissions::from_mode(0o6755)).expect("set");
    symlink("file", directory.join("link")).expect("linked");
    set_times(&file, 1_000_000_000);
    set_times(&directory.join("link"), 1_100_000_000);
    set_times(&directory, 1_200_000_000);
}

fn look(path: PathBuf) -> Metadata {
    fs::symlink_metadata(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Which of the columns a copy kept.
fn kept(was: &[Metadata; 3], copy: &Path) -> [bool; COLUMNS] {
    let directory = copy.join("directory");
    let changed = |m: &Metadata| (m.mtime(), m.mtime_nsec());
    let read = |m: &Metadata| (m.atime(), m.atime_nsec());
    let [file_was, link_was, directory_was] = was;
    // The directory first: to look at what is in it may be to read it.
    let [of_directory, link] = [directory.clone(), directory.join("link")].map(look);
    let file = look(directory.join("file"));
    let mut value = [0; 64];
    let has = |name: &str, value: &mut [u8]| getxattr(directory.join("file"), name, value).is_ok();
    let sparse = look(copy.join("sparse"));
    assert_eq!(sparse.len(), SPARSE_BYTES);
    [
        sparse.blocks() * 512 < KEPT_BYTES_MAX,
        changed(&file) == changed(file_was),
        read(&file) == read(file_was),
        changed(&of_directory) == changed(directory_was),
        changed(&link) == changed(link_was),
        file.mode() & 0o7000 == 0o6000,
        (file.uid(), file.gid()) == OWNER,
        has("user.note", &mut value) || has("system.posix_acl_access", &mut value),
        file.nlink() == 2,
    ]
}

/// The rows of the table: the direction, and which columns are kept.
fn table() -> Vec<(String, [bool; COLUMNS])> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/grid.md");
    let page = fs::read_to_string(page).expect("the page is there");
    let (_, rest) = page.split_once("<!-- keeps:begin -->").expect("the table begins");
    let (table, _) = rest.split_once("<!-- keeps:end -->").expect("the table ends");
    let rows = table.lines().filter(|line| line.contains(" → ") && !line.contains("from → to"));
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), COLUMNS + 1, "{line}");
        let mut is_kept = [false; COLUMNS];
        for (is_kept, cell) in is_kept.iter_mut().zip(&cells[1..]) {
            assert!(["kept", "–"].contains(cell), "{cell:?} in {line}");
            *is_kept = *cell == "kept";
        }
        (cells[0].to_owned(), is_kept)
    };
    rows.map(row).collect()
}

/// A cluster with its volume mounted at `volume`, node data1 exporting `out` and data2 exporting `in`.
struct Places {
    cluster: Cluster,
}

impl Drop for Places {
    fn drop(&mut self) {
        self.cluster.run(&["umount", &text(&self.cluster.local("volume"))]);
    }
}

impl Places {
    fn start() -> Places {
        let places = Places { cluster: Cluster::start(2) };
        let cluster = &places.cluster;
        for name in ["here", "out", "in", "volume"] {
            fs::create_dir(cluster.local(name)).expect("made");
        }
        let dir = text(&cluster.dir());
        for (node, area) in [("data1", "out"), ("data2", "in")] {
            cluster.ok(&["area", "add", area, &text(&cluster.local(area)), "--dir", &dir, "--node", node]);
        }
        cluster.ok(&["mount", "vz:/", &text(&cluster.local("volume"))]);
        places
    }

    /// A path below one of the places, as an argument and as a path of this machine.
    fn both(&self, place: &str, is_source: bool, name: &str) -> (String, PathBuf) {
        let (argument, directory) = match (place, is_source) {
            ("this machine", _) => (format!("{}/", text(&self.cluster.local("here"))), "here"),
            ("volume", _) => ("vz:/".to_owned(), "volume"),
            ("area", true) => ("data1:/out/".to_owned(), "out"),
            ("area", false) => ("data2:/in/".to_owned(), "in"),
            (other, _) => panic!("no such place: {other}"),
        };
        (argument + name, self.cluster.local(directory).join(name))
    }
}

/// A file of 1 GiB with 4 KiB of data was 1 GiB on the node it came to from the volume, and a node's copies lost the
/// times of directories and symbolic links; no page said which direction kept what.
#[test]
fn each_direction_keeps_what_the_table_says() {
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        eprintln!("not tested: no /dev/fuse, or not root");
        return;
    }
    let places = Places::start();
    let rows = table();
    assert_eq!(rows.len(), 9);
    let mut wrong = Vec::new();
    for (index, (direction, expected)) in rows.iter().enumerate() {
        let (from, to) = direction.split_once(" → ").expect("a direction");
        let (source, source_path) = places.both(from, true, &format!("from{index}"));
        let (destination, copy) = places.both(to, false, &format!("to{index}"));
        make_tree(&source_path);
        let was = ["file", "link", ""].map(|name| look(source_path.join("directory").join(name)));
        places.cluster.ok(&["cp", "-rp", &source, &destination]);
        let found = kept(&was, &copy);
        if found != *expected {
            wrong.push(format!("{direction}: {found:?} where the table has {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
