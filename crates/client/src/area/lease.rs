//! The lease of the channels that were opened through one [`super::AreaClient`].

use crate::area::Nodes;
use crate::{Error, Result};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use vazao_model::Code;
use vazao_model::limits::{CHANNEL_LEASE_MS, HEARTBEAT_MS};
use vazao_wire::{op, proto};

/// Who has the channels, and how many they are.
pub(super) struct Lease {
    nodes: Arc<Nodes>,
    node: String,
    pub(super) client: u64,
    pub(super) open: AtomicUsize,
    /// Channels that the node could not be told the end of.
    left: Mutex<Vec<u64>>,
    is_kept: AtomicBool,
}

impl Lease {
    pub(super) fn new(nodes: Arc<Nodes>, node: &str) -> Lease {
        let client = nodes.nonce();
        let (open, is_kept) = (AtomicUsize::new(0), AtomicBool::new(false));
        Lease { nodes, node: node.to_owned(), client, open, left: Mutex::default(), is_kept }
    }

    /// Tells the node that we are there.
    pub(super) fn renew(&self) -> Result<()> {
        if self.open.load(Ordering::Relaxed) == 0 {
            // Those go with the lease.
            self.left.lock().clear();
            return Ok(());
        }
        let request = proto::RenewChannelsRequest { client: self.client };
        self.nodes.ask_node::<op::RenewChannels>(&self.node, &request)?;
        loop {
            let left = self.left.lock().pop();
            let Some(channel) = left else { return Ok(()) };
            let request = proto::CloseChannelRequest { channel };
            let ended = self.nodes.ask_node::<op::CloseChannel>(&self.node, &request);
            ended.map(drop).inspect_err(|_| self.leave(channel))?;
        }
    }

    /// The node could not be told that a channel has ended. The lease, which others need, would keep it open.
    pub(super) fn leave(&self, channel: u64) {
        self.left.lock().push(channel);
    }

    /// Has the lease renewed by a thread from now on, where the client may have threads.
    pub(super) fn keep(self: &Arc<Lease>) -> Result<()> {
        if !self.nodes.context.options.background || self.is_kept.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let (weak, clock) = (Arc::downgrade(self), Arc::clone(&self.nodes.context.clock));
        let body = move || {
            let mut waited_ms = 0;
            loop {
                clock.sleep(Duration::from_millis(u64::from(HEARTBEAT_MS)));
                waited_ms += HEARTBEAT_MS;
                let is_due = waited_ms >= CHANNEL_LEASE_MS / 4;
                if is_due {
                    waited_ms = 0;
                }
                if !beat(&weak, is_due) {
                    return;
                }
            }
        };
        let spawned = std::thread::Builder::new().name("vazao-lease".to_owned()).spawn(body);
        let refused = |e: std::io::Error| Error::new(Code::Io, format!("starting a thread: {e}"));
        spawned.map(drop).map_err(refused)
    }
}

/// False when the lease is no longer needed.
fn beat(lease: &Weak<Lease>, is_due: bool) -> bool {
    let Some(lease) = lease.upgrade() else { return false };
    if is_due && let Err(error) = lease.renew() {
        tracing::warn!(node = lease.node, %error, "channels could not be renewed");
    }
    true
}
