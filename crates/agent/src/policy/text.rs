//! The policy's text: TOML, every key known, every mistake with its line.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use towline_identity::{Identity, KeyPin, Pin, certificates_from_pem};
use towline_stcp::ClientConfig;
use towline_wire::Side;

use super::error::PolicyError;
use super::own_key::named_key;
use super::{Belief, Destination, Policy, Rule, Source, client_rule, server_rule};

/// The ways to believe a peer; a table names exactly one.
const BELIEFS: &str = "`pins`, `certificate_pins`, `known_peers`, `roots` or `unauthenticated`";

impl Policy {
    /// Reads a policy file. Files that it names lie beside it, unless their paths are absolute.
    ///
    /// # Errors
    /// When a file cannot be read or says something wrong; file and line are named.
    pub fn load(path: &Path) -> Result<Self, PolicyError> {
        let wrong = |problem: String| PolicyError {
            file: path.to_owned(),
            line: None,
            problem,
        };
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        Document { path, text: &text }.policy()
    }
}

struct Document<'t> {
    path: &'t Path,
    text: &'t str,
}

/// A table whose keys are taken one by one.
struct Table<'t> {
    document: &'t Document<'t>,
    name: &'static str,
    /// Where the table begins.
    at: usize,
    entries: Vec<(&'t str, usize, &'t Spanned<DeValue<'t>>)>,
}

impl<'t> Document<'t> {
    fn error(&self, at: usize, problem: impl Into<String>) -> PolicyError {
        let before = self.text.get(..at).unwrap_or(self.text);
        PolicyError {
            file: self.path.to_owned(),
            line: Some(before.matches('\n').count() + 1),
            problem: problem.into(),
        }
    }

    fn policy(&self) -> Result<Policy, PolicyError> {
        let root = DeTable::parse(self.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            self.error(at, format!("this is not TOML: {}", error.message()))
        })?;
        let mut policy = Policy {
            source: Source::File(self.path.to_owned()),
            client: None,
            server: None,
            destinations: Vec::new(),
            own_keys: Vec::new(),
        };
        let mut client_identity = None;
        let mut destinations = Vec::new();
        for (key, value) in root.get_ref() {
            let at = key.span().start;
            match (&**key.get_ref(), value.get_ref()) {
                ("client", DeValue::Table(table)) => {
                    let mut table = self.table("client", at, table);
                    client_identity = table.identity()?;
                    policy.client = Some(table.client(client_identity.as_ref())?);
                }
                ("server", DeValue::Table(table)) => {
                    let mut table = self.table("server", at, table);
                    let identity = table.identity()?.ok_or_else(|| {
                        self.error(at, "[server] needs `key`, the file of its private key")
                    })?;
                    let belief = table.belief()?;
                    policy.own_keys.push((Side::Server, identity.key_pin()));
                    let rule = server_rule(&belief, &identity)
                        .map_err(|problem| self.error(at, format!("[server]: {problem}")))?;
                    policy.server = Some(rule);
                    table.finish()?;
                }
                ("destination", DeValue::Array(array)) => {
                    for entry in array.iter() {
                        let at = entry.span().start;
                        let DeValue::Table(table) = entry.get_ref() else {
                            return Err(self.error(at, "`destination` is written [[destination]]"));
                        };
                        destinations.push(self.table("destination", at, table));
                    }
                }
                (name @ ("client" | "server" | "destination"), _) => {
                    return Err(self.error(at, format!("`{name}` is a table")));
                }
                (name, _) => {
                    return Err(self.error(
                        at,
                        format!(
                            "`{name}` is unknown; there are [client], [server] and [[destination]]"
                        ),
                    ));
                }
            }
        }
        if let Some(identity) = &client_identity {
            policy.own_keys.push((Side::Client, identity.key_pin()));
        }
        for mut table in destinations {
            let (at, text) = table
                .take_text("address")?
                .ok_or_else(|| self.error(table.at, "[[destination]] needs `address`"))?;
            let destination = Destination::parse(text).ok_or_else(|| {
                self.error(
                    at,
                    format!("`{text}` is not of the form IP, IP:PORT, IP/BITS or IP/BITS:PORT"),
                )
            })?;
            let own = table.identity()?;
            if let Some(own) = &own {
                policy.own_keys.push((Side::Client, own.key_pin()));
            }
            let rule = table.client(own.as_ref().or(client_identity.as_ref()))?;
            policy.destinations.push((destination, rule));
        }
        for (table, belief) in policy.beliefs() {
            if matches!(belief, Belief::AnyKey | Belief::AnyCertificate) {
                tracing::warn!(
                    file = %self.path.display(), table,
                    "{belief}: whoever sits on the path can pose as the other side"
                );
            }
        }
        Ok(policy)
    }

    fn table(&'t self, name: &'static str, at: usize, table: &'t DeTable<'t>) -> Table<'t> {
        let entries = table
            .iter()
            .map(|(key, value)| (&**key.get_ref(), key.span().start, value))
            .collect();
        Table {
            document: self,
            name,
            at,
            entries,
        }
    }
}

impl<'t> Table<'t> {
    fn take(&mut self, key: &str) -> Option<(usize, &'t DeValue<'t>)> {
        let index = self.entries.iter().position(|(name, ..)| *name == key)?;
        let (_, at, value) = self.entries.swap_remove(index);
        Some((at, value.get_ref()))
    }

    fn error(&self, at: usize, problem: impl Into<String>) -> PolicyError {
        self.document.error(at, problem)
    }

