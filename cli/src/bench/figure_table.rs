//! A figure's rows for people: on a terminal as they are measured, and in a document.

use super::figure::{Cell, Figure, Role, Row};
use super::table::{line, significant};

/// The least width of a column of numbers.
const NUMBER_WIDTH: usize = 9;

/// The width of the first column.
const CASE_WIDTH: usize = 8;

/// Explains ratios, wherever they are shown.
pub(super) const ABOUT_RATIOS: &str =
    "a ratio is homespun's time divided by that of another contender: below 1 homespun is faster";

/// Explains percentiles, wherever they are shown.
pub(super) const ABOUT_PERCENTILES: &str = "the p99 of a program is over rounds, because it prints only \
    means; the p99 of a bare loop is over single round trips, where messages go back and forth";

/// The figure's title and column names, for a terminal.
pub(super) fn heading(figure: &Figure) -> String {
    let Figure { title, place, quantity, .. } = figure;
    format!("{title}; {place}; {}\n{}", quantity.about(), line(&column_names(figure), &widths(figure)))
}

/// A row of the figure, for a terminal.
pub(super) fn row(figure: &Figure, row: &Row) -> String {
    line(&columns(row), &widths(figure))
}

/// All rows of a figure, as a Markdown table.
pub(super) fn markdown(figure: &Figure) -> String {
    markdown_table(&column_names(figure), figure.rows.iter().map(columns))
}

/// Medians and ratios of the chosen rows, with the first other provider only, as a Markdown table.
pub(super) fn brief_markdown(figure: &Figure, is_chosen: impl Fn(&Row) -> bool) -> String {
    let first_other = figure.contenders.iter().position(|contender| contender.role == Role::Other);
    let is_shown = |index: usize| figure.contenders[index].role != Role::Other || Some(index) == first_other;
    let shown: Vec<usize> = (0..figure.contenders.len()).filter(|index| is_shown(*index)).collect();
    let names = shown.iter().map(|index| figure.contenders[*index].name.clone());
    let compared = shown.iter().map(|index| &figure.contenders[*index]);
    let compared = compared.filter(|contender| contender.role != Role::Homespun);
    let ratio_names = compared.map(|contender| format!("homespun / {}", contender.name));
    let heading: Vec<String> = ["size".to_owned()].into_iter().chain(names).chain(ratio_names).collect();
    let rows = figure.rows.iter().filter(|row| is_chosen(row)).map(|row| {
        let medians = shown.iter().map(|index| number(row.cells[*index].map(|cell| cell.median)));
        let compared = shown.iter().filter(|index| Some(**index) != row.own_index());
        let ratios = compared.map(|index| ratio(row.ratios[*index]));
        [row.case.label.clone()].into_iter().chain(medians).chain(ratios).collect()
    });
    markdown_table(&heading, rows)
}

/// A Markdown table, all columns aligned to the right.
pub(super) fn markdown_table(heading: &[impl AsRef<str>], rows: impl Iterator<Item = Vec<String>>) -> String {
    let heading: Vec<String> = heading.iter().map(|name| name.as_ref().to_owned()).collect();
    let rule = vec!["---:".to_owned(); heading.len()];
    let lines = [heading, rule].into_iter().chain(rows);
    lines.map(|columns| format!("| {} |\n", columns.join(" | "))).collect()
}

fn column_names(figure: &Figure) -> Vec<String> {
    let each = figure.contenders.iter().flat_map(|contender| [contender.name.clone(), "p99".to_owned()]);
    let mut names: Vec<String> =
        ["size".to_owned()].into_iter().chain(each).chain(ratio_names(figure)).collect();
    if has_floor(figure) {
        names.push("bare loop is".to_owned());
    }
    names
}

fn ratio_names(figure: &Figure) -> impl Iterator<Item = String> + '_ {
    let others = figure.contenders.iter().filter(|contender| contender.role != Role::Homespun);
    others.map(|contender| match contender.role {
        Role::Floor => "/bare".to_owned(),
        _ => format!("/{}", contender.name),
    })
}

fn has_floor(figure: &Figure) -> bool {
    figure.contenders.iter().any(|contender| contender.role == Role::Floor)
}

fn columns(row: &Row) -> Vec<String> {
    let p99 = |cell: &Cell| cell.spread.map(|spread| spread.percentiles.p99_us);
    let each = row
        .cells
        .iter()
        .flat_map(|cell| [number(cell.map(|cell| cell.median)), number(cell.as_ref().and_then(p99))]);
    let mut columns: Vec<String> =
        [row.case.label.clone()].into_iter().chain(each).chain(ratios(row)).collect();
    columns.extend(row.floor.clone());
    columns
}

/// The ratios to every contender but homespun.
fn ratios(row: &Row) -> impl Iterator<Item = String> + '_ {
    let own = row.own_index();
    let others = row.ratios.iter().enumerate().filter(move |(index, _)| Some(*index) != own);
    others.map(|(_, of_other)| ratio(*of_other))
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
}

/// A number with its significant digits, or a dash.
pub(super) fn number(number: Option<f64>) -> String {
    number.map_or_else(|| "-".to_owned(), significant)
}

fn widths(figure: &Figure) -> Vec<usize> {
    let names = column_names(figure);
    // The name of the bare loop is the last column, aligned to the left.
    let numbers = names.len() - usize::from(has_floor(figure));
    let width = |name: &String| name.chars().count().max(NUMBER_WIDTH);
    [CASE_WIDTH].into_iter().chain(names[1..numbers].iter().map(width)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::figure::tests::figure;
    use super::*;

    #[test]
    fn columns_align_with_their_heading() {
        let figure = figure();
        let rows: Vec<String> = figure.rows.iter().map(|each| row(&figure, each)).collect();
        let expected = "\
fi_pingpong over shared memory: messages back & forth; cores 0 and 1, sharing a cache (L3); \
half of a round trip in µs
    size bare loop       p99  homespun       p99       shm       p99     /bare      /shm  bare loop is
     8 B     0.200     0.400     0.250     0.500     0.500      1.00      1.25      0.50  ring
   4 KiB      1.00      2.00      1.25      2.50         -         -      1.25         -  ring
   1 MiB      40.0      80.0      50.0       100       100       200      1.25      0.50  ring";
        assert_eq!([vec![heading(&figure)], rows].concat().join("\n"), expected);
    }

    #[test]
    fn markdown_has_a_column_for_each_name() {
        let text = markdown(&figure());
        let columns: Vec<usize> = text.lines().map(|line| line.matches('|').count()).collect();
        assert_eq!(columns, [11; 5], "{text}");
        assert!(text.contains("| 4 KiB | 1.00 | 2.00 | 1.25 | 2.50 | - | - | 1.25 | - | ring |"), "{text}");
    }

    #[test]
    fn brief_table_has_medians_and_ratios_of_the_chosen_rows() {
        let text = brief_markdown(&figure(), |row| row.case.size_bytes == Some(8));
        let expected = "\
| size | bare loop | homespun | shm | homespun / bare loop | homespun / shm |
| ---: | ---: | ---: | ---: | ---: | ---: |
| 8 B | 0.200 | 0.250 | 0.500 | 1.25 | 0.50 |
";
        assert_eq!(text, expected);
    }
}
