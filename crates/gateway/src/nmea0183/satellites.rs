//! GSV: satellites in view, told over several sentences.

use super::sentence::{Refused, Sentence};
use super::values::{Values, number, radians};

/// Cap: satellites of one receiver's report.
pub(crate) const MAX_SATELLITES: usize = 64;

/// The report that is under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Satellites {
    talker: String,
    /// The number of its next sentence.
    next: u32,
    satellites: Vec<String>,
}

impl Satellites {
    /// Reads one sentence; the last of a report gives the value. A report with a gap is left out.
    pub(super) fn read(
        &mut self,
        sentence: &Sentence<'_>,
        values: &mut Values,
    ) -> Result<(), Refused> {
        let whole = |at: usize| sentence.text(at).parse::<u32>().ok();
        let (Some(sentences), Some(this), Some(count)) = (whole(0), whole(1), whole(2)) else {
            return Err(Refused::Malformed("a GSV without its numbers".to_owned()));
        };
        if this == 1 {
            self.talker = sentence.talker.to_owned();
            self.next = 1;
            self.satellites.clear();
        }
        if this != self.next || self.talker != sentence.talker {
            self.next = 0;
            return Ok(());
        }
        // Some receivers add a field at the end, the signal's number.
        for at in (3..sentence.len().saturating_sub(3)).step_by(4) {
            let Some(id) = whole(at) else { continue };
            if self.satellites.len() == MAX_SATELLITES {
                return Err(Refused::Malformed(
                    "a GSV with too many satellites".to_owned(),
                ));
            }
            let angle = |at: usize| number(sentence.number(at).map(radians));
            self.satellites.push(format!(
                r#"{{"id":{},"elevation":{},"azimuth":{},"SNR":{}}}"#,
                if id >= 64 { id - 64 } else { id },
                angle(at + 1),
                angle(at + 2),
                number(sentence.number(at + 3)),
            ));
        }
        self.next += 1;
        if this >= sentences {
            self.next = 0;
            let mut satellites = std::mem::take(&mut self.satellites);
            satellites.truncate(count as usize);
            let gnss = match sentence.talker {
                "GP" => r#","gnss":"GPS""#,
                "GL" => r#","gnss":"GLONASS""#,
                "GA" => r#","gnss":"GALILEO""#,
                "GB" => r#","gnss":"BEIDOU""#,
                "GQ" => r#","gnss":"QZSS""#,
                _ => "",
            };
            let list = satellites.join(",");
            values.json(
                "navigation.gnss.satellitesInView",
                &format!(r#"{{"count":{count},"satellites":[{list}]{gnss}}}"#),
            );
        }
        Ok(())
    }
}
