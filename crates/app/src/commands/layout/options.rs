//! Distributions as they are typed and shown.

use crate::failure::{Failure, Outcome};
use crate::format;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use vazao_model::cluster::membership::COPIES_MAX;
use vazao_model::distribution::{Pattern, Strip};
use vazao_model::layout::check_stripe_unit;
use vazao_model::limits::STRIPE_WIDTH_MAX;
use vazao_model::{LayoutHint, Placement};

/// Groups unless `--groups` says otherwise.
const GROUPS_DEFAULT: u32 = 2;

/// Units a target in one turn of its group unless `--factor` says otherwise.
const FACTOR_DEFAULT: u32 = 8;

/// How new files are to be laid out.
#[derive(Debug, Args)]
pub(super) struct HintOptions {
    /// Bytes that go to one target before the next one's turn: a multiple of 64K; 0 inherits
    #[arg(long, value_name = "SIZE", value_parser = vazao_model::size::parse_size)]
    stripe_unit: Option<u64>,
    /// Targets that a file is spread over; 0 inherits
    #[arg(long, value_name = "N")]
    width: Option<u32>,
    /// How targets take turns
    #[arg(long, value_name = "KIND")]
    distribution: Option<Kind>,
    /// The turns of one round, for --distribution strips: sizes for one target after the other, or SLOT:SIZE
    #[arg(long, value_name = "[SLOT:]SIZE,…", value_delimiter = ',')]
    strips: Vec<String>,
    /// Groups of targets, for --distribution groups [default: 2]
    #[arg(long, value_name = "N")]
    groups: Option<u32>,
    /// Stripe units for each target of a group before the next group's turn, for --distribution groups [default: 8]
    #[arg(long, value_name = "N")]
    factor: Option<u32>,
    /// Which targets they go to: near-writer (of the zone of the client that writes), zone=NAME, everywhere, or
    /// inherit. Where the zone has no room they go everywhere
    #[arg(long, value_name = "PLACE", value_parser = parse_place)]
    place: Option<Place>,
    /// Copies of each file on different hosts: 1, 2 or 3, or inherit. A file of 2 copies takes twice the space
    #[arg(long, value_name = "N", value_parser = parse_copies)]
    copies: Option<Copies>,
    /// Copies may lie on several servers of one host, in the whole volume from now on. For trying out: that host takes
    /// all copies with it
    #[arg(long, requires = "copies")]
    same_host: bool,
}

/// A number of copies as it is typed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Copies {
    /// As the directory above has it.
    Inherit,
    Of(u32),
}

fn parse_copies(text: &str) -> Result<Copies, String> {
    match text.parse::<u32>() {
        _ if text == "inherit" => Ok(Copies::Inherit),
        Ok(copies) => check_copies(copies).map(|()| Copies::Of(copies)),
        Err(_) => Err(format!("'{text}' is no number of copies: {COPIES}")),
    }
}

const COPIES: &str = "1 (each file once), 2 or 3; inherit for what the directory above has";

/// Refuses numbers of copies that no file can have. Errors: why, for people.
pub(crate) fn check_copies(copies: u32) -> Result<(), String> {
    match (1..=COPIES_MAX as u32).contains(&copies) {
        true => Ok(()),
        false => Err(format!("a file cannot have {copies} copies: {COPIES}")),
    }
}

/// A placement as it is typed.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Place {
    /// As the directory above has it.
    Inherit,
    Of(Placement),
}

fn parse_place(text: &str) -> Result<Place, String> {
    match text {
        "inherit" => Ok(Place::Inherit),
        _ => text.parse().map(Place::Of),
    }
}

/// A distribution's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Kind {
    /// One stripe unit to each target in turn
    Stripe,
    /// To each target in turn a strip of its own size
    Strips,
    /// Within a group of targets for a while, then within the next one
    Groups,
    /// All on one target of the writer's own machine; on any one target where that has no data server
    Local,
    /// As the directory above has it
    Inherit,
}

impl HintOptions {
    /// True when something is to be set.
    pub(super) fn is_any(&self) -> bool {
        let has_size = self.stripe_unit.is_some() || self.width.is_some();
        has_size
            || self.distribution.is_some()
            || self.has_parts()
            || self.place.is_some()
            || self.copies.is_some()
    }

    /// True when a number of copies is to be set.
    pub(super) fn has_copies(&self) -> bool {
        self.copies.is_some()
    }

    /// True when servers of one host count as several.
    pub(super) fn is_same_host(&self) -> bool {
        self.same_host
    }

    fn has_parts(&self) -> bool {
        !self.strips.is_empty() || self.groups.is_some() || self.factor.is_some()
    }

    /// Refuses meaningless options before any server is asked.
    pub(super) fn check(&self) -> Outcome {
        if let Some(unit) = self.stripe_unit.filter(|&unit| unit != 0) {
            check_stripe_unit(unit).map_err(|e| Failure::usage(format!("--stripe-unit: {e}")))?;
        }
        if self.width.is_some_and(|width| width as usize > STRIPE_WIDTH_MAX) {
            return Err(Failure::usage(format!("--width: at most {STRIPE_WIDTH_MAX}")));
        }
        let strips_without = !self.strips.is_empty() && self.distribution != Some(Kind::Strips);
        let groups_without =
            (self.groups.is_some() || self.factor.is_some()) && self.distribution != Some(Kind::Groups);
        if strips_without || groups_without {
            let text =
                "--strips goes with --distribution strips, --groups and --factor with --distribution groups";
            return Err(Failure::usage(text.to_owned()));
        }
        self.pattern().map(|_| ())
    }

