//! Inodes that outlive their directories.

use super::*;
use crate::origin::Origin;
use stasis_image::OriginId;
use std::fs::{create_dir, read_to_string, rename, write};
use std::os::unix::fs::symlink;

/// A directory of a running tree, with a file that an image is about to name.
struct Upper {
    path: PathBuf,
    id: OriginId,
}

fn identify(bed: &Bed, upper: &Path, path: &str) -> Option<Origin> {
    bed.store.keepers().identify(upper, path)
}

fn upper(bed: &Bed) -> Upper {
    let path = bed.dir.path().join("upper");
    create_dir(&path).and_then(|()| create_dir(path.join("a"))).expect("make directories");
    write(path.join("a/file"), "content").expect("write a file");
    let origin = identify(bed, &path, "a/file").expect("this file system has handles");
    let id = origin.id();
    drop(bed.store.keepers().note(&path, "a/file", origin).expect("note"));
    Upper { path, id }
}

fn kept(bed: &Bed) -> Vec<String> {
    let entries = std::fs::read_dir(bed.dir.path().join("keepers")).expect("list keepers");
    entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

/// The inode exists, empty, under its own name alone.
fn is_kept(bed: &Bed, id: OriginId) {
    assert_eq!(kept(bed), [id.to_string()]);
    assert_eq!(bed.store.keepers().find(id).expect("it is known").id(), id);
    let meta = std::fs::metadata(bed.dir.path().join("keepers").join(id.to_string()));
    assert_eq!(meta.expect("it is there").len(), 0);
}

#[test]
fn a_file_is_left_alone_until_its_directory_goes() {
    let bed = Bed::new();
    let Upper { path, id } = upper(&bed);
    assert_eq!(kept(&bed), [format!("{id}.at")]);
    assert!(bed.store.keepers().find(id).is_some());
    assert_eq!(std::fs::metadata(path.join("a/file")).expect("it is there").nlink(), 1);
    bed.store.keepers().release(&path);
    assert!(!path.join("a/file").exists());
    is_kept(&bed, id);
}

#[test]
fn one_that_was_renamed_is_found() {
    let bed = Bed::new();
    let Upper { path, id } = upper(&bed);
    create_dir(path.join("b")).expect("make a directory");
    rename(path.join("a/file"), path.join("b/other")).expect("rename");
    write(path.join("a/file"), "another").expect("write a file");
    bed.store.keepers().release(&path);
    is_kept(&bed, id);
    assert_eq!(read_to_string(path.join("a/file")).expect("it is there"), "another");
}

#[test]
fn one_that_was_deleted_is_forgotten() {
    let bed = Bed::new();
    let Upper { path, id } = upper(&bed);
    std::fs::remove_file(path.join("a/file")).expect("remove");
    bed.store.keepers().release(&path);
    assert_eq!(kept(&bed), [""; 0]);
    assert!(bed.store.keepers().find(id).is_none());
}

#[test]
fn after_a_crash_the_next_program_takes_it_in() {
    let bed = Bed::new();
    let Upper { id, .. } = upper(&bed);
    let bed = bed.reopened();
    is_kept(&bed, id);
    is_kept(&bed.reopened(), id);
}

/// Files of a program in its directory do not lead out of it.
#[test]
fn links_are_not_followed() {
    let bed = Bed::new();
    let Upper { path, id } = upper(&bed);
    let outside = bed.dir.path().join("outside");
    rename(path.join("a"), &outside).expect("move away");
    symlink(&outside, path.join("a")).expect("make a link");
    bed.store.keepers().release(&path);
    assert_eq!(read_to_string(outside.join("file")).expect("it is there"), "content");
    assert!(bed.store.keepers().find(id).is_none());
}

#[test]
fn kept_as_long_as_an_image_names_it_or_is_about_to() {
    let bed = Bed::new();
    let Upper { path, id } = upper(&bed);
    let origin = identify(&bed, &path, "a/file").expect("an origin");
    let about_to = bed.store.keepers().note(&path, "a/file", origin).expect("note");
    bed.store.collect(&HashSet::new()).expect("collect");
    assert_eq!(kept(&bed), [format!("{id}.at")], "somebody is about to name it");

    let mut named = manifest(&[], 1);
    named.files.held.push(HeldFile { path: "a/file".into(), origin: id });
    let image = bed.store.write_image(named).expect("write an image");
    drop(about_to);
    bed.store.collect(&HashSet::new()).expect("collect");
    assert_eq!(kept(&bed), [format!("{id}.at")], "the image is in use");

    bed.store.keepers().release(&path);
    bed.store.collect(&HashSet::new()).expect("collect");
    is_kept(&bed, id);
    drop(image);
    bed.store.collect(&HashSet::new()).expect("collect");
    assert_eq!(kept(&bed), [""; 0]);
}
