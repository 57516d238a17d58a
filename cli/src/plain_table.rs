//! Tables without lines, for a terminal.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};

use crate::console::WIDTH;

/// A table with these headings. A table wider than [`WIDTH`] gets wrapped cells. The first `words`
/// columns are aligned to the left, the others to the right.
pub(crate) fn new_table<const N: usize>(heading: [&str; N], words: usize) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(heading);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH as u16);
    for column in table.column_iter_mut().skip(words) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The lines of a table, without trailing spaces and without the padding of the first column.
pub(crate) fn render_table(table: &Table) -> String {
    let unpadded = |line: String| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned();
    table.lines().map(unpadded).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_table_is_wrapped_and_stays_aligned() {
        let word = "sixteen letters.";
        let mut table = new_table(["a heading of many words", word, word, word, word], 1);
        table.add_row(["text", "1", "2", "3", "4"]);
        let text = render_table(&table);
        assert!(text.lines().count() > 2, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        let row = text.lines().last().expect("a row");
        assert!(row.starts_with("text ") && row.ends_with(" 4"), "{text}");
        let narrow = new_table(["left", "right"], 1);
        assert_eq!(render_table(&narrow), "left  right");
    }
}
