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

    /// A marker: it tells of a transfer under way, at any time, and begins none (RFC 959, 4.2.2; GridFTP's 111 to 113).
    pub(crate) fn is_marker(&self) -> bool {
        matches!(self.code, 110..=113)
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
    use super::super::control::Lines;
    use super::*;
    use proptest::prelude::*;
    use vazao_model::Code;
    use vazao_wire::service::Fault;

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

    /// An answer as a server sends it: of one line, or of several, whose inner ones may look like anything but an end.
    fn sent(reply: &Reply, ends: &[u8]) -> Vec<u8> {
        let last = reply.lines.len() - 1;
        let line = |(index, text): (usize, &Vec<u8>)| match (index, last) {
            (0, 0) => [format!("{} ", reply.code).as_bytes(), text, ends].concat(),
            (0, _) => [format!("{}-", reply.code).as_bytes(), text, ends].concat(),
            (index, last) if index == last => [format!("{} ", reply.code).as_bytes(), text, ends].concat(),
            _ => [b" ", &text[..], ends].concat(),
        };
        reply.lines.iter().enumerate().flat_map(line).collect()
    }

    /// The same as it is heard.
    fn heard(reply: &Reply) -> Reply {
        let last = reply.lines.len() - 1;
        let lines = reply.lines.iter().enumerate();
        let lines = lines.map(|(index, text)| match index > 0 && index < last {
            true => [b" ", &text[..]].concat(),
            false => text.clone(),
        });
        Reply { code: reply.code, lines: lines.collect() }
    }

    fn replies() -> impl Strategy<Value = Vec<Reply>> {
        let text = proptest::collection::vec(32u8..127, 0..30);
        let lines = proptest::collection::vec(text, 1..5);
        let reply = (100u16..600, lines).prop_map(|(code, lines)| Reply { code, lines });
        proptest::collection::vec(reply, 0..8)
    }

    /// Hears packets to their end. Returns the answers, and what ended it.
    fn hear(packets: &[&[u8]]) -> (Vec<Reply>, Fault) {
        let (mut lines, mut assembly) = (Lines::default(), Assembly::default());
        let mut replies = Vec::new();
        for packet in packets {
            lines.hear(packet);
            while let Ok(Some(line)) = lines.next() {
                replies.extend(assembly.take(&line).expect("lines of answers"));
            }
        }
        lines.end();
        (replies, lines.next().expect_err("it has ended"))
    }

    proptest! {
        /// A connection that was cut in the middle of an answer is cut, and says nothing else, however the answers
        /// before were divided into packets.
        #[test]
        fn answers_are_heard_as_they_were_sent_however_they_are_divided_and_wherever_they_are_cut(
            replies in replies(), cuts in proptest::collection::vec(0usize..2000, 0..20), is_crlf in any::<bool>(),
            end in 0usize..2000,
        ) {
            let ends: &[u8] = if is_crlf { b"\r\n" } else { b"\n" };
            let sent: Vec<Vec<u8>> = replies.iter().map(|reply| self::sent(reply, ends)).collect();
            let whole = sent.concat();
            let bytes = &whole[..end.min(whole.len())];
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let packets: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let (heard, fault) = hear(&packets);
            let mut left = bytes.len();
            let arrived = sent.iter().take_while(|one| {
                let is_whole = one.len() <= left;
                left = left.saturating_sub(one.len());
                is_whole
            });
            let expected: Vec<Reply> = replies.iter().take(arrived.count()).map(self::heard).collect();
            prop_assert_eq!(heard, expected);
            prop_assert_eq!(fault.code, Code::Disconnected);
        }

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
