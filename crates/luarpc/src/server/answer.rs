//! What a call came to, as the lines of an answer.

use super::workers::Outcome;
use crate::interface::Method;
use crate::line::{self, CharForm, ERROR};

/// Writes an answer. False when it is an error.
pub(super) fn write(
    method: &Method,
    outcome: &Outcome,
    form: CharForm,
    bytes_max: usize,
    out: &mut Vec<u8>,
) -> bool {
    let begun = out.len();
    let problem = match outcome {
        Ok(values) => {
            let problem = misfit(method, values);
            if problem.is_none() {
                values.iter().for_each(|value| line::write(value, form, out));
            }
            let bytes = out.len() - begun;
            let too_long = || {
                format!("{}: the answer has {bytes} bytes, more than {bytes_max}; ask for less", method.name)
            };
            problem.or_else(|| (bytes > bytes_max).then(too_long))
        }
        Err(problem) => Some(problem.clone()),
    };
    let Some(problem) = problem else { return true };
    out.truncate(begun);
    line::write_error(&problem, out);
    false
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
    }
    // Some libraries quote errors: their clients cannot tell such a string from one.
    let is_ambiguous =
        values.first().and_then(|value| value.bytes()).is_some_and(|bytes| bytes.starts_with(ERROR));
    is_ambiguous.then(|| {
        format!("the result of {} begins like an error, and clients would take it for one; return it as an out argument", method.name)
    })
}
