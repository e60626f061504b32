//! [`SendStream`]: the sending half of a stream.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use pyo3::prelude::*;
use towline::handles::Waiter;

use crate::errors::{Codes, Failure};
use crate::hub::{Hub, lock};
use crate::input::Input;

/// The sending half of a stream.
#[pyclass(frozen, module = "towline._native")]
pub(crate) struct SendStream {
    hub: Arc<Hub>,
    /// With who waits for the peer to stop it; `None` once it was released.
    stream: Mutex<Option<(towline::SendStream, Waiter)>>,
    codes: Codes,
    /// The turn of who waits for the end; made when somebody does.
    end: Mutex<Option<Box<Waiter>>>,
    /// Called when a write that was blocked is worth another try, or the end is.
    #[pyo3(get)]
    token: u64,
    /// Called when the peer stops the stream, or has all of it.
    #[pyo3(get)]
    stopped_token: u64,
    waker: Waker,
    #[pyo3(get)]
    id: u64,
}

impl SendStream {
    pub(crate) fn new(hub: &Arc<Hub>, stream: towline::SendStream, codes: Codes) -> Self {
        let token = hub.tokens(2);
        Self {
            hub: Arc::clone(hub),
            token,
            stopped_token: token + 1,
            waker: hub.waker(token),
            id: stream.id().as_u64(),
            stream: Mutex::new(Some((stream, Waiter::new()))),
            codes,
            end: Mutex::default(),
        }
    }

    fn with<R>(
        &self,
        f: impl FnOnce(&mut towline::SendStream) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.with_waiter(|stream, _| f(stream))
    }

    fn with_waiter<R>(
        &self,
        f: impl FnOnce(&mut towline::SendStream, &mut Waiter) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.hub.check()?;
        match lock(&self.stream).as_mut() {
            Some((stream, waiter)) => f(stream, waiter),
            None => {
                let words = "the stream was finished or reset by this end";
                Err(Failure::StreamOver(words.to_owned()))
            }
        }
    }
}

#[pymethods]
impl SendStream {
    /// Writes what fits of `data` from `offset` on. `None` when that is all; else where to go on once
    /// the token is called.
    #[pyo3(signature = (data, offset=0))]
    fn write(&self, data: &Bound<'_, PyAny>, offset: usize) -> PyResult<Option<usize>> {
        let input = Input::of("data", data)?;
        let bytes = input.as_slice();
        let written = self.with(|stream| {
            let mut cx = Context::from_waker(&self.waker);
            let mut at = offset.min(bytes.len());
            while at < bytes.len() {
                match stream.poll_write(&mut cx, &bytes[at..]) {
                    Poll::Ready(Ok(written)) => at += written,
                    Poll::Ready(Err(error)) => return Err(Failure::of_write(self.codes, error)),
                    Poll::Pending => return Ok(Some(at)),
                }
            }
            Ok(None)
        });
        written.map_err(|failure| failure.raise(data.py()))
    }

    /// Ends the stream.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let finished = self.with(|stream| {
            let finished = stream.finish();
            finished.map_err(|error| Failure::of_write(self.codes, error))
        });
        finished.map_err(|failure| failure.raise(py))
    }

    /// Ends the stream, and says whether the peer has all of it; `None`: the token will be called.
    fn poll_finished(&self, py: Python<'_>) -> PyResult<Option<bool>> {
        let finished = self.with(|stream| {
            let mut end = lock(&self.end);
            let mut cx = Context::from_waker(&self.waker);
            match stream.poll_finished(end.get_or_insert_default(), &mut cx) {
                Poll::Ready(Ok(())) => Ok(Some(true)),
                Poll::Ready(Err(error)) => Err(Failure::of_write(self.codes, error)),
                Poll::Pending => Ok(None),
            }
        });
        finished.map_err(|failure| failure.raise(py))
    }

    /// Gives the stream up.
    fn reset(&self, py: Python<'_>, code: u64) -> PyResult<()> {
        let reset = self.with(|stream| {
            stream.reset(code);
            Ok(())
        });
        reset.map_err(|failure| failure.raise(py))
    }

    /// Whether the peer has stopped the stream, with the code, or will not, since it has all of it or
    /// this end gave it up; `None` while neither is: the token will be called.
    fn poll_stopped(&self, py: Python<'_>) -> PyResult<Option<(bool, Option<u64>)>> {
        let waker = self.hub.waker(self.stopped_token);
        let stopped = self.with_waiter(|stream, waiter| {
            match stream.poll_stopped(waiter, &mut Context::from_waker(&waker)) {
                Poll::Ready(Ok(Some(code))) => Ok(Some((true, self.codes.own(code)))),
                Poll::Ready(Ok(None)) => Ok(Some((false, None))),
                Poll::Ready(Err(error)) => Err(Failure::of_connection(&error)),
                Poll::Pending => Ok(None),
            }
        });
        stopped.map_err(|failure| failure.raise(py))
    }

    /// How urgent the stream is among those of its session.
    fn set_send_order(&self, py: Python<'_>, send_order: i64) -> PyResult<()> {
        let set = self.with(|stream| {
            let set = stream.set_priority(send_order);
            set.map_err(|error| Failure::of_write(self.codes, error))
        });
        set.map_err(|failure| failure.raise(py))
    }

    /// Which streams of its connection it shares with: groups get alike, and orders count inside one.
    fn set_send_group(&self, py: Python<'_>, send_group: u32) -> PyResult<()> {
        let set = self.with(|stream| {
            let set = stream.set_send_group(send_group);
            set.map_err(|error| Failure::of_write(self.codes, error))
        });
        set.map_err(|failure| failure.raise(py))
    }

    /// Lets the stream go: one that was not finished is reset.
    fn release(&self) {
        self.drop_now();
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        if self.drop_now() {
            self.hub.ring();
        }
    }
}

impl SendStream {
    /// True if there was something to drop.
    fn drop_now(&self) -> bool {
        let stream = lock(&self.stream).take();
        let end = lock(&self.end).take();
        self.hub.drop_handle(stream.map(|stream| (end, stream)))
    }
}
