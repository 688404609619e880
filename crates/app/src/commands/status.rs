//! `vazao status`: nodes, targets, space, and what to do about each trouble.
//!
//! Two views are compared: what the nodes have reported to the metadata service, and whether each of them answers this
//! machine now. All are asked at once, with a short timeout, so that a hung node is shown and does not hang this
//! command. While the metadata service does not answer, the nodes are asked that are known from before.

mod copies;
mod known;
mod progress;
mod troubles;
mod view;
mod zones;

use crate::cli::Results;
use crate::cluster::directory::ClusterDirectory;
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::format::shell_quoted;
use crate::format::{self, Lean};
use crate::output::Output;
use clap::Args;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use troubles::troubles;
use vazao_client::{Client, Config, Error, MetadataReport, Probe, ScrubOrder, VolumeSpace};
use vazao_model::{AreaInfo, ClusterMap, Code, Node, NodeId, NodeState};

/// A node that has not answered by then is shown as one that does not.
const PROBE: Duration = Duration::from_secs(2);

/// The metadata service is given this long: without it there is little to show.
const METADATA_MS_MAX: u32 = 3_000;

/// What is behind the options in `--help`.
const AFTER_HELP: &str = "\
Examples:
  vazao status
  vazao status --check || mail -s 'vazao in trouble' root

Columns:
  REPORTED    when the metadata service heard of a node
  ANSWERS IN  how long it took to answer this machine just now
  USED        what is in use on the file systems of the targets, by whomever; the reserve
              is neither used nor available; a file with 2 copies takes twice its size
  ZONE        which machines are near one another, where node.toml says so
  DAMAGE      blocks and objects found damaged or missing since their server started

Copies:
  Of a target that is lost it is said how many bytes have fewer copies, and of one that is back
  what is left to compare, how fast that goes, and what limits it: estimates, at most some
  seconds old. Metrics and fields of --json: docs/operations.md, \"A server was away\".

When something hangs:
  It ends within 10 s, whatever hangs. While the metadata service does not answer, the nodes
  that an earlier `vazao status` on this machine has seen are asked.";

/// Arguments of `vazao status`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    results: Results,
    /// Exit with 1 when there is any trouble
    #[arg(long)]
    check: bool,
}

/// What was found out.
struct State {
    map: Arc<ClusterMap>,
    space: VolumeSpace,
    probes: Vec<Probe>,
    /// Damage of the metadata that is known; absent where the service is too old to tell.
    metadata: Option<MetadataReport>,
    /// The zone that this client is in; empty: in none.
    zone: String,
}

impl State {
    fn ask(client: &Client, zone: &str) -> vazao_client::Result<State> {
        let map = client.refresh_map()?;
        let space = client.space()?;
        let metadata = match client.administration().check_metadata(ScrubOrder::Report) {
            Err(error) if error.code == Code::Unsupported => None,
            report => Some(report?),
        };
        let (probes, zone) = (client.administration().probe(PROBE), zone.to_owned());
        Ok(State { map, space, probes, metadata, zone })
    }

    fn probe(&self, node: NodeId) -> Option<&Probe> {
        self.probes.iter().find(|probe| probe.node == node)
    }

    /// Why a node did not answer.
    fn failure(&self, node: NodeId) -> Option<&Error> {
        self.probe(node).and_then(|probe| probe.answer.as_ref().err())
    }

    fn answered_ns(&self, node: NodeId) -> Option<u64> {
        self.probe(node).and_then(|probe| probe.answer.as_ref().ok().copied())
    }
}

/// Shows it.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    let file = context.cluster_file()?;
    let start = start_command(&file);
    let config = Config::load(&file)?;
    let mut options = config.options();
    options.deadline_ms = options.deadline_ms.min(METADATA_MS_MAX);
    options.zone = context.common.zone.clone().unwrap_or(options.zone);
    let asked = Client::connect_with(&config, options).and_then(|client| {
        let state = State::ask(&client, &client.zone())?;
        // The session ends by itself as well; what was found out is shown in any case.
        let _ = client.close();
        Ok(state)
    });
    let mut output = Output::new(arguments.results.json);
    let state = match asked {
        Ok(state) => state,
        Err(error) => return known::show(output, &file, &config, error, &start),
    };
    known::keep(&file, &config, &state.map);
    let troubles = troubles(&state, &start);
    if output.json {
        output.value(&view::to_json(&state, &troubles))?;
    } else {
        output.text(&view::text(&state, &troubles))?;
    }
    output.finish()?;
    if arguments.check && !troubles.is_empty() { Err(Failure::Reported) } else { Ok(()) }
}

/// The state of the cluster that `client` is connected to, as it is printed; `start` is how one of its nodes is
/// started.
pub(crate) fn text(client: &Client, start: &str) -> Outcome<String> {
    let state = State::ask(client, "")?;
    Ok(view::text(&state, &troubles(&state, start)))
}

/// The same for programs.
pub(crate) fn json(client: &Client, start: &str) -> Outcome<serde_json::Value> {
    let state = State::ask(client, "")?;
    Ok(view::to_json(&state, &troubles(&state, start)))
}

/// How a node of this cluster is started.
fn start_command(client_file: &Path) -> String {
    let directory = client_file.parent().and_then(|parent| ClusterDirectory::open(parent).ok());
    match directory {
        Some(directory) => {
            format!("`vazao up --dir {} --detach`", shell_quoted(&directory.root().to_string_lossy()))
        }
        None => START_ON_MACHINE.to_owned(),
    }
}

/// How a node is started that is no node of `vazao up`: `vazao node` has made a unit of it, wherever there is systemd.
/// It may run and hang, so that it is not only started.
pub(crate) const START_ON_MACHINE: &str =
    "`systemctl restart vazao` on its machine (`vazao serve --config FILE` where it has no such unit)";

pub(crate) use copies::{lagging_json, sentences as lagging_sentences};

/// All areas with their nodes.
pub(super) fn areas(map: &ClusterMap) -> impl Iterator<Item = (&Node, &AreaInfo)> {
    map.nodes.iter().flat_map(|node| node.areas.iter().map(move |area| (node, area)))
}

/// A table of all areas; empty where there are none.
pub(super) fn area_table(map: &ClusterMap) -> String {
    let head = [("AREA", Lean::Left), ("ACCESS", Lean::Left), ("STATE", Lean::Left)];
    let row = |(node, area): (&Node, &AreaInfo)| {
        let access = if area.read_only { "read-only" } else { "read-write" };
        let state = match node.state {
            NodeState::Silent => "its node is silent",
            NodeState::Up if area.trouble.is_empty() => "serving",
            NodeState::Up => "failed",
        };
        vec![format!("{}:/{}", node.name, area.name), access.to_owned(), state.to_owned()]
    };
    let rows: Vec<Vec<String>> = areas(map).map(row).collect();
    if rows.is_empty() { String::new() } else { format::table(&head, &rows) }
}

/// An area for programs.
pub(super) fn area_json(area: &AreaInfo) -> serde_json::Value {
    json!({"name": area.name, "read_only": area.read_only, "trouble": area.trouble})
}
