//! A table of links, for transports.

use crate::transport::LinkId;

/// A transport's links, by number. The numbers are small. A number that is free again is reused.
#[derive(Debug)]
pub struct LinkTable<T> {
    slots: Vec<Option<T>>,
    free: Vec<LinkId>,
}

impl<T> Default for LinkTable<T> {
    fn default() -> Self {
        LinkTable { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> LinkTable<T> {
    /// Adds a link under a free number.
    pub fn insert(&mut self, link: T) -> LinkId {
        let id = self.free.pop().unwrap_or_else(|| {
            let id = u32::try_from(self.slots.len()).expect("fewer links than there can be descriptors");
            self.slots.push(None);
            LinkId(id)
        });
        self.slots[id.0 as usize] = Some(link);
        id
    }

    /// Returns the link with this number, if there is one.
    #[inline]
    pub fn get(&self, id: LinkId) -> Option<&T> {
        self.slots.get(id.0 as usize)?.as_ref()
    }

    /// As [`get`](Self::get), but mutable.
    #[inline]
    pub fn get_mut(&mut self, id: LinkId) -> Option<&mut T> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }

    /// Removes a link and frees its number.
    pub fn remove(&mut self, id: LinkId) -> Option<T> {
        let link = self.slots.get_mut(id.0 as usize)?.take()?;
        self.free.push(id);
        Some(link)
    }

    /// Returns the next number in use after this one. After the last number comes the first.
    pub fn next_id(&self, after: LinkId) -> Option<LinkId> {
        let (head, tail) = self.slots.split_at((after.0 as usize + 1).min(self.slots.len()));
        let in_tail = tail.iter().position(Option::is_some).map(|at| head.len() + at);
        in_tail.or_else(|| head.iter().position(Option::is_some)).map(|at| LinkId(at as u32))
    }

    /// Returns the numbers in use.
    pub fn ids(&self) -> impl Iterator<Item = LinkId> + '_ {
        let taken = self.slots.iter().enumerate().filter(|(_, slot)| slot.is_some());
        taken.map(|(at, _)| LinkId(at as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_link_ids_are_reused() {
        let mut links = LinkTable::default();
        let (first, second) = (links.insert('a'), links.insert('b'));
        assert_ne!(first, second);
        assert_eq!(links.remove(first), Some('a'));
        assert_eq!(links.remove(first), None, "freed twice");
        assert_eq!((links.get(first), links.ids().collect::<Vec<_>>()), (None, vec![second]));
        assert_eq!(links.insert('c'), first);
        assert_eq!(links.get_mut(first), Some(&mut 'c'));
        assert_eq!(links.get(second), Some(&'b'));
    }

    #[test]
    fn next_id_goes_round_the_numbers_in_use() {
        let mut links = LinkTable::default();
        assert_eq!(links.next_id(LinkId(0)), None);
        let ids = [links.insert('a'), links.insert('b'), links.insert('c')];
        links.remove(ids[1]);
        assert_eq!(links.next_id(ids[0]), Some(ids[2]));
        assert_eq!(links.next_id(ids[2]), Some(ids[0]));
        assert_eq!(links.next_id(LinkId(u32::MAX)), Some(ids[0]));
        links.remove(ids[0]);
        assert_eq!(links.next_id(ids[2]), Some(ids[2]));
    }

    #[test]
    fn unknown_link_id_has_no_entry() {
        let mut links = LinkTable::<char>::default();
        assert!(links.get(LinkId(7)).is_none() && links.remove(LinkId(u32::MAX)).is_none());
    }
}
