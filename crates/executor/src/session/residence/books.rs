//! The books of residence: which objects are on the device, who uses them, and which leave next.
//! No driver, no I/O.

use baltra_ring::lease::monotonic_ns;
use std::collections::{BTreeMap, HashMap};

/// An object's number, unique in the process.
pub type Number = u64;

/// An entry of the books.
#[derive(Debug)]
struct Entry {
    bytes: u64,
    /// The session that created it.
    owner: u64,
    is_resident: bool,
    /// Lanes whose commands may use it.
    pins: u32,
    /// Time of its last use.
    used: u64,
}

/// A session with objects.
#[derive(Debug, Default)]
struct Owner {
    objects: usize,
    /// Time of its last use of an object.
    used: u64,
}

/// All objects that may leave the device.
#[derive(Debug)]
pub struct Books {
    entries: BTreeMap<Number, Entry>,
    owners: HashMap<u64, Owner>,
    /// Time of the last use, `CLOCK_MONOTONIC` in nanoseconds; each use has a time of its own.
    used: u64,
    /// Bytes that objects should take on the device together, those of other executors included.
    budget: u64,
    /// Bytes on the device, those of objects that cannot leave included.
    resident: u64,
    /// Bytes of objects that cannot leave.
    fixed: u64,
    /// Bytes on their way to the device.
    coming: u64,
    /// Bytes of all objects.
    total: u64,
    total_max: u64,
}

impl Books {
    /// Without objects: at most `budget` bytes on the device and `total_max` bytes in all.
    pub fn new(budget: u64, total_max: u64) -> Books {
        Books {
            entries: BTreeMap::new(),
            owners: HashMap::new(),
            used: 0,
            budget,
            resident: 0,
            fixed: 0,
            coming: 0,
            total: 0,
            total_max,
        }
    }

    fn next_use(&mut self) -> u64 {
        self.used = monotonic_ns().max(self.used + 1);
        self.used
    }

    /// Time of the last use.
    pub fn last_use(&self) -> u64 {
        self.used
    }

    /// Reserves memory, of the host or the device, for an object's lifetime; false: over the limit.
    /// `others`: bytes of other executors' objects.
    pub fn reserve(&mut self, bytes: u64, others: u64) -> bool {
        let total = self.total.checked_add(bytes);
        let fits = total.filter(|total| total.saturating_add(others) <= self.total_max);
        if let Some(total) = fits {
            self.total = total;
        }
        fits.is_some()
    }

    /// Ends a reservation.
    pub fn unreserve(&mut self, bytes: u64) {
        self.total -= bytes;
    }

    /// Counts bytes on the device that cannot leave.
    pub fn fix(&mut self, bytes: u64) {
        self.resident += bytes;
        self.fixed += bytes;
    }

    /// Ends [`Books::fix`].
    pub fn unfix(&mut self, bytes: u64) {
        self.resident -= bytes;
        self.fixed -= bytes;
    }

    /// Adds an object; returns whether it may be on the device from the start. `others`: bytes of
    /// other executors on the device.
    pub fn add(&mut self, number: Number, owner: u64, bytes: u64, others: u64) -> bool {
        let taken = self.resident.saturating_add(self.coming + others);
        let fits = self.budget.saturating_sub(taken) >= bytes;
        if fits {
            self.resident += bytes;
        }
        let used = self.next_use();
        let owners = self.owners.entry(owner).or_default();
        owners.objects += 1;
        owners.used = used;
        let entry = Entry {
            bytes,
            owner,
            is_resident: fits,
            pins: 0,
            used,
        };
        self.entries.insert(number, entry);
        fits
    }

    /// Removes an object; returns whether it was on the device.
    pub fn remove(&mut self, number: Number) -> bool {
        let Some(entry) = self.entries.remove(&number) else {
            return false;
        };
        if entry.is_resident {
            self.resident -= entry.bytes;
        }
        if let Some(owner) = self.owners.get_mut(&entry.owner) {
            owner.objects -= 1;
            if owner.objects == 0 {
                self.owners.remove(&entry.owner);
            }
        }
        entry.is_resident
    }

