//! The kernel's description of its own types (BTF): offsets of fields in its structures.
//!
//! Pure: reads bytes, touches nothing. The bytes are the kernel's, but every offset in them is
//! checked; invalid data is `None`, and the caller does without.

/// The needed kinds of types.
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const FUNC: u32 = 12;

/// Anonymous structures inside structures, at most so deep.
const DEEPEST: u32 = 4;

/// A parsed description.
pub struct Btf<'a> {
    types: Vec<Type<'a>>,
    strings: &'a [u8],
}

struct Type<'a> {
    name: u32,
    kind: u32,
    members: &'a [u8],
    bitfields: bool,
}

impl<'a> Btf<'a> {
    pub fn parse(bytes: &'a [u8]) -> Option<Btf<'a>> {
        const MAGIC: u32 = 0xeb9f;
        if word(bytes, 0)? & 0xffff != MAGIC {
            return None;
        }
        let part = |at: usize| -> Option<&'a [u8]> {
            let start = (word(bytes, 4)? as usize).checked_add(word(bytes, at)? as usize)?;
            bytes.get(start..start.checked_add(word(bytes, at + 4)? as usize)?)
        };
        let (mut rest, strings) = (part(8)?, part(16)?);
        let mut types = Vec::new();
        while !rest.is_empty() {
            let info = word(rest, 4)?;
            let (kind, count) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
            let len = extra(kind, count)?;
            let members = rest.get(12..12 + len)?;
            types.push(Type { name: word(rest, 0)?, kind, members, bitfields: info >> 31 == 1 });
            rest = &rest[12 + len..];
        }
        Some(Btf { types, strings })
    }

    /// The number of a function.
    pub fn function(&self, name: &str) -> Option<u32> {
        let found = self.types.iter().position(|own| own.kind == FUNC && self.is(own.name, name));
        found.map(|index| index as u32 + 1)
    }

    /// Bytes from the start of a structure to one of its fields.
    pub fn offset(&self, structure: &str, field: &str) -> Option<u32> {
        let named = |own: &&Type| own.kind == STRUCT && self.is(own.name, structure);
        let bits = self.field(self.types.iter().find(named)?, field, 0)?;
        bits.is_multiple_of(8).then_some(bits / 8)
    }

    fn field(&self, within: &Type, field: &str, depth: u32) -> Option<u32> {
        for member in within.members.chunks_exact(12) {
            let bits = word(member, 8)? & if within.bitfields { 0xff_ffff } else { u32::MAX };
            if self.is(word(member, 0)?, field) {
                return Some(bits);
            }
            let inner = self.types.get((word(member, 4)? as usize).wrapping_sub(1));
            let inner = inner.filter(|inner| [STRUCT, UNION].contains(&inner.kind));
            let nameless = self.is(word(member, 0)?, "") && depth < DEEPEST;
            if let Some(inner) = inner.filter(|_| nameless)
                && let Some(found) = self.field(inner, field, depth + 1)
            {
                return bits.checked_add(found);
            }
        }
        None
    }

    fn is(&self, offset: u32, name: &str) -> bool {
        let rest = self.strings.get(offset as usize..).unwrap_or(&[]);
        rest.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
    }
}

/// Bytes that follow a type's three words.
fn extra(kind: u32, count: usize) -> Option<usize> {
    Some(match kind {
        // integers, variables, tags of declarations
        1 | 14 | 17 => 4,
        3 => 12,
        STRUCT | UNION | 15 | 19 => 12 * count,
        6 | 13 => 8 * count,
        // pointers, forward declarations, typedefs, qualifiers, functions, floats, tags of types
        2 | 7..=12 | 16 | 18 => 0,
        _ => return None,
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct outer { u64 first; struct { u64 hidden; }; }` and a function `go`.
    fn sample() -> Vec<u8> {
        let strings = b"\0outer\0first\0hidden\0go\0";
        let info = |kind: u32, count: u32| kind << 24 | count;
        let types = [
            [0, info(STRUCT, 1), 8].as_slice(),
            &[13, 0, 0],
            &[1, info(STRUCT, 2), 16],
            &[7, 0, 0],
            &[0, 1, 64],
            &[20, info(FUNC, 0), 0],
        ]
        .concat();
        let length = types.len() as u32 * 4;
        let head = [0x1_eb9f, 24, 0, length, length, strings.len() as u32];
        let words = head.iter().chain(&types).flat_map(|word| word.to_ne_bytes());
        words.chain(*strings).collect()
    }

    #[test]
    fn fields_of_nameless_members_are_found() {
        let bytes = sample();
        let btf = Btf::parse(&bytes).unwrap();
        assert_eq!(btf.offset("outer", "first"), Some(0));
        assert_eq!(btf.offset("outer", "hidden"), Some(8));
        assert_eq!(btf.offset("outer", "missing"), None);
        assert_eq!((btf.function("go"), btf.function("outer")), (Some(3), None));
    }

    #[test]
    fn a_cut_description_is_refused() {
        let bytes = sample();
        for length in 0..bytes.len() {
            assert!(Btf::parse(&bytes[..length]).is_none(), "{length}");
        }
    }
}
