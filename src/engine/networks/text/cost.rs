//! Lower bounds of a step's cost: bytes of memory traffic, and operations.

use super::decoder::Decoder;
use muster_kernels::{AttentionReach, KvDtype, Span};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepCost {
    /// Weights read once, keys and values read and written once.
    pub bytes: u64,
    /// Multiplications and additions.
    pub operations: u64,
}

impl Decoder {
    /// The cost of a step with these spans and this many rows of logits.
    pub fn step_cost(&self, spans: &[Span], logit_rows: usize, kv_dtype: KvDtype) -> StepCost {
        StepCost {
            bytes: self.step_bytes(spans, logit_rows, kv_dtype),
            operations: self.step_operations(spans, logit_rows),
        }
    }

    fn step_bytes(&self, spans: &[Span], logit_rows: usize, kv_dtype: KvDtype) -> u64 {
        let rows = spans.iter().map(|span| span.new_tokens as u64).sum::<u64>();
        let weights = self.layers.iter().enumerate().map(|(index, layer)| {
            // The last layer continues only with the requested rows.
            let is_last = index + 1 == self.layers.len();
            let fed = if is_last { logit_rows as u64 } else { rows };
            layer.mixer.bytes() + layer.feed_forward.step_bytes(fed) + layer.input_bytes()
        });
        let inputs = self
            .layer_inputs
            .as_ref()
            .map_or(0, |it| it.projection.bytes());
        let streams = self.streams.as_ref().map_or(0, |it| it.bytes());
        let weights = weights.sum::<u64>() + inputs + streams;
        let head = if logit_rows > 0 {
            self.head.as_ref().map_or(0, |head| head.bytes())
        } else {
            0
        };
        let tokens = spans
            .iter()
            .map(|span| span.past_tokens + 2 * span.new_tokens);
        let tokens = tokens.sum::<usize>() as u64;
        // States are read and written.
        let states = 2 * spans.len() as u64 * self.spec.state_bytes();
        weights + head + tokens * self.spec.kv_bytes_per_token(kv_dtype) + states
    }

    fn step_operations(&self, spans: &[Span], logit_rows: usize) -> u64 {
        let spec = &self.spec;
        let tokens = spans.iter().map(|span| span.new_tokens as u64).sum::<u64>();
        let rows = logit_rows as u64;
        let layers = (0..spec.layers).map(|layer| {
            // The last layer continues only with the requested rows.
            let is_last = layer + 1 == spec.layers;
            let fed = if is_last { rows } else { tokens };
            let (before, after) = spec.mixer_parameters(layer);
            let behind = after + spec.layer_input_parameters();
            let multiplied =
                before as u64 * tokens + (behind as u64 + spec.feed_parameters(layer)) * fed;
            let mixed = match spec.recurrence(layer) {
                Some(recurrence) => 2 * recurrence.state_operations() as u64 * tokens,
                None => 2 * spec.seen_numbers(layer) as u64 * self.seen(spans, layer),
            };
            2 * multiplied + mixed
        });
        let head = 2 * (spec.hidden_size * spec.vocab_size) as u64 * rows;
        let inputs = 2 * spec.all_inputs_parameters() as u64 * tokens;
        layers.sum::<u64>() + head + inputs
    }

    /// Number of keys that the new tokens attend to in a layer, summed up.
    fn seen(&self, spans: &[Span], layer: usize) -> u64 {
        let window = self.spec.window(layer).unwrap_or(usize::MAX);
        let of_span = |span: &Span| {
            let places = span.past_tokens + 1..=span.past_tokens + span.new_tokens;
            let in_chunk = |seen: usize| match self.spec.reach(layer) {
                AttentionReach::Chunk(size) => (seen - 1) % size + 1,
                _ => seen,
            };
            let seen = places.map(|seen| in_chunk(seen).min(window) as u64);
            seen.sum::<u64>()
        };
        spans.iter().map(of_span).sum()
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::{
        super::{DecoderSpec, SyntheticQuant},
        *,
    };

    #[test]
    fn a_step_reads_every_weight_once_and_multiplies_each_by_each_token() {
        let spec = DecoderSpec::named("tiny").unwrap();
        let parameters = spec.multiplied_parameters();
        let decoder =
            Decoder::synthetic(spec, SyntheticQuant::F16, &Device::Cpu, &mut |_, _| {}).unwrap();
        let span = |past_tokens| Span {
            new_tokens: 1,
            past_tokens,
            pages: vec![],
        };
        let none_before = decoder.step_cost(&[span(0)], 1, KvDtype::F16);
        let attended = 4 * 256 * 2;
        assert_eq!(none_before.operations, 2 * parameters + attended);
        let kv = 2 * 2 * 128 * 2;
        assert_eq!(none_before.bytes, decoder.weight_bytes() + 2 * kv);
        let many_before = decoder.step_cost(&[span(9), span(9)], 2, KvDtype::F16);
        assert_eq!(many_before.operations, 4 * parameters + 20 * attended);
        assert_eq!(many_before.bytes, decoder.weight_bytes() + 2 * 11 * kv);
    }

    #[test]
    fn a_step_reads_and_multiplies_the_experts_of_its_tokens() {
        let spec = DecoderSpec::named("tiny-experts").unwrap();
        let parameters = spec.multiplied_parameters();
        let dense = DecoderSpec {
            experts: None,
            ..spec.clone()
        };
        let experts = 2 * 256 * (12 + 3 * 3 * 256);
        let feed = 2 * 3 * 256 * 512;
        assert_eq!(parameters, dense.multiplied_parameters() - feed + experts);
        let quant = SyntheticQuant::Q8_0;
        let decoder = Decoder::synthetic(spec, quant, &Device::Cpu, &mut |_, _| {}).unwrap();
        let step = |count: usize| {
            let span = Span {
                new_tokens: 1,
                past_tokens: 0,
                pages: vec![],
            };
            decoder.step_cost(&vec![span; count], count, KvDtype::F16)
        };
        assert_eq!(step(1).operations, 2 * parameters + 4 * 256 * 2);
        let kv = 2 * 2 * 2 * 128 * 2;
        let all = decoder.weight_bytes();
        let each = 34 * 3 * 256 * 256 / 32 * 2;
        assert_eq!(step(1).bytes, all - 9 * each + kv);
        let (two, many) = (step(2).bytes - 2 * kv, step(200).bytes - 200 * kv);
        assert!(two > all - 9 * each && two < all - 6 * each && many > all - 1000);
    }
}
