//! Applies a style to a request: its models and parameters replace the client's, and its template surrounds the
//! client's prompt. Of the client's parameters only the number of outputs stays, and the size of an image when the
//! style has none.

use crate::legacy::Refusal;
use crate::legacy::image::params::{ModelGenerationInputImage, ModelStyleInputParamsImage};
use crate::legacy::image::request::GenerationInputImage;
use crate::legacy::text::params::{ModelGenerationInputText, ModelStyleInputParamsText};
use crate::legacy::text::request::GenerationInputText;

use super::prompt;

/// The parts of a style that go into a request.
#[derive(Debug, Clone, Copy)]
pub struct Around<'a, P> {
    /// The template.
    pub prompt: &'a str,
    pub params: &'a P,
    pub models: &'a [String],
}

impl Around<'_, ModelStyleInputParamsImage> {
    pub fn apply(&self, asked: GenerationInputImage) -> Result<GenerationInputImage, Refusal> {
        Ok(GenerationInputImage {
            prompt: prompt::image(self.prompt, &asked.prompt)?,
            params: self.params.over(&asked.params),
            models: self.models.to_vec(),
            ..asked
        })
    }
}

impl Around<'_, ModelStyleInputParamsText> {
    pub fn apply(&self, asked: GenerationInputText) -> Result<GenerationInputText, Refusal> {
        Ok(GenerationInputText {
            prompt: prompt::text(self.prompt, &asked.prompt)?,
            params: self.params.over(&asked.params),
            models: self.models.to_vec(),
            ..asked
        })
    }
}

impl ModelStyleInputParamsImage {
    /// The parameters of a request that names this style.
    #[must_use]
    pub fn over(&self, asked: &ModelGenerationInputImage) -> ModelGenerationInputImage {
        let style = self.clone();
        let none = ModelGenerationInputImage::default();
        let (width, height) = match (style.width, style.height) {
            (None, None) => (asked.width, asked.height),
            (width, height) => (width.unwrap_or(none.width), height.unwrap_or(none.height)),
        };
        ModelGenerationInputImage {
            n: asked.n,
            width,
            height,
            steps: style.steps,
            sampler_name: style.sampler_name.unwrap_or(none.sampler_name),
            cfg_scale: style.cfg_scale.unwrap_or(none.cfg_scale),
            denoising_strength: style.denoising_strength,
            hires_fix_denoising_strength: style.hires_fix_denoising_strength,
            post_processing: style.post_processing,
            karras: style.karras.unwrap_or(none.karras),
            tiling: style.tiling.unwrap_or(none.tiling),
            hires_fix: style.hires_fix.unwrap_or(none.hires_fix),
            clip_skip: style.clip_skip,
            facefixer_strength: style.facefixer_strength,
            loras: style.loras,
            tis: style.tis,
            special: style.special,
            workflow: style.workflow,
            transparent: style.transparent.unwrap_or(none.transparent),
            scheduler: style.scheduler,
            sampler_eta: style.sampler_eta,
            sampler_s_noise: style.sampler_s_noise,
            sampler_s_churn: style.sampler_s_churn,
            sampler_s_tmin: style.sampler_s_tmin,
            sampler_s_tmax: style.sampler_s_tmax,
            sampler_solver_type: style.sampler_solver_type,
            sampler_order: style.sampler_order,
            flow_shift: style.flow_shift,
            ..none
        }
    }
}

