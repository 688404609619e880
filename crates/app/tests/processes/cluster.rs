//! One-machine clusters: started, stopped, started again, beside each other, damaged, refused.

use crate::support::{
    Cluster, VAZAO, failed, is_alive, noise_file, seconds, signal, spawn, succeeded, text, wait_until,
};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use vazao_testing::programs::{RunBounded, WaitBounded};

#[test]
fn everything_is_there_again_after_down_and_up() {
    let cluster = Cluster::start(2);
    let file = noise_file(&cluster.local("file"), 3_000_000);
    cluster.ok(&["mkdir", "-p", "vz:/a/b"]);
    cluster.ok(&["cp", &file, "vz:/a/b/file"]);
    cluster.ok(&["ln", "-s", "b/file", "vz:/a/link"]);
    let (before, addresses) = (cluster.ok(&["ls", "-lR", "vz:/"]), addresses(&cluster));
    assert!(cluster.down().contains("stopped meta1, data1, data2"));
    assert!(!cluster.node("data1").join("running.json").exists());
    let said = cluster.up(&[]);
    assert!(said.starts_with("ready\nexport VAZAO_CLUSTER=") && said.ends_with("/client.toml\n"), "{said}");
    assert_eq!(cluster.ok(&["ls", "-lR", "vz:/"]), before);
    assert_eq!(self::addresses(&cluster), addresses, "the ports are kept");
    let output = cluster.run(&["cat", "vz:/a/link"]);
    assert_eq!(output.stdout, fs::read(file).expect("readable"));
}

fn addresses(cluster: &Cluster) -> Vec<String> {
    ["meta1", "data1", "data2"].map(|name| cluster.notice(name)["address"].to_string()).into()
}

#[test]
fn a_second_up_says_so_and_changes_nothing() {
    let cluster = Cluster::start(1);
    let (meta, data) = (cluster.pid("meta1"), cluster.pid("data1"));
    let config = fs::read_to_string(cluster.client_file()).expect("readable");
    assert!(cluster.up(&[]).starts_with("already running\nexport VAZAO_CLUSTER="));
    assert_eq!((cluster.pid("meta1"), cluster.pid("data1")), (meta, data));
    assert_eq!(fs::read_to_string(cluster.client_file()).expect("readable"), config);
}

#[test]
fn up_starts_what_is_missing_and_leaves_the_rest_alone() {
    let cluster = Cluster::start(2);
    let (meta, dead) = (cluster.pid("meta1"), cluster.pid("data2"));
    cluster.kill("data2");
    assert!(cluster.up(&[]).contains("missing nodes run again"));
    assert_eq!(cluster.pid("meta1"), meta);
    assert_ne!(cluster.pid("data2"), dead);
}

#[test]
fn a_port_that_was_taken_meanwhile_is_replaced() {
    let cluster = Cluster::start(1);
    let address = cluster.notice("data1")["address"].as_str().expect("text").to_owned();
    cluster.down();
    let taken = std::net::TcpListener::bind(&address).expect("the port is free now");
    cluster.up(&[]);
    assert_ne!(cluster.notice("data1")["address"], address.as_str());
    drop(taken);
    let file = noise_file(&cluster.local("file"), 100_000);
    cluster.ok(&["cp", &file, "vz:/"]);
    assert!(cluster.ok(&["layout", "vz:/file"]).contains("data1"));
}

#[test]
fn two_clusters_at_once_know_nothing_of_each_other() {
    let (one, other) = (Cluster::start(1), Cluster::start(1));
    let file = noise_file(&one.local("file"), 100_000);
    one.ok(&["cp", &file, "vz:/only-here"]);
    assert_eq!(other.ok(&["ls", "vz:/"]), "");
    assert_eq!(one.ok(&["ls", "vz:/"]), "only-here\n");
    let key = fs::read(other.dir().join("cluster.key")).expect("readable");
    fs::write(one.dir().join("cluster.key"), key).expect("written");
    let said = one.fails(&["ls", "vz:/"]);
    assert!(said.contains("cluster key rejected") && said.contains("use the key file"), "{said}");
}

