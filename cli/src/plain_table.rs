//! Tables without lines, for a terminal.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};

use crate::console::WIDTH;

/// A table with these headings, whose cells are wrapped if it would be wider than [`WIDTH`]. The first `words` columns are aligned to the left, the others to the right.
pub(crate) fn new_table<const N: usize>(heading: [&str; N], words: usize) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(heading);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH as u16);
    for column in table.column_iter_mut().skip(words) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The lines of a table, without spaces before and after them.
pub(crate) fn render_table(table: &Table) -> String {
    let lines: Vec<String> =
        table.lines().map(|line| line.trim_end().trim_start_matches(' ').into()).collect();
    lines.join("\n")
}
