//! The nucleus: the fewest best tokens whose weights sum to `top_p` (Holtzman et al. 2020).
//!
//! Only a few tokens are sorted. Tokens are put into buckets by their distance from the best; the buckets' weights
//! determine the bucket where `top_p` is reached, which is searched by buckets again if it is large. Buckets preserve
//! the order of logits, and equal logits share a bucket, so that the cut is exact.

use super::candidates::Candidate;

const BUCKETS: usize = 256;
const LAST: f32 = BUCKETS as f32 - 1.0;

/// Tokens compared together: if none is near the best, all are skipped at once.
const LANES: usize = 16;

/// Weights are summed in several copies, because neighbours often share a bucket and would depend on each other.
const COPIES: usize = 8;

/// Up to this many candidates, sorting is faster than another pass of buckets.
const FEW: usize = 64;

/// Below `e^-87.5` times the best a weight is 0 in any case.
const FARTHEST: f64 = 87.5;

/// How much heavier than the mean token outside the nucleus its last one is guessed to be; above 1 by necessity,
/// above 10 with all but the flattest logits.
const LAST_TO_MEAN: f64 = 8.0;

/// Parameters of the weights, and their sum.
#[derive(Debug, Clone, Copy)]
pub struct Weighing {
    pub best: f32,
    pub scale: f32,
    pub total: f64,
}

/// Sets to 0 the weights of tokens that equal the last of the nucleus but come after it, and returns the least logit in
/// the nucleus: the caller drops everything below.
pub fn cut(
    logits: &[f32],
    weights: &mut [f32],
    weighing: Weighing,
    top_p: f64,
    open: &mut Vec<Candidate>,
) -> f32 {
    let wanted = top_p * weighing.total;
    let outside = (1.0 - top_p) * weighing.total / logits.len() as f64;
    let guess = -(LAST_TO_MEAN * outside).ln();
    let mut buckets = Buckets::up_to(guess.clamp(1.0, FARTHEST), weighing);
    let (mut bucket, mut above) = edge(&buckets.masses(logits, weights), wanted);
    if bucket == BUCKETS as u32 - 1 {
        buckets = Buckets::up_to(FARTHEST, weighing);
        (bucket, above) = edge(&buckets.masses(logits, weights), wanted);
    }
    buckets.gather(bucket, logits, weights, open);
    let Some(last) = last_of_nucleus(open, wanted - above) else {
        return f32::NEG_INFINITY;
    };
    for equal in open.iter().filter(|other| other.rank(&last).is_gt()) {
        weights[equal.id as usize] = 0.0;
    }
    last.logit
}

/// Keeps the candidates in their nucleus, at least one. `open` is scratch memory.
pub fn keep(candidates: &mut Vec<Candidate>, top_p: f64, open: &mut Vec<Candidate>) {
    let total: f64 = candidates.iter().map(|c| f64::from(c.weight)).sum();
    open.clone_from(candidates);
    if let Some(last) = last_of_nucleus(open, top_p * total) {
        candidates.retain(|candidate| candidate.rank(&last).is_le());
    }
}

/// The last candidate of the nucleus, where the cumulative weight is reached. Leaves the candidates that had to be
/// compared, among them all equal ones.
fn last_of_nucleus(open: &mut Vec<Candidate>, mut wanted: f64) -> Option<Candidate> {
    while open.len() > FEW
        && let Some(buckets) = Buckets::over(open)
    {
        let mut masses = [0.0; BUCKETS];
        for candidate in &*open {
            masses[buckets.of(candidate.logit) as usize] += f64::from(candidate.weight);
        }
        let (edge, above) = edge(&masses, wanted);
        open.retain(|candidate| buckets.of(candidate.logit) == edge);
        wanted -= above;
    }
    open.sort_unstable_by(Candidate::rank);
    let mut weight = 0.0;
    let reaches = |candidate: &&Candidate| {
        weight += f64::from(candidate.weight);
        weight >= wanted
    };
    open.iter().find(reaches).or(open.last()).copied()
}

