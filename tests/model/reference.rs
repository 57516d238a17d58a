//! What matching comes to where nothing is left to chance.

use std::collections::BTreeMap;

use crate::history::History;

/// Which receive takes which message, among messages of one sender and one kind, for one receiver that cancels nothing,
/// and neither claims nor discards.
///
/// Messages keep their order and receives keep theirs, so both sides agree on who comes first, and the outcome is the
/// same however arrivals and posts are interleaved. This is the interleaving in which all receives are posted first.
pub(crate) fn matches(history: &History, messages: &[usize], receives: &[usize]) -> BTreeMap<usize, usize> {
    let mut taken_by = BTreeMap::new();
    let mut posted: Vec<usize> = receives.to_vec();
    for &message in messages {
        let accepts = |receive: &usize| history.receives[*receive].accepts(&history.sends[message]);
        if let Some(place) = posted.iter().position(accepts) {
            taken_by.insert(message, posted.remove(place));
        }
    }
    taken_by
}
