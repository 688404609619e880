//! Tests of the service: what every operation promises, over both engines.

mod contents;
mod conversions;
mod copies;
mod crash;
mod damage;
mod directories;
mod full;
mod group_members;
mod groups;
mod harness;
mod identity;
mod lagging;
mod locks;
mod member_reports;
mod members;
mod model;
mod namespace;
mod orphan_objects;
mod orphans;
mod repetition;
mod replaced;
mod slow_disk;
mod threads;
mod zones;
