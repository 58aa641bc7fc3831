//! Held images, as the records require them.

use crate::error::{Error, Result};
use crate::host::HostInner;
use stasis_engine::{Image, ImageId};
use stasis_records::HeldImage;

/// An image that no collection removes while this lives.
#[derive(Clone)]
pub(crate) struct PinnedImage(pub Image);

impl HeldImage for PinnedImage {
    fn id(&self) -> ImageId {
        self.0.id
    }
}

impl HostInner {
    /// Holds an image that a record just named. The record may have been removed and the image
    /// collected since; `gone` then says what is missing.
    pub fn hold(&self, id: ImageId, gone: impl FnOnce() -> Error) -> Result<PinnedImage> {
        match self.engine.store().hold(id) {
            Err(error) if error.is_missing() => Err(gone()),
            other => Ok(PinnedImage(other?)),
        }
    }

    /// A held image, validated before it is read: a captured image is as untrusted as an imported
    /// one.
    pub fn look_into(&self, held: &PinnedImage) -> Result<Image> {
        Ok(self.engine.store().image(held.0.id)?)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use stasis_api::{TemplateInfo, Timestamp};
    use stasis_records::{Records, TemplateRecord};

    /// An image id without an image, for tests of records.
    pub struct NamedImage(pub ImageId);

    impl HeldImage for NamedImage {
        fn id(&self) -> ImageId {
            self.0
        }
    }

    /// The id of an image that does not exist.
    pub fn image(name: &str) -> ImageId {
        ImageId(*blake3::hash(name.as_bytes()).as_bytes())
    }

    /// Records a template for machines of a test.
    pub fn add_template(store: &Records, digest: &str) {
        let template = TemplateInfo {
            name: digest.into(),
            digest: digest.into(),
            created_at: Timestamp::UNIX_EPOCH,
            language: stasis_agent::DEFAULT_NAME.into(),
            version: String::new(),
            recipe: String::new(),
            image: image("start").to_string(),
            root: String::new(),
        };
        let record =
            TemplateRecord { template, image: image("start"), details: serde_json::Value::Null };
        store.add_template(&record, &NamedImage(image("start"))).expect("a template");
    }
}
