//! `vazao demo`: a whole cluster for a minute. Data goes in and comes back by every door, is compared, and is timed
//! beside what the machine does without us. Nothing of it stays.

use super::{cp, layout, ls, up};
use crate::cli::Common;
use crate::cluster::directory::ClusterDirectory;
use crate::cluster::processes::Started;
use crate::context::Context;
use crate::failure::{At, Failure, Outcome};
use crate::format::{self, Lean};
use crate::output::Output;
use crate::signals::{self, Stop};
use clap::{Args, Parser};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use vazao_fuse::{Mount, MountOptions};
use vazao_meter::Clock;
use vazao_meter::bottleneck::{Resource, Verdict};
use vazao_model::VolumePath;
use vazao_sampler::{Record, Recorder};
use vazao_sampler::{loopback, servers};

/// Copies of the data that lie on the disk at the same time, at most: one generated, one in the cluster by each
/// door, one copied back, and one to spare.
const COPIES: u64 = 5;

/// The file of random bytes.
const GENERATED: &str = "random.bin";

/// Bytes sent through loopback for comparison, and the size of each call.
const LOOPBACK_BYTES: u64 = 1 << 30;
const CALL_BYTES: usize = 1 << 20;

/// Files named in one call of `sha256sum`: far below the limit of a command line.
const FILES_A_CHECKSUM_CALL: usize = 500;

/// Arguments of `vazao demo`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  vazao demo --generate 1G\n  vazao demo ~/films/one.mkv ~/src")]
pub(crate) struct Arguments {
    /// Also a file of this size with random contents
    #[arg(long, value_name = "SIZE", value_parser = vazao_model::size::parse_size)]
    generate: Option<u64>,
    /// Files and directories to move through the cluster
    files: Vec<OsString>,
}

/// What has to be taken away at the end, however it ends.
struct Stage {
    directory: PathBuf,
    nodes: Vec<Started>,
    mount: Option<Mount>,
    clock: vazao_meter::SystemClock,
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(mount) = self.mount.take() {
            let unmounted = mount.unmount().or_else(|_| mount.detach()).and_then(|()| mount.wait());
            if let Err(error) = unmounted {
                eprintln!("vazao: {error}");
            }
        }
        if let Err(failure) = up::stop_all(&self.nodes, &self.clock) {
            crate::failure::report(&failure);
        }
        if let Err(error) = fs::remove_dir_all(&self.directory) {
            eprintln!("vazao: {}: {error}; remove it by hand", self.directory.display());
        }
    }
}

/// One timed copy.
struct Timed {
    what: &'static str,
    bytes_a_second: f64,
    /// What limited it, where that was looked for.
    limit: Option<Verdict>,
}

impl Timed {
    fn new(what: &'static str, bytes_a_second: f64) -> Timed {
        Timed { what, bytes_a_second, limit: None }
    }

    fn limited(what: &'static str, bytes_a_second: f64, record: &Record) -> Timed {
        Timed { limit: Some(record.verdict.clone()), ..Timed::new(what, bytes_a_second) }
    }
}

struct Demo {
    stage: Stage,
    stop: Stop,
    context: Context,
    files: Vec<OsString>,
    bytes: u64,
    sums: BTreeMap<Vec<u8>, String>,
}

/// Runs it. Fails when anything differs.
pub(crate) fn run(_context: &Context, arguments: Arguments) -> Outcome {
    let stop = Stop::on_signals(signals::OF_COMMANDS)?;
    let mut demo = Demo::prepare(arguments, stop)?;
    let local = demo.local_copy()?;
    let loopback = demo.loopback()?;
    let library = demo.library()?;
    demo.show()?;
    let mount = demo.mount()?;
    let tcp_rate = loopback.bytes_a_second;
    let rows: Vec<Timed> = library.into_iter().chain(mount).chain([local, loopback]).collect();
    table(&rows, tcp_rate)?;
    say("\nEverything that came back is what went in.")
}

fn say(text: &str) -> Outcome {
    let mut output = Output::new(false);
    output.line(text)?;
    output.finish()
}

fn words(words: &[&OsStr]) -> Vec<OsString> {
    words.iter().map(|&word| word.to_owned()).collect()
}