impl ModelStyleInputParamsText {
    /// The parameters of a request with this style. Lengths that the style leaves out are a request's defaults.
    #[must_use]
    pub fn over(&self, asked: &ModelGenerationInputText) -> ModelGenerationInputText {
        let style = self.clone();
        let none = ModelGenerationInputText::default();
        ModelGenerationInputText {
            n: asked.n,
            max_context_length: style.max_context_length.unwrap_or(none.max_context_length),
            max_length: style.max_length.unwrap_or(none.max_length),
            dynatemp_exponent: style.dynatemp_exponent,
            frmtadsnsp: style.frmtadsnsp,
            frmtrmblln: style.frmtrmblln,
            frmtrmspch: style.frmtrmspch,
            frmttriminc: style.frmttriminc,
            rep_pen: style.rep_pen,
            rep_pen_range: style.rep_pen_range,
            rep_pen_slope: style.rep_pen_slope,
            singleline: style.singleline,
            temperature: style.temperature,
            tfs: style.tfs,
            top_a: style.top_a,
            top_k: style.top_k,
            top_p: style.top_p,
            typical: style.typical,
            sampler_order: style.sampler_order,
            use_default_badwordsids: style.use_default_badwordsids,
            stop_sequence: style.stop_sequence,
            min_p: style.min_p,
            smoothing_factor: style.smoothing_factor,
            dynatemp_range: style.dynatemp_range,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Around;
    use crate::legacy::Body;
    use crate::legacy::image::params::ModelStyleInputParamsImage;
    use crate::legacy::image::request::GenerationInputImage;
    use crate::legacy::text::params::ModelStyleInputParamsText;
    use crate::legacy::text::request::GenerationInputText;

    fn image(style: Value, asked: Value) -> Value {
        let around = Around {
            prompt: "oil, {p}{np}",
            params: &ModelStyleInputParamsImage::read(style).unwrap(),
            models: &["painter".to_owned()],
        };
        let asked = json!({"prompt": "a cat###a dog", "params": asked, "nsfw": false});
        let styled = around
            .apply(GenerationInputImage::read(asked).unwrap())
            .unwrap();
        serde_json::to_value(styled).unwrap()
    }

    #[test]
    fn an_image_style_replaces_models_and_parameters() {
        let asked =
            json!({"n": 3, "steps": 99, "seed": "5", "karras": false, "loras": [{"name": "mine"}]});
        let styled = image(json!({"steps": 20, "cfg_scale": 3.5}), asked);
        assert_eq!(styled["prompt"], "oil, a cat###a dog");
        assert_eq!(styled["models"], json!(["painter"]));
        assert_eq!(styled["nsfw"], false);
        let params = &styled["params"];
        assert_eq!((&params["n"], &params["steps"]), (&json!(3), &json!(20)));
        assert_eq!(
            (&params["cfg_scale"], &params["karras"]),
            (&json!(3.5), &json!(true))
        );
        assert!(params.get("seed").is_none() && params.get("loras").is_none());
    }

    #[test]
    fn an_image_style_says_how_the_solver_goes_its_steps() {
        let asked = json!({"scheduler": "simple", "sampler_eta": 1.0});
        let solver = json!({
            "scheduler": "beta", "sampler_s_noise": 1.5, "sampler_s_churn": 2.0, "sampler_s_tmin": 0.5,
            "sampler_s_tmax": 9.0, "sampler_solver_type": "phi_2", "sampler_order": 3, "flow_shift": 2.5,
        });
        let params = &image(solver.clone(), asked)["params"];
        for (name, value) in solver.as_object().unwrap() {
            assert_eq!(&params[name], value, "{name}");
        }
        assert!(params.get("sampler_eta").is_none(), "{params}");
    }

    #[test]
    fn the_size_is_the_clients_only_where_the_style_has_none() {
        let asked = || json!({"width": 1024, "height": 768});
        let check = |style: Value, width: u32, height: u32| {
            let params = &image(style, asked())["params"];
            assert_eq!(
                (&params["width"], &params["height"]),
                (&json!(width), &json!(height))
            );
        };
        check(json!({}), 1024, 768);
        check(json!({"width": 640, "height": 704}), 640, 704);
        check(json!({"width": 640}), 640, 512);
    }

    fn text(style: Value) -> GenerationInputText {
        let around = Around {
            prompt: "Q: {p}\nA:{rest}",
            params: &ModelStyleInputParamsText::read(style).unwrap(),
            models: &["writer".to_owned()],
        };
        let asked = json!({
            "prompt": "why?", "models": ["mine"],
            "params": {"n": 2, "max_length": 300, "temperature": 2.0, "top_k": 5},
        });
        let asked = GenerationInputText::read(asked).unwrap();
        around.apply(asked).unwrap()
    }

    #[test]
    fn a_text_style_says_how_words_are_chosen() {
        let styled = text(json!({"temperature": 0.5, "stop_sequence": ["."]}));
        assert_eq!(styled.prompt, "Q: why?\nA:");
        assert_eq!(styled.models, ["writer"]);
        let params = serde_json::to_value(styled.params).unwrap();
        let expected = json!({
            "n": 2, "max_context_length": 2048, "max_length": 80, "dynatemp_exponent": 1.0,
            "temperature": 0.5, "stop_sequence": ["."],
        });
        assert_eq!(params, expected);
    }

    #[test]
    fn a_text_style_may_say_how_many_words() {
        let params = text(json!({"max_context_length": 1024, "max_length": 120})).params;
        assert_eq!((params.max_context_length, params.max_length), (1024, 120));
        assert_eq!(
            text(json!({"max_length": 16})).params.max_context_length,
            2048
        );
    }
}
