//! `towline stcp key`: who this machine is, for the other side's flags.

use serde_json::json;

use super::flags::IdentityArgs;
use crate::exit::{Exit, Failure};
use crate::printer::Printer;

/// Flags of `key`.
#[derive(clap::Args)]
pub(crate) struct KeyArgs {
    #[command(flatten)]
    identity: IdentityArgs,
}

impl KeyArgs {
    /// Prints the pin.
    pub(crate) fn run(self, printer: Printer) -> Result<Exit, Failure> {
        let identity = self.identity.load()?;
        let pin = identity.key_pin();
        printer.line(pin);
        printer.record(&json!({ "schema": "towline.stcp.key/1", "pin": pin.to_string() }));
        Ok(Exit::Ok)
    }
}
