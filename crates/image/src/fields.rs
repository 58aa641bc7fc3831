//! Little-endian fields of a fixed-size record, taken one after the other.

/// A cursor over a record whose size the caller has already checked.
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn of(record: &'a [u8]) -> Self {
        Self(record)
    }

    /// # Panics
    ///
    /// When the record ends before the field: records have a constant size, so that is a mistake
    /// in this crate and not in the input.
    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_first_chunk().expect("the record holds all its fields");
        self.0 = rest;
        *field
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.bytes())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }
}

pub(crate) fn all_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