/// The bucket where the cumulative weight is reached, and the weight of the buckets before it.
fn edge(masses: &[f64; BUCKETS], wanted: f64) -> (u32, f64) {
    let mut above = 0.0;
    for (bucket, mass) in (0..).zip(&masses[..BUCKETS - 1]) {
        if above + mass >= wanted {
            return (bucket, above);
        }
        above += mass;
    }
    (BUCKETS as u32 - 1, above)
}

#[derive(Clone, Copy)]
struct Buckets {
    best: f32,
    per_logit: f32,
}

impl Buckets {
    /// Buckets for weights down to `e^-farthest` of the best, and the last for the rest.
    fn up_to(farthest: f64, weighing: Weighing) -> Self {
        Self {
            best: weighing.best,
            per_logit: weighing.scale * LAST / farthest as f32,
        }
    }

    /// Buckets from the best candidate to the worst; none where they are equal.
    fn over(candidates: &[Candidate]) -> Option<Self> {
        let logits = candidates.iter().map(|candidate| candidate.logit);
        let best = logits.clone().fold(f32::NEG_INFINITY, f32::max);
        let per_logit = LAST / (best - logits.fold(f32::INFINITY, f32::min));
        let is_usable = per_logit.is_finite() && per_logit > 0.0;
        is_usable.then_some(Self { best, per_logit })
    }

    /// Distance in buckets; beyond the last bucket for tokens that cannot be in the nucleus.
    #[inline(always)]
    fn distance(self, logit: f32) -> f32 {
        (self.best - logit) * self.per_logit
    }

    #[inline(always)]
    fn of(self, logit: f32) -> u32 {
        // Adding 2^23 leaves the rounded integer in the low bits.
        const ROUND: f32 = 8_388_608.0;
        let distance = self.distance(logit);
        let within = if distance < LAST { distance } else { LAST };
        (within + ROUND).to_bits() & (BUCKETS as u32 - 1)
    }

    /// The weight in each bucket, but for tokens that cannot be in the nucleus.
    fn masses(self, logits: &[f32], weights: &[f32]) -> [f64; BUCKETS] {
        let mut masses = [[0.0_f64; BUCKETS]; COPIES];
        let (logits, last_logits) = logits.as_chunks::<LANES>();
        let (weights, last_weights) = weights.as_chunks::<LANES>();
        for (logits, weights) in logits.iter().zip(weights) {
            if any(logits, |logit| self.distance(logit) < LAST) {
                let mut buckets = [0; LANES];
                for lane in 0..LANES {
                    buckets[lane] = self.of(logits[lane]);
                }
                for lane in 0..LANES {
                    masses[lane % COPIES][buckets[lane] as usize] += f64::from(weights[lane]);
                }
            }
        }
        for (&logit, &weight) in last_logits.iter().zip(last_weights) {
            masses[0][self.of(logit) as usize] += f64::from(weight);
        }
        std::array::from_fn(|bucket| masses.iter().map(|copy| copy[bucket]).sum())
    }

    /// Collects the tokens of a bucket that have a weight above 0.
    fn gather(self, bucket: u32, logits: &[f32], weights: &[f32], found: &mut Vec<Candidate>) {
        found.clear();
        let is_in = |logit: f32| self.of(logit) == bucket;
        let mut look = |first: usize, logits: &[f32]| {
            let tokens = (first..).zip(logits).filter(|(_, logit)| is_in(**logit));
            found.extend(tokens.filter_map(|(id, &logit)| {
                let (id, weight) = (id as u32, weights[id]);
                (weight > 0.0).then_some(Candidate { id, logit, weight })
            }));
        };
        let (chunks, rest) = logits.as_chunks::<LANES>();
        for (chunk, logits) in chunks.iter().enumerate() {
            if any(logits, is_in) {
                look(chunk * LANES, logits);
            }
        }
        look(chunks.len() * LANES, rest);
    }
}

