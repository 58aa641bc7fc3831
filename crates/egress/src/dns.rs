//! Questions and answers of the DNS, as far as machines with a policy have any. Pure bytes.
//!
//!   machine's question ─► Question ─► our question to a resolver ─► its answer ─► our answer
//!
//! Messages of a machine or a resolver are never passed on: both get messages of ours. Machines
//! have IPv4 only, so they get addresses of that kind only; every other question about an existing
//! name has an empty answer. smoltcp reads the messages.

use smoltcp::wire::{DnsFlags, DnsOpcode, DnsPacket, DnsQueryType, DnsQuestion, DnsRcode};
use smoltcp::wire::{DnsRecord, DnsRecordData};
use stasis_policy::pattern::normal_name;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

const HEADER: usize = 12;
const CLASS_INTERNET: u16 = 1;
/// Addresses in one answer.
const MOST_ADDRESSES: usize = 16;
/// Maximum records of an answer that are read, and length of a chain of aliases.
const MOST_RECORDS: usize = 64;
const MOST_ALIASES: usize = 16;
/// Maximum cache time of an address, so that the host sees repeated resolutions.
const LONGEST_TTL: u32 = 300;

/// A question of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub id: u16,
    /// Lower case, without a final dot.
    pub name: String,
    /// Whether it requests addresses of machines' kind.
    pub is_address: bool,
    /// The question as written, which the answer repeats.
    written: Vec<u8>,
}

/// The answer to a question.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AnswerCode {
    #[default]
    Found,
    Failed,
    NoSuchName,
}

/// The kind of addresses that a resolver is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressKind {
    V4,
    V6,
}

impl AddressKind {
    fn query(self) -> DnsQueryType {
        match self {
            AddressKind::V4 => DnsQueryType::A,
            AddressKind::V6 => DnsQueryType::Aaaa,
        }
    }
}

/// A resolver's answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResolvedAnswer {
    pub code: AnswerCode,
    pub addresses: Vec<Ipv4Addr>,
    /// Those of the other kind, which machines do not get as they are.
    pub six: Vec<Ipv6Addr>,
    pub ttl: Duration,
}

/// The id of a question: random, so that others cannot guess it.
pub fn random_id() -> u16 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish() as u16
}

/// A question, if the bytes are one about a name that connections can be made to.
pub fn question(bytes: &[u8]) -> Option<Question> {
    let packet = DnsPacket::new_checked(bytes).ok()?;
    let asks = !packet.flags().contains(DnsFlags::RESPONSE)
        && packet.opcode() == DnsOpcode::Query
        && packet.question_count() == 1;
    let (rest, asked) = DnsQuestion::parse(packet.payload()).ok()?;
    let written = &packet.payload()[..packet.payload().len() - rest.len()];
    // no pointer: there is nothing earlier to point at
    let whole = asked.name.last() == Some(&0);
    let name = name_of(&packet, asked.name).filter(|_| asks && whole)?;
    Some(Question {
        id: packet.transaction_id(),
        name,
        is_address: asked.type_ == DnsQueryType::A,
        written: written.to_vec(),
    })
}

