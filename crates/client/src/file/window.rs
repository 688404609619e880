//! How many bytes of one file to have under way.

use super::inode::OpenInode;
use super::staging::{self, IN_FLIGHT_A_SERVER, transfer_bytes};
use crate::servers::Server;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vazao_model::Layout;

/// Bytes of the file worth having in flight, at most `limit`: a few requests for each server, and more where links
/// are long.
pub(super) fn window_bytes(open: &OpenInode, layout: &Layout, limit: usize) -> u64 {
    let usual = staging::window_bytes(layout, limit);
    let a_server = transfer_bytes(layout) * IN_FLIGHT_A_SERVER;
    if open.core.data.pace_bytes_max.load(Ordering::Relaxed) <= a_server {
        return usual;
    }
    let mut servers: Vec<Arc<Server>> = Vec::with_capacity(layout.groups.len());
    for group in &layout.groups {
        if let Some(server) = open.core.servers.server(*group)
            && !servers.iter().any(|known| known.node == server.node)
        {
            servers.push(server);
        }
    }
    let wanted = servers.iter().map(|server| server.pace.wanted_bytes().max(a_server));
    let wanted = wanted.fold(0, u64::saturating_add);
    usual.max(wanted.min(limit as u64))
}
