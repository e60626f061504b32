//! The page that stays: what was run, where, and what came out.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::Outcome;
use crate::machine::Machine;

/// Writes the page of one comparison, `make COMMAND`, below `docs/evidence` and returns its path in
/// the repository. `draw` draws the chart at the path it is given; `text` is told the chart's name and follows the
/// title and the description of the machine.
///
/// # Errors
/// When a file cannot be written.
pub fn write(
    root: &Path,
    machine: &Machine,
    command: &str,
    title: &str,
    draw: impl FnOnce(&Path) -> Outcome,
    text: impl FnOnce(&str) -> String,
) -> Outcome<String> {
    let name = format!("{}-{command}", machine.date);
    let folder = root.join("docs/evidence");
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(failed)?;
    let chart = format!("{name}.svg");
    draw(&folder.join(&chart))?;
    let mut page = format!("# {title}\n\n`make {command}`\n\n");
    for (name, text) in machine.lines() {
        let _ = writeln!(page, "- {name}: {text}");
    }
    let _ = write!(page, "\n{}", text(&chart));
    fs::write(folder.join(format!("{name}.md")), page).map_err(failed)?;
    Ok(format!("docs/evidence/{name}.md"))
}
