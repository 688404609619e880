//! The FTP client against servers that refuse, stall, lie and talk nonsense: each error names the server and what was
//! being done, and comes in time.

use crate::ftp::{Session, Waits};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use vazao_meter::{Clock, Occupancy, SystemClock};
use vazao_model::Code;
use vazao_wire::service::Fault;

/// How a fake server differs from a good one.
#[derive(Clone, Default)]
struct Quirks {
    /// Instead of the greeting.
    greeting: Option<&'static [u8]>,
    /// Answers to commands instead of the usual ones; an empty one is none at all.
    answers: Vec<(&'static str, &'static [u8])>,
    /// Bytes of a file; what RETR sends.
    contents: &'static [u8],
    /// After the contents nothing more is said on either connection.
    stalls: bool,
    /// The data connection ends, and then comes this.
    last: Option<&'static [u8]>,
}

/// A server for one session at a time, until the test ends.
struct Fake {
    port: u16,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Sessions that wait for its answers.
    answers: Arc<Occupancy>,
}

impl Fake {
    fn new(quirks: Quirks) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let port = listener.local_addr().expect("an address").port();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            for socket in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let _ = serve(socket.expect("comes in"), &quirks, &over);
            }
        });
        Fake { port, is_over, thread: Some(thread), answers: Arc::default() }
    }

    fn connect(&self) -> Result<Session, Fault> {
        let waits = Waits {
            clock: vazao_meter::clock::system(),
            check: Arc::new(|_| Ok(())),
            connect_ms: 10_000,
            silent_ms: 300,
            answers: Arc::clone(&self.answers),
        };
        Session::connect(&format!("ftp://127.0.0.1:{}", self.port), "127.0.0.1", self.port, waits)
    }

    fn session(&self) -> Result<Session, Fault> {
        let mut session = self.connect()?;
        session.login("me", "s3cret")?;
        Ok(session)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Says nothing until the client goes away.
fn stall(reader: &mut BufReader<TcpStream>, over: &AtomicBool) {
    let mut line = Vec::new();
    while !over.load(Ordering::SeqCst) && reader.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {}
}

fn serve(socket: TcpStream, quirks: &Quirks, over: &AtomicBool) -> std::io::Result<()> {
    let mut writer = socket.try_clone()?;
    let mut reader = BufReader::new(socket);
    let greeting = quirks.greeting.unwrap_or(b"220 hello\r\n");
    writer.write_all(greeting)?;
    let mut passive: Option<TcpListener> = None;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let command = line.split_ascii_whitespace().next().unwrap_or_default().to_owned();
        if let Some((_, answer)) = quirks.answers.iter().find(|(name, _)| *name == command) {
            writer.write_all(answer)?;
            continue;
        }
        let answer: &[u8] = match command.as_str() {
            "USER" => b"331 password\r\n",
            "PASS" => b"230 in\r\n",
            "TYPE" => b"200 binary\r\n",
            "FEAT" => b"211-yes\r\n SIZE\r\n MLST type*;size*;\r\n211 end\r\n",
            "SIZE" => b"213 5000\r\n",
            "MLST" => b"250-here\r\n type=file;size=5000; x\r\n250 end\r\n",
            "REST" => b"350 there\r\n",
            "QUIT" => return writer.write_all(b"221 bye\r\n"),
            "EPSV" => {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                let port = listener.local_addr()?.port();
                passive = Some(listener);
                writer.write_all(format!("229 go (|||{port}|)\r\n").as_bytes())?;
                continue;
            }
            // Takes a little, says what it has, and is gone.
            "STOR" => {
                let Some(passive) = passive.take() else { return Ok(()) };
                let (mut data, _) = passive.accept()?;
                writer.write_all(b"111 Range Marker 0\r\n150 send\r\n")?;
                let _ = std::io::Read::read(&mut data, &mut [0; 1000])?;
                writer.write_all(quirks.last.unwrap_or_default())?;
                // With bytes unread the connection is reset.
                return Ok(());
            }
            "RETR" | "MLSD" | "LIST" => {
                let Some(passive) = passive.take() else { return Ok(()) };
                let (mut data, _) = passive.accept()?;
                writer.write_all(b"150 here it comes\r\n")?;
                data.write_all(quirks.contents)?;
                if quirks.stalls {
                    stall(&mut reader, over);
                    return Ok(());
                }
                drop(data);
                quirks.last.unwrap_or(b"226 done\r\n")
            }
            _ => b"502 no\r\n",
        };
        writer.write_all(answer)?;
    }
}

/// Reads the file `x` to its end.
fn read(session: &mut Session) -> Result<Vec<u8>, Fault> {
    session.retrieve(b"x", 0)?;
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match session.receive(&mut buffer)? {
            0 => break,
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    }
    session.finish("receiving")?;
    Ok(bytes)
}

fn check(fault: &Fault, code: Code, words: &[&str]) {
    assert_eq!(fault.code, code, "{fault}");
    let text = fault.to_string();
    assert!(text.contains("ftp://127.0.0.1:"), "names the server: {text}");
    assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
    assert!(!text.contains("s3cret"), "shows the password: {text}");
    assert!(!text.contains(['\r', '\n', '\x1b']), "{text:?}");
}

