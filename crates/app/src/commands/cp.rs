//! `vazao cp`: files and trees into, out of and within the volume.

use crate::cli::Results;
use crate::context::Context;
use crate::copy::remote::{self, Remote};
use crate::copy::{
    self, AreaTree, Counts, FtpTimeouts, FtpTree, Item, LocalTree, Meter, PartNames, Rules, StandardTree,
    Transfer, Tree, VolumeTree, ftp_path, itself, join,
};
use crate::failure::{Failure, Outcome, report};
use crate::format;
use crate::jobs;
use crate::location::patterns;
use crate::location::{Location, last_name};
use crate::output::Output;
use crate::signals::{self, Stop};
use clap::Args;
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, stderr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;
use vazao_client::Client;
use vazao_meter::bottleneck::Resource;
use vazao_meter::machine::DiskWatches;
use vazao_model::FileKind;
use vazao_mover::ftp::Url;
use vazao_sampler::servers;
use vazao_sampler::{Record, Recorder};

/// What is behind the options in `--help`: examples, then a section for each question.
const AFTER_HELP: &str = "\
Examples:
  vazao cp big.iso vz:/images/
  vazao cp -r ~/data vz:/backup
  vazao cp -rp vz:/backup/data /restore
  tar c dir | vazao cp - vz:/dir.tar           - is standard input, or last standard output
  vazao cp 'vz:/runs/*.dat' ~/data             quoted, so that the shell leaves it alone
  vazao cp --json vz:/a vz:/b
  vazao cp -q vz:/a vz:/b                      without the two lines at the end, for cron
  vazao cp -r n1:/data/run7 n9:/incoming/      bytes go straight from n1 to n9
  vazao cp --detach --bwlimit 20M n1:/data/big n9:/incoming/
  vazao cp -r ftp://me@host/data ~/data        also to FTP servers

What arrives:
  A file appears under its name only when it is whole: an interrupted copy leaves nothing,
  or what was there before. A file in the place of another takes over its permissions, and
  its owner where you may give it; hard links to the old file keep the old contents.
  A symbolic link is followed to the file it leads to. Into a fifo or device of this machine
  is written. What would be copied into or onto itself is refused.

What is kept:
  Holes, always. With -p last change, last reading, permissions, owner and set-id bits.
  In areas files belong to the area's owner, without set-id bits. Copies by nodes keep last
  change and permissions of files without -p, and the last reading never. ACLs, extended
  attributes and hard links are not kept. docs/grid.md has the table of all directions.

Who copies:
  Between areas, or an area and the volume, a node does: a job, which goes on when this
  command is killed, and after restarts. Ctrl-C cancels it; what has arrived stays.
  Everything else this command moves itself.

When it ends early:
  --resume leaves files that have arrived as they are, and goes on behind what has arrived
  of the others. Where this command moves the bytes, give it from the start on.
  A command that was killed leaves .NAME.vazao-….part beside the file. The next copy to the
  same name by the same user of this machine goes on with it or removes it, unless the
  machine was started anew. rm removes it at any time.

FTP servers:
  Passwords come from ~/.netrc (readable by you only), VAZAO_FTP_PASSWORD, the address, or
  are asked for. One in an address is taken off the command line at once. FTP sends them as
  they are: who reads the network, reads them. Between this machine and a server, what has
  arrived stays as a part for --resume.";

/// Arguments of `vazao cp`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    results: Results,
    /// Directories with all that is in them; symbolic links are copied as links
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Keep owner, permissions with set-id bits, and times
    #[arg(short, long)]
    preserve: bool,
    /// Replace files that you may not write to (in a directory where you may)
    #[arg(short, long)]
    force: bool,
    /// As -rp
    #[arg(short, long)]
    archive: bool,
    /// Name each file on standard error when it is copied
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
    /// Print neither progress nor, at the end, what was copied and what limited it
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    remote: Remote,
    /// What to copy, and last where to: a new name, or the directory it goes into. * and ? in vz:/… and NODE:/… stand
    /// for names as in a shell, and \\* for the name *
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<OsString>,
}

