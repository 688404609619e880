//! The block device behind a directory, and its counters.

use super::{cgroup, text};
use crate::measures::Disk;
use crate::occupancy::Occupancy;
use crate::{Clock, accounts::Cause};
use parking_lot::Mutex;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The kernel counts sectors of 512 bytes whatever the disk's own are.
const SECTOR_BYTES: u64 = 512;

/// Watches one directory's disk: what this process waits for there, and what its device counts.
#[derive(Debug)]
pub struct DiskWatch {
    place: String,
    /// `MAJOR:MINOR`, where there is a device.
    numbers: Option<String>,
    device: String,
    clock: Arc<dyn Clock>,
    reads: Occupancy,
    writes: Occupancy,
    syncs: Occupancy,
    waits: Occupancy,
    /// What the device had counted before.
    before: [u64; 3],
}

impl std::fmt::Debug for dyn Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

impl DiskWatch {
    /// Watches the disk that `directory` lies on; `place` is what people call it.
    pub fn new(directory: &Path, place: &str, clock: Arc<dyn Clock>) -> DiskWatch {
        let numbers = numbers_of(directory);
        let device = numbers.as_deref().and_then(name_of).unwrap_or_default();
        let place = place.to_owned();
        let [reads, writes, syncs, waits] = std::array::from_fn(|_| Occupancy::new());
        let before = numbers.as_deref().map(counters_now).unwrap_or_default();
        DiskWatch { place, numbers, device, clock, reads, writes, syncs, waits, before }
    }

    fn of(&self, cause: Cause) -> Option<&Occupancy> {
        match cause {
            Cause::DiskRead => Some(&self.reads),
            Cause::DiskWrite => Some(&self.writes),
            Cause::DiskSync => Some(&self.syncs),
            _ => None,
        }
    }

    /// Runs `work`, which waits for this disk to read, write or sync. Returns its result and how long it took.
    pub fn during<T>(&self, cause: Cause, work: impl FnOnce() -> T) -> (T, u64) {
        let started_ns = self.clock.now_ns();
        self.waits.enter(started_ns);
        let kind = self.of(cause);
        kind.iter().for_each(|kind| kind.enter(started_ns));
        let result = work();
        let ended_ns = self.clock.now_ns();
        kind.iter().for_each(|kind| kind.leave(ended_ns));
        self.waits.leave(ended_ns);
        (result, ended_ns.saturating_sub(started_ns))
    }

    /// The counters now.
    pub fn measures(&self) -> Disk {
        let now_ns = self.clock.now_ns();
        let now = self.numbers.as_deref().map(counters_now).unwrap_or_default();
        let grown = |index: usize| now[index].saturating_sub(self.before[index]);
        let [read_bytes, written_bytes, device_busy_ns] = [grown(0), grown(1), grown(2)];
        let rates = self.numbers.as_deref().map(cgroup::block_rates).unwrap_or_default();
        Disk {
            place: self.place.clone(),
            device: self.device.clone(),
            read_bytes,
            written_bytes,
            device_busy_ns,
            read_limit: rates.read,
            write_limit: rates.write,
            reads: self.reads.at(now_ns),
            writes: self.writes.at(now_ns),
            syncs: self.syncs.at(now_ns),
            waits: self.waits.at(now_ns),
        }
    }
}

/// The disks that files of this machine are on, found as they are opened.
#[derive(Debug)]
pub struct DiskWatches {
    clock: Arc<dyn Clock>,
    found: Mutex<Vec<(u64, Arc<DiskWatch>)>>,
}

impl DiskWatches {
    /// None yet.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<DiskWatches> {
        Arc::new(DiskWatches { clock, found: Mutex::default() })
    }

    /// The disk of a file or directory. `None` for what is no disk of this machine: another program or another machine
    /// answers there.
    pub fn of(&self, path: &Path) -> Option<Arc<DiskWatch>> {
        let device = std::fs::metadata(path).ok()?.dev();
        let mut found = self.found.lock();
        if let Some((_, watch)) = found.iter().find(|(known, _)| *known == device) {
            return Some(Arc::clone(watch));
        }
        if is_elsewhere(path) {
            return None;
        }
        let directory = if path.is_dir() { Some(path) } else { path.parent() };
        let place = directory.map_or(String::new(), |directory| directory.display().to_string());
        let watch = Arc::new(DiskWatch::new(path, &place, Arc::clone(&self.clock)));
        found.push((device, Arc::clone(&watch)));
        Some(watch)
    }

    /// What all of them count.
    pub fn measures(&self) -> Vec<Disk> {
        let found = self.found.lock();
        found.iter().map(|(_, watch)| watch.measures()).collect()
    }
}

