//! Where a new layout puts its objects: the distribution that a hint asks for, over placement groups on targets that
//! serve now.

mod groups;

pub(crate) use groups::Groups;

use crate::service::context::Context;
use crate::service::fault::Outcome;
use crate::sessions;
use vazao_model::distribution::{Distribution, Pattern, Strips};
use vazao_model::layout::{Layout, LayoutError};
use vazao_model::{Code, InodeId, LayoutHint, TargetId};
use vazao_wire::service::Fault;

/// A layout for file `id` of generation `generation`, as `hint` (in effect: nothing is inherited any more) asks for.
/// `host`: the writer's machine, 0 where that is not known. While a client is there that knows no placement groups, the
/// layout has none.
pub(crate) fn layout(
    context: &mut Context<'_>,
    id: InodeId,
    generation: u32,
    hint: &LayoutHint,
    host: u64,
) -> Outcome<Layout> {
    let follows = sessions::all_follow_groups(context)?;
    let service = context.service;
    let broken = |e: LayoutError| Fault::new(Code::Corrupt, format!("layout hint of inode {id}: {e}"));
    let unit_bytes = hint.stripe_unit_bytes;
    let (distribution, targets) = match &hint.pattern {
        None | Some(Pattern::Stripe) => {
            (Distribution::SimpleStripe { unit_bytes }, service.choose_targets(id, hint.width)?)
        }
        Some(Pattern::Strips(strips)) => {
            let strips = Strips::new(strips.clone()).map_err(broken)?;
            let width = strips.width();
            let targets = repeated(service.choose_targets(id, width)?, width);
            (Distribution::VaryingStrips(strips), targets)
        }
        Some(Pattern::Groups { groups, factor }) => {
            let mut targets = service.choose_targets(id, hint.width)?;
            let groups = (*groups).min(targets.len() as u32).max(1);
            // All groups are of one size: what does not fill another row of them is left out.
            targets.truncate(targets.len() - targets.len() % groups as usize);
            (Distribution::Groups { unit_bytes, groups, factor: *factor }, targets)
        }
        Some(Pattern::Local) => {
            let near = service.choose_target_near(id, host)?;
            let is_away = near.is_none();
            let targets = near.map_or_else(|| service.choose_targets(id, 1), |target| Ok(vec![target]))?;
            (Distribution::Local { is_away }, targets)
        }
    };
    Layout::new(generation, distribution, service.groups_on(id, &targets, follows)).map_err(broken)
}

/// As many targets as there are slots: strips keep their sizes also where several have to share a target.
fn repeated(targets: Vec<TargetId>, width: u32) -> Vec<TargetId> {
    targets.into_iter().cycle().take(width as usize).collect()
}