/// Shorter copies spend their time on starting.
const SECONDS_TOLD_MIN: f64 = 0.1;

/// Which tree a path is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    Local,
    Volume,
    Area,
    Ftp,
    Standard,
}

impl Where {
    /// Whether the same file may be on both sides.
    fn may_meet(self, other: Where) -> bool {
        let is_apart = |at| matches!(at, Where::Ftp | Where::Standard);
        self == other || !is_apart(self) && !is_apart(other)
    }
}

/// A path with the tree it is in.
struct Side {
    tree: Arc<dyn Tree>,
    path: Vec<u8>,
    at: Where,
}

struct Sides<'a> {
    context: &'a Context,
    stop: &'a Stop,
    local: Arc<dyn Tree>,
    volume: Option<(Client, Arc<dyn Tree>)>,
    areas: Option<(Client, Arc<dyn Tree>)>,
    ftp: Arc<FtpTree>,
}

impl Sides<'_> {
    fn side(&mut self, argument: &OsStr, is_output: bool) -> Outcome<Side> {
        if argument.as_bytes() == copy::STANDARD {
            let tree: Arc<dyn Tree> = Arc::new(StandardTree { is_output });
            return Ok(Side { tree, path: copy::STANDARD.to_vec(), at: Where::Standard });
        }
        match Location::parse(argument)? {
            Location::Local(path) => Ok(Side {
                tree: Arc::clone(&self.local),
                path: path.into_os_string().into_vec(),
                at: Where::Local,
            }),
            Location::Ftp(url) => {
                let tree = Arc::clone(&self.ftp) as Arc<dyn Tree>;
                Ok(Side { tree, path: ftp_path(&url), at: Where::Ftp })
            }
            Location::Area(reference) => {
                let tree = match &self.areas {
                    Some((_, tree)) => Arc::clone(tree),
                    None => {
                        let client = self.context.client()?;
                        self.stop.hangs_up(&client);
                        let tree: Arc<dyn Tree> = Arc::new(AreaTree::new(client.clone()));
                        self.areas = Some((client, Arc::clone(&tree)));
                        tree
                    }
                };
                Ok(Side { tree, path: reference.to_bytes(), at: Where::Area })
            }
            Location::Volume(path) => {
                let tree = match &self.volume {
                    Some((_, tree)) => Arc::clone(tree),
                    None => {
                        let client = self.context.client()?;
                        self.stop.hangs_up(&client);
                        let tree: Arc<dyn Tree> = Arc::new(VolumeTree::new(client.clone()));
                        self.volume = Some((client, Arc::clone(&tree)));
                        tree
                    }
                };
                Ok(Side { tree, path: path.to_bytes(), at: Where::Volume })
            }
        }
    }
}

/// How a copy was asked for.
#[derive(Clone, Copy)]
pub(crate) struct How {
    /// Directories as well.
    pub(crate) recursive: bool,
    /// Owner, permissions and times are kept.
    pub(crate) preserve: bool,
    /// Files that this user may not write to are replaced too.
    pub(crate) force: bool,
    /// What an earlier copy has left is gone on with.
    pub(crate) resume: bool,
    /// Time-outs towards FTP servers.
    pub(crate) timeouts: FtpTimeouts,
    /// No progress is shown.
    pub(crate) is_quiet: bool,
}

impl Arguments {
    fn recursive(&self) -> bool {
        self.recursive || self.archive
    }

    fn preserve(&self) -> bool {
        self.preserve || self.archive
    }

