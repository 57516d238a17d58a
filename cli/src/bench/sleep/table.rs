//! The results of `bench --only sleep`, as text for a terminal.

use std::fmt;

use super::report::{ContenderReport, LatencyReport, ShortfallFields, SleepReport};
use crate::bench::table::format_significant;
use crate::console::wrap;
use crate::plain_table::{new_table, render_table};
use crate::size;

/// Displays two tables, one of round trips and one of idle pairs, and the reasons for missing figures.
#[derive(Debug)]
pub(in crate::bench) struct SleepTables<'a>(pub(in crate::bench) &'a SleepReport);

const LATENCY_HEADING: [&str; 7] = ["provider", "waits by", "size", "p50 us", "ratio", "p99 us", "ratio"];

const IDLE_HEADING: [&str; 6] =
    ["provider", "sleeps by", "leader ms/s", "follower ms/s", "leader wakes/s", "follower wakes/s"];

/// The word for waiting without a wait object.
pub(super) const POLLING: &str = "polling";

impl fmt::Display for SleepTables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SleepReport { libfabric, libfabric_version, cores, rounds, idle_ms, contenders, .. } = self.0;
        let version = libfabric_version.as_deref().unwrap_or("of an unknown version");
        let setup = format!(
            "libfabric {version} ({libfabric}), tagged messages between two processes, {rounds} rounds"
        );
        writeln!(f, "{}", wrap(&setup, "", ""))?;
        let about = "p50, p99: half of single round trips; a ratio below 1: homespun takes less time";
        writeln!(f, "{}", wrap(about, "", ""))?;
        match cores {
            Some([own, other]) => writeln!(f, "the two processes stay on cores {own} and {other}")?,
            None => writeln!(f, "the system chooses where the two processes run")?,
        }
        let mut notes = Vec::new();
        write!(f, "\n{}", latency_table(contenders, &mut notes))?;
        let about =
            format!("processor time of the two processes while no message comes, for {idle_ms} ms a round");
        writeln!(f, "\n\n{}", wrap(&about, "", ""))?;
        write!(f, "\n{}", idle_table(contenders, &mut notes))?;
        for note in notes {
            write!(f, "\n{}", wrap(&note, "", "  "))?;
        }
        Ok(())
    }
}

fn latency_table(contenders: &[ContenderReport], notes: &mut Vec<String>) -> String {
    let mut table = new_table(LATENCY_HEADING, 2);
    for contender in contenders {
        let ways = [(POLLING, &contender.polled), ("FI_WAIT_FD", &contender.descriptor)];
        for (waits_by, LatencyReport { shortfall, sizes }) in ways {
            let name = contender.shown_name();
            if let Some(word) = shortfall.add_note_and_get_word(&name, waits_by, notes) {
                table.add_row([&name, waits_by, "-", word, "-", "-", "-"]);
            }
            for report in sizes {
                let ratio = |ratio: Option<f64>| ratio.map_or_else(|| "-".into(), format_significant);
                table.add_row([
                    name.clone(),
                    waits_by.into(),
                    size::format(report.size_bytes as u64),
                    format_significant(report.percentiles.p50_us),
                    ratio(report.p50_ratio),
                    format_significant(report.percentiles.p99_us),
                    ratio(report.p99_ratio),
                ]);
            }
        }
    }
    render_table(&table)
}

fn idle_table(contenders: &[ContenderReport], notes: &mut Vec<String>) -> String {
    let mut table = new_table(IDLE_HEADING, 2);
    for contender in contenders {
        let (name, idle) = (contender.shown_name(), &contender.idle);
        if let Some(word) = idle.shortfall.add_note_and_get_word(&name, idle.wait_object, notes) {
            table.add_row([&name, idle.wait_object, word, "-", "-", "-"]);
        }
        if let (Some(processor), Some(wake_ups)) = (idle.processor_ms_per_s, idle.wake_ups_per_s) {
            let [own, other] = processor.map(|ms_per_s| format!("{ms_per_s:.3}"));
            let [own_wakes, other_wakes] = wake_ups.map(|per_s| format!("{per_s:.1}"));
            table.add_row([&name, idle.wait_object, &own, &other, &own_wakes, &other_wakes]);
        }
    }
    render_table(&table)
}

impl ContenderReport {
    /// The requested name, with the provider's full name if it differs.
    pub(super) fn shown_name(&self) -> String {
        match &self.provider {
            Some(provider) if self.rival_of.is_some() && *provider != self.name => {
                format!("{} ({provider})", self.name)
            }
            _ => self.name.clone(),
        }
    }
}

impl ShortfallFields {
    /// If figures are missing, returns the word that replaces them, and adds the reason to `notes`.
    /// Otherwise returns `None`.
    pub(super) fn add_note_and_get_word(
        &self,
        name: &str,
        waits_by: &str,
        notes: &mut Vec<String>,
    ) -> Option<&'static str> {
        let (word, reason) = match (&self.not_offered, &self.failure) {
            (Some(reason), _) => ("not offered", reason),
            (None, Some(reason)) => ("failed", reason),
            (None, None) => return None,
        };
        let note = format!("{name}, {waits_by}: {word}: {reason}");
        if !notes.contains(&note) {
            notes.push(note);
        }
        Some(word)
    }
}
