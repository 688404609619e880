//! `vazao lab nullfs`: a file system of nothing, to compare mounts with.

use crate::commands::mount;
use crate::failure::Outcome;
use crate::signals::{self, Stop};
use clap::Args;
use std::path::PathBuf;

/// Mount a file system that keeps names in memory, throws away what is written and reads zeros.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vazao lab nullfs /mnt/null &\n  vazao lab nullfs /mnt/null -o uring=on &\n  vazao lab mounts null=/mnt/null vazao=/mnt/v\n  umount /mnt/null\n\nIt takes the kernel's requests as vazao mount does and answers them from memory: what a mount\ncan reach at most on this machine. It stays until it is unmounted or interrupted. Permission bits\nare not checked."
)]
pub(super) struct Arguments {
    /// Options of vazao mount, separated by commas
    #[arg(short, value_name = "OPTIONS", value_delimiter = ',')]
    options: Vec<String>,
    /// Say so on standard output when it works
    #[arg(long, hide = true)]
    tell_ready: bool,
    /// Where: an empty directory of this machine
    mountpoint: PathBuf,
}

/// Mounts it and stays.
pub(super) fn run(arguments: &Arguments) -> Outcome {
    let options = mount::parse_options(&arguments.options)?;
    let stop = Stop::on_signals_up_to(signals::OF_COMMANDS, mount::SIGNALS)?;
    let options = vazao_fuse::MountOptions { default_permissions: false, ..options };
    let mounted = vazao_fuse::mount_null(&arguments.mountpoint, options).map_err(mount::told)?;
    mount::stay(&mounted, &stop, arguments.tell_ready, None)
}
