//! Attaching to and detaching from a mountpoint: mount(2) for root, the set-user-id helper `fusermount3` for others.

use super::mountpoint::FILE_SYSTEM_TYPE;
use super::{MountError, MountOptions};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};
use std::ffi::CString;
use std::io::{IoSliceMut, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

const DEVICE: &str = "/dev/fuse";

/// Names of the helper: of FUSE 3, and of FUSE 2 with the same interface.
const HELPERS: [&str; 2] = ["fusermount3", "fusermount"];

/// Mounts; the device on the other end of it.
pub(crate) fn attach(mountpoint: &Path, source: &str, options: &MountOptions) -> Result<OwnedFd, MountError> {
    if rustix::process::geteuid().is_root() {
        attach_directly(mountpoint, source, options)
    } else if options.set_id || options.devices {
        // The helper would leave them away and say so only on its standard error.
        Err(MountError::NotPermitted("the options suid and dev are reserved to root".to_owned()))
    } else {
        attach_by_helper(mountpoint, source, options)
    }
}

fn open_device() -> Result<OwnedFd, MountError> {
    rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|error| match error {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => MountError::NoDevice,
        Errno::ACCESS | Errno::PERM => MountError::NotPermitted(format!("{DEVICE}: {error}")),
        other => MountError::Device(std::io::Error::from(other)),
    })
}

fn attach_directly(mountpoint: &Path, source: &str, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let device = open_device()?;
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut data = format!("fd={},rootmode=40000,user_id={user},group_id={group}", device.as_raw_fd());
    access_options(options).iter().for_each(|option| {
        data.push(',');
        data.push_str(option);
    });
    let data = CString::new(data).expect("made of numbers and our own words");
    let flags = mount_flags(options);
    rustix::mount::mount(source, mountpoint, FILE_SYSTEM_TYPE, flags, data.as_c_str()).map_err(|error| {
        match error {
            Errno::PERM | Errno::ACCESS => MountError::NotPermitted(format!("mount: {error}")),
            Errno::NODEV => MountError::NoDevice,
            other => MountError::Attach(mountpoint.to_owned(), other.to_string()),
        }
    })?;
    Ok(device)
}

fn mount_flags(options: &MountOptions) -> MountFlags {
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::NODEV, !options.devices);
    flags.set(MountFlags::NOSUID, !options.set_id);
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOEXEC, options.no_programs);
    flags.set(MountFlags::NOATIME, options.no_access_times);
    flags.set(MountFlags::SYNCHRONOUS, options.synchronous);
    flags
}

fn access_options(options: &MountOptions) -> Vec<&'static str> {
    let wanted = [(options.default_permissions, "default_permissions"), (options.allow_other, "allow_other")];
    wanted.into_iter().filter(|(on, _)| *on).map(|(_, name)| name).collect()
}

/// The helper's `-o`: a comma or backslash within the source is escaped.
fn helper_options(source: &str, options: &MountOptions) -> String {
    let source = source.replace('\\', "\\\\").replace(',', "\\,");
    let mut words = vec![format!("fsname={source}"), "subtype=vazao".to_owned()];
    words.extend(["nodev", "nosuid"].map(str::to_owned));
    words.push(if options.read_only { "ro" } else { "rw" }.to_owned());
    let further = [
        (options.no_programs, "noexec"),
        (options.no_access_times, "noatime"),
        (options.synchronous, "sync"),
    ];
    words.extend(further.into_iter().filter(|(on, _)| *on).map(|(_, word)| word.to_owned()));
    words.extend(access_options(options).into_iter().map(str::to_owned));
    words.join(",")
}

/// The helper opens the device, mounts, and sends the descriptor over the socket it finds as its standard input.
#[allow(clippy::disallowed_methods, reason = "the helper has passed the device on, and ends")]
fn attach_by_helper(mountpoint: &Path, source: &str, options: &MountOptions) -> Result<OwnedFd, MountError> {
    if !Path::new(DEVICE).exists() {
        return Err(MountError::NoDevice);
    }
    let (ours, theirs) = UnixStream::pair().map_err(MountError::Device)?;
    let mut helper = spawn_helper(|command| {
        let theirs = theirs.try_clone()?;
        command.env("_FUSE_COMMFD", "0").stdin(Stdio::from(OwnedFd::from(theirs)));
        command.arg("-o").arg(helper_options(source, options)).arg("--").arg(mountpoint);
        Ok(())
    })?;
    drop(theirs);
    let device = receive_descriptor(&ours);
    drop(ours);
    let mut complaint = String::new();
    if let Some(mut stderr) = helper.stderr.take() {
        // What cannot be read of a message is missing from it, no more.
        let _ = stderr.read_to_string(&mut complaint);
    }
    let _ = helper.wait();
    device.ok_or_else(|| refused(mountpoint, complaint.trim()))
}

/// Starts the first helper there is.
fn spawn_helper(
    prepare: impl Fn(&mut Command) -> std::io::Result<()>,
) -> Result<std::process::Child, MountError> {
    for name in HELPERS {
        let mut command = Command::new(name);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        prepare(&mut command).map_err(MountError::Device)?;
        match command.spawn() {
            Ok(child) => return Ok(child),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(MountError::Device(error)),
        }
    }
    Err(MountError::NoHelper)
}

