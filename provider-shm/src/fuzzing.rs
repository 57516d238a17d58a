//! The fuzz target of the ring: runs a program of calls to both ends of a ring, and of writes that overwrite
//! it in between. Ordinary tests replay a corpus with it.

use std::collections::VecDeque;
use std::io::IoSlice;

use homespun_engine::atomic::{AtomicKind, AtomicOp, Datatype};
use homespun_engine::limits::REMOTE_MAX_BYTES;
use homespun_engine::transport::Sent;
use homespun_engine::wire::{
    Atomic, AtomicForm, Awaits, Durable, Handshake, HandshakeStep, Header, Message, Outcome, Rma, RmaKind,
    Shown,
};

use crate::line::{sealed, sequence};
use crate::ring::recorder::{LINK, Recorder};
use crate::ring::{Consumer, INLINE_MAX_BYTES, Producer};
use crate::segment::Segment;
use crate::sync::Ordering;

/// Runs the program that `input` encodes, and returns whether both ends accepted the ring. A program may make
/// the ring unacceptable by overwriting it, and must cause nothing worse.
///
/// # Panics
///
/// If the consumer breaks the contract of [`FrameHandler`](homespun_engine::transport::FrameHandler), or if a
/// program that has overwritten nothing loses or alters a frame.
pub fn ring(input: &[u8]) -> bool {
    let (segment, file) = Segment::create().expect("memory for a ring");
    let other = Segment::map(&file).expect("memory for a ring");
    let mut run = Run {
        producer: Producer::new(segment),
        consumer: Consumer::new(other),
        recorder: Recorder::default(),
        sent: VecDeque::new(),
        rest: Vec::new(),
        is_refused: false,
        is_scribbled: false,
        has_finished: false,
    };
    let mut input = Input(input);
    while let Some(step) = input.byte() {
        run.step(step, &mut input);
    }
    run.check();
    !run.is_refused && !run.producer.is_broken()
}

/// The number of kinds of steps; the first byte of a step modulo this is its kind.
const STEPS: u8 = 8;

/// Choices from this one on are atomic operations, if they encode a valid one.
const ATOMICS: u8 = 200;

fn atomic_form(choice: u8, count: u64) -> Option<AtomicForm> {
    let datatype = Datatype::from_number((count % 16) as u32)?;
    let op = AtomicOp::from_number(u32::from(choice % 19))?;
    let kind = AtomicKind::from_number(u32::from(choice / 19))?;
    AtomicForm::new(kind, op, datatype, 1 + count as usize % datatype.count_max())
}

/// A header that a correct engine may send, chosen by `kind` and the following input.
fn header(kind: u8, input: &mut Input<'_>) -> Header {
    let len_bytes = input.number(3) as usize % (1 << 19);
    let message = Message {
        len_bytes: len_bytes as u64,
        tag: (kind & 8 != 0).then_some(len_bytes as u64),
        data: (kind & 16 != 0).then_some(7),
        awaits: match (kind & 32 != 0, kind & 128 != 0) {
            (false, _) => Awaits::Nothing,
            (true, false) => Awaits::Arrival,
            (true, true) => Awaits::Match,
        },
    };
    let is_so = kind & 32 != 0;
    let op = len_bytes as u64;
    let remote_bytes = len_bytes % (REMOTE_MAX_BYTES + 1);
    match kind % 8 {
        0..=2 => Header::Message(message),
        3 => Header::Ack { received: op },
        4 => Header::Request { message, op, remote_bytes: remote_bytes as u8 },
        5 => Header::Clear { op, cannot_pull: is_so },
        6 => Header::Data { op, len_bytes: op },
        // The frames without payload share a number; the bits for the fields of a message tell them apart.
        _ => match kind / 8 % 4 + kind / 128 * 4 {
            0 => Header::Done { op, fault: is_so },
            1 => rma_or_connection_header(op, input.byte().unwrap_or(0)),
            2..=4 => Header::Matched { number: op },
            5 => Header::Credit { granted_bytes: op },
            6 => Header::Fence { matched: is_so },
            _ => Header::Fenced,
        },
    }
}

