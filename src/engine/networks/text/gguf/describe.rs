//! Writes down a spec as a GGUF file's metadata.

use super::{
    is_within,
    rope::{LONG_FACTORS, ROPE_FACTORS, SHORT_FACTORS},
};
use crate::networks::{
    layers::RouterScore,
    text::{
        config,
        family::{BIDIRECTIONAL_GEMMA, Family},
        recurrent::RecurrenceSpec,
        rope::{RopeScaling, Yarn},
        spec::{DecoderSpec, SoftCaps},
    },
    weights::{GgufValue, GgufWriter},
};

/// Writes down a spec as `spec` of this module reads it.
pub fn describe(spec: &DecoderSpec, writer: &mut GgufWriter) {
    let arch = match spec.family {
        Family::Gemma3 if spec.is_bidirectional => BIDIRECTIONAL_GEMMA,
        family => family.gguf_name(),
    };
    writer.text("general.architecture", arch);
    let mut keys = Keys { arch, writer };
    for (name, size) in [
        ("vocab_size", spec.vocab_size),
        ("context_length", spec.context),
        ("embedding_length", spec.hidden_size),
        ("block_count", spec.layers + spec.prediction_layers),
        ("attention.head_count", spec.heads),
    ] {
        keys.size(name, size);
    }
    keys.feed_sizes(spec);
    match (&spec.latent, spec.global_heads) {
        (Some(latent), _) => {
            keys.kv_heads(spec);
            keys.latent(spec, latent);
        }
        (None, Some(heads)) => keys.global_heads(spec, heads),
        (None, None) => {
            keys.kv_heads(spec);
            keys.size("attention.key_length", spec.head_dim);
            keys.size("attention.value_length", spec.head_dim);
            keys.size("rope.dimension_count", spec.rope.dims);
        }
    }
    keys.float("attention.layer_norm_rms_epsilon", spec.norm_eps);
    keys.ropes(spec);
    keys.factors(spec);
    keys.windows(spec);
    keys.experts(spec);
    keys.recurrent(spec);
    keys.layer_kinds(spec);
}

pub(super) struct Keys<'a> {
    arch: &'static str,
    writer: &'a mut GgufWriter,
}

