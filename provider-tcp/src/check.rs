//! A connection to a claimed address. It asks the endpoint there whether it has made the links that claim
//! the address.

use std::io::{self, IoSlice, Read};
use std::mem;
use std::time::Instant;

use homespun_engine::fork::CloseOnFork;
use homespun_engine::transport::LinkId;
use homespun_engine::wire::address_claim::{ClaimRecord, ClaimStatus};
use homespun_engine::wire::hello::Question;
use mio::net::TcpStream;

use crate::address_claims::{CheckOutcome, CheckPlan};
use crate::hello::ClaimRecordReader;
use crate::socket::{Departure, SendSocket};

/// A connection to a claimed address. It carries questions and answers, but no frames.
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) plan: CheckPlan,
    pub(crate) stream: CloseOnFork<TcpStream>,
    pub(crate) began_at: Instant,
    /// The kernel has reported an event.
    pub(crate) is_ready: bool,
    is_connected: bool,
    /// The questions that were not written yet.
    unwritten: Vec<u8>,
    reader: ClaimRecordReader,
    answers: Vec<(LinkId, u64, ClaimStatus)>,
}

impl Check {
    /// `questions` has one question for each link of the plan, in the same order.
    pub(crate) fn new(
        plan: CheckPlan,
        stream: TcpStream,
        questions: &[Question],
        began_at: Instant,
    ) -> Check {
        Check {
            plan,
            stream: CloseOnFork::new(stream),
            began_at,
            is_ready: true,
            is_connected: false,
            unwritten: questions.iter().flat_map(Question::to_bytes).collect(),
            reader: ClaimRecordReader::new(),
            answers: Vec::new(),
        }
    }

    /// Connects, asks and reads answers, as far as possible without waiting. Returns the outcome once there
    /// is one.
    pub(crate) fn advance(&mut self) -> Option<CheckOutcome> {
        self.is_ready = false;
        match self.try_advance() {
            Ok(true) => Some(CheckOutcome::Answered(mem::take(&mut self.answers))),
            Ok(false) => None,
            Err(error) => {
                tracing::debug!(address = %self.plan.address, %error, "a check has failed");
                Some(self.outcome_without_answer())
            }
        }
    }

    /// The outcome if there is no answer.
    pub(crate) fn outcome_without_answer(&self) -> CheckOutcome {
        if self.is_connected { CheckOutcome::Silent } else { CheckOutcome::Unreachable }
    }

