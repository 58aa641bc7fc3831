//! Reads a request's body to its end, even if the handler does not.
//!
//! If a handler answers before the body is read, the next request on the connection cannot be
//! found, and the connection would be closed on a correct client. A short rest of the body is
//! therefore read and dropped; for a long one the connection is closed.

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

const SHORT: u64 = 64 << 10;
const IN_TIME: Duration = Duration::from_secs(10);

pub struct WholeBody(Option<Incoming>);

impl WholeBody {
    pub fn new(body: Incoming) -> WholeBody {
        WholeBody(Some(body))
    }
}

impl Body for WholeBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.0 {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map(Incoming::size_hint).unwrap_or_default()
    }
}

impl Drop for WholeBody {
    fn drop(&mut self) {
        let Some(mut body) = self.0.take().filter(|body| !body.is_end_stream()) else { return };
        let short = body.size_hint().upper().is_some_and(|size| size <= SHORT);
        let Some(runtime) = tokio::runtime::Handle::try_current().ok().filter(|_| short) else {
            return;
        };
        runtime.spawn(tokio::time::timeout(IN_TIME, async move {
            while let Some(Ok(_)) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
            {
            }
        }));
    }
}
