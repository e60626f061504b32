//! Reads `docs/requirements/rfcNNNN.txt`; the form is told in `docs/requirements/README.md`.

/// One RFC: all its sections, and the requirements of those that are in scope.
#[derive(Debug)]
pub(super) struct Rfc {
    pub(super) number: u16,
    /// The catalogue's path from the root.
    pub(super) path: String,
    pub(super) sections: Vec<Section>,
}

#[derive(Debug)]
pub(super) struct Section {
    pub(super) line: usize,
    /// `14.1`, `A.2`.
    pub(super) number: String,
    pub(super) title: String,
    /// How often the section's text says MUST, MUST NOT, SHALL or REQUIRED; `None` out of scope.
    pub(super) musts: Option<usize>,
    pub(super) requirements: Vec<Requirement>,
}

/// A requirement in our own words, and where it is met.
#[derive(Debug, Default)]
pub(super) struct Requirement {
    pub(super) line: usize,
    /// `3`, `3-4`, `s1`.
    pub(super) id: String,
    pub(super) text: String,
    pub(super) code: Vec<Place>,
    pub(super) tests: Vec<Place>,
    /// Why it holds although no test shows it.
    pub(super) so: Option<String>,
    /// Why it asks nothing of us.
    pub(super) none: Option<String>,
    /// The issue that will meet it, and what is missing.
    pub(super) open: Option<(String, String)>,
    /// Why a SHOULD is not followed.
    pub(super) declined: Option<String>,
}

/// `crates/quic/src/connection/output.rs::write_coalesced`.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) file: String,
    pub(super) item: String,
}

/// How a requirement stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Code meets it and a test shows it.
    Shown,
    /// It holds for the reason given.
    Explained,
    NotOurs,
    Declined,
    Open,
}

impl Rfc {
    pub(super) fn section(&self, number: &str) -> Option<&Section> {
        self.sections.iter().find(|s| s.number == number)
    }
}

impl Section {
    /// How many of its MUSTs have an entry.
    pub(super) fn catalogued(&self) -> usize {
        self.requirements.iter().map(Requirement::musts).sum()
    }
}

impl Requirement {
    pub(super) fn is_must(&self) -> bool {
        !self.id.starts_with('s')
    }

    /// The MUSTs it stands for.
    pub(super) fn numbers(&self) -> Option<std::ops::RangeInclusive<usize>> {
        let id = self.id.strip_prefix('s').unwrap_or(&self.id);
        let (first, last) = id.split_once('-').unwrap_or((id, id));
        Some(first.parse().ok()?..=last.parse().ok()?)
    }

    pub(super) fn musts(&self) -> usize {
        match self.numbers() {
            Some(numbers) if self.is_must() => numbers.count(),
            _ => 0,
        }
    }

    pub(super) fn standing(&self) -> Standing {
        if self.open.is_some() {
            Standing::Open
        } else if self.declined.is_some() {
            Standing::Declined
        } else if self.none.is_some() {
            Standing::NotOurs
        } else if self.tests.is_empty() {
            Standing::Explained
        } else {
            Standing::Shown
        }
    }
}

/// Reads a catalogue; complaints name the line.
pub(super) fn parse(number: u16, path: &str, text: &str) -> (Rfc, Vec<String>) {
    let mut rfc = Rfc {
        number,
        path: path.to_owned(),
        sections: Vec::new(),
    };
    let mut wrong = Vec::new();
    for (index, raw) in text.lines().enumerate() {
        let line = index + 1;
        if raw.trim().is_empty() || raw.starts_with('#') {
            continue;
        }
        let read = if let Some(rest) = raw.strip_prefix('§') {
            section(line, rest).map(|section| rfc.sections.push(section))
        } else if let Some(rest) = raw.strip_prefix("  ") {
            rfc.sections
                .last_mut()
                .and_then(|section| section.requirements.last_mut())
                .ok_or("a line that belongs to no requirement")
                .and_then(|requirement| detail(requirement, rest))
        } else {
            rfc.sections
                .last_mut()
                .ok_or("a requirement before the first section")
                .and_then(|section| {
                    section.requirements.push(requirement(line, raw)?);
                    Ok(())
                })
        };
        if let Err(what) = read {
            wrong.push(format!("{path}:{line}: {what}"));
        }
    }
    for (at, section) in rfc.sections.iter().enumerate() {
        if rfc.sections[..at]
            .iter()
            .any(|s| s.number == section.number)
        {
            wrong.push(format!("{path}:{}: a section again", section.line));
        }
        wrong.extend(
            gaps(section)
                .into_iter()
                .map(|what| format!("{path}:{}: §{}: {what}", section.line, section.number)),
        );
    }
    (rfc, wrong)
}

