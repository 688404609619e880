//! LuaRPC: remote calls as lines of text, from an interface file that both sides have.
//!
//! The crate knows the protocol and no noun of the file system. `interface` reads interface files as data, `line`
//! translates between values and lines, `client` calls, `server` answers.
//!
//! A request is the method's name, then a line for each `in` and `inout` argument; an answer is a line for the result,
//! then one for each `out` and `inout` argument. Implementations differ in how they write characters, errors and line
//! ends: all forms are read, one is written.

pub mod client;
pub mod interface;
pub mod limits;
pub mod line;
pub mod lines;
pub mod server;
pub mod value;

pub use client::{Client, Profile, Report};
pub use interface::{Argument, Direction, Interface, Method};
pub use server::{Options, Running, Service, Session};
pub use value::{Kind, Value};
pub use vazao_meter::clock::system as system_clock;
