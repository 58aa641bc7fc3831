//! The merge of two trees against the plain definition of it, and how it grows.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

/// The definition of the merge, entry by entry, in quadratic time.
fn defined(below: &FileTree, upper: &FileTree) -> BTreeMap<BString, FileEntry> {
    let hiding: Vec<&BString> = upper
        .entries
        .iter()
        .filter(|entry| !matches!(entry.kind, FileEntryKind::Directory) || is_opaque(entry))
        .map(|entry| &entry.path)
        .collect();
    let replaced: HashSet<&BString> = upper.entries.iter().map(|entry| &entry.path).collect();
    let gone =
        |path: &BString| replaced.contains(path) || hiding.iter().any(|dir| is_below(path, dir));
    let mut merged = BTreeMap::new();
    for entry in below.entries.iter().filter(|entry| !gone(&entry.path)) {
        merged.insert(entry.path.clone(), entry.clone());
    }
    for entry in &upper.entries {
        let mut entry = entry.clone();
        let under = below.entries.iter().find(|old| old.path == entry.path);
        let hid = under.is_some_and(|old| is_opaque(old) || old.kind == FileEntryKind::Whiteout);
        if entry.kind == FileEntryKind::Directory && hid && !is_opaque(&entry) {
            entry.xattrs.push((OPAQUE.into(), b"y".to_vec()));
        }
        merged.insert(entry.path.clone(), entry);
    }
    merged
}

fn entry(path: &str, kind: FileEntryKind) -> FileEntry {
    let (mode, xattrs) = (0o644, Vec::new());
    FileEntry { path: path.into(), mode, uid: 0, gid: 0, mtime_s: 0, mtime_ns: 0, xattrs, kind }
}

fn regular(size: u64) -> FileEntryKind {
    FileEntryKind::Regular { size, runs: Vec::new() }
}

/// The target of a hard link.
fn contents<'a>(tree: &'a FileTree, entry: &'a FileEntry) -> &'a FileEntryKind {
    match &entry.kind {
        FileEntryKind::Hardlink { target } => {
            &tree.entries.iter().find(|other| other.path == *target).expect("its target").kind
        }
        kind => kind,
    }
}

/// Names of which one begins another, and that sort on both sides of a slash.
const NAMES: &str = "[ab](/[ab!\u{ff}]{1,2}){0,3}";

prop_compose! {
    fn a_tree()(
        paths in prop::collection::btree_map(NAMES, (0..7u8, 1..99u64), 0..40),
        shuffled in any::<bool>(),
    ) -> FileTree {
        let mut dirs: Vec<String> = Vec::new();
        let mut entries: Vec<FileEntry> = Vec::new();
        let mut first: Option<BString> = None;
        for (path, (kind, size)) in paths {
            let parent = path.rsplit_once('/').map(|(parent, _)| parent.to_owned());
            if parent.is_some_and(|parent| !dirs.contains(&parent)) {
                continue;
            }
            let kind = match kind {
                0..=2 => FileEntryKind::Directory,
                3 => FileEntryKind::Whiteout,
                4 => match first.clone() {
                    Some(target) => FileEntryKind::Hardlink { target },
                    None => regular(size),
                },
                _ => regular(size),
            };
            if matches!(kind, FileEntryKind::Regular { .. }) && size % 2 == 0 {
                first = Some(path.as_str().into());
            }
            let mut entry = entry(&path, kind);
            if entry.kind == FileEntryKind::Directory {
                dirs.push(path);
                if size % 3 == 0 {
                    entry.xattrs.push((OPAQUE.into(), b"y".to_vec()));
                }
            }
            entries.push(entry);
        }
        if shuffled { entries.reverse() } else { sort(&mut entries) }
        FileTree { entries, held: Vec::new() }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn a_merge_is_what_it_is_defined_to_be(below in a_tree(), upper in a_tree()) {
        let expected = defined(&below, &upper);
        let merged = merge(below.clone(), upper.clone());
        let in_order = |pair: &[FileEntry]| order(&pair[0].path, &pair[1].path).is_lt();
        prop_assert!(merged.entries.windows(2).all(in_order));
        prop_assert_eq!(merged.entries.len(), expected.len());
        for entry in &merged.entries {
            let wanted = &expected[&entry.path];
            prop_assert_eq!(&entry.xattrs, &wanted.xattrs);
            let source = if upper.entries.contains(wanted) { &upper } else { &below };
            if matches!(wanted.kind, FileEntryKind::Hardlink { .. }) {
                // upper entries may have gained a mark; links have none
                prop_assert_eq!(contents(&merged, entry), contents(source, wanted));
            } else {
                prop_assert_eq!(&entry.kind, &wanted.kind);
            }
        }
    }
}

#[test]
fn names_that_share_a_file_go_on_sharing_it() {
    let link = |target: &str| FileEntryKind::Hardlink { target: target.into() };
    let tree = |entries: Vec<FileEntry>| FileTree { entries, held: Vec::new() };
    let below = tree(vec![entry("a", regular(7)), entry("b", link("a")), entry("c", link("a"))]);
    let merged = merge(below, tree(vec![entry("a", FileEntryKind::Whiteout)]));
    let kinds: Vec<FileEntryKind> = merged.entries.into_iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, [FileEntryKind::Whiteout, regular(7), link("b")]);
}

/// Against a merge that compares every pair, which took minutes for these.
#[test]
fn a_merge_of_many_files_ends() {
    let tree = |from: usize| {
        let file = |n: usize| entry(&format!("{:03}/file-with-a-name-{n}", n % 200), regular(1));
        let dirs = (0..200).map(|n| entry(&format!("{n:03}"), FileEntryKind::Directory));
        let mut entries: Vec<FileEntry> = (from..from + 40_000).map(file).chain(dirs).collect();
        sort(&mut entries);
        FileTree { entries, held: Vec::new() }
    };
    let (below, upper) = (tree(0), tree(20_000));
    let start = Instant::now();
    assert_eq!(merge(below, upper).entries.len(), 60_200);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}