/// Without a branch, so that the compiler makes vector code of it.
#[inline(always)]
fn any(logits: &[f32; LANES], test: impl Fn(f32) -> bool) -> bool {
    logits
        .iter()
        .fold(false, |found, &logit| found | test(logit))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_oneof, proptest};
    use proptest::strategy::{Just, Strategy};

    use super::super::numbers::{drop_below, weigh};
    use super::{Candidate, Weighing, cut, keep};

    /// The nucleus by its definition, in the order of ids.
    fn by_sorting(logits: &[f32], weights: &[f32], wanted: f64) -> Vec<u32> {
        let candidate = |((id, &logit), &weight)| Candidate { id, logit, weight };
        let mut all: Vec<_> = (0..).zip(logits).zip(weights).map(candidate).collect();
        all.retain(|candidate| candidate.weight > 0.0);
        all.sort_by(Candidate::rank);
        let mut sum = 0.0;
        let reaches = |candidate: &Candidate| {
            sum += f64::from(candidate.weight);
            sum >= wanted
        };
        let last = all.iter().position(reaches).unwrap_or(all.len() - 1);
        let mut ids: Vec<u32> = all[..=last].iter().map(|candidate| candidate.id).collect();
        ids.sort_unstable();
        ids
    }

    fn check(logits: &[f32], scale: f32, top_p: f64) {
        let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut weights = Vec::new();
        let total = weigh(logits, best, scale, 0.0, &mut weights).total();
        let wanted = by_sorting(logits, &weights, top_p * total);

        let candidate = |((id, &logit), &weight)| Candidate { id, logit, weight };
        let mut few: Vec<_> = (0..).zip(logits).zip(&weights).map(candidate).collect();
        few.retain(|candidate| candidate.weight > 0.0);
        let exact_total: f64 = few.iter().map(|c| f64::from(c.weight)).sum();
        let wanted_of_few = by_sorting(logits, &weights, top_p * exact_total);
        keep(&mut few, top_p, &mut Vec::new());
        let found: Vec<u32> = few.iter().map(|candidate| candidate.id).collect();
        assert_eq!(found, wanted_of_few, "few, {top_p}");

        let weighing = Weighing { best, scale, total };
        let least = cut(logits, &mut weights, weighing, top_p, &mut Vec::new());
        drop_below(least, 0.0, logits, &mut weights);
        let is_heavy = |id: &u32| weights[*id as usize] > 0.0;
        let found: Vec<u32> = (0..logits.len() as u32).filter(is_heavy).collect();
        assert_eq!(found, wanted, "all, {top_p}");
    }

    /// Coarse steps for ties, one flat stretch, masked tokens.
    fn logit() -> impl Strategy<Value = f32> {
        prop_oneof![
            8 => (-20..4_i32).prop_map(|step| step as f32 / 4.0),
            4 => -9.0..9.0_f32,
            4 => 2.0..2.001_f32,
            1 => Just(f32::NEG_INFINITY),
        ]
    }

    proptest! {
        #[test]
        fn the_nucleus_is_the_one_that_sorting_finds(
            logits in proptest::collection::vec(logit(), 1..2000),
            scale in prop_oneof![Just(1.0_f32), 0.01..100.0_f32],
            // Sums in another order differ in their last digits, so that shares which sums hit exactly are left out.
            top_p in 0.0..1.0_f64,
            masked in any::<bool>(),
        ) {
            let mut logits = logits;
            logits[0] = if masked { 3.0 } else { logits[0].max(-1.0) };
            check(&logits, scale, top_p);
        }
    }

    #[test]
    fn the_edges_of_the_share_are_the_best_token_and_all_tokens() {
        let logits: Vec<f32> = (0..500).map(|id| (id % 100) as f32 / 10.0).collect();
        for top_p in [0.0, 1e-9, 0.999_999, 1.0 - 1e-12] {
            check(&logits, 1.0, top_p);
            check(&logits, 0.01, top_p);
        }
    }

    #[test]
    fn among_equals_the_lower_ids_are_in_the_nucleus() {
        check(&[1.5; 1000], 1.0, 0.25);
        check(&[0.0, -0.0, 0.0, -0.0], 1.0, 0.6);
    }
}
