//! Real processes: the command, its daemons and their mounts, as a user meets them.
//!
//! One program for all of it: building and linking one for each file took longer than running them.

mod area;
mod areas_mount;
mod areas_writes;
mod calls;
mod cluster;
mod convert;
mod copies;
mod copy;
mod copy_itself;
mod copy_keeps;
mod copy_replace;
mod copy_rules;
mod crash_manifest;
mod demo;
mod experiments;
mod faults;
mod file_copies;
mod ftp_sizes;
mod hung;
mod hung_areas;
mod hung_targets;
mod identity;
mod interrupted;
mod logs;
mod metadata_damage;
mod mount;
mod mount_life;
mod mounts;
mod namespace;
mod nodes;
mod operations;
mod ports;
mod replaced;
mod scrub;
mod shell;
mod starting;
mod stopping;
mod streams;
mod support;
mod targets;
mod test_runs;
mod zones;