    /// Returns whether all answers have arrived.
    fn try_advance(&mut self) -> io::Result<bool> {
        if !self.is_connected {
            if let Some(error) = self.stream.take_error()? {
                return Err(error);
            }
            let Ok(peer) = self.stream.peer_addr() else { return Ok(false) };
            // If no socket listens at the port, the kernel may have connected this socket to itself.
            if self.stream.local_addr()? == peer {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            self.is_connected = true;
        }
        while !self.unwritten.is_empty() {
            match self.stream.send(&[IoSlice::new(&self.unwritten)], Departure::Now) {
                Ok(written) => drop(self.unwritten.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.read_answers()
    }

    fn read_answers(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 1024];
        while self.answers.len() < self.plan.asked.len() {
            let read_bytes = match (&*self.stream).read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read_bytes) => read_bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            };
            self.parse_answers(&buffer[..read_bytes])?;
        }
        Ok(true)
    }

    fn parse_answers(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while let Some((ClaimRecord { status, token }, rest)) =
            self.reader.feed(bytes).map_err(io::Error::other)?
        {
            bytes = rest;
            let is_verdict =
                matches!(status, ClaimStatus::Confirmed | ClaimStatus::Denied | ClaimStatus::Unclear);
            match self.plan.asked.get(self.answers.len()) {
                Some((link, asked)) if is_verdict && *asked == token => {
                    self.answers.push((*link, token, status));
                }
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{SocketAddr, TcpListener};
    use std::thread;
    use std::time::Duration;

    use homespun_engine::source_host::SourceHost;
    use homespun_engine::wire::hello::HELLO_BYTES;

    use super::*;
    use crate::address_claims::{AddressClaims, NewClaim};
    use crate::socket::{self, KernelBuffers};

    const TOKENS: [u64; 2] = [7, 8];

    fn questions() -> [Question; 2] {
        let own: SocketAddr = "127.0.0.1:9".parse().unwrap();
        TOKENS.map(|token| Question { address: own.into(), token })
    }

    /// A check of two links that claim this address.
    fn start_check_of(address: SocketAddr) -> Check {
        let now = Instant::now();
        let mut claims = AddressClaims::new(Duration::MAX);
        for (number, token) in (0..).zip(TOKENS) {
            let from = SourceHost::of(address.into());
            let claim = NewClaim {
                address: address.into(),
                token,
                from,
                serial: Some(number.into()),
                arrived_at: now,
            };
            claims.add_accepted(LinkId(number), claim, now);
        }
        let stream = socket::start_connect(address, None, KernelBuffers::default(), None).unwrap();
        Check::new(claims.start_next_check(now).unwrap(), stream, &questions(), now)
    }

    fn advance_until_over(check: &mut Check) -> CheckOutcome {
        for _ in 0..100_000 {
            if let Some(outcome) = check.advance() {
                return outcome;
            }
            thread::yield_now();
        }
        panic!("the check never ends");
    }

    /// Returns the outcome of a check that gets these pieces of bytes as answers. Then the connection ends.
    fn outcome_of(pieces: &[&[u8]]) -> CheckOutcome {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut check = start_check_of(listener.local_addr().unwrap());
        let (mut raw, _) = listener.accept().unwrap();
        assert_eq!(check.advance(), None);
        let mut questions = [0; 2 * HELLO_BYTES];
        raw.read_exact(&mut questions).unwrap();
        assert_eq!(questions, *self::questions().map(|question| question.to_bytes()).as_flattened());
        for piece in pieces {
            raw.write_all(piece).unwrap();
            if let Some(outcome) = check.advance() {
                return outcome;
            }
        }
        drop(raw);
        advance_until_over(&mut check)
    }

    fn answer(status: ClaimStatus, token: u64) -> [u8; 16] {
        ClaimRecord { status, token }.to_bytes()
    }

    #[test]
    fn answers_in_pieces_are_taken_in_their_order() {
        let bytes = [answer(ClaimStatus::Confirmed, 7), answer(ClaimStatus::Denied, 8)];
        let bytes = bytes.as_flattened();
        let answers = vec![(LinkId(0), 7, ClaimStatus::Confirmed), (LinkId(1), 8, ClaimStatus::Denied)];
        for cut in 0..bytes.len() {
            let outcome = outcome_of(&[&bytes[..cut], &bytes[cut..]]);
            assert_eq!(outcome, CheckOutcome::Answered(answers.clone()), "cut at {cut}");
        }
    }

    #[test]
    fn invalid_answer_counts_as_silence() {
        let wrong: [&[u8]; 5] = [
            &answer(ClaimStatus::Confirmed, 8),
            &answer(ClaimStatus::Admitted, 7),
            &[0xff; 16],
            &answer(ClaimStatus::Confirmed, 7),
            b"",
        ];
        for bytes in wrong {
            assert_eq!(outcome_of(&[bytes]), CheckOutcome::Silent, "{bytes:?}");
        }
    }

    #[test]
    fn vacant_address_is_unreachable() {
        let vacant: SocketAddr = "127.0.0.1:1".parse().unwrap();
        // The kernel may refuse a connect at once or later.
        match socket::start_connect(vacant, None, KernelBuffers::default(), None) {
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused),
            Ok(_) => assert_eq!(advance_until_over(&mut start_check_of(vacant)), CheckOutcome::Unreachable),
        }
    }
}
