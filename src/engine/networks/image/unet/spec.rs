//! The description of a U-Net: sizes, and the facts in which Stable Diffusion 1, 2 and XL differ.

use serde::Deserialize;

use crate::networks::weights::Flaw;

#[derive(Debug, Clone, PartialEq)]
pub struct UnetSpec {
    /// 4, or 9 of networks that paint inside a mask.
    pub inputs: usize,
    pub outputs: usize,
    /// Width of the text's hidden states.
    pub context: usize,
    /// From the full size to the smallest.
    pub levels: Vec<UnetLevel>,
    pub middle_depth: usize,
    /// Residual blocks per level of the encoder path; the decoder path has one more.
    pub blocks: usize,
    pub groups: usize,
    pub norm_eps: f64,
    /// SDXL adds the pooled text and sizes to the time.
    pub added: Option<AddedSpec>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct UnetLevel {
    pub channels: usize,
    /// Transformer blocks after each residual block; none if 0.
    pub depth: usize,
    pub heads: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddedSpec {
    /// Width of the pooled text.
    pub pooled: usize,
    /// Width of each of the six sizes.
    pub size_width: usize,
}

/// How often the widest moment of a block holds its channels: the gated feed-forward part, and its surroundings.
const WIDEST: usize = 16;

/// Original height and width, crop from top and left, target height and width.
pub const ADDED_SIZES: usize = 6;

impl UnetSpec {
    pub fn stable_diffusion_1() -> Self {
        let level = |channels, depth| UnetLevel {
            channels,
            depth,
            heads: 8,
        };
        Self {
            inputs: 4,
            outputs: 4,
            context: 768,
            levels: vec![level(320, 1), level(640, 1), level(1280, 1), level(1280, 0)],
            middle_depth: 1,
            blocks: 2,
            groups: 32,
            norm_eps: 1e-5,
            added: None,
        }
    }

    pub fn stable_diffusion_2() -> Self {
        let mut spec = Self::stable_diffusion_1();
        spec.context = 1024;
        for level in &mut spec.levels {
            level.heads = level.channels / 64;
        }
        spec
    }

    pub fn stable_diffusion_xl() -> Self {
        let level = |channels, depth| UnetLevel {
            channels,
            depth,
            heads: channels / 64,
        };
        Self {
            context: 2048,
            levels: vec![level(320, 0), level(640, 2), level(1280, 10)],
            middle_depth: 10,
            added: Some(AddedSpec {
                pooled: 1280,
                size_width: 256,
            }),
            ..Self::stable_diffusion_1()
        }
    }

    /// Numbers that a pass holds at once for each place of the latent: the maps kept for the way up, and the widest
    /// layer at full size with its inputs.
    pub fn floats_per_place(&self) -> u64 {
        let kept = self.levels.iter().enumerate().map(|(at, level)| {
            let shrunk = 1_usize << (2 * at).min(32);
            (self.blocks + 1) * level.channels / shrunk
        });
        (kept.sum::<usize>() + WIDEST * self.levels[0].channels) as u64
    }

    /// Multiply-adds of a pass over a latent with this many positions.
    pub fn operations(&self, places: u64, tokens: u64) -> u64 {
        let convolution = |n: u64, inputs: u64, outputs: u64| 9 * n * inputs * outputs;
        let resnet = |n: u64, inputs: u64, outputs: u64| self.resnet_operations(n, inputs, outputs);
        let transformer =
            |n: u64, width: u64, depth: u64| self.transformer_operations(n, width, depth, tokens);
        let (blocks, last) = (self.blocks, self.levels.len() - 1);
        let mut sum = 0;
        let mut channels = self.levels[0].channels as u64;
        let mut skips = vec![channels];
        sum += convolution(places, self.inputs as u64, channels);
        for (index, level) in self.levels.iter().enumerate() {
            let n = places >> (2 * index);
            let (width, depth) = (level.channels as u64, level.depth as u64);
            for _ in 0..blocks {
                sum += resnet(n, channels, width) + transformer(n, width, depth);
                channels = width;
                skips.push(channels);
            }
            if index != last {
                sum += convolution(n / 4, channels, channels);
                skips.push(channels);
            }
        }
        let n = places >> (2 * last);
        sum += 2 * resnet(n, channels, channels);
        sum += transformer(n, channels, self.middle_depth as u64);
        for (index, level) in self.levels.iter().enumerate().rev() {
            let n = places >> (2 * index);
            let (width, depth) = (level.channels as u64, level.depth as u64);
            for _ in 0..=blocks {
                let skip = skips.pop().unwrap_or(0);
                sum += resnet(n, channels + skip, width) + transformer(n, width, depth);
                channels = width;
            }
            if index != 0 {
                sum += convolution(4 * n, channels, channels);
            }
        }
        2 * (sum + convolution(places, channels, self.outputs as u64))
    }

    /// Multiply-adds of a residual block with this many positions.
    pub fn resnet_operations(&self, places: u64, inputs: u64, outputs: u64) -> u64 {
        let convolutions = 9 * places * (inputs + outputs) * outputs;
        let shortcut = match inputs == outputs {
            true => 0,
            false => places * inputs * outputs,
        };
        convolutions + shortcut + self.time_width() as u64 * outputs
    }

    /// The same for a transformer of this many blocks.
    pub fn transformer_operations(&self, places: u64, width: u64, depth: u64, tokens: u64) -> u64 {
        let (n, context) = (places, self.context as u64);
        // Four projections and the scores of each attention, then eight widths out and four in.
        let own = 4 * n * width * width + 2 * n * n * width;
        let cross = 2 * n * width * width + 2 * tokens * context * width + 2 * n * tokens * width;
        let wide = 12 * n * width * width;
        match depth {
            0 => 0,
            depth => 2 * n * width * width + depth * (own + cross + wide),
        }
    }

    /// Width of the time embedding.
    pub fn time_width(&self) -> usize {
        4 * self.levels[0].channels
    }

    /// Reads the `config.json` of diffusers' UNet2DConditionModel.
    pub fn read(value: &serde_json::Value) -> Result<Self, Flaw> {
        let json: UnetJson = serde_json::from_value(value.clone())
            .map_err(|error| Flaw::broken("config.json", error, "a UNet2DConditionModel"))?;
        check_fixed(value)?;
        json.check_levels()?;
        let count = json.block_out_channels.len();
        let depths = json.transformer_layers_per_block.spread(count)?;
        // Files of this class name the number of heads after their size.
        let heads = json.num_attention_heads.as_ref();
        let heads = heads.unwrap_or(&json.attention_head_dim).spread(count)?;
        let kinds = json.down_block_types.iter();
        let depths = kinds.zip(&depths).map(|(kind, depth)| match kind.as_str() {
            "CrossAttnDownBlock2D" => *depth,
            _ => 0,
        });
        let levels = json.block_out_channels.iter().zip(depths).zip(heads);
        let levels: Vec<UnetLevel> = levels
            .map(|((&channels, depth), heads)| UnetLevel {
                channels,
                depth,
                heads,
            })
            .collect();
        let all_depths = json.transformer_layers_per_block.spread(count)?;
        let spec = Self {
            inputs: json.in_channels,
            outputs: json.out_channels,
            context: json.cross_attention_dim,
            middle_depth: all_depths[count - 1],
            blocks: json.layers_per_block,
            groups: json.norm_num_groups,
            norm_eps: json.norm_eps,
            added: json.added()?,
            levels,
        };
        spec.check()?;
        Ok(spec)
    }

    /// Whether such a network can be built.
    pub fn check(&self) -> Result<(), Flaw> {
        for level in &self.levels {
            let (channels, heads) = (level.channels, level.heads);
            if channels == 0 || heads == 0 || !channels.is_multiple_of(heads) {
                let found = format!("{heads} heads over {channels} channels");
                return Err(Flaw::broken(
                    "attention",
                    found,
                    "a divisor of the channels",
                ));
            }
            if self.groups == 0 || !channels.is_multiple_of(self.groups) {
                let found = format!("{} groups over {channels} channels", self.groups);
                return Err(Flaw::broken(
                    "norm_num_groups",
                    found,
                    "a divisor of the channels",
                ));
            }
        }
        if self.levels.is_empty() || self.blocks == 0 || self.inputs == 0 || self.outputs == 0 {
            let found = format!("{self:?}");
            return Err(Flaw::broken(
                "config.json",
                found,
                "levels, blocks and channels",
            ));
        }
        Ok(())
    }
}

/// `config.json` of diffusers.
#[derive(Deserialize)]
struct UnetJson {
    in_channels: usize,
    out_channels: usize,
    block_out_channels: Vec<usize>,
    layers_per_block: usize,
    down_block_types: Vec<String>,
    up_block_types: Vec<String>,
    cross_attention_dim: usize,
    attention_head_dim: PerLevel,
    num_attention_heads: Option<PerLevel>,
    #[serde(default = "one")]
    transformer_layers_per_block: PerLevel,
    #[serde(default = "thirty_two")]
    norm_num_groups: usize,
    norm_eps: f64,
    addition_embed_type: Option<String>,
    addition_time_embed_dim: Option<usize>,
    projection_class_embeddings_input_dim: Option<usize>,
}

/// Fields of which one value is computed. Another one would be another network.
const FIXED: &[(&str, &str)] = &[
    ("act_fn", "\"silu\""),
    ("attention_type", "\"default\""),
    ("center_input_sample", "false"),
    ("class_embed_type", "null"),
    ("class_embeddings_concat", "false"),
    ("conv_in_kernel", "3"),
    ("conv_out_kernel", "3"),
    ("cross_attention_norm", "null"),
    ("downsample_padding", "1"),
    ("dual_cross_attention", "false"),
    ("encoder_hid_dim", "null"),
    ("encoder_hid_dim_type", "null"),
    ("flip_sin_to_cos", "true"),
    ("freq_shift", "0"),
    ("mid_block_only_cross_attention", "null"),
    ("mid_block_scale_factor", "1"),
    ("mid_block_type", "\"UNetMidBlock2DCrossAttn\""),
    ("num_class_embeds", "null"),
    ("only_cross_attention", "false"),
    ("resnet_out_scale_factor", "1.0"),
    ("resnet_skip_time_act", "false"),
    ("resnet_time_scale_shift", "\"default\""),
    ("reverse_transformer_layers_per_block", "null"),
    ("time_cond_proj_dim", "null"),
    ("time_embedding_act_fn", "null"),
    ("time_embedding_dim", "null"),
    ("time_embedding_type", "\"positional\""),
    ("timestep_post_act", "null"),
];

/// Refuses unsupported values by field name. A missing field has the value above.
fn check_fixed(config: &serde_json::Value) -> Result<(), Flaw> {
    for (name, wanted) in FIXED {
        let Some(found) = config.get(*name) else {
            continue;
        };
        let is_same = match found.as_f64() {
            Some(number) => wanted.parse() == Ok(number),
            None => {
                serde_json::from_str(wanted).is_ok_and(|wanted: serde_json::Value| wanted == *found)
            }
        };
        if !is_same {
            return Err(Flaw::unsupported(*name, found, *wanted));
        }
    }
    Ok(())
}

/// One number for all levels, or one per level.
#[derive(Deserialize)]
#[serde(untagged)]
enum PerLevel {
    Same(usize),
    Each(Vec<usize>),
}

fn one() -> PerLevel {
    PerLevel::Same(1)
}

fn thirty_two() -> usize {
    32
}

impl PerLevel {
    fn spread(&self, count: usize) -> Result<Vec<usize>, Flaw> {
        match self {
            Self::Same(number) => Ok(vec![*number; count]),
            Self::Each(numbers) if numbers.len() == count => Ok(numbers.clone()),
            Self::Each(numbers) => Err(Flaw::broken(
                "config.json",
                format!("{} numbers for {count} levels", numbers.len()),
                "one for each level",
            )),
        }
    }
}

impl UnetJson {
    fn check_levels(&self) -> Result<(), Flaw> {
        let supported = ["DownBlock2D", "CrossAttnDownBlock2D"];
        let is_unknown = |kind: &&String| !supported.contains(&kind.as_str());
        if let Some(other) = self.down_block_types.iter().find(is_unknown) {
            return Err(Flaw::unsupported(
                "down_block_types",
                other,
                supported.join(", "),
            ));
        }
        let mirrored = self.down_block_types.iter().rev();
        let mirrored = mirrored.map(|name| name.replace("Down", "Up"));
        if !mirrored.eq(self.up_block_types.iter().cloned()) {
            let found = self.up_block_types.join(", ");
            return Err(Flaw::unsupported(
                "up_block_types",
                found,
                "a mirror of down_block_types",
            ));
        }
        if self.down_block_types.len() != self.block_out_channels.len() {
            let found = self.down_block_types.len();
            return Err(Flaw::broken(
                "down_block_types",
                found,
                "one for each level",
            ));
        }
        Ok(())
    }

    fn added(&self) -> Result<Option<AddedSpec>, Flaw> {
        match self.addition_embed_type.as_deref() {
            None => Ok(None),
            Some("text_time") => {
                let size_width = self.addition_time_embed_dim.unwrap_or(256);
                let all = self.projection_class_embeddings_input_dim.unwrap_or(0);
                let Some(pooled) = all.checked_sub(ADDED_SIZES * size_width) else {
                    let wanted = "room for six sizes";
                    let name = "projection_class_embeddings_input_dim";
                    return Err(Flaw::broken(name, all, wanted));
                };
                Ok(Some(AddedSpec { pooled, size_width }))
            }
            Some(other) => Err(Flaw::unsupported("addition_embed_type", other, "text_time")),
        }
    }
}
