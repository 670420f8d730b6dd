//! Which queue a thread serves next, by measured time. Pure; the text loop and the maker share it.

use std::time::Duration;

/// A loaded text model or a pipeline, as a candidate for the thread's next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queue {
    pub has_work: bool,
    /// How much of the thread's time it has had.
    pub served: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// No work: block until a command arrives.
    Wait,
    /// A step of this queue.
    Step(usize),
}

/// The queue with work that has used the least of the thread's time.
pub fn next_work(queues: &[Queue]) -> Work {
    let busy = queues
        .iter()
        .enumerate()
        .filter(|(_, queue)| queue.has_work);
    match busy.min_by_key(|(_, queue)| queue.served) {
        Some((index, _)) => Work::Step(index),
        None => Work::Wait,
    }
}

/// The initial time of a queue that becomes busy: that of the least served busy queue, so that its idle time gives no
/// advantage.
pub fn entry_level(queues: &[Queue], own: Duration) -> Duration {
    let busy = queues.iter().filter(|queue| queue.has_work);
    busy.map(|queue| queue.served)
        .min()
        .map_or(own, |least| own.max(least))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Queue, Work, entry_level, next_work};

    fn queue(has_work: bool, millis: u64) -> Queue {
        Queue {
            has_work,
            served: Duration::from_millis(millis),
        }
    }

    #[test]
    fn whoever_had_the_least_is_next() {
        assert_eq!(next_work(&[]), Work::Wait);
        assert_eq!(next_work(&[queue(false, 0)]), Work::Wait);
        assert_eq!(
            next_work(&[queue(false, 0), queue(true, 9), queue(true, 7)]),
            Work::Step(2)
        );
    }

    #[test]
    fn two_busy_queues_get_equal_time_whatever_their_steps_cost() {
        let mut queues = [queue(true, 0), queue(true, 0)];
        for _ in 0..1000 {
            if let Work::Step(index) = next_work(&queues) {
                queues[index].served += Duration::from_millis([3, 40][index]);
            }
        }
        let [first, second] = queues.map(|queue| queue.served.as_millis());
        assert!(first.abs_diff(second) <= 40, "{first} {second}");
    }

    #[test]
    fn a_rest_is_not_made_up_for() {
        let queues = [queue(true, 500), queue(false, 10)];
        assert_eq!(
            entry_level(&queues, Duration::from_millis(10)),
            Duration::from_millis(500)
        );
        assert_eq!(
            entry_level(&queues[1..], Duration::from_millis(10)),
            Duration::from_millis(10)
        );
    }
}
