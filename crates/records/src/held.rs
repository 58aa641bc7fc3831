//! Images as records name them.

use stasis_image::ImageId;

/// An image in use, which no collection removes. Whatever records an image takes
/// one of these: a name alone may be that of an image which is gone by then.
pub trait HeldImage {
    fn id(&self) -> ImageId;
}
