//! What servers answer (RFC 959, 4.2): three digits and a text, which may go over several lines.

use std::net::SocketAddr;

/// Text of an answer that is kept; further lines are read and forgotten.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// Text of an answer that an error repeats.
const SHOWN_CHARACTERS_MAX: usize = 200;

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    /// The lines without the digits.
    pub(crate) lines: Vec<Vec<u8>>,
}

impl Reply {
    /// 1yz: another one follows.
    pub(crate) fn is_preliminary(&self) -> bool {
        self.code / 100 == 1
    }

    /// 2yz.
    pub(crate) fn is_done(&self) -> bool {
        self.code / 100 == 2
    }

    /// 3yz: it wants to hear more.
    pub(crate) fn wants_more(&self) -> bool {
        self.code / 100 == 3
    }

    /// The last line's text.
    pub(crate) fn text(&self) -> &[u8] {
        self.lines.last().map_or(b"", Vec::as_slice)
    }

    /// As errors show it: nothing in it moves a terminal's cursor.
    pub(crate) fn shown(&self) -> String {
        let text = String::from_utf8_lossy(self.text());
        format!("{} {}", self.code, printable(&text))
    }
}

/// The beginning of a text, without what is no letter, digit or sign.
pub(crate) fn printable(text: &str) -> String {
    let clean = |c: char| if c.is_control() { '?' } else { c };
    text.chars().take(SHOWN_CHARACTERS_MAX).map(clean).collect()
}

/// Puts an answer together from its lines.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    reply: Option<Reply>,
    bytes: usize,
}

fn code_of(line: &[u8]) -> Option<u16> {
    let digits = line.get(..3).filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
    let code = digits.iter().fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
    (100..600).contains(&code).then_some(code)
}

impl Assembly {
    /// Takes one line; returns the answer that it ends. Errors: what cannot be the beginning of one.
    pub(crate) fn take(&mut self, line: &[u8]) -> Result<Option<Reply>, String> {
        self.bytes += line.len();
        let Some(reply) = &mut self.reply else {
            let garbage = || format!("answered {:?}", printable(&String::from_utf8_lossy(line)));
            let code = code_of(line).ok_or_else(garbage)?;
            let text = line.get(4..).unwrap_or_default().to_vec();
            let reply = Reply { code, lines: vec![text] };
            return match line.get(3) {
                Some(b'-') => {
                    self.reply = Some(reply);
                    Ok(None)
                }
                None | Some(b' ') => Ok(Some(reply)),
                Some(_) => Err(garbage()),
            };
        };
        if self.bytes > TEXT_BYTES_MAX {
            return Err(format!("an answer of more than {TEXT_BYTES_MAX} bytes"));
        }
        let ends = code_of(line) == Some(reply.code) && matches!(line.get(3), None | Some(b' '));
        reply.lines.push(if ends { line.get(4..).unwrap_or_default().to_vec() } else { line.to_vec() });
        if !ends {
            return Ok(None);
        }
        self.bytes = 0;
        Ok(self.reply.take())
    }
}

/// The port in `Entering Extended Passive Mode (|||6446|)` (RFC 2428).
pub(crate) fn extended_port(text: &[u8]) -> Option<u16> {
    let open = text.iter().position(|&byte| byte == b'(')?;
    let inner = text.get(open + 1..)?;
    let inner = inner.get(..inner.iter().position(|&byte| byte == b')')?)?;
    let mark = *inner.first()?;
    let mut parts = inner.split(|&byte| byte == mark);
    let empty = [parts.next()?, parts.next()?, parts.next()?].iter().all(|part| part.is_empty());
    let port = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
    (empty && port > 0).then_some(port)
}

/// The port in `Entering Passive Mode (192,168,0,1,25,46)`. The address is not believed.
pub(crate) fn passive_port(text: &[u8]) -> Option<u16> {
    let start = text.iter().position(u8::is_ascii_digit)?;
    let is_of_numbers = |byte: &u8| byte.is_ascii_digit() || *byte == b',';
    let numbers: Vec<u8> = text.get(start..)?.iter().copied().take_while(is_of_numbers).collect();
    let numbers = String::from_utf8(numbers).ok()?;
    let numbers: Vec<u8> = numbers.split(',').map(|n| n.parse().ok()).collect::<Option<_>>()?;
    let [_, _, _, _, high, low] = numbers[..] else { return None };
    Some(u16::from_be_bytes([high, low])).filter(|&port| port > 0)
}

/// What `EPSV` and `PASV` are answered with by the endpoint.
pub(crate) fn passive_text(address: SocketAddr, is_extended: bool) -> String {
    let port = address.port();
    match (is_extended, address) {
        (false, SocketAddr::V4(v4)) => {
            let [a, b, c, d] = v4.ip().octets();
            format!("227 Entering Passive Mode ({a},{b},{c},{d},{},{})\r\n", port >> 8, port & 255)
        }
        _ => format!("229 Entering Extended Passive Mode (|||{port}|)\r\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn assemble(text: &str) -> Result<Vec<Reply>, String> {
        let mut assembly = Assembly::default();
        let taken = text.lines().map(|line| assembly.take(line.as_bytes()));
        Ok(taken.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    #[test]
    fn answers_of_one_line_and_of_several_are_read() {
        let replies = assemble("220-hello\n 220 not yet\n220x\n220 there\n200\n").expect("are answers");
        let codes: Vec<(u16, usize)> = replies.iter().map(|reply| (reply.code, reply.lines.len())).collect();
        assert_eq!(codes, [(220, 4), (200, 1)]);
        assert_eq!(replies[0].shown(), "220 there");
    }

    #[test]
    fn what_is_no_answer_is_refused_with_what_it_is() {
        for text in ["", "hello", "2x0 no", "999 no", "099 no", "220:no", "SSH-2.0-OpenSSH"] {
            let error = Assembly::default().take(text.as_bytes()).expect_err(text);
            assert!(error.contains("answered"), "{error}");
        }
        let long = format!("220-{}\n", "x".repeat(8000)).repeat(20);
        assert!(assemble(&long).expect_err("too long").contains("more than"));
    }

    #[test]
    fn ports_are_found_in_the_answers_that_servers_give() {
        assert_eq!(extended_port(b"Entering Extended Passive Mode (|||6446|)"), Some(6446));
        assert_eq!(extended_port(b"ok (!!!1!)"), Some(1));
        for text in [&b"(|||0|)"[..], b"(|||70000|)", b"|||6446|", b"(|1|2|6446|)", b"()", b"("] {
            assert_eq!(extended_port(text), None, "{text:?}");
        }
        assert_eq!(passive_port(b"Entering Passive Mode (127,0,0,1,25,46)."), Some(25 * 256 + 46));
        assert_eq!(passive_port(b"=127,0,0,1,25,46"), Some(25 * 256 + 46));
        for text in [&b"(127,0,0,1,25)"[..], b"(127,0,0,1,256,1)", b"(1,2,3,4,0,0)", b"none"] {
            assert_eq!(passive_port(text), None, "{text:?}");
        }
        let address = "127.0.0.1:6446".parse().expect("an address");
        assert_eq!(extended_port(passive_text(address, true).as_bytes()), Some(6446));
        assert_eq!(passive_port(&passive_text(address, false).as_bytes()[4..]), Some(6446));
    }

    proptest! {
        #[test]
        fn any_line_is_taken_without_panic(lines in proptest::collection::vec(any::<Vec<u8>>(), 0..20)) {
            let mut assembly = Assembly::default();
            for line in &lines {
                let _ = assembly.take(line);
                let _ = (extended_port(line), passive_port(line));
            }
        }
    }
}
