//! `towline cert`: the development certificate, and pins of any certificate.

use std::path::PathBuf;

use serde_json::json;
use towline_identity::{PeerIdentity, certificates_from_pem};

use crate::certs::{self, development};
use crate::exit::{Exit, Failure};
use crate::printer::Printer;

/// Flags of `cert`.
#[derive(clap::Args)]
pub(crate) struct CertCommandArgs {
    #[command(subcommand)]
    command: CertCommand,
}

#[derive(clap::Subcommand)]
enum CertCommand {
    /// Make the development certificate, or keep the one that is there
    Dev {
        /// DNS names and addresses in it (default: localhost, 127.0.0.1, ::1)
        #[arg(long, value_name = "NAME", requires = "renew")]
        name: Vec<String>,
        /// Make a new one, with a new pin
        #[arg(long)]
        renew: bool,
    },
    /// Show subject and pins of a certificate; of the development certificate if no file is given
    Show {
        /// Certificates in PEM
        file: Option<PathBuf>,
    },
    /// Print only the pin, for scripts
    Pin {
        /// Certificates in PEM; the development certificate if none is given
        file: Option<PathBuf>,
        /// The pin of the public key, which outlives renewals with the same key
        #[arg(long)]
        key: bool,
    },
}

/// What is shown of a certificate.
struct Shown {
    subject: String,
    certificate: String,
    key: String,
}

impl CertCommandArgs {
    /// Runs the subcommand.
    pub(crate) fn run(self, printer: Printer) -> Result<Exit, Failure> {
        match self.command {
            CertCommand::Dev { name, renew } => {
                let dev = development(renew, &name)?;
                let shown = shown(dev.identity.certificate_chain())?;
                let state = if dev.new { "new" } else { "kept" };
                printer.line(format_args!(
                    "{state} development certificate, expires at unix time {}",
                    dev.expires
                ));
                printer.line(format_args!(
                    "certificate  {}",
                    dev.certificate_file.display()
                ));
                printer.line(format_args!("key          {}", dev.key_file.display()));
                printer.line(format_args!("pin          {}", shown.certificate));
                printer.record(&json!({
                    "schema": "towline.cert.dev/1",
                    "new": dev.new,
                    "certificate_file": dev.certificate_file,
                    "key_file": dev.key_file,
                    "expires": dev.expires,
                    "pin": shown.certificate,
                    "key_pin": shown.key,
                }));
            }
            CertCommand::Show { file } => {
                let shown = load(file.as_deref())?;
                printer.line(format_args!("subject          {}", shown.subject));
                printer.line(format_args!("certificate pin  {}", shown.certificate));
                printer.line(format_args!("key pin          {}", shown.key));
                printer.record(&json!({
                    "schema": "towline.cert/1",
                    "subject": shown.subject,
                    "pin": shown.certificate,
                    "key_pin": shown.key,
                }));
            }
            CertCommand::Pin { file, key } => {
                let shown = load(file.as_deref())?;
                let pin = if key { &shown.key } else { &shown.certificate };
                printer.line(pin);
                printer.record(&json!({ "schema": "towline.cert.pin/1", "pin": pin }));
            }
        }
        Ok(Exit::Ok)
    }
}

fn load(file: Option<&std::path::Path>) -> Result<Shown, Failure> {
    match file {
        Some(file) => {
            let chain = certificates_from_pem(&certs::read(file)?)
                .map_err(|error| Failure::new(Exit::Tls, format!("{}: {error}", file.display())))?;
            shown(&chain)
        }
        None => shown(development(false, &[])?.identity.certificate_chain()),
    }
}

fn shown(chain: &[towline_identity::CertificateDer<'_>]) -> Result<Shown, Failure> {
    match PeerIdentity::from_peer_certificates(Some(chain)) {
        Some(PeerIdentity::X509 {
            certificate,
            key,
            subject,
        }) => Ok(Shown {
            subject,
            certificate: certificate.to_string(),
            key: key.to_string(),
        }),
        _ => Err(Failure::new(Exit::Tls, "this is not an X.509 certificate")),
    }
}