    /// Refuses what standard input and output cannot do.
    fn check_standard(&self) -> Outcome {
        let Some((to, from)) = self.paths.split_last() else { return Ok(()) };
        let is_standard = |path: &OsString| path.as_bytes() == copy::STANDARD;
        let (is_input, is_output) = (from.iter().any(is_standard), is_standard(to));
        let refused = [
            (is_input && is_output, "-: standard input to standard output is what cat(1) does"),
            (is_input && self.remote.resume(), "--resume: standard input begins anew each time"),
            (is_input && self.preserve(), "-p: standard input has neither owner nor times"),
            (
                (is_input || is_output) && self.remote.checksum(),
                "--checksum: standard input and output are read or written once",
            ),
            (is_output && self.results.json, "--json: standard output has the file"),
        ];
        match refused.iter().find(|(is_so, _)| *is_so) {
            Some((_, why)) => Err(Failure::usage(*why)),
            None => Ok(()),
        }
    }
}

/// Copies.
pub(crate) fn run(context: &Context, mut arguments: Arguments) -> Outcome {
    let stop = Stop::on_signals(signals::OF_COMMANDS)?;
    arguments.check_standard()?;
    if let Some(destination) = arguments.paths.pop() {
        arguments.paths = patterns::expand_arguments(context, &arguments.paths)?;
        arguments.paths.push(patterns::named(&destination));
    }
    if remote::concerns(&arguments.paths)? {
        if arguments.verbose {
            let why = "-v: the nodes do this copy, and name only files that fail; --dry-run names all that it would copy";
            return Err(Failure::usage(why));
        }
        let shown = jobs::Shown { json: arguments.results.json, is_quiet: arguments.quiet };
        let trees = (arguments.recursive(), arguments.preserve());
        return remote::run(context, &arguments.paths, trees, &arguments.remote, shown, &stop);
    }
    let is_ftp = arguments.paths.iter().any(|path| Url::looks_like(path.as_bytes()));
    arguments.remote.check_unused(is_ftp)?;
    let how = How {
        recursive: arguments.recursive(),
        preserve: arguments.preserve(),
        force: arguments.force,
        resume: arguments.remote.resume(),
        timeouts: arguments.remote.timeouts()?,
        is_quiet: arguments.quiet,
    };
    let rules = arguments.remote.rules(arguments.results.json)?.naming(arguments.verbose);
    let (counts, record, outcome) = copy(context, &arguments.paths, how, &rules, &stop)?;
    if rules.is_dry() {
        return outcome;
    }
    summarize(&arguments, &counts, &record)?;
    outcome?;
    if counts.failed > 0 { Err(Failure::Reported) } else { Ok(()) }
}

/// Copies all paths but the last to the last. Returns what was counted and sampled, and whether it went to the end;
/// single files that failed are in the counts.
pub(crate) fn copy(
    context: &Context,
    paths: &[OsString],
    how: How,
    rules: &Rules,
    stop: &Stop,
) -> Outcome<(Counts, Record, Outcome)> {
    let Some((destination, sources)) = paths.split_last() else {
        return Err(Failure::usage("cp needs what to copy and where to"));
    };
    let clock = vazao_meter::clock::system();
    let disks = DiskWatches::new(Arc::clone(&clock));
    let local = Arc::new(LocalTree::watched(Arc::clone(&disks)));
    let ftp = Arc::new(FtpTree::new(Arc::clone(&clock), stop.clone(), how.timeouts));
    let mut sides = Sides { context, stop, local, volume: None, areas: None, ftp };
    let to = sides.side(destination, true)?;
    let from = sources.iter().map(|source| Ok((sides.side(source, false)?, source.as_os_str())));
    let from = from.collect::<Outcome<Vec<(Side, &OsStr)>>>()?;
    let target = target(to, destination, from.len())?;
    let is_visible = stderr().is_terminal() && !rules.is_dry() && !how.is_quiet;
    let meter = Meter::new(Arc::clone(&clock), is_visible);
    rules.start(clock.now_ns());
    let waited_before = sides.ftp.waited_ns();
    let client = sides.volume.as_ref().map(|(client, _)| client);
    let client = client.or(sides.areas.as_ref().map(|(client, _)| client));
    let watched = client.map(|client| servers::find(&client.map()).watched);
    let recorder = Recorder::new(clock, watched.unwrap_or_default()).of(client, Some(disks));
    let (outcome, mut record) = recorder.during(|| {
        [Where::Volume, Where::Area, Where::Ftp, Where::Local, Where::Standard].into_iter().try_for_each(
            |at| {
                let group: Vec<&(Side, &OsStr)> = from.iter().filter(|(side, _)| side.at == at).collect();
                copy_group(&group, &target, (how, rules), &meter, stop)
            },
        )
    });
    let counts = meter.finish();
    let waited = sides.ftp.waited_ns().into_iter().map(|(server, waited_ns)| {
        let before_ns = waited_before.get(&server).copied().unwrap_or(0);
        (waited_ns.saturating_sub(before_ns), server)
    });
    if let Some((waited_ns, server)) = waited.max() {
        let share = waited_ns as f64 / 1e9 / counts.seconds.max(1e-9);
        record.verdict = record.verdict.or_answers_of(&server, share);
    }
    record.verdict = rules.limits(record.verdict, &counts, meter.now_ns());
    sides.ftp.close();
    for (client, _) in sides.volume.into_iter().chain(sides.areas) {
        client.close()?;
    }
    Ok((counts, record, outcome))
}

