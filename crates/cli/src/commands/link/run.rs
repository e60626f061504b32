//! `towline link run`: a link as a service, by its configuration.

mod boat;
mod shore;

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::config::Config;
use crate::exit::{Exit, Failure};
use crate::metrics::MetricsArgs;
use crate::printer::Printer;
use crate::units::counted;

/// Arguments of `towline link run`.
#[derive(Args)]
pub(crate) struct RunArgs {
    /// The configuration
    #[arg(value_name = "FILE.toml", default_value = "/etc/towline/link.toml")]
    file: PathBuf,
    /// Read the configuration, say what it asks for, and do nothing
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    metrics: MetricsArgs,
}

impl RunArgs {
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        let config = Config::load(&self.file)?;
        if self.check {
            return Ok(check(&config, printer));
        }
        let metrics = self.metrics.bind().await?;
        // A link of which a part has died looks alive and carries nothing: better that the unit starts it anew.
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            before(panic);
            std::process::abort();
        }));
        match config.peer {
            Some(_) => boat::run(config, metrics, printer).await,
            None => shore::run(config, metrics, printer).await,
        }
    }
}

fn check(config: &Config, printer: Printer) -> Exit {
    let role = match &config.peer {
        Some(peer) => format!(
            "sends to {} what {} gives",
            peer.url,
            counted(config.sources.len() as u64, "source")
        ),
        None => format!(
            "receives for {}",
            counted(config.sinks.len() as u64, "sink")
        ),
    };
    printer.line(format_args!("{} {role}", config.name));
    printer.record(&json!({
        "schema": "towline.link.check/1",
        "name": config.name,
        "role": if config.peer.is_some() { "boat" } else { "shore" },
        "sources": config.sources.len(),
        "sinks": config.sinks.len(),
    }));
    Exit::Ok
}
