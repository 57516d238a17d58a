use super::*;

/// What the tests of engines need of a target.
impl Target {
    pub(crate) fn regions(&self) -> &Arc<Regions> {
        &self.regions
    }

    pub(crate) fn inbounds_len(&self) -> usize {
        self.inbounds.len()
    }

    pub(crate) fn fetches_len(&self) -> usize {
        self.fetches.len()
    }

    pub(crate) fn unpersisted_len(&self) -> usize {
        self.unpersisted.len()
    }

    pub(crate) fn set_pull_step_max_bytes(&mut self, step_max_bytes: usize) {
        self.fetches.set_step_max_bytes(step_max_bytes);
    }
}
