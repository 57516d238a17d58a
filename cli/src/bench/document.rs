//! The Markdown document of a comparison. It has setup, method, summary tables, every figure, and the
//! tables of sleeping providers.

use super::figure::{CaseRow, Quantity};
use super::figure_report::FigureReport;
use super::{figure_table, sleep};

/// The directory of the drawings, beside the document.
pub(super) const DRAWINGS: &str = "plots";

/// The sizes in the summary tables.
const BRIEF_SIZES_BYTES: [usize; 4] = [8, 4 << 10, 64 << 10, 1 << 20];

/// The whole document.
pub(super) fn render_document(report: &FigureReport) -> String {
    let mut text = format!(
        "# Speed, measured\n\n{}\n## In short\n\n{}",
        render_setup_list(report),
        render_brief(report)
    );
    text += &format!(
        "\n## How it was measured\n\n{}\n## How to read the tables\n\n{COLUMNS}",
        method_text(report)
    );
    for figure in &report.figures {
        text += &format!("\n## {}; {}\n\n", figure.title, figure.place);
        text += &format!("{}.\n\n", capitalise_first(figure.quantity.description()));
        text += &figure_table::format_markdown(figure);
        for drawing in figure.drawings {
            let file = figure.drawing_file_name(*drawing);
            text += &format!("\n![{}: {}]({DRAWINGS}/{file})\n", figure.title, drawing.name());
        }
    }
    if let Some(sleep) = &report.sleep {
        text += &format!("\n## Asleep and idle\n\n{}", sleep::render_section(sleep));
    }
    text
}

/// The summary tables, which `--readme` also writes into another file.
pub(super) fn render_brief(report: &FigureReport) -> String {
    let places = unique_places(report);
    let mut text = format!(
        "Times in µs; {}; {}; {}. A ratio below 1 says that homespun is faster.\n",
        describe_libfabric(report),
        report.host.processor,
        places.join("; ")
    );
    for figure in report.figures.iter().filter(|figure| figure.is_in_summary) {
        let is_chosen =
            |row: &CaseRow| row.case.size_bytes.is_some_and(|size| BRIEF_SIZES_BYTES.contains(&size));
        let place = if places.len() > 1 { format!("; {}", figure.place) } else { String::new() };
        let about = match figure.quantity {
            Quantity::HalfRoundTrip => "half of a round trip",
            Quantity::Transfer => "the time of each, many in flight",
        };
        text += &format!("\n{}, {about}{place}:\n\n", figure.title);
        text += &figure_table::format_brief_markdown(figure, is_chosen);
    }
    if let Some(brief) = report.sleep.as_ref().and_then(sleep::render_brief) {
        text += &format!("\n{brief}");
    }
    text
}

/// The list of the comparison's setup: its subject, the host, and the command.
fn render_setup_list(report: &FigureReport) -> String {
    format!(
        "The tables compare homespun with libfabric's own providers for the same medium, and with a bare\n\
         loop that only moves the bytes. Everything was measured in one run, on one host, by\n\n\
         ```sh\n\
         {}\n\
         ```\n\n\
         - homespun {}, {}\n\
         - {}; {}\n\
         - {}\n",
        reproducing_command(report),
        report.homespun_version,
        describe_libfabric(report),
        report.host.kernel,
        report.host.processor,
        unique_places(report).join("; "),
    )
}

/// The method of measurement.
fn method_text(report: &FigureReport) -> String {
    let rounds =
        if report.rounds == 1 { "one round".to_owned() } else { format!("{} rounds", report.rounds) };
    format!(
        "- **The same program for all.** Each figure is one unmodified program of libfabric\n  \
         (`fi_pingpong`) or of its test suite fabtests (the others). Only the name of the provider on\n  \
         its command line differs. libfabric loads homespun as a plugin. Every pair is two processes;\n  \
         the title says where they run.\n\
         - **In turns.** In each of {rounds}, for each size, the bare loop, homespun and each provider\n  \
         take one turn, so other load of the host slows all alike. A time is the median over the\n  \
         rounds.\n\
         - **The bare loop** has no fabric in it, and runs on the same cores. For each size it is the\n  \
         fastest of several, and the last column names it. Messages in shared memory: a ring of cache\n  \
         lines (`ring`); the same ring with each message in chunks, so that one process copies in\n  \
         while the other copies out (`pipelined-4K` to `pipelined-64K`); from 16 KiB on, one\n  \
         `process_vm_readv(2)` by the receiver. Access to shared memory: a copy within one process\n  \
         and a fence (`memcpy`). TCP: a polled, non-blocking socket (`socket`); small messages one way\n  \
         are written to it in large pieces.\n\
         - **In flight.** Programs that measure many transfers keep up to 64 of them in flight, and up\n  \
         to 64 MiB. `fi_rma_bw` accesses memory both ways at once; its bare loop goes one way. Over\n  \
         TCP it has no bare loop: a read takes a request and an answer, and a write an\n  \
         acknowledgement; a stream of bytes has neither.\n\
         - **Only ratios** can be compared between hosts.\n"
    )
}

