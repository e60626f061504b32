//! `towline cert`: our key and its certificate, and pins of any certificate.

use std::path::PathBuf;

use serde_json::json;
use towline_identity::{PeerIdentity, UnixTime, certificates_from_pem};

use crate::certs::{self, Anew, kept};
use crate::exit::{Exit, Failure};
use crate::printer::Printer;
use crate::units::date;

/// Flags of `cert`.
#[derive(clap::Args)]
pub(crate) struct CertCommandArgs {
    #[command(subcommand)]
    command: CertCommand,
}

#[derive(clap::Subcommand)]
enum CertCommand {
    /// Make our key and certificate, or keep those that are there
    Dev {
        /// DNS names and addresses in the certificate (default: localhost, 127.0.0.1, ::1)
        #[arg(long, value_name = "NAME")]
        name: Vec<String>,
        /// Make a new certificate under the same key; servers do it by themselves before it ends
        #[arg(long)]
        renew: bool,
        /// Make a new key, with a new pin: whoever was given the old one believes us no longer
        #[arg(long)]
        new_key: bool,
    },
    /// Show subject, dates and pins of a certificate; of ours if no file is given
    Show {
        /// Certificates in PEM
        file: Option<PathBuf>,
    },
    /// Print only the pin of the public key, for scripts and for others
    Pin {
        /// Certificates in PEM; ours if none is given
        file: Option<PathBuf>,
        /// The pin of the certificate itself, as browsers want it: it ends with the certificate
        #[arg(long)]
        certificate: bool,
    },
}

/// What is shown of a certificate.
struct Shown {
    subject: String,
    certificate: String,
    key: String,
    /// First and last second.
    dates: Option<(UnixTime, UnixTime)>,
}

impl CertCommandArgs {
    /// Runs the subcommand.
    pub(crate) fn run(self, printer: Printer) -> Result<Exit, Failure> {
        match self.command {
            CertCommand::Dev {
                name,
                renew,
                new_key,
            } => {
                let anew = match (new_key, renew || !name.is_empty()) {
                    (true, _) => Anew::Key,
                    (_, true) => Anew::Certificate,
                    _ => Anew::Nothing,
                };
                let kept = kept(anew, &name)?;
                let shown = shown(kept.identity.certificate_chain())?;
                let state = |new| if new { "new" } else { "kept" };
                printer.line(format_args!(
                    "key          {} ({})",
                    kept.key_file.display(),
                    state(kept.new_key)
                ));
                printer.line(format_args!(
                    "certificate  {} ({}, for {})",
                    kept.certificate_file.display(),
                    state(kept.new_certificate),
                    kept.names.join(", ")
                ));
                print_dates(&shown, printer);
                printer.line(format_args!("pin          {}", shown.key));
                printer.record(&json!({
                    "schema": "towline.cert.dev/2",
                    "new": kept.new_certificate,
                    "new_key": kept.new_key,
                    "certificate_file": kept.certificate_file,
                    "key_file": kept.key_file,
                    "names": kept.names,
                    "expires": shown.dates.map(|(_, end)| end.as_secs()),
                    "pin": shown.key,
                    "certificate_pin": shown.certificate,
                }));
            }
            CertCommand::Show { file } => {
                let shown = load(file.as_deref())?;
                printer.line(format_args!("subject      {}", shown.subject));
                print_dates(&shown, printer);
                printer.line(format_args!("pin          {}", shown.key));
                printer.line(format_args!(
                    "certificate  {} (until it is renewed)",
                    shown.certificate
                ));
                printer.record(&json!({
                    "schema": "towline.cert/2",
                    "subject": shown.subject,
                    "begins": shown.dates.map(|(begin, _)| begin.as_secs()),
                    "expires": shown.dates.map(|(_, end)| end.as_secs()),
                    "pin": shown.key,
                    "certificate_pin": shown.certificate,
                }));
            }
            CertCommand::Pin { file, certificate } => {
                let shown = load(file.as_deref())?;
                let pin = match certificate {
                    true => &shown.certificate,
                    false => &shown.key,
                };
                printer.line(pin);
                printer.record(&json!({ "schema": "towline.cert.pin/1", "pin": pin }));
            }
        }
        Ok(Exit::Ok)
    }
}

fn print_dates(shown: &Shown, printer: Printer) {
    if let Some((begin, end)) = shown.dates {
        printer.line(format_args!(
            "valid        from {} to {}",
            date(begin),
            date(end)
        ));
    }
}

fn load(file: Option<&std::path::Path>) -> Result<Shown, Failure> {
    match file {
        Some(file) => {
            let chain = certificates_from_pem(&certs::read(file)?)
                .map_err(|error| Failure::new(Exit::Tls, format!("{}: {error}", file.display())))?;
            shown(&chain)
        }
        None => shown(kept(Anew::Nothing, &[])?.identity.certificate_chain()),
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
            dates: chain.first().and_then(towline_identity::validity),
        }),
        _ => Err(Failure::new(Exit::Tls, "this is not an X.509 certificate")),
    }
}
