//! A file system of the kernel's on a disk that loses power.

use crate::clock::{now_ns, sleep_ms};
use crate::disk::SECTOR_BYTES;
use crate::failure::{Failure, Outcome};
use crate::tool::{is_there, tool};
use std::path::{Path, PathBuf};

/// A file system that the kernel can have on a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum FileSystem {
    /// ext4
    Ext4,
    /// XFS
    Xfs,
    /// Btrfs
    Btrfs,
}

/// Processes that still have something open on it get this long to end.
const BUSY_MS_MAX: u64 = 30_000;

impl FileSystem {
    /// All of them.
    pub const ALL: [FileSystem; 3] = [FileSystem::Ext4, FileSystem::Xfs, FileSystem::Btrfs];

    /// The kernel's name of it.
    pub fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Xfs => "xfs",
            FileSystem::Btrfs => "btrfs",
        }
    }

    /// `None` where it can be made and mounted here, else why not.
    pub fn obstacle(self) -> Option<String> {
        let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        let maker = format!("mkfs.{}", self.name());
        if !known.lines().any(|line| line.split_whitespace().last() == Some(self.name())) {
            return Some(format!("this kernel has no {}", self.name()));
        }
        (!is_there(&maker)).then(|| format!("{maker} is not installed"))
    }

    /// What its disk has to write whole, for it to come back from a loss of power.
    ///
    /// ext4 takes what it has torn from its journal, whatever it is. XFS looks at the number in the first sector of a
    /// block to see whether the log has something newer, and so believes a torn block (seen: a directory block of 4096
    /// bytes, "Metadata CRC error" while the log was replayed); Btrfs writes its superblock of 4096 bytes in place.
    /// Both are made for disks of 4096 bytes, as all are today, whatever size of sectors they show.
    pub fn sector_bytes(self) -> u64 {
        match self {
            FileSystem::Ext4 => SECTOR_BYTES,
            FileSystem::Xfs | FileSystem::Btrfs => 4096,
        }
    }

    fn make(self, device: &str) -> Outcome {
        let options: &[&str] = match self {
            FileSystem::Ext4 => &["-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"],
            FileSystem::Xfs => &["-q", "-f", "-K"],
            FileSystem::Btrfs => &["-q", "-f", "-K"],
        };
        tool(&format!("mkfs.{}", self.name()), &[options, &[device]].concat()).map(drop)
    }
}

/// A disk with a file system, mounted now and then.
#[derive(Debug)]
pub struct Volume {
    kind: FileSystem,
    file: PathBuf,
    mountpoint: PathBuf,
}

impl Volume {
    /// Makes a file system on the disk that `file` is. Not mounted yet.
    pub fn make(kind: FileSystem, file: PathBuf, mountpoint: PathBuf) -> Outcome<Volume> {
        let volume = Volume { kind, file, mountpoint };
        let device = volume.attach()?;
        let made = kind.make(&device);
        tool("losetup", &["--detach", &device])?;
        made.map(|()| volume)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mountpoint
    }

    fn attach(&self) -> Outcome<String> {
        let (file, sector) = (self.file.to_string_lossy(), self.kind.sector_bytes().to_string());
        // Past the kernel's pages of the file: they would go on showing what the disk has lost.
        let options = ["--find", "--show", "--direct-io=on", "--sector-size", &sector];
        tool("losetup", &[&options[..], &[&file]].concat()).map(|said| said.trim().to_owned())
    }

    /// Mounts it; the kernel replays its journal.
    pub fn mount(&self) -> Outcome {
        let device = self.attach()?;
        let mountpoint = self.mountpoint.to_string_lossy();
        let mounted = tool("mount", &["-t", self.kind.name(), "-o", "noatime", &device, &mountpoint]);
        // Once it is mounted this only has the device go with the mount.
        tool("losetup", &["--detach", &device])?;
        mounted.map(drop)
    }

    /// Unmounts it, once it is unused.
    pub fn unmount(&self) -> Outcome {
        let deadline_ns = now_ns() + BUSY_MS_MAX * 1_000_000;
        loop {
            let unmounted = tool("umount", &[&self.mountpoint.to_string_lossy()]);
            match unmounted {
                Err(failure) if now_ns() < deadline_ns && failure.to_string().contains("busy") => {
                    sleep_ms(20);
                }
                other => return other.map(drop),
            }
        }
    }
}

/// Whether disks can be made here at all: root, FUSE and loop devices. Else why not.
pub fn obstacle() -> Option<Failure> {
    if !rustix::process::geteuid().is_root() {
        return Some(Failure::new("disks that lose power need root, to mount them"));
    }
    let missing = ["/dev/fuse", "/dev/loop-control"].into_iter().find(|device| !Path::new(device).exists());
    missing.map(|device| Failure::new(format!("{device} is missing, and with it the disks that lose power")))
}