impl Demo {
    fn prepare(arguments: Arguments, stop: Stop) -> Outcome<Demo> {
        let generated = arguments.generate.unwrap_or(0);
        let mut files = arguments.files;
        if files.is_empty() && generated == 0 {
            return Err(Failure::usage("nothing to move; name files or give --generate SIZE"));
        }
        let directory = std::env::temp_dir().join(format!("vazao-demo-{}", std::process::id()));
        fs::create_dir(&directory).at(directory.display())?;
        let mut stage = Stage {
            directory: directory.clone(),
            nodes: Vec::new(),
            mount: None,
            clock: vazao_meter::SystemClock,
        };
        let sizes = files.iter().map(|file| tree_bytes(Path::new(file)));
        let given_bytes = sizes.sum::<Outcome<u64>>()?;
        check_space(&directory, (given_bytes + generated) * COPIES)?;
        if generated > 0 {
            let file = directory.join(GENERATED);
            say(&format!("generating {} of random bytes", format::size(generated)))?;
            generate(&file, generated, &stop)?;
            files.push(file.into_os_string());
        }
        let cluster = ClusterDirectory::open_or_create(&directory.join("cluster"), false)?;
        stage.nodes = up::start_new(&cluster, &stage.clock, &stop)?;
        say(&format!("a cluster runs: 1 metadata service, {} data servers", stage.nodes.len() - 1))?;
        let common = Common { cluster: Some(cluster.client_file()), ..Common::default() };
        let bytes = given_bytes + generated;
        Ok(Demo {
            stage,
            stop,
            context: Context { common, called: "demo".to_owned() },
            files,
            bytes,
            sums: BTreeMap::new(),
        })
    }

    fn place(&self, name: &str) -> OsString {
        self.stage.directory.join(name).into_os_string()
    }

    fn rate(&self, nanoseconds: u64) -> f64 {
        self.bytes as f64 / (nanoseconds.max(1) as f64 / 1e9)
    }

    /// Copies with this program; returns the rate and what limited it.
    fn copy(&self, paths: &[OsString]) -> Outcome<(f64, Record)> {
        let how = cp::How {
            recursive: true,
            preserve: true,
            force: false,
            resume: false,
            timeouts: crate::copy::FtpTimeouts::default(),
            is_quiet: false,
        };
        let (counts, record, outcome) =
            cp::copy(&self.context, paths, how, &crate::copy::Rules::default(), &self.stop)?;
        outcome?;
        if counts.failed > 0 {
            return Err(Failure::new(format!("{} files could not be copied", counts.failed)));
        }
        Ok((counts.bytes as f64 / counts.seconds.max(1e-9), record))
    }

    fn directory(&self, name: &str) -> Outcome<OsString> {
        let path = self.place(name);
        fs::create_dir(&path).at(Path::new(&path).display())?;
        Ok(path)
    }

    /// Samples the machine while `work` runs, as `cp` does.
    fn recorded<T>(&self, work: impl FnOnce() -> Outcome<T>) -> Outcome<(T, Record)> {
        let client = self.context.client()?;
        let servers = servers::find(&client.map()).watched;
        client.close()?;
        let (result, record) = Recorder::new(vazao_meter::clock::system(), servers).during(work);
        Ok((result?, record))
    }

    fn remove(&self, path: &OsStr) -> Outcome {
        fs::remove_dir_all(path).at(Path::new(path).display())
    }

    /// The same copy from the local disk to the local disk. From here on its result is the source: a program may still
    /// change the originals.
    fn local_copy(&mut self) -> Outcome<Timed> {
        let to = self.directory("originals")?;
        let (rate, _) = self.copy(&[self.files.as_slice(), std::slice::from_ref(&to)].concat())?;
        let names = self.files.iter().filter_map(|file| Path::new(file).file_name());
        self.files = names.map(|name| Path::new(&to).join(name).into_os_string()).collect();
        // What was generated is there twice now.
        let _ = fs::remove_file(self.place(GENERATED));
        self.sums = checksums(&self.files, &self.stop)?;
        Ok(Timed::new("local disk to itself", rate))
    }

    fn loopback(&self) -> Outcome<Timed> {
        let seconds = loopback::tcp_stream_seconds(&self.stage.clock, LOOPBACK_BYTES, CALL_BYTES);
        let rate = LOOPBACK_BYTES as f64 / seconds.at("measuring loopback TCP")?.max(1e-9);
        Ok(Timed::new("loopback TCP, one stream", rate))
    }

    fn library(&mut self) -> Outcome<[Timed; 2]> {
        let volume = OsStr::new("vz:/");
        say(&format!("copying {} in, through the library", format::size(self.bytes)))?;
        let (in_rate, in_record) = self.copy(&[self.files.as_slice(), &words(&[volume])].concat())?;
        say("copying it back")?;
        let back = self.directory("back")?;
        let (out_rate, out_record) = self.copy(&words(&[OsStr::new("vz:/."), &back]))?;
        self.compare(&back, "the library")?;
        self.remove(&back)?;
        Ok([
            Timed::limited("library, in", in_rate, &in_record),
            Timed::limited("library, out", out_rate, &out_record),
        ])
    }

