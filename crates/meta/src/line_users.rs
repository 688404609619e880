//! Which sessions use lines between zones that carry little: each gets its share.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use vazao_model::SessionId;
use vazao_model::limits::HEARTBEAT_MS;
use vazao_wire::proto;

/// Directions of lines that one session can use at the same time.
const USES_MAX: usize = 64;

/// A use counts until the second renewal that does not repeat it is due.
const KEPT_NS: u64 = 2 * HEARTBEAT_MS as u64 * 1_000_000 + 500_000_000;

/// One direction of a line: from a zone, to a zone.
type Direction = (String, String);

/// In memory only: after a restart the next renewals say it anew.
#[derive(Default)]
pub(crate) struct LineUsers {
    uses: Mutex<BTreeMap<SessionId, (u64, Vec<Direction>)>>,
}

impl LineUsers {
    /// Takes note of what a session uses, and says how many share each of it.
    pub(crate) fn share(
        &self,
        session: SessionId,
        told: &[proto::LineUse],
        now_ns: u64,
    ) -> Vec<proto::LineUse> {
        let told = &told[..told.len().min(USES_MAX)];
        let mut uses = self.uses.lock();
        match told.is_empty() {
            true => _ = uses.remove(&session),
            false => {
                let directions = told.iter().map(|told| (told.from.clone(), told.to.clone())).collect();
                uses.insert(session, (now_ns, directions));
            }
        }
        uses.retain(|_, (told_ns, _)| now_ns.saturating_sub(*told_ns) <= KEPT_NS);
        let count = |told: &proto::LineUse| {
            let is_it = |(from, to): &Direction| *from == told.from && *to == told.to;
            let sharing = uses.values().filter(|(_, directions)| directions.iter().any(is_it)).count();
            proto::LineUse { sessions: sharing as u32, ..told.clone() }
        };
        told.iter().map(count).collect()
    }

    /// A session has ended.
    pub(crate) fn forget(&self, session: SessionId) {
        self.uses.lock().remove(&session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(users: &LineUsers, session: u64, uses: &[(&str, &str)], now_ns: u64) -> Vec<u32> {
        let told: Vec<proto::LineUse> = uses
            .iter()
            .map(|(from, to)| proto::LineUse { from: (*from).into(), to: (*to).into(), sessions: 0 })
            .collect();
        users.share(SessionId(session), &told, now_ns).iter().map(|line| line.sessions).collect()
    }

    #[test]
    fn each_direction_of_a_line_has_users_of_its_own() {
        let users = LineUsers::default();
        assert_eq!(shared(&users, 1, &[("rio", "bra")], 0), [1]);
        assert_eq!(shared(&users, 2, &[("bra", "rio"), ("rio", "bra")], 0), [1, 2]);
        assert_eq!(shared(&users, 3, &[("bra", "rio")], 0), [2]);
        assert_eq!(shared(&users, 3, &[], 0), []);
        assert_eq!(shared(&users, 3, &[("bra", "rio")], 0), [2], "it went on");
        users.forget(SessionId(2));
        assert_eq!(shared(&users, 3, &[("bra", "rio")], 0), [1]);
    }

    #[test]
    fn who_uses_a_line_no_more_is_forgotten_soon_and_no_session_names_thousands() {
        let users = LineUsers::default();
        assert_eq!(shared(&users, 1, &[("rio", "bra")], 0), [1]);
        assert_eq!(shared(&users, 2, &[("rio", "bra")], KEPT_NS), [2]);
        assert_eq!(shared(&users, 2, &[("rio", "bra")], KEPT_NS + 1), [1]);
        let many = vec![("rio", "bra"); 1000];
        assert_eq!(shared(&users, 2, &many, KEPT_NS).len(), USES_MAX);
    }
}
