//! `vazao cp` and FTP servers that lie about the size of a file, on either way: believed is only what fits.

use crate::support;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use tempfile::TempDir;
use vazao_testing::programs::RunBounded;

/// A server with one file, of which it says another size than it has.
#[derive(Clone, Copy)]
struct Liar {
    said: usize,
    has: usize,
}

fn serve(socket: TcpStream, liar: Liar) -> std::io::Result<()> {
    let mut writer = socket.try_clone()?;
    let mut reader = BufReader::new(socket);
    writer.write_all(b"220 hello\r\n")?;
    let mut passive: Option<TcpListener> = None;
    let mut is_there = liar.has > 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let (command, name) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        // Parts of uploads and other names are not there until they are stored.
        let is_known = is_there && (name == "x" || liar.has == 0);
        let answer = match command {
            "USER" => "331 password".to_owned(),
            "PASS" => "230 in".to_owned(),
            "TYPE" => "200 binary".to_owned(),
            "FEAT" => "211-yes\r\n SIZE\r\n MLST type*;size*;\r\n211 end".to_owned(),
            "SIZE" if is_known => format!("213 {}", liar.said),
            "MLST" if is_known => format!("250-here\r\n type=file;size={}; x\r\n250 end", liar.said),
            "SIZE" | "MLST" => "550 no such file".to_owned(),
            "DELE" => "250 gone".to_owned(),
            "QUIT" => return writer.write_all(b"221 bye\r\n"),
            "EPSV" => {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                let port = listener.local_addr()?.port();
                passive = Some(listener);
                format!("229 go (|||{port}|)")
            }
            "RETR" | "STOR" => {
                let Some(passive) = passive.take() else { return Ok(()) };
                let (mut data, _) = passive.accept()?;
                writer.write_all(b"150 here it comes\r\n")?;
                match command {
                    "RETR" => data.write_all(&vec![7; liar.has])?,
                    _ => drop(data.read_to_end(&mut Vec::new())?),
                }
                is_there = true;
                "226 done".to_owned()
            }
            _ => "502 no".to_owned(),
        };
        writer.write_all(format!("{answer}\r\n").as_bytes())?;
    }
}

/// Starts a server for as long as the test runs. Returns its port.
fn start(liar: Liar) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            std::thread::spawn(move || serve(socket, liar));
        }
    });
    port
}

fn copy(scratch: &TempDir, from: &str, to: &str) -> Output {
    let mut command = Command::new(support::VAZAO);
    command.args(["cp", "--block-timeout", "5s", from, to]).current_dir(scratch.path());
    command.env("VAZAO_FTP_PASSWORD", "secret").env_remove("VAZAO_CLUSTER").env_remove("NETRC");
    command.run_bounded()
}

#[test]
fn a_download_of_other_than_the_size_that_was_said_fails_and_gets_no_name() {
    for (said, has) in [(5000, 3000), (3000, 5000)] {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let port = start(Liar { said, has });
        let output = copy(&scratch, &format!("ftp://me@127.0.0.1:{port}/x"), "y");
        let said_by_us = support::failed(output, 1);
        assert!(said_by_us.contains(&format!("said {said} bytes")), "{said_by_us}");
        assert!(said_by_us.contains(&format!("127.0.0.1:{port}/x")), "{said_by_us}");
        assert!(!scratch.path().join("y").exists(), "{said} said and {has} sent");
    }
}

#[test]
fn an_honest_server_is_believed() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let port = start(Liar { said: 4000, has: 4000 });
    support::succeeded(copy(&scratch, &format!("ftp://me@127.0.0.1:{port}/x"), "y"));
    assert_eq!(std::fs::read(scratch.path().join("y")).expect("is there"), vec![7; 4000]);
}

#[test]
fn an_upload_that_the_server_has_less_of_is_no_success() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(scratch.path().join("y"), vec![7; 4000]).expect("written");
    let port = start(Liar { said: 3999, has: 0 });
    let said = support::failed(copy(&scratch, "y", &format!("ftp://me@127.0.0.1:{port}/x")), 1);
    assert!(said.contains("4000 bytes were sent and the server has 3999"), "{said}");
}
