//! Draws the rows: the heap of each peer, the cost of passes, and the rate of connections, by the number of
//! peers.

use std::fs;

use plotters::backend::SVGBackend;
use plotters::chart::{ChartBuilder, SeriesLabelPosition};
use plotters::coord::Shift;
use plotters::coord::combinators::IntoLogRange;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, PathElement};
use plotters::series::LineSeries;
use plotters::style::{Color, IntoFont, RGBColor, WHITE};

use crate::Result;
use crate::row::{Row, group_digits};

const DRAWINGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/plots");

const WIDTH_PX: u32 = 1260;
const HEIGHT_PX: u32 = 420;
const FONT: &str = "sans-serif";
const TITLE_PX: u32 = 17;
const TEXT_PX: u32 = 13;

/// Colours that readers with colour vision deficiency can tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 2] = [RGBColor(213, 94, 0), RGBColor(0, 114, 178)];

/// A line of a chart: its name, and its points.
type Line = (String, Vec<(f64, f64)>);

/// Draws the rows of a transport into the file that the page shows.
pub(crate) fn draw(transport: &str, rows: &[Row]) -> Result<()> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH_PX, HEIGHT_PX)).into_drawing_area();
        root.fill(&WHITE).map_err(to_text)?;
        let areas = root.split_evenly((1, 3));
        draw_chart(&areas[0], "heap of an idle peer, B", &lines(rows, |row, _| row.heap_bytes as f64))?;
        let mut passes = lines(rows, |row, first| row.idle_pass_ns / first.idle_pass_ns);
        passes.extend(blocked_line(rows));
        draw_chart(&areas[1], "a pass without an active peer, times that with one peer", &passes)?;
        draw_chart(&areas[2], "connections a second", &lines(rows, |row, _| row.connections_per_s))?;
        root.present().map_err(to_text)?;
    }
    fs::write(format!("{DRAWINGS}/growth-{transport}.svg"), svg)?;
    Ok(())
}

/// Returns a line for each side that connects.
fn lines(rows: &[Row], value: impl Fn(&Row, &Row) -> f64) -> Vec<Line> {
    let mut firsts: Vec<&Row> = Vec::new();
    let mut lines: Vec<Line> = Vec::new();
    for row in rows {
        let is_same = |first: &&Row| first.who_connects == row.who_connects;
        let place = firsts.iter().position(is_same).unwrap_or_else(|| {
            firsts.push(row);
            let verb = if row.who_connects == "hub" { "connects" } else { "connect" };
            lines.push((format!("the {} {verb}", row.who_connects), Vec::new()));
            lines.len() - 1
        });
        lines[place].1.push((row.peers as f64, value(row, firsts[place])));
    }
    lines
}

/// Returns the line of a pass while all peers are blocked, if that was measured.
fn blocked_line(rows: &[Row]) -> Option<Line> {
    let first_ns = rows.first()?.blocked_pass_ns?;
    let point = |row: &Row| Some((row.peers as f64, row.blocked_pass_ns? / first_ns));
    Some(("all peers blocked".to_owned(), rows.iter().filter_map(point).collect()))
}

fn draw_chart(area: &DrawingArea<SVGBackend<'_>, Shift>, title: &str, lines: &[Line]) -> Result<()> {
    let points = || lines.iter().flat_map(|(_, points)| points.iter().copied());
    let (peers_max, values_max) =
        points().fold((1.0_f64, 0.0_f64), |most, point| (most.0.max(point.0), most.1.max(point.1)));
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, TITLE_PX).into_font())
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d((0.8..peers_max * 1.6).log_scale(), 0.0..values_max * 1.4)
        .map_err(to_text)?;
    chart
        .configure_mesh()
        .disable_mesh()
        .x_desc("peers")
        .x_label_formatter(&|peers| group_digits(peers.round() as u64))
        .y_label_formatter(&|value| {
            if values_max < 10.0 { format!("{value:.1}") } else { group_digits(value.round() as u64) }
        })
        .label_style((FONT, TEXT_PX).into_font())
        .draw()
        .map_err(to_text)?;
    for ((name, points), colour) in lines.iter().zip(COLOURS) {
        let style = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(points.iter().copied(), style))
            .map_err(to_text)?
            .label(name)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 20, y)], style));
        let circles = points.iter().map(|point| Circle::new(*point, 3, colour.filled()));
        chart.draw_series(circles).map_err(to_text)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .label_font((FONT, TEXT_PX).into_font())
        .background_style(WHITE)
        .draw()
        .map_err(to_text)?;
    Ok(())
}

fn to_text(error: impl std::fmt::Display) -> String {
    format!("cannot draw: {error}")
}
