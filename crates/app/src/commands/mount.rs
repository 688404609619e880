//! `vazao mount`: the volume as a directory of this machine.
//!
//! In the background the mount is a second process of this program, started with `--foreground`; it says "ready"
//! through its standard output when the kernel has the mount, and the first process ends only then.

use crate::context::{CLUSTER_VARIABLE, Context};
use crate::failure::{At, Failure, Outcome};
use crate::location::volume_path;
use crate::mounted::Attendant;
use crate::mounted::line::Line;
use crate::process::log_file;
use crate::signals::{self, Stop};
use clap::Args;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use vazao_fuse::{Mount, MountError, MountOptions, Uring};
use vazao_meter::measures::Part;
use vazao_model::zone;

/// What the process behind a mount says once it works.
const READY: &str = "ready";

/// Signals after which a mount's process ends at once, see [`crate::mounted`].
pub(super) const SIGNALS: usize = 3;

/// A node that says nothing holds up who looks at its areas no longer than this; others are not held up.
const AREAS_DEADLINE_MS: u32 = 8_000;

/// What is behind the options in `--help`.
const AFTER_HELP: &str = "\
Examples:
  vazao mount vz:/ /mnt/v
  vazao mount vz:/data /mnt/data -o ro,allow_other
  vazao mount --areas /mnt/grid    the areas of all nodes: /mnt/grid/NODE/AREA/path
  vazao umount /mnt/v

Options after -o:
  ro                      refuse changes
  allow_other             let other users in
  suid                    set-user-id and set-group-id programs take effect (root only)
  dev                     device nodes open devices (root only)
  noexec                  programs cannot be started
  noatime, sync           as in mount(8); access times are never set by reading
  no_default_permissions  leave permission bits unchecked
  zone=NAME               the zone that this machine is in, in place of that of client.toml
  threads=N               requests in work at once (over io_uring: on each core)
  uring=auto|on|off       requests over io_uring: where the kernel offers it, or else fail, or never";

/// Arguments of `vazao mount`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Stay, and unmount on Ctrl-C
    #[arg(long)]
    foreground: bool,
    /// Options, separated by commas
    #[arg(short, value_name = "OPTIONS", value_delimiter = ',')]
    options: Vec<String>,
    /// Log, put aside as FILE.1 at 16 MiB [default: vazao/mount-….log under $XDG_STATE_HOME, ~/.local/state or
    /// $XDG_RUNTIME_DIR; in the foreground standard error]
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// Say so on standard output when it works
    #[arg(long, hide = true)]
    tell_ready: bool,
    /// What /proc/mounts shows as its source
    #[arg(long, hide = true, value_name = "SOURCE")]
    shown_as: Option<OsString>,
    /// Show the areas of all nodes there instead, as NODE/AREA/path
    #[arg(long, value_name = "MOUNTPOINT", conflicts_with_all = ["volume", "mountpoint"])]
    areas: Option<PathBuf>,
    /// The directory of the volume that is to appear
    #[arg(value_name = "vz:/PATH", required_unless_present = "areas")]
    volume: Option<OsString>,
    /// Where: an empty directory of this machine
    #[arg(required_unless_present = "areas")]
    mountpoint: Option<PathBuf>,
}

impl Arguments {
    /// Where it is mounted; one of both is required.
    pub(super) fn mountpoint(&self) -> &Path {
        self.areas.as_deref().or(self.mountpoint.as_deref()).unwrap_or(Path::new(""))
    }
}

/// Mounts.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    let options = mount_options(&arguments)?;
    if arguments.foreground {
        return foreground(context, &arguments, options);
    }
    background(context, &arguments)
}

/// Options that concern mount(8) and `/etc/fstab`, or ask for what is so anyway.
const IGNORED: [&str; 24] = [
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "_netdev",
    "async",
    "exec",
    "atime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "diratime",
    "nodiratime",
    "lazytime",
    "nolazytime",
    "user",
    "nouser",
    "users",
    "nousers",
    "owner",
    "noowner",
    "group",
    "nogroup",
];

/// What options mean, those of mount(8) included.
pub(super) fn parse_options(given: &[String]) -> Outcome<MountOptions> {
    let mut options = MountOptions::default();
    given.iter().try_for_each(|option| apply(&mut options, option))?;
    Ok(options)
}

