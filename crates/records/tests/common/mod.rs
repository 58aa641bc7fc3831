//! Records to write, the same in every test program.

use stasis_api::{Checkpoints, Durability, Limits, Network, TemplateInfo, Timestamp};
use stasis_image::ImageId;
use stasis_records::{NewRecord, TemplateRecord};

/// A machine of the account `a`, made of [`template`].
pub fn record(name: &str) -> NewRecord {
    NewRecord {
        name: name.parse().expect("a name"),
        account: "a".into(),
        template: "t".into(),
        created_at: Timestamp::UNIX_EPOCH,
        expires_at: None,
        tags: Default::default(),
        limits: Limits::default(),
        env: Default::default(),
        durability: Durability::Local,
        checkpoints: Checkpoints::Exact,
        network: Network::None,
        parent: None,
        parent_id: None,
        reseed: false,
        retention: None,
    }
}

/// The template `t`, whose image is [`start`].
pub fn template() -> TemplateRecord {
    let template = TemplateInfo {
        name: "python".into(),
        digest: "t".into(),
        created_at: Timestamp::UNIX_EPOCH,
        language: "python".into(),
        version: String::new(),
        recipe: String::new(),
        image: start().to_string(),
        root: String::new(),
    };
    TemplateRecord { template, image: start(), details: serde_json::Value::Null }
}

pub fn start() -> ImageId {
    ImageId::of(b"start")
}
