//! FlatBuffers writer that appends only: a table, then the objects that it refers to.
//!
//! Every field takes eight bytes, which aligns each type.

/// A field of a table.
#[derive(Clone, Copy, Debug)]
pub enum Slot {
    /// The default value; the field is not written.
    Absent,
    Byte(u8),
    Short(i16),
    Int(i32),
    Long(i64),
    /// A reference, filled in when its target is written.
    Ref,
}

/// A buffer under construction.
#[derive(Default)]
pub struct Flat(Vec<u8>);

impl Flat {
    /// Reserves the reference to the root table and returns its position; must be called first.
    pub fn root(&mut self) -> usize {
        self.0.extend([0; 8]);
        0
    }

    /// Writes a table, the target of the reference at `at`; returns the positions of the table's references.
    pub fn table(&mut self, at: usize, slots: &[Slot]) -> Vec<usize> {
        self.align();
        // The vtable: its size, the size of the table, and the offset of each field in the table.
        let vtable = self.0.len();
        let size = 8 + 8 * slots.len();
        self.short(4 + 2 * slots.len());
        self.short(size);
        for (index, slot) in slots.iter().enumerate() {
            self.short(if matches!(slot, Slot::Absent) { 0 } else { 8 + 8 * index });
        }
        self.align();
        let table = self.0.len();
        self.refer(at);
        self.0.extend(((table - vtable) as i32).to_le_bytes());
        self.0.extend([0; 4]);
        let mut refs = Vec::new();
        for slot in slots {
            let place = self.0.len();
            match slot {
                Slot::Absent => {}
                Slot::Byte(value) => self.0.push(*value),
                Slot::Short(value) => self.0.extend(value.to_le_bytes()),
                Slot::Int(value) => self.0.extend(value.to_le_bytes()),
                Slot::Long(value) => self.0.extend(value.to_le_bytes()),
                Slot::Ref => refs.push(place),
            }
            self.0.resize(place + 8, 0);
        }
        refs
    }

    /// Writes a vector of `count` references; returns their positions.
    pub fn refs(&mut self, at: usize, count: usize) -> Vec<usize> {
        self.vector(at, count);
        let places = (0..count).map(|index| self.0.len() + 4 * index).collect();
        self.0.resize(self.0.len() + 4 * count, 0);
        places
    }

    /// Writes a vector of structs of two 64-bit integers.
    pub fn pairs(&mut self, at: usize, pairs: &[(i64, i64)]) {
        self.vector(at, pairs.len());
        for (first, second) in pairs {
            self.0.extend(first.to_le_bytes());
            self.0.extend(second.to_le_bytes());
        }
    }

    pub fn text(&mut self, at: usize, text: &str) {
        self.vector(at, text.len());
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Writes the length of a vector, so that the items that follow are aligned to eight bytes.
    fn vector(&mut self, at: usize, count: usize) {
        self.align();
        self.0.extend([0; 4]);
        self.refer(at);
        self.0.extend((count as u32).to_le_bytes());
    }

    /// Points the reference at `at` to the next byte to be written.
    fn refer(&mut self, at: usize) {
        let distance = (self.0.len() - at) as u32;
        self.0[at..at + 4].copy_from_slice(&distance.to_le_bytes());
    }

    fn align(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
    }

    fn short(&mut self, value: usize) {
        self.0.extend((value as u16).to_le_bytes());
    }
}