fn refused(mountpoint: &Path, complaint: &str) -> MountError {
    if complaint.contains("user_allow_other") {
        return MountError::AllowOtherNotPermitted;
    }
    if complaint.contains("not permitted") || complaint.contains("ermission denied") {
        return MountError::NotPermitted(complaint.to_owned());
    }
    MountError::Attach(mountpoint.to_owned(), complaint.to_owned())
}

fn receive_descriptor(socket: &UnixStream) -> Option<OwnedFd> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0u8; 1];
    let message = loop {
        let buffers = &mut [IoSliceMut::new(&mut byte)];
        match rustix::net::recvmsg(socket, buffers, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(_) => return None,
            Ok(message) => break message,
        }
    };
    if message.bytes == 0 || message.flags.contains(ReturnFlags::CTRUNC) {
        return None;
    }
    control.drain().find_map(|part| match part {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
}

/// Changes the kernel's options of a mount.
pub(crate) fn reattach(mountpoint: &Path, options: &MountOptions) -> Result<(), MountError> {
    let changed = rustix::mount::mount_remount(mountpoint, mount_flags(options), c"");
    changed.map_err(|error| match error {
        Errno::PERM | Errno::ACCESS => MountError::NotPermitted(format!("remount: {error}")),
        Errno::BUSY => MountError::Busy(mountpoint.to_owned()),
        other => MountError::Attach(mountpoint.to_owned(), other.to_string()),
    })
}

/// How a mount is taken away.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Detach {
    /// Refused while something in it is in use.
    #[default]
    IfUnused,
    /// From the tree now, the rest when the last user is gone.
    Lazily,
    /// Likewise, and calls in it end with an error at once. Only root may end calls: for others it is
    /// [`Detach::Lazily`].
    ByForce,
}

/// Unmounts.
pub(crate) fn detach(mountpoint: &Path, how: Detach) -> Result<(), MountError> {
    let flags = match how {
        Detach::IfUnused => UnmountFlags::empty(),
        Detach::Lazily => UnmountFlags::DETACH,
        Detach::ByForce => UnmountFlags::FORCE | UnmountFlags::DETACH,
    };
    match rustix::mount::unmount(mountpoint, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => detach_by_helper(mountpoint, how != Detach::IfUnused),
        Err(Errno::BUSY) => Err(MountError::Busy(mountpoint.to_owned())),
        Err(Errno::INVAL | Errno::NOENT) => Err(MountError::NotMounted(mountpoint.to_owned())),
        Err(error) => Err(MountError::Attach(mountpoint.to_owned(), error.to_string())),
    }
}

#[allow(clippy::disallowed_methods, reason = "fusermount3 unmounts or says why not")]
fn detach_by_helper(mountpoint: &Path, lazily: bool) -> Result<(), MountError> {
    let helper = spawn_helper(|command| {
        command.arg("-u");
        if lazily {
            command.arg("-z");
        }
        command.arg("--").arg(mountpoint);
        Ok(())
    })?;
    let output = helper.wait_with_output().map_err(MountError::Device)?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if complaint.contains("busy") {
        return Err(MountError::Busy(mountpoint.to_owned()));
    }
    Err(refused(mountpoint, &complaint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_helper_gets_type_source_and_access_and_a_comma_does_not_add_options() {
        let options = MountOptions { allow_other: true, ..MountOptions::default() };
        assert_eq!(
            helper_options(r"vz:/a,dev\b", &options),
            r"fsname=vz:/a\,dev\\b,subtype=vazao,nodev,nosuid,rw,default_permissions,allow_other"
        );
        let options = MountOptions { read_only: true, default_permissions: false, ..MountOptions::default() };
        assert_eq!(helper_options("vz:/", &options), "fsname=vz:/,subtype=vazao,nodev,nosuid,ro");
    }

    #[test]
    fn the_helpers_complaints_become_errors_with_remedies() {
        let complaint =
            "fusermount3: option allow_other only allowed if 'user_allow_other' is set in /etc/fuse.conf";
        assert!(matches!(refused(Path::new("/m"), complaint), MountError::AllowOtherNotPermitted));
        let complaint = "fusermount3: mount failed: Operation not permitted";
        assert!(matches!(refused(Path::new("/m"), complaint), MountError::NotPermitted(_)));
        assert!(matches!(refused(Path::new("/m"), "strange"), MountError::Attach(_, _)));
    }

    #[test]
    fn a_descriptor_sent_over_a_socket_arrives_and_a_closed_socket_gives_none() {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        let file = std::fs::File::open("/dev/null").expect("it exists");
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [rustix::fd::AsFd::as_fd(&file)];
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        rustix::net::sendmsg(&theirs, &[std::io::IoSlice::new(b"x")], &mut control, SendFlags::empty())
            .expect("sent");
        assert!(receive_descriptor(&ours).is_some());
        drop(theirs);
        assert!(receive_descriptor(&ours).is_none());
    }
}
