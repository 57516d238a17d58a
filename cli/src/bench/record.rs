//! The files of a comparison: drawings, and a document that has them with their tables.

use std::fs;
use std::io;
use std::path::Path;

use super::figure::{Figure, Row};
use super::figure_report::FigureReport;
use super::{figure_table, plot};
use crate::failure::Failure;

const DOCUMENT: &str = "RESULTS.md";

/// The directory of the drawings, beside the document.
const DRAWINGS: &str = "plots";

/// The sizes of the tables in short.
const BRIEF_SIZES_BYTES: [usize; 4] = [8, 4 << 10, 64 << 10, 1 << 20];

/// Writes the document and its drawings. Drawings that an earlier record has left are removed.
pub(super) fn write(report: &FigureReport, directory: &Path) -> Result<(), Failure> {
    let drawings = directory.join(DRAWINGS);
    remove_drawings(&drawings)?;
    write_drawings(report, &drawings)?;
    let path = directory.join(DOCUMENT);
    fs::write(&path, document(report)).map_err(|error| Failure::Write { path, error })
}

/// Writes a file for every drawing of every figure.
pub(super) fn write_drawings(report: &FigureReport, directory: &Path) -> Result<(), Failure> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| Failure::Write { path, error }
    };
    fs::create_dir_all(directory).map_err(failed(directory))?;
    for figure in &report.figures {
        for drawing in figure.drawings {
            if let Some(svg) = plot::svg(figure, *drawing)? {
                let path = directory.join(figure.drawing_file(*drawing));
                fs::write(&path, svg).map_err(failed(&path))?;
            }
        }
    }
    Ok(())
}

/// Removes the drawings of earlier records.
fn remove_drawings(directory: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::Write { path: directory.to_owned(), error };
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let is_drawing =
            name.ends_with(".svg") && (name.starts_with("shm-fi_") || name.starts_with("tcp-fi_"));
        if is_drawing {
            fs::remove_file(&path).map_err(|error| Failure::Write { path, error })?;
        }
    }
    Ok(())
}

/// The document, in Markdown.
fn document(report: &FigureReport) -> String {
    let mut text = String::from("# Speed, measured\n\n");
    text += &about(report);
    text += "\n## In short\n";
    for figure in report.figures.iter().filter(|figure| is_in_brief(figure)) {
        let is_chosen = |row: &Row| row.case.size_bytes.is_some_and(|size| BRIEF_SIZES_BYTES.contains(&size));
        text += &format!("\n{}; {}:\n\n", figure.title, figure.place);
        text += &figure_table::brief_markdown(figure, is_chosen);
    }
    for figure in &report.figures {
        text += &format!("\n## {}; {}\n\n", figure.title, figure.place);
        text += &format!("{}.\n\n", capitalised(figure.quantity.about()));
        text += &figure_table::markdown(figure);
        for drawing in figure.drawings {
            let file = figure.drawing_file(*drawing);
            text += &format!("\n![{}: {}]({DRAWINGS}/{file})\n", figure.title, drawing.name());
        }
    }
    text
}

/// Figures with messages back and forth by the program that every libfabric brings.
fn is_in_brief(figure: &Figure) -> bool {
    figure.title.starts_with("fi_pingpong ")
}