/// Copies sources that are all on one side.
fn copy_group(
    group: &[&(Side, &OsStr)],
    target: &Target,
    (how, rules): (How, &Rules),
    meter: &Meter,
    stop: &Stop,
) -> Outcome {
    let Some((first, _)) = group.first() else { return Ok(()) };
    let parts = PartNames::default();
    let (from, to) = (&*first.tree, &*target.side.tree);
    let is_download = first.at == Where::Ftp && target.side.at == Where::Local;
    let keeps = how.resume || is_download || target.side.at == Where::Ftp;
    let transfer = Transfer {
        from,
        to,
        preserve: how.preserve,
        force: how.force,
        keeps,
        resume: how.resume,
        rules,
        parts: &parts,
        meter,
        stop,
        may_meet: first.at.may_meet(target.side.at),
    };
    let mut items = Vec::new();
    for (side, argument) in group {
        match item(side, argument, target, how.recursive) {
            Ok(item) => items.push(item),
            Err(failure) => meter.failed(|| report(&failure)),
        }
    }
    copy::run(transfer, items)
}

/// The last argument, and what it means.
struct Target {
    side: Side,
    /// It is a directory: sources go into it.
    into: bool,
    /// It is not there, and its slash says that it is to be a directory.
    missing_directory: bool,
}

fn target(side: Side, argument: &OsStr, sources: usize) -> Outcome<Target> {
    let slash = argument.as_bytes().ends_with(b"/");
    let shown = side.tree.show(&side.path);
    let (into, missing_directory) = match side.tree.find(&side.path, true)? {
        Some(found) if found.kind == FileKind::Directory => (true, false),
        _ if sources > 1 => {
            return Err(Failure::new(format!(
                "{shown}: not a directory; several sources need one to go into"
            )));
        }
        Some(_) if slash => return Err(Failure::new(format!("{shown}: not a directory"))),
        Some(_) => (false, false),
        None => (false, slash),
    };
    Ok(Target { side, into, missing_directory })
}

