//! `homespun bench`: the speed of the fabric beside bare loops and beside libfabric's own providers.

mod access;
pub(crate) mod against;
mod bare;
mod contest;
mod document;
mod figure;
mod figure_report;
mod figure_table;
pub(crate) mod follower;
mod pair;
mod percentiles;
mod plot;
mod providers;
mod record;
mod report;
pub(crate) mod rpma;
pub(crate) mod single;
pub(crate) mod sleep;
mod step;
mod survey;
mod table;
mod trial;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::error::ErrorKind;

use self::against::ComparisonRequest;
use self::pair::Placement;
use self::providers::Providers;
use self::report::BenchReport;
use self::rpma::RpmaRequest;
use self::survey::{Kind, MeasuredDomain, Survey};
use crate::console::Console;
use crate::cores::AllowedCores;
use crate::exchange::port;
use crate::exchange::sizes::Sizes;
use crate::failure::CommandFailure;

/// The default number of rounds, and the approximate duration of a measurement in each round.
const ROUNDS: u32 = 9;
const ROUND_MS: u32 = 12;

/// With `--quick`: the number of rounds, and the approximate duration of a measurement in each round.
const ROUNDS_QUICK: u32 = 3;
const ROUND_QUICK_MS: u32 = 2;

/// The largest number of rounds.
const ROUNDS_MAX: u32 = 1_000;