    /// Shows the volume, and how the largest file lies on the targets.
    fn show(&self) -> Outcome {
        say("\n$ vazao ls -lh vz:/")?;
        self.command(&["ls", "-lh", "vz:/"])?;
        let largest = self.files.iter().filter(|file| Path::new(file).is_file());
        let largest = largest.max_by_key(|file| fs::metadata(file).map_or(0, |metadata| metadata.len()));
        let Some(name) = largest.and_then(|file| Path::new(file).file_name()) else { return Ok(()) };
        let path = format!("vz:/{}", name.to_string_lossy());
        say(&format!("\n$ vazao layout {path}"))?;
        self.command(&["layout", &path])?;
        say("")
    }

    fn command(&self, arguments: &[&str]) -> Outcome {
        let line = [&["vazao"], arguments].concat();
        let line = crate::cli::Line::try_parse_from(line).map_err(|e| Failure::new(e.to_string()))?;
        match line.command {
            crate::cli::Command::Ls(arguments) => ls::run(&self.context, arguments),
            crate::cli::Command::Layout(arguments) => layout::run(&self.context, arguments),
            other => Err(Failure::new(format!("the demo does not run {other:?}"))),
        }
    }

    /// The same through a mount, with the system's own commands. Nothing where there can be no mount.
    fn mount(&mut self) -> Outcome<Vec<Timed>> {
        let mountpoint = PathBuf::from(self.directory("mount")?);
        let options = MountOptions { path: VolumePath::default(), ..MountOptions::default() };
        match vazao_fuse::mount(self.context.client()?, &mountpoint, options) {
            Ok(mount) => self.stage.mount = Some(mount),
            Err(error) => {
                say(&format!("no mount: {error}"))?;
                return Ok(Vec::new());
            }
        }
        say("copying it out of a mount with cp, and reading it there with sha256sum")?;
        let back = self.directory("back-from-mount")?;
        let paths = [mountpoint.join(".").into_os_string(), back.clone()];
        let (out_ns, out_record) = self.recorded(|| self.system_cp(&paths))?;
        self.compare(&back, "cp out of the mount")?;
        self.remove(&back)?;
        self.compare(mountpoint.as_os_str(), "sha256sum in the mount")?;
        say("copying it into the mount with cp, and back through the library")?;
        let through = mountpoint.join("through-the-mount");
        fs::create_dir(&through).at(through.display())?;
        let paths = [self.files.as_slice(), &[through.into_os_string()]].concat();
        let (in_ns, in_record) = self.recorded(|| self.system_cp(&paths))?;
        let back = self.directory("back-again")?;
        self.copy(&words(&[OsStr::new("vz:/through-the-mount/."), &back]))?;
        self.compare(&back, "what cp put into the mount")?;
        self.remove(&back)?;
        Ok(vec![
            Timed::limited("mount with cp, in", self.rate(in_ns), &in_record),
            Timed::limited("mount with cp, out", self.rate(out_ns), &out_record),
        ])
    }

    /// Runs `cp -r` and returns how long it took.
    fn system_cp(&self, paths: &[OsString]) -> Outcome<u64> {
        let started_ns = self.stage.clock.now_ns();
        let child = Command::new("cp").arg("-r").args(paths).stdin(Stdio::null()).spawn().at("cp")?;
        wait(child, "cp", &self.stop)?;
        Ok(self.stage.clock.now_ns() - started_ns)
    }

    /// Compares a directory's files with those that went in.
    fn compare(&self, directory: &OsStr, door: &str) -> Outcome {
        let names = self.files.iter().filter_map(|file| Path::new(file).file_name());
        let files: Vec<OsString> =
            names.map(|name| Path::new(directory).join(name).into_os_string()).collect();
        let found = checksums(&files, &self.stop)?;
        if found == self.sums {
            return say(&format!("  {}: {} files, all checksums equal", door, found.len()));
        }
        let differs = self.sums.iter().find(|(name, sum)| found.get(*name) != Some(sum));
        let name = differs
            .map_or("a file that was not there before".into(), |(name, _)| crate::location::show(name));
        Err(Failure::new(format!("{door}: {name} differs from what went in")))
    }
}

#[allow(clippy::disallowed_methods, reason = "it was killed just before")]
fn wait(mut child: Child, what: &str, stop: &Stop) -> Outcome {
    loop {
        if let Some(status) = child.try_wait().at(what)? {
            return if status.success() {
                Ok(())
            } else {
                Err(Failure::new(format!("{what} failed ({status})")))
            };
        }
        if stop.wait(Duration::from_millis(5)) {
            child.kill().at(what)?;
            child.wait().at(what)?;
            return Err(Failure::new("interrupted"));
        }
    }
}

