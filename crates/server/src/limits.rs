//! Bounds on the concurrent work of clients.

use crate::failure::{HttpFailure, Result};

/// Maximum size of bodies: code, and everything else.
pub const CODE: usize = 32 << 20;
pub const SMALL: usize = 1 << 20;
/// WebSockets open at once.
const SOCKETS: i64 = 8192;

/// Whether one more WebSocket may open.
pub fn room_for_socket(open: i64) -> Result<()> {
    if open < SOCKETS {
        return Ok(());
    }
    let said = "too many WebSockets are open";
    Err(HttpFailure::overloaded(said))
}
