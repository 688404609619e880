//! The protocol over TCP: a server of few event-loop threads, and a client whose callers drive their own connections.

mod ahead;
mod bounds;
mod buffers;
mod dial;
mod egress;
mod event_loop;
mod in_flight;
mod inbound;
mod inbox;
mod lines;
mod link;
mod outbound;
mod pacing;
mod peer;
mod receiver;
mod served;
mod server;
mod slow_requests;
mod socket;
mod table;
mod takeover;
mod unanswered;
mod watched;

pub use dial::{is_way_lost, probe_way};
pub use egress::SharedLink;
pub use peer::{TcpTransport, TransportOptions};
pub use server::{Server, ServerOptions};

#[cfg(test)]
mod ahead_tests;
#[cfg(test)]
mod bounds_tests;
#[cfg(test)]
mod entrance_tests;
#[cfg(test)]
mod lines_tests;
#[cfg(test)]
mod takeover_tests;
#[cfg(test)]
mod tended_tests;
#[cfg(test)]
mod tests;