/// Compare the speed of homespun with bare loops, or with libfabric's own providers.
///
/// Two processes, each on its own core, exchange messages through the fabric, and through a bare loop
/// that only moves the bytes. Then one process writes and reads memory of the other process, and adds to
/// an integer there. The measurements take turns, so that other load of the host slows all alike.
/// Numbers are medians over all rounds. Between hosts, compare only ratios.
///
/// Messages over shared memory (shm) are compared with the fastest of three bare loops. The first is a
/// ring of cache lines. The second is the same ring with chunks of 4 to 64 KiB: the sender copies a
/// chunk in while the receiver copies the previous chunk out. The third, for messages of at least 16
/// KiB, is one process_vm_readv(2) by the receiver. Over TCP the bare loop is a polled, non-blocking
/// socket. It joins small one-way messages into large writes.
///
/// Messages from send buffers, which the receiver maps, are compared with one copy by the receiver from
/// memory that both processes map.
///
/// Writes and reads over shared memory are compared with a copy within one process, followed by a fence.
/// Over TCP they are compared with the sum of two halves of round trips over the socket: one with the
/// payload, one with 8 bytes. A fetch-add needs work of the target, so over shared memory it is compared
/// with the sum of two such halves over the ring.
///
/// With --against, homespun is compared with providers of an installed libfabric, which loads homespun
/// as a plugin. The programs are libfabric's fi_pingpong, and those of fabtests if the variable FABTESTS
/// names their directory: fi_rdm_tagged_pingpong, fi_rdm_tagged_bw and fi_rma_bw. Each process stays on
/// a core. Everything is measured on two cores that share a cache, and on two cores that share none, if
/// the host has them. Over TCP, fi_rma_bw has no bare loop, because a bare stream has neither requests
/// nor answers. The measurement of --only sleep follows, for the same providers.
///
/// With --only sleep, two processes exchange tagged messages over the C interface of libfabric. The code
/// is the same for homespun and for other providers (by default shm, tcp, sockets and tcp;ofi_rxm).
/// First both processes poll. Then both sleep on the descriptor of their queue (FI_WAIT_FD). Last, both
/// sleep without messages, and their processor time is measured. Threads of a provider run on the core
/// of their process.
///
/// With --rpma, one process writes to memory of the other process and flushes the write, over the crate
/// homespun-rpma: to visibility in memory, and to persistence in a mapped file. This is compared with a
/// copy within one process, and with such a copy to the mapped file followed by msync(2).
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{COLUMNS}\n\n{JSON}\n\n{EXAMPLES}"))]
pub(crate) struct BenchArguments {
    /// Measure only this domain: shm or tcp [default: all].
    #[arg(short, long, value_name = "NAME")]
    domain: Option<String>,
    /// Measure only one kind.
    #[arg(long, value_name = "KIND", value_enum)]
    only: Option<Kind>,
    /// The sizes of messages, writes and reads in bytes, separated by commas.
    ///
    /// Units are K, M or KiB, MiB, as in 1.5K; the largest size is 64M. The default is
    /// 8,64,512,4K,16K,64K,256K,1M,4M; with both --quick and --against 8,4K,64K,1M; with --only sleep
    /// 8,4K,64K; with --rpma 8,64,512,4K,64K,1M.
    #[arg(long, value_name = "LIST")]
    sizes: Option<Sizes>,
    /// The number of rounds.
    ///
    /// The default is 9; 5 with --against or --only sleep; 3 with --quick.
    #[arg(
        long,
        value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(ROUNDS_MAX))
    )]
    rounds: Option<u32>,
    /// Measure fewer and shorter rounds: faster, but less precise.
    #[arg(long)]
    quick: bool,
    /// Print one JSON document instead of tables.
    #[arg(long)]
    json: bool,
    /// Send tagged messages; each receive takes only the tag of its own message.
    #[arg(long, conflicts_with = "against")]
    tagged: bool,
    /// Give up when nothing has happened for this long.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 20,
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    timeout: u64,
    /// Let the system choose the cores.
    #[arg(long)]
    no_pin: bool,
    /// Compare with these providers, separated by commas, such as shm, tcp, sockets, tcp;ofi_rxm.
    #[arg(long, value_name = "LIST", help_heading = AGAINST_LIBFABRIC)]
    against: Option<Providers>,
    /// The directory under which libfabric is installed, with its bin and lib.
    ///
    /// By default its programs are found on PATH. With --only sleep, the system's loader finds its
    /// library.
    #[arg(long, value_name = "DIR", help_heading = AGAINST_LIBFABRIC)]
    libfabric: Option<PathBuf>,
    /// How that libfabric was built, such as "with -O3"; the results repeat it.
    #[arg(long, value_name = "WORDS", requires = "against", help_heading = AGAINST_LIBFABRIC)]
    libfabric_built: Option<String>,
    /// Write a drawing (SVG) of each comparison into this directory.
    #[arg(long, value_name = "DIR", requires = "against", help_heading = AGAINST_LIBFABRIC)]
    plots: Option<PathBuf>,
    /// Write RESULTS.md, and its drawings, into this directory; not with --quick.
    ///
    /// The drawings replace earlier ones in DIR/plots.
    #[arg(long, value_name = "DIR", requires = "against", help_heading = AGAINST_LIBFABRIC)]
    record: Option<PathBuf>,
    /// Write the summary tables into this file, such as README.md; not with --quick.
    ///
    /// The tables are those of RESULTS.md. They replace the text between the lines "<!-- speed -->" and
    /// "<!-- /speed -->".
    #[arg(long, value_name = "FILE", requires = "against", help_heading = AGAINST_LIBFABRIC)]
    readme: Option<PathBuf>,
    /// Measure writes and flushes in librpma's terms.
    #[arg(
        long,
        conflicts_with_all = [
            "only", "tagged", "against", "libfabric", "libfabric_built", "plots", "record", "readme",
        ],
        help_heading = RPMA
    )]
    rpma: bool,
    /// The directory of the temporary file that is flushed [default: the current directory].
    ///
    /// The results name its file system. Over tmpfs a flush to persistence has nothing to write.
    #[arg(long, value_name = "DIR", requires = "rpma", help_heading = RPMA)]
    dir: Option<PathBuf>,
}

/// The heading of the options for writes and flushes.
const RPMA: &str = "Writes and flushes";

/// The heading of the options for comparisons with libfabric's providers.
const AGAINST_LIBFABRIC: &str = "Comparison with libfabric's providers";

/// The default sizes.
const SIZES: [usize; 9] = [8, 64, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];

