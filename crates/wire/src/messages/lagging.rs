//! How far targets lag, between messages and the types of the model.

use crate::proto;
use vazao_model::cluster::lagging::{CatchUpLimit, CatchUpWait, LaggingTarget, ShortBytes};
use vazao_model::{NodeId, TargetId};

impl From<&LaggingTarget> for proto::LaggingTarget {
    fn from(l: &LaggingTarget) -> Self {
        let short = |s: &ShortBytes| proto::ShortBytes { copies: s.copies, of: s.of, bytes: s.bytes };
        let limit = |l: CatchUpLimit| proto::CatchUpLimit {
            wait: l.wait as u32,
            primary: l.primary.map_or(0, |node| node.0),
            percent: l.percent,
        };
        Self {
            target: l.target.0,
            groups: l.groups,
            short: l.short.iter().map(short).collect(),
            left_bytes: l.left_bytes,
            bytes_per_second: l.bytes_per_second,
            left_ms: l.left_ms,
            limit: l.limit.map(limit),
        }
    }
}

impl From<proto::LaggingTarget> for LaggingTarget {
    fn from(l: proto::LaggingTarget) -> Self {
        let short = |s: proto::ShortBytes| ShortBytes { copies: s.copies, of: s.of, bytes: s.bytes };
        // One that a newer version knows is none that this one could name.
        let limit = |l: proto::CatchUpLimit| {
            Some(CatchUpLimit {
                wait: CatchUpWait::from_number(l.wait)?,
                primary: Some(NodeId(l.primary)).filter(|node| node.0 != 0),
                percent: l.percent,
            })
        };
        Self {
            target: TargetId(l.target),
            groups: l.groups,
            short: l.short.into_iter().map(short).collect(),
            left_bytes: l.left_bytes,
            bytes_per_second: l.bytes_per_second,
            left_ms: l.left_ms,
            limit: l.limit.and_then(limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_a_target_lags_survives_the_wire_and_an_unknown_limit_is_none() {
        let limits = CatchUpWait::ALL.map(|wait| {
            let primary = (!wait.is_theirs()).then_some(NodeId(4));
            Some(CatchUpLimit { wait, primary, percent: 63 })
        });
        for (limit, left_ms) in
            limits.into_iter().zip([Some(0), Some(17_000)].into_iter().cycle()).chain([(None, None)])
        {
            let short =
                vec![ShortBytes { copies: 1, of: 3, bytes: 7 }, ShortBytes { copies: 2, of: 3, bytes: 9 }];
            let lagging = LaggingTarget {
                target: TargetId(3),
                groups: 5,
                short,
                left_bytes: 11,
                bytes_per_second: 13,
                left_ms,
                limit,
            };
            assert_eq!(LaggingTarget::from(proto::LaggingTarget::from(&lagging)), lagging);
        }
        let newer = proto::CatchUpLimit { wait: 7, primary: 1, percent: 99 };
        let newer = proto::LaggingTarget { limit: Some(newer), ..Default::default() };
        assert_eq!(LaggingTarget::from(newer).limit, None);
    }
}