#[test]
fn without_a_key_nothing_starts_and_nobody_connects() {
    let cluster = Cluster::start(1);
    fs::remove_file(cluster.dir().join("cluster.key")).expect("removed");
    let said = cluster.fails(&["ls", "vz:/"]);
    assert!(said.contains("cluster.key"), "{said}");
    cluster.down();
    let config = cluster.node("data1").join("node.toml");
    let text_without = fs::read_to_string(&config).expect("readable");
    let lines = text_without.lines().filter(|line| !line.starts_with("key_file"));
    fs::write(&config, lines.collect::<Vec<_>>().join("\n")).expect("written");
    let output = Command::new(VAZAO).args(["serve", "--config"]).arg(&config).run_bounded();
    let said = failed(output, 1);
    assert!(said.contains("no cluster key") && said.contains("--insecure"), "{said}");
}

#[test]
fn an_insecure_cluster_works_only_when_asked_for() {
    let cluster = Cluster::unstarted();
    cluster.up(&["--insecure", "--data-servers", "1"]);
    cluster.ok(&["mkdir", "vz:/a"]);
    cluster.down();
    let output = Command::new(VAZAO).args(["up", "--detach", "--dir"]).arg(cluster.dir()).run_bounded();
    assert!(failed(output, 1).contains("--insecure"));
    cluster.up(&["--insecure"]);
    assert_eq!(cluster.ok(&["ls", "vz:/"]), "a\n");
}

#[test]
fn an_unknown_host_is_an_error_within_the_deadline() {
    let cluster = Cluster::unstarted();
    let file = cluster.local("client.toml");
    let text = "meta = [\"no-such-host.invalid:7070\"]\ninsecure = true\ndeadline_ms = 1500\n";
    fs::write(&file, text).expect("written");
    let command = || Command::new(VAZAO).args(["ls", "vz:/", "--cluster"]).arg(&file).run_bounded();
    let (output, seconds) = seconds(command);
    let said = failed(output, 1);
    assert!(said.contains("no-such-host.invalid:7070"), "{said}");
    assert!(seconds < 8.0, "{seconds}");
}

#[test]
fn a_directory_of_another_format_is_refused_and_left_as_it_is() {
    let cluster = Cluster::start(1);
    cluster.down();
    let format = cluster.dir().join("FORMAT");
    let old = fs::read_to_string(&format).expect("readable");
    fs::write(&format, old.replace("format 1", "format 7")).expect("written");
    let output = Command::new(VAZAO).args(["up", "--detach", "--dir"]).arg(cluster.dir()).run_bounded();
    let said = failed(output, 1);
    assert!(said.contains("format 7") && said.contains("newer"), "{said}");
    fs::write(&format, old).expect("written");
    cluster.up(&[]);
}

#[test]
fn in_the_foreground_it_lives_as_long_as_its_command() {
    let cluster = Cluster::unstarted();
    let start = || foreground(&cluster, 1);
    let mut child = start();
    let nodes = [cluster.pid("meta1"), cluster.pid("data1")];
    signal(child.id(), Signal::INT);
    assert!(child.wait_bounded().success());
    assert!(!nodes.iter().any(|&pid| is_alive(pid)));

    let mut child = start();
    let nodes = [cluster.pid("meta1"), cluster.pid("data1")];
    child.kill().expect("killed");
    child.wait_bounded();
    wait_until("the nodes end with the command that started them", || {
        !nodes.iter().any(|&pid| is_alive(pid))
    });
}

/// `vazao up` without `--detach`, once it has said that it is ready.
fn foreground(cluster: &Cluster, data_servers: usize) -> Child {
    let mut command = Command::new(VAZAO);
    command.args(["up", "--data-servers", &data_servers.to_string(), "--dir"]).arg(cluster.dir());
    let mut child = spawn(command);
    let mut said = String::new();
    let output = child.stdout.as_mut().expect("piped");
    BufReader::new(output).read_line(&mut said).expect("it says something");
    assert_eq!(said, "ready\n");
    child
}

