//! `vazao up`: a cluster on this machine.

use crate::cli::{Results, zone_name};
use crate::cluster::directory::{ClusterDirectory, META_NAME, NodePlace};
use crate::cluster::processes::{self, StartOptions, Started};
use crate::commands::layout::check_copies;
use crate::commands::serve::WishArguments;
use crate::context::{CLUSTER_VARIABLE, Context};
use crate::failure::{At, Failure, Outcome};
use crate::format::shell_quoted;
use crate::node::config::{NodeConfig, RoleName};
use crate::node::files::{self, Lock, Notice};
use crate::node::memory::Wishes;
use crate::output::Output;
use crate::signals::{self, Stop};
use clap::Args;
use serde_json::json;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;
use vazao_client::{Client, Config};
use vazao_meter::Clock;
use vazao_model::ids::ROOT;
use vazao_model::{Code, LayoutHint};

const DATA_SERVERS_DEFAULT: usize = 4;

/// More on one machine only measure its scheduler.
const DATA_SERVERS_MAX: usize = 64;

/// A data server that serves has reported to the metadata service by then.
const JOINED: Duration = Duration::from_secs(15);

/// Arguments of `vazao up`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vazao up --dir /tmp/v --detach\n  vazao up --dir /srv/v --data-servers 2      stays; Ctrl-C stops it\n  vazao up --dir /tmp/v --zones rio,bra       half of the data servers in each zone\n  vazao up --dir /tmp/v --copies 2            new files lie on two data servers each\n\nThe directory keeps everything: `vazao down --dir DIR`, and the next `up` has it back."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    results: Results,
    /// Where the cluster lives; made when it is not there
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Data servers [default: 4, or as many as there are]
    #[arg(long, value_name = "N")]
    data_servers: Option<usize>,
    /// Return when the cluster serves; it goes on until `vazao down`
    #[arg(long)]
    detach: bool,
    /// Ports BASE for the metadata service and the ones after it for data servers [default: free ones]
    #[arg(long, value_name = "BASE")]
    port: Option<u16>,
    /// Puts data servers into these zones, in turn: what zones are for can be tried on one machine [default: as before]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = zone_name)]
    zones: Vec<String>,
    /// Copies of each new file, on different data servers: 1, 2 or 3. All are on this host, so they are for trying out
    /// [default: as before]
    #[arg(long, value_name = "N", value_parser = copies_number)]
    copies: Option<u32>,
    /// Without a cluster key: any host that reaches the ports may do anything
    #[arg(long)]
    insecure: bool,
    #[command(flatten)]
    wishes: WishArguments,
}

fn copies_number(text: &str) -> Result<u32, String> {
    let copies = text.parse().map_err(|_| format!("'{text}' is no number"))?;
    check_copies(copies).map(|()| copies)
}

