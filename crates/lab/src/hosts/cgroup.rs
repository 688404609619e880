//! Control groups of either version: where a controller is, and groups of our own in it.
//!
//! In version 2 one tree has all controllers, so a process that two limits concern gets one group with both. In
//! version 1 each controller has a tree of its own.

use super::Error;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Where a controller's tree is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tree {
    /// Version 2.
    Unified(PathBuf),
    /// Version 1.
    Legacy(PathBuf),
}

/// A controller under the names of both versions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Controller {
    pub(crate) unified: &'static str,
    pub(crate) legacy: &'static str,
}

/// The block-I/O controller.
pub(crate) const BLOCK_IO: Controller = Controller { unified: "io", legacy: "blkio" };
/// The processor controller.
pub(crate) const PROCESSOR: Controller = Controller { unified: "cpu", legacy: "cpu" };

/// Finds a controller on this machine.
pub(crate) fn find(controller: Controller) -> Result<Tree, Error> {
    let mounts = fs::read_to_string("/proc/self/mounts").map_err(Error::at("/proc/self/mounts"))?;
    let offers = |root: &Path| fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    find_in(&mounts, offers, controller).ok_or_else(|| Error::Missing {
        thing: format!("the {} controller of control groups", controller.unified),
        remedy: "mount cgroup2 on /sys/fs/cgroup, or, in a container, run it with its own writable control groups",
    })
}

fn find_in(mounts: &str, offers: impl Fn(&Path) -> String, controller: Controller) -> Option<Tree> {
    mounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let (root, kind, options) = (PathBuf::from(fields.get(1)?), *fields.get(2)?, *fields.get(3)?);
        match kind {
            "cgroup2" if offers(&root).split_whitespace().any(|it| it == controller.unified) => {
                Some(Tree::Unified(root))
            }
            "cgroup" if options.split(',').any(|it| it == controller.legacy) => Some(Tree::Legacy(root)),
            _ => None,
        }
    })
}

/// Lets groups below the root of a version 2 tree use controllers. They stay switched on: others may use them by then.
pub(crate) fn switch_on(root: &Path, controllers: &[&str]) -> Result<(), Error> {
    let file = root.join("cgroup.subtree_control");
    let on = fs::read_to_string(&file).map_err(Error::at(file.display()))?;
    for controller in controllers.iter().filter(|it| !on.split_whitespace().any(|on| on == **it)) {
        write(&file, &format!("+{controller}"))?;
    }
    Ok(())
}

/// The group of this laboratory in which a process is already, if any: a version 2 process can be in one only.
pub(crate) fn ours_of(root: &Path, process: u32) -> Result<Option<PathBuf>, Error> {
    let file = format!("/proc/{process}/cgroup");
    let text = fs::read_to_string(&file).map_err(Error::at(format!("process {process}")))?;
    Ok(ours_in(&text).map(|path| root.join(path)))
}

fn ours_in(text: &str) -> Option<&str> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    path.rsplit('/').next()?.starts_with("vazao-lab-").then_some(path)
}

/// Moves a process with all its threads into a group.
pub(crate) fn attach(group: &Path, process: u32) -> Result<(), Error> {
    write(&group.join("cgroup.procs"), &process.to_string())
}

/// Removes a group of ours; its processes go on in the group above, without the limit.
pub(crate) fn remove(group: &Path) -> Result<(), Error> {
    const TRIES_MAX: usize = 100;
    let Some(above) = group.parent() else { return Ok(()) };
    for _ in 0..TRIES_MAX {
        let members = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        for process in members.lines().filter_map(|line| line.parse().ok()) {
            // It may have ended since.
            let _ = attach(above, process);
        }
        match fs::remove_dir(group) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            // A process was born meanwhile, or a dead one is not buried yet.
            Err(error) if error.kind() == ErrorKind::ResourceBusy => wait_a_little(),
            other => return other.map_err(Error::at(group.display())),
        }
    }
    Err(Error::Refused(format!("the control group {} does not empty: see its cgroup.procs", group.display())))
}

fn wait_a_little() {
    use vazao_meter::Clock;
    vazao_meter::SystemClock.sleep(std::time::Duration::from_millis(10));
}

/// `MAJOR:MINOR` of a block device by its name.
pub(crate) fn device_numbers(device: &str) -> Result<String, Error> {
    let file = format!("/sys/block/{device}/dev");
    fs::read_to_string(&file).map(|text| text.trim().to_owned()).map_err(Error::at(file))
}

/// Writes one value to one of the kernel's files.
pub(crate) fn write(file: &Path, value: &str) -> Result<(), Error> {
    fs::write(file, value).map_err(Error::at(format!("writing {value:?} to {}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &str = "cgroup /sys/fs/cgroup/cpuacct cgroup rw,cpuacct 0 0\n\
                        cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n\
                        cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";

    #[test]
    fn a_controller_is_found_where_it_is_and_not_where_its_name_is_part_of_another() {
        let legacy = find_in(BOTH, |_| "hugetlb".to_owned(), PROCESSOR);
        assert_eq!(legacy, Some(Tree::Legacy("/sys/fs/cgroup/cpu".into())));
        let unified = find_in("c /sys/fs/cgroup cgroup2 rw 0 0", |_| "cpuset cpu io".to_owned(), BLOCK_IO);
        assert_eq!(unified, Some(Tree::Unified("/sys/fs/cgroup".into())));
        assert_eq!(find_in(BOTH, |_| "cpuset".to_owned(), BLOCK_IO), None);
    }

    #[test]
    fn controllers_that_are_off_are_switched_on_and_others_left_alone() {
        let root = tempfile::tempdir().expect("a directory");
        let file = root.path().join("cgroup.subtree_control");
        fs::write(&file, "cpu memory").expect("a file");
        switch_on(root.path(), &["memory"]).expect("nothing to do");
        assert_eq!(fs::read_to_string(&file).expect("a file"), "cpu memory");
        switch_on(root.path(), &["io", "memory"]).expect("a plain file takes it");
        assert_eq!(fs::read_to_string(&file).expect("a file"), "+io");
    }

    #[test]
    fn a_process_is_ours_only_by_the_last_name_of_its_version_2_group() {
        assert_eq!(ours_in("4:cpu:/x\n0::/vazao-lab-1-2"), Some("vazao-lab-1-2"));
        assert_eq!(ours_in("0::/vazao-lab-1-2/theirs"), None);
        assert_eq!(ours_in("4:cpu:/vazao-lab-1-2\n0::/"), None);
    }
}
