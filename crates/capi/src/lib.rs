//! The library for C: `libvazao`, described by `include/vazao.h`, which is generated from here.
//!
//! A door over the client: it turns pointers, numbers and text of C into calls of [`vazao_handles`], and their errors
//! into an errno and a message. It decides nothing, keeps nothing between calls but handles, and has no global state.
//!
//! `exports` has the functions and all that is unsafe; the modules beside it are safe and know no pointers.

mod connection;
mod copy;
mod directory;
mod error;
pub mod exports;
mod file;
mod names;
mod types;
mod watch;

#[cfg(test)]
mod tests;
