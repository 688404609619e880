//! The socket between a mount's process and `vazao umount`: reports the progress of the unmount.
//!
//! A socket with an abstract name (unix(7)) made of the number of the mount's device and of the process. The number
//! alone is not enough: the kernel gives it to another mount while the process of an unmounted one is still storing.
//! Such a name has no permissions and any process may take it, so both ends check the peer's credentials. The process
//! writes lines of text, a word and its arguments; the other end may write [`GIVE_UP`]. The socket closes when the
//! process ends.

use rustix::net::sockopt::socket_peercred;
use std::io::{ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use vazao_fuse::Found;

/// What is written to a mount that is to give up what it cannot store.
const GIVE_UP: &str = "give up";

/// The first line: where the mount is.
const MOUNT: &str = "mount";
/// Where the log is.
const LOG: &str = "log";
/// What is waited for, after how many signals more make it give up.
const WAITS: &str = "waits";
/// What is lost: one line for each file.
const LOST: &str = "lost";
/// The last line.
const ENDED: &str = "ended";

/// Followers at a time.
const FOLLOWERS_MAX: usize = 8;

/// A follower says no more than this.
const REQUEST_BYTES_MAX: usize = 64;

/// Timeout of writing one line: no live reader is slower.
const WRITE_MAX: Duration = Duration::from_millis(200);

/// Where the names of all sockets are (proc(5)), abstract ones with an `@` in front.
const SOCKETS: &str = "/proc/net/unix";

/// How long a mount may take to say which one it is.
const HELLO_MAX: Duration = Duration::from_secs(1);

fn name(device: &str) -> String {
    format!("vazao-mount-{device}-")
}

/// The names that processes of mounts with this device have.
fn names(device: &str) -> Vec<String> {
    let (sockets, start) = (std::fs::read_to_string(SOCKETS).unwrap_or_default(), name(device));
    let names = sockets.lines().filter_map(|line| line.rsplit_once(" @").map(|(_, name)| name));
    let mut names: Vec<String> = names.filter(|name| name.starts_with(&start)).map(str::to_owned).collect();
    // A name stands there once for the listener, and once for each connection.
    names.sort_unstable();
    names.dedup();
    names
}

/// Text that is one line.
fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}