/// The regular files below a path, the path itself included; links are not followed.
fn regular_files(root: &Path) -> Outcome<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(path) = waiting.pop() {
        let metadata = fs::symlink_metadata(&path).at(path.display())?;
        if metadata.is_file() {
            files.push(path);
        } else if metadata.is_dir() {
            for entry in fs::read_dir(&path).at(path.display())? {
                waiting.push(entry.at(path.display())?.path());
            }
        }
    }
    Ok(files)
}

fn tree_bytes(root: &Path) -> Outcome<u64> {
    let files = regular_files(root)?;
    files.iter().map(|file| Ok(fs::metadata(file).at(file.display())?.len())).sum()
}

/// SHA-256 of every regular file, by the system's `sha256sum`, under its path from the last name of its root on.
#[allow(clippy::disallowed_methods, reason = "files of this machine; Ctrl-C ends it, too")]
fn checksums(roots: &[OsString], stop: &Stop) -> Outcome<BTreeMap<Vec<u8>, String>> {
    let mut sums = BTreeMap::new();
    for root in roots.iter().map(Path::new) {
        let above = root.parent().unwrap_or(Path::new(""));
        for files in regular_files(root)?.chunks(FILES_A_CHECKSUM_CALL) {
            if stop.is_asked() {
                return Err(Failure::new("interrupted"));
            }
            let output =
                Command::new("sha256sum").arg("-z").arg("--").args(files).output().at("sha256sum")?;
            if !output.status.success() {
                return Err(Failure::new(format!(
                    "sha256sum: {}",
                    String::from_utf8_lossy(&output.stderr).trim()
                )));
            }
            for line in output.stdout.split(|&b| b == 0).filter(|line| line.len() > 66) {
                let path = Path::new(OsStr::from_bytes(&line[66..]));
                let name = path.strip_prefix(above).unwrap_or(path).as_os_str().as_bytes().to_vec();
                sums.insert(name, String::from_utf8_lossy(&line[..64]).into_owned());
            }
        }
    }
    Ok(sums)
}

fn check_space(directory: &Path, needed: u64) -> Outcome {
    let space = rustix::fs::statvfs(directory).at(directory.display())?;
    let available = space.f_bavail * space.f_frsize;
    if available >= needed {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{}: {} are free and the demo needs {}; set TMPDIR to a directory on a larger disk, or move less",
        std::env::temp_dir().display(),
        format::size(available),
        format::size(needed)
    )))
}

/// Writes bytes that no compression shortens (xorshift64*, S. Vigna, "An experimental exploration of Marsaglia's
/// xorshift generators, scrambled", 2016).
fn generate(path: &Path, bytes: u64, stop: &Stop) -> Outcome {
    let file = File::create_new(path).at(path.display())?;
    let mut writer = BufWriter::with_capacity(CALL_BYTES, file);
    let mut state: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut left = bytes;
    let mut block = Vec::with_capacity(CALL_BYTES);
    while left > 0 {
        if stop.is_asked() {
            return Err(Failure::new("interrupted"));
        }
        block.clear();
        while block.len() < CALL_BYTES {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            block.extend_from_slice(&state.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes());
        }
        let count = left.min(CALL_BYTES as u64);
        writer.write_all(&block[..count as usize]).at(path.display())?;
        left -= count;
    }
    writer.flush().at(path.display())
}

fn table(rows: &[Timed], tcp_rate: f64) -> Outcome {
    let head = [("", Lean::Left), ("RATE", Lean::Right), ("OF TCP", Lean::Right), ("LIMITED BY", Lean::Left)];
    let row = |timed: &Timed| {
        let share = format!("{:.0}%", timed.bytes_a_second / tcp_rate.max(1.0) * 100.0);
        let limit = timed.limit.as_ref().map_or_else(String::new, |limit| limit.text.clone());
        vec![timed.what.to_owned(), format::rate(timed.bytes_a_second), share, limit]
    };
    let mut output = Output::new(false);
    output.text(&format!("\n{}", format::table(&head, &rows.iter().map(row).collect::<Vec<_>>())))?;
    let is_disturbed = |timed: &Timed| {
        timed.limit.as_ref().is_some_and(|limit| limit.resource == Resource::Cpu && limit.by_others)
    };
    if rows.iter().any(is_disturbed) {
        output.line(
            "\nOther programs kept the processors busy meanwhile: on an idle machine these rates are higher.",
        )?;
    }
    output.finish()
}
