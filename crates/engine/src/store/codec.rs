//! A manifest to the bytes of an image file, and back.

use stasis_image::model::{FileTree, Manifest, PackRef};
use stasis_image::{Arch, ImageError, ImageId, ImageReader, ImageWriter, SealedImage, SectionKind};

type Result<T> = std::result::Result<T, ImageError>;

pub fn encode(manifest: &Manifest) -> Result<SealedImage> {
    let mut writer = ImageWriter::new(Arch::X86_64);
    writer.section(SectionKind::Meta, &manifest.meta)?;
    writer.section(SectionKind::Processes, &manifest.processes)?;
    writer.section(SectionKind::Objects, &manifest.objects)?;
    writer.section(SectionKind::Memory, &(&manifest.memory, &manifest.segments))?;
    writer.section(SectionKind::Files, &manifest.files)?;
    writer.finish()
}

pub fn decode(bytes: &[u8], id: ImageId) -> Result<Manifest> {
    let reader = ImageReader::open(bytes)?;
    if reader.id() != id {
        return Err(ImageError::Renamed);
    }
    let (memory, segments) = reader.section(SectionKind::Memory)?;
    Ok(Manifest {
        meta: reader.section(SectionKind::Meta)?,
        processes: reader.section(SectionKind::Processes)?,
        objects: reader.section(SectionKind::Objects)?,
        files: reader.section(SectionKind::Files)?,
        memory,
        segments,
    })
}

/// The name a file tree's layer goes by.
pub fn layer_name(files: &FileTree, packs: &[PackRef]) -> String {
    let bytes = postcard::to_stdvec(&(&files.entries, packs)).unwrap_or_default();
    blake3::hash(&bytes).to_hex().to_string()
}