/// Starts what is not running.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    if arguments.data_servers.is_some_and(|n| n == 0 || n > DATA_SERVERS_MAX) {
        return Err(Failure::usage(format!("--data-servers: between 1 and {DATA_SERVERS_MAX}")));
    }
    let stop = Stop::on_signals(signals::OF_COMMANDS)?;
    if let (Some(base), false) = (arguments.port, arguments.dir.join("FORMAT").exists()) {
        // Before there is anything of a cluster that could not be started.
        let count = arguments.data_servers.unwrap_or(DATA_SERVERS_DEFAULT);
        (0..=count).try_for_each(|number| port_of(base, number).and_then(check_port))?;
    }
    if !arguments.dir.join("FORMAT").exists() {
        check_servers(&arguments, arguments.data_servers.unwrap_or(DATA_SERVERS_DEFAULT))?;
    }
    let directory = ClusterDirectory::open_or_create(&arguments.dir, arguments.insecure)?;
    check_security(&directory, arguments.insecure)?;
    let Some(lock) = Lock::take(&directory.lock_file())? else {
        let shown = directory.root().display();
        return Err(Failure::new(format!(
            "{shown}: another `vazao up` is just starting it; wait for that one"
        )));
    };
    check_servers(&arguments, data_servers(&directory, arguments.data_servers)?)?;
    make_nodes(&directory, arguments.data_servers)?;
    let (running, missing) = split(directory.nodes()?)?;
    check_zones(&directory, &running, &arguments.zones)?;
    let mut output = Output::new(arguments.results.json);
    if missing.is_empty() {
        set_copies(&directory, arguments.copies, &vazao_meter::SystemClock)?;
        return say(&mut output, &directory, "already running");
    }
    let options = StartOptions {
        detach: arguments.detach,
        insecure: directory.is_insecure(),
        log: context.common.log.clone(),
        wishes: arguments.wishes.wishes()?,
    };
    check_new_targets(&missing, &options.wishes)?;
    if let Some(base) = arguments.port {
        missing.iter().try_for_each(|place| port_of(base, number_of(place)).and_then(check_port))?;
    }
    let clock = vazao_meter::SystemClock;
    let wanted = Wanted { port: arguments.port, zones: arguments.zones };
    let started = start_nodes(&directory, &missing, options, wanted, &clock, &stop)?;
    drop(lock);
    let mut started = started;
    if let Err(failure) = set_copies(&directory, arguments.copies, &clock) {
        processes::stop_started(&mut started, &clock)?;
        return Err(failure);
    }
    let what = if running.is_empty() { "ready" } else { "ready; the missing nodes run again" };
    say(&mut output, &directory, what)?;
    if arguments.detach {
        return Ok(());
    }
    watch(started, &directory, &clock, &stop)
}

/// Data servers that there are, or are about to be.
fn data_servers(directory: &ClusterDirectory, asked: Option<usize>) -> Outcome<usize> {
    let there = directory.nodes()?.iter().filter(|node| node.name != META_NAME).count();
    Ok(asked.unwrap_or(if there == 0 { DATA_SERVERS_DEFAULT } else { there }))
}

/// Refuses more copies than data servers, before any of these is made, or a directory for them.
fn check_servers(arguments: &Arguments, servers: usize) -> Outcome {
    match arguments.copies.filter(|copies| *copies as usize > servers) {
        None => Ok(()),
        Some(copies) => Err(Failure::usage(format!(
            "--copies {copies}: {copies} copies need {copies} data servers, and this cluster has {servers}; give \
             --data-servers {copies}"
        ))),
    }
}

/// New files of the volume get so many copies, where that was asked for.
fn set_copies(directory: &ClusterDirectory, copies: Option<u32>, clock: &dyn Clock) -> Outcome {
    let Some(copies) = copies else { return Ok(()) };
    let config = Config::load(&directory.client_file())?;
    let client = Client::connect_with(&config, config.options())?;
    let (present, _) = client.layout_hint(ROOT)?;
    let hint = LayoutHint { copies, ..present };
    let deadline_ns = clock.now_ns().saturating_add(JOINED.as_nanos() as u64);
    loop {
        match client.set_layout_hint_with_nodes_as_hosts(ROOT, hint.clone()) {
            Ok(()) => break,
            // Data servers that have just started may not have reported yet.
            Err(error) if error.code == Code::Invalid && clock.now_ns() < deadline_ns => {
                clock.sleep(Duration::from_millis(200));
            }
            Err(error) => return Err(error.about(format!("--copies {copies}")).into()),
        }
    }
    let (stored, _) = client.layout_hint(ROOT)?;
    let servers = data_servers(directory, None)?;
    client.close()?;
    if stored.copies != copies {
        let text =
            "the metadata service that runs is older than this command and knows no copies; start it anew";
        return Err(Failure::new(format!("--copies {copies}: {text}")));
    }
    if copies > 1 {
        eprintln!(
            "vazao: new files have {copies} copies; the {servers} data servers of this host count as {servers} hosts, which \
             is for trying out: with this host all copies are gone"
        );
    }
    Ok(())
}

