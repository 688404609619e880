//! Whole clusters in one process under a seed, with faults of network, disk and process.