#[test]
fn a_node_that_dies_in_the_foreground_is_reported_with_its_last_words() {
    let cluster = Cluster::unstarted();
    let child = foreground(&cluster, 2);
    cluster.kill("data2");
    // Once it has been reported the others still run.
    wait_until("the others go on", || cluster.run(&["ls", "vz:/"]).status.success());
    let others = [cluster.pid("meta1"), cluster.pid("data1")];
    assert!(others.iter().all(|&pid| is_alive(pid)));
    vazao_meter::Clock::sleep(&vazao_meter::SystemClock, std::time::Duration::from_millis(500));
    signal(child.id(), Signal::TERM);
    let said = String::from_utf8_lossy(&child.output_bounded().stderr).into_owned();
    assert!(
        said.contains("data2 ended") && said.contains("vazao up --dir") && said.contains("registered"),
        "{said}"
    );
}

#[test]
fn one_process_can_have_both_roles() {
    let cluster = Cluster::unstarted();
    let config = cluster.local("node.toml");
    let toml = "name = \"all\"\nroles = [\"meta\", \"data\"]\nlisten = \"127.0.0.1:0\"\nmetrics = \"127.0.0.1:0\"\n[meta]\ndirectory = \"m\"\n[data]\ntargets = [\"t1\", \"t2\"]\n";
    fs::write(&config, toml).expect("written");
    let mut command = Command::new(VAZAO);
    command.args(["serve", "--insecure", "--until-stdin-closes", "--config"]).arg(&config);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let notice = cluster.local("running.json");
    wait_until("it serves", || notice.exists());
    let notice: serde_json::Value =
        serde_json::from_slice(&fs::read(&notice).expect("readable")).expect("JSON");
    let client = cluster.local("client.toml");
    fs::write(&client, format!("meta = [{}]\ninsecure = true\n", notice["address"])).expect("written");
    let client = text(&client);
    let file = noise_file(&cluster.local("file"), 1_000_000);
    let run = |arguments: &[&str]| {
        succeeded(Command::new(VAZAO).args(arguments).args(["--cluster", &client]).run_bounded())
    };
    run(&["cp", &file, "vz:/file"]);
    let status: serde_json::Value = serde_json::from_str(&run(&["status", "--json"])).expect("JSON");
    assert_eq!(status["nodes"].as_array().map(Vec::len), Some(1), "{status}");
    assert_eq!(status["nodes"][0]["roles"], serde_json::json!(["meta", "data"]));
    assert_eq!(status["targets"].as_array().map(Vec::len), Some(2));
    signal(child.id(), Signal::TERM);
    assert!(child.wait_bounded().success());
}

#[test]
fn metrics_and_health_are_served_over_http() {
    let cluster = Cluster::start(1);
    let file = noise_file(&cluster.local("file"), 1_000_000);
    cluster.ok(&["cp", &file, "vz:/file"]);
    let page = http(&cluster, "data1", "/metrics");
    assert!(page.contains("200 OK") && page.contains("process_resident_memory_bytes"), "{page}");
    assert!(page.contains("vazao_received_bytes_total"), "{page}");
    assert!(
        http(&cluster, "meta1", "/metrics").contains("vazao_meta_request_seconds_count{method=\"Create\"}")
    );
    assert!(http(&cluster, "data1", "/healthz").ends_with("ok\n"));
    assert!(http(&cluster, "data1", "/else").contains("404"));
}

fn http(cluster: &Cluster, node: &str, path: &str) -> String {
    use std::io::{Read, Write};
    let address = cluster.notice(node)["metrics"].as_str().expect("text").to_owned();
    let mut stream = std::net::TcpStream::connect(address).expect("connects");
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    answer
}

#[test]
fn status_names_a_silent_node_and_how_to_start_it() {
    let cluster = Cluster::start(2);
    let status =
        || -> serde_json::Value { serde_json::from_str(&cluster.ok(&["status", "--json"])).expect("JSON") };
    let healthy = status();
    assert_eq!(healthy["troubles"], serde_json::json!([]));
    assert_eq!(healthy["nodes"].as_array().map(Vec::len), Some(3));
    assert!(healthy["volume"]["capacity_bytes"].as_u64().is_some_and(|bytes| bytes > 0));
    cluster.ok(&["status", "--check"]);
    cluster.kill("data2");
    wait_until("data2 is found silent", || status()["troubles"][0]["thing"] == "node data2");
    // The log of the metadata service used to say nothing of it.
    let log = || fs::read_to_string(cluster.dir().join("log/meta1.log")).expect("a log");
    let said =
        |words: &str| log().lines().filter(|line| line.contains(words) && line.contains("data2")).count();
    wait_until("it is in the log", || said("has fallen silent") == 1);
    let text = cluster.ok(&["status"]);
    let remedy = format!("vazao up --dir {}", cluster.dir().display());
    assert!(text.contains("TROUBLE: node data2") && text.contains(&remedy), "{text}");
    failed(cluster.run(&["status", "--check"]), 1);
    cluster.up(&[]);
    wait_until("all is well again", || status()["troubles"] == serde_json::json!([]));
    wait_until("that is in the log, too", || said("reports again") == 1);
    assert_eq!(said("has fallen silent"), 1, "{}", log());
}

