//! Programs and files beside Python: shell tools, certificates, time zones. Each is optional;
//! missing ones are skipped.

use super::copier::Copier;
use crate::error::Result;
use std::path::Path;

/// The path of certificates inside, wherever the host keeps them.
pub const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";
const BUNDLES: [&str; 4] =
    [BUNDLE, "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"];
const BIN: [&str; 2] = ["/usr/bin", "/bin"];

/// Shell, coreutils, findutils, text, archives, processes, network, git.
const PROGRAMS: &str = "
    bash sh dash env
    [ arch b2sum base32 base64 basename basenc cat chgrp chmod chown cksum comm cp csplit cut date
    dd df dir dircolors dirname du echo expand expr factor false fmt fold groups head hostid id
    install join link ln logname ls md5sum mkdir mkfifo mktemp mv nice nl nohup nproc numfmt od
    paste pathchk pr printenv printf ptx pwd readlink realpath rm rmdir runcon seq sha1sum sha224sum
    sha256sum sha384sum sha512sum shred shuf sleep sort split stat stdbuf stty sum sync tac tail tee
    test timeout touch tr true truncate tsort tty uname unexpand uniq unlink users vdir wc who
    whoami yes
    find xargs grep egrep fgrep sed awk gawk mawk diff diff3 cmp patch less more file tree column
    hexdump xxd strings bc jq rg tput clear reset
    tar gzip gunzip zcat bzip2 bunzip2 xz unxz zstd unzip zip
    ps pgrep pkill kill free top uptime vmstat watch lsof which getent getconf locale hostname
    curl wget git openssl ssh scp rsync sqlite3 make
";
const TREES: [&str; 5] = [
    "/usr/lib/locale/C.utf8",
    "/usr/lib/git-core",
    "/usr/libexec/git-core",
    "/usr/share/git-core",
    "/usr/share/zoneinfo",
];
const FILES: [&str; 5] = [
    "/etc/os-release",
    "/etc/services",
    "/etc/protocols",
    "/usr/share/misc/magic.mgc",
    "/usr/lib/file/magic.mgc",
];
const TERMINALS: [&str; 9] = [
    "a/ansi",
    "d/dumb",
    "l/linux",
    "s/screen",
    "s/screen-256color",
    "t/tmux-256color",
    "v/vt100",
    "x/xterm",
    "x/xterm-256color",
];
const TERMINFO: [&str; 3] = ["/usr/lib/terminfo", "/lib/terminfo", "/usr/share/terminfo"];
const SWITCH: &str = "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n";

pub fn lay(copier: &mut Copier) -> Result<()> {
    for name in PROGRAMS.split_whitespace() {
        let places = BIN.iter().map(|dir| Path::new(dir).join(name));
        if let Some(path) = places.into_iter().find(|path| path.is_file()) {
            let inside = copier.program(&path)?;
            copier.link(&Path::new("/usr/bin").join(name), &inside)?;
        }
    }
    for dir in TREES.map(Path::new).into_iter().filter(|dir| dir.is_dir()) {
        copier.tree(dir, &|name| matches!(name, "right" | "posix"))?;
    }
    for path in FILES.map(Path::new).into_iter().filter(|path| path.is_file()) {
        copier.copy(path, path)?;
    }
    terminals(copier)?;
    certificates(copier)?;
    copier.write("/etc/nsswitch.conf", SWITCH)
}

fn terminals(copier: &mut Copier) -> Result<()> {
    for name in TERMINALS {
        let found = TERMINFO.iter().map(|dir| Path::new(dir).join(name)).find(|p| p.is_file());
        if let Some(path) = found {
            copier.copy(&path, &super::merged(&path))?;
        }
    }
    Ok(())
}

fn certificates(copier: &mut Copier) -> Result<()> {
    if let Some(bundle) = BUNDLES.map(Path::new).into_iter().find(|path| path.is_file()) {
        copier.copy(bundle, Path::new(BUNDLE))?;
        copier.link(Path::new("/etc/ssl/cert.pem"), Path::new(BUNDLE))?;
        copier.link(Path::new("/usr/lib/ssl/cert.pem"), Path::new(BUNDLE))?;
    }
    let settings = Path::new("/etc/ssl/openssl.cnf");
    if settings.is_file() {
        copier.copy(settings, settings)?;
        copier.link(Path::new("/usr/lib/ssl/openssl.cnf"), settings)?;
    }
    Ok(())
}