fn mount_options(arguments: &Arguments) -> Outcome<MountOptions> {
    let volume = arguments.volume.as_deref().map(volume_path).transpose()?;
    let mut options = MountOptions { path: volume.unwrap_or_default(), ..MountOptions::default() };
    if let Some(source) = &arguments.shown_as {
        options.source = Some(source.to_string_lossy().into_owned());
    }
    arguments.options.iter().try_for_each(|option| apply(&mut options, option))?;
    Ok(options)
}

/// Refuses what is no option, and says what there is.
pub(super) fn check_options(given: &[String]) -> Outcome {
    parse_options(given).map(drop)
}

fn apply(options: &mut MountOptions, option: &str) -> Outcome {
    let threads = option.strip_prefix("threads=").map(str::parse);
    let is_comment = ["x-", "X-", "comment="].iter().any(|prefix| option.starts_with(prefix));
    match (option, threads) {
        ("ro", _) => options.read_only = true,
        ("rw", _) => options.read_only = false,
        ("allow_other", _) => options.allow_other = true,
        ("suid", _) => options.set_id = true,
        ("nosuid", _) => options.set_id = false,
        ("dev", _) => options.devices = true,
        ("nodev", _) => options.devices = false,
        ("noexec", _) => options.no_programs = true,
        ("noatime", _) => options.no_access_times = true,
        ("sync", _) => options.synchronous = true,
        ("default_permissions", _) => options.default_permissions = true,
        ("no_default_permissions", _) => options.default_permissions = false,
        ("uring=auto", _) => options.uring = Uring::Auto,
        ("uring=on", _) => options.uring = Uring::On,
        ("uring=off", _) => options.uring = Uring::Off,
        // The client's, see `zone_of`.
        (zone, _) if zone.strip_prefix("zone=").is_some_and(|name| zone::check_name(name).is_ok()) => {}
        (_, Some(Ok(threads @ 1..=1024))) => options.threads = threads,
        // Of the kernel, one by one, for docs/performance.md; what a mount promises does not hold with them.
        (trial, _) if trial.strip_prefix("trial.").is_some_and(|setting| options.trial.set(setting)) => {}
        (sized, _) if set_size(options, sized) => {}
        ("", _) => {}
        (known, _) if is_comment || IGNORED.contains(&known) => {}
        _ => {
            return Err(Failure::usage(format!(
                "-o {option}: unknown; there are ro, rw, allow_other, suid, nosuid, dev, nodev, noexec, noatime, sync, \
                 default_permissions, no_default_permissions, uring=auto|on|off, threads=1…1024 and zone=NAME"
            )));
        }
    }
    Ok(())
}

/// The zone that options name; the last one counts.
fn zone_of(given: &[String]) -> Option<&str> {
    given.iter().rev().find_map(|option| option.strip_prefix("zone="))
}

/// The sizes of requests and read-ahead, in bytes; false for anything else.
fn set_size(options: &mut MountOptions, option: &str) -> bool {
    let sized = option.strip_prefix("trial.").and_then(|sized| sized.split_once('='));
    match sized.and_then(|(what, bytes)| Some((what, bytes.parse::<u32>().ok()?))) {
        Some(("request", bytes @ 4096..=16_777_216)) => options.request_bytes_max = bytes,
        Some(("read_ahead", bytes @ 0..=67_108_864)) => options.read_ahead_bytes = bytes,
        _ => return false,
    }
    true
}

/// Gives the mount at `mountpoint` these options of the kernel; who may use it, and its threads, stay as they are.
pub(super) fn remount(mountpoint: &Path, given: &[String]) -> Outcome {
    vazao_fuse::remount(mountpoint, &parse_options(given)?).map_err(told)
}

/// [`run`] in the background for mount(8): `source` is what it was given and will compare with `/proc/mounts`.
pub(super) fn in_background(
    context: &Context,
    volume: OsString,
    mountpoint: PathBuf,
    options: Vec<String>,
    log_file: PathBuf,
    source: OsString,
) -> Outcome {
    let (log_file, shown_as) = (Some(log_file), Some(source));
    let (volume, mountpoint) = (Some(volume), Some(mountpoint));
    let (foreground, tell_ready, areas) = (false, false, None);
    let arguments =
        Arguments { foreground, options, log_file, tell_ready, shown_as, areas, volume, mountpoint };
    mount_options(&arguments)?;
    background(context, &arguments)
}

/// The name of the log of a mount.
pub(super) fn log_name(mountpoint: &Path) -> Outcome<String> {
    let mountpoint = std::path::absolute(mountpoint).at(mountpoint.display())?;
    let name = mountpoint.to_string_lossy().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    Ok(format!("mount{}.log", &name[..name.len().min(200)]))
}

