//! The FTP endpoint against guests that do not know how to behave.

use super::{World, noise};
use crate::ftp::Url;
use crate::outgoing::{Manner, Outgoing, Started, begin};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use vazao_model::checksum::crc32c;

/// A guest: says lines, and hears answers.
struct Guest {
    control: BufReader<TcpStream>,
}

impl Guest {
    fn new(port: u16) -> Guest {
        let socket = TcpStream::connect(("127.0.0.1", port)).expect("connects");
        socket.set_read_timeout(Some(super::TIMEOUT)).expect("set");
        let mut guest = Guest { control: BufReader::new(socket) };
        assert_eq!(guest.hear(), 220);
        guest
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.control.read_line(&mut line).expect("a line");
        line
    }

    fn hear(&mut self) -> u16 {
        loop {
            let line = self.line();
            if line.as_bytes().get(3) != Some(&b'-') && !line.starts_with(' ') {
                return line.get(..3).and_then(|code| code.parse().ok()).unwrap_or(0);
            }
        }
    }

    fn tell(&mut self, line: &str) {
        self.control.get_mut().write_all(format!("{line}\r\n").as_bytes()).expect("sent");
    }

    fn ask(&mut self, line: &str) -> u16 {
        self.tell(line);
        self.hear()
    }

    fn log_in(&mut self, copy: &Outgoing) -> String {
        let (name, token) = (hex(&copy.id), hex(&copy.token));
        assert_eq!(self.ask(&format!("USER {name}")), 331);
        assert_eq!(self.ask(&format!("PASS {token}")), 230);
        name
    }

    fn data(&mut self) -> TcpStream {
        self.tell("EPSV");
        let line = self.line();
        let port = line.split('|').nth(3).and_then(|port| port.parse().ok());
        TcpStream::connect(("127.0.0.1", port.expect("a port"))).expect("connects")
    }

    /// Sends all of a file of one block, with a checksum, and returns the last answer.
    fn store(&mut self, name: &str, bytes: &[u8], sum: u32) -> u16 {
        let mut data = self.data();
        assert_eq!(self.ask(&format!("STOR {name}")), 150);
        self.tell(&format!("SITE SUM 0 {sum:08X}"));
        let _ = data.write_all(bytes);
        let _ = data.shutdown(Shutdown::Write);
        let code = self.hear();
        if code == 111 { self.hear() } else { code }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn begun(world: &World, name: &str, bytes: &[u8]) -> (Arc<Outgoing>, u16) {
    let source = world.put(name, bytes);
    let started = begin(source, world.around(), world.to(name), Manner::default());
    let Ok(Started::Ready(copy)) = started else { panic!("{name}: does not begin") };
    let (port, path) = copy.ftp().expect("has an endpoint");
    assert_eq!(path, hex(&copy.id));
    (copy, port)
}

#[test]
fn who_has_no_token_gets_nothing() {
    let world = World::new();
    let (copy, port) = begun(&world, "x", &noise(300_000));
    let mut guest = Guest::new(port);
    for command in ["STOR x", "EPSV", "REST 0", "SITE ZEROS 0 1", "SIZE x", "LIST", "PASS"] {
        assert_eq!(guest.ask(command), 530, "{command}");
    }
    let mut guest = Guest::new(port);
    for _ in 0..3 {
        guest.ask(&format!("USER {}", hex(&copy.id)));
        assert_eq!(guest.ask(&format!("PASS {}", "0".repeat(32))), 530);
    }
    let mut rest = Vec::new();
    assert_eq!(guest.control.read_to_end(&mut rest).ok(), Some(0), "is thrown out after three tries");
}

#[test]
fn only_the_one_file_is_written_and_only_as_it_was_sent() {
    let world = World::new();
    let bytes = noise(300_000);
    let (copy, port) = begun(&world, "x", &bytes);
    let mut guest = Guest::new(port);
    let name = guest.log_in(&copy);
    for command in ["STOR ../y", "STOR y", "STOR"] {
        assert_eq!(guest.ask(command), 553, "{command}");
    }
    assert_eq!(guest.ask(&format!("STOR {name}")), 425, "no port for data");
    for command in
        ["REST 5", "REST -1", "REST x", "REST 1048576", "REST 99999999999999999999", "SITE ZEROS a b"]
    {
        assert_eq!(guest.ask(command), 501, "{command}");
    }
    for command in ["SITE ZEROS 5 5", "SITE ZEROS 0 18446744073709551615"] {
        assert_eq!(guest.ask(command), 501, "{command}");
    }
    for command in ["RETR x", "DELE x", "MKD x", "LIST", "PORT 1,2,3,4,5,6", "CWD ..", ""] {
        assert!(guest.ask(command) >= 500, "{command}");
    }
    let mut damaged = bytes.clone();
    damaged[200_000] ^= 1;
    assert_eq!(guest.store(&name, &damaged, crc32c(&bytes)), 456, "a bit that changed is noticed");
    assert_eq!(guest.store(&name, &bytes[..250_000], crc32c(&bytes)), 226, "cut off");
    assert_eq!(guest.ask(&format!("SIZE {name}")), 213);
    assert!(copy.end().is_err(), "nothing has arrived whole");
    assert_eq!(guest.store(&name, &[&bytes[..], b"more"].concat(), crc32c(&bytes)), 552);
    let mut guest = Guest::new(port);
    guest.log_in(&copy);
    assert_eq!(guest.store(&name, &damaged, crc32c(&damaged)), 226, "what is there is not written again");
    assert_eq!(guest.ask("QUIT"), 221);
    assert_eq!(world.arrived("x"), None);
    world.send("streams:4", &copy).expect("any method goes on from there");
    copy.end().expect("ends");
    assert!(world.arrived("x") == Some(bytes));
}

#[test]
fn two_sessions_do_not_write_one_file_at_once() {
    let world = World::new();
    let bytes = noise(300_000);
    let (copy, port) = begun(&world, "x", &bytes);
    let (mut first, mut second) = (Guest::new(port), Guest::new(port));
    let name = first.log_in(&copy);
    second.log_in(&copy);
    let data = first.data();
    assert_eq!(first.ask(&format!("STOR {name}")), 150);
    let _other = second.data();
    assert_eq!(second.ask(&format!("STOR {name}")), 450);
    drop(data);
    assert_eq!(first.hear(), 226);
    assert_eq!(second.store(&name, &bytes, crc32c(&bytes)), 226);
}

#[test]
fn lines_without_an_end_and_garbage_end_the_session_and_nothing_else() {
    let world = World::new();
    let (_, port) = begun(&world, "x", &noise(300_000));
    let mut guest = Guest::new(port);
    let _ = guest.control.get_mut().write_all(&[b'A'; 20_000]);
    let mut rest = Vec::new();
    let _ = guest.control.read_to_end(&mut rest);
    let mut guest = Guest::new(port);
    guest.control.get_mut().write_all(&[0xff, 0, b'\n']).expect("sent");
    assert_eq!(guest.hear(), 530);
    assert!(Url::parse(format!("ftp://x@127.0.0.1:{port}/x").as_bytes()).is_ok());
    world.copy("ftp", world.source("x"), "x").expect("others are served");
}
