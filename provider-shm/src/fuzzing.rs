//! The fuzz target of the ring. The input encodes a program: calls to both ends of a ring, and writes that
//! overwrite parts of the ring. An ordinary test replays the corpus.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::LazyLock;

use homespun_engine::transport::Sent;
use homespun_engine::wire::{Form, Header, samples};

use crate::line::sequence_at;
use crate::ring::recorder::{LINK, Recorder};
use crate::ring::{Consumer, INLINE_MAX_BYTES, Producer};
use crate::segment::{DataArea, Segment};
use crate::sync::Ordering;
use crate::ways::Ways;

/// Runs the program that `input` encodes. Returns whether both ends accepted the ring. If a program
/// overwrites the ring, an end may refuse the ring.
///
/// # Panics
///
/// If the consumer breaks the contract of [`FrameHandler`](homespun_engine::transport::FrameHandler), or if
/// a program that has overwritten nothing loses or alters a frame.
pub fn run_ring_program(input: &[u8]) -> bool {
    // Inputs of either parity are as likely, and the size of the data area takes no byte of them.
    let data = if input.len().is_multiple_of(2) { DataArea::LARGE } else { DataArea::SMALL };
    let (segment, file) = Segment::create(data).expect("memory for a ring");
    let other = Segment::map(&file).expect("memory for a ring");
    let mut run = Run {
        producer: Producer::new(segment),
        consumer: Consumer::new(other, Ways::ring_only()),
        recorder: Recorder::default(),
        sent: VecDeque::new(),
        rest: Vec::new(),
        is_refused: false,
        is_scribbled: false,
        has_finished: false,
    };
    let mut input = Input(input);
    while let Some(step) = input.next_byte() {
        run.run_step(step, &mut input);
    }
    run.drain_and_assert_all_arrived();
    !run.is_refused && !run.producer.is_broken()
}

/// The number of kinds of steps. A step's kind is its first byte modulo this.
const STEPS: u8 = 8;

/// In the choice byte of a send: the bit that requests an inline send. The other bits choose the header's
/// values.
const INLINE: u8 = 64;

/// The numbers for headers are below this. So the payloads have a limited length.
const NUMBER_END: u64 = 1 << 19;

/// Returns a header that a correct engine may send. If no form has this kind and these flags, takes another
/// form.
fn sendable_header(kind: u8, flags: u8, choice: u8, number: u64) -> Header {
    static FORMS: LazyLock<Vec<Form>> = LazyLock::new(|| Form::all().collect());
    let other = || FORMS[usize::from(kind ^ flags) % FORMS.len()];
    let form = Form::new(kind, flags).unwrap_or_else(|_| other());
    samples::fitting_header(form, number, usize::from(choice % INLINE))
}

struct Run {
    producer: Producer,
    consumer: Consumer,
    recorder: Recorder,
    /// The frames that the ring has taken, wholly or in part, until they are compared with received frames.
    sent: VecDeque<(Header, Vec<u8>)>,
    /// The payload of the unfinished frame that is still to be sent.
    rest: Vec<u8>,
    is_refused: bool,
    is_scribbled: bool,
    has_finished: bool,
}

impl Run {
    fn run_step(&mut self, step: u8, input: &mut Input<'_>) {
        match step % STEPS {
            0 | 1 => self.send(input),
            2 => self.resume(),
            3 => self.receive_and_compare(u32::from(input.next_byte().unwrap_or(u8::MAX))),
            4 => {
                let offset = input.next_number(3) as usize;
                let len_bytes = usize::from(input.next_byte().unwrap_or(0));
                self.producer.segment().scribble(offset, input.next_bytes(len_bytes));
                self.is_scribbled = true;
            }
            5 => self.scribble_line(input),
            6 => self.call_sleep_wake_or_finish(input.next_byte().unwrap_or(0)),
            _ => self.scribble_counters(input),
        }
    }

