//! The kernel and the processor of this host.

use std::env::consts::ARCH;
use std::fs;

use rustix::system::uname;
use serde::Serialize;

/// The kernel and the processor of a host.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct HostDescription {
    /// The name and the release of the kernel, from `uname(2)`.
    pub(crate) kernel: String,
    /// The model of the processor. If the kernel does not name the model, the architecture.
    pub(crate) processor: String,
}

impl HostDescription {
    pub(crate) fn of_this_host() -> HostDescription {
        let system = uname();
        let part = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        let described = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor = match parse_model_name(&described) {
            Some(model) => format!("{model} ({ARCH})"),
            None => ARCH.to_owned(),
        };
        HostDescription {
            kernel: format!("{} {}", part(system.sysname()), part(system.release())),
            processor,
        }
    }
}

/// The model of the first processor in `/proc/cpuinfo`.
fn parse_model_name(cpuinfo: &str) -> Option<&str> {
    let fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let mut names = fields.filter(|(name, _)| name.trim() == "model name");
    names.next().map(|(_, model)| model.trim()).filter(|model| !model.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_name_is_the_first_in_cpuinfo() {
        let cpuinfo = "processor\t: 0\nmodel\t\t: 207\nmodel name\t: Some Processor\n\nmodel name\t: Other\n";
        assert_eq!(parse_model_name(cpuinfo), Some("Some Processor"));
        assert_eq!(parse_model_name("processor\t: 0\n"), None);
    }

    #[test]
    fn host_has_a_kernel_and_a_processor() {
        let HostDescription { kernel, processor } = HostDescription::of_this_host();
        assert!(kernel.starts_with("Linux "), "{kernel}");
        assert!(processor.contains(ARCH), "{processor}");
    }
}