/// Which port after the first a node gets.
fn number_of(place: &NodePlace) -> usize {
    place.name.strip_prefix("data").and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn port_of(base: u16, number: usize) -> Outcome<u16> {
    let port = u16::try_from(number).ok().and_then(|number| base.checked_add(number));
    port.ok_or_else(|| Failure::usage(format!("--port {base}: too high for all nodes")))
}

/// The zone of a node when data servers are put into `zones` in turn; `None`: as it is.
fn zone_in_turn<'a>(zones: &'a [String], place: &NodePlace) -> Option<&'a str> {
    let turn = number_of(place).checked_sub(1)?.checked_rem(zones.len())?;
    Some(&zones[turn])
}

/// A node learns its zone when it starts.
fn check_zones(directory: &ClusterDirectory, running: &[NodePlace], zones: &[String]) -> Outcome {
    for place in running {
        let config = NodeConfig::read(&place.config_file())?;
        if zone_in_turn(zones, place).is_some_and(|zone| zone != config.zone) {
            let root = shell_quoted(&directory.root().to_string_lossy());
            return Err(Failure::new(format!(
                "--zones: {} runs and is to get another zone; stop the cluster first: `vazao down --dir {root}`",
                place.name
            )));
        }
    }
    Ok(())
}

/// A port that another program has is found by its node too late: the cluster is made then, and the port written down.
fn check_port(port: u16) -> Outcome {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AddrInUse => Err(Failure::new(format!(
            "--port: 127.0.0.1:{port} is in use by another program; give another BASE, or leave --port out"
        ))),
        Err(error) => Err(error).at(format!("--port: 127.0.0.1:{port}")),
    }
}

fn check_security(directory: &ClusterDirectory, insecure: bool) -> Outcome {
    let shown = directory.root().display();
    match (directory.is_insecure(), insecure) {
        (true, false) => Err(Failure::new(format!(
            "{shown}: has no cluster key; give --insecure if it was made that way, else put its cluster.key back"
        ))),
        (false, true) => {
            Err(Failure::usage(format!("{shown}: has a cluster key; start it without --insecure")))
        }
        _ => Ok(()),
    }
}

/// A directory that is named belongs to a node that is about to be started; only that node gets the option.
fn check_new_targets(missing: &[NodePlace], wishes: &Wishes) -> Outcome {
    let mut known = Vec::new();
    for place in missing {
        known.extend(place.target_directories()?);
    }
    match wishes.new_targets.iter().find(|wish| !known.contains(wish)) {
        None => Ok(()),
        Some(wish) => Err(Failure::usage(format!(
            "--new-target {}: no target directory of a node that is to be started",
            wish.display()
        ))),
    }
}

fn make_nodes(directory: &ClusterDirectory, data_servers: Option<usize>) -> Outcome {
    let nodes = directory.nodes()?;
    let there = nodes.iter().filter(|node| node.name != META_NAME).count();
    let wanted = self::data_servers(directory, data_servers)?;
    if wanted < there {
        return Err(Failure::usage(format!(
            "{}: has {there} data servers with data on them; they cannot be made fewer: leave --data-servers out",
            directory.root().display()
        )));
    }
    if !nodes.iter().any(|node| node.name == META_NAME) {
        directory.add_meta()?;
    }
    (there + 1..=wanted).try_for_each(|number| directory.add_data(number))
}

/// The nodes that run and those that do not.
fn split(nodes: Vec<NodePlace>) -> Outcome<(Vec<NodePlace>, Vec<NodePlace>)> {
    let (mut running, mut missing) = (Vec::new(), Vec::new());
    for node in nodes {
        if node.process()?.is_some() { running.push(node) } else { missing.push(node) }
    }
    Ok((running, missing))
}

fn say(output: &mut Output, directory: &ClusterDirectory, what: &str) -> Outcome {
    let file = directory.client_file();
    if output.json {
        output.value(&json!({"state": what, "cluster": file.to_string_lossy()}))?;
    } else {
        output.line(what)?;
        output.line(&format!("export {CLUSTER_VARIABLE}={}", shell_quoted(&file.to_string_lossy())))?;
    }
    output.flush()
}