/// How the results were made.
fn about(report: &FigureReport) -> String {
    let FigureReport { host, libfabric, rounds, .. } = report;
    let built = libfabric.built.as_deref().map(|built| format!(", built {built}")).unwrap_or_default();
    let mut places: Vec<&str> = report.figures.iter().map(|figure| figure.place.as_str()).collect();
    places.dedup();
    places.sort_unstable();
    places.dedup();
    let rounds = if *rounds == 1 { "one round".to_owned() } else { format!("{rounds} rounds") };
    format!(
        "Made by\n\n```sh\n{}\n```\n\n\
         - homespun {}, libfabric {}{built}\n\
         - {}; {}\n\
         - {}\n\n\
         All contenders run the same unmodified program in the same libfabric, homespun as a plugin, in\n\
         two processes. They take turns; numbers are medians over {rounds}, in µs.\n\n\
         {}: `/bare` is homespun by the bare loop, `/shm` homespun by the provider shm, and so on. Only\n\
         ratios can be compared between hosts. {}.\n\n\
         The bare loop does only what physics asks, between the same cores. For messages in shared memory\n\
         it is the fastest of a ring of cache lines, two copies pipelined through that ring in the best of\n\
         five chunks, and from 16 KiB on one `process_vm_readv` by the receiver; for access to shared\n\
         memory a `memcpy` and a fence; for TCP a socket that is polled without sleeping, and written to in\n\
         large pieces where many messages go one way. Programs that measure bandwidth keep up to 64\n\
         transfers in flight, and up to 64 MiB. `fi_rma_bw` accesses memory both ways at once, its bare\n\
         loop one way.\n",
        command(report),
        report.homespun_version,
        libfabric.version,
        host.kernel,
        host.processor,
        places.join("; "),
        capitalised(figure_table::ABOUT_RATIOS),
        capitalised(figure_table::ABOUT_PERCENTILES),
    )
}

/// The command that makes such a record, without the directories of this host.
fn command(report: &FigureReport) -> String {
    let fabtests = if report.has_fabtests { "FABTESTS=<directory> " } else { "" };
    let quick = if report.is_quick { " --quick" } else { "" };
    let prefix = if report.has_prefix { " --libfabric <prefix>" } else { "" };
    let built = report.libfabric.built.as_ref();
    let built = built.map(|built| format!(" --libfabric-built {built:?}")).unwrap_or_default();
    // A name may hold a semicolon, which ends a command.
    let providers = report.providers.join(",");
    let quote = if providers.contains(';') { "'" } else { "" };
    format!(
        "{fabtests}homespun bench{quick} --against {quote}{providers}{quote}{prefix}{built} --record benches"
    )
}

fn capitalised(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::figure::tests::figure;
    use super::super::figure_report::LibfabricReport;
    use super::*;
    use crate::host::Host;

    fn report() -> FigureReport {
        FigureReport {
            homespun_version: "0.1.0",
            host: Host { kernel: "Linux 1.2.3".into(), processor: "Some Processor (x86_64)".into() },
            libfabric: LibfabricReport { version: "2.0".into(), built: Some("with -O3".into()) },
            providers: vec!["shm".into(), "tcp;ofi_rxm".into()],
            has_fabtests: true,
            has_prefix: true,
            is_quick: false,
            rounds: 5,
            figures: vec![figure()],
        }
    }

    #[test]
    fn document_says_how_it_was_made_and_links_every_drawing() {
        let text = document(&report());
        for part in [
            "FABTESTS=<directory> homespun bench --against 'shm,tcp;ofi_rxm' --libfabric <prefix> \
             --libfabric-built \"with -O3\" --record benches",
            "- homespun 0.1.0, libfabric 2.0, built with -O3\n- Linux 1.2.3; Some Processor (x86_64)\n- cores 0 and 1",
            "## In short",
            "](plots/shm-fi_pingpong-shared-cache-latency.svg)",
            "](plots/shm-fi_pingpong-shared-cache-bandwidth.svg)",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn record_replaces_its_own_drawings_alone() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let drawings = directory.path().join(DRAWINGS);
        fs::create_dir(&drawings).expect("a temporary directory");
        for name in ["tcp-fi_pingpong-two-cores-latency.svg", "logo.svg"] {
            fs::write(drawings.join(name), "").expect("a temporary file");
        }
        write(&report(), directory.path()).unwrap();
        let entries = fs::read_dir(&drawings).expect("a directory");
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(
            names,
            [
                "logo.svg",
                "shm-fi_pingpong-shared-cache-bandwidth.svg",
                "shm-fi_pingpong-shared-cache-latency.svg"
            ]
        );
        assert!(directory.path().join(DOCUMENT).is_file());
    }

    #[test]
    fn file_in_place_of_a_directory_is_reported_with_its_name() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let error = write_drawings(&report(), file.path()).unwrap_err().to_string();
        assert!(error.contains(&file.path().display().to_string()), "{error}");
    }
}
