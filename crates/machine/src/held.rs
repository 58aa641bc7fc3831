//! Images that are held, as the records take them.

use crate::error::{Error, Result};
use crate::host::Inner;
use crate::live::parse_image;
use stasis_engine::Image;
use stasis_store::HeldImage;

/// An image that no collection removes while this lives.
#[derive(Clone)]
pub(crate) struct Held(pub Image);

impl HeldImage for Held {
    fn name(&self) -> String {
        self.0.id.to_string()
    }
}

impl Inner {
    /// Holds an image that a record named a moment ago. The record may have been given up and the
    /// image collected since: `gone` says what is missing then.
    pub fn hold(&self, name: &str, gone: impl FnOnce() -> Error) -> Result<Held> {
        match self.engine.store().hold(parse_image(name)?) {
            Err(error) if error.is_missing() => Err(gone()),
            other => Ok(Held(other?)),
        }
    }

    /// A held image, checked, to be looked into: what was captured is no more to be trusted than
    /// what is read.
    pub fn look_into(&self, held: &Held) -> Result<Image> {
        Ok(self.engine.store().image(held.0.id)?)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use stasis_api::{Template, Timestamp};
    use stasis_store::{Store, TemplateRecord};

    /// An image in name only, for tests of records.
    pub struct Named(pub String);

    impl HeldImage for Named {
        fn name(&self) -> String {
            self.0.clone()
        }
    }

    /// Records a template that machines of a test may stand on.
    pub fn add_template(store: &Store, digest: &str) {
        let template = Template {
            name: digest.into(),
            digest: digest.into(),
            created_at: Timestamp::UNIX_EPOCH,
            language: "python".into(),
            version: String::new(),
            recipe: String::new(),
            image: "start".into(),
            root: String::new(),
        };
        let record = TemplateRecord { template, details: serde_json::Value::Null };
        store.add_template(&record, &Named("start".into())).expect("a template");
    }
}
