//! Which arguments of a call are let through, where its number alone does not say enough.
//!
//! Every list names the allowed values. The kernel has more of each kind, and gets new ones with
//! every version; a machine has those below. Three reasons: programs use it and images save it, it
//! only queries, or it undoes one of the others.

use stasis_sys::libc;

/// One argument, or a half of one, as the filter sees it: 32 bits, of which some count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgumentWord {
    /// Index into the words of all arguments: lower half, upper half, and so on.
    pub index: u32,
    pub mask: u32,
    pub values: &'static [u32],
    /// Whether it is to be one of the values, or none of them.
    pub among: bool,
}

/// Words that are all as they should be.
pub type ArgumentRow = &'static [ArgumentWord];

/// A rule for a call: one of the rows matches, or this is the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    pub rows: &'static [ArgumentRow],
    pub errno: i32,
}

const fn among(argument: u32, values: &'static [u32]) -> ArgumentWord {
    masked(argument, u32::MAX, values)
}

const fn masked(argument: u32, mask: u32, values: &'static [u32]) -> ArgumentWord {
    ArgumentWord { index: 2 * argument, mask, values, among: true }
}

const fn upper(argument: u32, values: &'static [u32]) -> ArgumentWord {
    ArgumentWord { index: 2 * argument + 1, mask: u32::MAX, values, among: true }
}

const fn none_of(argument: u32, values: &'static [u32]) -> ArgumentWord {
    ArgumentWord { index: 2 * argument, mask: u32::MAX, values, among: false }
}

const fn rule(rows: &'static [ArgumentRow], errno: i32) -> Rule {
    Rule { rows, errno }
}

/// Flags of clone(2) that make namespaces.
const NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

pub const CLONE: &[Rule] = &[rule(&[&[masked(0, NAMESPACES, &[0])]], libc::EPERM)];

const UNIX: &[u32] = &[libc::AF_UNIX as u32];
const INTERNET: &[u32] = &[libc::AF_INET as u32, libc::AF_INET6 as u32];
const STREAM: &[u32] = &[libc::SOCK_STREAM as u32];
const DATAGRAM: &[u32] = &[libc::SOCK_DGRAM as u32];
const KINDS: &[u32] =
    &[libc::SOCK_STREAM as u32, libc::SOCK_DGRAM as u32, libc::SOCK_SEQPACKET as u32];

/// The kind of a socket, without the flags that come with it.
const fn kind(values: &'static [u32]) -> ArgumentWord {
    masked(1, !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) as u32, values)
}

const UNIX_SOCKET: ArgumentRow = &[among(0, UNIX), kind(KINDS), among(2, &[0])];

pub const SOCKET: &[Rule] = &[
    rule(
        &[&[among(0, UNIX)], &[among(0, INTERNET)], &[among(0, &[libc::AF_NETLINK as u32])]],
        libc::EAFNOSUPPORT,
    ),
    rule(
        &[
            UNIX_SOCKET,
            &[among(0, INTERNET), kind(STREAM), among(2, &[0, libc::IPPROTO_TCP as u32])],
            &[among(0, INTERNET), kind(DATAGRAM), among(2, &[0, libc::IPPROTO_UDP as u32])],
            &[
                among(0, &[libc::AF_NETLINK as u32]),
                kind(&[libc::SOCK_RAW as u32, libc::SOCK_DGRAM as u32]),
                among(2, &[libc::NETLINK_ROUTE as u32]),
            ],
        ],
        libc::EPROTONOSUPPORT,
    ),
];

pub const SOCKETPAIR: &[Rule] =
    &[rule(&[&[among(0, UNIX)]], libc::EAFNOSUPPORT), rule(&[UNIX_SOCKET], libc::EPROTONOSUPPORT)];

const SOCKET_LEVEL: &[u32] = &[libc::SOL_SOCKET as u32];
const TCP_LEVEL: &[u32] = &[libc::IPPROTO_TCP as u32];
const UDP_LEVEL: &[u32] = &[libc::IPPROTO_UDP as u32];
const IP_LEVEL: &[u32] = &[libc::IPPROTO_IP as u32];
const IPV6_LEVEL: &[u32] = &[libc::IPPROTO_IPV6 as u32];
const NETLINK_LEVEL: &[u32] = &[libc::SOL_NETLINK as u32];