/// A header of an access to a region, or of a connection.
fn rma_or_connection_header(op: u64, choice: u8) -> Header {
    let data = (choice & 8 != 0).then_some(7);
    let rma = |kind| {
        Header::Rma(Rma { op, key: !op, address: op << 8, len_bytes: op, kind, durable: Durable::Nothing })
    };
    if choice >= ATOMICS
        && let Some(form) = atomic_form(choice - ATOMICS, op)
    {
        return Header::Atomic(Atomic { op, key: !op, address: op << 8, form });
    }
    match choice % 7 {
        0 => rma(RmaKind::Read),
        1 => rma(RmaKind::Write { data }),
        2 => rma(RmaKind::Offer { data, remote_bytes: (op % (REMOTE_MAX_BYTES as u64 + 1)) as u8 }),
        3 => Header::ReadData { op, len_bytes: op },
        4 => Header::Shown(Shown {
            key: !op,
            address: op << 8,
            len_bytes: op,
            access: op,
            remote_bytes: (op % (REMOTE_MAX_BYTES as u64 + 1)) as u8,
        }),
        5 => Header::Answer { op, outcome: Outcome::from_number(choice / 7 % 5).unwrap_or(Outcome::Done) },
        _ => {
            let step = HandshakeStep::from_number(choice / 7 % 5).unwrap_or(HandshakeStep::Request);
            let data_bytes = (op % (step.data_max_bytes() as u64 + 1)) as u16;
            Header::Connection(Handshake { step, number: op, data_bytes })
        }
    }
}

struct Run {
    producer: Producer,
    consumer: Consumer,
    recorder: Recorder,
    /// The frames that the ring has taken and that were not yet compared with arrived ones.
    sent: VecDeque<(Header, Vec<u8>)>,
    /// The rest of a frame that was taken in part.
    rest: Vec<u8>,
    is_refused: bool,
    is_scribbled: bool,
    has_finished: bool,
}

impl Run {
    fn step(&mut self, step: u8, input: &mut Input<'_>) {
        match step % STEPS {
            0 | 1 => self.send(input),
            2 => self.resume(),
            3 => self.receive(u32::from(input.byte().unwrap_or(u8::MAX))),
            4 => {
                let offset = input.number(3) as usize;
                let len_bytes = usize::from(input.byte().unwrap_or(0));
                self.producer.segment().scribble(offset, input.take(len_bytes));
                self.is_scribbled = true;
            }
            5 => self.scribble_line(input),
            6 => self.wait(input.byte().unwrap_or(0)),
            _ => self.scribble_counters(input),
        }
    }

    /// Sends a frame that a correct engine sends, with a payload of any length.
    fn send(&mut self, input: &mut Input<'_>) {
        if self.producer.is_mid_frame() || self.has_finished {
            return;
        }
        let kind = input.byte().unwrap_or(0);
        let header = header(kind, input);
        let payload: Vec<u8> = (0..header.payload_len_bytes()).map(|n| (n ^ n >> 8) as u8).collect();
        let sent = if kind & 64 != 0 && payload.len() <= INLINE_MAX_BYTES {
            self.producer.send_inline(&header, &payload).map_or(Sent::Full, |()| Sent::Whole)
        } else {
            let (start, end) = payload.split_at(payload.len() / 3);
            self.producer.send(&header, &[IoSlice::new(start), IoSlice::new(end)])
        };
        match sent {
            Sent::Full => return,
            Sent::Partial(count_bytes) => self.rest = payload[count_bytes..].to_vec(),
            Sent::Whole => assert!(!self.producer.is_mid_frame()),
        }
        self.sent.push_back((header, payload));
    }

    fn resume(&mut self) {
        if !self.producer.is_mid_frame() {
            return;
        }
        match self.producer.resume(&[IoSlice::new(&self.rest)]) {
            Sent::Full => {}
            Sent::Partial(count_bytes) => {
                self.rest.drain(..count_bytes);
                assert!(!self.rest.is_empty());
            }
            Sent::Whole => self.rest.clear(),
        }
    }