    /// The pattern asked for; `None` where none is or it is to be inherited.
    fn pattern(&self) -> Outcome<Option<Pattern>> {
        let pattern = match self.distribution {
            None | Some(Kind::Inherit) => return Ok(None),
            Some(Kind::Stripe) => Pattern::Stripe,
            Some(Kind::Local) => Pattern::Local,
            Some(Kind::Groups) => Pattern::Groups {
                groups: self.groups.unwrap_or(GROUPS_DEFAULT),
                factor: self.factor.unwrap_or(FACTOR_DEFAULT),
            },
            Some(Kind::Strips) => Pattern::Strips(parse_strips(&self.strips)?),
        };
        pattern.check().map_err(|e| Failure::usage(format!("--distribution {}: {e}", pattern.name())))?;
        Ok(Some(pattern))
    }

    /// `present` with what is asked for in place of what was there.
    pub(super) fn over(&self, present: LayoutHint) -> Outcome<LayoutHint> {
        Ok(LayoutHint {
            stripe_unit_bytes: self.stripe_unit.unwrap_or(present.stripe_unit_bytes),
            width: self.width.unwrap_or(present.width),
            pattern: if self.distribution.is_some() { self.pattern()? } else { present.pattern },
            placement: match &self.place {
                None => present.placement,
                Some(Place::Inherit) => None,
                Some(Place::Of(placement)) => Some(placement.clone()),
            },
            copies: match self.copies {
                None => present.copies,
                Some(Copies::Inherit) => 0,
                Some(Copies::Of(copies)) => copies,
            },
        })
    }
}

fn parse_strips(texts: &[String]) -> Outcome<Vec<Strip>> {
    let parse = |(index, text): (u32, &String)| {
        let wrong = |why: String| Failure::usage(format!("--strips: {text}: {why}"));
        let (slot, size) = match text.split_once(':') {
            Some((slot, size)) => (slot.parse().map_err(|_| wrong("SLOT is no number".to_owned()))?, size),
            None => (index, text.as_str()),
        };
        Ok(Strip { slot, bytes: vazao_model::size::parse_size(size).map_err(wrong)? })
    };
    if texts.is_empty() {
        return Err(Failure::usage(
            "--distribution strips needs --strips, as in --strips 1M,4M,1M".to_owned(),
        ));
    }
    (0..).zip(texts).map(parse).collect()
}

/// A pattern in words.
pub(super) fn shown(pattern: &Pattern) -> String {
    match pattern {
        Pattern::Stripe | Pattern::Local => pattern.name().to_owned(),
        Pattern::Strips(strips) => {
            let strip = |strip: &Strip| format!("{}:{}", strip.slot, format::size(strip.bytes));
            format!("strips {}", strips.iter().map(strip).collect::<Vec<_>>().join(", "))
        }
        Pattern::Groups { groups, factor } => format!("groups: {groups}, factor {factor}"),
    }
}

/// A pattern for programs.
pub(super) fn to_json(pattern: &Pattern) -> Value {
    match pattern {
        Pattern::Stripe | Pattern::Local => json!({"kind": pattern.name()}),
        Pattern::Strips(strips) => {
            let strip = |strip: &Strip| json!({"slot": strip.slot, "bytes": strip.bytes});
            json!({"kind": "strips", "strips": strips.iter().map(strip).collect::<Vec<_>>()})
        }
        Pattern::Groups { groups, factor } => json!({"kind": "groups", "groups": groups, "factor": factor}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_of_a_hint_stays() {
        let near = Some(Placement::NearWriter);
        let present = LayoutHint { width: 3, placement: near.clone(), ..LayoutHint::default() };
        let none = HintOptions {
            stripe_unit: None,
            width: None,
            distribution: None,
            strips: Vec::new(),
            groups: None,
            factor: None,
            place: None,
            copies: None,
            same_host: false,
        };
        let with = |text: &str| {
            let place = Some(parse_place(text).expect("valid"));
            HintOptions { place, strips: Vec::new(), ..none }.over(present.clone()).expect("valid")
        };
        assert_eq!((none.over(present.clone()).expect("valid").placement, none.is_any()), (near, false));
        assert_eq!((with("inherit").placement, with("inherit").width), (None, 3));
        assert_eq!(with("zone=rio").placement, Some(Placement::Zone("rio".to_owned())));
        assert!(parse_place("rio").is_err());
    }

    #[test]
    fn copies_are_one_to_three_or_inherited() {
        let parsed = |text: &str| parse_copies(text);
        assert_eq!([parsed("1"), parsed("3")], [Ok(Copies::Of(1)), Ok(Copies::Of(3))]);
        assert_eq!(parsed("inherit"), Ok(Copies::Inherit));
        for (wrong, word) in
            [("0", "cannot have 0 copies"), ("4", "cannot have 4 copies"), ("two", "no number")]
        {
            let why = parsed(wrong).expect_err("refused");
            assert!(why.contains(word) && why.contains("2 or 3"), "{why}");
        }
    }

    #[test]
    fn strips_are_typed_by_size_or_with_their_slots() {
        let parse = |texts: &[&str]| parse_strips(&texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>());
        let strip = |slot, bytes| Strip { slot, bytes };
        assert_eq!(parse(&["64K", "1M"]).expect("valid"), [strip(0, 65536), strip(1, 1 << 20)]);
        assert_eq!(parse(&["1:64K", "0:128K"]).expect("valid"), [strip(1, 65536), strip(0, 131_072)]);
        assert!(parse(&[]).is_err() && parse(&["x:64K"]).is_err() && parse(&["0:"]).is_err());
    }
}
