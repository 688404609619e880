//! Whole clusters in one process: stories under a seed, and what a story is too coarse for.

mod clocks;
mod coherence;
mod convert;
mod copies;
mod cuts;
mod cuts_elsewhere;
mod damage;
mod disks;
mod images;
mod late;
mod lines;
mod links;
mod lost;
mod lost_locks;
mod members;
mod missed;
mod new_groups;
mod orphans;
mod parted;
mod power;
mod replaced;
mod seeds;
mod short_circuit;
mod starts;
mod unusable;
mod zones;
