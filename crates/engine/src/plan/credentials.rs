//! A thread's credentials: ids, groups, securebits and capabilities.

use super::confine::ALL_CAPABILITIES;
use stasis_image::model::Credentials;
use stasis_spawner::program::Program;
use stasis_sys::libc;

/// From the full set that entering the sandbox gave, down to the image's. The bounding set is down
/// to `bounding` already.
pub(super) fn credentials(p: &mut Program, creds: &Credentials, bounding: u64) {
    let full = Credentials {
        uids: [0; 4],
        gids: [0; 4],
        groups: Vec::new(),
        inheritable: 0,
        permitted: ALL_CAPABILITIES,
        effective: ALL_CAPABILITIES,
        bounding,
        ambient: 0,
        securebits: 0,
    };
    if *creds == full {
        return;
    }
    for bit in (0..41).filter(|bit| bounding & !creds.bounding & (1 << bit) != 0) {
        let args = [libc::PR_CAPBSET_DROP as u64, bit, 0, 0, 0];
        p.must("narrow the bounding set", libc::SYS_prctl, &args);
    }
    let groups: Vec<u8> = creds.groups.iter().flat_map(|group| group.to_ne_bytes()).collect();
    let at = p.data(&groups);
    p.must("set groups", libc::SYS_setgroups, &[creds.groups.len() as u64, at]);
    let three = |ids: &[u32; 4]| [ids[0].into(), ids[1].into(), ids[2].into()];
    p.must("set group ids", libc::SYS_setresgid, &three(&creds.gids));
    p.any("set the file group", libc::SYS_setfsgid, &[creds.gids[3].into()]);
    p.must("keep capabilities", libc::SYS_prctl, &[libc::PR_SET_KEEPCAPS as u64, 1, 0, 0, 0]);
    p.must("set user ids", libc::SYS_setresuid, &three(&creds.uids));
    p.any("set the file user", libc::SYS_setfsuid, &[creds.uids[3].into()]);
    securebits(p, creds.securebits);
    capabilities(p, [creds.effective, creds.permitted, creds.inheritable]);
}

fn securebits(p: &mut Program, bits: u32) {
    const KEEP_CAPS: u32 = 1 << 4;
    let keep = u64::from(bits & KEEP_CAPS != 0);
    p.must("keep capabilities or not", libc::SYS_prctl, &[libc::PR_SET_KEEPCAPS as u64, keep]);
    if bits & !KEEP_CAPS != 0 {
        // with another user id they were kept, but not in effect
        capabilities(p, [ALL_CAPABILITIES, ALL_CAPABILITIES, 0]);
        let secure = [libc::PR_SET_SECUREBITS as u64, bits.into(), 0, 0, 0];
        p.must("set securebits", libc::SYS_prctl, &secure);
    }
}

/// Sets the effective, permitted and inheritable sets.
fn capabilities(p: &mut Program, sets: [u64; 3]) {
    const VERSION: u64 = 0x2008_0522;
    let header = p.words(&[VERSION]);
    let halves = |shift: u32| sets.map(|set| (set >> shift & 0xffff_ffff) as u32);
    let data: Vec<u8> =
        [halves(0), halves(32)].concat().iter().flat_map(|word| word.to_ne_bytes()).collect();
    let data = p.data(&data);
    p.must("set capabilities", libc::SYS_capset, &[header, data]);
}