fn item(side: &Side, argument: &OsStr, target: &Target, recursive: bool) -> Outcome<Item> {
    let to = &target.side;
    let shown = side.tree.show(&side.path);
    // As cp does: a link named by the user is followed, unless whole trees are copied as they are.
    let found = side.tree.find(&side.path, !recursive)?;
    let found = found.ok_or_else(|| Failure::new(format!("{shown}: no such file or directory")))?;
    let is_directory = found.kind == FileKind::Directory;
    if is_directory && !recursive {
        return Err(Failure::new(format!(
            "{shown}: is a directory; give -r to copy it with all that is in it"
        )));
    }
    if target.missing_directory && !is_directory {
        let shown = to.tree.show(&to.path);
        return Err(Failure::new(format!("{shown}/: no such directory; make it with mkdir first")));
    }
    if side.at == Where::Standard && target.into {
        let shown = to.tree.show(&to.path);
        return Err(Failure::usage(format!(
            "{shown}: is a directory; say what standard input is to be called in it"
        )));
    }
    let name = match side.at {
        Where::Ftp => last_name(OsStr::from_bytes(ftp_name(&side.path))),
        _ => last_name(argument_path(argument)),
    };
    let destination = match (target.into, name) {
        (true, Some(name)) => join(&to.path, name.as_bytes()),
        _ => to.path.clone(),
    };
    if let Some(there) = to.tree.find(&destination, true)? {
        check_replacement(&shown, &found, &to.tree.show(&destination), &there)?;
    }
    let (from, into) = ((&*side.tree, &side.path[..]), (&*to.tree, &destination[..]));
    // A server of FTP tells nothing of where its files are.
    if found.kind != FileKind::Symlink && side.at.may_meet(to.at) {
        itself::check(from, into, is_directory)?;
    }
    Ok(Item { source: side.path.clone(), found, destination, below: Vec::new() })
}

/// Whether what is at the destination may be replaced or filled.
fn check_replacement(shown: &str, found: &copy::Found, shown_there: &str, there: &copy::Found) -> Outcome {
    match (found.kind == FileKind::Directory, there.kind == FileKind::Directory) {
        (true, false) => Err(Failure::new(format!("{shown_there}: not a directory, {shown} is one"))),
        (false, true) => Err(Failure::new(format!("{shown_there}: is a directory, {shown} is none"))),
        _ => Ok(()),
    }
}

/// The part of an argument that is a path: without `vz:`.
fn argument_path(argument: &OsStr) -> &OsStr {
    OsStr::from_bytes(argument.as_bytes().strip_prefix(b"vz:").unwrap_or(argument.as_bytes()))
}

/// The part of a path on an FTP server that the server gets.
fn ftp_name(path: &[u8]) -> &[u8] {
    path.splitn(4, |&byte| byte == b'/').nth(3).unwrap_or_default()
}

/// Says on standard error, or as JSON, what was copied and what limited it: into pipes and logs as well.
fn summarize(arguments: &Arguments, counts: &Counts, record: &Record) -> Outcome {
    let verdict = &record.verdict;
    let mut output = Output::new(arguments.results.json);
    if output.json {
        output.value(&json!({
            "bytes": counts.bytes,
            "files": counts.files,
            "directories": counts.directories,
            "failed": counts.failed,
            "seconds": counts.seconds,
            "bytes_per_second": counts.bytes as f64 / counts.seconds.max(1e-9),
            "limit": verdict,
            "reading_seconds": counts.reading_s,
            "writing_seconds": counts.writing_s,
        }))?;
    } else if !arguments.quiet && counts.files + counts.directories > 0 {
        let nanoseconds = (counts.seconds * 1e9) as u64;
        let copied = format::copied(counts.files, counts.directories, counts.bytes, nanoseconds);
        eprintln!("{copied}\n{}{}", verdict.line(), nearer(counts, record));
    }
    output.finish()
}

/// Where no limit is known, which side the threads spent more time on. Beside a limit it would only contradict.
fn nearer(counts: &Counts, record: &Record) -> &'static str {
    let seconds = record.changes.first().map_or(0.0, |observer| observer.seconds);
    match record.verdict.resource {
        Resource::Unknown if seconds < SECONDS_TOLD_MIN => "",
        Resource::Unknown if counts.reading_s > counts.writing_s => "; mostly it was reading the source",
        Resource::Unknown => "; mostly it was writing the destination",
        _ => "",
    }
}