const COLUMNS: &str = "\
- **size**: the bytes of a message, a write or a read.
- **bare loop**, **homespun**, and the name of a provider: its time in µs, the median over
  rounds. The line above the table names the time: half of a round trip, or the time of each of
  many transfers in flight, which is the whole duration divided by their number.
- **p99**, right of each time: its spread. These programs print one mean for each round, so
  their p99 is that of the slowest round. The p99 of the bare loop is the 99th percentile of
  single round trips; there is none for transfers one way. The section \"Asleep and idle\" has
  percentiles of single round trips of every provider.
- **/bare**, **/shm**, **/tcp** and so on, or \"homespun / bare loop\" and so on: homespun's time
  divided by that of the other. Below 1 homespun is faster; at 1.25 it takes a quarter more
  time.
- **bare loop is**: the name of the fastest bare loop.
- **-**: not measured, or failed.
";

/// The version of libfabric, and how it was built.
fn describe_libfabric(report: &FigureReport) -> String {
    let built = report.libfabric.built.as_deref().map(|built| format!(", built {built}")).unwrap_or_default();
    format!("libfabric {}{built}", report.libfabric.version)
}

/// The places of all figures, each once.
fn unique_places(report: &FigureReport) -> Vec<&str> {
    let mut places: Vec<&str> = Vec::new();
    for figure in &report.figures {
        if !places.contains(&figure.place.as_str()) {
            places.push(&figure.place);
        }
    }
    places
}

/// The command that reproduces the record. Directories of this host are left out.
fn reproducing_command(report: &FigureReport) -> String {
    let fabtests = if report.has_fabtests { "FABTESTS=<directory> " } else { "" };
    let prefix = if report.has_prefix { " --libfabric <prefix>" } else { "" };
    let built = report.libfabric.built.as_ref();
    let built = built.map(|built| format!(" --libfabric-built {built:?}")).unwrap_or_default();
    // Quote the names if one contains a semicolon, because a shell would end the command there.
    let providers = report.providers.join(",");
    let quote = if providers.contains(';') { "'" } else { "" };
    format!("{fabtests}homespun bench --against {quote}{providers}{quote}{prefix}{built} --record benches")
}

fn capitalise_first(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::figure::tests::make_figure;
    use super::super::figure_report::LibfabricReport;
    use super::*;
    use crate::host::HostDescription;

    pub(crate) fn make_figure_report() -> FigureReport {
        FigureReport {
            homespun_version: "0.1.0",
            host: HostDescription {
                kernel: "Linux 1.2.3".into(),
                processor: "Some Processor (x86_64)".into(),
            },
            libfabric: LibfabricReport { version: "2.0".into(), built: Some("with -O3".into()) },
            providers: vec!["shm".into(), "tcp;ofi_rxm".into()],
            has_fabtests: true,
            has_prefix: true,
            is_quick: false,
            rounds: 5,
            figures: vec![make_figure()],
            sleep: Some(sleep::tests::make_sleep_report()),
        }
    }

    #[test]
    fn document_names_its_command_and_links_every_drawing() {
        let text = render_document(&make_figure_report());
        for part in [
            "FABTESTS=<directory> homespun bench --against 'shm,tcp;ofi_rxm' --libfabric <prefix> \
             --libfabric-built \"with -O3\" --record benches",
            "- homespun 0.1.0, libfabric 2.0, built with -O3\n- Linux 1.2.3; Some Processor (x86_64)\n",
            "- cores 0 and 1",
            "\n## In short\n\nTimes in µs; libfabric 2.0, built with -O3; Some Processor (x86_64); cores 0",
            "\n## Asleep and idle\n",
            "](plots/shm-fi_pingpong-shared-cache-latency.svg)",
            "](plots/shm-fi_pingpong-shared-cache-bandwidth.svg)",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn document_contains_the_brief_unchanged() {
        let (text, brief) = (render_document(&make_figure_report()), render_brief(&make_figure_report()));
        assert!(text.contains(&format!("## In short\n\n{brief}\n## ")), "{text}");
        let tables = brief.matches("\n| ---: |").count();
        // One table is of the figure, the other of sleeping providers.
        assert_eq!(tables, 2, "{brief}");
    }

    #[test]
    fn document_without_sleep_lacks_its_section() {
        let text = render_document(&FigureReport { sleep: None, ..make_figure_report() });
        assert!(!text.contains("## Asleep and idle"), "{text}");
    }
}