    /// Whether all of them are on the device.
    pub fn are_resident(&self, set: &[Number]) -> bool {
        let resident = |number| self.entries.get(number).is_some_and(|e| e.is_resident);
        set.iter().all(resident)
    }

    /// Marks each of them as in use once more.
    pub fn pin(&mut self, set: &[Number]) {
        let used = self.next_use();
        for number in set {
            self.touch(*number, used, |entry| entry.pins += 1);
        }
    }

    /// Ends one use of each.
    pub fn unpin(&mut self, set: impl Iterator<Item = Number>) {
        let used = self.next_use();
        self.unpin_since(set, used);
    }

    /// Ends one use of each that was over at the time `used`.
    pub fn unpin_since(&mut self, set: impl Iterator<Item = Number>, used: u64) {
        for number in set {
            self.touch(number, used, |entry| entry.pins -= 1);
        }
    }

    fn touch(&mut self, number: Number, used: u64, change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        change(entry);
        entry.used = entry.used.max(used);
        if let Some(owner) = self.owners.get_mut(&entry.owner) {
            owner.used = owner.used.max(used);
        }
    }

    /// Objects that may leave, of those that have been idle for the longest time first: those of
    /// the session that has used none of its objects for longest, in the order of their own last
    /// uses.
    fn candidates(&self, set: &[Number]) -> Vec<Number> {
        let may_leave = |(number, entry): &(&Number, &Entry)| {
            entry.is_resident && entry.pins == 0 && !set.contains(number)
        };
        let mut all: Vec<_> = self.entries.iter().filter(may_leave).collect();
        let owner_used = |e: &Entry| self.owners.get(&e.owner).map(|owner| owner.used);
        all.sort_by_key(|(number, e)| (owner_used(e), e.used, **number));
        all.into_iter().map(|(number, _)| *number).collect()
    }

    /// When the session of the first object that may leave has used one last; `None`: none may.
    pub fn idle_since(&self, set: &[Number]) -> Option<u64> {
        let first = *self.candidates(set).first()?;
        self.owners.get(&self.entries[&first].owner).map(|o| o.used)
    }

    /// The objects that leave first, of `bytes` together or as many as may; none of `set`.
    pub fn victims(&self, set: &[Number], bytes: u64) -> Vec<Number> {
        if bytes == 0 {
            return Vec::new();
        }
        let mut freed = 0;
        let victims = self.candidates(set).into_iter().take_while(|number| {
            let enough = freed >= bytes;
            if !enough {
                freed += self.entries[number].bytes;
            }
            !enough
        });
        victims.collect()
    }

    /// Those of `victims` whose sessions have not used any object since `time`.
    pub fn idle_before(&self, mut victims: Vec<Number>, time: u64) -> Vec<Number> {
        victims.retain(|number| {
            let owner = self.entries.get(number).map(|entry| entry.owner);
            let owner = owner.and_then(|owner| self.owners.get(&owner));
            owner.is_some_and(|owner| owner.used <= time)
        });
        victims
    }

    /// Whether commands use objects outside of `set`.
    pub fn has_pins(&self, set: &[Number]) -> bool {
        let others = |(number, e): (&Number, &Entry)| e.pins > 0 && !set.contains(number);
        self.entries.iter().any(others)
    }

    fn missing(&self, set: &[Number]) -> u64 {
        let absent = |number: &&Number| self.entries.get(number).is_some_and(|e| !e.is_resident);
        let absent = set.iter().filter(absent);
        absent.map(|number| self.entries[number].bytes).sum()
    }

    /// Bytes that have to leave before `set` fits. `others`: bytes of other executors on the device.
    pub fn needed(&self, set: &[Number], others: u64) -> u64 {
        match self.missing(set) {
            0 => 0,
            missing => (self.resident + missing)
                .saturating_add(others)
                .saturating_sub(self.budget),
        }
    }

    /// Bytes on the device beyond the budget. `others`: bytes of other executors there.
    pub fn excess(&self, others: u64) -> u64 {
        self.resident
            .saturating_add(others)
            .saturating_sub(self.budget)
    }

