//! `vazao node`: makes a machine a node of a cluster: key, configuration, and a unit for systemd.
//!
//! It writes files and starts nothing. Files that are there already and say something else are left alone.

mod plan;
mod unit;
mod write;

use crate::cli::Results;
use crate::context::Context;
use crate::failure::Outcome;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Where nodes of a machine have their configuration unless told otherwise.
pub(super) const SYSTEM_DIRECTORY: &str = "/etc/vazao";

/// Arguments of `vazao node`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Make this machine the first node of a new cluster: it serves the metadata
    #[command(
        after_help = "Examples:\n  vazao node init --data /disk1/vazao --data /disk2/vazao\n  vazao node init --host 192.0.2.10 --metadata /ssd/vazao --area scratch=/srv/scratch --dry-run\n\nIt writes cluster.key, node.toml and client.toml into DIR, a unit for systemd, and prints what to run next, here and on\nthe next machine. A key that is in DIR already is kept."
    )]
    Init(Init),
    /// Make this machine a further node of a cluster
    #[command(
        after_help = "Examples:\n  ssh root@host1 cat /etc/vazao/cluster.key | vazao node join host1:7000 --key-file - --data /disk1/vazao\n  vazao node join host1:7000 --area scratch=/srv/scratch\n  vazao node join host1:7000 --zone rio --data /disk1/vazao\n\nWithout --key-file the key is the one in DIR. The metadata service has to run: address, key and name are tried before\nanything is written."
    )]
    Join(Join),
}

/// Arguments of `vazao node init`.
#[derive(Debug, Args)]
struct Init {
    #[command(flatten)]
    own: Own,
    /// Where the metadata is kept [default: metadata, beside the node's state]
    #[arg(long, value_name = "DIR")]
    metadata: Option<PathBuf>,
}

/// Arguments of `vazao node join`.
#[derive(Debug, Args)]
struct Join {
    /// The metadata service, as the first node's `vazao node init` prints it: HOST:PORT
    address: String,
    #[command(flatten)]
    own: Own,
    /// The cluster's key; - reads it from standard input
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Do not try the metadata service: it does not run yet
    #[arg(long)]
    offline: bool,
}

/// What every node is told.
#[derive(Debug, Args)]
struct Own {
    #[command(flatten)]
    results: Results,
    /// A directory for data, on a disk of its own; may be repeated
    #[arg(long, value_name = "DIR")]
    data: Vec<PathBuf>,
    /// A directory that is exported in place as NAME; may be repeated
    #[arg(long, value_name = "NAME=DIR")]
    area: Vec<String>,
    /// Its name in the cluster [default: the host name, up to its first dot]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// How other machines reach this one: a name or an address [default: the host name]
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// Its port; that for copies is 100 higher, that of /metrics 200 [default: 7000 for init, 7001 for join]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Serve /metrics at HOST:PORT, without the key [default: on this machine only, 200 above its port]
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
    /// Where key and configuration are written
    #[arg(long, value_name = "DIR", default_value = SYSTEM_DIRECTORY)]
    dir: PathBuf,
    /// Replace files that are there already; a key is only replaced by that of --key-file
    #[arg(long)]
    force: bool,
    /// Show what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,
}

/// Does it.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    let zone = context.common.zone.as_deref();
    let (own, plan) = match arguments.what {
        What::Init(Init { own, metadata }) => {
            let plan = plan::first(&own, zone, metadata.as_deref())?;
            (own, plan)
        }
        What::Join(Join { address, own, key_file, offline }) => {
            let plan = plan::further(&own, zone, &address, key_file.as_deref())?;
            if !offline {
                plan.try_joining()?;
            }
            (own, plan)
        }
    };
    write::write(&plan, &own)
}
