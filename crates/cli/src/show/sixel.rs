//! Images as sixels: six rows of pixels a line, each colour of a fixed palette in turn.
//!
//! Images come from a machine and are not trusted: data that is not a PNG, or larger than a screen
//! needs, is saved to a file instead.

use png::{ColorType, Decoder, Limits, Transformations};
use std::fmt::Write;
use std::io::Cursor;

/// Maximum pixels per side, and bytes to decode.
const WIDEST: u32 = 4096;
const MOST_BYTES: usize = 128 << 20;
/// Levels of each of red, green and blue.
const LEVELS: u32 = 6;

/// The sequence that draws a PNG.
pub fn draw(png: &[u8]) -> Option<String> {
    let image = Image::read(png)?;
    let mut out = format!("\x1bPq\"1;1;{};{}", image.width, image.height);
    for colour in 0..LEVELS.pow(3) {
        let part = |level: u32| level * 100 / (LEVELS - 1);
        let (red, green, blue) = (colour / 36, colour / 6 % 6, colour % 6);
        let _ = write!(out, "#{colour};2;{};{};{}", part(red), part(green), part(blue));
    }
    for top in (0..image.height).step_by(6) {
        image.band(top, &mut out);
        out.push('-');
    }
    Some(out + "\x1b\\")
}

/// Pixels as numbers of the palette, row by row.
struct Image {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl Image {
    fn read(png: &[u8]) -> Option<Image> {
        let limits = Limits { bytes: MOST_BYTES };
        let mut decoder = Decoder::new_with_limits(Cursor::new(png), limits);
        decoder.set_transformations(Transformations::normalize_to_color8());
        let mut reader = decoder.read_info().ok()?;
        let info = reader.info();
        let (width, height) = (info.width, info.height);
        if width > WIDEST || height > WIDEST {
            return None;
        }
        let mut bytes = vec![0; reader.output_buffer_size()?];
        let frame = reader.next_frame(&mut bytes).ok()?;
        let pixels = bytes.get(..frame.buffer_size())?;
        let pixels = pixels.chunks_exact(frame.color_type.samples());
        let pixels: Vec<u8> = pixels.map(|pixel| nearest(frame.color_type, pixel)).collect();
        let (width, height) = (width as usize, height as usize);
        (pixels.len() == width * height).then_some(Image { width, height, pixels })
    }

    /// Six rows, one colour over the other.
    fn band(&self, top: usize, out: &mut String) {
        let rows = top * self.width..(top + 6).min(self.height) * self.width;
        let band = &self.pixels[rows];
        let mut colours = band.to_vec();
        colours.sort_unstable();
        colours.dedup();
        for colour in colours {
            let _ = write!(out, "#{colour}");
            let mut run = (0_u8, 0_usize);
            for x in 0..self.width {
                let column = band[x..].iter().step_by(self.width).enumerate();
                let bits =
                    column.fold(0, |bits, (y, pixel)| bits | (u8::from(*pixel == colour) << y));
                if bits != run.0 {
                    flush(run, out);
                    run = (bits, 0);
                }
                run.1 += 1;
            }
            flush(run, out);
            out.push('$');
        }
    }
}

/// The same six pixels, so many times.
fn flush((bits, count): (u8, usize), out: &mut String) {
    let letter = char::from(63 + bits);
    match count {
        0 => {}
        1..4 => out.extend(std::iter::repeat_n(letter, count)),
        count => {
            let _ = write!(out, "!{count}{letter}");
        }
    }
}

/// The nearest palette colour, on white where it is transparent.
fn nearest(kind: ColorType, pixel: &[u8]) -> u8 {
    let (rgb, alpha) = match (kind, pixel) {
        (ColorType::Rgba, [red, green, blue, alpha]) => ([*red, *green, *blue], *alpha),
        (ColorType::GrayscaleAlpha, [gray, alpha]) => ([*gray; 3], *alpha),
        (_, [red, green, blue]) => ([*red, *green, *blue], 255),
        (_, rest) => ([rest.first().copied().unwrap_or_default(); 3], 255),
    };
    let level = |part: u8| {
        let on_white = (u32::from(part) * u32::from(alpha) + 255 * (255 - u32::from(alpha))) / 255;
        (on_white * (LEVELS - 1) + 127) / 255
    };
    let [red, green, blue] = rgb.map(level);
    u8::try_from(red * 36 + green * 6 + blue).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(width: u32, height: u32, pixels: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width, height);
        encoder.set_color(ColorType::Rgba);
        let mut writer = encoder.write_header().expect("a header");
        writer.write_image_data(pixels).expect("pixels");
        writer.finish().expect("an end");
        bytes
    }

    #[test]
    fn red_above_and_nothing_below() {
        let mut pixels = [[255, 0, 0, 255].repeat(5), [0, 0, 0, 0].repeat(5)].concat();
        pixels.extend([255, 0, 0, 255].repeat(5).repeat(5));
        let drawn = draw(&encoded(5, 7, &pixels)).expect("an image");
        assert!(drawn.starts_with("\x1bPq\"1;1;5;7#0;2;0;0;0"), "{drawn:?}");
        // red is 5*36 = 180, white is 215: rows 0 and 2 to 5 red, row 1 white, then row 6 red
        assert!(drawn.ends_with("#180!5|$#215!5A$-#180!5@$-\x1b\\"), "{drawn:?}");
    }

    #[test]
    fn what_is_no_image_gives_nothing() {
        let good = encoded(1, 1, &[0, 0, 0, 255]);
        assert!(draw(&good).is_some());
        assert!(draw(&good[..good.len() / 2]).is_none());
        assert!(draw(b"\x89PNG\r\n\x1a\nrest").is_none());
        let wide = encoded(WIDEST + 1, 1, &[0; 4].repeat(WIDEST as usize + 1));
        assert!(draw(&wide).is_none());
    }
}
