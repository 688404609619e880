//! What a request asks for, or why it is refused (RFC 9112).

use httparse::{EMPTY_HEADER, Header, Request, Status};
use vazao_model::limits::{HTTP_HEAD_BYTES_MAX, HTTP_HEADERS_MAX};

/// A request that can be answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Asked {
    /// Without what follows a `?`.
    pub(super) path: String,
    /// `HEAD`: the answer without its body.
    pub(super) head_only: bool,
    /// The connection may be used again.
    pub(super) keeps: bool,
}

/// Why a request is refused: the status, and a line for people. The connection ends: there may be a body behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Refused {
    pub(super) status: u16,
    pub(super) why: &'static str,
}

const fn refused(status: u16, why: &'static str) -> Refused {
    Refused { status, why }
}

const TOO_LONG: Refused = refused(431, "the header is too long");

/// Takes the first request in `bytes` apart. Returns it with its length; `None` while it is not whole.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Asked, usize)>, Refused> {
    let mut headers = [EMPTY_HEADER; HTTP_HEADERS_MAX];
    let mut request = Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(Status::Complete(length)) if length <= HTTP_HEAD_BYTES_MAX => length,
        Ok(Status::Partial) if bytes.len() < HTTP_HEAD_BYTES_MAX => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(TOO_LONG),
        Err(httparse::Error::Version) => return Err(refused(505, "HTTP/1.1 is spoken here")),
        Err(_) => return Err(refused(400, "that is no HTTP request")),
    };
    asked(&request).map(|asked| Some((asked, length)))
}

fn asked(request: &Request<'_, '_>) -> Result<Asked, Refused> {
    let headers = &*request.headers;
    let has_body = has_body(headers)?;
    let head_only = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(refused(405, "GET and HEAD are served here")),
    };
    if has_body {
        return Err(refused(413, "a request has no body here"));
    }
    let is_1_1 = request.version == Some(1);
    let hosts = values(headers, "host").count();
    if hosts > 1 || (is_1_1 && hosts == 0) {
        return Err(refused(400, "one Host header, please"));
    }
    let path = path(request.path.unwrap_or_default()).ok_or(refused(400, "that is no path"))?;
    let keeps = if is_1_1 { !says(headers, b"close") } else { says(headers, b"keep-alive") };
    Ok(Asked { path: path.to_owned(), head_only, keeps })
}

fn values<'a>(headers: &'a [Header<'a>], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
}

/// Whether the header `Connection` has `word` among its words.
fn says(headers: &[Header<'_>], word: &[u8]) -> bool {
    let words = values(headers, "connection").flat_map(|value| value.split(|&byte| byte == b','));
    words.into_iter().any(|other| other.trim_ascii().eq_ignore_ascii_case(word))
}

/// Whether bytes of a body follow.
fn has_body(headers: &[Header<'_>]) -> Result<bool, Refused> {
    if values(headers, "transfer-encoding").next().is_some() {
        return Ok(true);
    }
    let mut has_body = false;
    for value in values(headers, "content-length") {
        if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
            return Err(refused(400, "a Content-Length that is no number"));
        }
        // However large the number is: it is not needed.
        has_body |= value.iter().any(|&digit| digit != b'0');
    }
    Ok(has_body)
}

/// The path of a request's target, which may name the server too (`http://HOST/PATH`).
fn path(target: &str) -> Option<&str> {
    let from_path = match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').and_then(|start| rest.get(start..)).unwrap_or("/"),
        None => target,
    };
    let path = from_path.split('?').next().unwrap_or_default();
    path.starts_with('/').then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(request: &str) -> u16 {
        parse(request.as_bytes()).expect_err(request).status
    }

    fn whole(request: &str) -> Asked {
        let (asked, length) = parse(request.as_bytes()).expect(request).expect(request);
        assert_eq!(length, request.len());
        asked
    }

    #[test]
    fn what_scrapers_and_people_send_is_understood() {
        let asked = whole(
            "GET /metrics HTTP/1.1\r\nHost: n1:9100\r\nUser-Agent: Prometheus/2.53.0\r\nAccept: text/plain;version=0.0.4\r\n\
             Accept-Encoding: gzip\r\nX-Prometheus-Scrape-Timeout-Seconds: 10\r\n\r\n",
        );
        assert_eq!(asked, Asked { path: "/metrics".to_owned(), head_only: false, keeps: true });
        let asked = whole("HEAD /healthz?verbose HTTP/1.1\r\nHost: x\r\nConnection: foo, Close\r\n\r\n");
        assert_eq!(asked, Asked { path: "/healthz".to_owned(), head_only: true, keeps: false });
        assert!(!whole("GET / HTTP/1.0\r\n\r\n").keeps);
        assert!(whole("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").keeps);
        assert_eq!(whole("GET http://n1:9100/metrics HTTP/1.1\r\nHost: n1\r\n\r\n").path, "/metrics");
        assert_eq!(whole("GET http://n1 HTTP/1.1\r\nHost: n1\r\nContent-Length: 0\r\n\r\n").path, "/");
    }

    #[test]
    fn half_a_request_is_waited_for() {
        let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
        for length in 0..request.len() {
            assert_eq!(parse(&request[..length]), Ok(None), "{length}");
        }
        let two = [&request[..], request].concat();
        assert_eq!(parse(&two).expect("valid").map(|(_, length)| length), Some(request.len()));
    }

    #[test]
    fn what_is_not_served_is_refused_by_its_number() {
        let with = |method: &str, header: &str| {
            status(&format!("{method} / HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n"))
        };
        assert_eq!(with("POST", "Content-Length: 10000000000000"), 405);
        assert_eq!(with("DELETE", "X: y"), 405);
        assert_eq!(with("GET", "Content-Length: 1"), 413);
        assert_eq!(with("GET", "Content-Length: 99999999999999999999999999"), 413);
        assert_eq!(with("GET", "Transfer-Encoding: chunked"), 413);
        assert_eq!(with("GET", "Content-Length: -1"), 400);
        assert_eq!(with("GET", "Content-Length: 0\r\nContent-Length: 5"), 413);
        assert_eq!(with("GET", "Host: y"), 400);
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), 400);
        assert_eq!(status("GET nowhere HTTP/1.1\r\nHost: x\r\n\r\n"), 400);
        assert_eq!(status("GET / HTTP/2.0\r\nHost: x\r\n\r\n"), 505);
        assert_eq!(status("\u{1}\u{2}\r\n\r\n"), 400);
        assert_eq!(with("GET", &"A: b\r\n".repeat(HTTP_HEADERS_MAX)), 431);
        assert_eq!(with("GET", &format!("A: {}", "b".repeat(HTTP_HEAD_BYTES_MAX))), 431);
        assert_eq!(status(&format!("GET /{}", "a".repeat(HTTP_HEAD_BYTES_MAX))), 431);
    }
}
