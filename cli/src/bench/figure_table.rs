//! A figure as text: rows for a terminal, and Markdown tables.

use super::figure::{CaseRow, Cell, Figure, Role};
use super::table::{align_columns, format_significant};

/// The least width of a column of numbers.
const NUMBER_WIDTH: usize = 9;

/// The width of the first column.
const CASE_WIDTH: usize = 8;

/// The explanation of ratios, for all outputs that show them.
pub(super) const ABOUT_RATIOS: &str =
    "a ratio is homespun's time divided by that of another contender: below 1 homespun is faster";

/// The explanation of percentiles, for all outputs that show them.
pub(super) const ABOUT_PERCENTILES: &str = "the p99 of a program is over rounds, because it prints only \
    means; the p99 of a bare loop is over single round trips, where messages go back and forth";

/// The figure's title and column names, for a terminal.
pub(super) fn format_heading(figure: &Figure) -> String {
    let Figure { title, place, quantity, .. } = figure;
    format!(
        "{title}; {place}; {}\n{}",
        quantity.description(),
        align_columns(&column_names(figure), &column_widths(figure))
    )
}

/// A row of the figure, for a terminal.
pub(super) fn format_row(figure: &Figure, row: &CaseRow) -> String {
    align_columns(&format_columns(row), &column_widths(figure))
}

/// All rows of a figure, as a Markdown table.
pub(super) fn format_markdown(figure: &Figure) -> String {
    format_markdown_table(&column_names(figure), figure.rows.iter().map(format_columns))
}

/// The medians and ratios of the chosen rows, as a Markdown table. Of the contenders besides homespun and the
/// bare loop, it has only the first.
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

fn column_names(figure: &Figure) -> Vec<String> {
    let each = figure.contenders.iter().flat_map(|contender| [contender.name.clone(), "p99".to_owned()]);
    let mut names: Vec<String> =
        ["size".to_owned()].into_iter().chain(each).chain(ratio_column_names(figure)).collect();
    if has_floor(figure) {
        names.push("bare loop is".to_owned());
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

fn format_columns(row: &CaseRow) -> Vec<String> {
    let p99 = |cell: &Cell| cell.spread.map(|spread| spread.percentiles.p99_us);
    let each = row.cells.iter().flat_map(|cell| {
        [
            format_number_or_dash(cell.map(|cell| cell.median)),
            format_number_or_dash(cell.as_ref().and_then(p99)),
        ]
    });
    let mut columns: Vec<String> =
        [row.case.label.clone()].into_iter().chain(each).chain(format_ratios(row)).collect();
    columns.extend(row.floor.clone());
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

/// A number with its significant digits, or a dash.
pub(super) fn format_number_or_dash(number: Option<f64>) -> String {
    number.map_or_else(|| "-".to_owned(), format_significant)
}

fn column_widths(figure: &Figure) -> Vec<usize> {
    let names = column_names(figure);
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
        let expected = "\
fi_pingpong over shared memory: messages back & forth; cores 0 and 1, sharing a cache (L3); \
half of a round trip in µs
    size bare loop       p99  homespun       p99       shm       p99     /bare      /shm  bare loop is
     8 B     0.200     0.400     0.250     0.500     0.500      1.00      1.25      0.50  ring
   4 KiB      1.00      2.00      1.25      2.50         -         -      1.25         -  ring
   1 MiB      40.0      80.0      50.0       100       100       200      1.25      0.50  ring";
        assert_eq!([vec![format_heading(&figure)], rows].concat().join("\n"), expected);
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
