//! The last answers to changing requests, so that a repetition gets the answer of the first (as NFS servers'
//! duplicate request caches do). They are lost when the daemon ends.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use vazao_model::Code;
use vazao_wire::service::{Answer, Fault};

/// Answers kept: many more than requests that can be under way and unanswered at a time.
const ANSWERS_MAX: usize = 8192;

#[derive(Default)]
struct Inner {
    /// By nonce; `None` while the first is being done.
    answers: HashMap<u64, Option<Answer>>,
    order: VecDeque<u64>,
}

/// The answers.
#[derive(Default)]
pub(crate) struct Replies {
    inner: Mutex<Inner>,
}

impl Replies {
    /// Does `work`, unless a request with this nonce has been answered already. A nonce of 0 is none.
    pub(crate) fn once(&self, nonce: u64, work: impl FnOnce() -> Answer) -> Answer {
        if nonce == 0 {
            return work();
        }
        {
            let mut inner = self.inner.lock();
            match inner.answers.get(&nonce) {
                Some(Some(answer)) => return answer.clone(),
                Some(None) => {
                    return Err(Fault::new(Code::Conflict, "the request is still being carried out"));
                }
                None => {}
            }
            inner.answers.insert(nonce, None);
            inner.order.push_back(nonce);
            if inner.order.len() > ANSWERS_MAX {
                let oldest = inner.order.pop_front();
                oldest.and_then(|oldest| inner.answers.remove(&oldest));
            }
        }
        let answer = work();
        let mut inner = self.inner.lock();
        if let Some(place) = inner.answers.get_mut(&nonce) {
            *place = Some(answer.clone());
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repetition_gets_the_first_answer_and_old_ones_are_forgotten() {
        let replies = Replies::default();
        let mut done = 0;
        for _ in 0..3 {
            let answer = replies.once(7, || {
                done += 1;
                Err(Code::Exists.into())
            });
            assert_eq!(answer, Err(Code::Exists.into()));
        }
        assert_eq!(done, 1);
        for nonce in 100..100 + ANSWERS_MAX as u64 {
            assert!(replies.once(nonce, || Ok(Default::default())).is_ok());
        }
        assert!(replies.once(7, || Ok(Default::default())).is_ok());
        assert_eq!(replies.inner.lock().answers.len(), ANSWERS_MAX);
    }
}
