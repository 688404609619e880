//! `mount -t vazao` and lines of `/etc/fstab`: what mount(8) runs as `mount.vazao`, and how it gets there.
//!
//! The helper is this program under another name. mount(8) calls it as `mount.vazao SOURCE DIRECTORY [-sfnv] [-o
//! OPTIONS] [-t TYPE]`; to remount it looks for `mount.fuse.vazao`, after the type in `/proc/mounts`.

use super::mount;
use crate::cli::Common;
use crate::context::{CLUSTER_VARIABLE, Context};
use crate::failure::{self, At, Failure, Outcome};
use clap::Args;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Names under which mount(8) looks for the helper.
const NAMES: [&str; 2] = ["mount.vazao", "mount.fuse.vazao"];

/// The cluster of a source that names none.
const SYSTEM_CLUSTER: &str = vazao_client::config::NODE_CLIENT_FILE;

/// Where mounts of the system write their logs.
const SYSTEM_LOGS: &str = "/var/log/vazao";

/// What mount(8) does not pass on because it holds unless the contrary is asked for. Only root may have it.
const DEFAULTS: [&str; 2] = ["suid", "dev"];

/// Exit codes that mount(8) has for its helpers.
const WRONG_USAGE: u8 = 1;
const NOT_MOUNTED: u8 = 32;

/// Arguments of `vazao mount-helper`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  vazao mount-helper --install
  mount -t vazao vz:/ /mnt/v -o allow_other
  mount -t vazao /etc/other.toml:vz:/data /mnt/data

A line of /etc/fstab:
  vz:/  /mnt/v  vazao  cluster=/etc/vazao/client.toml,allow_other,noatime,_netdev,nofail  0  0

The cluster is the one in front of vz: (its client.toml), or of the option cluster=FILE, of $VAZAO_CLUSTER,
or /etc/vazao/client.toml. Other options are those of `vazao mount`. Logs are in /var/log/vazao.

As with all file systems of mount(8), set-user-id programs and devices take effect unless -o nosuid,nodev is given.")]
pub(crate) struct Arguments {
    /// Make links to this program under the names that mount(8) looks for
    #[arg(long, conflicts_with = "remove")]
    install: bool,
    /// Take these links away
    #[arg(long)]
    remove: bool,
    /// Where mount(8) looks
    #[arg(long, value_name = "DIRECTORY", default_value = "/sbin")]
    directory: PathBuf,
}

/// Installs or removes the helper.
pub(crate) fn run(arguments: &Arguments) -> Outcome {
    if arguments.install == arguments.remove {
        return Err(Failure::usage("say --install or --remove"));
    }
    let program = std::env::current_exe().at("finding this program")?;
    for link in NAMES.map(|name| arguments.directory.join(name)) {
        remove_link(&link)?;
        if arguments.install {
            std::os::unix::fs::symlink(&program, &link).at(link.display())?;
            println!("{} -> {}", link.display(), program.display());
        }
    }
    Ok(())
}

/// Removes what an earlier installation has left; other people's files stay.
fn remove_link(link: &Path) -> Outcome {
    match std::fs::symlink_metadata(link) {
        Ok(metadata) if metadata.is_symlink() => std::fs::remove_file(link).at(link.display()),
        Ok(_) => Err(Failure::new(format!("{} is there and no link of ours; move it away", link.display()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Failure::new(format!("{}: {error}", link.display()))),
    }
}

/// True when this process was called as the helper.
pub(crate) fn is_called(name: Option<&OsStr>) -> bool {
    let name = name.map(Path::new).and_then(Path::file_name);
    NAMES.iter().any(|helper| name == Some(OsStr::new(helper)))
}

/// What mount(8) asks for.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    source: OsString,
    directory: PathBuf,
    options: Vec<String>,
    /// Only look whether it could be done.
    is_fake: bool,
    /// Options that are not known are no error.
    is_sloppy: bool,
}

/// Does what mount(8) asks for; the exit code is mount(8)'s.
pub(crate) fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let outcome = parse(arguments).and_then(mount_as_asked);
    match &outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure::report(failure);
            let is_usage = matches!(failure, Failure::Usage(_));
            ExitCode::from(if is_usage { WRONG_USAGE } else { NOT_MOUNTED })
        }
    }
}

fn parse(mut arguments: impl Iterator<Item = OsString>) -> Outcome<Asked> {
    let usage =
        || Failure::usage("usage: mount.vazao [CLUSTER.toml:]vz:/PATH DIRECTORY [-sfnv] [-o OPTIONS]");
    let (mut places, mut options, mut flags) = (Vec::new(), Vec::new(), String::new());
    while let Some(argument) = arguments.next() {
        let Some(flag) = argument.to_str().and_then(|text| text.strip_prefix('-')) else {
            places.push(argument);
            continue;
        };
        match flag {
            "o" => {
                let list = arguments.next().ok_or_else(usage)?;
                options.extend(list.to_string_lossy().split(',').map(str::to_owned));
            }
            "t" | "N" => drop(arguments.next().ok_or_else(usage)?),
            letters if letters.chars().all(|letter| "sfnv".contains(letter)) => flags.push_str(letters),
            _ => return Err(usage()),
        }
    }
    let [source, directory] = <[OsString; 2]>::try_from(places).map_err(|_| usage())?;
    options.retain(|option| !option.is_empty());
    let (is_fake, is_sloppy) = (flags.contains('f'), flags.contains('s'));
    Ok(Asked { source, directory: directory.into(), options, is_fake, is_sloppy })
}

