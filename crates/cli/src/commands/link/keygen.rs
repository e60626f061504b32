//! `towline link keygen`: who this machine is, for the other end of a link.

use serde_json::json;

use super::ends::identity;
use crate::exit::{Exit, Failure};
use crate::printer::Printer;

/// Makes the key at the first use, and prints its pin.
pub(super) fn run(printer: Printer) -> Result<Exit, Failure> {
    let pin = identity(printer)?.key_pin().to_string();
    printer.line(&pin);
    printer.record(&json!({ "schema": "towline.link.keygen/1", "key": pin }));
    Ok(Exit::Ok)
}
