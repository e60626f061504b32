//! NMEA 0183 sentences as Signal K deltas.
//!
//! The mapping is that of Signal K's own parser (`@signalk/nmea0183-signalk` 3.20), with its constants, so that a value
//! has the same bits whichever of the two read it. Three things differ. A field that is empty is `null` or left out,
//! never 0. A fix that its receiver calls void is no position. Fractions of a second are kept.

mod satellites;
mod sentence;
mod table;
mod time;
mod transducers;
mod values;

#[cfg(test)]
mod tests;

use towline_link::codec::Record;

use satellites::Satellites;
use sentence::Sentence;
use values::Values;

pub(crate) use sentence::MAX_SENTENCE;
pub use sentence::Refused;

/// Makes deltas of the sentences of one connection.
#[derive(Clone, Debug)]
pub struct Translator {
    label: String,
    context: Option<String>,
    /// When the last sentence with a date was, in milliseconds since 1970: gives a date to those with a time alone.
    dated: Option<i64>,
    satellites: Satellites,
}

impl Translator {
    /// `label` names the connection, as in `$source` = `label.GP`. `context` is whose values they are, such as
    /// `vessels.urn:mrn:imo:mmsi:230099999`; without one the far server takes them for its own boat's.
    pub fn new(label: impl Into<String>, context: Option<String>) -> Self {
        Self {
            label: label.into(),
            context,
            dated: None,
            satellites: Satellites::default(),
        }
    }

    /// What a sentence says; `None` if that is nothing, or nothing yet. `now` is the wall clock, in milliseconds since
    /// 1970.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn translate(&mut self, line: &[u8], now: i64) -> Result<Option<Record>, Refused> {
        let sentence = Sentence::parse(line)?;
        let mut values = Values::default();
        let clock = self.dated.unwrap_or(now);
        match sentence.kind {
            "GSV" => self.satellites.read(&sentence, &mut values)?,
            "XDR" => transducers::read(&sentence, &mut values)?,
            _ => table::read(&sentence, clock, &mut values)?,
        }
        if values.is_dated {
            self.dated = values.timestamp;
        }
        if values.is_empty() {
            return Ok(None);
        }
        let timestamp = time::format(values.timestamp.unwrap_or(now))
            .ok_or_else(|| Refused::Malformed("its date is none".to_owned()))?;
        let (kind, talker) = (sentence.kind, sentence.talker);
        let label = values::quoted(&self.label);
        let source = values::quoted(&format!("{}.{talker}", self.label));
        let context = match &self.context {
            Some(context) => format!("\"context\":{},", values::quoted(context)),
            None => String::new(),
        };
        let json = format!(
            r#"{{{context}"updates":[{{"source":{{"sentence":"{kind}","talker":"{talker}","type":"NMEA0183","label":{label}}},"$source":{source},"timestamp":"{timestamp}","values":[{values}]}}]}}"#
        );
        Ok(Some(Record::parse(json.as_bytes())?))
    }
}
