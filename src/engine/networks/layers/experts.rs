//! Mixture of experts: a feed-forward layer where each row uses a few experts.
//!
//! Rows are sorted by expert, and a step reads only the matrices of the experts in use. A row's experts are summed in
//! the order of its choice, so that its result does not depend on the batch.

use candle_core::{DType, Result, Tensor, bail};

use super::{
    GateActivation, GatedFeedForward, Linear,
    routing::{ChosenExperts, ExpertOrder, Routing},
};
use crate::networks::weights::{Weight, WeightSpan};
use muster_kernels as kernels;

#[derive(Debug)]
pub struct Experts {
    pub router: Linear,
    pub routing: Routing,
    /// Added to the scores for the choice of experts.
    pub correction: Option<Vec<f32>>,
    /// Factor of the routing weight, per expert.
    pub scales: Option<Vec<f32>>,
    /// Routing weights scale the inputs of experts instead of their outputs.
    pub scales_inputs: bool,
    pub experts: Vec<Expert>,
    pub biases: Option<ExpertBiases>,
    pub shared: Option<SharedExpert>,
    pub activation: GateActivation,
}

/// The matrices of one expert.
#[derive(Debug)]
pub struct Expert {
    pub gate: Weight,
    pub up: Weight,
    pub down: Weight,
}

/// An expert that all rows take.
#[derive(Debug)]
pub struct SharedExpert {
    pub part: GatedFeedForward,
    /// A row takes the sigmoid of this of it; `None` where it takes it whole.
    pub gate: Option<Linear>,
}

/// Biases of the products of each expert, `[experts, width]`.
#[derive(Debug)]
pub struct ExpertBiases {
    pub gate: Tensor,
    pub up: Tensor,
    pub down: Tensor,
}

impl Experts {
    /// The result for `x`, whose experts are chosen by the rows of `routed`.
    pub fn forward(&self, x: &Tensor, routed: &Tensor) -> Result<Tensor> {
        if x.dim(0)? == 0 {
            return Ok(x.clone());
        }
        let mut chosen = self.chosen(routed)?;
        let active = self.routing.active;
        let order = ExpertOrder::new(&chosen.experts, active, self.experts.len());
        let rows = Tensor::new(order.rows.as_slice(), x.device())?;
        let mut sorted = x.index_select(&rows, 0)?;
        if self.scales_inputs {
            let mut shares = vec![0.0; order.rows.len()];
            for (&place, weight) in order.places.iter().zip(&mut chosen.weights) {
                shares[place as usize] = std::mem::replace(weight, 1.0);
            }
            let shares = Tensor::from_vec(shares, (order.rows.len(), 1), x.device())?;
            sorted = sorted.broadcast_mul(&shares.to_dtype(x.dtype())?)?;
        }
        let [mut gate, mut up] =
            self.products(&order, &sorted, |expert| [&expert.gate, &expert.up])?;
        let biases = self.biases.as_ref().map(|biases| (biases, &order));
        if let Some((biases, order)) = biases {
            gate = biased(&gate, &biases.gate, order)?;
            up = biased(&up, &biases.up, order)?;
        }
        let gated = self.activation.gated(&gate, &up)?;
        let [mut down] = self.products(&order, &gated, |expert| [&expert.down])?;
        if let Some((biases, order)) = biases {
            down = biased(&down, &biases.down, order)?;
        }
        let sums = kernels::weighted_sums(&down, &order.places, &chosen.weights, active)?;
        match &self.shared {
            Some(shared) => sums + shared.forward(x)?,
            None => Ok(sums),
        }
    }

    /// Bytes of the router and all experts.
    pub fn bytes(&self) -> u64 {
        let experts = self.experts.iter().map(Expert::bytes);
        let biases = self.biases.as_ref().map_or(0, ExpertBiases::bytes);
        self.common_bytes() + experts.sum::<u64>() + biases
    }

    /// Bytes that every row reads: the router, and the expert that all rows share.
    fn common_bytes(&self) -> u64 {
        self.router.bytes() + self.shared.as_ref().map_or(0, SharedExpert::bytes)
    }

    /// Bytes that a step of this many rows reads: the matrices for all rows, and the expected number of experts with
    /// uniform routing.
    pub fn step_bytes(&self, rows: u64) -> u64 {
        let experts = self.bytes() - self.common_bytes();
        let share = self.routing.active as f64 / self.experts.len().max(1) as f64;
        let read = 1.0 - (1.0 - share).powf(rows as f64);
        self.common_bytes() + (experts as f64 * read).round() as u64
    }

    fn chosen(&self, x: &Tensor) -> Result<ChosenExperts> {
        let logits = self.router.forward(x)?.to_dtype(DType::F32)?;
        let mut chosen = ChosenExperts::default();
        for logits in logits.to_vec2::<f32>()? {
            let correction = self.correction.as_deref();
            self.routing.choose(&logits, correction, &mut chosen);
        }
        if let Some(scales) = &self.scales {
            let experts = chosen.experts.iter().zip(&mut chosen.weights);
            experts.for_each(|(&expert, weight)| *weight *= scales[expert as usize]);
        }
        Ok(chosen)
    }

    /// The products of rows sorted by expert.
    fn products<'a, const N: usize>(
        &'a self,
        order: &ExpertOrder,
        x: &Tensor,
        weights: impl Fn(&'a Expert) -> [&'a Weight; N],
    ) -> Result<[Tensor; N]> {
        let spans = order.spans.iter().map(|(expert, rows)| WeightSpan {
            rows: rows.clone(),
            weights: weights(&self.experts[*expert]),
        });
        let products = Weight::products_of_spans(&spans.collect::<Vec<_>>(), x)?;
        match <[Tensor; N]>::try_from(products) {
            Ok(products) => Ok(products),
            Err(products) => bail!("{N} matrices gave {} products", products.len()),
        }
    }
}

impl SharedExpert {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let fed = self.part.forward(x)?;
        match &self.gate {
            Some(gate) => {
                let share = (gate.forward(x)?.neg()?.exp()? + 1.0)?.recip()?;
                fed.broadcast_mul(&share)
            }
            None => Ok(fed),
        }
    }

    fn bytes(&self) -> u64 {
        self.part.bytes() + self.gate.as_ref().map_or(0, Linear::bytes)
    }
}

/// Rows in the order of their experts, with the biases of these.
fn biased(rows: &Tensor, biases: &Tensor, order: &ExpertOrder) -> Result<Tensor> {
    let experts = order.spans.iter();
    let experts = experts.flat_map(|(expert, rows)| rows.clone().map(|_| *expert as u32));
    let experts = Tensor::from_iter(experts, rows.device())?;
    rows + biases.index_select(&experts, 0)?
}

impl ExpertBiases {
    fn bytes(&self) -> u64 {
        let tensors = [&self.gate, &self.up, &self.down].into_iter();
        let bytes = tensors.map(|tensor| tensor.elem_count() * tensor.dtype().size_in_bytes());
        bytes.sum::<usize>() as u64
    }
}

impl Expert {
    fn bytes(&self) -> u64 {
        self.gate.bytes() + self.up.bytes() + self.down.bytes()
    }
}