/// File systems behind which there is no disk of ours (statfs(2)): FUSE, NFS, SMB, 9p, memory.
const ELSEWHERE: [u64; 6] = [0x6573_5546, 0x6969, 0xFE53_4D42, 0xFF53_4D42, 0x0102_1997, 0x0102_1994];

/// File systems whose files lie on this machine's own disks or in its memory (statfs(2)): ext2 to ext4, XFS, Btrfs,
/// F2FS, ZFS, bcachefs, overlays of these, tmpfs, ramfs.
const LOCAL: [u64; 9] = [
    0xEF53,
    0x5846_5342,
    0x9123_683E,
    0xF2F5_2010,
    0x2FC1_2FC1,
    0xCA45_1A4E,
    0x794C_7630,
    0x0102_1994,
    0x8584_58F6,
];

/// Whether an open file is known to lie on this machine: its cached pages are read without a request to another
/// program. Another program (FUSE) or another machine may be behind any other file.
pub fn is_local(file: impl AsFd) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|found| LOCAL.contains(&(found.f_type as u64 & 0xFFFF_FFFF)))
}

fn is_elsewhere(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|found| ELSEWHERE.contains(&(found.f_type as u64 & 0xFFFF_FFFF)))
}

fn counters_now(numbers: &str) -> [u64; 3] {
    counters_of(&text("/proc/diskstats"), numbers).unwrap_or_default()
}

/// Of the whole disk for a partition: requests are counted and bounded there. `None` where a file system has no device
/// of its own (memory, network, overlay).
fn numbers_of(directory: &Path) -> Option<String> {
    let device = std::fs::metadata(directory).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let own = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let real = std::fs::canonicalize(&own).ok()?;
    if real.join("partition").exists() {
        let whole = text(real.parent()?.join("dev"));
        return Some(whole.trim().to_owned()).filter(|numbers| !numbers.is_empty());
    }
    Some(format!("{major}:{minor}"))
}

fn name_of(numbers: &str) -> Option<String> {
    let real = std::fs::canonicalize(format!("/sys/dev/block/{numbers}")).ok()?;
    real.file_name()?.to_str().map(str::to_owned)
}

/// Bytes read, bytes written, and nanoseconds with a request under way.
fn counters_of(diskstats: &str, numbers: &str) -> Option<[u64; 3]> {
    let (major, minor) = numbers.split_once(':')?;
    diskstats.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        if *fields.first()? != major || *fields.get(1)? != minor {
            return None;
        }
        let number = |index: usize| fields.get(index).and_then(|v| v.parse::<u64>().ok()).unwrap_or(0);
        let bytes = |index: usize| number(index).saturating_mul(SECTOR_BYTES);
        Some([bytes(5), bytes(9), number(12).saturating_mul(1_000_000)])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ManualClock;
    use std::time::Duration;

    #[test]
    fn waiting_for_a_disk_is_counted_by_kind_and_together() {
        let clock = Arc::new(ManualClock::default());
        let watch = DiskWatch::new(Path::new("/no/such/place"), "/d", Arc::clone(&clock) as Arc<dyn Clock>);
        let (value, took_ns) = watch.during(Cause::DiskRead, || {
            clock.advance(Duration::from_nanos(40));
            5
        });
        watch.during(Cause::DiskSync, || clock.advance(Duration::from_nanos(60)));
        let disk = watch.measures();
        assert_eq!((value, took_ns, disk.reads.busy_ns, disk.syncs.busy_ns), (5, 40, 40, 60));
        assert_eq!((disk.waits.busy_ns, disk.waits.events, disk.writes.events), (100, 2, 0));
        assert_eq!((disk.device.as_str(), disk.read_limit), ("", None));
    }

    #[test]
    fn files_on_one_disk_share_its_watch_and_what_the_kernel_makes_up_is_no_disk() {
        let watches = DiskWatches::new(Arc::new(ManualClock::default()));
        let (file, directory) =
            (std::env::current_exe().expect("known"), std::env::current_dir().expect("is"));
        let first = watches.of(&file).expect("a disk");
        assert!(Arc::ptr_eq(&first, &watches.of(&file).expect("the same")));
        assert!(watches.of(Path::new("/no/such/file")).is_none());
        assert!(watches.of(&directory).is_some());
    }

    #[test]
    fn counters_are_those_of_the_device_and_short_lines_give_zeros() {
        let text = "   7       0 loop0 9 9 9 9 9 9 9 9 9 9 9\n 254       0 vda 10 0 4 5 6 0 8 9 0 17 99\n 8 0 sda 1\n";
        assert_eq!(counters_of(text, "254:0"), Some([4 * 512, 8 * 512, 17_000_000]));
        assert_eq!(counters_of(text, "8:0"), Some([0, 0, 0]));
        assert_eq!(counters_of(text, "9:9"), None);
    }
}
