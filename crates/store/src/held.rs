//! Images as records name them.

/// An image that somebody holds, so that no collection removes it. Whatever records an image takes
/// one of these: a name alone may be that of an image which is gone by then.
pub trait HeldImage {
    fn name(&self) -> String;
}