#[test]
fn a_good_server_gives_its_file() {
    let fake = Fake::new(Quirks { contents: b"hello", ..Quirks::default() });
    let mut session = fake.session().expect("logs in");
    assert_eq!(read(&mut session).expect("comes"), b"hello");
    assert_eq!(session.size(b"x").expect("told"), Some(5000));
    assert_eq!(session.facts(b"x").expect("told").and_then(|facts| facts.size), Some(5000));
    session.quit();
}

#[test]
fn refusals_say_what_the_server_said_and_never_the_password() {
    type Case = (&'static str, &'static [u8], Code, &'static str);
    let cases: [Case; 5] = [
        ("PASS", b"530 not s3cret, \x1b[2J me\r\n", Code::AccessDenied, "logging in: 530 not"),
        ("USER", b"530 nobody\r\n", Code::AccessDenied, "logging in: 530 nobody"),
        ("USER", b"421 too many connections\r\n", Code::Overloaded, "421 too many"),
        ("PASS", b"332 account?\r\n", Code::AccessDenied, "332 account?"),
        ("TYPE", b"504 text only\r\n", Code::Unsupported, "binary transfers: 504"),
    ];
    for (command, answer, code, word) in cases {
        let fake = Fake::new(Quirks { answers: vec![(command, answer)], ..Quirks::default() });
        check(&fake.session().expect_err(command), code, &[word]);
    }
    let fake = Fake::new(Quirks { greeting: Some(b"421 closed on Fridays\r\n"), ..Quirks::default() });
    check(&fake.session().expect_err("refused"), Code::Overloaded, &["greeting", "Fridays"]);
    for (command, answer, word) in [
        ("RETR", &b"550 no such file\r\n"[..], "receiving: 550 no such file"),
        ("EPSV", b"425 no ports\r\n", "425 no ports"),
    ] {
        let fake = Fake::new(Quirks { answers: vec![(command, answer)], ..Quirks::default() });
        let mut session = fake.session().expect("logs in");
        let fault = read(&mut session).expect_err(command);
        assert!(fault.to_string().contains(word), "{fault}");
    }
}

#[test]
fn a_server_that_stalls_in_any_phase_is_given_up_in_time() {
    let started_ns = SystemClock.now_ns();
    let stalled = |command: &'static str| Quirks { answers: vec![(command, &b""[..])], ..Quirks::default() };
    let fake = Fake::new(Quirks { greeting: Some(b""), ..Quirks::default() });
    check(&fake.session().expect_err("stalls"), Code::Timeout, &["greeting", "300 ms"]);
    for (command, phase) in
        [("USER", "logging in"), ("PASS", "logging in"), ("TYPE", "binary"), ("FEAT", "what it can do")]
    {
        let fake = Fake::new(stalled(command));
        check(&fake.session().expect_err(command), Code::Timeout, &[phase, "300 ms"]);
    }
    for (command, phase) in [("EPSV", "receiving"), ("RETR", "receiving")] {
        let fake = Fake::new(stalled(command));
        let fault = fake.session().and_then(|mut session| read(&mut session)).expect_err(command);
        check(&fault, Code::Timeout, &[phase, "300 ms"]);
    }
    let fake = Fake::new(Quirks { contents: b"hel", stalls: true, ..Quirks::default() });
    let fault = fake.session().and_then(|mut session| read(&mut session)).expect_err("stalls");
    check(&fault, Code::Timeout, &["receiving", "not a byte", "300 ms"]);
    let fake = Fake::new(Quirks { contents: b"hello", last: Some(b""), ..Quirks::default() });
    let fault = fake.session().and_then(|mut session| read(&mut session)).expect_err("stalls");
    check(&fault, Code::Timeout, &["end of the transfer"]);
    assert!(SystemClock.now_ns() - started_ns < super::TIMEOUT.as_nanos() as u64);
}

/// A copy whose login took seconds said that nothing was asked for: only data connections were counted.
#[test]
fn what_is_waited_for_on_a_control_connection_is_counted_until_it_is_given_up() {
    let fake = Fake::new(Quirks { answers: vec![("PASS", b"")], ..Quirks::default() });
    check(&fake.session().expect_err("stalls"), Code::Timeout, &["logging in"]);
    let now_ns = SystemClock.now_ns();
    let waited_ns = fake.answers.at(now_ns).busy_ns;
    assert!(waited_ns >= 290_000_000, "{waited_ns}");
    assert_eq!(fake.answers.at(now_ns + 1_000_000_000).busy_ns, waited_ns, "no session waits any more");
}

#[test]
fn a_data_connection_that_ends_early_is_no_end_of_the_file() {
    let last = Some(&b"426 connection closed; transfer aborted\r\n"[..]);
    let fake = Fake::new(Quirks { contents: b"hel", last, ..Quirks::default() });
    let fault = fake.session().and_then(|mut session| read(&mut session)).expect_err("cut");
    check(&fault, Code::Disconnected, &["receiving", "426"]);
}

/// A receiver that was killed had just said `111 Range Marker`: that was taken for its last word, and the file failed
/// for good.
#[test]
fn a_marker_is_no_end_of_anything_whenever_it_comes() {
    for (last, code) in [
        (&b"111 Range Marker 0\r\n"[..], Code::Disconnected),
        (b"111 Range Marker 0\r\n112 so far\r\n113-many\r\n lines\r\n113 there\r\n", Code::Disconnected),
        (b"111 Range Marker 0\r\n1", Code::Disconnected),
        (b"111 Range Marker 0\r\n226", Code::Disconnected),
        (b"111 Range Marker 0\r\n450-not", Code::Disconnected),
        (b"110 MARK a = b\r\n452 full\r\n", Code::NoSpace),
        (b"111 Range Marker 0\r\n456 damaged\r\n", Code::Corrupt),
        (b"", Code::Disconnected),
    ] {
        let fake = Fake::new(Quirks { last: Some(last), ..Quirks::default() });
        let mut session = fake.session().expect("logs in");
        session.store(b"x", 0).expect("begins, behind a marker");
        let sent = (0..1000).try_for_each(|_| session.send(&[7; 100_000]));
        check(&sent.expect_err("the other end is gone"), code, &["sending"]);
    }
    let marked = [
        ("USER", &b"120-soon\r\n120 now\r\n331 password\r\n"[..]),
        ("PASS", b"110 MARK 1 = 2\r\n230 in\r\n"),
        ("SIZE", b"111 Range Marker 5\r\n213 5000\r\n"),
    ];
    let fake = Fake::new(Quirks { answers: marked.to_vec(), ..Quirks::default() });
    let mut session = fake.session().expect("logs in");
    assert_eq!(session.size(b"x").expect("told"), Some(5000));
}

#[test]
fn nonsense_is_refused_whatever_it_is() {
    for greeting in [&b"SSH-2.0-OpenSSH_9.2\r\n"[..], b"\r\n", b"999 what\r\n", b"\xff\xfe\0\n"] {
        let fake = Fake::new(Quirks { greeting: Some(greeting), ..Quirks::default() });
        check(&fake.session().expect_err("nonsense"), Code::BadRequest, &["greeting", "answered"]);
    }
    static ENDLESS: [u8; 40_000] = [b'2'; 40_000];
    let fake = Fake::new(Quirks { greeting: Some(&ENDLESS), ..Quirks::default() });
    check(&fake.session().expect_err("endless"), Code::BadRequest, &["greeting", "a line of more than"]);
    for answer in [&b"229 nowhere\r\n"[..], b"229 (|||0|)\r\n", b"229 (|||99999|)\r\n", b"200 (|||1|)\r\n"] {
        let fake = Fake::new(Quirks { answers: vec![("EPSV", answer)], ..Quirks::default() });
        let mut session = fake.session().expect("logs in");
        assert!(session.retrieve(b"x", 0).is_err(), "{answer:?}");
    }
    let answers = vec![("MLST", &b"250-x\r\n nonsense\r\n250 y\r\n"[..])];
    let fake = Fake::new(Quirks { answers, ..Quirks::default() });
    let fault = fake.session().and_then(|mut session| session.facts(b"x")).expect_err("nonsense");
    check(&fault, Code::BadRequest, &["asking for a file", "no sense"]);
}

#[test]
fn a_list_with_names_that_lead_elsewhere_gives_the_others() {
    let contents = b"type=cdir; .\r\ntype=pdir; ..\r\ntype=file;size=1; ../../etc/passwd\r\n\
        type=file;size=2; good\r\ntype=file; /etc/x\r\nrubbish\r\ntype=dir; d\r\n";
    let fake = Fake::new(Quirks { contents, ..Quirks::default() });
    let mut session = fake.session().expect("logs in");
    let names: Vec<Vec<u8>> = session.list(b"").expect("listed").into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, [b"good".to_vec(), b"d".to_vec()]);
}

#[test]
fn a_server_of_the_old_school_is_asked_in_the_old_way() {
    let contents = b"total 1\r\n-rw-r--r--   1 a  b   5120 Jan 12  2024 two words\r\ndrwxr-xr-x 2 a b 1 Jan 1 2024 d\r\n";
    let answers = vec![("FEAT", &b"500 what?\r\n"[..]), ("MDTM", b"213 20260102030405\r\n")];
    let fake = Fake::new(Quirks { contents, answers, ..Quirks::default() });
    let mut session = fake.session().expect("logs in");
    let facts = session.facts(b"x").expect("told").expect("there");
    assert_eq!((facts.size, facts.modified.map(|at| at.seconds)), (Some(5000), Some(1_767_323_045)));
    let listed = session.list(b"").expect("listed");
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[0].1.size, Some(5120));
}

#[test]
fn a_name_with_a_line_end_is_never_sent() {
    let fake = Fake::new(Quirks::default());
    let mut session = fake.session().expect("logs in");
    let fault = session.size(b"x\r\nDELE y").expect_err("two commands in one");
    check(&fault, Code::Invalid, &["line end"]);
}
