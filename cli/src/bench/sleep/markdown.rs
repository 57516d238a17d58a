//! The results of `bench --only sleep`, as parts of a Markdown document.

use super::report::{ContenderReport, IdleReport, LatencyReport, SleepReport, SleepSizeReport};
use super::table::POLLING;
use crate::bench::figure_table::{format_markdown_table, format_number_or_dash};
use crate::size;

/// The wait object of a queue with a descriptor.
const DESCRIPTOR: &str = "FI_WAIT_FD";

/// The summary table for the shortest message. It has each homespun contender and the contender's first
/// rival. `None` if no message was measured.
pub(in crate::bench) fn render_brief(report: &SleepReport) -> Option<String> {
    let size_bytes = report.contenders.iter().flat_map(ContenderReport::measured_sizes).min()?;
    let heading = ["", "polling p50", "p99", "asleep p50", "p99", "idle, ms a second"];
    let is_first = |index: usize, contender: &ContenderReport| {
        let same = |other: &ContenderReport| other.rival_of == contender.rival_of;
        contender.rival_of.is_none() || !report.contenders[..index].iter().any(same)
    };
    let chosen =
        report.contenders.iter().enumerate().filter(|(index, contender)| is_first(*index, contender));
    let rows = chosen.map(|(_, contender)| {
        let of = |latencies: &LatencyReport| {
            let measured = latencies.sizes.iter().find(|size| size.size_bytes == size_bytes);
            let missing = || word_or_dash(latencies.shortfall.add_note_and_get_word("", "", &mut Vec::new()));
            measured.map_or_else(
                || [missing(), "-".to_owned()],
                |size| {
                    [
                        format_number_or_dash(Some(size.percentiles.p50_us)),
                        format_number_or_dash(Some(size.percentiles.p99_us)),
                    ]
                },
            )
        };
        let idle = contender.idle.processor_ms_per_s.map(|[own, other]| format!("{:.3}", own + other));
        let name = [contender.shown_name()];
        let latencies = of(&contender.polled).into_iter().chain(of(&contender.descriptor));
        name.into_iter().chain(latencies).chain([idle.unwrap_or_else(|| "-".to_owned())]).collect()
    });
    let table = format_markdown_table(&heading, rows);
    Some(format!(
        "Half of single round trips of {} over the C interface in µs: while both processes poll, and while\n\
         both sleep on a descriptor (`FI_WAIT_FD`). The last column is the processor time of both\n\
         processes together, in milliseconds a second, while they sleep without messages:\n\n\
         {table}",
        size::format_with_unit(size_bytes as u64)
    ))
}

/// The section of the document with all results.
pub(in crate::bench) fn render_section(report: &SleepReport) -> String {
    let cores = match report.cores {
        Some([own, other]) => format!("on cores {own} and {other}"),
        None => "on cores chosen by the system".to_owned(),
    };
    let mut notes = Vec::new();
    let latencies = latency_table(report, &mut notes);
    let idle = idle_table(report, &mut notes);
    let notes: String = notes.iter().map(|note| format!("- {note}\n")).collect();
    let notes = if notes.is_empty() { notes } else { format!("\nWhat is missing:\n\n{notes}") };
    format!(
        "Here both processes are homespun's own, {cores}. They exchange tagged messages through the C\n\
         interface of the same libfabric, with the same code for every provider: one sends, the other\n\
         answers. Every round trip is timed. The percentiles are over all single round trips of\n\
         {rounds} together; the times are halves of them.\n\n\
         - **{POLLING}**: both processes poll their completion queue.\n\
         - **{DESCRIPTOR}**: both sleep in `poll(2)` on the descriptor of their queue, so every message\n  \
         wakes a process.\n\n\
         Threads that a provider starts run on the core of their process.\n\n\
         {latencies}\n\
         - **p50**, **p99**: half of a round trip in µs that 50 % and 99 % of all do not exceed.\n\
         - **ratio**: homespun's percentile, over the same medium, divided by that of this row: below 1\n  \
         homespun takes less time.\n\
         - **round trips**: the number of timed round trips.\n\n\
         After that both processes sleep for {} ms in each round without messages. They exchange a\n\
         message before and after, which shows that they can still be woken. A provider whose queues\n\
         have no descriptor sleeps in `fi_cq_sread` (`FI_WAIT_UNSPEC`).\n\n\
         {idle}\n\
         - **leader**, **follower**: the process that sends first, and the one that answers.\n\
         - **ms/s**: milliseconds of processor time in a second, of all threads of the process; medians\n  \
         over rounds.\n\
         - **wakes/s**: wake-ups of the process in a second, including refused attempts to sleep.\n\
         {notes}",
        report.idle_ms,
        rounds =
            if report.rounds == 1 { "one round".to_owned() } else { format!("{} rounds", report.rounds) },
    )
}

