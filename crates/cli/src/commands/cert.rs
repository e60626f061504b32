//! `towline cert`: our key and its certificate, and pins of any certificate.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use towline_identity::{Identity, PeerIdentity, UnixTime, certificates_from_pem};

use crate::certs::{self, Anew, Next, kept, rotated};
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
    /// Make the next certificate beside the present one, so that browsers can be given the hashes of both. It is
    /// shown when the present one is about to end; servers that run take it by themselves. If it is there, it stays
    Rotate {
        /// Make another one although it is there: who was given its hash needs the new one's
        #[arg(long)]
        force: bool,
        /// Under a new key, with a new pin that others need from its swap on
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
                let shown = shown(kept.rotation.shown().certificate_chain())?;
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
            CertCommand::Rotate { force, new_key } => rotate(Next { force, new_key }, printer)?,
            CertCommand::Show { file } => show(file.as_deref(), printer)?,
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

fn show(file: Option<&Path>, printer: Printer) -> Result<(), Failure> {
    let (shown, next) = match file {
        Some(_) => (load(file)?, None),
        None => {
            let kept = kept(Anew::Nothing, &[])?;
            let next = kept.rotation.next().map(identity).transpose()?;
            (identity(kept.rotation.shown())?, next)
        }
    };
    printer.line(format_args!("subject      {}", shown.subject));
    print_dates(&shown, printer);
    printer.line(format_args!("pin          {}", shown.key));
    printer.line(format_args!(
        "certificate  {} (until it is renewed)",
        shown.certificate
    ));
    if let Some(next) = &next {
        printer.line(format_args!("next         {}", next.certificate));
    }
    let mut record = self::record(&shown);
    record["schema"] = json!("towline.cert/2");
    record["subject"] = json!(shown.subject);
    record["next"] = json!(next.as_ref().map(self::record));
    printer.record(&record);
    Ok(())
}

/// Makes the next certificate, or says that it is there.
fn rotate(wish: Next, printer: Printer) -> Result<(), Failure> {
    let kept = rotated(wish)?;
    if let Some(why) = kept.not_written {
        return Err(
            Failure::new(Exit::Other, why).next("set TOWLINE_HOME to a folder that can be written")
        );
    }
    let shown = identity(kept.rotation.shown())?;
    let next = kept.rotation.next().map(identity).transpose()?;
    let swap = kept.rotation.swaps_at();
    printer.line(format_args!("shown        {}", shown.certificate));
    print_dates(&shown, printer);
    if let Some(next) = &next {
        let state = if kept.new_next {
            "new"
        } else {
            "there already"
        };
        printer.line(format_args!("next         {} ({state})", next.certificate));
        print_dates(next, printer);
        printer.line(format_args!("swap         {}", date(swap)));
        if next.key != shown.key {
            printer.note(format_args!(
                "towline: note: the next one's key is another one: who was given the pin {} needs {} from the swap on",
                shown.key, next.key
            ));
        }
    }
    printer.record(&json!({
        "schema": "towline.cert.rotate/1",
        "new": kept.new_next,
        "shown": record(&shown),
        "next": next.as_ref().map(record),
        "swap": swap.as_secs(),
        "certificate_file": kept.certificate_file,
        "next_file": kept.next_file,
    }));
    Ok(())
}

/// Dates and pins, for programs.
fn record(shown: &Shown) -> Value {
    json!({
        "begins": shown.dates.map(|(begin, _)| begin.as_secs()),
        "expires": shown.dates.map(|(_, end)| end.as_secs()),
        "pin": shown.key,
        "certificate_pin": shown.certificate,
    })
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

fn load(file: Option<&Path>) -> Result<Shown, Failure> {
    match file {
        Some(file) => {
            let chain = certificates_from_pem(&certs::read(file)?)
                .map_err(|error| Failure::new(Exit::Tls, format!("{}: {error}", file.display())))?;
            shown(&chain)
        }
        None => identity(kept(Anew::Nothing, &[])?.rotation.shown()),
    }
}

fn identity(identity: &Identity) -> Result<Shown, Failure> {
    shown(identity.certificate_chain())
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
