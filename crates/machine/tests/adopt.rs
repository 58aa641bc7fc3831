//! Files are adopted by the host itself: nothing runs in the machine that gets them.

use stasis_machine::{AdoptSelection, Branch, Steps};
use stasis_testbed::{TestHost, run, value};

#[test]
fn files_are_adopted_without_running_code() {
    let bed = TestHost::start();
    let machine = bed.machine();
    run(&machine, "open('old.txt', 'w').write('old')");
    let branch = Branch { names: vec![None], ..Branch::default() };
    let other = bed.host.branch(&machine, branch).expect("a branch").remove(0);
    run(
        &other,
        "import os\nos.makedirs('deep/er')\nopen('deep/er/new.sh', 'w').write('#!/bin/sh')\n\
         os.chmod('deep/er/new.sh', 0o750)\nos.symlink('deep/er/new.sh', 'link')\n\
         os.remove('old.txt')\nos.symlink('nowhere', 'old.txt')",
    );
    let place = bed.host.place(&other, None).expect("a place");
    // code that used these, or anything else of the session, would fail
    run(
        &machine,
        "import builtins, os\nkept = open, os.stat, os.readlink\n\
         os.makedirs = os.replace = os.chmod = os.symlink = os.remove = None",
    );
    run(&machine, "builtins.open = builtins.exec = builtins.compile = None");
    bed.host.swap(&machine).expect("swapped");
    let files = ["deep", "link", "old.txt"].map(|name| format!("/home/user/{name}")).to_vec();
    let wanted = AdoptSelection { files, ..AdoptSelection::default() };
    let adopted = bed.host.adopt(&machine, &place, wanted).expect("an answer");
    assert_eq!((&adopted.conflicts, adopted.failed.len()), (&vec![], 0), "{adopted:?}");
    let look = "open, stat, readlink = kept\n\
                open('deep/er/new.sh').read(), oct(stat('link').st_mode), stat('link').st_uid, \
                readlink('link'), readlink('old.txt')";
    let seen = value(&machine, look);
    assert_eq!(seen, "('#!/bin/sh', '0o100750', 1000, 'deep/er/new.sh', 'nowhere')");
    // it is an instruction like others: it can be taken back
    machine.settle().expect("settle");
    bed.host.undo(&machine, Steps::default()).expect("undo the question");
    bed.host.undo(&machine, Steps::default()).expect("undo");
    assert_eq!(value(&machine, "kept[0]('old.txt').read()"), "'old'");
}