fn latency_table(report: &SleepReport, notes: &mut Vec<String>) -> String {
    let heading = ["provider", "waits by", "size", "p50", "ratio", "p99", "ratio", "round trips"];
    let mut rows = Vec::new();
    for contender in &report.contenders {
        let name = contender.shown_name();
        for (waits_by, latencies) in [(POLLING, &contender.polled), (DESCRIPTOR, &contender.descriptor)] {
            if let Some(word) = latencies.shortfall.add_note_and_get_word(&name, waits_by, notes) {
                let mut row = vec![name.clone(), waits_by.to_owned(), "-".to_owned(), word.to_owned()];
                row.resize(heading.len(), "-".to_owned());
                rows.push(row);
            }
            rows.extend(latencies.sizes.iter().map(|size| latency_row(&name, waits_by, size)));
        }
    }
    format_markdown_table(&heading, rows.into_iter())
}

fn latency_row(name: &str, waits_by: &str, report: &SleepSizeReport) -> Vec<String> {
    let ratio = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
    vec![
        name.to_owned(),
        waits_by.to_owned(),
        size::format_with_unit(report.size_bytes as u64),
        format_number_or_dash(Some(report.percentiles.p50_us)),
        ratio(report.p50_ratio),
        format_number_or_dash(Some(report.percentiles.p99_us)),
        ratio(report.p99_ratio),
        report.percentiles.samples.to_string(),
    ]
}

fn idle_table(report: &SleepReport, notes: &mut Vec<String>) -> String {
    let heading =
        ["provider", "sleeps by", "leader ms/s", "follower ms/s", "leader wakes/s", "follower wakes/s"];
    let rows = report.contenders.iter().map(|contender| {
        let name = contender.shown_name();
        let IdleReport { shortfall, wait_object, processor_ms_per_s, wake_ups_per_s } = &contender.idle;
        let word = shortfall.add_note_and_get_word(&name, wait_object, notes);
        let mut row = vec![name, (*wait_object).to_owned()];
        match (processor_ms_per_s, wake_ups_per_s) {
            (Some(processor), Some(wake_ups)) => {
                row.extend(processor.map(|ms_per_s| format!("{ms_per_s:.3}")));
                row.extend(wake_ups.map(|per_s| format!("{per_s:.1}")));
            }
            _ => row.push(self::word_or_dash(word)),
        }
        row.resize(heading.len(), "-".to_owned());
        row
    });
    let rows: Vec<Vec<String>> = rows.collect();
    format_markdown_table(&heading, rows.into_iter())
}

fn word_or_dash(word: Option<&str>) -> String {
    word.unwrap_or("-").to_owned()
}

impl ContenderReport {
    /// The measured sizes of messages.
    fn measured_sizes(&self) -> impl Iterator<Item = usize> + '_ {
        self.polled.sizes.iter().chain(&self.descriptor.sizes).map(|size| size.size_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::make_sleep_report;
    use super::*;

    #[test]
    fn brief_has_homespun_and_the_first_rival_with_the_shortest_message() {
        let text = render_brief(&make_sleep_report()).expect("contenders");
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| ")).collect();
        assert_eq!(
            rows,
            [
                "|  | polling p50 | p99 | asleep p50 | p99 | idle, ms a second |",
                "| ---: | ---: | ---: | ---: | ---: | ---: |",
                "| homespun/tcp | 10.0 | 10.0 | 20.0 | 20.0 | 3.000 |",
                "| tcp | 20.0 | 20.0 | not offered | - | 3.000 |",
            ]
        );
        assert!(text.starts_with("Half of single round trips of 8 B "), "{text}");
    }

    #[test]
    fn section_has_every_size_the_ratios_and_the_reasons_for_gaps() {
        let text = render_section(&make_sleep_report());
        for part in [
            "\n| tcp | polling | 8 B | 20.0 | 0.50 | 20.0 | 0.50 | 1 |\n",
            "\n| tcp | polling | 4 KiB | 20.0 | 0.50 | 20.0 | 0.50 | 1 |\n",
            "\n| tcp | FI_WAIT_FD | - | not offered | - | - | - | - |\n",
            "\n| sockets | polling | 8 B | 40.0 | 0.25 | 40.0 | 0.25 | 1 |\n",
            "\n| sockets | FI_WAIT_FD | 1.000 | 2.000 | 0.5 | 0.5 |\n",
            "\nWhat is missing:\n\n- tcp, FI_WAIT_FD: not offered: fi_cq_open: ENOSYS\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("/opt/libfabric"), "a path of this host: {text}");
    }
}
