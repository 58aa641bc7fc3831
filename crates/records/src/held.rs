//! Images as records name them.

use stasis_image::ImageId;

/// An image in use, which no collection removes. Every change that records an image takes one of
/// these: the image of a bare name may already have been removed.
pub trait HeldImage {
    fn id(&self) -> ImageId;
}
