//! A figure as text: rows for a terminal, and Markdown tables.

use super::figure::{CaseRow, Cell, Figure, Role};
use super::table::{align_columns, format_significant, short_loop_name};
use crate::console::{WIDTH, wrap};

/// The least width of a column of numbers.
const NUMBER_WIDTH: usize = 6;

/// The width of the first column.
const CASE_WIDTH: usize = 8;

/// The name of the last column, which names the bare loop.
const LOOP_HEADING: &str = "bare loop is";

/// The name of the last column in a terminal, where room is scarce.
const LOOP_HEADING_SHORT: &str = "loop";

/// The width of the longest name of a bare loop in a row for a terminal.
const LOOP_WIDTH: usize = "socket".len();

/// The explanation of ratios, for all outputs that show them.
pub(super) const ABOUT_RATIOS: &str =
    "a ratio is homespun's time divided by that of another contender: below 1 homespun is faster";

/// The explanation of percentiles, for all outputs that show them.
pub(super) const ABOUT_PERCENTILES: &str = "the p99 of a program is over rounds, because it prints only \
    means; the p99 of a bare loop is over single round trips, where messages go back and forth";

/// The figure's title and column names, for a terminal.
pub(super) fn format_heading(figure: &Figure) -> String {
    let Figure { title, place, quantity, .. } = figure;
    let title = wrap(&format!("{title}; {place}; {}", quantity.description()), "", "");
    let mut names = column_names(figure, has_room_for_p99(figure));
    if let Some(last) = names.last_mut().filter(|last| *last == LOOP_HEADING) {
        *last = LOOP_HEADING_SHORT.to_owned();
    }
    format!("{title}\n{}", align_columns(&names, &column_widths(figure, has_room_for_p99(figure))))
}

/// A row of the figure, for a terminal.
pub(super) fn format_row(figure: &Figure, row: &CaseRow) -> String {
    let has_p99 = has_room_for_p99(figure);
    align_columns(&format_columns(row, has_p99, short_loop_name), &column_widths(figure, has_p99))
}

/// Whether rows with a p99 beside each median fit the width of a terminal.
fn has_room_for_p99(figure: &Figure) -> bool {
    let numbers: usize = column_widths(figure, true).iter().map(|width| width + 1).sum();
    numbers + 1 + LOOP_WIDTH <= WIDTH
}

/// All rows of a figure, as a Markdown table.
pub(super) fn format_markdown(figure: &Figure) -> String {
    let rows = figure.rows.iter().map(|row| format_columns(row, true, str::to_owned));
    format_markdown_table(&column_names(figure, true), rows)
}

/// The medians and ratios of the chosen rows, as a Markdown table. Its columns are homespun, the bare
/// loop, and the first of the other contenders.
pub(super) fn format_brief_markdown(figure: &Figure, is_chosen: impl Fn(&CaseRow) -> bool) -> String {
    let first_other = figure.contenders.iter().position(|contender| contender.role == Role::Other);
    let is_shown = |index: usize| figure.contenders[index].role != Role::Other || Some(index) == first_other;
    let shown: Vec<usize> = (0..figure.contenders.len()).filter(|index| is_shown(*index)).collect();
    let names = shown.iter().map(|index| figure.contenders[*index].name.clone());
    let compared = shown.iter().map(|index| &figure.contenders[*index]);
    let compared = compared.filter(|contender| contender.role != Role::Homespun);
    let ratio_names = compared.map(|contender| format!("homespun / {}", contender.name));
    let heading: Vec<String> = ["size".to_owned()].into_iter().chain(names).chain(ratio_names).collect();
    let rows = figure.rows.iter().filter(|row| is_chosen(row)).map(|row| {
        let medians =
            shown.iter().map(|index| format_number_or_dash(row.cells[*index].map(|cell| cell.median)));
        let compared = shown.iter().filter(|index| Some(**index) != row.homespun_index());
        let ratios = compared.map(|index| format_ratio(row.ratios[*index]));
        [row.case.label.clone()].into_iter().chain(medians).chain(ratios).collect()
    });
    format_markdown_table(&heading, rows)
}

/// A Markdown table whose columns are all aligned to the right.
pub(super) fn format_markdown_table(
    heading: &[impl AsRef<str>],
    rows: impl Iterator<Item = Vec<String>>,
) -> String {
    let heading: Vec<String> = heading.iter().map(|name| name.as_ref().to_owned()).collect();
    let rule = vec!["---:".to_owned(); heading.len()];
    let lines = [heading, rule].into_iter().chain(rows);
    lines.map(|columns| format!("| {} |\n", columns.join(" | "))).collect()
}