pub(super) fn told(error: MountError) -> Failure {
    Failure::new(error.to_string())
}

fn foreground(context: &Context, arguments: &Arguments, options: MountOptions) -> Outcome {
    let stop = Stop::on_signals_up_to(signals::OF_COMMANDS, SIGNALS)?;
    let mountpoint = arguments.mountpoint();
    let client = context.client_with(|options| {
        if let Some(zone) = zone_of(&arguments.options) {
            zone.clone_into(&mut options.zone);
        }
        if arguments.areas.is_some() {
            options.deadline_ms = AREAS_DEADLINE_MS;
        }
    })?;
    client.describe(&mountpoint.display().to_string(), Part::Mount);
    let mount = match arguments.areas {
        Some(_) => vazao_fuse::mount_areas(client, mountpoint, options),
        None => vazao_fuse::mount(client, mountpoint, options),
    };
    stay(&mount.map_err(told)?, &stop, arguments.tell_ready, arguments.own_log())
}

/// Serves a mount until it is unmounted, or asked to stop. `log`: where its process logs.
pub(super) fn stay(mount: &Mount, stop: &Stop, tell_ready: bool, log: Option<&Path>) -> Outcome {
    if tell_ready {
        let mut output = std::io::stdout();
        writeln!(output, "{READY}").and_then(|()| output.flush()).at("standard output")?;
    }
    let ended = AtomicBool::new(false);
    let line = mount.device().and_then(|device| Line::open(device, mount.mountpoint(), log));
    let attendant = Attendant::new(mount, stop, line);
    std::thread::scope(|scope| {
        let attending = scope.spawn(|| attendant.run(&ended));
        let outcome = mount.wait();
        ended.store(true, Ordering::SeqCst);
        let line = attending.join().ok().flatten();
        if let Some(mut line) = line {
            line.ended(match &outcome {
                Err(MountError::Unwritten(lost)) => lost,
                _ => &[],
            });
        }
        outcome.map_err(told)
    })
}

impl Arguments {
    /// Where this very process logs, if not to standard error.
    pub(crate) fn own_log(&self) -> Option<&Path> {
        self.log_file.as_deref().filter(|_| self.foreground)
    }
}

#[allow(clippy::disallowed_methods, reason = "it has closed its output: it is ending")]
fn background(context: &Context, arguments: &Arguments) -> Outcome {
    use std::os::unix::process::CommandExt;
    let log = Log::prepare(arguments)?;
    let program = std::env::current_exe().at("finding this program")?;
    let mut command = Command::new(program);
    command.args(["mount", "--foreground", "--tell-ready"]);
    command.arg("--log").arg(context.common.log.as_deref().unwrap_or("info"));
    command.arg("--log-file").arg(log.path.as_deref().unwrap_or(Path::new("/dev/null")));
    if let Some(zone) = &context.common.zone {
        command.arg("--zone").arg(zone);
    }
    for option in &arguments.options {
        command.arg("-o").arg(option);
    }
    if let Some(source) = &arguments.shown_as {
        command.arg("--shown-as").arg(source);
    }
    match &arguments.volume {
        Some(volume) => command.arg("--").arg(volume).arg(arguments.mountpoint()),
        None => command.arg("--areas").arg(arguments.mountpoint()),
    };
    let cluster = std::path::absolute(context.cluster_file()?).at("the cluster file")?;
    command.env(CLUSTER_VARIABLE, cluster);
    let errors = log.file.try_clone().at("the mount's log")?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).process_group(0);
    let mut child = command.spawn().at("starting the mount's process")?;
    let mut said = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut said).at("the mount's process")?;
    }
    if said.trim_end() != READY {
        child.wait().at("the mount's process")?;
        return Err(log.failure());
    }
    if log.path.is_none() {
        eprintln!(
            "vazao: this mount has no log, for neither $XDG_STATE_HOME, $HOME nor $XDG_RUNTIME_DIR can be written; \
             --log-file FILE gives it one"
        );
    }
    // The first look: it returns when the mount answers.
    fs::metadata(arguments.mountpoint()).at(arguments.mountpoint().display()).map(drop)
}

/// The log of a mount in the background, before its process runs.
struct Log {
    /// None where nothing can be written: then it is in memory, and ends with the mount.
    path: Option<PathBuf>,
    file: File,
    /// Where this mount's part of it begins; `None` when there was no log before.
    start: Option<u64>,
}

