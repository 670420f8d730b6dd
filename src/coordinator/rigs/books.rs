//! What ended jobs say about the workers that had them. It is noted after the job was settled, so that nobody is
//! praised for what was not written down.

use crate::coordinator::dispatch::{Facts, Outcome};
use crate::coordinator::metering::Counted;
use crate::coordinator::switchboard::Books;
use crate::protocol::job::{Kudos, WorkerId};
use crate::protocol::legacy::words::Trade;

use super::live::Feat;
use super::records::Records;

/// The same books, and the workers' records beside them.
pub fn books(books: Books, records: Records) -> Books {
    Books::new(move |facts, counted| {
        let (books, records) = (books.clone(), records.clone());
        let note = Note::of(&facts, counted);
        async move {
            let reward = books.settle(facts, counted).await?;
            note.add_to(&records, reward);
            Ok(reward)
        }
    })
}

#[derive(Debug)]
struct Note {
    made_by: Option<(WorkerId, Feat)>,
    dropped: Vec<WorkerId>,
}

impl Note {
    fn of(facts: &Facts, counted: Counted) -> Self {
        let delivered = matches!(facts.outcome, Outcome::Delivered { .. });
        let last = facts.parts.last().filter(|_| delivered);
        Self {
            made_by: last.map(|part| (part.worker, feat(facts, counted))),
            dropped: facts.dropped.clone(),
        }
    }

    fn add_to(self, records: &Records, reward: Kudos) {
        if let Some((worker, feat)) = self.made_by {
            records.add(worker, Feat { reward, ..feat });
        }
        for worker in self.dropped {
            records.dropped(worker);
        }
    }
}

fn feat(facts: &Facts, counted: Counted) -> Feat {
    let took = facts
        .timing
        .queued
        .map(|queued| facts.timing.total.saturating_sub(queued));
    Feat {
        trade: Trade::of(facts.job.kind),
        reward: Kudos(0),
        work: facts.job.work(counted.output_tokens),
        together: facts.parts.last().map_or(1, |part| part.together),
        took: took.filter(|_| facts.attempts == 1),
    }
}
