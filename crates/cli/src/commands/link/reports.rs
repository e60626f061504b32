//! [`Reports`]: how a running link is, told to whoever asks: at its socket, and over HTTP for Prometheus.

use serde_json::Value;
use tokio::sync::watch;

use super::config::Config;
use super::control::{self, Control};
use crate::metrics::Bound;
use crate::plain_http::Serving;
use crate::printer::Printer;

/// The newest report; dropped, nobody is told any more.
pub(super) struct Reports {
    tell: watch::Sender<Value>,
    _control: Option<Control>,
    _metrics: Option<Serving>,
}

impl Reports {
    /// Begins to answer. Numbers whose names end in one of `gauges` go up and down.
    pub(super) fn start(
        config: &Config,
        metrics: Bound,
        gauges: &'static [&'static str],
        printer: Printer,
    ) -> Self {
        let (tell, report) = watch::channel(Value::Null);
        let path = config.control.clone();
        let path = path.unwrap_or_else(|| control::path_of(&config.name));
        let control = Control::serve(path.clone(), report.clone());
        if let Err(error) = &control {
            printer.note(format_args!(
                "towline: note: `towline link show` has nothing to ask: {}: {error}",
                path.display()
            ));
        }
        let metrics = metrics.serve(printer, move |exposition| {
            exposition.record("link", &report.borrow(), gauges);
        });
        Self {
            tell,
            _control: control.ok(),
            _metrics: metrics,
        }
    }

    /// How the link is now.
    pub(super) fn tell(&self, report: Value) {
        self.tell.send_replace(report);
    }
}
