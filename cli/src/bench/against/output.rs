//! The output of libfabric's programs.

/// The time of a transfer in microseconds, from the table that `fi_pingpong` and the benchmarks of
/// fabtests print:
///
/// ```text
/// bytes   iters   total       time     MB/sec    usec/xfer   Mxfers/sec
/// 4k      100     800k        0.01s    512.00       8.00       0.12
/// ```
///
/// The rate (MB/sec, that is, bytes a microsecond) and the time (usec/xfer) both have two decimals. So
/// the larger number has more significant digits, and the result is computed from the larger number.
/// `None` without such a table.
pub(super) fn parse_transfer_us(output: &str, size_bytes: usize) -> Option<f64> {
    let mut lines = output.lines().skip_while(|line| !is_table_heading(line));
    lines.next()?;
    let fields: Vec<&str> = lines.next()?.split_whitespace().collect();
    let [.., mb_per_s, each_us, _] = fields[..] else { return None };
    let (mb_per_s, each_us): (f64, f64) = (mb_per_s.parse().ok()?, each_us.parse().ok()?);
    let time_us = if mb_per_s > each_us { size_bytes as f64 / mb_per_s } else { each_us };
    (time_us.is_finite() && time_us > 0.0).then_some(time_us)
}

fn is_table_heading(line: &str) -> bool {
    line.starts_with("bytes") && line.trim_end().ends_with("MB/sec    usec/xfer   Mxfers/sec")
}

/// The providers that `fi_info -l` lists.
pub(super) fn parse_provider_names(output: &str) -> Vec<String> {
    let names = output.lines().filter(|line| !line.starts_with(char::is_whitespace));
    names.filter_map(|line| line.strip_suffix(':')).map(str::to_owned).collect()
}

/// The library's version in the output of `fi_info --version`. The program itself may have another
/// version.
pub(super) fn parse_library_version(output: &str) -> Option<&str> {
    output.lines().find_map(|line| line.strip_prefix("libfabric: ")).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PINGPONG: &str = "\
bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
64      100     =100     12k         0.09s      0.14     460.58       0.00
";

    const FABTESTS: &str = "\
bytes   iters   total       time     MB/sec    usec/xfer   Mxfers/sec
4k      100     800k        0.00s   5120.25       0.80       1.25
";

    #[test]
    fn fi_pingpong_time_is_taken_from_the_table() {
        assert_eq!(parse_transfer_us(PINGPONG, 64), Some(460.58));
    }

    #[test]
    fn fabtests_time_is_taken_from_the_more_precise_column() {
        assert_eq!(parse_transfer_us(FABTESTS, 4096), Some(4096.0 / 5120.25));
        let after_warning = format!("libfabric:1:2:core:core:3<warn> something\n{FABTESTS}");
        assert_eq!(parse_transfer_us(&after_warning, 4096), Some(4096.0 / 5120.25));
    }

    #[test]
    fn output_without_a_table_gives_no_time() {
        let heading_alone = FABTESTS.lines().next().unwrap();
        let no_number = FABTESTS.replace("5120.25", "nan");
        let no_time = FABTESTS.replace("5120.25", "0.00").replace("0.80", "0.00");
        for output in ["", "fi_getinfo: -61 (No data available)", heading_alone, &no_time] {
            assert_eq!(parse_transfer_us(output, 4096), None, "{output:?}");
        }
        // If the rate is not a number, the result is the printed time.
        assert_eq!(parse_transfer_us(&no_number, 4096), Some(0.80));
    }

    #[test]
    fn provider_names_are_the_unindented_lines() {
        let list = "ofi_rxm:\n    version: 206.0\nshm:\n    version: 206.0\n";
        assert_eq!(parse_provider_names(list), ["ofi_rxm", "shm"]);
    }

    #[test]
    fn parse_library_version_ignores_the_program_version() {
        let told = "fi_info: 1.17.0\nlibfabric: 2.7.0a1\nlibfabric api: 2.6\n";
        assert_eq!(parse_library_version(told), Some("2.7.0a1"));
        assert_eq!(parse_library_version("fi_info: 1.17.0\n"), None);
    }
}