const COLUMNS: &str = "\
The columns:
  latency    half of a round trip through the fabric, in us
  p50, p99   percentiles of single round trips through the fabric, halved, in us
  bare us    half of a round trip through the bare loop
  ratio      latency divided by bare us: 1 is as fast as the bare loop, more is
             slower
  M msg/s    millions of messages a second one way through the fabric, many of
             them in flight
  MB/s       the same in 10^6 bytes a second
  bare       10^6 bytes a second one way through the bare loop
  ratio      the time of a message one way, divided by that of the bare loop
  bare loop  its name: ring, p4K to p64K (the ring in chunks), readv
             (process_vm_readv), socket, memcpy; a second name if another loop
             is the fastest for messages one way

For accesses the columns mean the same, except:
  operation  the operation on memory of the other process: write, read or
             fetch-add (8 bytes)
  latency    from the post of an access to its completion, one at a time
  bare us    a copy and a fence (memcpy), or half of a round trip with the
             payload and half of one with 8 bytes (ring, socket)
  M op/s     millions of accesses a second, many of them in flight

With --against every number before the ratios is a time in microseconds: half of a round trip, or the time \
of each of many transfers in flight. The bare loop, homespun and each provider have a median and, if there \
is room, a p99. A ratio is homespun's time divided by that of the bare loop, or of a provider.

With --rpma:
  flush      the kind of the flush: visibility or persistent
  latency    from the post of a write to the completion of the flush behind it,
             one at a time, in us
  p50, p99   percentiles of single writes with a flush
  bare us    a copy and a fence (memcpy), or a copy to the mapped file and
             msync(2) (memcpy+msync), by one process; bare p99: of single ones
  ratio      latency divided by bare us

The output of --json has more figures than the tables, such as the speed of copies within one process.";

const JSON: &str = "\
The JSON document: homespun_version, tagged, rounds, cores (two numbers, or null if not pinned), domains; \
each of these has domain, cross_memory_copy, cross_memory_copy_refusal, sizes, send_buffers and \
accesses; each of sizes and send_buffers \
has size_bytes, bare_loop (ring, pipelined-4K to pipelined-64K, process_vm_readv, socket, memcpy), \
bare_message_loop, latency_us, bare_latency_us, latency_ratio, latency_percentiles and \
bare_latency_percentiles (p50_us, p99_us, samples), messages_per_s, bare_messages_per_s, message_time_ratio, \
bandwidth_mb_per_s, bare_bandwidth_mb_per_s, memcpy_mb_per_s. Each of accesses has operation (write, read, \
fetch-add) and the same fields, for accesses instead of messages; bare_loop is memcpy, ring or socket, and \
latency is the time from post to completion. A field that does not apply to a size or a domain is null; a \
list of results that were not requested is empty.

With --against: homespun_version, kernel, processor, libfabric (version, built), providers, quick, rounds, \
figures, and sleep, which is the document of --only sleep, or null if that could not be measured; each \
figure has name, title, place, cores (numbers and sharing; null if not pinned), quantity (half_round_trip or \
transfer), contenders (name, role: floor, homespun or other) and rows; each row has case (label, \
size_bytes), cells and ratios in the order of the contenders, and floor, the name of the bare loop; each \
cell has median (in microseconds) and spread (over: rounds or operations, p50_us, p99_us, samples).

