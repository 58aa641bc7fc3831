//! The first bytes of a connection: is it TLS, and which name does it ask for? Pure bytes.
//!
//!   records (22) ─► handshake: ClientHello ─► extensions ─► server_name, encrypted hello
//!
//! Everything is bounded, and nothing is guessed: data that begins as TLS but is not is refused.
//! rustls reads a hello too (`Acceptor`), but does not report whether a name is encrypted.

use stasis_policy::pattern::normal_name;

/// Maximum bytes read. Hellos with post-quantum keys have 2 KiB.
pub const LONGEST: usize = 32 << 10;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const LARGEST_RECORD: usize = 16 << 10;
const SERVER_NAME: u16 = 0;
const ENCRYPTED_HELLO: [u16; 2] = [0xfe0d, 0xffce];

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FirstBytes {
    /// There is not enough to tell.
    Incomplete,
    /// Another protocol.
    Plain,
    /// TLS, with the requested name.
    Tls(Option<String>),
    /// TLS whose name is encrypted.
    Hidden,
    Bad,
}

pub fn look(bytes: &[u8]) -> FirstBytes {
    match bytes {
        [] => return FirstBytes::Incomplete,
        [HANDSHAKE] => return FirstBytes::Incomplete,
        [HANDSHAKE, 3, ..] => {}
        [HANDSHAKE, ..] | [_, ..] => return FirstBytes::Plain,
    }
    match handshake(bytes) {
        Ok(Some(hello)) => client_hello(&hello).unwrap_or(FirstBytes::Bad),
        Ok(None) if bytes.len() >= LONGEST => FirstBytes::Bad,
        Ok(None) => FirstBytes::Incomplete,
        Err(()) => FirstBytes::Bad,
    }
}

/// The first handshake message, put together from its records; none, if it is not whole yet.
fn handshake(mut bytes: &[u8]) -> Result<Option<Vec<u8>>, ()> {
    let mut message = Vec::new();
    loop {
        if let [kind, high, middle, low, ..] = message[..] {
            let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
            if kind != CLIENT_HELLO || length > LONGEST {
                return Err(());
            }
            if message.len() >= 4 + length {
                return Ok(Some(message[4..4 + length].to_vec()));
            }
        }
        let [kind, major, _, high, low, rest @ ..] = bytes else { return Ok(None) };
        let length = usize::from(*high) << 8 | usize::from(*low);
        if *kind != HANDSHAKE || *major != 3 || length == 0 || length > LARGEST_RECORD {
            return Err(());
        }
        let here = rest.len().min(length);
        message.extend_from_slice(&rest[..here]);
        bytes = &rest[here..];
    }
}

/// Reads fields from the beginning of bytes.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<usize> {
        self.take(1).map(|byte| usize::from(byte[0]))
    }

    fn word(&mut self) -> Option<u16> {
        self.take(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
    }

    /// A field with its length before it.
    fn long(&mut self) -> Option<&'a [u8]> {
        let length = self.word()?;
        self.take(usize::from(length))
    }

    fn short(&mut self) -> Option<&'a [u8]> {
        let length = self.byte()?;
        self.take(length)
    }
}

fn client_hello(hello: &[u8]) -> Option<FirstBytes> {
    const VERSION_AND_RANDOM: usize = 34;
    let mut fields = Fields(hello);
    fields.take(VERSION_AND_RANDOM)?;
    let (_session, _ciphers, _compressions) = (fields.short()?, fields.long()?, fields.short()?);
    if fields.0.is_empty() {
        return Some(FirstBytes::Tls(None));
    }
    let mut extensions = Fields(fields.long()?);
    if !fields.0.is_empty() {
        return None;
    }
    let (mut name, mut hidden) = (None, false);
    while !extensions.0.is_empty() {
        let (kind, body) = (extensions.word()?, extensions.long()?);
        hidden |= ENCRYPTED_HELLO.contains(&kind);
        if kind == SERVER_NAME {
            let second = name.replace(server_name(body)?);
            if second.is_some() {
                return None;
            }
        }
    }
    Some(if hidden { FirstBytes::Hidden } else { FirstBytes::Tls(name) })
}

/// The one name in the list that a hello has.
fn server_name(body: &[u8]) -> Option<String> {
    const HOST_NAME: usize = 0;
    let mut fields = Fields(body);
    let mut list = Fields(fields.long()?);
    let (kind, name) = (list.byte()?, list.long()?);
    let one = kind == HOST_NAME && list.0.is_empty() && fields.0.is_empty();
    std::str::from_utf8(name).ok().filter(|_| one).and_then(normal_name)
}

/// Sample hellos, and the parser of any bytes, for tests and fuzzing.
pub mod fuzzing {
    use super::*;