/// No filters in the kernel's language, no devices, marks or transmission times.
#[rustfmt::skip]
const SOCKET_OPTIONS: &[u32] = &[
    2,  // REUSEADDR
    6,  // BROADCAST
    7,  // SNDBUF
    8,  // RCVBUF
    9,  // KEEPALIVE
    10, // OOBINLINE
    12, // PRIORITY
    13, // LINGER
    15, // REUSEPORT
    16, // PASSCRED
    18, // RCVLOWAT
    20, // RCVTIMEO
    21, // SNDTIMEO
    29, // TIMESTAMP
    34, // PASSSEC
    35, // TIMESTAMPNS
    37, // TIMESTAMPING
    40, // RXQ_OVFL
    42, // PEEK_OFF
    60, // ZEROCOPY
    63, // TIMESTAMP, with longer times
    64, // TIMESTAMPNS
    65, // TIMESTAMPING
    66, // RCVTIMEO
    67, // SNDTIMEO
    76, // PASSPIDFD
];
#[rustfmt::skip]
const SOCKET_QUESTIONS: &[u32] = &[
    3,  // TYPE
    4,  // ERROR
    17, // PEERCRED
    28, // PEERNAME
    30, // ACCEPTCONN
    31, // PEERSEC
    38, // PROTOCOL
    39, // DOMAIN
    55, // MEMINFO
    57, // COOKIE
    59, // PEERGROUPS
    71, // NETNS_COOKIE
    77, // PEERPIDFD
];

/// No upper layer protocols (they load modules), signatures, repair or mapped receiving.
#[rustfmt::skip]
const TCP_OPTIONS: &[u32] = &[
    1,  // NODELAY
    2,  // MAXSEG
    3,  // CORK
    4,  // KEEPIDLE
    5,  // KEEPINTVL
    6,  // KEEPCNT
    7,  // SYNCNT
    8,  // LINGER2
    9,  // DEFER_ACCEPT
    10, // WINDOW_CLAMP
    12, // QUICKACK
    13, // CONGESTION: only algorithms that are loaded and open to all users
    18, // USER_TIMEOUT
    23, // FASTOPEN
    25, // NOTSENT_LOWAT
    30, // FASTOPEN_CONNECT
    36, // INQ
];
#[rustfmt::skip]
const TCP_QUESTIONS: &[u32] = &[
    11, // INFO
    26, // CC_INFO
];

/// No encapsulation of other protocols.
#[rustfmt::skip]
const UDP_OPTIONS: &[u32] = &[
    1,   // CORK
    103, // SEGMENT
    104, // GRO
];

/// No header options, policies of IPsec, tables of packet filters or multicast routing.
#[rustfmt::skip]
const IP_OPTIONS: &[u32] = &[
    1,  // TOS
    2,  // TTL
    8,  // PKTINFO
    10, // MTU_DISCOVER
    11, // RECVERR
    12, // RECVTTL
    13, // RECVTOS
    15, // FREEBIND
    24, // BIND_ADDRESS_NO_PORT
    32, // MULTICAST_IF
    33, // MULTICAST_TTL
    34, // MULTICAST_LOOP
    35, // ADD_MEMBERSHIP
    36, // DROP_MEMBERSHIP
    37, // UNBLOCK_SOURCE
    38, // BLOCK_SOURCE
    39, // ADD_SOURCE_MEMBERSHIP
    40, // DROP_SOURCE_MEMBERSHIP
    49, // MULTICAST_ALL
];
const IP_QUESTIONS: &[u32] = &[14 /* MTU */];

/// The same, and no change of a socket to IPv4.
#[rustfmt::skip]
const IPV6_OPTIONS: &[u32] = &[
    16, // UNICAST_HOPS
    17, // MULTICAST_IF
    18, // MULTICAST_HOPS
    19, // MULTICAST_LOOP
    20, // JOIN_GROUP
    21, // LEAVE_GROUP
    23, // MTU_DISCOVER
    25, // RECVERR
    26, // V6ONLY
    29, // MULTICAST_ALL
    49, // RECVPKTINFO
    51, // RECVHOPLIMIT
    53, // RECVHOPOPTS
    56, // RECVRTHDR
    58, // RECVDSTOPTS
    60, // RECVPATHMTU
    62, // DONTFRAG
    66, // RECVTCLASS
    67, // TCLASS
    70, // AUTOFLOWLABEL
    78, // FREEBIND
];
#[rustfmt::skip]
const IPV6_QUESTIONS: &[u32] = &[
    24, // MTU
    61, // PATHMTU
];

#[rustfmt::skip]
const NETLINK_OPTIONS: &[u32] = &[
    1,  // ADD_MEMBERSHIP
    2,  // DROP_MEMBERSHIP
    11, // EXT_ACK
    12, // GET_STRICT_CHK
];

