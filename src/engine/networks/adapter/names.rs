//! The names of tensors in adapter files: kohya's, diffusers' old and new ones, peft's.

/// The network that a tensor of an adapter belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AdapterPart {
    Unet,
    /// By position: SDXL has two text encoders.
    TextEncoder(usize),
}

/// The part that a tensor has in its layer's change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Factor {
    Down,
    Up,
    /// The kernel between both, in convolutions.
    Mid,
    Alpha,
    /// LoHa: two products, multiplied element by element.
    HadaW1A,
    HadaW1B,
    HadaW2A,
    HadaW2B,
    HadaT1,
    HadaT2,
    /// LoKr: a Kronecker product.
    LokrW1,
    LokrW1A,
    LokrW1B,
    LokrW2,
    LokrW2A,
    LokrW2B,
    LokrT2,
    /// The whole change.
    Diff,
    DiffBias,
    /// DoRA.
    Magnitude,
}

const ENDINGS: [(&str, Factor); 35] = [
    (".lora_down.weight", Factor::Down),
    (".lora_up.weight", Factor::Up),
    (".lora_mid.weight", Factor::Mid),
    (".lora_A.weight", Factor::Down),
    (".lora_B.weight", Factor::Up),
    (".lora_A.default.weight", Factor::Down),
    (".lora_B.default.weight", Factor::Up),
    (".lora.down.weight", Factor::Down),
    (".lora.up.weight", Factor::Up),
    ("_lora.down.weight", Factor::Down),
    ("_lora.up.weight", Factor::Up),
    (".lora_linear_layer.down.weight", Factor::Down),
    (".lora_linear_layer.up.weight", Factor::Up),
    (".alpha", Factor::Alpha),
    (".hada_w1_a", Factor::HadaW1A),
    (".hada_w1_b", Factor::HadaW1B),
    (".hada_w2_a", Factor::HadaW2A),
    (".hada_w2_b", Factor::HadaW2B),
    (".hada_t1", Factor::HadaT1),
    (".hada_t2", Factor::HadaT2),
    (".lokr_w1", Factor::LokrW1),
    (".lokr_w1_a", Factor::LokrW1A),
    (".lokr_w1_b", Factor::LokrW1B),
    (".lokr_w2", Factor::LokrW2),
    (".lokr_w2_a", Factor::LokrW2A),
    (".lokr_w2_b", Factor::LokrW2B),
    (".lokr_t2", Factor::LokrT2),
    (".diff", Factor::Diff),
    (".diff_b", Factor::DiffBias),
    (".dora_scale", Factor::Magnitude),
    (".lora_magnitude_vector", Factor::Magnitude),
    (".lora_magnitude_vector.weight", Factor::Magnitude),
    (".lora_magnitude_vector.default.weight", Factor::Magnitude),
    (".lora.magnitude", Factor::Magnitude),
    (".magnitude", Factor::Magnitude),
];

const PREFIXES: [(&str, Option<AdapterPart>); 9] = [
    ("lora_unet_", Some(AdapterPart::Unet)),
    ("lora_te1_", Some(AdapterPart::TextEncoder(0))),
    ("lora_te2_", Some(AdapterPart::TextEncoder(1))),
    ("lora_te_", Some(AdapterPart::TextEncoder(0))),
    ("unet.", Some(AdapterPart::Unet)),
    ("text_encoder_2.", Some(AdapterPart::TextEncoder(1))),
    ("text_encoder.", Some(AdapterPart::TextEncoder(0))),
    ("model.diffusion_model.", Some(AdapterPart::Unet)),
    ("diffusion_model.", Some(AdapterPart::Unet)),
];
/// Around the names of one network.
const WRAPPER: &str = "base_model.model.";

/// The part and layer of a tensor, and its role there. `None` if the suffix is unknown.
pub fn split(tensor: &str) -> Option<(AdapterPart, String, Factor)> {
    let known = ENDINGS.iter().filter_map(|(ending, factor)| {
        let target = tensor.strip_suffix(ending)?;
        Some((target, *factor))
    });
    let (target, factor) = known.min_by_key(|(target, _)| target.len())?;
    let (part, name) = part_of(target);
    Some((part, layer_name(part, name), factor))
}

fn part_of(target: &str) -> (AdapterPart, &str) {
    let target = target.trim_start_matches(WRAPPER);
    let found = PREFIXES.iter().find_map(|(prefix, part)| {
        let rest = target.strip_prefix(prefix)?;
        Some(((*part)?, rest.trim_start_matches(WRAPPER)))
    });
    // Files of one network alone leave its name out.
    found.unwrap_or((AdapterPart::Unet, target))
}

/// The network's name of the layer, except for separators.
fn layer_name(part: AdapterPart, name: &str) -> String {
    let mut name = name.replace('.', "_").replace("_processor_", "_");
    match part {
        AdapterPart::Unet => {
            if name.ends_with("_to_out") {
                name.push_str("_0");
            }
        }
        AdapterPart::TextEncoder(_) => {
            name = name.trim_start_matches("text_model_").to_owned();
            for (from, to) in [
                ("_to_q", "_q_proj"),
                ("_to_k", "_k_proj"),
                ("_to_v", "_v_proj"),
                ("_to_out", "_out_proj"),
            ] {
                if let Some(stem) = name.strip_suffix(from) {
                    name = format!("{stem}{to}");
                    break;
                }
            }
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_names_a_layer_in_its_own_way() {
        let attention = "down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q";
        let check = |tensor: &str, part: AdapterPart, name: &str, factor: Factor| {
            let found = split(tensor).unwrap();
            assert_eq!(found, (part, name.to_owned(), factor), "{tensor}");
        };
        let dotted = "down_blocks.0.attentions.0.transformer_blocks.0.attn1";
        for tensor in [
            format!("lora_unet_{attention}.lora_down.weight"),
            format!("unet.{dotted}.to_q.lora_A.weight"),
            format!("unet.{dotted}.to_q.lora.down.weight"),
            format!("unet.{dotted}.processor.to_q_lora.down.weight"),
            format!("{dotted}.processor.to_q_lora.down.weight"),
            format!("base_model.model.{dotted}.to_q.lora_A.default.weight"),
            format!("unet.base_model.model.{dotted}.to_q.lora_A.weight"),
        ] {
            check(&tensor, AdapterPart::Unet, attention, Factor::Down);
        }
        let out = attention.replace("to_q", "to_out_0");
        check(
            &format!("unet.{dotted}.processor.to_out_lora.up.weight"),
            AdapterPart::Unet,
            &out,
            Factor::Up,
        );
        let (first, second) = (AdapterPart::TextEncoder(0), AdapterPart::TextEncoder(1));
        let query = "encoder_layers_1_self_attn_q_proj";
        check(
            &format!("lora_te_text_model_{query}.alpha"),
            first,
            query,
            Factor::Alpha,
        );
        check(
            &format!("lora_te2_text_model_{query}.dora_scale"),
            second,
            query,
            Factor::Magnitude,
        );
        check(
            "text_encoder.text_model.encoder.layers.1.self_attn.to_q_lora.up.weight",
            first,
            query,
            Factor::Up,
        );
        check(
            "text_encoder_2.text_model.encoder.layers.1.self_attn.q_proj.lora_linear_layer.up.weight",
            second,
            query,
            Factor::Up,
        );
        check(
            "lora_unet_input_blocks_1_1_proj_in.lokr_w1_a",
            AdapterPart::Unet,
            "input_blocks_1_1_proj_in",
            Factor::LokrW1A,
        );
        assert_eq!(split("lora_unet_x.oft_diag"), None);
    }
}