/// Starts `nodes` and returns when all of them serve; when one does not, those that do are stopped again.
fn start_nodes(
    directory: &ClusterDirectory,
    nodes: &[NodePlace],
    options: StartOptions,
    wanted: Wanted,
    clock: &dyn Clock,
    stop: &Stop,
) -> Outcome<Vec<Started>> {
    let start = Start { directory, options, wanted, clock, stop };
    let mut started = Vec::new();
    if let Err(failure) = start.all(nodes, &mut started) {
        processes::stop_started(&mut started, clock)?;
        return Err(failure);
    }
    Ok(started)
}

/// A new cluster in a new directory, for as long as this process lives.
pub(crate) fn start_new(
    directory: &ClusterDirectory,
    clock: &dyn Clock,
    stop: &Stop,
) -> Outcome<Vec<Started>> {
    make_nodes(directory, None)?;
    let options = StartOptions {
        detach: false,
        insecure: directory.is_insecure(),
        log: None,
        wishes: Wishes::default(),
    };
    start_nodes(directory, &directory.nodes()?, options, Wanted::default(), clock, stop)
}

/// What is written into node.toml of nodes that are started.
#[derive(Default)]
struct Wanted {
    /// Of the first node.
    port: Option<u16>,
    /// Of data servers, in turn.
    zones: Vec<String>,
}

struct Start<'a> {
    directory: &'a ClusterDirectory,
    options: StartOptions,
    wanted: Wanted,
    clock: &'a dyn Clock,
    stop: &'a Stop,
}

impl Start<'_> {
    /// Starts the metadata node first, because the data servers have to be told its address.
    fn all(&self, missing: &[NodePlace], started: &mut Vec<Started>) -> Outcome {
        let (meta, data): (Vec<&NodePlace>, Vec<&NodePlace>) =
            missing.iter().partition(|node| node.name == META_NAME);
        for place in meta {
            self.configure(place, None)?;
            started.push(processes::start(place, &self.options)?);
        }
        self.ready(started)?;
        let notice = self.directory.node(META_NAME).notice();
        let meta_address = notice.map(|notice| notice.address).ok_or_else(|| {
            let root = shell_quoted(&self.directory.root().to_string_lossy());
            Failure::new(format!(
                "{META_NAME} runs but tells no address; `vazao down --dir {root}`, and then start it again"
            ))
        })?;
        self.write_client_file(&meta_address)?;
        let first = started.len();
        for place in data {
            self.configure(place, Some(&meta_address))?;
            started.push(processes::start(place, &self.options)?);
        }
        self.ready(&mut started[first..])
    }

    fn ready(&self, started: &mut [Started]) -> Outcome {
        let notices = processes::wait_ready(started, self.clock, self.stop)?;
        started.iter().zip(&notices).try_for_each(|(started, notice)| remember(&started.place, notice))
    }

    /// Tells a node where the metadata service is, and its port and zone where the user chose them.
    fn configure(&self, place: &NodePlace, meta_address: Option<&str>) -> Outcome {
        let mut config = NodeConfig::read(&place.config_file())?;
        if let (Some(address), false) = (meta_address, config.has(RoleName::Meta)) {
            config.metadata = vec![address.to_owned()];
        }
        if let Some(zone) = zone_in_turn(&self.wanted.zones, place) {
            zone.clone_into(&mut config.zone);
        }
        if let Some(base) = self.wanted.port {
            config.listen = format!("127.0.0.1:{}", port_of(base, number_of(place))?);
            config.other_port_if_taken = false;
        }
        config.save(&place.config_file())
    }

    fn write_client_file(&self, meta_address: &str) -> Outcome {
        let file = self.directory.client_file();
        match client_text(std::fs::read_to_string(&file).ok().as_deref(), meta_address, self.options.insecure)
        {
            Some(text) => files::replace(&file, &text),
            None => Ok(()),
        }
    }
}

