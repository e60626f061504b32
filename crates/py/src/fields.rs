//! Fields of messages of HTTP/3, on their way to Python and back.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::Failure;

/// Adds fields to those of a message.
///
/// # Errors
/// Names the one that cannot be sent.
pub(crate) fn add_fields(
    fields: &mut http::HeaderMap,
    pairs: &[(Vec<u8>, Vec<u8>)],
) -> Result<(), Failure> {
    for (name, value) in pairs {
        let wrong = |error: &dyn std::fmt::Display| {
            let text = String::from_utf8_lossy(name);
            Failure::value("headers", format!("'{text}': {error}"))
        };
        let key = http::HeaderName::from_bytes(name).map_err(|error| wrong(&error))?;
        let value = http::HeaderValue::from_bytes(value).map_err(|error| wrong(&error))?;
        fields
            .try_append(key, value)
            .map_err(|error| wrong(&error))?;
    }
    Ok(())
}

/// Fields as they came.
pub(crate) fn raw_fields<'py>(
    py: Python<'py>,
    headers: &http::HeaderMap,
) -> Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
    let fields = headers.iter();
    fields
        .map(|(name, value)| (bytes(name.as_str().as_bytes()), bytes(value.as_bytes())))
        .collect()
}

/// Fields as text; bytes that are no text are replaced.
pub(crate) fn fields(headers: &http::HeaderMap) -> Vec<(String, String)> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let fields = headers.iter();
    fields
        .map(|(name, value)| (name.as_str().to_owned(), text(value)))
        .collect()
}
