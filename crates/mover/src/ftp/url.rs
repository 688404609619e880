//! `ftp://[user[:password]@]host[:port]/path` (RFC 1738, 3.2).

use vazao_model::Code;
use vazao_model::limits::PATH_BYTES_MAX;
use vazao_wire::service::Fault;

/// The port of FTP.
pub const FTP_PORT: u16 = 21;

const SCHEME: &[u8] = b"ftp://";

/// A place on an FTP server.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    /// The user to log in as; without one anonymously.
    pub user: Option<String>,
    /// The password, where the URL has it.
    pub password: Option<String>,
    /// A name or address, an IPv6 one without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The bytes behind the slash, relative to where the login leads; with `%2F` in front they begin with a slash.
    pub path: Vec<u8>,
}

impl std::fmt::Debug for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Url({})", self.shown())
    }
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// Takes the percent signs out.
fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (&high, behind) = behind.split_first()?;
        let (&low, behind) = behind.split_first()?;
        bytes.push(hex(high)? << 4 | hex(low)?);
        rest = behind;
    }
    Some(bytes)
}

/// Puts percent signs in for what `is_plain` does not pass.
fn encoded(bytes: &[u8], is_plain: impl Fn(u8) -> bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match is_plain(byte) {
            true => text.push(char::from(byte)),
            false => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

impl Url {
    /// Whether a text means to be one.
    pub fn looks_like(text: &[u8]) -> bool {
        text.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME))
    }

    /// Reads one. Errors never show a password.
    pub fn parse(text: &[u8]) -> Result<Url, Fault> {
        let wrong = |what: &str| Fault::new(Code::Invalid, format!("an ftp:// address {what}"));
        let rest = text.get(SCHEME.len()..).filter(|_| Url::looks_like(text));
        let rest = rest.ok_or_else(|| wrong("begins with ftp://"))?;
        let slash = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(slash);
        let (login, host) = match authority.iter().rposition(|&byte| byte == b'@') {
            Some(at) => (Some(&authority[..at]), &authority[at + 1..]),
            None => (None, authority),
        };
        let part = |bytes: &[u8]| {
            let text = decoded(bytes).and_then(|bytes| String::from_utf8(bytes).ok());
            let text = text.filter(|text| !text.contains(['\r', '\n', '\0']));
            text.ok_or_else(|| wrong("has a user or password that cannot be"))
        };
        let (mut user, mut password) = (None, None);
        if let Some(login) = login {
            let colon = login.iter().position(|&byte| byte == b':');
            user = Some(part(&login[..colon.unwrap_or(login.len())])?).filter(|user| !user.is_empty());
            password = colon.map(|colon| part(&login[colon + 1..])).transpose()?;
        }
        let (host, port) =
            host_and_port(host).ok_or_else(|| wrong("has a host, and a port from 1 to 65535"))?;
        let path = decoded(path.strip_prefix(b"/").unwrap_or(path));
        let path = path.filter(|path| !path.iter().any(|byte| b"\r\n\0".contains(byte)));
        let path = path.ok_or_else(|| wrong("has no line ends and whole percent codes in its path"))?;
        if path.len() > PATH_BYTES_MAX {
            return Err(Fault::new(Code::NameTooLong, format!("a path of {} bytes", path.len())));
        }
        Ok(Url { user, password, host, port, path })
    }

    /// The server as messages show it, with its user and never a password.
    pub fn server(&self) -> String {
        let user = self.user.as_ref().map(|user| encoded(user.as_bytes(), is_unreserved) + "@");
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let port = if self.port == FTP_PORT { String::new() } else { format!(":{}", self.port) };
        format!("ftp://{}{host}{port}", user.unwrap_or_default())
    }

    /// The whole, without a password. It can be read again.
    pub fn shown(&self) -> String {
        format!("{}/{}", self.server(), self.shown_path())
    }

    fn shown_path(&self) -> String {
        // A slash in front would be lost between the two.
        let (front, rest) = match self.path.strip_prefix(b"/") {
            Some(rest) => ("%2F", rest),
            None => ("", &self.path[..]),
        };
        front.to_owned() + &encoded(rest, |byte| is_unreserved(byte) || b"/!$&'()*+,;=:@".contains(&byte))
    }
}

fn host_and_port(text: &[u8]) -> Option<(String, u16)> {
    let text = std::str::from_utf8(text).ok()?;
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, behind) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, behind)
        }
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let is_host = |c: char| c.is_alphanumeric() || "-._:".contains(c);
    if host.is_empty() || !host.chars().all(is_host) {
        return None;
    }
    let port = match port.strip_prefix(':') {
        Some(port) => port.parse().ok().filter(|&port| port > 0)?,
        None if port.is_empty() => FTP_PORT,
        None => return None,
    };
    Some((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Url {
        Url::parse(text.as_bytes()).unwrap_or_else(|fault| panic!("{text}: {fault}"))
    }

    #[test]
    fn all_parts_are_read_and_the_password_is_never_shown() {
        let url = parse("ftp://me:s%40cret@host.example:2121/a%20b/c");
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("me"), Some("s@cret")));
        assert_eq!((url.host.as_str(), url.port, &url.path[..]), ("host.example", 2121, &b"a b/c"[..]));
        assert_eq!(url.shown(), "ftp://me@host.example:2121/a%20b/c");
        assert!(!format!("{url:?}").contains("cret"));
        assert_eq!(parse("FTP://h").shown(), "ftp://h/");
        assert_eq!(parse("ftp://h/%2Fetc/x").path, b"/etc/x");
        assert_eq!(parse("ftp://h//etc/x").path, b"/etc/x");
        assert_eq!(parse("ftp://h//etc/x").shown(), "ftp://h/%2Fetc/x");
        assert_eq!(parse("ftp://[::1]:99/x").host, "::1");
        assert_eq!(parse("ftp://u:@h/").password.as_deref(), Some(""));
    }

    #[test]
    fn addresses_that_cannot_be_are_refused_without_their_password() {
        for text in [
            "ftp://",
            "ftp:///x",
            "ftp://h:0/",
            "ftp://h:99999/",
            "ftp://h:x/",
            "ftp://secret@",
            "ftp://u:secret@h/%0Ax",
            "ftp://u:secret@h/%zz",
            "ftp://u:secret@h/%",
            "ftp://u%0d:secret@h/",
            "ftp://[x]/",
            "ftp://[::1/",
            "ftp://h h/",
        ] {
            let fault = Url::parse(text.as_bytes()).expect_err(text);
            assert!(!fault.to_string().contains("secret"), "{fault}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_again(path in proptest::collection::vec(any::<u8>(), 0..60)) {
            prop_assume!(!path.iter().any(|byte| b"\r\n\0".contains(byte)));
            let url = Url { user: Some("a b".into()), password: None, host: "h".into(), port: 7, path };
            prop_assert_eq!(Url::parse(url.shown().as_bytes()), Ok(url));
        }

        #[test]
        fn any_bytes_are_read_or_refused(text in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = Url::parse(&[b"ftp://", &text[..]].concat());
        }
    }
}