impl Log {
    fn prepare(arguments: &Arguments) -> Outcome<Log> {
        if let Some(path) = &arguments.log_file {
            let path = std::path::absolute(path).at(path.display())?;
            return Log::open(&path).at(path.display());
        }
        let name = log_name(arguments.mountpoint())?;
        let in_directory = |directory: PathBuf| {
            let directory = directory.join("vazao");
            fs::create_dir_all(&directory).and_then(|()| Log::open(&directory.join(&name)))
        };
        if let Some(log) = log_directories().into_iter().find_map(|directory| in_directory(directory).ok()) {
            return Ok(log);
        }
        let memory = rustix::fs::memfd_create("vazao-mount", rustix::fs::MemfdFlags::CLOEXEC);
        Ok(Log { path: None, file: File::from(memory.at("the mount's log")?), start: None })
    }

    fn open(path: &Path) -> std::io::Result<Log> {
        let is_there = path.exists();
        log_file::rotate_large(path)?;
        let file = log_file::append_to(path)?;
        let start = if is_there { Some(file.metadata()?.len()) } else { None };
        Ok(Log { path: Some(path.to_owned()), file, start })
    }

    /// What the process behind the mount had to say before it ended. A log that was made for it has nothing else in it.
    fn failure(&self) -> Failure {
        let mut text = Vec::new();
        let mut file = &self.file;
        let read =
            file.seek(SeekFrom::Start(self.start.unwrap_or(0))).and_then(|_| file.read_to_end(&mut text));
        let text = String::from_utf8_lossy(&text);
        let last = text.lines().rfind(|line| line.starts_with("vazao: "));
        if let (Ok(_), Some(line)) = (read, last) {
            if let (Some(path), None) = (&self.path, self.start) {
                // It has been told; a log that cannot be removed does no harm.
                let _ = fs::remove_file(path);
            }
            return Failure::new(line.trim_start_matches("vazao: "));
        }
        match &self.path {
            Some(path) => Failure::new(format!("the mount's process ended; its log is {}", path.display())),
            None => Failure::new("the mount's process ended; give --log-file FILE to see why"),
        }
    }
}

/// Where the logs of a user's mounts may be, best first.
fn log_directories() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = variable("XDG_STATE_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/state")));
    [home, variable("XDG_RUNTIME_DIR")].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(options: &[&str]) -> Arguments {
        Arguments {
            foreground: false,
            options: options.iter().map(|&option| option.to_owned()).collect(),
            log_file: None,
            tell_ready: false,
            shown_as: None,
            areas: None,
            volume: Some(OsString::from("vz:/a")),
            mountpoint: Some(PathBuf::from("/mnt")),
        }
    }

    #[test]
    fn the_last_zone_of_the_options_counts() {
        let given = arguments(&["zone=rio", "ro", "zone=bra"]).options;
        assert_eq!((check_options(&given), zone_of(&given)), (Ok(()), Some("bra")));
        assert!(check_options(&["zone=a b".to_owned()]).is_err() && zone_of(&[]).is_none());
    }

    #[test]
    fn options_are_understood_or_refused_by_name() {
        let options = mount_options(&arguments(&["ro", "allow_other", "threads=3"])).expect("valid");
        assert!(options.read_only && options.allow_other && options.threads == 3);
        assert!(!options.set_id && !options.devices && options.default_permissions);
        let options = mount_options(&arguments(&["suid", "dev"])).expect("valid");
        assert!(options.set_id && options.devices);
        let options = mount_options(&arguments(&["suid", "dev", "nosuid", "nodev"])).expect("valid");
        assert!(!options.set_id && !options.devices);
        for (option, uring) in
            [("uring=on", Uring::On), ("uring=off", Uring::Off), ("uring=auto", Uring::Auto)]
        {
            assert_eq!(mount_options(&arguments(&[option])).expect("valid").uring, uring);
        }
        let failure = mount_options(&arguments(&["uring=yes"])).expect_err("refused");
        assert!(failure.message().is_some_and(|m| m.contains("uring=yes")));
        let options =
            mount_options(&arguments(&["defaults", "_netdev", "x-systemd.automount", "noatime", "noexec"]));
        let options = options.expect("what stands in /etc/fstab is known");
        assert!(options.no_access_times && options.no_programs && !options.synchronous);
        assert!(check_options(&["ro".to_owned(), "cache=none".to_owned()]).is_err());
        let failure = mount_options(&arguments(&["threads=0"])).expect_err("refused");
        assert!(failure.message().is_some_and(|m| m.contains("threads=0")));
    }
}