/// The user at the other end, and its process.
fn peer(stream: &UnixStream) -> Option<(u32, u32)> {
    let peer = socket_peercred(stream).ok()?;
    Some((peer.uid.as_raw(), peer.pid.as_raw_nonzero().get().unsigned_abs()))
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The end of the mount's process.
pub(crate) struct Line {
    /// `None` once the mount is out of the tree.
    listener: Option<UnixListener>,
    followers: Vec<UnixStream>,
    mountpoint: PathBuf,
    log: Option<PathBuf>,
}

impl Line {
    /// The line of the mount with this device. Without one (the name is taken, or there is no place for it)
    /// `vazao umount` does not learn how it ends; the mount is none the worse for it.
    pub(crate) fn open(device: &str, mountpoint: &Path, log: Option<&Path>) -> Option<Line> {
        let name = format!("{}{}", name(device), std::process::id());
        let listener = SocketAddr::from_abstract_name(name).and_then(|name| UnixListener::bind_addr(&name));
        let listener = listener.and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
        match listener {
            Ok(listener) => {
                let (listener, mountpoint) = (Some(listener), mountpoint.to_owned());
                Some(Line { listener, followers: Vec::new(), mountpoint, log: log.map(Path::to_owned) })
            }
            Err(error) => {
                tracing::warn!("`vazao umount` will not be told how this mount ends: {error}");
                None
            }
        }
    }

    /// Takes new followers; true when one of them wants the mount to give up.
    pub(crate) fn listen(&mut self) -> bool {
        while let Some(Ok((stream, _))) = self.listener.as_ref().map(UnixListener::accept) {
            self.take(stream);
        }
        let mut wants = false;
        self.followers.retain(|mut follower| {
            let mut said = [0; REQUEST_BYTES_MAX];
            match follower.read(&mut said) {
                Ok(0) => return false,
                Ok(length) => wants |= said[..length].starts_with(GIVE_UP.as_bytes()),
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
            true
        });
        wants
    }

    /// The mount is out of the tree: from now on its device number may mean another mount, so no new follower is
    /// accepted.
    pub(crate) fn close(&mut self) {
        self.listener = None;
    }

    fn take(&mut self, mut stream: UnixStream) {
        let is_allowed = peer(&stream).is_some_and(|(user, _)| user == 0 || user == own_user());
        if !is_allowed || self.followers.len() >= FOLLOWERS_MAX || stream.set_nonblocking(true).is_err() {
            return;
        }
        let mut hello = format!("{MOUNT} {}\n", one_line(&self.mountpoint.display().to_string()));
        if let Some(log) = &self.log {
            hello += &format!("{LOG} {}\n", one_line(&log.display().to_string()));
        }
        if stream.write_all(hello.as_bytes()).is_ok() {
            self.followers.push(stream);
        }
    }

    /// True when at least one `vazao umount` follows.
    pub(crate) fn is_followed(&self) -> bool {
        !self.followers.is_empty()
    }

    /// Tells what is waited for, and how many `signals` more make it give up.
    pub(crate) fn waits(&mut self, what: &str, signals: &str) {
        self.tell(WAITS, &format!("{what}; `kill {}` {signals} gives up", std::process::id()));
    }

    /// Tells that it is over, and what is lost.
    pub(crate) fn ended(&mut self, lost: &[String]) {
        for follower in &self.followers {
            // A follower whose socket cannot block gets what fits.
            let waits = follower.set_nonblocking(false);
            let _ = waits.and_then(|()| follower.set_write_timeout(Some(WRITE_MAX)));
        }
        lost.iter().for_each(|line| self.tell(LOST, line));
        self.tell(ENDED, "");
    }

    fn tell(&mut self, word: &str, what: &str) {
        let line = format!("{word} {}\n", one_line(what));
        self.followers.retain(|mut follower| follower.write_all(line.as_bytes()).is_ok());
    }
}

/// The end of `vazao umount`.
pub(crate) struct Following {
    stream: UnixStream,
    received: Vec<u8>,
    /// The mount's process.
    pub(crate) process: u32,
    /// Where its mount is.
    mountpoint: Option<String>,
    /// Its log.
    pub(crate) log: Option<String>,
    /// What it waits for, as last heard.
    pub(crate) waits: Option<String>,
    /// Files that are lost, a line each.
    pub(crate) lost: Vec<String>,
    /// It has said how it ended.
    pub(crate) has_said_all: bool,
    /// The process is gone.
    pub(crate) is_over: bool,
}

impl Following {
    /// Follows a mount; `None` where no process of its owner listens: it is gone, say.
    pub(crate) fn begin(mount: &Found) -> Option<Following> {
        let expected = one_line(&mount.mountpoint.display().to_string());
        let mut silent = None;
        for name in names(&mount.device) {
            let Some(mut following) = Following::connect(&name, mount) else { continue };
            following.listen(HELLO_MAX);
            match &following.mountpoint {
                Some(mountpoint) if *mountpoint == expected => return Some(following),
                Some(_) => {}
                // It may be stopped.
                None => silent = silent.or(Some(following).filter(|following| !following.is_over)),
            }
        }
        silent
    }

    fn connect(name: &str, mount: &Found) -> Option<Following> {
        let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name).ok()?).ok()?;
        let (user, process) = peer(&stream)?;
        if user != 0 && user != own_user() && Some(user) != mount.user {
            return None;
        }
        Some(Following {
            stream,
            received: Vec::new(),
            process,
            mountpoint: None,
            log: None,
            waits: None,
            lost: Vec::new(),
            has_said_all: false,
            is_over: false,
        })
    }

    /// Tells the mount to give up what it cannot store.
    pub(crate) fn give_up(&mut self) {
        // A process that is gone needs not be told.
        let _ = self.stream.write_all(GIVE_UP.as_bytes());
    }

    /// Listens for up to `duration`, less when something is said.
    pub(crate) fn listen(&mut self, duration: Duration) {
        let mut bytes = [0; 4096];
        let read = self.stream.set_read_timeout(Some(duration)).and_then(|()| self.stream.read(&mut bytes));
        match read {
            Ok(0) => self.is_over = true,
            Ok(length) => self.received.extend_from_slice(&bytes[..length]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.is_over = true,
        }
        while let Some(end) = self.received.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.received.drain(..=end).collect();
            self.understand(String::from_utf8_lossy(&line).trim_end());
        }
    }

    fn understand(&mut self, line: &str) {
        let (word, what) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            MOUNT => self.mountpoint = Some(what.to_owned()),
            LOG => self.log = Some(what.to_owned()),
            WAITS => self.waits = Some(what.to_owned()),
            LOST => self.lost.push(what.to_owned()),
            ENDED => self.has_said_all = true,
            // Of a later version.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(device: &str) -> Found {
        Found { mountpoint: PathBuf::from("/m"), device: device.to_owned(), user: Some(own_user()) }
    }

    /// A name that no mount has.
    fn device(name: &str) -> String {
        format!("test-{}-{name}", std::process::id())
    }

    #[test]
    fn a_follower_hears_what_is_waited_for_what_is_lost_and_that_it_is_over() {
        let device = device("told");
        let mut line = Line::open(&device, Path::new("/m"), Some(Path::new("/l"))).expect("the name is free");
        let mut follower = std::thread::scope(|scope| {
            let follower = scope.spawn(|| Following::begin(&found(&device)).expect("somebody listens"));
            while !line.is_followed() {
                assert!(!line.listen(), "nobody has asked for it");
            }
            follower.join().expect("no panic")
        });
        line.close();
        assert!(Following::begin(&found(&device)).is_none(), "its number may be another mount's now");
        line.waits("a server\nis silent", "twice");
        follower.listen(Duration::from_secs(10));
        let expected = format!("a server is silent; `kill {}` twice gives up", std::process::id());
        assert_eq!(follower.waits.as_deref(), Some(expected.as_str()));
        assert_eq!((follower.log.as_deref(), follower.process), (Some("/l"), std::process::id()));
        follower.give_up();
        assert!(line.listen() && !line.listen());
        line.ended(&["inode 7: bytes 0-1".to_owned()]);
        drop(line);
        while !follower.is_over {
            follower.listen(Duration::from_secs(10));
        }
        assert!(follower.has_said_all);
        assert_eq!(follower.lost, ["inode 7: bytes 0-1"]);
    }

    #[test]
    fn a_name_that_is_taken_costs_the_mount_nothing_and_one_that_nobody_has_is_not_followed() {
        let device = device("taken");
        assert!(Following::begin(&found(&device)).is_none());
        let open = || Line::open(&device, Path::new("/m"), None);
        let first = open();
        assert!(first.is_some() && open().is_none());
    }

    /// The kernel gives the number of an unmounted mount to the next one at once, while the process of the first may
    /// still be storing.
    #[test]
    fn a_mount_elsewhere_that_had_the_same_number_is_not_followed() {
        let device = device("elsewhere");
        let mut line = Line::open(&device, Path::new("/other"), None).expect("the name is free");
        std::thread::scope(|scope| {
            let follower = scope.spawn(|| Following::begin(&found(&device)).is_none());
            while !follower.is_finished() {
                line.listen();
            }
            assert!(follower.join().expect("no panic"));
        });
    }
}