/// The client's configuration with the right address; `None` when `present` has it. What users added stays.
fn client_text(present: Option<&str>, meta_address: &str, insecure: bool) -> Option<String> {
    let heading = "# Written by `vazao up`. Its address reaches this machine only; for several machines see `vazao node init`.\n";
    let Some(mut table) = present.and_then(|text| text.parse::<toml::Table>().ok()) else {
        let key = if insecure { "insecure = true" } else { "key_file = \"cluster.key\"" };
        return Some(format!("{heading}meta = [\"{meta_address}\"]\n{key}\n"));
    };
    let meta = toml::Value::Array(vec![meta_address.into()]);
    if table.get("meta") == Some(&meta) {
        return None;
    }
    table.insert("meta".to_owned(), meta);
    Some(format!("{heading}{table}"))
}

/// Keeps the ports that were chosen, so that the next start has the same.
fn remember(place: &NodePlace, notice: &Notice) -> Outcome {
    let mut config = NodeConfig::read(&place.config_file())?;
    let before = config.clone();
    config.listen.clone_from(&notice.address);
    config.metrics.clone_from(&notice.metrics);
    if config == before { Ok(()) } else { config.save(&place.config_file()) }
}

/// Stays with the nodes until a signal comes or the last one has ended. A node that dies is reported; the others go on.
fn watch(mut nodes: Vec<Started>, directory: &ClusterDirectory, clock: &dyn Clock, stop: &Stop) -> Outcome {
    let mut outcome = Ok(());
    while !nodes.is_empty() {
        if stop.wait(Duration::from_millis(200)) {
            stop_all(&nodes, clock)?;
            eprintln!("vazao: stopped");
            return Ok(());
        }
        let mut left = Vec::new();
        for mut node in nodes {
            let name = node.place.name.clone();
            match node.child.try_wait() {
                Ok(None) => left.push(node),
                Ok(Some(status)) if status.success() => eprintln!("vazao: {name} was stopped"),
                Ok(Some(status)) => {
                    outcome = Err(Failure::Reported);
                    let words = processes::last_words(&node.place);
                    let again = shell_quoted(&directory.root().to_string_lossy());
                    eprintln!(
                        "vazao: {name} ended ({status}); start it again with `vazao up --dir {again}`{words}"
                    );
                }
                Err(error) => return Err(Failure::new(format!("{name}: {error}"))),
            }
        }
        nodes = left;
    }
    outcome
}

pub(crate) fn stop_all(nodes: &[Started], clock: &dyn Clock) -> Outcome {
    let places = nodes.iter().map(|node| node.place.clone());
    let (meta, data): (Vec<NodePlace>, Vec<NodePlace>) = places.partition(|node| node.name == META_NAME);
    let mut killed = processes::stop(&data, clock)?;
    killed.extend(processes::stop(&meta, clock)?);
    if killed.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!("{} did not stop in time and had to be killed", killed.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_added_to_the_clients_configuration_stays() {
        let new = client_text(None, "h:1", false).expect("written");
        assert!(new.ends_with("meta = [\"h:1\"]\nkey_file = \"cluster.key\"\n"));
        let edited = format!("{new}deadline_ms = 500\n");
        assert_eq!(client_text(Some(&edited), "h:1", false), None);
        let moved = client_text(Some(&edited), "h:2", false).expect("written");
        assert!(
            moved.contains("\"h:2\"") && moved.contains("deadline_ms = 500") && moved.contains("cluster.key")
        );
    }

    /// It was found when the nodes started: the message blamed node.toml, and a directory with a part of a cluster
    /// stayed, which went on wanting that port.
    #[test]
    fn a_port_in_use_is_found_before_anything_is_made() {
        let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = other.local_addr().expect("bound").port();
        let failure = check_port(port).expect_err("in use");
        let message = failure.message().expect("said");
        assert!(message.contains(&format!("127.0.0.1:{port} is in use")), "{message}");
        assert!(!message.contains(".toml"), "{message}");
        assert_eq!(port_of(7000, 64), Ok(7064));
        assert!(port_of(65_535, 1).is_err());
    }
}
