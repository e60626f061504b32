//! [`Input`]: bytes that Python gives, and [`fill`]: memory that it lends.
//!
//! The crate's only unsafe code: whatever has the buffer protocol is used where it lies.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Something with bytes.
pub(crate) enum Input<'py> {
    Bytes(Bound<'py, PyBytes>),
    Buffer(PyUntypedBuffer),
}

impl<'py> Input<'py> {
    /// # Errors
    /// When `data` has no bytes, or has them here and there.
    pub(crate) fn of(argument: &str, data: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = data.cast::<PyBytes>() {
            return Ok(Self::Bytes(bytes.clone()));
        }
        let buffer = buffer(argument, data, "a bytes-like object is required")?;
        Ok(Self::Buffer(buffer))
    }

    /// For the length of one call that runs no Python code.
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes.as_bytes(),
            Self::Buffer(buffer) if buffer.len_bytes() == 0 => &[],
            Self::Buffer(buffer) => {
                let (start, len) = (buffer.buf_ptr().cast::<u8>(), buffer.len_bytes());
                // SAFETY: the exporter keeps so many contiguous bytes in their place while the buffer is held
                // (`buffer` checked that they are contiguous); callers are attached to the interpreter and run
                // no Python code, so that nobody writes meanwhile but who breaks Python's own rules.
                unsafe { std::slice::from_raw_parts(start, len) }
            }
        }
    }
}

/// Has `f` fill the memory of `target`.
///
/// # Errors
/// When `target` cannot be written.
pub(crate) fn fill<R>(
    argument: &str,
    target: &Bound<'_, PyAny>,
    f: impl FnOnce(&mut [u8]) -> R,
) -> PyResult<R> {
    let required = "a writable bytes-like object is required";
    let buffer = buffer(argument, target, required)?;
    if buffer.readonly() {
        let words = format!("argument '{argument}': {required}, and this one is read-only");
        return Err(PyTypeError::new_err(words));
    }
    if buffer.len_bytes() == 0 {
        return Ok(f(&mut []));
    }
    let (start, len) = (buffer.buf_ptr().cast::<u8>(), buffer.len_bytes());
    // SAFETY: as in `Input::as_slice`; the exporter said that the memory may be written.
    let memory = unsafe { std::slice::from_raw_parts_mut(start, len) };
    Ok(f(memory))
}

fn buffer(argument: &str, object: &Bound<'_, PyAny>, required: &str) -> PyResult<PyUntypedBuffer> {
    let Ok(buffer) = PyUntypedBuffer::get(object) else {
        let kind = object.get_type().name()?;
        let words = format!("argument '{argument}': {required}, not '{kind}'");
        return Err(PyTypeError::new_err(words));
    };
    if !buffer.is_c_contiguous() {
        let words = format!("argument '{argument}': its bytes are not contiguous");
        return Err(PyBufferError::new_err(words));
    }
    Ok(buffer)
}
