//! Probes of attributes and hints that differ from the usual ones in one field. They are the rows of
//! `attributes.txt`.

use std::ptr;

use homespun_host::abi::eq::{FiPollAttr, FiWaitAttr};
use homespun_host::abi::struct_layouts;
use homespun_host::{av_attr, counter_attr, cq_attr, eq_attr};
use libc::c_int;

use super::{Family, Probes};
use crate::bits::bits;
use crate::outcome::{AS_ASKED, describe_result};
use crate::setup::{Context, NULL, call, provider_hints, source_arguments, try_open};

/// A value of a field.
#[derive(Debug, Clone, Copy)]
enum Value {
    /// Bits that are added to those of the field.
    Added(u64),
    Number(u64),
    /// A number that depends on the provider's own.
    OfOwn(fn(u64) -> u64),
}

/// Sizes to request.
const SIZES: [(&str, Value); 10] = [
    ("0", Value::Number(0)),
    ("1", Value::Number(1)),
    ("2", Value::Number(2)),
    ("3", Value::Number(3)),
    ("64", Value::Number(64)),
    ("half of its own", Value::OfOwn(|own| own / 2)),
    ("its own - 1", Value::OfOwn(|own| own.saturating_sub(1))),
    ("its own + 1", Value::OfOwn(|own| own.saturating_add(1))),
    ("max - 1", Value::Number(u64::MAX - 1)),
    ("max", Value::Number(u64::MAX)),
];

/// A change of one field.
#[derive(Debug, Clone, Copy)]
struct Change {
    field: &'static str,
    width_bytes: usize,
    value: Value,
}

pub(super) fn add_probes(probes: &mut Probes) {
    let rows = include_str!("../attributes.txt").lines();
    for row in rows.filter(|row| !row.is_empty() && !row.starts_with('#')) {
        let mut cells = row.split(" | ");
        let [call, field, values] = [(); 3].map(|()| cells.next().expect("a call, a field and values"));
        let is_asked = cells.next().is_some();
        let family = match call {
            "fi_getinfo" | "fi_endpoint" => Family::Endpoint,
            _ => Family::Object,
        };
        let (width_bytes, values) = parse_values(values);
        for (text, value) in values {
            let change = Change { field, width_bytes, value };
            let name = format!("{call}: {field} {text}");
            probes.add(family, name, move |context: &Context| probe_change(context, call, change, is_asked));
        }
    }
}

/// The width of the values of a row, and the name of each value.
fn parse_values(values: &'static str) -> (usize, Vec<(String, Value)>) {
    let each_bit = |set, value: fn(u64) -> Value| {
        bits(set).map(|(bit, name)| (name.to_owned(), value(1 << bit))).collect()
    };
    match values.split_once(' ') {
        Some(("only", set)) => (4, each_bit(set, Value::Number)),
        Some(("u32", numbers)) => (4, parse_numbers(numbers)),
        Some(("u64", numbers)) => (8, parse_numbers(numbers)),
        Some(_) => {
            let name = c"nothing".as_ptr().expose_provenance() as u64;
            (8, vec![(values.to_owned(), Value::Number(name))])
        }
        None if values == "null" => (8, vec![(values.to_owned(), Value::Number(0))]),
        None if values == "sizes" => (8, SIZES.map(|(text, size)| (text.to_owned(), size)).into()),
        None => (if values == "mr_modes" { 4 } else { 8 }, each_bit(values, Value::Added)),
    }
}

/// Parses numbers such as `3`, `0x40`, `-1` and `max`, and ranges such as `0..7`.
fn parse_numbers(numbers: &str) -> Vec<(String, Value)> {
    let parse = |number: &str| match number.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).expect("a number"),
        None if number == "max" => u64::MAX,
        None => number.parse::<i64>().expect("a number").cast_unsigned(),
    };
    let mut parsed = Vec::new();
    for word in numbers.split(' ') {
        match word.split_once("..") {
            None => parsed.push((word.to_owned(), Value::Number(parse(word)))),
            Some((first, last)) => parsed.extend(
                (parse(first)..=parse(last)).map(|number| (number.to_string(), Value::Number(number))),
            ),
        }
    }
    parsed
}

/// The place of a field, such as `caps` or `tx_attr.caps`, in a structure.
fn locate<T>(structure: &str, base: *mut T, field: &str) -> *mut u8 {
    let (first, rest) = field.split_once('.').map_or((field, None), |(first, rest)| (first, Some(rest)));
    let layout = struct_layouts().find(|layout| layout.name == structure).expect("a structure");
    let found = layout.fields.iter().find(|it| it.name.trim_start_matches("r#") == first).expect("a field");
    let place = base.cast::<u8>().wrapping_add(found.offset_bytes);
    match rest {
        None => place,
        Some(rest) => {
            locate(&format!("struct fi_{first}"), unsafe { place.cast::<*mut u8>().read_unaligned() }, rest)
        }
    }
}