pub const SETSOCKOPT: &[Rule] = &[rule(
    &[
        &[among(1, SOCKET_LEVEL), among(2, SOCKET_OPTIONS)],
        &[among(1, TCP_LEVEL), among(2, TCP_OPTIONS)],
        &[among(1, IP_LEVEL), among(2, IP_OPTIONS)],
        &[among(1, IPV6_LEVEL), among(2, IPV6_OPTIONS)],
        &[among(1, UDP_LEVEL), among(2, UDP_OPTIONS)],
        &[among(1, NETLINK_LEVEL), among(2, NETLINK_OPTIONS)],
    ],
    libc::ENOPROTOOPT,
)];

pub const GETSOCKOPT: &[Rule] = &[rule(
    &[
        &[among(1, SOCKET_LEVEL), among(2, SOCKET_QUESTIONS)],
        &[among(1, SOCKET_LEVEL), among(2, SOCKET_OPTIONS)],
        &[among(1, TCP_LEVEL), among(2, TCP_QUESTIONS)],
        &[among(1, TCP_LEVEL), among(2, TCP_OPTIONS)],
        &[among(1, IP_LEVEL), among(2, IP_QUESTIONS)],
        &[among(1, IP_LEVEL), among(2, IP_OPTIONS)],
        &[among(1, IPV6_LEVEL), among(2, IPV6_QUESTIONS)],
        &[among(1, IPV6_LEVEL), among(2, IPV6_OPTIONS)],
        &[among(1, UDP_LEVEL), among(2, UDP_OPTIONS)],
        &[among(1, NETLINK_LEVEL), among(2, NETLINK_OPTIONS)],
    ],
    libc::ENOPROTOOPT,
)];

/// Terminals without requests that type for another program, change a line discipline or take over
/// the console; descriptors; the list of interfaces. The most frequent come first.
#[rustfmt::skip]
const REQUESTS: &[u32] = &[
    0x5401, // TCGETS
    0x5413, // TIOCGWINSZ
    0x5421, // FIONBIO
    0x541b, // FIONREAD
    0x5451, // FIOCLEX
    0x5450, // FIONCLEX
    0x5452, // FIOASYNC
    0x5402, 0x5403, 0x5404, // TCSETS, TCSETSW, TCSETSF
    0x5405, 0x5406, 0x5407, 0x5408, // the same, with the older struct
    0x802c_542a, 0x402c_542b, 0x402c_542c, 0x402c_542d, // the same, with any speed
    0x5409, // TCSBRK
    0x5425, // TCSBRKP
    0x540a, // TCXONC
    0x540b, // TCFLSH
    0x540c, // TIOCEXCL
    0x540d, // TIOCNXCL
    0x540e, // TIOCSCTTY
    0x540f, // TIOCGPGRP
    0x5410, // TIOCSPGRP
    0x5411, // TIOCOUTQ
    0x5414, // TIOCSWINSZ
    0x5420, // TIOCPKT
    0x5422, // TIOCNOTTY
    0x5424, // TIOCGETD
    0x5429, // TIOCGSID
    0x8004_5430, // TIOCGPTN
    0x4004_5431, // TIOCSPTLCK
    0x8004_5438, // TIOCGPKT
    0x8004_5439, // TIOCGPTLCK
    0x8004_5440, // TIOCGEXCL
    0x5441, // TIOCGPTPEER
    0x8901, 0x8902, 0x8903, 0x8904, // FIOSETOWN, SIOCSPGRP, FIOGETOWN, SIOCGPGRP
    0x8905, // SIOCATMARK
    0x8906, 0x8907, // SIOCGSTAMP, SIOCGSTAMPNS
    0x8910, // SIOCGIFNAME
    0x8912, // SIOCGIFCONF
    0x8913, // SIOCGIFFLAGS
    0x8915, // SIOCGIFADDR
    0x8917, // SIOCGIFDSTADDR
    0x8919, // SIOCGIFBRDADDR
    0x891b, // SIOCGIFNETMASK
    0x891d, // SIOCGIFMETRIC
    0x8921, // SIOCGIFMTU
    0x8927, // SIOCGIFHWADDR
    0x8933, // SIOCGIFINDEX
    0x8942, // SIOCGIFTXQLEN
    0x8970, // SIOCGIFMAP
    0x8008_6601, // FS_IOC_GETFLAGS
    0x4008_5400, // TFD_IOC_SET_TICKS
];

/// The answer means that an interface has no such settings.
const SIOCETHTOOL: &[u32] = &[0x8946];

pub const IOCTL: &[Rule] = &[
    rule(&[&[none_of(1, SIOCETHTOOL)]], libc::EOPNOTSUPP),
    rule(&[&[among(1, REQUESTS)]], libc::ENOTTY),
];

