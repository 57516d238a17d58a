//! The results of one comparison: contenders, and a row for each case. The form does not depend on how
//! the results were measured.
//!
//! Every quantity is a time, so less is better. For bandwidth the quantity is the time of a transfer. A
//! ratio is homespun's time divided by another contender's time, so below 1 homespun is faster.

use serde::Serialize;

use super::percentiles::Percentiles;
use super::report::quotient;
use crate::cache_topology::Sharing;

/// One comparison.
#[derive(Debug, Serialize)]
pub(super) struct Figure {
    /// The name consists of letters, digits, `-` and `_`, and is unique within a document.
    pub(super) name: String,
    /// A description for people.
    pub(super) title: String,
    /// The cores of the processes, in words.
    pub(super) place: String,
    /// The cores of the processes; null if the system chose them.
    pub(super) cores: Option<ComparedCores>,
    pub(super) quantity: Quantity,
    /// Whether the summary tables include the figure.
    #[serde(skip)]
    pub(super) is_in_summary: bool,
    /// The drawings to make of the figure.
    #[serde(skip)]
    pub(super) drawings: &'static [Drawing],
    pub(super) contenders: Vec<Contender>,
    pub(super) rows: Vec<CaseRow>,
}

/// The quantity that a figure's numbers measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Quantity {
    /// Half the time of a round trip, in microseconds.
    HalfRoundTrip,
    /// The time of each of many overlapping transfers, in microseconds.
    Transfer,
}

/// A way to draw a figure whose cases are sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Drawing {
    /// Time over size.
    Latency,
    /// Bandwidth over size.
    Bandwidth,
}

/// A loop or provider that is compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Contender {
    pub(super) name: String,
    pub(super) role: Role,
}

/// A contender's role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Role {
    /// The bare loop, a lower bound.
    Floor,
    /// homespun, the dividend of every ratio.
    Homespun,
    Other,
}

/// The measurements of one case.
#[derive(Debug, Serialize)]
pub(super) struct CaseRow {
    pub(super) case: Case,
    /// One cell for each contender, in the contenders' order; null where a contender could not be
    /// measured.
    pub(super) cells: Vec<Option<Cell>>,
    /// homespun's median divided by each contender's median, in the contenders' order; null for homespun
    /// itself, and where homespun or the contender was not measured.
    pub(super) ratios: Vec<Option<f64>>,
    /// The name of the bare loop that was measured in this case.
    pub(super) floor: Option<String>,
    /// The index of homespun among the contenders.
    #[serde(skip)]
    homespun_index: Option<usize>,
}

/// The subject of a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Case {
    /// A description for people.
    pub(super) label: String,
    /// The size of messages, if the case is a size.
    pub(super) size_bytes: Option<usize>,
}

/// The measurements of one contender in one case.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Cell {
    /// The median over rounds.
    pub(super) median: f64,
    pub(super) spread: Option<Spread>,
}

/// The distribution of the measured times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) over: Samples,
    #[serde(flatten)]
    pub(super) percentiles: Percentiles,
}

/// The samples over which percentiles are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Samples {
    /// The means of rounds, for programs that print only means.
    Rounds,
    /// Single operations.
    Operations,
}

/// The cores that the processes of a comparison run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct ComparedCores {
    pub(super) numbers: (usize, usize),
    pub(super) sharing: Sharing,
}

impl Quantity {
    /// The quantity and its unit, in words.
    pub(super) fn description(self) -> &'static str {
        match self {
            Quantity::HalfRoundTrip => "half of a round trip in µs",
            Quantity::Transfer => "time of each of many transfers in flight in µs",
        }
    }
}

impl Drawing {
    pub(super) fn name(self) -> &'static str {
        match self {
            Drawing::Latency => "latency",
            Drawing::Bandwidth => "bandwidth",
        }
    }
}

impl CaseRow {
    /// A row with its ratios.
    pub(super) fn new(
        case: Case,
        contenders: &[Contender],
        cells: Vec<Option<Cell>>,
        floor: Option<String>,
    ) -> CaseRow {
        let homespun_index = contenders.iter().position(|contender| contender.role == Role::Homespun);
        let own = homespun_index.and_then(|index| cells[index]);
        let ratio = |(index, cell): (usize, &Option<Cell>)| {
            let other = cell.filter(|_| Some(index) != homespun_index)?;
            own.map(|own| quotient(own.median, other.median))
        };
        let ratios = cells.iter().enumerate().map(ratio).collect();
        CaseRow { case, cells, ratios, floor, homespun_index }
    }