impl Keys<'_> {
    pub(super) fn size(&mut self, name: &str, size: usize) {
        let key = format!("{}.{name}", self.arch);
        self.writer.unsigned(key, size as u64);
    }

    pub(super) fn float(&mut self, name: &str, number: f64) {
        self.writer.float(format!("{}.{name}", self.arch), number);
    }

    pub(super) fn list(&mut self, name: &str, values: impl Iterator<Item = GgufValue>) {
        let key = format!("{}.{name}", self.arch);
        self.writer.value(key, GgufValue::List(values.collect()));
    }

    fn text(&mut self, name: &str, text: &str) {
        self.writer.text(format!("{}.{name}", self.arch), text);
    }

    /// One number, or one per layer in hybrids with recurrent layers.
    fn kv_heads(&mut self, spec: &DecoderSpec) {
        let has_list = matches!(
            spec.family,
            Family::Lfm2 | Family::Lfm2Moe | Family::GraniteHybrid
        );
        if !has_list {
            return self.size("attention.head_count_kv", spec.kv_heads);
        }
        let counts = (0..spec.layers).map(|layer| match spec.recurrence(layer) {
            Some(_) => GgufValue::Unsigned(0),
            None => GgufValue::Unsigned(spec.kv_heads as u64),
        });
        self.list("attention.head_count_kv", counts);
    }

    fn ropes(&mut self, spec: &DecoderSpec) {
        self.float("rope.freq_base", spec.rope.theta);
        if let Some(rope) = &spec.window_rope {
            self.float("rope.freq_base_swa", rope.theta);
        }
        match &spec.rope.scaling {
            RopeScaling::Linear { factor } => {
                self.text("rope.scaling.type", "linear");
                self.float("rope.scaling.factor", *factor);
            }
            RopeScaling::LongRope {
                original_context,
                magnitude,
                ..
            } => {
                self.size("rope.scaling.original_context_length", *original_context);
                self.float("rope.scaling.attn_factor", *magnitude);
            }
            RopeScaling::Yarn(yarn) => self.yarn(yarn, spec.latent.is_some()),
            // The factors are a tensor, and Llama 3's own scaling is written as factors.
            RopeScaling::None
            | RopeScaling::Factors(_)
            | RopeScaling::Llama3 { .. }
            | RopeScaling::Proportional { .. } => {}
        }
        // Llama 4's temperature has no key.
        let temperature = spec.query_temperature.filter(|it| !it.is_of_unturned);
        if let Some(temperature) = temperature {
            self.float("attention.temperature_scale", temperature.weight);
            self.size("attention.temperature_length", temperature.span);
        }
    }

    fn yarn(&mut self, yarn: &Yarn, has_latents: bool) {
        self.text("rope.scaling.type", "yarn");
        self.float("rope.scaling.factor", yarn.factor);
        let original = yarn.original_context;
        self.size("rope.scaling.original_context_length", original);
        // With latents, programs rotate without a magnitude and scale the attention scores instead.
        if !has_latents {
            self.float("rope.scaling.yarn_attn_factor", yarn.magnitude);
        }
        self.float("rope.scaling.yarn_beta_fast", yarn.fast_turns);
        self.float("rope.scaling.yarn_beta_slow", yarn.slow_turns);
    }

    fn factors(&mut self, spec: &DecoderSpec) {
        let rules = spec.family.rules();
        let scale = spec.attention_scale.filter(|_| spec.latent.is_none());
        if let Some(scale) = scale.filter(|_| spec.attention_scale != rules.attention_scale) {
            self.float("attention.scale", scale);
        }
        let SoftCaps { attention, logits } = spec.soft_caps;
        if spec.soft_caps != rules.soft_caps {
            self.float("attn_logit_softcapping", attention.unwrap_or(0.0));
            self.float("final_logit_softcapping", logits.unwrap_or(0.0));
        }
        let scales = spec.scales;
        if scales.embedding != rules.embedding_scale(spec.hidden_size) {
            self.float("embedding_scale", scales.embedding);
        }
        if scales.residual != 1.0 {
            self.float("residual_scale", scales.residual);
        }
        if scales.logits != 1.0 {
            self.float("logit_scale", scales.logits);
        }
    }

    /// Layers with experts are identified by their tensors.
    fn experts(&mut self, spec: &DecoderSpec) {
        let Some(experts) = &spec.experts else {
            return;
        };
        self.size("expert_count", experts.count);
        self.size("expert_used_count", experts.routing.active);
        if experts.intermediate_size != spec.intermediate_size {
            self.size("expert_feed_forward_length", experts.intermediate_size);
        }
        if spec.prediction_layers > 0 {
            self.size("nextn_predict_layers", spec.prediction_layers);
        }
        let routing = experts.routing;
        if spec.family.rules().expert_score != routing.score {
            self.size(
                "expert_gating_func",
                match routing.score {
                    RouterScore::Softmax => 1,
                    RouterScore::Sigmoid => 2,
                },
            );
        }
        if routing.scale != 1.0 {
            self.float("expert_weights_scale", f64::from(routing.scale));
        }
        if let Some(groups) = routing.groups {
            self.size("expert_group_count", groups.count);
            self.size("expert_group_used_count", groups.active);
        }
        if let Some(shared) = experts.shared {
            self.size(
                "expert_shared_feed_forward_length",
                shared.intermediate_size,
            );
        }
        let is_normalized = routing.is_normalized;
        if spec.family.rules().normalizes_experts != Some(is_normalized) {
            let key = format!("{}.expert_weights_norm", self.arch);
            self.writer.value(key, GgufValue::Bool(is_normalized));
        }
    }

    /// Recurrent layers are identified by their tensors.
    fn recurrent(&mut self, spec: &DecoderSpec) {
        match spec.recurrent.as_ref().map(|recurrent| &recurrent.kind) {
            None => {}
            Some(RecurrenceSpec::DeltaNet(net)) => {
                self.size("ssm.conv_kernel", net.kernel);
                self.size("ssm.state_size", net.heads.key_dim);
                self.size("ssm.group_count", net.heads.key_heads);
                self.size("ssm.time_step_rank", net.heads.value_heads);
                self.size("ssm.inner_size", net.heads.value_size());
            }
            Some(RecurrenceSpec::Convolution(convolution)) => {
                self.size("shortconv.l_cache", convolution.kernel);
            }
            Some(RecurrenceSpec::StateSpace(space)) => {
                self.size("ssm.conv_kernel", space.kernel);
                self.size("ssm.state_size", space.heads.key_dim);
                self.size("ssm.group_count", space.heads.key_heads);
                self.size("ssm.time_step_rank", space.heads.value_heads);
                self.size("ssm.inner_size", space.heads.value_size());
                let key = format!("{}.rope.scaling.finetuned", self.arch);
                let turns = spec.layers_without_rope.is_empty();
                self.writer.value(key, GgufValue::Bool(turns));
            }
        }
    }

    fn windows(&mut self, spec: &DecoderSpec) {
        let rules = spec.family.rules();
        let Some(window) = spec.windows.iter().flatten().next().copied() else {
            if rules.window.is_some() {
                self.size("attention.sliding_window", 0);
            }
            return;
        };
        let whole = match spec.is_bidirectional {
            true => 2 * window.saturating_sub(1),
            false => window,
        };
        self.size("attention.sliding_window", whole);
        let by_rule = rules
            .window_period
            .map(|period| config::windows(window, spec.layers, |layer| is_within(layer, period)));
        if by_rule.as_ref() != Some(&spec.windows) {
            let flags = (0..spec.layers).map(|layer| GgufValue::Bool(spec.window(layer).is_some()));
            self.list("attention.sliding_window_pattern", flags);
        }
    }
}

/// The tensors of numbers that belong to the rope of a spec.
pub fn rope_tensors(spec: &DecoderSpec) -> Vec<(&'static str, &[f32])> {
    match &spec.rope.scaling {
        RopeScaling::Factors(factors) => vec![(ROPE_FACTORS, factors)],
        RopeScaling::LongRope { long, short, .. } => {
            vec![(LONG_FACTORS, long), (SHORT_FACTORS, short)]
        }
        _ => Vec::new(),
    }
}