/// No leases and no signals about directories: a lease delays other processes that open the file.
#[rustfmt::skip]
const COMMANDS: &[u32] = &[
    3, 4, 1, 2, // GETFL, SETFL, GETFD, SETFD
    0, 1030, // DUPFD, with and without a flag
    5, 6, 7, // GETLK, SETLK, SETLKW
    36, 37, 38, // the same for open files
    8, 9, 15, 16, // SETOWN, GETOWN, with and without a kind
    10, 11, // SETSIG, GETSIG
    1025, // GETLEASE
    1027, 1028, // DUPFD_QUERY, CREATED_QUERY
    1031, 1032, // SETPIPE_SZ, GETPIPE_SZ
    1033, 1034, // ADD_SEALS, GET_SEALS
    1035, 1036, 1037, 1038, // hints about lifetimes
];

pub const FCNTL: &[Rule] = &[rule(&[&[among(1, COMMANDS)]], libc::EINVAL)];

/// The limit that keeps the host from handling a crash. Lowering it succeeds without effect: there
/// are no core files.
const CORE: &[u32] = &[libc::RLIMIT_CORE];

pub const SETRLIMIT: &[Rule] = &[rule(&[&[none_of(0, CORE)]], 0)];
/// It can be queried.
pub const PRLIMIT: &[Rule] = &[rule(&[&[none_of(1, CORE)], &[among(2, &[0]), upper(2, &[0])]], 0)];

/// Options of prctl(2) about the caller itself that images save, or that only query.
#[rustfmt::skip]
const OWN_AFFAIRS: &[u32] = &[
    libc::PR_SET_VMA as u32,
    libc::PR_SET_NAME as u32,
    libc::PR_GET_NAME as u32,
    libc::PR_SET_PDEATHSIG as u32,
    libc::PR_GET_PDEATHSIG as u32,
    libc::PR_GET_DUMPABLE as u32,
    libc::PR_SET_DUMPABLE as u32,
    libc::PR_GET_KEEPCAPS as u32,
    libc::PR_SET_KEEPCAPS as u32,
    libc::PR_GET_SECCOMP as u32,
    libc::PR_SET_SECCOMP as u32,
    libc::PR_CAPBSET_READ as u32,
    libc::PR_CAPBSET_DROP as u32,
    libc::PR_GET_SECUREBITS as u32,
    libc::PR_SET_TIMERSLACK as u32,
    libc::PR_GET_TIMERSLACK as u32,
    libc::PR_SET_CHILD_SUBREAPER as u32,
    libc::PR_GET_CHILD_SUBREAPER as u32,
    libc::PR_SET_NO_NEW_PRIVS as u32,
    libc::PR_GET_NO_NEW_PRIVS as u32,
    libc::PR_GET_TID_ADDRESS as u32,
    libc::PR_SET_THP_DISABLE as u32,
    libc::PR_GET_THP_DISABLE as u32,
    libc::PR_CAP_AMBIENT as u32,
    libc::PR_GET_SPECULATION_CTRL as u32,
];

pub const PRCTL: &[Rule] = &[rule(&[&[among(0, OWN_AFFAIRS)]], libc::EINVAL)];

/// Thread pointers, and which register state is in use.
const THREAD_POINTERS: &[u32] = &[0x1001, 0x1002, 0x1003, 0x1004, 0x1021, 0x1022];

pub const ARCH_PRCTL: &[Rule] = &[rule(&[&[among(0, THREAD_POINTERS)]], libc::EINVAL)];

/// The plain one, without address randomisation, and the question which it is.
const PERSONALITIES: &[u32] = &[0, 0x0004_0000, 0xffff_ffff];

pub const PERSONALITY: &[Rule] = &[rule(&[&[among(0, PERSONALITIES)]], libc::EPERM)];

const SET_MODE_FILTER: &[u32] = &[1];
const GET_ACTION_AVAIL: &[u32] = &[2];
/// For this thread, or for all of them. No listener, who could hold a call for ever.
const FILTER_FLAGS: &[u32] = &[0, 1, 1 | 16];

pub const SECCOMP: &[Rule] = &[rule(
    &[
        &[among(0, SET_MODE_FILTER), among(1, FILTER_FLAGS)],
        &[among(0, GET_ACTION_AVAIL), among(1, &[0])],
    ],
    libc::EINVAL,
)];

/// Pages that no limit of a machine's counts.
const HUGE_PAGES: u32 = libc::MAP_HUGETLB as u32;
const MFD_HUGETLB: u32 = 4;

pub const MMAP: &[Rule] = &[rule(&[&[masked(3, HUGE_PAGES, &[0])]], libc::ENOMEM)];
pub const MEMFD_CREATE: &[Rule] = &[rule(&[&[masked(1, MFD_HUGETLB, &[0])]], libc::ENOMEM)];
