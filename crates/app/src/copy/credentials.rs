//! Who logs in to an FTP server, and with which password: from its address, `VAZAO_FTP_PASSWORD`, a netrc file, or
//! asked for on the terminal. Never shown, never logged.
//!
//! A password in an address on the command line could be read by every user of the machine in the list of processes. So
//! the program is run again at once without it; the password goes along in the environment, which only the same user
//! may read (proc(5)).

use crate::failure::{At, Failure, Outcome};
use crate::signals::Stop;
use console::Term;
use std::ffi::OsString;
use std::io::{IsTerminal, stderr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use vazao_mover::ftp::Url;

/// What was taken out of the command line: a line for each, server, blank, password.
const TAKEN_VARIABLE: &str = "VAZAO_FTP_LOGINS";

/// A password for all servers that have no other.
const PASSWORD_VARIABLE: &str = "VAZAO_FTP_PASSWORD";

/// Where the netrc file is, if not in the home directory; as for other programs.
const NETRC_VARIABLE: &str = "NETRC";

/// How often a wait for a password checks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// User and password for servers with anonymous access (RFC 1635).
const ANONYMOUS: (&str, &str) = ("anonymous", "vazao@");

/// The arguments without their passwords, and the passwords; `None` where there are none.
fn without_passwords(arguments: &[OsString]) -> Option<(Vec<OsString>, String)> {
    let mut taken = String::new();
    let clean = arguments.iter().map(|argument| {
        let url = Some(argument.as_bytes()).filter(|text| Url::looks_like(text)).map(Url::parse);
        let Some(Ok(url)) = url else { return argument.clone() };
        let Some(password) = &url.password else { return argument.clone() };
        taken.push_str(&format!("{} {password}\n", url.server()));
        let mut shown = url.shown().into_bytes();
        // A slash at the end says that a directory is meant.
        if argument.as_bytes().ends_with(b"/") && !shown.ends_with(b"/") {
            shown.push(b'/');
        }
        OsString::from_vec(shown)
    });
    let clean: Vec<OsString> = clean.collect();
    (!taken.is_empty()).then_some((clean, taken))
}

/// Runs this program again where its command line has a password. Returns only where it has none.
pub(crate) fn hide(arguments: &[OsString]) -> Outcome {
    let Some((clean, taken)) = without_passwords(arguments) else { return Ok(()) };
    let before = std::env::var(TAKEN_VARIABLE).unwrap_or_default();
    let mut command = std::process::Command::new("/proc/self/exe");
    let mut rest = clean.into_iter();
    command.arg0(rest.next().unwrap_or_default()).args(rest).env(TAKEN_VARIABLE, taken + &before);
    Err(command.exec()).at("running without the password on the command line")
}

/// User and password for a server.
pub(crate) fn login(url: &Url, stop: &Stop) -> Outcome<(String, String)> {
    let taken = std::env::var(TAKEN_VARIABLE).unwrap_or_default();
    let server = url.server();
    let in_address = taken.lines().find_map(|line| line.strip_prefix(&server)?.strip_prefix(' '));
    if let Some(password) = url.password.as_deref().or(in_address) {
        let user = url.user.clone().unwrap_or_else(|| ANONYMOUS.0.to_owned());
        return Ok((user, password.to_owned()));
    }
    if let (Some(user), Ok(password)) = (&url.user, std::env::var(PASSWORD_VARIABLE)) {
        return Ok((user.clone(), password));
    }
    if let Some(entry) = from_netrc(url)? {
        return Ok(entry);
    }
    match &url.user {
        None => Ok((ANONYMOUS.0.to_owned(), ANONYMOUS.1.to_owned())),
        Some(user) => Ok((user.clone(), ask(&server, stop)?)),
    }
}

fn ask(server: &str, stop: &Stop) -> Outcome<String> {
    let terminal = Term::stderr();
    if !stderr().is_terminal() {
        return Err(Failure::new(format!(
            "{server}: no password; put it into ~/.netrc or ${PASSWORD_VARIABLE}, or run this on a terminal"
        )));
    }
    terminal.write_str(&format!("Password for {server}: ")).at("the terminal")?;
    // A signal does not interrupt the read, it is only noted: another thread has to check for it.
    let (sender, receiver) = channel();
    let read = move || drop(sender.send(terminal.read_secure_line()));
    std::thread::Builder::new().name("password".to_owned()).spawn(read).at("starting a thread")?;
    loop {
        match receiver.recv_timeout(LOOK) {
            Ok(line) => return line.at("reading the password"),
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::new("reading the password failed")),
            Err(RecvTimeoutError::Timeout) if stop.is_asked() => {
                show_letters_again();
                return Err(Failure::new("interrupted"));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// The thread that reads has switched the terminal's echo off and does not come back. Without stty(1) the user has to
/// type `reset`: nothing is lost by that.
#[allow(clippy::disallowed_methods, reason = "stty sets the terminal and ends")]
fn show_letters_again() {
    let Ok(terminal) = std::fs::File::open("/dev/tty") else { return };
    let _ = std::process::Command::new("stty").arg("echo").stdin(terminal).status();
    eprintln!();
}

fn from_netrc(url: &Url) -> Outcome<Option<(String, String)>> {
    let given = std::env::var_os(NETRC_VARIABLE).filter(|file| !file.is_empty()).map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".netrc"));
    let Some(file) = given.or_else(home) else { return Ok(None) };
    let Ok(text) = std::fs::read_to_string(&file) else { return Ok(None) };
    let found = in_netrc(&text, &url.host, url.user.as_deref());
    let mode = std::fs::metadata(&file).at(file.display())?.permissions().mode();
    if found.is_some() && mode & 0o077 != 0 {
        let shown = file.display();
        return Err(Failure::new(format!(
            "{shown}: has a password for {} and can be read by others; chmod 600 {shown}",
            url.host
        )));
    }
    Ok(found)
}

/// Words of a netrc file; quotes hold blanks together.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut letters = text.chars().peekable();
    while let Some(first) = letters.next() {
        if first.is_whitespace() {
            continue;
        }
        let is_quoted = first == '"';
        let mut word = if is_quoted { String::new() } else { first.to_string() };
        while let Some(&letter) = letters.peek() {
            let is_end = if is_quoted { letter == '"' } else { letter.is_whitespace() };
            letters.next();
            if is_end {
                break;
            }
            let escaped = if is_quoted && letter == '\\' { letters.next() } else { None };
            word.push(escaped.unwrap_or(letter));
        }
        words.push(word);
    }
    words
}

/// The entry of a host, and of a user where one is wanted; else the default one.
fn in_netrc(text: &str, host: &str, user: Option<&str>) -> Option<(String, String)> {
    let words = words(text);
    let mut words = words.iter().map(String::as_str);
    let mut entry: Option<(String, String)> = None;
    let mut is_here = false;
    let fits = |entry: &Option<(String, String)>| {
        entry.clone().filter(|(login, password)| {
            !password.is_empty() && !login.is_empty() && user.is_none_or(|user| user == login)
        })
    };
    while let Some(word) = words.next() {
        match word {
            "machine" | "default" => {
                if let Some(found) = fits(&entry) {
                    return Some(found);
                }
                is_here = word == "default" || words.next() == Some(host);
                entry = is_here.then(Default::default);
            }
            "login" | "password" | "account" => {
                let value = words.next()?.to_owned();
                match (&mut entry, word) {
                    (Some(entry), "login") if is_here => entry.0 = value,
                    (Some(entry), "password") if is_here => entry.1 = value,
                    _ => {}
                }
            }
            _ => {}
        }
    }
    fits(&entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_leaves_the_command_line_and_nothing_else_does() {
        let line = ["vazao", "cp", "-r", "ftp://me:s%20cret@h:2121/a%20b/", "./ftp://x:y@z", "ftp://h/x"];
        let line: Vec<OsString> = line.iter().map(OsString::from).collect();
        let (clean, taken) = without_passwords(&line).expect("has one");
        assert_eq!(taken, "ftp://me@h:2121 s cret\n");
        let mut expected = line.clone();
        expected[3] = "ftp://me@h:2121/a%20b/".into();
        assert_eq!(clean, expected);
        assert_eq!(without_passwords(&clean), None);
    }

    #[test]
    fn netrc_gives_the_entry_of_host_and_user() {
        let text = "machine h login me password p1\nmachine h login you\n\tpassword \"p 2\"\nmachine g password x\ndefault login any password d\n";
        let of = |host: &str, user: Option<&str>| in_netrc(text, host, user).map(|(_, password)| password);
        assert_eq!(of("h", Some("me")).as_deref(), Some("p1"));
        assert_eq!(of("h", Some("you")).as_deref(), Some("p 2"));
        assert_eq!(of("h", None).as_deref(), Some("p1"));
        assert_eq!(of("elsewhere", None).as_deref(), Some("d"));
        assert_eq!(of("elsewhere", Some("me")), None);
        assert_eq!(in_netrc("machine h login", "h", None), None);
    }
}
