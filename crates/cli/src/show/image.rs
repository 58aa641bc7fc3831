//! Images of an instruction: drawn if the terminal supports it, otherwise saved to a file.
//!
//! `STASIS_IMAGES` (`kitty`, `iterm`, `sixel` or `file`) overrides the detection of the terminal.

use super::sixel;
use crate::failure::{PathContext, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// Image support of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageProtocol {
    Kitty,
    Iterm,
    Sixel,
    None,
}

/// Bytes of one piece of kitty's protocol.
const PIECE: usize = 4096;

impl ImageProtocol {
    /// Image support of standard output's terminal.
    pub fn of_terminal() -> ImageProtocol {
        let env = |name: &str| std::env::var(name).unwrap_or_default();
        match env("STASIS_IMAGES").as_str() {
            "kitty" => ImageProtocol::Kitty,
            "iterm" => ImageProtocol::Iterm,
            "sixel" => ImageProtocol::Sixel,
            "" if std::io::stdout().is_terminal() => ImageProtocol::named(env),
            _ => ImageProtocol::None,
        }
    }

    fn named(env: impl Fn(&str) -> String) -> ImageProtocol {
        let program = env("TERM_PROGRAM");
        let kitty = env("TERM").contains("kitty") || !env("KITTY_WINDOW_ID").is_empty();
        match () {
            () if kitty || program == "ghostty" => ImageProtocol::Kitty,
            () if matches!(program.as_str(), "iTerm.app" | "WezTerm") => ImageProtocol::Iterm,
            () if env("LC_TERMINAL") == "iTerm2" => ImageProtocol::Iterm,
            () if matches!(program.as_str(), "mintty" | "contour") => ImageProtocol::Sixel,
            () if is_sixel(&env("TERM")) => ImageProtocol::Sixel,
            () => ImageProtocol::None,
        }
    }

    /// The sequence that draws a PNG, if supported.
    fn draw(self, png: &[u8]) -> Option<String> {
        let text = || STANDARD.encode(png);
        match self {
            ImageProtocol::None => None,
            ImageProtocol::Iterm => Some(format!(
                "\x1b]1337;File=inline=1;size={};preserveAspectRatio=1:{}\x07\n",
                png.len(),
                text()
            )),
            ImageProtocol::Kitty => Some(kitty(&text()) + "\n"),
            ImageProtocol::Sixel => sixel::draw(png).map(|drawn| drawn + "\n"),
        }
    }
}

/// Whether a terminal of this name is known to draw sixels.
fn is_sixel(term: &str) -> bool {
    term.contains("sixel") || ["foot", "mlterm", "yaft"].iter().any(|name| term.starts_with(name))
}

fn kitty(text: &str) -> String {
    let pieces: Vec<&[u8]> = text.as_bytes().chunks(PIECE).collect();
    let last = pieces.len().saturating_sub(1);
    let piece = |(n, bytes): (usize, &&[u8])| {
        let head = if n == 0 { "a=T,f=100," } else { "" };
        let more = u8::from(n < last);
        format!("\x1b_G{head}m={more};{}\x1b\\", String::from_utf8_lossy(bytes))
    };
    pieces.iter().enumerate().map(piece).collect()
}

/// The PNG of a MIME bundle, if it has a valid one.
pub fn png(data: &stasis_api::Data) -> Option<Vec<u8>> {
    let text: String = data.get("image/png")?.as_str()?.split_whitespace().collect();
    let bytes = STANDARD.decode(text).ok()?;
    bytes.starts_with(b"\x89PNG\r\n\x1a\n").then_some(bytes)
}

/// Draws the image, or saves it in `dir`; the file, if it was saved.
pub fn show(png: &[u8], drawing: ImageProtocol, dir: &Path, name: &str) -> Result<Option<PathBuf>> {
    if let Some(drawn) = drawing.draw(png) {
        super::say_on(&drawn);
        return Ok(None);
    }
    let path = dir.join(name);
    std::fs::write(&path, png).at("write", &path)?;
    Ok(Some(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_are_known_by_their_names() {
        let with = |name: &'static str, value: &'static str| {
            ImageProtocol::named(
                move |asked| if asked == name { value.into() } else { String::new() },
            )
        };
        assert_eq!(with("TERM", "xterm-kitty"), ImageProtocol::Kitty);
        assert_eq!(with("TERM_PROGRAM", "iTerm.app"), ImageProtocol::Iterm);
        assert_eq!(with("TERM", "foot"), ImageProtocol::Sixel);
        assert_eq!(with("TERM_PROGRAM", "mintty"), ImageProtocol::Sixel);
        assert_eq!(with("TERM", "xterm-256color"), ImageProtocol::None);
    }

    #[test]
    fn a_long_image_goes_in_pieces() {
        let drawn = ImageProtocol::Kitty.draw(&[0; 4000]).expect("it is drawn");
        assert_eq!(drawn.matches("\x1b_G").count(), 2);
        assert!(drawn.contains("a=T,f=100,m=1;") && drawn.contains("\x1b_Gm=0;"));
    }

    #[test]
    fn only_what_is_an_image_is_taken_for_one() {
        let data = |text: &str| stasis_api::Data::from([("image/png".to_owned(), text.into())]);
        assert!(png(&data(&STANDARD.encode(b"\x89PNG\r\n\x1a\nrest"))).is_some());
        assert!(png(&data(&STANDARD.encode(b"#!/bin/sh"))).is_none());
        assert!(png(&data("not base64!")).is_none());
    }
}
