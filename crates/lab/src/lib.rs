//! The laboratory: benchmarks and the published experiments.
