//! Writes the files of a comparison: drawings, a document with drawings and tables, and another file's
//! summary tables.

use std::fs;
use std::io;
use std::path::Path;

use super::document::{self, DRAWINGS};
use super::figure_report::FigureReport;
use super::plot;
use crate::failure::CommandFailure;

const DOCUMENT: &str = "RESULTS.md";

/// The lines that enclose the summary tables in another file.
const PLACE_BEGIN: &str = "<!-- speed -->";
const PLACE_END: &str = "<!-- /speed -->";

/// Removes the drawings of an earlier record. Then writes the document and its drawings.
pub(super) fn write_record(report: &FigureReport, directory: &Path) -> Result<(), CommandFailure> {
    let drawings = directory.join(DRAWINGS);
    remove_drawings(&drawings)?;
    write_drawings(report, &drawings)?;
    let path = directory.join(DOCUMENT);
    fs::write(&path, document::render_document(report)).map_err(|error| CommandFailure::Write { path, error })
}

/// Writes a file for every drawing of every figure.
pub(super) fn write_drawings(report: &FigureReport, directory: &Path) -> Result<(), CommandFailure> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| CommandFailure::Write { path, error }
    };
    fs::create_dir_all(directory).map_err(failed(directory))?;
    for figure in &report.figures {
        for drawing in figure.drawings {
            if let Some(svg) = plot::draw_svg(figure, *drawing)? {
                let path = directory.join(figure.drawing_file_name(*drawing));
                fs::write(&path, svg).map_err(failed(&path))?;
            }
        }
    }
    Ok(())
}

/// Removes the drawings of earlier records.
fn remove_drawings(directory: &Path) -> Result<(), CommandFailure> {
    let failed = |error| CommandFailure::Write { path: directory.to_owned(), error };
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
            fs::remove_file(&path).map_err(|error| CommandFailure::Write { path, error })?;
        }
    }
    Ok(())
}

/// Checks that a file has the two lines that enclose the summary tables.
///
/// # Errors
///
/// [`CommandFailure::Write`], which names the missing lines.
pub(super) fn require_table_markers(file: &Path) -> Result<(), CommandFailure> {
    let failed = |error| CommandFailure::Write { path: file.to_owned(), error };
    let text = fs::read_to_string(file).map_err(failed)?;
    let missing = || failed(io::Error::other(format!("it has no lines {PLACE_BEGIN} and {PLACE_END}")));
    replace_tables(&text, "").map(drop).ok_or_else(missing)
}

/// Replaces the summary tables in a file.
pub(super) fn replace_tables_in_file(report: &FigureReport, file: &Path) -> Result<(), CommandFailure> {
    require_table_markers(file)?;
    let failed = |error| CommandFailure::Write { path: file.to_owned(), error };
    let text = fs::read_to_string(file).map_err(failed)?;
    match replace_tables(&text, &document::render_brief(report)) {
        Some(text) => fs::write(file, text).map_err(failed),
        None => Ok(()),
    }
}

/// Returns `text` with these tables between the lines [`PLACE_BEGIN`] and [`PLACE_END`]. Returns `None`
/// if the text lacks these lines.
fn replace_tables(text: &str, brief: &str) -> Option<String> {
    let (before, rest) = text.split_once(PLACE_BEGIN)?;
    let (_, after) = rest.split_once(PLACE_END)?;
    Some(format!("{before}{PLACE_BEGIN}\n\n{brief}\n{PLACE_END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::super::document::tests::make_figure_report;
    use super::*;

    #[test]
    fn record_replaces_only_its_own_drawings() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let drawings = directory.path().join(DRAWINGS);
        fs::create_dir(&drawings).expect("a temporary directory");
        for name in ["tcp-fi_pingpong-two-cores-latency.svg", "logo.svg"] {
            fs::write(drawings.join(name), "").expect("a temporary file");
        }
        write_record(&make_figure_report(), directory.path()).unwrap();
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
    fn file_in_place_of_a_directory_is_named_in_the_failure() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let error = write_drawings(&make_figure_report(), file.path()).unwrap_err().to_string();
        assert!(error.contains(&file.path().display().to_string()), "{error}");
    }

    #[test]
    fn replace_tables_keeps_the_text_around_them() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        fs::write(file.path(), "above\n<!-- speed -->\nold\n<!-- /speed -->\nbelow\n").unwrap();
        for _ in 0..2 {
            replace_tables_in_file(&make_figure_report(), file.path()).unwrap();
            let text = fs::read_to_string(file.path()).unwrap();
            let brief = document::render_brief(&make_figure_report());
            assert_eq!(text, format!("above\n<!-- speed -->\n\n{brief}\n<!-- /speed -->\nbelow\n"));
        }
    }

    #[test]
    fn file_without_markers_is_refused_and_unchanged() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        fs::write(file.path(), "<!-- /speed -->\n<!-- speed -->\n").unwrap();
        let error = replace_tables_in_file(&make_figure_report(), file.path()).unwrap_err().to_string();
        assert!(error.contains("it has no lines <!-- speed --> and <!-- /speed -->"), "{error}");
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "<!-- /speed -->\n<!-- speed -->\n");
    }
}
