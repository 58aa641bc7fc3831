//! The kinds of sections, and the architecture.

use std::fmt;

/// A kind of section. The numbers are part of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum SectionKind {
    /// The origin of the image: program, time and parent.
    Meta = 1,
    /// Processes and threads.
    Processes = 2,
    /// Kernel objects that processes share: descriptors, pipes, sockets, timers.
    Objects = 3,
    /// Mappings, and where the contents of their pages are.
    Memory = 4,
    /// The files that belong to the state.
    Files = 5,
}

impl SectionKind {
    /// Every kind, in the order of the file. An image has each of them exactly once.
    pub const ALL: [Self; 5] =
        [Self::Meta, Self::Processes, Self::Objects, Self::Memory, Self::Files];

    /// The version of this kind that this program writes.
    pub const fn version(self) -> u32 {
        match self {
            Self::Memory => 1,
            Self::Meta => 2,
            Self::Objects | Self::Files => 3,
            Self::Processes => 4,
        }
    }

    /// The oldest version that this program reads. In version 2 of files, names are UTF-8; version
    /// 3 has the same form with names of any bytes.
    pub const fn oldest(self) -> u32 {
        match self {
            Self::Files => 2,
            kind => kind.version(),
        }
    }

    /// All versions at once: images of another format cannot be read.
    pub fn form() -> String {
        Self::ALL.map(|kind| kind.version().to_string()).join(".")
    }

    /// The position of this kind in [`SectionKind::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize - 1
    }
}

impl From<SectionKind> for u32 {
    fn from(kind: SectionKind) -> u32 {
        kind as u32
    }
}

impl TryFrom<u32> for SectionKind {
    /// The number that is no kind.
    type Error = u32;

    fn try_from(number: u32) -> Result<Self, u32> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number).ok_or(number)
    }
}

impl fmt::Display for SectionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Meta => "meta",
            Self::Processes => "processes",
            Self::Objects => "objects",
            Self::Memory => "memory",
            Self::Files => "files",
        })
    }
}

/// A machine architecture, by its ELF machine number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Arch {
    X86_64 = 62,
}

impl TryFrom<u16> for Arch {
    /// The number that is no architecture known here.
    type Error = u16;

    fn try_from(number: u16) -> Result<Self, u16> {
        if number == Self::X86_64 as u16 { Ok(Self::X86_64) } else { Err(number) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_positions_agree() {
        for (position, kind) in SectionKind::ALL.into_iter().enumerate() {
            assert_eq!(kind.index(), position);
            assert_eq!(SectionKind::try_from(u32::from(kind)), Ok(kind));
        }
        assert_eq!(SectionKind::try_from(0), Err(0));
        assert_eq!(SectionKind::try_from(6), Err(6));
    }
}
