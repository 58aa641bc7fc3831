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
    /// Holds an image that a record named a moment ago. The record may have been given up and the
    /// image collected since: `gone` says what is missing then.
    pub fn hold(&self, id: ImageId, gone: impl FnOnce() -> Error) -> Result<PinnedImage> {
        match self.engine.store().hold(id) {
            Err(error) if error.is_missing() => Err(gone()),
            other => Ok(PinnedImage(other?)),
        }
    }

    /// A held image, checked, to be looked into: what was captured is no more to be trusted than
    /// what is read.
    pub fn look_into(&self, held: &PinnedImage) -> Result<Image> {
        Ok(self.engine.store().image(held.0.id)?)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use stasis_api::{TemplateInfo, Timestamp};
    use stasis_records::{Records, TemplateRecord};

    /// An image in name only, for tests of records.
    pub struct NamedImage(pub ImageId);

    impl HeldImage for NamedImage {
        fn id(&self) -> ImageId {
            self.0
        }
    }

    /// The id of an image that there is not.
    pub fn image(name: &str) -> ImageId {
        ImageId(*blake3::hash(name.as_bytes()).as_bytes())
    }

    /// Records a template that machines of a test may stand on.
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