    /// The index of homespun among the contenders.
    pub(super) fn homespun_index(&self) -> Option<usize> {
        self.homespun_index
    }

    /// Whether every contender was measured.
    pub(super) fn is_complete(&self) -> bool {
        self.cells.iter().all(Option::is_some)
    }
}

impl Figure {
    /// The name of a drawing's file.
    pub(super) fn drawing_file_name(&self, drawing: Drawing) -> String {
        format!("{}-{}.svg", self.name, drawing.name())
    }
}

impl ComparedCores {
    /// A description for people.
    pub(super) fn describe(&self) -> String {
        let ComparedCores { numbers: (first, second), sharing } = self;
        format!("cores {first} and {second}, {sharing}")
    }

    /// The part of a file's name that says what the cores share.
    pub(super) fn file_name_part(&self) -> &'static str {
        match self.sharing {
            Sharing::Core => "same-core",
            Sharing::Cache(_) => "shared-cache",
            Sharing::Nothing => "no-shared-cache",
            Sharing::Unknown => "two-cores",
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn make_contenders() -> Vec<Contender> {
        let contender = |name: &str, role| Contender { name: name.into(), role };
        vec![
            contender("bare loop", Role::Floor),
            contender("homespun", Role::Homespun),
            contender("shm", Role::Other),
        ]
    }

    pub(crate) fn make_cell(median: f64) -> Option<Cell> {
        let percentiles = Percentiles { p50_us: median, p99_us: median * 2.0, samples: 5 };
        Some(Cell { median, spread: Some(Spread { over: Samples::Rounds, percentiles }) })
    }

    pub(crate) fn make_row(size_bytes: usize, medians: [Option<f64>; 3]) -> CaseRow {
        let case =
            Case { label: crate::size::format_with_unit(size_bytes as u64), size_bytes: Some(size_bytes) };
        let cells = medians.map(|median| median.and_then(make_cell)).to_vec();
        CaseRow::new(case, &make_contenders(), cells, Some("ring".into()))
    }

    pub(crate) fn make_figure() -> Figure {
        Figure {
            name: "shm-fi_pingpong-shared-cache".into(),
            title: "fi_pingpong over shared memory: messages back & forth".into(),
            place: "cores 0 and 1, sharing a cache (L3)".into(),
            cores: Some(ComparedCores { numbers: (0, 1), sharing: Sharing::Cache(3) }),
            quantity: Quantity::HalfRoundTrip,
            is_in_summary: true,
            drawings: &[Drawing::Latency, Drawing::Bandwidth],
            contenders: make_contenders(),
            rows: vec![
                make_row(8, [Some(0.2), Some(0.25), Some(0.5)]),
                make_row(4096, [Some(1.0), Some(1.25), None]),
                make_row(1 << 20, [Some(40.0), Some(50.0), Some(100.0)]),
            ],
        }
    }

    #[test]
    fn ratio_is_homespun_divided_by_the_other() {
        let ratios = make_row(8, [Some(0.5), Some(1.0), Some(2.0)]).ratios;
        assert_eq!(ratios, [Some(2.0), None, Some(0.5)]);
    }

    #[test]
    fn missing_cell_has_no_ratio_and_leaves_the_row_incomplete() {
        let without_other = make_row(8, [Some(0.5), Some(1.0), None]);
        assert_eq!(without_other.ratios, [Some(2.0), None, None]);
        assert!(!without_other.is_complete());
        let without_homespun = make_row(8, [Some(0.5), None, Some(2.0)]);
        assert_eq!(without_homespun.ratios, [None, None, None]);
        assert!(make_row(8, [Some(0.5), Some(1.0), Some(2.0)]).is_complete());
    }

    #[test]
    fn json_has_cores_and_what_they_share() {
        let json = serde_json::to_value(make_figure()).unwrap();
        assert_eq!(json["cores"], serde_json::json!({ "numbers": [0, 1], "sharing": { "cache": 3 } }));
    }

    #[test]
    fn drawings_have_distinct_file_names() {
        let figure = make_figure();
        let files: Vec<String> =
            figure.drawings.iter().map(|drawing| figure.drawing_file_name(*drawing)).collect();
        assert_eq!(
            files,
            ["shm-fi_pingpong-shared-cache-latency.svg", "shm-fi_pingpong-shared-cache-bandwidth.svg"]
        );
    }
}
