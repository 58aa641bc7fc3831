//! `/proc/PID/maps` and `/proc/PID/smaps`.

/// One line of maps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub prot: u8,
    pub shared: bool,
    pub offset: u64,
    pub inode: u64,
    /// As the kernel prints it, with newlines escaped.
    pub path: String,
    /// Two-letter flags; none when read from maps.
    pub flags: Vec<[u8; 2]>,
}

/// Parses maps or smaps.
pub fn parse_maps(text: &str) -> Option<Vec<Mapping>> {
    let mut mappings: Vec<Mapping> = Vec::new();
    for line in text.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            let flags = flags.split_whitespace().map(|flag| flag.as_bytes().try_into().ok());
            mappings.last_mut()?.flags = flags.collect::<Option<_>>()?;
        } else if line.starts_with(|c: char| c.is_ascii_digit() || c.is_ascii_lowercase()) {
            mappings.push(parse_line(line)?);
        }
    }
    Some(mappings)
}

fn parse_line(line: &str) -> Option<Mapping> {
    let mut rest = line;
    let mut field = || {
        let (value, after) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = after;
        value
    };
    let (start, end) = field().split_once('-')?;
    let perms = field().as_bytes();
    let offset = field();
    field();
    let inode = field().parse().ok()?;
    let bit = |index: usize, letter: u8, value: u8| {
        if perms.get(index) == Some(&letter) { value } else { 0 }
    };
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        prot: bit(0, b'r', 1) | bit(1, b'w', 2) | bit(2, b'x', 4),
        shared: perms.get(3) == Some(&b's'),
        offset: u64::from_str_radix(offset, 16).ok()?,
        inode,
        path: rest.trim_start().to_owned(),
        flags: Vec::new(),
    })
}

impl Mapping {
    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own == flag.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_spaces_in_its_path() {
        let line = "7f00-8f00 r-xp 00001000 fe:01 42      /tmp/a b (deleted)";
        let mapping = &parse_maps(line).unwrap()[0];
        assert_eq!((mapping.start, mapping.end, mapping.prot), (0x7f00, 0x8f00, 5));
        assert_eq!(mapping.path, "/tmp/a b (deleted)");
        assert_eq!(mapping.inode, 42);
    }

    #[test]
    fn smaps_flags_belong_to_the_mapping_before_them() {
        let text = "1000-2000 rw-p 00000000 00:00 0 \nRss: 4 kB\nVmFlags: rd wr dc \n";
        assert!(parse_maps(text).unwrap()[0].has_flag("dc"));
    }
}
