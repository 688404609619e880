//! What a call came to, as the lines of an answer.

use super::workers::Outcome;
use crate::interface::Method;
use crate::line::{self, CharForm, ERROR};
use crate::server::Options;

/// Writes an answer. False when it is an error.
pub(super) fn write(
    method: &Method,
    outcome: &Outcome,
    form: CharForm,
    options: &Options,
    out: &mut Vec<u8>,
) -> bool {
    let begun = out.len();
    let problem = match outcome {
        Ok(values) => misfit(method, values).or_else(|| write_values(method, values, form, options, out)),
        Err(problem) => Some(problem.clone()),
    };
    let Some(problem) = problem else { return true };
    out.truncate(begun);
    line::write_error(&problem, out);
    false
}

/// Writes the lines of an answer; what is wrong with them when they are more than clients read.
fn write_values(
    method: &Method,
    values: &[crate::Value],
    form: CharForm,
    options: &Options,
    out: &mut Vec<u8>,
) -> Option<String> {
    let begun = out.len();
    for (number, value) in values.iter().enumerate() {
        let at = out.len();
        line::write(value, form, out);
        // Without the line's end, as lines are counted where they are read.
        let (bytes, most) = (out.len() - at - 1, options.line_bytes_max);
        if bytes > most {
            let number = number + 1;
            return Some(format!(
                "{}: value {number} of the answer has {bytes} bytes, more than {most} of a line; ask for less",
                method.name
            ));
        }
    }
    let (bytes, most) = (out.len() - begun, options.message_bytes_max);
    (bytes > most)
        .then(|| format!("{}: the answer has {bytes} bytes, more than {most}; ask for less", method.name))
}

/// What is wrong with the values of an answer: a defect of the service, which a caller can do nothing about.
fn misfit(method: &Method, values: &[crate::Value]) -> Option<String> {
    let count = method.answered().count();
    if count != values.len() {
        let answered = values.len();
        return Some(format!(
            "the server has answered {} with {answered} values instead of {count}",
            method.signature()
        ));
    }
    for (number, (kind, value)) in method.answered().zip(values).enumerate() {
        if !value.is(kind) {
            let given = value.kind();
            return Some(format!(
                "the server has answered {} with a {given} as value {} instead of a {kind}",
                method.signature(),
                number + 1
            ));
        }
        if value.number().is_some_and(|number| !number.is_finite()) {
            let number = number + 1;
            return Some(format!(
                "the server has answered {} with value {number} not finite",
                method.signature()
            ));
        }
    }
    // Some libraries quote errors: their clients cannot tell such a string from one.
    let is_ambiguous =
        values.first().and_then(|value| value.bytes()).is_some_and(|bytes| bytes.starts_with(ERROR));
    is_ambiguous.then(|| {
        format!("the result of {} begins like an error, and clients would take it for one; return it as an out argument", method.name)
    })
}
