//! The tables, and the page that has them.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter, Write};
use std::fs;
use std::path::Path;

use crate::contender::Contender;
use crate::{Case, Result};

/// What comes after this line of the page is written by the benchmark.
const MARKER: &str = "<!-- Written by cargo bench --bench mpi -- --record -->";

/// The times of a contender in microseconds, by size in bytes.
pub(crate) struct Times(BTreeMap<u64, f64>);

impl Times {
    /// The median over the rounds.
    pub(crate) fn median_of_rounds(rounds: BTreeMap<u64, Vec<f64>>) -> Times {
        let median = |mut times: Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        Times(rounds.into_iter().map(|(size, times)| (size, median(times))).collect())
    }
}

/// The table of a case.
pub(crate) struct Section {
    case: Case,
    contenders: Vec<Contender>,
    times: Vec<Times>,
}

impl Section {
    pub(crate) fn new(case: Case, contenders: Vec<Contender>, times: Vec<Times>) -> Section {
        Section { case, contenders, times }
    }

    /// The pairs of contenders that are compared, as places in the list.
    fn pairs(&self) -> Vec<(usize, usize)> {
        let count = self.contenders.len();
        let all = (0..count).flat_map(|one| (0..count).map(move |other| (one, other)));
        all.filter(|(one, other)| self.contenders[*one].is_compared_with(self.contenders[*other])).collect()
    }

    fn write_row(&self, row: &mut String, size: u64) {
        let time = |at: usize| self.times[at].0.get(&size);
        let _ = write!(row, "| {size} |");
        for (one, other) in self.pairs() {
            match (time(one), time(other)) {
                (Some(one), Some(other)) => write!(row, " {:.2} |", one / other),
                _ => write!(row, " - |"),
            }
            .expect("a string takes all");
        }
        for at in 0..self.contenders.len() {
            match time(at) {
                Some(us) if *us < 100.0 => write!(row, " {us:.2} |"),
                Some(us) => write!(row, " {us:.0} |"),
                None => write!(row, " - |"),
            }
            .expect("a string takes all");
        }
    }
}

impl Display for Section {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "### {}\n", self.case.title())?;
        let pairs = self.pairs();
        write!(f, "| bytes |")?;
        for (one, other) in &pairs {
            let (Contender::Homespun(domain), other) = (self.contenders[*one], self.contenders[*other])
            else {
                continue;
            };
            write!(f, " {domain} / {} |", other.name())?;
        }
        for contender in &self.contenders {
            write!(f, " {}, us |", contender.name())?;
        }
        writeln!(f, "\n|{}", " ---: |".repeat(1 + pairs.len() + self.contenders.len()))?;
        let mut sizes: Vec<u64> = self.times.iter().flat_map(|times| times.0.keys().copied()).collect();
        sizes.sort_unstable();
        sizes.dedup();
        for size in sizes {
            let mut row = String::new();
            self.write_row(&mut row, size);
            writeln!(f, "{row}")?;
        }
        Ok(())
    }
}

/// Writes a table to the page, in the place of an earlier table of the same case.
pub(crate) fn record(page: &Path, section: &Section, host: &str) -> Result<()> {
    let text = fs::read_to_string(page)?;
    let Some((head, tables)) = text.split_once(MARKER) else {
        return Err(format!("{} has no line {MARKER}", page.display()).into());
    };
    let tables = tables.split_once("### ").map_or("", |(_, tables)| tables);
    let mut by_title: BTreeMap<String, String> = tables
        .split("\n### ")
        .filter_map(|table| Some((table.lines().next()?.to_owned(), format!("### {}\n", table.trim_end()))))
        .collect();
    by_title.insert(section.case.title(), section.to_string());
    let tables = Case::all().filter_map(|case| by_title.remove(&case.title()));
    let tables: Vec<String> = tables.collect();
    fs::write(page, format!("{head}{MARKER}\n\n{host}\n\n{}", tables.join("\n")))?;
    Ok(())
}