fn name_of(packet: &DnsPacket<&[u8]>, bytes: &[u8]) -> Option<String> {
    let mut name = String::new();
    for label in packet.parse_name(bytes) {
        let label = std::str::from_utf8(label.ok()?).ok()?;
        if label.contains('.') || name.len() + label.len() > 255 {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        name.push_str(label);
    }
    normal_name(&name)
}

/// A question to a resolver: for addresses of a name.
pub fn ask(id: u16, name: &str, kind: AddressKind) -> Vec<u8> {
    const RECURSION_DESIRED: u16 = 1 << 8;
    let mut bytes = header(id, RECURSION_DESIRED, 0);
    for label in name.split('.') {
        bytes.push(label.len() as u8);
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes.extend(u16::from(kind.query()).to_be_bytes());
    bytes.extend(CLASS_INTERNET.to_be_bytes());
    bytes
}

fn header(id: u16, flags: u16, answers: u16) -> Vec<u8> {
    let words = [id, flags, 1, answers, 0, 0];
    words.into_iter().flat_map(u16::to_be_bytes).collect()
}

/// A resolver's answer to the question with this id about this name; none, if it is not.
pub fn answer(bytes: &[u8], id: u16, name: &str, kind: AddressKind) -> Option<ResolvedAnswer> {
    let packet = DnsPacket::new_checked(bytes).ok()?;
    let (mut rest, asked) = DnsQuestion::parse(packet.payload()).ok()?;
    let ours = packet.flags().contains(DnsFlags::RESPONSE)
        && packet.transaction_id() == id
        && packet.question_count() == 1
        && asked.type_ == kind.query()
        && name_of(&packet, asked.name).as_deref() == Some(name);
    if !ours {
        return None;
    }
    let code = match packet.rcode() {
        DnsRcode::NoError => AnswerCode::Found,
        DnsRcode::NXDomain => AnswerCode::NoSuchName,
        _ => AnswerCode::Failed,
    };
    let mut records = Vec::new();
    for _ in 0..usize::from(packet.answer_record_count()).min(MOST_RECORDS) {
        // a truncated answer ends here, with its records so far
        let Ok((next, record)) = DnsRecord::parse(rest) else { break };
        rest = next;
        records.extend(name_of(&packet, record.name).map(|name| (name, record)));
    }
    Some(ResolvedAnswer { code, ..follow(&packet, &records, name, kind) })
}

/// The addresses at the end of the aliases of a name, and how long all of that holds.
fn follow(
    packet: &DnsPacket<&[u8]>,
    records: &[(String, DnsRecord<'_>)],
    name: &str,
    kind: AddressKind,
) -> ResolvedAnswer {
    let (mut name, mut ttl) = (name.to_owned(), LONGEST_TTL);
    for _ in 0..=MOST_ALIASES {
        let own = || records.iter().filter(|(of, _)| *of == name).map(|(_, record)| record);
        let mut found = ResolvedAnswer::default();
        for record in own() {
            let is_new = match (&record.data, kind) {
                (DnsRecordData::A(ip), AddressKind::V4) => add(&mut found.addresses, *ip),
                (data, AddressKind::V6) => six_of(data).is_some_and(|ip| add(&mut found.six, ip)),
                _ => false,
            };
            if is_new {
                ttl = ttl.min(record.ttl);
            }
        }
        if !found.addresses.is_empty() || !found.six.is_empty() {
            return ResolvedAnswer { ttl: Duration::from_secs(ttl.into()), ..found };
        }
        let alias = own().find_map(|record| match record.data {
            DnsRecordData::Cname(to) => Some((name_of(packet, to)?, record.ttl)),
            _ => None,
        });
        let Some((next, its)) = alias else { break };
        (name, ttl) = (next, ttl.min(its));
    }
    ResolvedAnswer::default()
}

fn add<A: PartialEq>(all: &mut Vec<A>, one: A) -> bool {
    let is_new = all.len() < MOST_ADDRESSES && !all.contains(&one);
    if is_new {
        all.push(one);
    }
    is_new
}

fn six_of(data: &DnsRecordData<'_>) -> Option<Ipv6Addr> {
    match data {
        DnsRecordData::Other(DnsQueryType::Aaaa, bytes) => {
            <[u8; 16]>::try_from(*bytes).ok().map(Ipv6Addr::from)
        }
        _ => None,
    }
}

impl Question {
    /// Our answer to the machine.
    pub fn answered(&self, answer: &ResolvedAnswer) -> Vec<u8> {
        /// A response, with recursion desired and available.
        const ANSWERED: u16 = 0x8180;
        /// The name of the question, as a pointer to it.
        const NAME: u16 = 0xc000 | HEADER as u16;
        let code = match answer.code {
            AnswerCode::Found => DnsRcode::NoError,
            AnswerCode::Failed => DnsRcode::ServFail,
            AnswerCode::NoSuchName => DnsRcode::NXDomain,
        };
        let flags = ANSWERED | u16::from(u8::from(code));
        let mut bytes = header(self.id, flags, answer.addresses.len() as u16);
        bytes.extend(&self.written);
        for ip in &answer.addresses {
            bytes.extend(NAME.to_be_bytes());
            bytes.extend(u16::from(DnsQueryType::A).to_be_bytes());
            bytes.extend(CLASS_INTERNET.to_be_bytes());
            bytes.extend((answer.ttl.as_secs() as u32).to_be_bytes());
            bytes.extend(4u16.to_be_bytes());
            bytes.extend(ip.octets());
        }
        bytes
    }

    /// An answer without addresses.
    pub fn empty(&self, code: AnswerCode) -> Vec<u8> {
        self.answered(&ResolvedAnswer { code, ..ResolvedAnswer::default() })
    }
}

/// Messages to begin with, and any bytes read, for tests and fuzzing.
pub mod fuzzing {
    use super::*;

    pub fn seeds() -> Vec<Vec<u8>> {
        let asked = ask(7, "a.example", AddressKind::V4);
        let question = question(&asked).expect("a question");
        let addresses = vec![Ipv4Addr::new(203, 0, 113, 1), Ipv4Addr::LOCALHOST];
        let ttl = Duration::from_secs(60);
        let found = ResolvedAnswer { addresses, ttl, ..ResolvedAnswer::default() };
        let mut alias = header(7, 0x8180, 2);
        alias.extend(&question.written);
        alias.extend([0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 9, 0, 4, 1, b'b', 0xc0, 14]);
        alias.extend([1, b'b', 0xc0, 14, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 203, 0, 113, 2]);
        let mut six = header(7, 0x8180, 1);
        six.extend(&ask(7, "a.example", AddressKind::V6)[HEADER..]);
        six.extend([0xc0, 12, 0, 28, 0, 1, 0, 0, 0, 30, 0, 16]);
        six.extend(Ipv6Addr::LOCALHOST.octets());
        let none = question.empty(AnswerCode::NoSuchName);
        vec![asked, question.answered(&found), none, six, alias]
    }

    pub fn run(bytes: &[u8]) {
        if let Some(question) = question(bytes) {
            assert_eq!(normal_name(&question.name).as_ref(), Some(&question.name));
            let answered = question.empty(AnswerCode::Failed);
            assert!(answered.len() <= HEADER + 255 + 5, "{}", answered.len());
        }
        for kind in [AddressKind::V4, AddressKind::V6] {
            let Some(found) = answer(bytes, 7, "a.example", kind) else { continue };
            assert!(found.addresses.len().max(found.six.len()) <= MOST_ADDRESSES);
            assert!(found.ttl <= Duration::from_secs(LONGEST_TTL.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn questions_and_answers_are_read_as_written() {
        let mut asked = ask(7, "a.example", AddressKind::V4);
        asked[HEADER + 1] = b'A';
        let question = question(&asked).expect("a question");
        assert_eq!((question.name.as_str(), question.is_address), ("a.example", true));
        let ip = Ipv4Addr::new(203, 0, 113, 1);
        let ttl = Duration::from_secs(60);
        let found = ResolvedAnswer { addresses: vec![ip], ttl, ..ResolvedAnswer::default() };
        let answer = |bytes: &[u8], id, name| answer(bytes, id, name, AddressKind::V4);
        let bytes = question.answered(&found);
        assert_eq!(bytes[HEADER..HEADER + 2], [1, b'A'], "the question is repeated as it was");
        assert_eq!(answer(&bytes, 7, "a.example"), Some(found));
        assert_eq!(answer(&bytes, 8, "a.example"), None, "another question's");
        assert_eq!(answer(&bytes, 7, "b.example"), None, "about another name");
        assert_eq!(answer(&asked, 7, "a.example"), None, "a question is no answer");
    }

    #[test]
    fn addresses_of_ipv6_are_read() {
        let six = fuzzing::seeds().swap_remove(3);
        let found = answer(&six, 7, "a.example", AddressKind::V6).expect("an answer");
        assert_eq!((found.addresses.len(), found.six), (0, vec![Ipv6Addr::LOCALHOST]));
        assert_eq!(found.ttl, Duration::from_secs(30));
        assert_eq!(answer(&six, 7, "a.example", AddressKind::V4), None, "another question's");
        // one that is too short is none
        let mut short = six[..six.len() - 1].to_vec();
        let length = short.len() - 16;
        short[length] = 15;
        let found = answer(&short, 7, "a.example", AddressKind::V6).expect("an answer");
        assert_eq!(found.six, [] as [Ipv6Addr; 0]);
    }

    #[test]
    fn aliases_are_followed_and_strangers_are_not() {
        let alias = fuzzing::seeds().pop().expect("a seed");
        let found = answer(&alias, 7, "a.example", AddressKind::V4).expect("an answer");
        assert_eq!(found.addresses, [Ipv4Addr::new(203, 0, 113, 2)]);
        assert_eq!(found.ttl, Duration::from_secs(9), "the shortest of the way");
        // without the alias the address is of another name
        let mut stranger = alias.clone();
        stranger[HEADER + 1 + 1 + 1 + 7 + 1 + 4 + 3] = 6;
        let found = answer(&stranger, 7, "a.example", AddressKind::V4).expect("an answer");
        assert_eq!(found.addresses, [] as [Ipv4Addr; 0]);
    }

    #[test]
    fn other_messages_are_none() {
        let asked = ask(7, "a.example", AddressKind::V4);
        let with = |at: usize, value: u8| {
            let mut bytes = asked.clone();
            bytes[at] = value;
            question(&bytes)
        };
        assert!(with(0, 9).is_some());
        for (at, value) in
            [(2, 0x80), (2, 0x10), (5, 2), (5, 0), (HEADER + 1, b'.'), (HEADER, 0xc0)]
        {
            assert_eq!(with(at, value), None, "{at} {value}");
        }
        assert_eq!(question(&asked[..asked.len() - 1]), None);
        assert_eq!(question(&ask(7, "10.0.0.1", AddressKind::V4)), None, "an address is no name");
        let other = with(asked.len() - 3, 28).expect("a question");
        assert!(!other.is_address);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            fuzzing::run(&bytes);
        }

        #[test]
        fn damaged_messages_too(which in 0usize..5, at: u8, value: u8, cut in 0usize..90) {
            let mut bytes = fuzzing::seeds().swap_remove(which);
            let at = usize::from(at) % bytes.len();
            bytes[at] = value;
            bytes.truncate(cut);
            fuzzing::run(&bytes);
        }
    }
}
