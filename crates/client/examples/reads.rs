//! Reads of a file by the Rust library, timed: what the libraries for C and Python are compared with.
//!
//! `./x bench-library` starts it. It is the same program as `crates/capi/bench/reads.c` and
//! `crates/python/bench/reads.py`: `reads FILE` connects and answers each line of its input with the nanoseconds that
//! it took, the opening of the file included.
//!
//! - `stream BYTES`: the whole file, in calls of so many bytes into one buffer
//! - `list BYTES OFFSETS`: a range of so many bytes at each offset, in one call; OFFSETS is a file of 64-bit numbers
//! - `each BYTES OFFSETS FIRST STEP`: each STEP-th of them from the FIRST on, in a call of its own
//!
//! The 64-bit number at each multiple of eight of the file is its own offset: wrong bytes end the program.

use std::error::Error;
use std::io::{BufRead, Write};
use vazao_client::{Client, Config, OpenMode};
use vazao_meter::{Clock, SystemClock};
use vazao_model::VolumePath;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The number that a slice of eight bytes is.
fn number(bytes: &[u8]) -> Outcome<u64> {
    Ok(u64::from_le_bytes(bytes.try_into()?))
}

/// Compares the first and the last number of what was read.
fn check(bytes: &[u8], offset: u64) -> Outcome<()> {
    let last = bytes.len().checked_sub(8).ok_or("less than a number was read")?;
    if number(&bytes[..8])? != offset || number(&bytes[last..])? != offset + last as u64 {
        return Err(format!("wrong bytes at offset {offset}: is the file that of ./x bench-library?").into());
    }
    Ok(())
}

fn offsets(file: &str) -> Outcome<Vec<u64>> {
    std::fs::read(file)?.chunks_exact(8).map(number).collect()
}

/// Answers one line.
fn answer(client: &Client, path: &VolumePath, line: &str) -> Outcome<u64> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (kind, bytes) = match words[..] {
        [kind, bytes, ..] => (kind, bytes.parse::<usize>()?),
        _ => return Err(format!("not a request: {line}").into()),
    };
    let places = words.get(2).map_or(Ok(Vec::new()), |file| offsets(file))?;
    let mut buffer = vec![0; if kind == "list" { bytes * places.len() } else { bytes }];
    let started_ns = SystemClock.now_ns();
    let (_, file) = client.open_path(path, OpenMode { read: true, write: false, truncate: false })?;
    match (kind, &words[2..]) {
        ("stream", []) => {
            let mut offset = 0;
            loop {
                let read = file.read_at(&mut buffer, offset)?;
                if read == 0 {
                    break;
                }
                check(&buffer[..read], offset)?;
                offset += read as u64;
            }
        }
        ("list", [_]) => {
            let mut parts: Vec<_> = places.iter().copied().zip(buffer.chunks_mut(bytes)).collect();
            file.read_list(&mut parts)?;
            for (offset, part) in &parts {
                check(part, *offset)?;
            }
        }
        ("each", [_, first, step]) => {
            for offset in places.into_iter().skip(first.parse()?).step_by(step.parse()?) {
                let read = file.read_at(&mut buffer, offset)?;
                check(&buffer[..read], offset)?;
            }
        }
        _ => return Err(format!("not a request: {line}").into()),
    }
    Ok(SystemClock.now_ns() - started_ns)
}

fn main() -> Outcome<()> {
    let name = std::env::args().nth(1).ok_or("usage: reads FILE")?;
    let path = VolumePath::parse(name.as_bytes()).map_err(|code| format!("{name}: {code}"))?;
    let client = Client::connect(&Config::load(&Config::default_path())?)?;
    let mut output = std::io::stdout();
    writeln!(output, "ready")?;
    for line in std::io::stdin().lock().lines() {
        writeln!(output, "{}", answer(&client, &path, &line?)?)?;
    }
    Ok(())
}
