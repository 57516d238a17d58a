//! The content of messages when every byte is checked.
//!
//! The content depends on a message's direction, number and length. So the check fails if a buffer
//! contains any part of another message.

/// The length of the words that make up the content.
const WORD_BYTES: usize = size_of::<u64>();

/// The direction of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageDirection {
    ToServer,
    ToClient,
}

/// The first wrong byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mismatch {
    pub(crate) offset: usize,
    pub(crate) actual: u8,
    pub(crate) expected: u8,
}

/// The content of one message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pattern {
    seed: u64,
}

impl MessageDirection {
    pub(crate) fn opposite(self) -> MessageDirection {
        match self {
            MessageDirection::ToServer => MessageDirection::ToClient,
            MessageDirection::ToClient => MessageDirection::ToServer,
        }
    }
}

impl Pattern {
    /// The pattern of the message with this number.
    pub(crate) fn new(direction: MessageDirection, sequence: u64, size_bytes: usize) -> Pattern {
        let direction = match direction {
            MessageDirection::ToServer => 1,
            MessageDirection::ToClient => 2,
        };
        Pattern { seed: mix_bits(mix_bits(mix_bits(direction) ^ sequence) ^ size_bytes as u64) }
    }

    /// Fills a message with its content.
    pub(crate) fn fill(self, message: &mut [u8]) {
        let (words, rest) = message.as_chunks_mut();
        for (index, word) in words.iter_mut().enumerate() {
            *word = self.word_at(index);
        }
        let last = self.word_at(words.len());
        rest.copy_from_slice(&last[..rest.len()]);
    }

    /// Compares a whole message with its expected content.
    pub(crate) fn verify(self, message: &[u8]) -> Result<(), Mismatch> {
        let (words, rest) = message.as_chunks();
        let wrong = words.iter().enumerate().find(|(index, word)| **word != self.word_at(*index));
        if let Some((index, word)) = wrong {
            return Err(first_mismatch(index * WORD_BYTES, word, &self.word_at(index)));
        }
        let last = self.word_at(words.len());
        let expected = &last[..rest.len()];
        if rest == expected { Ok(()) } else { Err(first_mismatch(words.len() * WORD_BYTES, rest, expected)) }
    }

    fn word_at(self, index: usize) -> [u8; WORD_BYTES] {
        mix_bits(self.seed.wrapping_add(index as u64)).to_le_bytes()
    }
}

/// Mixes the bits of a number, so that similar numbers give very different results.
fn mix_bits(number: u64) -> u64 {
    let product = (number ^ (number >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ (product >> 29)
}

fn first_mismatch(start: usize, actual: &[u8], expected: &[u8]) -> Mismatch {
    let pairs = actual.iter().zip(expected);
    // The caller has already found that the two slices differ.
    let place = pairs.clone().take_while(|(actual, expected)| actual == expected).count();
    let (actual, expected) =
        pairs.clone().nth(place).map_or((0, 0), |(actual, expected)| (*actual, *expected));
    Mismatch { offset: start + place, actual, expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filled_message_passes_and_any_changed_byte_is_found() {
        for size in [0, 1, 7, 8, 9, 64, 1001] {
            let pattern = Pattern::new(MessageDirection::ToServer, 5, size);
            let mut message = vec![0; size];
            pattern.fill(&mut message);
            assert_eq!(pattern.verify(&message), Ok(()));
            for offset in 0..size {
                let expected = message[offset];
                message[offset] = !expected;
                assert_eq!(pattern.verify(&message), Err(Mismatch { offset, actual: !expected, expected }));
                message[offset] = expected;
            }
        }
    }

    #[test]
    fn messages_have_distinct_contents() {
        let own = Pattern::new(MessageDirection::ToServer, 5, 64);
        let mut message = [0; 64];
        own.fill(&mut message);
        let others = [
            (MessageDirection::ToClient, 5, 64),
            (MessageDirection::ToServer, 6, 64),
            (MessageDirection::ToServer, 5, 65),
        ];
        for (direction, sequence, size) in others {
            assert!(Pattern::new(direction, sequence, size).verify(&message).is_err());
        }
    }
}