    /// Counts what is missing of `set` as coming; one set at a time.
    pub fn expect(&mut self, set: &[Number]) {
        self.coming = self.missing(set);
    }

    /// Ends [`Books::expect`].
    pub fn expect_nothing(&mut self) {
        self.coming = 0;
    }

    /// An object is on its way to the host: its bytes count until [`Books::left`].
    pub fn leaves(&mut self, number: Number) {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.is_resident = false;
        }
    }

    /// An object has left, or, with `ok` false, has stayed.
    pub fn left(&mut self, number: Number, ok: bool) {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.is_resident = !ok;
            if ok {
                self.resident -= entry.bytes;
            }
        }
    }

    /// An object has come to the device.
    pub fn came(&mut self, number: Number) {
        if let Some(entry) = self.entries.get_mut(&number) {
            if !entry.is_resident {
                entry.is_resident = true;
                self.resident += entry.bytes;
                self.coming = self.coming.saturating_sub(entry.bytes);
            }
        }
    }

    /// Bytes on the device and bytes of all objects.
    pub fn bytes(&self) -> (u64, u64) {
        (self.resident, self.total)
    }

    /// Bytes on the device or on their way there, and of these, bytes that cannot leave.
    pub fn claimed(&self) -> (u64, u64) {
        (self.resident + self.coming, self.fixed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_excess_is_that_of_all_executors() {
        let mut books = Books::new(100, 400);
        books.resident = 70;
        assert_eq!((books.excess(30), books.excess(50)), (0, 20));
        assert_eq!(books.excess(u64::MAX), u64::MAX - 100);
    }

    #[test]
    fn objects_of_the_longest_idle_session_leave_first() {
        let mut books = Books::new(40, 1000);
        for (number, owner) in [(1, 7), (2, 8), (3, 7), (4, 8)] {
            assert!(books.add(number, owner, 10, 0));
        }
        books.pin(&[1]);
        books.unpin([1].into_iter());
        assert!(!books.add(5, 9, 15, 0));
        assert_eq!(books.needed(&[5], 0), 15);
        // Session 8 has been idle for longer, although object 3 has not been used since.
        assert_eq!(books.victims(&[5], 15), [2, 4]);
        let idle_since = books.idle_since(&[5]);
        books.pin(&[2]);
        assert_eq!(books.victims(&[5], 15), [3, 1]);
        assert!(books.idle_since(&[5]) > idle_since);
    }

    #[test]
    fn a_use_that_ended_earlier_does_not_delay_a_leave() {
        let mut books = Books::new(20, 1000);
        for number in [1, 2] {
            assert!(books.add(number, number, 10, 0));
        }
        books.pin(&[1]);
        let ended = books.last_use();
        books.pin(&[2]);
        books.unpin([2].into_iter());
        books.unpin_since([1].into_iter(), ended);
        assert_eq!(books.victims(&[], 20), [1, 2]);
    }

    #[test]
    fn objects_in_use_do_not_leave() {
        let mut books = Books::new(20, 1000);
        assert!(books.add(1, 1, 20, 0));
        assert!(!books.add(2, 2, 30, 0));
        books.pin(&[1]);
        assert!(books.victims(&[2], 30).is_empty());
        assert!(books.has_pins(&[2]) && !books.has_pins(&[1, 2]));
        books.unpin([1].into_iter());
        assert_eq!(books.victims(&[2], 30), [1]);
    }

    #[test]
    fn other_executors_take_of_the_budget() {
        let mut books = Books::new(20, 30);
        assert!(books.add(1, 1, 10, 5));
        assert!(!books.add(2, 1, 10, 5));
        assert_eq!(books.needed(&[2], 5), 5);
        assert_eq!(books.needed(&[1], 100), 0);
        assert!(books.reserve(10, 20));
        assert!(!books.reserve(1, 20));
        // Memory on its way to the device counts as taken.
        books.expect(&[2]);
        assert_eq!(books.claimed(), (20, 0));
        assert!(!books.add(3, 1, 1, 0));
        books.came(2);
        assert_eq!(books.claimed(), (20, 0));
    }

    #[test]
    fn no_more_than_the_total_is_reserved() {
        let mut books = Books::new(10, 30);
        assert!(books.reserve(30, 0));
        assert!(!books.reserve(1, 0));
        assert!(!books.reserve(u64::MAX, 0));
        books.unreserve(30);
        assert!(books.reserve(1, 0));
    }

    /// A generator of numbers below `n`, from a printed seed.
    struct Random(u64);

    impl Random {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (self.0 >> 33) % n
        }
    }

    /// The model: sets of numbers, counted anew each time.
    #[derive(Default)]
    struct Model {
        bytes: BTreeMap<Number, u64>,
        resident: BTreeSet<Number>,
        pinned: Vec<Vec<Number>>,
    }

    impl Model {
        fn resident_bytes(&self) -> u64 {
            self.resident.iter().map(|n| self.bytes[n]).sum()
        }

        fn is_pinned(&self, number: Number) -> bool {
            self.pinned.iter().any(|set| set.contains(&number))
        }
    }

    #[test]
    fn the_books_agree_with_a_model_and_keep_objects_in_use() {
        const BUDGET: u64 = 100;
        for seed in 0..200 {
            let mut random = Random(seed);
            let (mut books, mut model) = (Books::new(BUDGET, u64::MAX), Model::default());
            for step in 0..300 {
                let context = format!("seed {seed}, step {step}");
                match random.below(5) {
                    0 => {
                        let bytes = 1 + random.below(40);
                        let fits = model.resident_bytes() + bytes <= BUDGET;
                        let owner = random.below(4);
                        assert_eq!(books.add(step, owner, bytes, 0), fits, "{context}");
                        model.bytes.insert(step, bytes);
                        if fits {
                            model.resident.insert(step);
                        }
                    }
                    1 if !model.pinned.is_empty() => {
                        let at = random.below(model.pinned.len() as u64) as usize;
                        books.unpin(model.pinned.swap_remove(at).into_iter());
                    }
                    2 if !model.bytes.is_empty() => {
                        let at = random.below(model.bytes.len() as u64) as usize;
                        let number = *model.bytes.keys().nth(at).unwrap();
                        if !model.is_pinned(number) {
                            assert_eq!(
                                books.remove(number),
                                model.resident.remove(&number),
                                "{context}"
                            );
                            model.bytes.remove(&number);
                        }
                    }
                    _ => {
                        let all: Vec<_> = model.bytes.keys().copied().collect();
                        let set: BTreeSet<_> = (0..random.below(4))
                            .filter(|_| !all.is_empty())
                            .map(|_| all[random.below(all.len() as u64) as usize])
                            .collect();
                        let set: Vec<_> = set.into_iter().collect();
                        work(&mut books, &mut model, &set, &context);
                    }
                }
                assert_eq!(books.bytes().0, model.resident_bytes(), "{context}");
            }
        }
    }

    /// Makes a set resident in both, if what is in use allows it.
    fn work(books: &mut Books, model: &mut Model, set: &[Number], context: &str) {
        let is_resident = set.iter().all(|n| model.resident.contains(n));
        assert_eq!(books.are_resident(set), is_resident, "{context}");
        let others = |n: &Number| model.is_pinned(*n) && !set.contains(n);
        let has_pins = model.bytes.keys().any(others);
        assert_eq!(books.has_pins(set), has_pins, "{context}");
        let needed = books.needed(set, 0);
        let victims = books.victims(set, needed);
        let freed: u64 = victims.iter().map(|n| model.bytes[n]).sum();
        if freed < needed && has_pins {
            return;
        }
        for victim in victims {
            assert!(
                !model.is_pinned(victim) && !set.contains(&victim),
                "{context}"
            );
            assert!(model.resident.remove(&victim), "{context}: left twice");
            books.leaves(victim);
            books.left(victim, true);
        }
        for number in set {
            books.came(*number);
            model.resident.insert(*number);
        }
        let alone = model.resident.iter().all(|n| set.contains(n));
        let fits = model.resident_bytes() <= 100;
        assert!(is_resident || fits || alone, "{context}: over the budget");
        books.pin(set);
        model.pinned.push(set.to_vec());
        assert!(books.are_resident(set), "{context}");
    }
}