    /// A hello with these extensions, in records of at most `piece` bytes.
    pub fn hello(extensions: &[(u16, Vec<u8>)], piece: usize) -> Vec<u8> {
        let long = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
        let each =
            extensions.iter().map(|(kind, body)| [&kind.to_be_bytes()[..], &long(body)].concat());
        let all: Vec<u8> = each.flatten().collect();
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0x13, 1, 1, 0]);
        body.extend(long(&all));
        let mut message = vec![CLIENT_HELLO, 0];
        message.extend(long(&body));
        let record = |piece: &[u8]| [&[HANDSHAKE, 3, 1][..], &long(piece)].concat();
        message.chunks(piece).flat_map(record).collect()
    }

    pub fn named(name: &str) -> (u16, Vec<u8>) {
        let long = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
        (SERVER_NAME, long(&[&[0][..], &long(name.as_bytes())].concat()))
    }

    pub fn seeds() -> Vec<Vec<u8>> {
        vec![
            hello(&[named("a.example"), (43, vec![2, 3, 4])], 1 << 14),
            hello(&[named("a.example")], 5),
            hello(&[(0xfe0d, vec![0; 9]), named("a.example")], 1 << 14),
            hello(&[], 1 << 14),
            b"GET / HTTP/1.1\r\n".to_vec(),
        ]
    }

    /// More bytes never change an earlier answer, and a name is always one that rules can match.
    pub fn run(bytes: &[u8]) {
        let whole = look(bytes);
        if let FirstBytes::Tls(Some(name)) = &whole {
            assert_eq!(normal_name(name).as_ref(), Some(name));
        }
        let mut said = FirstBytes::Incomplete;
        for end in (0..=bytes.len().min(LONGEST)).step_by(1 + bytes.len() / 64) {
            let now = look(&bytes[..end]);
            assert!(said == FirstBytes::Incomplete || said == now, "{said:?} became {now:?}");
            said = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fuzzing::{hello, named};
    use super::*;
    use proptest::prelude::*;

    fn tls(name: &str) -> FirstBytes {
        FirstBytes::Tls(Some(name.to_owned()))
    }

    #[test]
    fn names_are_found_in_whole_and_split_hellos() {
        for piece in [1, 5, 64, 1 << 14] {
            let bytes = hello(&[(10, vec![0, 2, 0, 29]), named("A.Example")], piece);
            assert_eq!(look(&bytes), tls("a.example"), "{piece}");
            assert_eq!(look(&bytes[..bytes.len() - 1]), FirstBytes::Incomplete);
        }
        assert_eq!(look(&hello(&[], 999)), FirstBytes::Tls(None));
        assert_eq!(look(b"SSH-2.0-"), FirstBytes::Plain);
    }

    #[test]
    fn hidden_and_broken_names_are_told_apart() {
        let ech = (0xfe0d, vec![0; 20]);
        assert_eq!(look(&hello(&[named("a.example"), ech], 999)), FirstBytes::Hidden);
        for bad in [
            hello(&[named("a.example"), named("b.example")], 999),
            hello(&[named("10.0.0.1")], 999),
            hello(&[named("a b")], 999),
            hello(&[(0, vec![0, 9, 0])], 999),
            [&[HANDSHAKE, 3, 1, 0, 0][..], &hello(&[], 999)].concat(),
            [&[HANDSHAKE, 3, 1, 0, 4][..], &[2, 0, 0, 0]].concat(),
            [&[HANDSHAKE, 3, 1, 0, 1, 1][..], &[23, 3, 1, 0, 1, 0]].concat(),
        ] {
            assert_eq!(look(&bad), FirstBytes::Bad, "{bad:?}");
        }
    }

    #[test]
    fn a_hello_without_an_end_is_refused() {
        let mut endless = vec![HANDSHAKE, 3, 1, 0x40, 0, 1, 0, 0x7f, 0xff];
        endless.resize(LONGEST, 0);
        endless[5 + (16 << 10)..][..5].copy_from_slice(&[HANDSHAKE, 3, 1, 0x40, 0]);
        assert_eq!(look(&endless[..1000]), FirstBytes::Incomplete);
        assert_eq!(look(&endless), FirstBytes::Bad);
    }

    proptest! {
        #[test]
        fn any_bytes_are_looked_at(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            fuzzing::run(&bytes);
            fuzzing::run(&[&[HANDSHAKE, 3, 1][..], &bytes].concat());
        }

        #[test]
        fn damaged_hellos_too(at in 0usize..100, value: u8, piece in 1usize..90) {
            let mut bytes = hello(&[(16, vec![1; 9]), named("a.example")], piece);
            let at = at % bytes.len();
            bytes[at] = value;
            fuzzing::run(&bytes);
        }
    }
}