    fn take_text(&mut self, key: &str) -> Result<Option<(usize, &'t str)>, PolicyError> {
        match self.take(key) {
            None => Ok(None),
            Some((at, DeValue::String(text))) => Ok(Some((at, &**text))),
            Some((at, _)) => Err(self.error(at, format!("`{key}` is a text in quotes"))),
        }
    }

    fn take_texts(&mut self, key: &str) -> Result<Option<(usize, Vec<&'t str>)>, PolicyError> {
        let Some((at, value)) = self.take(key) else {
            return Ok(None);
        };
        let texts = match value {
            DeValue::Array(array) => array
                .iter()
                .map(|entry| match entry.get_ref() {
                    DeValue::String(text) => Some(&**text),
                    _ => None,
                })
                .collect::<Option<Vec<_>>>(),
            _ => None,
        };
        match texts {
            Some(texts) if !texts.is_empty() => Ok(Some((at, texts))),
            _ => Err(self.error(at, format!("`{key}` is a list of texts, such as [\"…\"]"))),
        }
    }

    fn path(&self, text: &str) -> PathBuf {
        let folder = self.document.path.parent().unwrap_or(Path::new(""));
        folder.join(text)
    }

    fn read(&self, at: usize, text: &str) -> Result<Vec<u8>, PolicyError> {
        let path = self.path(text);
        fs::read(&path).map_err(|error| self.error(at, format!("{}: {error}", path.display())))
    }

    /// `key` alone is a raw key, `certificate` and `key` are X.509.
    fn identity(&mut self) -> Result<Option<Identity>, PolicyError> {
        let certificate = self.take_text("certificate")?;
        let Some((at, key)) = self.take_text("key")? else {
            return match certificate {
                Some((at, _)) => Err(self.error(at, "`certificate` needs its `key`")),
                None => Ok(None),
            };
        };
        let wrong = |what: String| self.error(at, format!("{}: {what}", self.path(key).display()));
        let pem = named_key(&self.path(key)).map_err(wrong)?;
        let identity = match certificate {
            Some((at, file)) => Identity::from_pem(&self.read(at, file)?, &pem),
            None => Identity::raw_key_from_pem(&pem),
        };
        identity.map(Some).map_err(|error| wrong(error.to_string()))
    }

    fn belief(&mut self) -> Result<Belief, PolicyError> {
        let mut found = Vec::new();
        if let Some((at, pins)) = self.take_texts("pins")? {
            let pins = pins.iter().map(|pin| pin.parse::<KeyPin>());
            let pins = pins.collect::<Result<Vec<_>, _>>();
            found.push(Belief::Pins(
                pins.map_err(|error| self.error(at, format!("`pins`: {error}")))?,
            ));
        }
        if let Some((at, texts)) = self.take_texts("certificate_pins")? {
            let mut pins = Vec::new();
            for text in texts {
                let both = Pin::either(text)
                    .map_err(|error| self.error(at, format!("`certificate_pins`: {error}")))?;
                pins.extend(both);
            }
            found.push(Belief::CertificatePins(pins));
        }
        if let Some((_, file)) = self.take_text("known_peers")? {
            found.push(Belief::KnownPeers(self.path(file)));
        }
        if let Some((at, file)) = self.take_text("roots")? {
            let roots = certificates_from_pem(&self.read(at, file)?).map_err(|error| {
                self.error(at, format!("{}: {error}", self.path(file).display()))
            })?;
            found.push(Belief::Roots(roots));
        }
        if let Some((at, what)) = self.take_text("unauthenticated")? {
            found.push(match what {
                "any-key" => Belief::AnyKey,
                "any-certificate" => Belief::AnyCertificate,
                "any-client" => Belief::AnyClient,
                _ => {
                    return Err(self.error(
                        at,
                        "`unauthenticated` is \"any-key\", \"any-certificate\" (of servers) or \
                         \"any-client\" (without a key)",
                    ));
                }
            });
        }
        match (found.pop(), found.is_empty()) {
            (Some(belief), true) => Ok(belief),
            (None, _) => Err(self.error(
                self.at,
                format!(
                    "[{}] does not say whom to believe: give {BELIEFS}",
                    self.name
                ),
            )),
            (Some(_), false) => Err(self.error(
                self.at,
                format!(
                    "[{}] says twice whom to believe: give one of {BELIEFS}",
                    self.name
                ),
            )),
        }
    }

    fn client(
        mut self,
        identity: Option<&Identity>,
    ) -> Result<Arc<Rule<ClientConfig>>, PolicyError> {
        let belief = self.belief()?;
        let name = match self.take_text("name")? {
            None => None,
            Some((at, text)) => Some(
                ServerName::try_from(text.to_owned())
                    .map_err(|_| self.error(at, format!("`{text}` is not a name of a server")))?,
            ),
        };
        // An identity of the other kind cannot be shown to such servers.
        let kind = belief.of_servers().map(|trust| trust.kind());
        let identity = identity.filter(|identity| Some(identity.kind()) == kind);
        let rule = client_rule(&belief, identity, name)
            .map_err(|problem| self.error(self.at, format!("[{}]: {problem}", self.name)))?;
        self.finish()?;
        Ok(rule)
    }

    fn finish(self) -> Result<(), PolicyError> {
        match self.entries.first() {
            None => Ok(()),
            Some((key, at, _)) => Err(self.error(
                *at,
                format!(
                    "`{key}` is unknown in [{}], or has no meaning there",
                    self.name
                ),
            )),
        }
    }
}