impl Change {
    fn read<T>(&self, structure: &str, base: *mut T) -> u64 {
        let (mut bytes, place) = ([0; 8], locate(structure, base, self.field));
        unsafe { ptr::copy_nonoverlapping(place, bytes.as_mut_ptr(), self.width_bytes) };
        u64::from_le_bytes(bytes)
    }

    /// Makes the change. Returns the structure.
    fn apply<T>(&self, structure: &str, base: *mut T, context: &Context) -> *mut T {
        let value = match self.value {
            Value::Added(bits) => self.read(structure, base) | bits,
            Value::Number(number) => number,
            Value::OfOwn(make) => make(self.read(structure, context.info.as_ptr())),
        };
        let place = locate(structure, base, self.field);
        unsafe { ptr::copy_nonoverlapping(value.to_le_bytes().as_ptr(), place, self.width_bytes) };
        base
    }

    /// Whether an answer has the value.
    fn is_met<T>(&self, structure: &str, base: *mut T) -> bool {
        let found = self.read(structure, base);
        match self.value {
            Value::Added(bits) => found & bits != 0,
            Value::Number(number) => found == number,
            Value::OfOwn(_) => false,
        }
    }
}

fn probe_change(context: &Context, call: &str, change: Change, is_asked: bool) -> String {
    const INFO: &str = "struct fi_info";
    if call == "fi_getinfo" {
        let hints = provider_hints(context.libfabric, &context.case);
        change.apply(INFO, hints.as_ptr(), context);
        let (node, flags) = source_arguments(&context.case);
        let answer = context.libfabric.getinfo(node, None, flags, Some(&hints));
        // A changed pointer cannot be freed.
        std::mem::forget(hints);
        return match answer {
            Err(error) => describe_result(-error.raw()),
            Ok(list)
                if is_asked
                    && list.iter().any(|info| change.is_met(INFO, ptr::from_ref(info).cast_mut())) =>
            {
                AS_ASKED.to_owned()
            }
            Ok(_) => "0".to_owned(),
        };
    }
    let info = std::mem::ManuallyDrop::new(unsafe { context.libfabric.dupinfo(context.info.as_ptr()) });
    let changed_info = || change.apply(INFO, info.as_ptr(), context);
    let result: c_int = match call {
        "fi_fabric" => {
            let attr = unsafe { (*changed_info()).fabric_attr };
            try_open(|fabric| unsafe { context.libfabric.call_fi_fabric(attr, fabric, NULL) })
        }
        "fi_domain" => {
            let fabric = context.open_fabric();
            try_open(|domain| call!(fabric, ops.domain, changed_info(), domain, NULL))
        }
        "fi_endpoint" => {
            let domain = context.open_domain().1;
            try_open(|ep| call!(domain, ops.endpoint, changed_info(), ep, NULL))
        }
        "fi_eq_open" => {
            let (fabric, mut attr) = (context.open_fabric(), eq_attr());
            let attr = change.apply("struct fi_eq_attr", &raw mut attr, context);
            try_open(|eq| call!(fabric, ops.eq_open, attr, eq, NULL))
        }
        "fi_wait_open" => {
            let (fabric, mut attr) = (context.open_fabric(), FiWaitAttr { wait_obj: 1, flags: 0 });
            let attr = change.apply("struct fi_wait_attr", &raw mut attr, context);
            try_open(|wait| call!(fabric, ops.wait_open, attr, wait))
        }
        "fi_cq_open" => {
            let (domain, mut attr) = (context.open_domain().1, cq_attr(4));
            let attr = change.apply("struct fi_cq_attr", &raw mut attr, context);
            try_open(|cq| call!(domain, ops.cq_open, attr, cq, NULL))
        }
        "fi_cntr_open" => {
            let (domain, mut attr) = (context.open_domain().1, counter_attr());
            let attr = change.apply("struct fi_cntr_attr", &raw mut attr, context);
            try_open(|counter| call!(domain, ops.cntr_open, attr, counter, NULL))
        }
        "fi_av_open" => {
            let (domain, mut attr) = (context.open_domain().1, av_attr());
            let attr = change.apply("struct fi_av_attr", &raw mut attr, context);
            try_open(|av| call!(domain, ops.av_open, attr, av, NULL))
        }
        "fi_poll_open" => {
            let (domain, mut attr) = (context.open_domain().1, FiPollAttr { flags: 0 });
            let attr = change.apply("struct fi_poll_attr", &raw mut attr, context);
            try_open(|poll| call!(domain, ops.poll_open, attr, poll))
        }
        _ => unreachable!("no such call"),
    };
    describe_result(result)
}
