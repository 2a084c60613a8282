//! One call at a time about one thing: another is sent away, to come again.

use std::collections::BTreeSet;
use std::sync::Mutex;

use tonic::Status;

/// What calls are about now.
#[derive(Default)]
pub struct Turns(Mutex<BTreeSet<String>>);

/// A call that is the only one about a thing while this is held.
pub struct Turn<'a> {
    turns: &'a Turns,
    about: String,
}

impl Turns {
    /// The turn of a call about a thing.
    pub fn take(&self, about: &str) -> Result<Turn<'_>, Status> {
        let about = about.to_owned();
        let is_first = self.0.lock().is_ok_and(|mut all| all.insert(about.clone()));
        if is_first {
            return Ok(Turn { turns: self, about });
        }
        Err(Status::aborted(format!("another call is about {about}")))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Ok(mut all) = self.turns.0.lock() {
            all.remove(&self.about);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Turns;

    #[test]
    fn one_call_at_a_time_is_about_a_thing() {
        let turns = Turns::default();
        let first = turns.take("a").unwrap();
        assert!(turns.take("a").is_err() && turns.take("b").is_ok());
        drop(first);
        assert!(turns.take("a").is_ok());
    }
}
