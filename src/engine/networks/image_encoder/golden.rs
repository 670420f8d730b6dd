//! The safety checker against diffusers' own, on images of several sizes: `tests/fixtures/golden/safety`, made by
//! `tests/fixtures/make/safety.py`.

use candle_core::Tensor;

use super::{SafetyNetwork, SafetySpec, prepare};
use crate::networks::golden::NetworkGolden;

const IMAGES: usize = 6;
/// Relative to the largest expected number.
const TOLERANCE: f32 = 2e-5;
/// A difference of one in 255, divided by the smallest standard deviation of a color.
const ONE_LEVEL: f32 = 1.01 / 255.0 / 0.261;

fn open() -> NetworkGolden {
    NetworkGolden::open("golden/safety/golden.tensors", "golden/safety")
}

fn network(golden: &NetworkGolden) -> SafetyNetwork {
    let spec = SafetySpec::read(golden.config()).unwrap();
    SafetyNetwork::load(spec, golden.source(None)).unwrap()
}

/// The levels that the reference prepared, channels last.
fn prepared(golden: &NetworkGolden, index: usize) -> Vec<f32> {
    let pixels = golden.tensor("pixels").narrow(0, index, 1).unwrap();
    let pixels = pixels.permute((0, 2, 3, 1)).unwrap().flatten_all();
    pixels.unwrap().to_vec1().unwrap()
}

fn ours(golden: &NetworkGolden, index: usize, network: &SafetyNetwork) -> Vec<f32> {
    let image = golden.tensor(&format!("image-{index}"));
    let (height, width, _) = image.dims3().unwrap();
    let levels = image.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let bytes: Vec<u8> = levels.into_iter().map(|level| level as u8).collect();
    prepare(&bytes, [width, height], network.spec())
}

#[test]
fn images_of_any_size_are_prepared_as_the_reference_does_it() {
    let golden = open();
    let network = network(&golden);
    for index in 0..IMAGES {
        let (found, wanted) = (ours(&golden, index, &network), prepared(&golden, index));
        assert_eq!(found.len(), wanted.len());
        let gaps = found.iter().zip(&wanted).map(|(a, b)| (a - b).abs());
        let different = gaps.clone().filter(|gap| *gap > ONE_LEVEL / 2.0).count();
        let largest = gaps.fold(0.0, f32::max);
        assert!(largest < ONE_LEVEL, "image {index}: {largest}");
        assert!(different * 100 < found.len(), "image {index}: {different}");
    }
}

#[test]
fn the_safety_checker_agrees_with_the_reference() {
    let golden = open();
    let network = network(&golden);
    let embeddings: Vec<Tensor> = (0..IMAGES)
        .map(|index| network.embed(&prepared(&golden, index)).unwrap())
        .collect();
    let embeddings = Tensor::cat(&embeddings, 0).unwrap();
    golden.check(&embeddings, "embeddings", TOLERANCE);
    for (name, of) in [("special", 3), ("concepts", 17)] {
        let wanted = golden.numbers(name);
        for index in 0..IMAGES {
            let scores = network.scores(&prepared(&golden, index)).unwrap();
            let found = match of {
                3 => scores.special,
                _ => scores.concepts,
            };
            let wanted = &wanted[index * of..(index + 1) * of];
            for (found, wanted) in found.iter().zip(wanted) {
                assert!(
                    (found - f64::from(*wanted)).abs() < 1e-5,
                    "{name} of {index}"
                );
            }
        }
    }
}

/// The checker flags one of these images only because it is near a special concept.
#[test]
fn the_same_images_are_flagged() {
    let golden = open();
    let network = network(&golden);
    let wanted = golden.numbers("flagged");
    for (index, wanted) in wanted.iter().enumerate() {
        let scores = network.scores(&ours(&golden, index, &network)).unwrap();
        assert_eq!(
            scores.is_flagged(),
            *wanted == 1.0,
            "image {index}: {scores:?}"
        );
    }
    assert!(wanted.contains(&1.0) && wanted.contains(&0.0));
}