With --only sleep: homespun_version, libfabric, libfabric_version, cores, rounds, idle_ms, contenders; each \
of these has name, provider, rival_of (the name of homespun's contender in the ratios), polled, descriptor \
and idle. These three have not_offered and failure: the reason why there are no figures, or null; polled and \
descriptor have sizes, each with size_bytes, p50_us, p99_us, samples, p50_ratio and p99_ratio; idle has \
wait_object, processor_ms_per_s and wake_ups_per_s, the last two with a number for each process.

With --rpma: homespun_version, rounds, cores, directory and file_system (of the file), domains; each of \
these has domain and flushes; each of flushes has flush (visibility, persistent), size_bytes, bare_loop \
(memcpy, memcpy+msync), latency_us, bare_latency_us, latency_ratio, latency_percentiles and \
bare_latency_percentiles.";

const EXAMPLES: &str = "\
Examples:
  homespun bench --quick                     every domain, a first impression
  homespun bench -d shm --sizes 8 --tagged   one size of tagged messages
  homespun bench --only accesses --sizes 8   writes, reads and fetch-add
  homespun bench --json > results.json       results for a program to read
  homespun bench --against shm,tcp           libfabric's own shm and tcp
  homespun bench --only sleep                providers polled, asleep and idle
  homespun bench --rpma --dir /mnt/disk      writes and flushes to a file there
  FABTESTS=/opt/fabtests/bin homespun bench --against shm,tcp --record .
                                             more programs; writes RESULTS.md

Exit status: 0 if everything was measured, 1 if not, 2 if the command line was wrong.";

/// Stands for every domain.
const ALL: &str = "all";

/// Runs the requested comparison and shows its results.
pub(crate) fn run(arguments: &BenchArguments, console: &mut Console) -> Result<(), CommandFailure> {
    let sizes = arguments.sizes.as_ref().map(|sizes| &sizes.0[..]);
    let timeout = Duration::from_secs(arguments.timeout);
    arguments.reject_conflicting_options();
    match &arguments.against {
        _ if arguments.rpma => measure_flushes(arguments, sizes, timeout, console),
        _ if arguments.only == Some(Kind::Waiting) => {
            let request = sleep::SleepRequest {
                domains: &domains_to_measure(arguments.domain.as_deref())?,
                providers: arguments.against.as_ref(),
                prefix: arguments.libfabric.as_deref(),
                sizes,
                rounds: arguments.rounds,
                quick: arguments.quick,
                json: arguments.json,
                cores: AllowedCores::of_this_process().choose_pair().filter(|_| !arguments.no_pin),
                timeout,
            };
            sleep::run(&request, console)
        }
        Some(providers) => {
            let request = ComparisonRequest {
                providers,
                prefix: arguments.libfabric.as_ref(),
                built: arguments.libfabric_built.as_deref(),
                sizes,
                rounds: arguments.rounds,
                quick: arguments.quick,
                json: arguments.json,
                plots: arguments.plots.as_ref(),
                record: arguments.record.as_ref(),
                readme: arguments.readme.as_ref(),
                pinned: !arguments.no_pin,
                timeout,
            };
            against::run(&request, console)
        }
        None => compare_with_bare_loops(arguments, sizes.unwrap_or(&SIZES), timeout, console),
    }
}

impl BenchArguments {
    /// The number of rounds, and the approximate duration of a measurement in each round.
    fn rounds_and_round_ms(&self) -> (u32, u32) {
        let (rounds, round_ms) = if self.quick { (ROUNDS_QUICK, ROUND_QUICK_MS) } else { (ROUNDS, ROUND_MS) };
        (self.rounds.unwrap_or(rounds), round_ms)
    }

    /// Ends the process with the exit status for wrong usage if options conflict.
    fn reject_conflicting_options(&self) {
        let is_waiting = self.only == Some(Kind::Waiting);
        let has_providers = self.against.is_some();
        let contradiction = if has_providers && !is_waiting && (self.only.is_some() || self.domain.is_some())
        {
            "'--against' cannot be used with '--domain' or '--only', except with '--only sleep'"
        } else if is_waiting
            && (self.libfabric_built.is_some()
                || self.plots.is_some()
                || self.record.is_some()
                || self.readme.is_some())
        {
            "'--only sleep' makes no drawings and no record"
        } else if self.quick && (self.record.is_some() || self.readme.is_some()) {
            "'--quick' cannot be used with '--record' or '--readme': so few and short rounds measure noise"
        } else if self.libfabric.is_some() && !has_providers && !is_waiting {
            "'--libfabric' needs '--against' or '--only sleep'"
        } else {
            return;
        };
        clap::Error::raw(ErrorKind::ArgumentConflict, format!("{contradiction}\n")).exit()
    }
}

/// Compares the fabric with bare loops.
fn compare_with_bare_loops(
    arguments: &BenchArguments,
    sizes: &[usize],
    timeout: Duration,
    console: &mut Console,
) -> Result<(), CommandFailure> {
    let domains = domains_to_measure(arguments.domain.as_deref())?;
    let all_cores = AllowedCores::of_this_process();
    let cores = all_cores.choose_pair().filter(|_| !arguments.no_pin);
    let (rounds, round_ms) = arguments.rounds_and_round_ms();
    let survey = Survey {
        sizes,
        only: arguments.only,
        rounds,
        round_ms,
        tagged: arguments.tagged,
        placement: Placement { cores, timeout },
        shows_rows: !arguments.json,
    };
    if !arguments.json {
        print_head(&survey, &all_cores, console)?;
    }
    console.start_progress(domains.iter().map(|domain| survey.progress_step_count(*domain)).sum());
    let measured: Result<Vec<_>, CommandFailure> =
        domains.into_iter().map(|domain| survey.measure_domain(domain, console)).collect();
    console.end_progress();
    let report = BenchReport {
        homespun_version: env!("CARGO_PKG_VERSION"),
        tagged: arguments.tagged,
        rounds,
        cores: cores.map(|(own, other)| [own, other]),
        domains: measured?,
    };
    if arguments.json { console.print_json(&report) } else { Ok(()) }
}

/// Compares writes and flushes with copies and `msync(2)`.
fn measure_flushes(
    arguments: &BenchArguments,
    sizes: Option<&[usize]>,
    timeout: Duration,
    console: &mut Console,
) -> Result<(), CommandFailure> {
    let all_cores = AllowedCores::of_this_process();
    let cores = all_cores.choose_pair().filter(|_| !arguments.no_pin);
    let (rounds, round_ms) = arguments.rounds_and_round_ms();
    let request = RpmaRequest {
        domains: &domains_to_measure(arguments.domain.as_deref())?,
        sizes,
        rounds,
        round_ms,
        directory: arguments.dir.as_deref().unwrap_or(Path::new(".")),
        json: arguments.json,
        placement: Placement { cores, timeout },
        described_placement: describe_placement(cores, &all_cores),
    };
    rpma::run(&request, console)
}

/// How the two processes run, in words.
fn describe_placement(cores: Option<(usize, usize)>, all_cores: &AllowedCores) -> String {
    let count = all_cores.describe_core_count();
    match cores {
        Some((own, other)) => format!("{count}; the two processes stay on cores {own} and {other}"),
        None => format!("{count}; the system chooses where the two processes run"),
    }
}

/// Prints the lines above all tables.
fn print_head(survey: &Survey<'_>, cores: &AllowedCores, console: &Console) -> Result<(), CommandFailure> {
    let kind = if survey.tagged { "tagged" } else { "untagged" };
    console.print_line(format_args!("{kind} messages; medians over {} rounds", survey.rounds))?;
    console.print_wrapped(describe_placement(survey.placement.cores, cores))?;
    console.print_wrapped(
        "latency: half of a round trip, or a whole access, in us; p50, p99: percentiles of single latencies",
    )?;
    console
        .print_wrapped("M msg/s, M op/s, MB/s: millions of messages, accesses and bytes a second one way")?;
    console.print_wrapped("ratio: the fabric's time divided by the bare loop's; above 1 the fabric is slower")
}

/// Returns the requested domain. Without a request, returns all available domains that have a bare loop.
fn domains_to_measure(requested: Option<&str>) -> Result<Vec<MeasuredDomain>, CommandFailure> {
    let requested = requested.filter(|name| !name.eq_ignore_ascii_case(ALL));
    let requested = port::find_domain(requested)?;
    let available = port::domain_names()?;
    let is_meant = |domain: &MeasuredDomain| match &requested {
        Some(requested) => requested == domain.name(),
        None => available.iter().any(|name| name == domain.name()),
    };
    let domains: Vec<MeasuredDomain> = MeasuredDomain::ALL.into_iter().filter(is_meant).collect();
    if domains.is_empty() {
        return Err(CommandFailure::NotBenched { domain: requested.unwrap_or_else(|| available.join(", ")) });
    }
    Ok(domains)
}