    /// Sends a correct frame. The input determines the header and the payload's length.
    fn send(&mut self, input: &mut Input<'_>) {
        if self.producer.is_mid_frame() || self.has_finished {
            return;
        }
        let [kind, flags, choice] = [(); 3].map(|()| input.next_byte().unwrap_or(0));
        let header = sendable_header(kind, flags, choice, input.next_number(3) % NUMBER_END);
        let payload: Vec<u8> = (0..header.payload_len_bytes()).map(|n| (n ^ n >> 8) as u8).collect();
        let sent = if choice & INLINE != 0 && payload.len() <= INLINE_MAX_BYTES {
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

    fn receive_and_compare(&mut self, budget_frames: u32) {
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

    /// Writes a line with the right sequence number, at the consumer's position or up to 3 lines ahead.
    fn scribble_line(&mut self, input: &mut Input<'_>) {
        let shape = usize::from(input.next_byte().unwrap_or(0));
        let (ahead, value_bytes, others) = (shape % 4, shape / 4 % 8 + 1, shape / 32);
        let position = self.consumer.line_position() + ahead as u64;
        let line = self.producer.segment().line(position);
        let kind_flags_and_len = input.next_number(4) << u32::BITS;
        for word in line.iter().skip(1).take(others) {
            word.store(input.next_number(value_bytes), Ordering::Relaxed);
        }
        let first = kind_flags_and_len | u64::from(sequence_at(position));
        line[0].store(first, Ordering::Relaxed);
        self.is_scribbled = true;
    }

    fn scribble_counters(&mut self, input: &mut Input<'_>) {
        let (offset, value) = (input.next_byte().unwrap_or(0), input.next_number(8));
        self.producer.segment().scribble(usize::from(offset % 24) * 8, &value.to_le_bytes());
        self.is_scribbled = true;
    }

    /// Makes a call that moves no frame: about wakeups, room, or the end of the ring.
    fn call_sleep_wake_or_finish(&mut self, choice: u8) {
        match choice % 8 {
            0 => self.is_refused |= self.consumer.request_wake_if_empty().is_err(),
            1 => self.consumer.cancel_wake_request(),
            2 => _ = self.producer.take_wake_request(),
            3 => _ = self.producer.request_room_if_full(),
            4 => _ = self.consumer.take_room_request(),
            5 => self.consumer.publish_progress(),
            6 => _ = self.consumer.ring_end(),
            _ if !self.producer.is_mid_frame() => {
                self.producer.finish();
                self.has_finished = true;
            }
            _ => {}
        }
    }

    /// Checks that everything that the ring has taken arrives. Skips the check if the program has
    /// overwritten parts of the ring.
    fn drain_and_assert_all_arrived(&mut self) {
        if self.is_scribbled {
            return;
        }
        for _ in 0..=self.rest.len() {
            self.receive_and_compare(u32::MAX);
            if !self.producer.is_mid_frame() {
                break;
            }
            self.resume();
        }
        assert!(!self.is_refused && !self.producer.is_broken(), "correct ends refuse each other");
        assert!(self.sent.is_empty() && self.consumer.is_empty(), "a frame was lost");
    }
}

/// The unread bytes of a program. After the last byte come zeros, if a number needs more bytes.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn next_byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    fn next_bytes(&mut self, count_bytes: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count_bytes.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn next_number(&mut self, count_bytes: usize) -> u64 {
        self.next_bytes(count_bytes).iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// The fuzz target can test a form only if some program sends it.
    #[test]
    fn programs_send_headers_of_every_form() {
        let forms = (0..=u8::MAX).flat_map(|kind| (0..=u8::MAX).map(move |flags| (kind, flags)));
        let sent: BTreeSet<(u8, u8)> = forms
            .map(|(kind, flags)| sendable_header(kind, flags, 0, 5).encode_words(drop::<u64>).form)
            .map(|form| (form.kind(), form.flags()))
            .collect();
        assert_eq!(sent, Form::all().map(|form| (form.kind(), form.flags())).collect());
    }

    /// Replays the fuzz target's corpus. It must have inputs that are accepted and inputs that are refused.
    #[test]
    fn corpus_inputs_get_the_verdicts_in_their_names() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/ring");
        let mut verdicts = [0, 0];
        for entry in
            fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        {
            let path = entry.unwrap().path();
            let is_acceptable = run_ring_program(&fs::read(&path).unwrap());
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            assert!(!name.starts_with("good-") || is_acceptable, "{name} was refused");
            assert!(!name.starts_with("bad-") || !is_acceptable, "{name} was accepted");
            verdicts[usize::from(is_acceptable)] += 1;
        }
        assert!(verdicts.iter().all(|&count| count > 0), "refused and accepted: {verdicts:?}");
    }
}
