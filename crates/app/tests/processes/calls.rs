//! Remote calls to real nodes: by `vazao call`, and by raw sockets as other implementations send them.

use crate::support::{Cluster, VAZAO, failed, noise, succeeded, text, wait_until};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use vazao_testing::programs::{RunBounded, WaitBounded};

/// A cluster whose metadata node answers remote calls, with these lines in its section.
fn answering(lines: &str) -> (Cluster, String) {
    let cluster = Cluster::start(1);
    cluster.down();
    let file = cluster.node("meta1").join("node.toml");
    let config = fs::read_to_string(&file).expect("node.toml is there");
    fs::write(&file, format!("{config}\n[luarpc]\nlisten = \"127.0.0.1:0\"\n{lines}")).expect("written");
    cluster.up(&["--data-servers", "1"]);
    let address = cluster.notice("meta1")["luarpc"].as_str().expect("it answers calls").to_owned();
    (cluster, address)
}

fn call(address: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(VAZAO);
    command.args(["call", address, "vazao.lua"]).args(arguments).stdin(Stdio::null());
    command.run_bounded()
}

fn ok(address: &str, arguments: &[&str]) -> String {
    succeeded(call(address, arguments))
}

fn fails(address: &str, arguments: &[&str]) -> String {
    failed(call(address, arguments), 1)
}

/// The fields of a record.
fn field(record: &str, key: &str) -> Option<String> {
    let mut fields = record.trim_end_matches('\n').split('\t').filter_map(|field| field.split_once('='));
    fields.find(|(name, _)| *name == key).map(|(_, value)| value.to_owned())
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    stream.set_write_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    stream
}

fn line(reader: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).expect("a line");
    line.trim_end().to_owned()
}

#[test]
fn files_are_listed_looked_at_and_read_and_nothing_changes_unless_it_is_allowed() {
    let (cluster, address) = answering("");
    let bytes = noise(300_000);
    fs::write(cluster.local("file"), &bytes).expect("written");
    cluster.ok(&["cp", &text(&cluster.local("file")), "vz:/big"]);
    cluster.ok(&["mkdir", "vz:/d"]);
    let record = ok(&address, &["stat", "/big"]);
    assert_eq!(
        (field(&record, "size"), field(&record, "kind")),
        (Some("300000".into()), Some("regular file".into()))
    );
    assert_eq!(ok(&address, &["list", "/"]), "kind=regular file\tname=big\nkind=directory\tname=d\n");
    let part = call(&address, &["read", "vz:/big", "100", "150000", "--value", "2"]);
    assert!(part.status.success() && part.stdout == bytes[100..150_100], "{part:?}");
    assert_eq!(ok(&address, &["read", "/big", "299990", "1000", "--value", "1"]), "10");
    assert_eq!(ok(&address, &["read", "/big", "400000", "1"]), "0\n\n", "past the end");
    let json: serde_json::Value =
        serde_json::from_str(&ok(&address, &["read", "/big", "0", "3", "--json"])).expect("JSON");
    assert_eq!((&json["method"], &json["result"]), (&"read".into(), &3.0.into()));
    for arguments in
        [&["write", "/big", "0", "x"][..], &["remove", "/big"], &["mkdir", "/e"], &["rename", "/big", "/x"]]
    {
        let said = fails(&address, arguments);
        assert!(said.contains("write = true in [luarpc]"), "{said}");
    }
    assert_eq!(cluster.run(&["cat", "vz:/big"]).stdout, bytes, "nothing has changed");
    assert!(ok(&address, &["status"]).contains("no trouble"));
    let status: serde_json::Value = serde_json::from_str(&ok(&address, &["status_json"])).expect("JSON");
    assert_eq!(status["nodes"].as_array().map(Vec::len), Some(2));
    assert!(
        ok(&address, &["limit", "0.3"]).lines().any(|record| field(record, "name") == Some("data1".into()))
    );
}

