//! Where a new layout puts its objects: the distribution that a hint asks for, over placement groups on targets that
//! serve now, of the zone that the hint wants (docs/decisions/zones.md).

mod copies;
mod groups;
pub(crate) mod missed;
mod spread;

pub(crate) use copies::{Choices, Wanted};
pub(crate) use groups::{Groups, PlacementGroup, led_wanted};
pub(crate) use spread::{Candidate, Spread};

use crate::schema::records::LayoutRecord;
use crate::service::MetaService;
use crate::service::context::Context;
use crate::service::fault::Outcome;
use crate::sessions;
use vazao_model::distribution::{Distribution, Pattern, Strips};
use vazao_model::layout::{Layout, LayoutError};
use vazao_model::{Code, GroupId, InodeId, LayoutHint, TargetId, zone};
use vazao_wire::service::Fault;

/// Who writes a file's first bytes, as its request says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Writer<'a> {
    /// Its machine; 0 where that is not known.
    pub(crate) host: u64,
    /// The zone that it is in; empty: in none.
    pub(crate) zone: &'a str,
}

impl<'a> Writer<'a> {
    /// The writer that a request names. Errors: a zone that cannot be one.
    pub(crate) fn of(host: u64, zone: &'a str) -> Outcome<Writer<'a>> {
        match zone::check_name(zone) {
            Err(why) if !zone.is_empty() => Err(Fault::new(Code::Invalid, why)),
            _ => Ok(Writer { host, zone }),
        }
    }

    /// The zone that files of this hint are to lie in; `None`: anywhere.
    pub(crate) fn zone_wanted(&self, hint: &'a LayoutHint) -> Option<&'a str> {
        hint.placement.as_ref().and_then(|placement| placement.zone(self.zone))
    }
}

/// Where the slots of one file can go.
enum Choice<'a> {
    /// One copy: targets, and on each a group of that one, if clients know groups.
    One {
        follows_groups: bool,
        id: InodeId,
        zone: Option<&'a str>,
        host: u64,
    },
    Several(Choices),
}

impl Choice<'_> {
    fn targets(&self, service: &MetaService, width: u32) -> Outcome<Vec<TargetId>> {
        match self {
            Choice::One { id, zone, .. } => service.choose_targets(*id, width, *zone),
            Choice::Several(choices) => Ok(choices.targets(width)),
        }
    }

    fn near(&self, service: &MetaService) -> Option<TargetId> {
        match self {
            Choice::One { id, zone, host, .. } => service.choose_target_near(*id, *host, *zone),
            Choice::Several(choices) => choices.near(),
        }
    }

    fn groups_on(&self, service: &MetaService, targets: &[TargetId]) -> Vec<GroupId> {
        match self {
            Choice::One { id, follows_groups, .. } => service.groups_on(*id, targets, *follows_groups),
            Choice::Several(choices) => choices.groups_on(targets),
        }
    }
}

/// What a file with this hint can take. One with several copies has placement groups also while a client is there that
/// knows none: that one refuses it by the version of its layout.
fn choice<'a>(
    context: &mut Context<'_>,
    id: InodeId,
    hint: &'a LayoutHint,
    writer: &'a Writer<'_>,
) -> Outcome<Choice<'a>> {
    let (zone, host) = (writer.zone_wanted(hint), writer.host);
    if hint.copies < 2 {
        let follows_groups = sessions::all_follow_groups(context)?;
        return Ok(Choice::One { follows_groups, id, zone, host });
    }
    let (copies, now_ns) = (hint.copies as usize, context.service.clock().now_ns());
    let wanted = Wanted { inode: id, copies, zone, host, now_ns };
    context.service.cluster().choices(&wanted).map(Choice::Several)
}

/// A layout for file `id` of generation `generation`, as `hint` (in effect: nothing is inherited any more) asks for.
/// Where no target of the zone that it asks for has room, targets of all zones are taken. While a client is there that
/// knows no placement groups, the layout of a file with one copy has none.
pub(crate) fn layout(
    context: &mut Context<'_>,
    id: InodeId,
    generation: u32,
    hint: &LayoutHint,
    writer: &Writer<'_>,
) -> Outcome<Layout> {
    let choice = choice(context, id, hint, writer)?;
    let service = context.service;
    let broken = |e: LayoutError| Fault::new(Code::Corrupt, format!("layout hint of inode {id}: {e}"));
    let unit_bytes = hint.stripe_unit_bytes;
    let (distribution, targets) = match &hint.pattern {
        None | Some(Pattern::Stripe) => {
            (Distribution::SimpleStripe { unit_bytes }, choice.targets(service, hint.width)?)
        }
        Some(Pattern::Strips(strips)) => {
            let strips = Strips::new(strips.clone()).map_err(broken)?;
            let width = strips.width();
            let targets = repeated(choice.targets(service, width)?, width);
            (Distribution::VaryingStrips(strips), targets)
        }
        Some(Pattern::Groups { groups, factor }) => {
            let mut targets = choice.targets(service, hint.width)?;
            let groups = (*groups).min(targets.len() as u32).max(1);
            // All groups are of one size: what does not fill another row of them is left out.
            targets.truncate(targets.len() - targets.len() % groups as usize);
            (Distribution::Groups { unit_bytes, groups, factor: *factor }, targets)
        }
        Some(Pattern::Local) => {
            let near = choice.near(service);
            let is_away = near.is_none();
            let targets = near.map_or_else(|| choice.targets(service, 1), |target| Ok(vec![target]))?;
            (Distribution::Local { is_away }, targets)
        }
    };
    Layout::new(generation, distribution, choice.groups_on(service, &targets)).map_err(broken)
}

/// Notes that a file got a layout in which it has fewer copies now than it was to have.
pub(crate) fn note_copies(context: &Context<'_>, id: InodeId, layout: &LayoutRecord) {
    let service = context.service;
    let groups: Vec<GroupId> = layout.groups.iter().copied().map(GroupId).collect();
    let (wanted, copies) = service.cluster().copies_of(&groups);
    if copies < wanted {
        service.metrics().short_of_copies.note(id, (copies, wanted), service.clock().now_ns());
    }
}

/// The zone that a file misses with this layout, which was to lie in `zone`; empty: none. That is noted.
pub(crate) fn missed(
    context: &Context<'_>,
    id: InodeId,
    layout: &LayoutRecord,
    zone: Option<&str>,
) -> String {
    let service = context.service;
    let groups: Vec<GroupId> = layout.groups.iter().copied().map(GroupId).collect();
    let Some(zone) = zone.filter(|zone| !service.cluster().is_in_zone(&groups, zone)) else {
        return String::new();
    };
    service.metrics().missed_zones.note(zone, id, service.clock().now_ns());
    zone.to_owned()
}

/// As many targets as there are slots: strips keep their sizes also where several have to share a target.
fn repeated(targets: Vec<TargetId>, width: u32) -> Vec<TargetId> {
    targets.into_iter().cycle().take(width as usize).collect()
}
