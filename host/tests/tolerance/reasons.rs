//! Why homespun refuses calls that other providers accept. There are four reasons, and no others.

/// What would come of it if homespun accepted the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Data would be lost, or reported as moved or durable without being so.
    LosesData,
    /// A protection of memory or of messages would be broken.
    BreaksProtection,
    /// The application would wait for an event that never comes.
    WaitsForEver,
    /// The application would rely on a feature or an object that homespun does not have.
    PromisesWhatIsAbsent,
}

impl Reason {
    /// The words with which the document gives this reason.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Reason::LosesData => "loses data",
            Reason::BreaksProtection => "breaks a protection",
            Reason::WaitsForEver => "waits for ever",
            Reason::PromisesWhatIsAbsent => "promises what is absent",
        }
    }
}

use Reason::{BreaksProtection, LosesData, PromisesWhatIsAbsent, WaitsForEver};

/// The reason of each difference. It belongs to the differences whose names contain the text.
pub(crate) const REASONS: &[(&str, Reason)] = &[
    // What getinfo does not offer.
    ("caps FI_REMOTE_COMM", PromisesWhatIsAbsent),
    ("caps FI_DISCARD or FI_NAMED_RX_CTX", PromisesWhatIsAbsent),
    ("caps FI_MULTICAST", PromisesWhatIsAbsent),
    ("caps FI_VARIABLE_MSG", PromisesWhatIsAbsent),
    ("caps FI_HMEM", PromisesWhatIsAbsent),
    ("rx_attr.caps FI_READ", PromisesWhatIsAbsent),
    ("rx_attr.caps FI_SEND", PromisesWhatIsAbsent),
    ("rx_attr.caps FI_WRITE", PromisesWhatIsAbsent),
    ("tx_attr.caps FI_CLAIM or FI_DIRECTED_RECV", PromisesWhatIsAbsent),
    ("tx_attr.caps FI_RECV", PromisesWhatIsAbsent),
    ("tx_attr.caps FI_REMOTE_", PromisesWhatIsAbsent),
    ("ep_attr.max_msg_size", PromisesWhatIsAbsent),
    ("tx_attr.rma_iov_limit", PromisesWhatIsAbsent),
    ("domain_attr.av_type 3", PromisesWhatIsAbsent),
    ("control_progress 4", WaitsForEver),
    ("data_progress 4", WaitsForEver),
    ("rx_attr.comp_order", PromisesWhatIsAbsent),
    ("addr_format 3", PromisesWhatIsAbsent),
    ("name of nothing", PromisesWhatIsAbsent),
    ("service 99999", PromisesWhatIsAbsent),
    ("src_addr short", BreaksProtection),
    // Objects.
    ("fi_trywait: cq without wait_obj", PromisesWhatIsAbsent),
    ("fi_cntr_open: events", PromisesWhatIsAbsent),
    ("fi_av_open: flags FI_COMPLETION", WaitsForEver),
    ("eq to domain", WaitsForEver),
    ("fi_domain_bind: eq", WaitsForEver),
    ("fi_enable: cq alone", WaitsForEver),
    ("eq after fi_enable", WaitsForEver),
    ("eq twice after fi_enable", WaitsForEver),
    ("cq of another domain", BreaksProtection),
    ("fi_cancel", WaitsForEver),
    ("FI_OPT_MIN_MULTI_RECV", BreaksProtection),
    ("flags FI_RMA_PMEM", LosesData),
    ("fi_mr_regattr: flags bit 40", BreaksProtection),
    ("fi_mr_regattr: auth_key", BreaksProtection),
    ("count 8", LosesData),
    // Data transfers.
    ("len max_msg_size + 1", LosesData),
    ("len inject_size + 1", LosesData),
    ("count iov_limit + 1", LosesData),
    ("rma_count 2", PromisesWhatIsAbsent),
    ("rma_count 0", LosesData),
    ("flags FI_MULTICAST", PromisesWhatIsAbsent),
    ("flags FI_TRIGGER", PromisesWhatIsAbsent),
    ("flags FI_XPU_TRIGGER", PromisesWhatIsAbsent),
    ("flags FI_CLAIM or FI_DIRECTED_RECV", LosesData),
    ("flags FI_PEEK", LosesData),
    ("flags FI_COMMIT_COMPLETE", LosesData),
    ("datatype 100", LosesData),
    ("op 100", LosesData),
    ("op FI_ATOMIC_READ", LosesData),
    ("addr 12345", WaitsForEver),
    ("buf null", LosesData),
    ("beyond the region", LosesData),
    ("key of nothing", LosesData),
];

/// Returns the reason of a difference, and the place of the entry that gives it.
pub(crate) fn reason_of(probe: &str) -> Option<(usize, Reason)> {
    let entry = REASONS.iter().enumerate().find(|(_, (text, _))| probe.contains(text));
    entry.map(|(place, (_, reason))| (place, *reason))
}
