//! A manifest to the bytes of an image file, and back.

use stasis_image::model::{FileEntryKind, FileTree, Manifest, PackRef};
use stasis_image::{
    Arch, ImageError, ImageId, ImageReader, ImageWriter, SealedImage, SectionKind, unpack_image,
};

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

/// Reads an image, plain or compressed.
pub fn decode(bytes: &[u8], id: ImageId) -> Result<Manifest> {
    let bytes = unpack_image(bytes)?;
    let reader = ImageReader::open(&bytes)?;
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

/// The name of a file tree's layer: the same for every image with the same files, whichever packs
/// the rest of it is in.
pub fn layer_name(files: &FileTree, packs: &[PackRef]) -> String {
    let mut entries = files.entries.clone();
    let mut used: Vec<u32> = Vec::new();
    let runs = entries.iter_mut().filter_map(|entry| match &mut entry.kind {
        FileEntryKind::Regular { runs, .. } => Some(runs),
        _ => None,
    });
    for run in runs.flatten() {
        let place = used.iter().position(|pack| *pack == run.pack).unwrap_or_else(|| {
            used.push(run.pack);
            used.len() - 1
        });
        run.pack = place as u32;
    }
    let packs: Vec<Option<&PackRef>> = used.iter().map(|pack| packs.get(*pack as usize)).collect();
    let bytes = postcard::to_stdvec(&(entries, packs)).unwrap_or_default();
    blake3::hash(&bytes).to_hex().to_string()
}
