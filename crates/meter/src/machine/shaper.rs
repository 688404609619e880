//! Rates of token buckets (`tbf`) on the interfaces of this network namespace, asked from the kernel over its routing
//! socket (rtnetlink(7)): what was set with `tc` is a ceiling that no driver states.

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with, sockopt,
};
use std::collections::BTreeMap;
use std::time::Duration;

const RTM_NEWQDISC: u16 = 36;
const RTM_GETQDISC: u16 = 38;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
/// Sizes of `nlmsghdr`, `tcmsg` and `rtattr`.
const HEADER_BYTES: usize = 16;
const BODY_BYTES: usize = 20;
const ATTRIBUTE_BYTES: usize = 4;
/// Where the rate in bytes a second is in `tc_tbf_qopt`, which begins with a `tc_ratespec`.
const RATE_AT: usize = 8;
/// A rate beyond 32 bits is in an attribute of its own, and here the largest number.
const RATE_ELSEWHERE: u32 = u32::MAX;

/// The kernel answers in pieces of up to 32 KiB.
const ANSWER_BYTES: usize = 32 * 1024;
/// Pieces read of one answer: thousands of interfaces.
const PIECES_MAX: usize = 64;
/// The kernel answers at once; this only keeps a surprise from hanging us.
const TIMEOUT: Duration = Duration::from_millis(200);

/// Bytes a second by interface index; empty where the kernel does not answer.
pub(super) fn rates() -> BTreeMap<i32, f64> {
    ask().unwrap_or_default()
}

fn ask() -> rustix::io::Result<BTreeMap<i32, f64>> {
    // No protocol is NETLINK_ROUTE.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(TIMEOUT))?;
    let mut request = Vec::with_capacity(HEADER_BYTES + BODY_BYTES);
    request.extend_from_slice(&((HEADER_BYTES + BODY_BYTES) as u32).to_ne_bytes());
    request.extend_from_slice(&RTM_GETQDISC.to_ne_bytes());
    request.extend_from_slice(&(NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    request.resize(HEADER_BYTES + BODY_BYTES, 0);
    send(&socket, &request, SendFlags::empty())?;
    let mut rates = BTreeMap::new();
    let mut answer = vec![0; ANSWER_BYTES];
    for _ in 0..PIECES_MAX {
        let (_, length) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
        let goes_on = read(answer.get(..length).unwrap_or_default(), &mut rates);
        if length == 0 || !goes_on {
            break;
        }
    }
    Ok(rates)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_ne_bytes)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at.checked_add(2)?)?.try_into().ok().map(u16::from_ne_bytes)
}

/// Takes the messages of one piece; false when the answer ends with it.
fn read(mut piece: &[u8], rates: &mut BTreeMap<i32, f64>) -> bool {
    while let (Some(length), Some(kind)) = (word(piece, 0), half(piece, 4)) {
        let length = length as usize;
        // Also a length that ends before the header does: nothing sensible can follow.
        let Some(message) = piece.get(HEADER_BYTES..length) else { return false };
        match kind {
            NLMSG_DONE | NLMSG_ERROR => return false,
            RTM_NEWQDISC => {
                let index = word(message, 4).map(|index| index as i32);
                let rate = message.get(BODY_BYTES..).and_then(bucket_rate);
                if let (Some(index), Some(rate)) = (index, rate) {
                    rates.insert(index, rate);
                }
            }
            _ => {}
        }
        piece = piece.get(aligned(length)..).unwrap_or_default();
    }
    true
}

fn aligned(length: usize) -> usize {
    length.saturating_add(3) & !3
}

/// The value of an attribute among attributes.
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let (length, kind) = (usize::from(half(bytes, 0)?), half(bytes, 2)?);
        let value = bytes.get(ATTRIBUTE_BYTES..length)?;
        if kind == wanted {
            return Some(value);
        }
        bytes = bytes.get(aligned(length)..)?;
    }
}

/// The rate of a queueing discipline that is a token bucket.
fn bucket_rate(attributes: &[u8]) -> Option<f64> {
    let kind = attribute(attributes, TCA_KIND)?;
    if kind.strip_suffix(b"\0").unwrap_or(kind) != b"tbf" {
        return None;
    }
    let options = attribute(attributes, TCA_OPTIONS)?;
    match word(attribute(options, TCA_TBF_PARMS)?, RATE_AT)? {
        RATE_ELSEWHERE => {
            let large = attribute(options, TCA_TBF_RATE64)?;
            large.try_into().ok().map(|bytes| u64::from_ne_bytes(bytes) as f64)
        }
        rate => Some(f64::from(rate)).filter(|rate| *rate > 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn with_header(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.resize(HEADER_BYTES, 0);
        bytes.extend_from_slice(body);
        bytes
    }

    fn with_length(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((ATTRIBUTE_BYTES + value.len()) as u16).to_ne_bytes().to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(value);
        bytes.resize(aligned(bytes.len()), 0);
        bytes
    }

    fn discipline(index: u32, kind: &[u8], rate: u32) -> Vec<u8> {
        let mut parameters = vec![0; 36];
        parameters[RATE_AT..RATE_AT + 4].copy_from_slice(&rate.to_ne_bytes());
        let mut options = with_length(TCA_TBF_PARMS, &parameters);
        options.extend(with_length(TCA_TBF_RATE64, &5_000_000_000u64.to_ne_bytes()));
        let mut body = vec![0; BODY_BYTES];
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        body.extend(with_length(TCA_KIND, kind));
        body.extend(with_length(TCA_OPTIONS, &options));
        with_header(RTM_NEWQDISC, &body)
    }

    #[test]
    fn token_buckets_are_found_among_other_disciplines() {
        let mut piece = discipline(2, b"noqueue\0", 7);
        piece.extend(discipline(3, b"tbf\0", 12_500_000));
        piece.extend(discipline(4, b"tbf\0", RATE_ELSEWHERE));
        let mut rates = BTreeMap::new();
        assert!(read(&piece, &mut rates));
        assert_eq!(rates, BTreeMap::from([(3, 12.5e6), (4, 5e9)]));
        assert!(!read(&with_header(NLMSG_DONE, &[0; 4]), &mut rates));
    }

    #[test]
    fn this_machine_answers() {
        ask().expect("the kernel has a routing socket");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            read(&bytes, &mut BTreeMap::new());
            let mut damaged = discipline(3, b"tbf\0", 1);
            for (place, byte) in damaged.iter_mut().zip(&bytes) {
                *place ^= byte;
            }
            read(&damaged, &mut BTreeMap::new());
        }
    }
}
