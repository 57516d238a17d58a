//! All rules of a history.

use crate::model::connected::ConnectionOrder;
use crate::model::ends::Ends;
use crate::model::matching::Matching;
use crate::model::memory::accept_accesses;
use crate::model::prelude::*;

/// Follows a history by every part of the model.
pub(crate) fn accept_history(
    history: &History,
    disruption: Disruption,
    order: Order,
    are_ends_in_order: bool,
) -> Result<(), Violation> {
    for (place, lives) in history.places.iter().enumerate() {
        for life in 0..=lives.ends.len() {
            accept(&Matching::new(history, Incarnation { place, life }, disruption), history)?;
        }
    }
    if history.is_connected {
        accept(&ConnectionOrder { history }, history)?;
    }
    accept(&Ends { history, disruption, are_in_order: are_ends_in_order }, history)?;
    accept_accesses(history, disruption, order)
}