    fn receive(&mut self, budget_frames: u32) {
        if self.is_refused {
            return;
        }
        match self.consumer.receive(LINK, budget_frames, &mut self.recorder) {
            Ok(count) => assert!(count <= budget_frames),
            Err(_) => self.is_refused = true,
        }
        for frame in self.recorder.frames.drain(..) {
            let sent = self.sent.pop_front();
            assert!(self.is_scribbled || sent == Some(frame), "another frame than was sent");
        }
    }

    /// Writes a line with correct checks at the consumer's position, or up to 3 lines ahead.
    fn scribble_line(&mut self, input: &mut Input<'_>) {
        let shape = usize::from(input.byte().unwrap_or(0));
        let (ahead, value_bytes, others) = (shape % 4, shape / 4 % 8 + 1, shape / 32);
        let position = self.consumer.position() + ahead as u64;
        let line = self.producer.segment().line(position);
        let kind_flags_and_len = input.number(4) << u32::BITS;
        for word in line.iter().skip(1).take(others) {
            word.store(input.number(value_bytes), Ordering::Relaxed);
        }
        let unsealed = kind_flags_and_len | u64::from(sequence(position));
        let first = sealed(unsealed, |word| line[word].load(Ordering::Relaxed));
        line[0].store(first, Ordering::Relaxed);
        self.is_scribbled = true;
    }

    fn scribble_counters(&mut self, input: &mut Input<'_>) {
        let (offset, value) = (input.byte().unwrap_or(0), input.number(8));
        self.producer.segment().scribble(usize::from(offset % 24) * 8, &value.to_le_bytes());
        self.is_scribbled = true;
    }

    /// One of the calls that surround sleeping.
    fn wait(&mut self, choice: u8) {
        match choice % 8 {
            0 => self.is_refused |= self.consumer.make_cold().is_err(),
            1 => self.consumer.make_hot(),
            2 => _ = self.producer.take_wake_request(),
            3 => _ = self.producer.request_room(),
            4 => _ = self.consumer.take_room_request(),
            5 => self.consumer.publish_progress(),
            6 => _ = self.consumer.end(),
            _ if !self.producer.is_mid_frame() => {
                self.producer.finish();
                self.has_finished = true;
            }
            _ => {}
        }
    }

    /// Unless the program has overwritten something, all that the ring has taken arrives.
    fn check(&mut self) {
        if self.is_scribbled {
            return;
        }
        for _ in 0..=self.rest.len() {
            self.receive(u32::MAX);
            if !self.producer.is_mid_frame() {
                break;
            }
            self.resume();
        }
        assert!(!self.is_refused && !self.producer.is_broken(), "correct ends refuse each other");
        assert!(self.sent.is_empty() && self.consumer.is_empty(), "a frame was lost");
    }
}

/// The bytes of a program. Bytes beyond its end read as zero.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    fn take(&mut self, count_bytes: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count_bytes.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn number(&mut self, count_bytes: usize) -> u64 {
        self.take(count_bytes).iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use homespun_engine::wire::Form;

    use super::*;

    /// A kind of header that no program sends would not be fuzzed.
    #[test]
    fn programs_send_headers_of_every_kind() {
        let any_choice = |input: &[u8; 2]| header(input[0], &mut Input(&[5, 0, 0, input[1]]));
        let choices = (0..=u8::MAX).flat_map(|kind| (0..=u8::MAX).map(move |choice| [kind, choice]));
        let sent: BTreeSet<u8> =
            choices.map(|choice| any_choice(&choice).lower(drop::<u64>).form.kind()).collect();
        assert_eq!(sent, Form::all().map(Form::kind).collect());
    }

    /// Replays the kept inputs of the fuzz target, among which both verdicts must occur.
    #[test]
    fn corpus_inputs_get_the_verdicts_in_their_names() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/ring");
        let mut verdicts = [0, 0];
        for entry in
            fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        {
            let path = entry.unwrap().path();
            let is_acceptable = ring(&fs::read(&path).unwrap());
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            assert!(!name.starts_with("good-") || is_acceptable, "{name} was refused");
            assert!(!name.starts_with("bad-") || !is_acceptable, "{name} was accepted");
            verdicts[usize::from(is_acceptable)] += 1;
        }
        assert!(verdicts.iter().all(|&count| count > 0), "refused and accepted: {verdicts:?}");
    }
}