fn column_names(figure: &Figure, has_p99: bool) -> Vec<String> {
    let p99 = has_p99.then(|| "p99".to_owned());
    let each = figure.contenders.iter().flat_map(|contender| [Some(contender.name.clone()), p99.clone()]);
    let each = each.flatten();
    let mut names: Vec<String> =
        ["size".to_owned()].into_iter().chain(each).chain(ratio_column_names(figure)).collect();
    if has_floor(figure) {
        names.push(LOOP_HEADING.to_owned());
    }
    names
}

fn ratio_column_names(figure: &Figure) -> impl Iterator<Item = String> + '_ {
    let others = figure.contenders.iter().filter(|contender| contender.role != Role::Homespun);
    others.map(|contender| match contender.role {
        Role::Floor => "/bare".to_owned(),
        _ => format!("/{}", contender.name),
    })
}

fn has_floor(figure: &Figure) -> bool {
    figure.contenders.iter().any(|contender| contender.role == Role::Floor)
}

fn format_columns(row: &CaseRow, has_p99: bool, loop_name: fn(&str) -> String) -> Vec<String> {
    let p99 = |cell: &Cell| cell.spread.map(|spread| spread.percentiles.p99_us);
    let each = row.cells.iter().flat_map(|cell| {
        let median = format_number_or_dash(cell.map(|cell| cell.median));
        let p99 = has_p99.then(|| format_number_or_dash(cell.as_ref().and_then(p99)));
        [Some(median), p99].into_iter().flatten()
    });
    let mut columns: Vec<String> =
        [row.case.label.clone()].into_iter().chain(each).chain(format_ratios(row)).collect();
    columns.extend(row.floor.as_deref().map(loop_name));
    columns
}

/// homespun's ratio to every other contender.
fn format_ratios(row: &CaseRow) -> impl Iterator<Item = String> + '_ {
    let own = row.homespun_index();
    let others = row.ratios.iter().enumerate().filter(move |(index, _)| Some(*index) != own);
    others.map(|(_, of_other)| format_ratio(*of_other))
}

fn format_ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
}

/// A number with three significant digits, or a dash.
pub(super) fn format_number_or_dash(number: Option<f64>) -> String {
    number.map_or_else(|| "-".to_owned(), format_significant)
}

fn column_widths(figure: &Figure, has_p99: bool) -> Vec<usize> {
    let names = column_names(figure, has_p99);
    // The name of the bare loop is the last column, aligned to the left.
    let numbers = names.len() - usize::from(has_floor(figure));
    let width = |name: &String| name.chars().count().max(NUMBER_WIDTH);
    [CASE_WIDTH].into_iter().chain(names[1..numbers].iter().map(width)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::figure::tests::make_figure;
    use super::*;

    #[test]
    fn columns_align_with_their_heading() {
        let figure = make_figure();
        let rows: Vec<String> = figure.rows.iter().map(|each| format_row(&figure, each)).collect();
        let text = [vec![format_heading(&figure)], rows].concat().join("\n");
        let expected = "\
fi_pingpong over shared memory: messages back & forth; cores 0 and 1, sharing a
cache (L3); half of a round trip in µs
    size bare loop    p99 homespun    p99    shm    p99  /bare   /shm  loop
     8 B     0.200  0.400    0.250  0.500  0.500   1.00   1.25   0.50  ring
   4 KiB      1.00   2.00     1.25   2.50      -      -   1.25      -  ring
   1 MiB      40.0   80.0     50.0    100    100    200   1.25   0.50  ring";
        assert_eq!(text, expected);
    }

    #[test]
    fn figure_of_many_contenders_has_no_p99_in_a_terminal() {
        let mut figure = make_figure();
        let other = figure.contenders.last().expect("a contender").clone();
        figure.contenders.push(other);
        for row in &mut figure.rows {
            row.cells.push(None);
            row.ratios.push(None);
        }
        let rows: Vec<String> = figure.rows.iter().map(|each| format_row(&figure, each)).collect();
        let text = [vec![format_heading(&figure)], rows].concat().join("\n");
        assert!(!text.contains("p99"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    }

    #[test]
    fn markdown_has_a_column_for_each_name() {
        let text = format_markdown(&make_figure());
        let columns: Vec<usize> = text.lines().map(|line| line.matches('|').count()).collect();
        assert_eq!(columns, [11; 5], "{text}");
        assert!(text.contains("| 4 KiB | 1.00 | 2.00 | 1.25 | 2.50 | - | - | 1.25 | - | ring |"), "{text}");
    }

    #[test]
    fn brief_table_has_medians_and_ratios_of_the_chosen_rows() {
        let text = format_brief_markdown(&make_figure(), |row| row.case.size_bytes == Some(8));
        let expected = "\
| size | bare loop | homespun | shm | homespun / bare loop | homespun / shm |
| ---: | ---: | ---: | ---: | ---: | ---: |
| 8 B | 0.200 | 0.250 | 0.500 | 1.25 | 0.50 |
";
        assert_eq!(text, expected);
    }
}
