//! NFS-Ganesha over one directory, with its port mapper, on a host of the laboratory.

use super::Session;
use crate::Error;
use crate::hosts::Host;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;
use vazao_meter::Clock;

const PROGRAMS: [(&str, &str); 2] = [("ganesha.nfsd", "nfs-ganesha-vfs"), ("rpcbind", "rpcbind")];
const DIRECTORIES: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
const READY_WITHIN: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);

/// Files of its own in `/run`, so that two of them, or the machine's own port mapper, do not meet; processes of its
/// own, so that none outlives it; no copies of others' mounts, whose `umount` would wait for it.
const PRIVATE: [&str; 5] = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
const START: &str = "umount --all --lazy --types fuse.vazao; mount -t tmpfs none /run && mkdir /run/rpcbind && rpcbind && exec ganesha.nfsd -F -f \"$0/conf\" -L \"$0/log\" -p \"$0/pid\"";

/// A running server; killed when dropped.
pub(crate) struct Server {
    child: Child,
    host: Arc<Host>,
    export: PathBuf,
}

impl Server {
    /// Exports `export` from `host`, with its own files in the new directory `directory`.
    pub(crate) fn start(
        clock: &dyn Clock,
        host: &Arc<Host>,
        export: &Path,
        directory: &Path,
    ) -> Result<Server, Error> {
        PROGRAMS.into_iter().try_for_each(require)?;
        let failed = Error::at(directory.display());
        fs::create_dir(directory)
            .and_then(|()| fs::write(directory.join("conf"), config(host, export, directory)))
            .map_err(failed)?;
        let child = host
            .command("unshare")
            .args(PRIVATE)
            .args(["sh", "-c", START])
            .arg(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Error::at("unshare"))?;
        let mut server = Server { child, host: host.clone(), export: export.to_owned() };
        server.wait_ready(clock, directory)?;
        Ok(server)
    }

    /// A session of a client; to be called on the client's host.
    pub(crate) fn connect(&self) -> Result<Session, Error> {
        Session::mount(&self.host.address().to_string(), &self.export.to_string_lossy())
    }

    fn wait_ready(&mut self, clock: &dyn Clock, directory: &Path) -> Result<(), Error> {
        let deadline_ns = clock.now_ns() + READY_WITHIN.as_nanos() as u64;
        loop {
            let host = self.host.clone();
            let error = match host.inside(|| self.connect().map(drop))? {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let ended = !matches!(self.child.try_wait(), Ok(None));
            if ended || clock.now_ns() > deadline_ns {
                let log = fs::read_to_string(directory.join("log")).unwrap_or_default();
                let said = log.lines().last().unwrap_or("nothing");
                return Err(Error::Failed(format!("NFS-Ganesha does not serve: {error}; it said: {said}")));
            }
            clock.sleep(POLL);
        }
    }
}

impl Drop for Server {
    #[allow(clippy::disallowed_methods, reason = "it was killed just before")]
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn require((program, package): (&str, &str)) -> Result<(), Error> {
    let is_there = DIRECTORIES.iter().any(|directory| Path::new(directory).join(program).exists());
    let missing = format!("{program} is not there; install Debian's package {package}");
    if is_there { Ok(()) } else { Err(Error::Failed(missing)) }
}

fn config(host: &Host, export: &Path, directory: &Path) -> String {
    let (address, export, directory) = (host.address(), export.display(), directory.display());
    format!(
        "NFS_CORE_PARAM {{ Bind_addr = {address}; Enable_NLM = false; Enable_RQUOTA = false; Protocols = 3; }}\n\
         NFSv4 {{ Graceless = true; RecoveryRoot = {directory}; }}\n\
         EXPORT {{ Export_Id = 1; Path = {export}; Pseudo = /lab; Access_Type = RW; Squash = No_Root_Squash;\n\
         \tSecType = sys; Protocols = 3; Transports = TCP; MaxRead = 1048576; MaxWrite = 1048576;\n\
         \tFSAL {{ Name = VFS; }} }}\n"
    )
}
