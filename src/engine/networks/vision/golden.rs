//! The image processor and the vision tower of Qwen3-VL against transformers: `tests/fixtures/golden/qwen3-vl`, made by
//! `tests/fixtures/make/qwen3_vl.py`.

use safetensors::SafeTensors;

use super::{ImageFeatures, ImageGrid, ImageProcessor, ImageSizeError, VisionSpec, VisionTower};
use crate::networks::golden::{NetworkGolden, fixtures};

const FOLDER: &str = "golden/qwen3-vl";
const SIZES: [[usize; 2]; 13] = [
    [1, 1],
    [2, 1],
    [3, 600],
    [200, 1],
    [40, 30],
    [255, 257],
    [256, 256],
    [331, 97],
    [640, 480],
    [1000, 707],
    [1920, 1080],
    [4032, 3024],
    [5000, 4000],
];
pub const PICTURES: [[usize; 2]; 2] = [[30, 21], [17, 41]];

/// The images of the script: noise on slopes.
pub fn image([width, height]: [usize; 2]) -> Vec<u8> {
    let byte = |x: u32, y: u32, color: u32| {
        let noise = x.wrapping_mul(374_761_393);
        let noise = noise.wrapping_add(y.wrapping_mul(668_265_263));
        let noise = noise.wrapping_add(color.wrapping_mul(2_246_822_519));
        let noise = (noise ^ (noise >> 13)).wrapping_mul(1_274_126_177) >> 26;
        let slope = (x * 255 / width as u32 + y * 255 / height as u32) / 2 * 3 / 4;
        (noise + slope) as u8
    };
    let places = (0..height as u32).flat_map(|y| (0..width as u32).map(move |x| (x, y)));
    places
        .flat_map(|(x, y)| [byte(x, y, 0), byte(x, y, 1), byte(x, y, 2)])
        .collect()
}

pub fn tower(golden: &NetworkGolden) -> VisionTower {
    let spec = VisionSpec::read(&golden.config()["vision_config"]).unwrap();
    let file = std::fs::read(fixtures().join(FOLDER).join("preprocessor_config.json")).unwrap();
    let file = serde_json::from_slice(&file).unwrap();
    let processor = ImageProcessor::read(Some(&file), &spec).unwrap();
    VisionTower::load(spec, processor, golden.source(None)).unwrap()
}

pub fn open() -> NetworkGolden {
    NetworkGolden::open(format!("{FOLDER}/golden.tensors"), FOLDER)
}

pub fn features(tower: &VisionTower, picture: usize) -> ImageFeatures {
    let size = PICTURES[picture];
    let image = tower.processor().process(&image(size), size).unwrap();
    tower.forward(&image).unwrap()
}

/// Not one sampled byte differs.
#[test]
fn images_are_resized_as_the_reference_does_it() {
    let bytes = std::fs::read(fixtures().join(FOLDER).join("golden.tensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let processor = ImageProcessor::published();
    for size in SIZES {
        let name = format!("{}x{}", size[0], size[1]);
        let grid = file.tensor(&format!("grid.{name}")).unwrap();
        let grid = grid.data().as_chunks().0.iter();
        let [rows, columns, step] = grid
            .map(|eight| u64::from_le_bytes(*eight) as usize)
            .collect::<Vec<_>>()[..]
        else {
            panic!("{name}: not three numbers");
        };
        let found = processor.process(&image(size), size).unwrap();
        assert_eq!(found.grid, ImageGrid { rows, columns }, "{name}");
        let found: Vec<u8> = found.bytes.into_iter().step_by(step).collect();
        let wanted = file.tensor(&format!("resized.{name}")).unwrap();
        assert_eq!(found.len(), wanted.data().len(), "{name}");
        let gaps = found.iter().zip(wanted.data()).map(|(a, b)| a.abs_diff(*b));
        assert_eq!(gaps.max(), Some(0), "{name}");
    }
}

#[test]
fn an_image_two_hundred_times_as_long_as_wide_is_the_longest() {
    let processor = ImageProcessor::published();
    assert!(processor.grid([200, 1]).is_ok());
    let refused = ImageSizeError::TooLong {
        width: 3,
        height: 601,
    };
    assert_eq!(processor.grid([3, 601]), Err(refused));
    assert_eq!(processor.grid([0, 4]), Err(ImageSizeError::Empty));
}

#[test]
fn a_tower_sees_what_the_reference_sees() {
    let golden = open();
    let tower = tower(&golden);
    for picture in 0..PICTURES.len() {
        let found = features(&tower, picture);
        golden.check(&found.embeddings, &format!("features.{picture}"), 1e-5);
        assert_eq!(found.added.len(), 2);
        for (layer, added) in found.added.iter().enumerate() {
            golden.check(added, &format!("added.{layer}.{picture}"), 1e-5);
        }
    }
}

#[test]
fn settings_that_another_processor_would_need_are_refused_by_name() {
    let spec = VisionSpec::read(&serde_json::json!({})).unwrap();
    for (setting, named) in [
        (serde_json::json!({"resample": 2}), "resample"),
        (serde_json::json!({"patch_size": 14}), "patch_size"),
        (serde_json::json!({"do_normalize": false}), "do_normalize"),
        (
            serde_json::json!({"image_std": [0.5, 0.0, 0.5]}),
            "image_std",
        ),
        (serde_json::json!({"size": {"longest_edge": 4}}), "size"),
    ] {
        let flaw = ImageProcessor::read(Some(&setting), &spec).unwrap_err();
        let flaw = flaw.in_file("m".as_ref()).to_string();
        assert!(flaw.contains(named), "{flaw}");
    }
}
