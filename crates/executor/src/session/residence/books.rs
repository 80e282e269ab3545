//! The books of residence: which objects are on the device, who uses them, and which leave next.
//! No driver, no I/O.

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
    /// Tick of its last use.
    used: u64,
}

/// A session with objects.
#[derive(Debug, Default)]
struct Owner {
    objects: usize,
    /// Tick of its last use of an object.
    used: u64,
}

/// The way to make a working set resident.
#[derive(Debug, PartialEq, Eq)]
pub enum Plan {
    /// These leave, then the rest of the set fits.
    Evict(Vec<Number>),
    /// Objects in use would have to leave.
    Wait,
}

/// All objects that may leave the device.
#[derive(Debug)]
pub struct Books {
    entries: BTreeMap<Number, Entry>,
    owners: HashMap<u64, Owner>,
    tick: u64,
    /// Bytes that objects should take on the device together.
    budget: u64,
    /// Bytes on the device, those of objects that cannot leave included.
    resident: u64,
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
            tick: 0,
            budget,
            resident: 0,
            total: 0,
            total_max,
        }
    }

    /// Reserves memory, of the host or the device, for an object's lifetime; false: over the limit.
    pub fn reserve(&mut self, bytes: u64) -> bool {
        let total = self.total.checked_add(bytes);
        let fits = total.filter(|total| *total <= self.total_max);
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
    }

    /// Ends [`Books::fix`].
    pub fn unfix(&mut self, bytes: u64) {
        self.resident -= bytes;
    }

    /// Adds an object; returns whether it may be on the device from the start.
    pub fn add(&mut self, number: Number, owner: u64, bytes: u64) -> bool {
        let fits = self.free() >= bytes;
        if fits {
            self.resident += bytes;
        }
        self.tick += 1;
        let owners = self.owners.entry(owner).or_default();
        owners.objects += 1;
        owners.used = self.tick;
        let entry = Entry {
            bytes,
            owner,
            is_resident: fits,
            pins: 0,
            used: self.tick,
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

    fn free(&self) -> u64 {
        self.budget.saturating_sub(self.resident)
    }

    /// Whether all of them are on the device.
    pub fn are_resident(&self, set: &[Number]) -> bool {
        let resident = |number| self.entries.get(number).is_some_and(|e| e.is_resident);
        set.iter().all(resident)
    }

    /// Marks each of them as in use once more.
    pub fn pin(&mut self, set: &[Number]) {
        self.tick += 1;
        for number in set {
            self.touch(*number, |entry| entry.pins += 1);
        }
    }

    /// Ends one use of each.
    pub fn unpin(&mut self, set: impl Iterator<Item = Number>) {
        self.tick += 1;
        for number in set {
            self.touch(number, |entry| entry.pins -= 1);
        }
    }

    fn touch(&mut self, number: Number, change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        change(entry);
        entry.used = self.tick;
        if let Some(owner) = self.owners.get_mut(&entry.owner) {
            owner.used = self.tick;
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

    /// The first candidates that have `bytes` together, or all of them; and their bytes.
    fn victims(&self, set: &[Number], bytes: u64) -> (Vec<Number>, u64) {
        if bytes == 0 {
            return (Vec::new(), 0);
        }
        let mut freed = 0;
        let victims = self.candidates(set).into_iter().take_while(|number| {
            let enough = freed >= bytes;
            if !enough {
                freed += self.entries[number].bytes;
            }
            !enough
        });
        let victims = victims.collect();
        (victims, freed)
    }

    /// How to make `set` resident. A set that exceeds the budget may do so alone.
    pub fn plan(&self, set: &[Number]) -> Plan {
        let absent = |number: &&Number| self.entries.get(number).is_some_and(|e| !e.is_resident);
        let missing: u64 = set
            .iter()
            .filter(absent)
            .map(|number| self.entries[number].bytes)
            .sum();
        let needed = match missing {
            0 => 0,
            _ => (self.resident + missing).saturating_sub(self.budget),
        };
        let (victims, freed) = self.victims(set, needed);
        let others = |(number, e): (&Number, &Entry)| e.pins > 0 && !set.contains(number);
        if freed < needed && self.entries.iter().any(others) {
            return Plan::Wait;
        }
        Plan::Evict(victims)
    }

    /// Objects of at least `bytes` that leave although the budget holds, because the driver has
    /// refused memory; those of `set` stay.
    pub fn extra(&self, set: &[Number], bytes: u64) -> Vec<Number> {
        self.victims(set, bytes).0
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
            }
        }
    }

    /// Bytes on the device and bytes of all objects.
    pub fn bytes(&self) -> (u64, u64) {
        (self.resident, self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn test_objects_of_the_longest_idle_session_leave_first() {
        let mut books = Books::new(40, 1000);
        for (number, owner) in [(1, 7), (2, 8), (3, 7), (4, 8)] {
            assert!(books.add(number, owner, 10));
        }
        books.pin(&[1]);
        books.unpin([1].into_iter());
        assert!(!books.add(5, 9, 15));
        // Session 8 has been idle for longer, although object 3 has not been used since.
        assert_eq!(books.plan(&[5]), Plan::Evict(vec![2, 4]));
        books.pin(&[2]);
        assert_eq!(books.plan(&[5]), Plan::Evict(vec![3, 1]));
    }

    #[test]
    fn test_objects_in_use_are_waited_for_and_a_large_set_runs_alone() {
        let mut books = Books::new(20, 1000);
        assert!(books.add(1, 1, 20));
        assert!(!books.add(2, 2, 30));
        books.pin(&[1]);
        assert_eq!(books.plan(&[2]), Plan::Wait);
        assert_eq!(books.plan(&[1, 2]), Plan::Evict(vec![]));
        books.unpin([1].into_iter());
        assert_eq!(books.plan(&[2]), Plan::Evict(vec![1]));
    }

    #[test]
    fn test_no_more_than_the_total_is_reserved() {
        let mut books = Books::new(10, 30);
        assert!(books.reserve(30));
        assert!(!books.reserve(1));
        assert!(!books.reserve(u64::MAX));
        books.unreserve(30);
        assert!(books.reserve(1));
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
    fn test_the_books_agree_with_a_model_and_keep_objects_in_use() {
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
                        assert_eq!(books.add(step, random.below(4), bytes), fits, "{context}");
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

    /// Makes a set resident in both, if the plan allows it.
    fn work(books: &mut Books, model: &mut Model, set: &[Number], context: &str) {
        let is_resident = set.iter().all(|n| model.resident.contains(n));
        assert_eq!(books.are_resident(set), is_resident, "{context}");
        let Plan::Evict(victims) = books.plan(set) else {
            let others = |n: &Number| model.is_pinned(*n) && !set.contains(n);
            assert!(
                model.bytes.keys().any(others),
                "{context}: waits for nobody"
            );
            return;
        };
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