/// `14.1 Initial Datagram Size | 4`, or `| -` out of scope.
fn section(line: usize, text: &str) -> Result<Section, &'static str> {
    const FORM: &str = "a section is written `§14.1 Title | 4`, or `| -` out of scope";
    let (head, count) = text.rsplit_once(" | ").ok_or(FORM)?;
    let (number, title) = head.split_once(' ').ok_or(FORM)?;
    let musts = match count.trim() {
        "-" => None,
        count => Some(count.parse().map_err(|_| FORM)?),
    };
    Ok(Section {
        line,
        number: number.to_owned(),
        title: title.to_owned(),
        musts,
        requirements: Vec::new(),
    })
}

/// `3 What is required.`
fn requirement(line: usize, text: &str) -> Result<Requirement, &'static str> {
    const FORM: &str = "a requirement is written `3 Text`, `3-4 Text` or `s1 Text`";
    let (id, text) = text.split_once(' ').ok_or(FORM)?;
    let requirement = Requirement {
        line,
        id: id.to_owned(),
        text: text.trim().to_owned(),
        ..Requirement::default()
    };
    match requirement.numbers() {
        Some(numbers) if !numbers.is_empty() => Ok(requirement),
        _ => Err(FORM),
    }
}

/// `code file::item`, `test file::name`, `so why`, `none why`, `open issue: what`, `declined why`.
fn detail(requirement: &mut Requirement, text: &str) -> Result<(), &'static str> {
    let (word, rest) = text.trim().split_once(' ').ok_or("a word without a text")?;
    let rest = rest.trim().to_owned();
    match word {
        "code" => requirement.code.push(place(&rest)?),
        "test" => requirement.tests.push(place(&rest)?),
        "so" => requirement.so = Some(rest),
        "none" => requirement.none = Some(rest),
        "declined" => requirement.declined = Some(rest),
        "open" => {
            let (issue, what) = rest
                .split_once(": ")
                .ok_or("what is open is written `open 17: what is missing`")?;
            requirement.open = Some((issue.to_owned(), what.to_owned()));
        }
        _ => return Err("not one of: code test so none open declined"),
    }
    Ok(())
}

fn place(text: &str) -> Result<Place, &'static str> {
    let (file, item) = text
        .split_once("::")
        .ok_or("a place is written `quic/src/x.rs::item`")?;
    Ok(Place {
        file: format!("crates/{file}"),
        item: item.to_owned(),
    })
}

/// MUSTs without an entry or with two, and entries of sections out of scope.
fn gaps(section: &Section) -> Vec<String> {
    let Some(musts) = section.musts else {
        return match section.requirements.is_empty() {
            true => Vec::new(),
            false => vec!["requirements of a section out of scope".to_owned()],
        };
    };
    let mut seen = vec![0; musts];
    let mut wrong = Vec::new();
    for requirement in section.requirements.iter().filter(|r| r.is_must()) {
        for number in requirement.numbers().into_iter().flatten() {
            match number.checked_sub(1).and_then(|at| seen.get_mut(at)) {
                Some(seen) => *seen += 1,
                None => wrong.push(format!("({number}) is not one of its {musts} MUSTs")),
            }
        }
    }
    for (at, seen) in seen.into_iter().enumerate() {
        if seen != 1 {
            wrong.push(format!("({}) has {seen} entries", at + 1));
        }
    }
    wrong
}
