//! FTP (RFC 959, 2428, 3659): a client, and what it has in common with the endpoint that receives copies.
//!
//! Binary and passive only: EPSV, or PASV where that is all a server knows, and always to the server's own address,
//! whatever its answer names. Every wait has a deadline, every line and answer a length, and every error names the
//! server and what was being done. It knows nothing of jobs, areas and command lines.

mod control;
mod listing;
mod reply;
mod session;
mod url;

pub(crate) use control::Control;
pub use control::{Check, Waits};
pub use listing::{Facts, Kind};
pub(crate) use reply::{Reply, passive_text};
pub(crate) use session::DAMAGED;
pub use session::{Session, passing};
pub use url::{FTP_PORT, Url};
