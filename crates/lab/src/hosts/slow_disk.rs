//! A disk of a chosen rate: a file behind a loop device with a file system of its own, bounded by the kernel.
//!
//! The bound holds for the device, each direction for itself, as in the experiments that slowed real disks in this
//! way. With version 1 of the control groups it binds every process of the root group and all that the kernel writes
//! back later; with version 2 it binds the processes that are attached, their write-back included.

use super::cgroup::{self, BLOCK_IO, Tree};
use super::ledger::Ledger;
use super::undo::{Made, loop_device_of};
use super::{Error, tool};
use parking_lot::Mutex;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

const RULES: [&str; 2] = ["blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device"];
/// Below this an ext4 file system with a journal does not fit.
const SIZE_BYTES_MIN: u64 = 16 << 20;

/// A slow disk, mounted. Dropping it unmounts and removes it with all that is on it.
#[derive(Debug)]
pub struct SlowDisk {
    path: PathBuf,
    device: String,
    device_numbers: String,
    bytes_per_second: u64,
    tree: Tree,
    // Version 2 only: the groups that carry this disk's rule.
    groups: Mutex<Vec<PathBuf>>,
    ledger: Ledger,
}

impl SlowDisk {
    /// Makes a disk of `size_bytes` whose reads and writes run at `bytes_per_second` each. Its contents are a sparse
    /// file in `directory`, which should be on something faster.
    pub fn new(directory: &Path, size_bytes: u64, bytes_per_second: u64) -> Result<SlowDisk, Error> {
        check(size_bytes, bytes_per_second)?;
        let ledger = Ledger::open("a slow disk")?;
        let tree = cgroup::find(BLOCK_IO)?;
        let image = make_image(&ledger, directory, size_bytes)?;
        let device = attach_loop(&ledger, &image)?;
        let device_numbers = cgroup::device_numbers(&device)?;
        if let Tree::Legacy(root) = &tree {
            record_rules(&ledger, root, &image)?;
        }
        let path = mount(&ledger, &device)?;
        let groups = Mutex::default();
        let mut disk = SlowDisk { path, device, device_numbers, bytes_per_second, tree, groups, ledger };
        disk.set_rate(bytes_per_second)?;
        Ok(disk)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its device, as `/dev/loopN`.
    pub fn device(&self) -> PathBuf {
        Path::new("/dev").join(&self.device)
    }

    /// Whether the bound holds for processes that were not attached.
    pub fn bounds_everyone(&self) -> bool {
        matches!(self.tree, Tree::Legacy(_))
    }

    /// Changes the rate, also while data flows.
    pub fn set_rate(&mut self, bytes_per_second: u64) -> Result<(), Error> {
        check(SIZE_BYTES_MIN, bytes_per_second)?;
        self.bytes_per_second = bytes_per_second;
        match &self.tree {
            Tree::Legacy(root) => RULES.iter().try_for_each(|rule| {
                cgroup::write(&root.join(rule), &format!("{} {bytes_per_second}", self.device_numbers))
            }),
            Tree::Unified(_) => {
                let groups = self.groups.lock().clone();
                groups.iter().try_for_each(|group| self.bound(group))
            }
        }
    }

    /// Makes sure that the bound holds for a process, its threads and the children it will have.
    pub fn attach(&self, process: u32) -> Result<(), Error> {
        match &self.tree {
            // The rule stands in the root group, where most processes are anyway.
            Tree::Legacy(root) => cgroup::attach(root, process),
            Tree::Unified(root) => {
                let group = match cgroup::ours_of(root, process)? {
                    Some(group) => group,
                    None => self.group_for(root, process)?,
                };
                self.bound(&group)?;
                self.groups.lock().push(group);
                Ok(())
            }
        }
    }

    /// A version 2 group for one process. The memory controller belongs to it: without it, the kernel does not know
    /// whose pages it writes back.
    fn group_for(&self, root: &Path, process: u32) -> Result<PathBuf, Error> {
        cgroup::switch_on(root, &["io", "memory"])?;
        let group = root.join(format!("{}-{process}", self.ledger.name()));
        self.ledger.record(&Made::Cgroup(group.clone()))?;
        fs::create_dir(&group).map_err(Error::at(group.display()))?;
        cgroup::attach(&group, process)?;
        Ok(group)
    }

    fn bound(&self, group: &Path) -> Result<(), Error> {
        let rate = self.bytes_per_second;
        cgroup::write(&group.join("io.max"), &format!("{} rbps={rate} wbps={rate}", self.device_numbers))
    }
}

fn check(size_bytes: u64, bytes_per_second: u64) -> Result<(), Error> {
    if size_bytes < SIZE_BYTES_MIN {
        return Err(Error::Refused(format!(
            "a slow disk of {size_bytes} bytes is too small: give it 16 MiB or more"
        )));
    }
    if bytes_per_second < 4096 {
        let asked = bytes_per_second;
        return Err(Error::Refused(format!(
            "a disk of {asked} bytes a second is too slow: give it 4096 or more"
        )));
    }
    Ok(())
}

fn make_image(ledger: &Ledger, directory: &Path, size_bytes: u64) -> Result<PathBuf, Error> {
    let directory = directory.canonicalize().map_err(Error::at(directory.display()))?;
    let image = directory.join(format!("{}.img", ledger.name()));
    ledger.record(&Made::File(image.clone()))?;
    let file = File::create_new(&image).map_err(Error::at(image.display()))?;
    file.set_len(size_bytes).map_err(Error::at(image.display()))?;
    // Initialised at once: doing it in the background would take its share of the rate.
    let at_once = "lazy_itable_init=0,lazy_journal_init=0";
    tool::run("mkfs.ext4", &["-q", "-F", "-m", "0", "-E", at_once, &image.to_string_lossy()])?;
    Ok(image)
}

fn attach_loop(ledger: &Ledger, image: &Path) -> Result<String, Error> {
    ledger.record(&Made::Loop(image.to_owned()))?;
    tool::run("losetup", &["--find", &image.to_string_lossy()]).map_err(|error| match error {
        Error::Tool { output, .. } => Error::Missing {
            thing: format!("a free loop device ({output})"),
            remedy: "load the module loop, or, in a container, pass /dev/loop-control and loop devices in",
        },
        other => other,
    })?;
    let device = loop_device_of(image)?;
    device.ok_or_else(|| Error::Refused(format!("no loop device shows {} as its file", image.display())))
}

fn record_rules(ledger: &Ledger, root: &Path, image: &Path) -> Result<(), Error> {
    for rule in RULES {
        let rule = root.join(rule);
        if !rule.exists() {
            let remedy = "use a kernel with CONFIG_BLK_DEV_THROTTLING";
            return Err(Error::Missing { thing: rule.display().to_string(), remedy });
        }
        ledger.record(&Made::Throttle { rule, backing: image.to_owned() })?;
    }
    Ok(())
}

fn mount(ledger: &Ledger, device: &str) -> Result<PathBuf, Error> {
    let path = ledger.directory().join("disk");
    ledger.record(&Made::Directory(path.clone()))?;
    fs::create_dir(&path).map_err(Error::at(path.display()))?;
    ledger.record(&Made::Mount(path.clone()))?;
    tool::run("mount", &["-o", "noatime", &format!("/dev/{device}"), &path.to_string_lossy()])?;
    Ok(path)
}
