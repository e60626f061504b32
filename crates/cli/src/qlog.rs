//! `--qlog`: a log of each connection, for `towline qlog` and for qlog viewers.

use std::path::PathBuf;
use std::sync::Arc;

use towline::handles::EndpointBuilder;
use towline::qlog::QlogDir;

use crate::exit::Failure;
use crate::units::parse_size;

/// Whether connections are logged, and where.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct QlogArgs {
    /// Log each connection into a file in this folder: DIR/ID_client.sqlog or DIR/ID_server.sqlog
    #[arg(long, value_name = "DIR", env = "QLOGDIR", hide_env_values = true)]
    qlog: Option<PathBuf>,
    /// Write so many bytes into that folder at most, and then log no more
    #[arg(long, value_name = "SIZE", default_value = "4Gi", value_parser = parse_size)]
    qlog_max: u64,
}

impl QlogArgs {
    /// The folder, made if it is not there.
    pub(crate) fn open(&self) -> Result<Option<Arc<QlogDir>>, Failure> {
        // An empty variable is one that nobody set.
        let Some(path) = self
            .qlog
            .as_ref()
            .filter(|path| !path.as_os_str().is_empty())
        else {
            return Ok(None);
        };
        let folder = QlogDir::create(path).map_err(|error| {
            Failure::usage(format!("--qlog {}: {error}", path.display()))
                .next("name a folder that exists or can be made, and that you may write to")
        })?;
        Ok(Some(Arc::new(folder.max_bytes(self.qlog_max))))
    }
}

/// Has an endpoint log its connections, if there is a folder for that.
pub(crate) fn logging_into(
    folder: Option<Arc<QlogDir>>,
    builder: EndpointBuilder,
) -> EndpointBuilder {
    match folder {
        Some(folder) => builder.observers(folder),
        None => builder,
    }
}
