//! The answer of a tool: text for people and models, the same as data, and images.

use crate::error::Error;
use crate::output::RunOutput;
use crate::text::{MAX_TEXT, cut};
use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use serde::Serialize;
use stasis_api::{Data, Outcome};

/// Maximum images of one result, and bytes of base64 in all of them.
const MAX_IMAGES: usize = 16;
const MAX_IMAGE_BYTES: usize = 12 << 20;
const IMAGE_KINDS: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

pub struct Answer<T> {
    pub data: T,
    pub text: String,
    pub images: Vec<Base64Image>,
    pub failed: bool,
}

/// A picture in base64.
#[derive(Debug, Clone, PartialEq)]
pub struct Base64Image {
    pub kind: &'static str,
    pub base64: String,
}

impl<T> Answer<T> {
    pub fn new(data: T, text: impl Into<String>) -> Answer<T> {
        Answer { data, text: text.into(), images: Vec::new(), failed: false }
    }
}

impl<T: Serialize> Answer<T> {
    pub fn into_result(self) -> CallToolResult {
        // text first: a client that shows one item shows the outcome
        let mut content = vec![ContentBlock::text(self.text)];
        let images = self.images.into_iter();
        content.extend(images.map(|image| ContentBlock::image(image.base64, image.kind)));
        let mut result = match self.failed {
            true => CallToolResult::error(content),
            false => CallToolResult::success(content),
        };
        result.structured_content = serde_json::to_value(&self.data).ok();
        result
    }
}

impl Answer<RunOutput> {
    /// A finished instruction, as a result.
    pub fn ran(ran: RunOutput, images: Vec<Base64Image>) -> Answer<RunOutput> {
        let failed = ran.error.is_some() || ran.status != "done";
        let text = ran.text();
        Answer { data: ran, text, images, failed }
    }
}

/// A call that failed before or beside an instruction. It has no structured content, because that
/// would not match the tool's output schema.
pub fn failure(error: &Error) -> CallToolResult {
    let body = error.body();
    let hint = body.hint.as_deref().map(|hint| format!("\n{hint}")).unwrap_or_default();
    let text = format!("error[{}]: {}{hint}", body.code, body.message);
    let mut result = CallToolResult::error(vec![ContentBlock::text(cut(&text, MAX_TEXT, "logs"))]);
    if let Ok(serde_json::Value::Object(body)) = serde_json::to_value(&body) {
        let mut meta = MetaObject::default();
        meta.insert("stasis/error".into(), body.into());
        result.meta = Some(meta);
    }
    result
}

/// The images of an outcome, displayed ones first, and the number that did not fit.
pub fn images(outcome: &Outcome) -> (Vec<Base64Image>, usize) {
    let shown = outcome.shown.iter().map(|shown| &shown.data);
    let all = shown.chain(&outcome.data).filter_map(image);
    let (mut kept, mut bytes, mut left_out) = (Vec::new(), 0, 0);
    for image in all {
        if kept.contains(&image) {
            continue;
        }
        bytes += image.base64.len();
        if kept.len() < MAX_IMAGES && bytes <= MAX_IMAGE_BYTES {
            kept.push(image);
        } else {
            left_out += 1;
        }
    }
    (kept, left_out)
}

fn image(data: &Data) -> Option<Base64Image> {
    let found = IMAGE_KINDS.iter().find_map(|kind| Some((*kind, data.get(*kind)?.as_str()?)));
    found.map(|(kind, base64)| Base64Image { kind, base64: base64.split_whitespace().collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stasis_api::Shown;

    fn png(content: &str) -> Data {
        Data::from([("image/png".to_owned(), content.into())])
    }

    #[test]
    fn shown_first_and_each_once() {
        let shown =
            vec![Shown { after: 0, data: png("AAA\n") }, Shown { after: 0, data: png("B") }];
        let outcome = Outcome { shown, data: Some(png("AAA")), ..Outcome::default() };
        let (images, left_out) = images(&outcome);
        let content: Vec<_> = images.iter().map(|image| image.base64.as_str()).collect();
        assert_eq!((content, left_out), (vec!["AAA", "B"], 0));
    }

    #[test]
    fn too_many_are_counted() {
        let shown = (0..20).map(|n| Shown { after: 0, data: png(&n.to_string()) }).collect();
        let (images, left_out) = images(&Outcome { shown, ..Outcome::default() });
        assert_eq!((images.len(), left_out), (MAX_IMAGES, 4));
    }
}