#[test]
fn files_are_written_renamed_cut_and_removed_where_callers_may() {
    let (cluster, address) = answering("write = true\n");
    let bytes = noise(1 << 20);
    let file = cluster.local("part");
    fs::write(&file, &bytes).expect("written");
    ok(&address, &["mkdir", "/d"]);
    for offset in ["0", "1048576"] {
        assert_eq!(ok(&address, &["write", "/d/new", offset, &format!("@{}", text(&file))]), "1048576\n");
    }
    assert!(cluster.run(&["cat", "vz:/d/new"]).stdout == [&bytes[..], &bytes[..]].concat());
    ok(&address, &["truncate", "/d/new", "5"]);
    ok(&address, &["rename", "/d/new", "/old"]);
    let read = call(&address, &["read", "/old", "0", "100", "--value", "2"]);
    assert_eq!(read.stdout, bytes[..5]);
    assert!(fails(&address, &["rename", "/old", "data1:/a/x"]).contains("copy, then remove"));
    ok(&address, &["remove", "/old"]);
    ok(&address, &["remove", "/d"]);
    assert_eq!(ok(&address, &["list", "/"]), "\n", "an empty listing");
    assert!(fails(&address, &["stat", "/old"]).contains("vz:/old: no such file or directory"));
}

#[test]
fn names_that_are_no_text_and_long_directories_come_whole() {
    let (cluster, address) = answering("write = true\n");
    let mut stream = connect(&address);
    stream.write_all(b"write\n\"/a\tb\\nc\xff\"\n0\n\"x\"\n").expect("sent");
    let mut reader = BufReader::new(stream.try_clone().expect("cloned"));
    assert_eq!(line(&mut reader), "1");
    stream.write_all(b"list\n\"/\"\n").expect("sent");
    let mut answer = Vec::new();
    reader.read_until(b'\n', &mut answer).expect("an answer");
    assert_eq!(answer, b"\"kind=regular file\tname=a\\\\tb\\\\nc\xff\\n\"\n");
    for number in 0..7 {
        ok(&address, &["mkdir", &format!("/d{number}")]);
    }
    let (mut cursor, mut names, mut pages) = (String::new(), Vec::new(), 0);
    loop {
        let json = ok(&address, &["list_page", "/", &cursor, "3", "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap_or_else(|_| panic!("{json}"));
        // The name that is no text makes its page an object.
        let records =
            json["result"].as_str().or(json["result"]["text"].as_str()).expect("records").to_owned();
        names.extend(records.lines().filter_map(|record| field(record, "name")));
        cursor = json["arguments"][0].as_str().expect("a cursor").to_owned();
        pages += 1;
        assert!(pages < 10, "{names:?}");
        if cursor.is_empty() {
            break;
        }
    }
    assert_eq!((names.len(), names.iter().filter(|name| name.starts_with('d')).count()), (8, 7), "{names:?}");
    drop(cluster);
}

#[test]
fn a_copy_is_begun_waited_for_and_found_by_its_id() {
    let (cluster, address) = answering("write = true\n");
    let area = cluster.local("area");
    fs::create_dir(&area).expect("made");
    fs::write(area.join("file"), noise(1_000_000)).expect("written");
    cluster.ok(&["area", "add", "a", &text(&area), "--dir", &text(&cluster.dir())]);
    wait_until("the area is known", || cluster.ok(&["area", "list"]).contains("data1"));
    let id = ok(&address, &["copy_start", "data1:/a/file", "/copied", "--", "--checksum"]).trim().to_owned();
    let mut state = None;
    wait_until("it is done", || {
        state = field(&ok(&address, &["copy_wait", &id, "5"]), "state");
        state.as_deref() == Some("done")
    });
    assert_eq!(field(&ok(&address, &["copy_status", &id]), "bytes_done"), Some("1000000".to_owned()));
    assert!(ok(&address, &["copies"]).lines().any(|record| field(record, "id").as_deref() == Some(&id)));
    assert!(cluster.run(&["cat", "vz:/copied"]).stdout == noise(1_000_000));
    let said = fails(&address, &["copy_start", "data1:/a/file", "/x", "--", "--recursiv"]);
    assert!(said.contains("those of `vazao cp`"), "{said}");
    assert!(fails(&address, &["copy_start", "/copied", "/x", ""]).contains("a node copies from an area"));
    assert!(fails(&address, &["copy_cancel", "nothing"]).contains("no job's ID"));
}

#[test]
fn a_node_with_a_secret_answers_those_who_know_it() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let secret = |name: &str, digits: &str| {
        let path = directory.path().join(name);
        fs::write(&path, digits.repeat(32)).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("changed");
        text(&path)
    };
    let (right, wrong) = (secret("right", "0b"), secret("wrong", "0c"));
    let (cluster, address) = answering(&format!("secret_file = \"{right}\"\n"));
    assert!(fails(&address, &["list", "/"]).contains("log in first, with --secret-file"));
    let said = fails(&address, &["list", "/", "--secret-file", &wrong]);
    assert!(said.contains("login: the secret is another one than this node's"), "{said}");
    assert_eq!(ok(&address, &["list", "/", "--secret-file", &right]), "\n");
    fs::set_permissions(&wrong, fs::Permissions::from_mode(0o644)).expect("changed");
    assert!(fails(&address, &["list", "/", "--secret-file", &wrong]).contains("chmod 600"));
    // A challenge is good for one answer, and a login for its own connection.
    let mut stream = connect(&address);
    let mut reader = BufReader::new(stream.try_clone().expect("cloned"));
    stream.write_all(b"login\n\"00\"\nchallenge\nlogin\n\"00\"\nlogin\n\"00\"\nlist\n\"/\"\n").expect("sent");
    assert!(line(&mut reader).contains("call challenge() on this connection first"));
    assert_eq!(line(&mut reader).len(), 66);
    assert!(line(&mut reader).contains("the secret is another one"));
    assert!(line(&mut reader).contains("call challenge() on this connection first"));
    assert!(line(&mut reader).contains("log in first"));
    drop(cluster);
}

#[test]
fn calls_that_do_not_fit_are_refused_with_what_would() {
    let (cluster, address) = answering("");
    let usage = |arguments: &[&str]| failed(call(&address, arguments), 2);
    assert!(usage(&["lst", "/"]).contains("no method lst; it has challenge, login, list"));
    assert!(usage(&["list"]).contains("list(in string) -> string takes 1 arguments, and 0 were given"));
    assert!(usage(&["read", "/", "zero", "1"]).contains("argument 2: zero is no number"));
    assert!(
        fails(&address, &["read", "/x", "-1", "1"]).contains("offset is -1, and has to be a whole number")
    );
    assert!(fails(&address, &["read", "/x", "0", "1e9"]).contains("from 0 to 1048576"));
    assert!(fails(&address, &["limit", "60"]).contains("between 0.2 and 10"));
    assert!(fails(&address, &["list", "relative"]).contains("begins with vz:"));
    assert!(fails(&address, &["list_page", "/", "x", "1"]).contains("begin with \"\""));
    // An interface of another service: the server says what it has.
    let other = cluster.local("other.lua");
    fs::write(&other, "interface{ methods = { boo = { args = {{direction='inout', type='double'}} } } }")
        .expect("written");
    let output = Command::new(VAZAO).args(["call", &address, &text(&other), "boo", "1"]).run_bounded();
    let said = failed(output, 1);
    assert!(said.contains("the interface vazao has no method `boo`; it has challenge"), "{said}");
    // One that is a program is not run.
    fs::write(&other, "os.execute('touch ran')").expect("written");
    let mut command = Command::new(VAZAO);
    command.args(["call", &address, &text(&other), "boo", "1"]).current_dir(cluster.local(""));
    let said = failed(command.run_bounded(), 1);
    assert!(said.contains("other.lua, line 1:") && said.contains("never run"), "{said}");
    assert!(!cluster.local("ran").exists());
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").to_string();
    assert!(fails(&closed, &["status"]).contains("is the server running, and is that its port?"));
}

/// `vazao serve` with these arguments on the files of a node that does not run.
fn serve(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(VAZAO);
    command
        .args(["serve", "--insecure", "--until-stdin-closes", "--config"])
        .arg(directory.join("node.toml"));
    command.args(arguments);
    command
}

#[test]
fn serve_takes_the_port_and_refuses_one_that_is_taken_or_open_to_others() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = "name = \"m\"\nroles = [\"meta\"]\nlisten = \"127.0.0.1:0\"\n[meta]\ndirectory = \"meta\"\n";
    fs::write(directory.path().join("node.toml"), config).expect("written");
    let said = failed(serve(directory.path(), &["--luarpc", "0.0.0.0:0"]).run_bounded(), 2);
    assert!(said.contains("is reached from other machines; write secret_file = "), "{said}");
    let said = failed(serve(directory.path(), &["--luarpc", "port"]).run_bounded(), 2);
    assert!(said.contains("not \"host:port\""), "{said}");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port().to_string();
    let said = failed(serve(directory.path(), &["--luarpc", &port]).run_bounded(), 1);
    assert!(said.contains("remote calls on 127.0.0.1:") && said.contains("choose another port"), "{said}");
    drop(taken);
    let mut command = serve(directory.path(), &["--luarpc", "0"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    wait_until("it serves", || directory.path().join("running.json").exists());
    let notice = fs::read_to_string(directory.path().join("running.json")).expect("readable");
    let notice: serde_json::Value = serde_json::from_str(&notice).expect("JSON");
    let address = notice["luarpc"].as_str().expect("it answers calls").to_owned();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    assert_eq!(ok(&address, &["list", "/"]), "\n");
    drop(child.stdin.take());
    assert!(child.wait_bounded().success());
    assert!(TcpStream::connect(&address).is_err());
}

/// What the node that answers calls counts of them.
fn metrics(cluster: &Cluster) -> BTreeMap<String, f64> {
    let mut stream = connect(cluster.notice("meta1")["metrics"].as_str().expect("it has metrics"));
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("sent");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("a page");
    let lines =
        page.lines().filter(|line| line.starts_with("vazao_calls_")).filter_map(|line| line.split_once(' '));
    lines.map(|(name, value)| (name.to_owned(), value.parse().expect("a number"))).collect()
}

#[test]
fn strangers_at_the_port_take_neither_the_node_nor_callers_away() {
    let (cluster, address) = answering("");
    let silent: Vec<TcpStream> = (0..400).map(|_| connect(&address)).collect();
    let mut endless = connect(&address);
    let mut sent = 0;
    let part = vec![b'x'; 1 << 20];
    while sent < 1 << 30 && endless.write_all(&part).is_ok() {
        sent += part.len();
    }
    assert!(sent < 256 << 20, "{sent} bytes of a line without an end were taken");
    let mut answer = String::new();
    let _ = BufReader::new(endless).read_line(&mut answer);
    assert!(answer.starts_with("___ERRORPC: a line has more than"), "{answer}");
    for noise in [&b"\0\0\0\n"[..], b"GET / HTTP/1.1\r\n\r\n", b"read\n\"/\"\n"] {
        let mut stream = connect(&address);
        stream.write_all(noise).expect("sent");
        stream.shutdown(std::net::Shutdown::Write).expect("ended");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer, and the end");
        assert!(answer.starts_with("___ERRORPC: "), "{answer}");
    }
    assert_eq!(ok(&address, &["list", "/"]), "\n");
    assert!(cluster.ok(&["status"]).contains("no trouble"));
    let counted = metrics(&cluster);
    assert!(counted["vazao_calls_evicted_total"] > 100.0, "{counted:?}");
    assert!(
        counted["vazao_calls_failed_total"] >= 4.0 && counted["vazao_calls_connections"] <= 256.0,
        "{counted:?}"
    );
    assert!(counted["vazao_calls_memory_bytes"] < 64e6, "{counted:?}");
    drop(silent);
}