/// `vazao status` had one line for a dead metadata service, and no word of the other nodes.
#[test]
fn status_without_the_metadata_service_asks_the_nodes_that_are_known() {
    let cluster = Cluster::start_on_own_ports(2);
    // As on another machine: without the directory of the cluster beside it.
    let client = cluster.local("client.toml");
    let key = cluster.dir().join("cluster.key");
    let address = &cluster.notice("meta1")["address"];
    fs::write(&client, format!("meta = [{address}]\nkey_file = {key:?}\n")).expect("written");
    let client = text(&client);
    let from_elsewhere = |arguments: &[&str]| cluster.run(&[arguments, &["--cluster", &client]].concat());
    let of_dead = |arguments: &[&str]| {
        let output = from_elsewhere(arguments);
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = failed(output, 1);
        // The client.toml of `vazao up` said that copying it would let another machine in.
        assert!(said.contains("start it with") && said.contains("names this machine itself"), "{said}");
        shown
    };
    cluster.kill("meta1");
    assert!(of_dead(&["status"]).contains("no `vazao status` on this machine has seen them"));
    cluster.up(&[]);
    succeeded(from_elsewhere(&["status"]));
    cluster.kill("meta1");
    cluster.kill("data2");
    let shown = of_dead(&["status"]);
    let line = |name: &str| shown.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(shown.contains("`vazao status` of") && shown.contains(" ago"), "{shown}");
    assert!(line("data1").trim_end().ends_with('s') && line("data1").contains(" t"), "{shown}");
    assert!(line("data2").contains("refused") && line("meta1").contains("refused"), "{shown}");
    let json: serde_json::Value = serde_json::from_str(&of_dead(&["status", "--json"])).expect("JSON");
    let node = |name: &str| {
        let nodes = json["nodes"].as_array().expect("a list");
        nodes.iter().find(|node| node["name"] == name).expect("it is known").clone()
    };
    assert!(node("data1")["answered_us"].is_u64() && node("data2")["no_answer"].is_string(), "{json}");
    // With its directory at hand nobody has to have looked before.
    let output = cluster.run(&["status"]);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.contains("its directory") && shown.contains("does not run"), "{shown}");
}

#[test]
fn down_refuses_what_is_no_cluster_and_a_stopped_one_is_no_error() {
    let cluster = Cluster::start(1);
    let output = Command::new(VAZAO).args(["down", "--dir"]).arg(cluster.local("")).run_bounded();
    assert!(failed(output, 1).contains("holds no Vazão cluster"));
    cluster.down();
    assert_eq!(cluster.down(), "nothing was running\n");
}

#[test]
fn a_data_server_that_can_never_register_ends_up_with_the_reason() {
    let cluster = Cluster::start(1);
    let other = Cluster::start(1);
    cluster.down();
    other.down();
    // Its data is of another cluster.
    let [ours, theirs] = [&cluster, &other].map(|of| of.node("data1").join("target1"));
    fs::remove_dir_all(&ours).expect("removed");
    fs::rename(&theirs, &ours).expect("moved");
    let (output, seconds) = seconds(|| {
        let mut up = Command::new(VAZAO);
        up.arg("up").arg("--dir").arg(cluster.dir()).arg("--detach").run_bounded()
    });
    let said = failed(output, 1);
    assert!(said.contains("data1 did not start") && seconds < 60.0, "{seconds} s: {said}");
    assert!(said.contains("belongs to cluster") && said.contains("is the right disk mounted"), "{said}");
    assert!(!cluster.node("data1").join("trouble").exists());
}