/// The cluster's file in front of `vz:/PATH`, where there is one, and the rest.
fn split_source(source: &OsStr) -> Outcome<(Option<PathBuf>, OsString)> {
    let bytes = source.as_bytes();
    if bytes.starts_with(b"vz:") {
        return Ok((None, source.to_owned()));
    }
    let at = bytes.windows(4).position(|part| part == b":vz:");
    match at.map(|at| bytes.split_at(at)) {
        Some((file, volume)) if file.starts_with(b"/") => {
            let file = PathBuf::from(OsString::from_vec(file.to_vec()));
            Ok((Some(file), OsString::from_vec(volume[1..].to_vec())))
        }
        _ => Err(Failure::usage(format!(
            "{}: not a volume; it is vz:/PATH or /FILE/OF/THE/CLUSTER.toml:vz:/PATH",
            source.display()
        ))),
    }
}

/// The options with those that mount(8) leaves out in front, so that what was given prevails.
fn with_defaults(given: Vec<String>, is_root: bool) -> Vec<String> {
    let defaults = DEFAULTS.iter().filter(|_| is_root).map(|&option| option.to_owned());
    defaults.chain(given).collect()
}

fn mount_as_asked(asked: Asked) -> Outcome {
    let (mut cluster, volume) = split_source(&asked.source)?;
    let mut options = Vec::new();
    let mut is_remount = false;
    for option in asked.options {
        match option.strip_prefix("cluster=") {
            Some(file) => cluster = Some(PathBuf::from(file)),
            None if option == "remount" => is_remount = true,
            None if asked.is_sloppy && mount::check_options(std::slice::from_ref(&option)).is_err() => {}
            None => options.push(option),
        }
    }
    if is_remount {
        // The kernel adds these to the ones it was given when it was mounted.
        options
            .retain(|o| !["user_id=", "group_id=", "fd=", "rootmode="].iter().any(|own| o.starts_with(own)));
    }
    let options = with_defaults(options, rustix::process::geteuid().is_root());
    mount::check_options(&options)?;
    if asked.is_fake {
        return Ok(());
    }
    if is_remount {
        return mount::remount(&asked.directory, &options);
    }
    let given = std::env::var_os(CLUSTER_VARIABLE).filter(|file| !file.is_empty()).map(PathBuf::from);
    let cluster = cluster.or(given).unwrap_or_else(|| PathBuf::from(SYSTEM_CLUSTER));
    let common = Common { cluster: Some(cluster), ..Common::default() };
    let context = Context { common, called: "mount".to_owned() };
    std::fs::create_dir_all(SYSTEM_LOGS).at(SYSTEM_LOGS)?;
    let log_file = Path::new(SYSTEM_LOGS).join(mount::log_name(&asked.directory)?);
    mount::in_background(&context, volume, asked.directory, options, log_file, asked.source)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Outcome<Asked> {
        parse(line.split(' ').map(OsString::from))
    }

    #[test]
    fn lines_of_mount_are_understood_in_any_order() {
        let expected = Asked {
            source: "vz:/a".into(),
            directory: "/mnt".into(),
            options: vec!["ro".to_owned(), "noatime".to_owned()],
            is_fake: false,
            is_sloppy: true,
        };
        assert_eq!(asked("vz:/a /mnt -sv -o ro,,noatime").as_ref(), Ok(&expected));
        assert_eq!(asked("-o ro -t vazao vz:/a -s /mnt -o noatime").as_ref(), Ok(&expected));
        for wrong in ["vz:/a", "vz:/a /mnt /x", "vz:/a /mnt -o", "vz:/a /mnt -x"] {
            assert!(asked(wrong).is_err(), "{wrong}");
        }
    }

    /// mount(8) does not pass `suid` and `dev` on, as they are the default: with either option, and without, its mounts
    /// stayed without set-id programs and devices.
    #[test]
    fn what_mount_does_not_pass_on_because_it_is_the_default_holds_for_root() {
        let options = |given: &[&str], is_root| {
            let given = given.iter().map(|&option| option.to_owned()).collect();
            let options = mount::parse_options(&with_defaults(given, is_root)).expect("known");
            (options.set_id, options.devices)
        };
        assert_eq!(options(&["rw"], true), (true, true));
        assert_eq!(options(&["rw", "nosuid"], true), (false, true));
        assert_eq!(options(&["nosuid", "nodev"], true), (false, false));
        assert_eq!(options(&["rw"], false), (false, false));
    }

    #[test]
    fn a_source_may_name_the_file_of_its_cluster() {
        let split = |source: &str| split_source(OsStr::new(source));
        assert_eq!(split("vz:/a:vz:/b"), Ok((None, "vz:/a:vz:/b".into())));
        assert_eq!(split("/etc/c.toml:vz:/a"), Ok((Some("/etc/c.toml".into()), "vz:/a".into())));
        for wrong in ["/etc/c.toml", "host:vz:/", "", "/dev/sda1"] {
            assert!(split(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_program_knows_when_it_is_called_as_the_helper() {
        for name in ["/sbin/mount.vazao", "mount.fuse.vazao"] {
            assert!(is_called(Some(OsStr::new(name))), "{name}");
        }
        assert!(!is_called(Some(OsStr::new("/usr/bin/vazao"))) && !is_called(None));
    }
}
