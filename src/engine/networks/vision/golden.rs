//! Image processors and vision towers against transformers: `tests/fixtures/golden/qwen3-vl`, made by
//! `tests/fixtures/make/qwen3_vl.py`, and `tests/fixtures/golden/vision`, made by `tests/fixtures/make/vision.py`.

use safetensors::SafeTensors;
use serde_json::{Value, json};

use super::qwen3::{PatchShape, QwenProcessor};
use super::settings::ProcessorJson;
use super::{
    ImageFeatures, ImageGrid, ImagePart, ImageProcessor, ImageSizeError, Vision, VisionFamily,
    VisionTower,
};
use crate::networks::golden::{NetworkGolden, fixtures};
use crate::networks::text::golden::Golden;

/// Models that see, below `golden`.
pub const FOLDERS: [&str; 7] = [
    "qwen3-vl",
    "vision/qwen3.5",
    "vision/qwen3.5-moe",
    "vision/gemma3",
    "vision/qwen2.5-vl",
    "vision/smolvlm",
    "vision/mistral3",
];
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
pub const PICTURES: [[usize; 2]; 3] = [[30, 21], [17, 41], [64, 9]];

/// The prompts of a folder, and the images of each.
pub fn prompts(folder: &str) -> Vec<(&'static str, &'static [usize])> {
    let golden = Golden::open(folder);
    let all: [(&str, &[usize]); 3] = [("plain", &[]), ("one", &[2]), ("both", &[0, 1])];
    let is_there = |(name, _): &(&str, _)| golden.has(&format!("{name}.prompt"));
    all.into_iter().filter(is_there).collect()
}

/// The content of a user message with this many images.
pub fn content(images: usize) -> Value {
    let text = |text: &str| json!({"type": "text", "text": text});
    let image = json!({"type": "image"});
    match images {
        0 => json!("Nothing to see."),
        1 => json!([text("See "), image, text("?")]),
        _ => json!([
            text("What is "),
            image,
            text(" and "),
            image,
            text(" here?")
        ]),
    }
}

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

pub fn vision(folder: &str) -> Vision {
    let file = fixtures().join("golden").join(folder);
    let file = std::fs::read(file.join("preprocessor_config.json")).unwrap();
    let file: Value = serde_json::from_slice(&file).unwrap();
    let golden = open(folder);
    let family = VisionFamily::of(golden.config()).unwrap();
    family.read(golden.config(), Some(&file)).unwrap()
}

pub fn open(folder: &str) -> NetworkGolden {
    let folder = format!("golden/{folder}");
    NetworkGolden::open(format!("{folder}/golden.tensors"), folder)
}

/// The features of a folder's images.
pub fn features(folder: &str) -> Vec<ImageFeatures> {
    let (golden, vision) = (open(folder), vision(folder));
    let tower = VisionTower::load(&vision.spec, golden.source(None)).unwrap();
    let features = PICTURES.iter().map(|&size| {
        let image = vision.processor.process(&image(size), size).unwrap();
        assert_eq!(vision.processor.rows(size), Ok(image.rows()));
        tower.forward(&image).unwrap()
    });
    features.collect()
}

/// Every resized byte equals the reference's.
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
        assert_eq!(found.axes, Some(ImageGrid { rows, columns }), "{name}");
        let found = found.tiles[0].bytes.iter().copied().step_by(step);
        let found: Vec<u8> = found.collect();
        let wanted = file.tensor(&format!("resized.{name}")).unwrap();
        assert_eq!(found.len(), wanted.data().len(), "{name}");
        let gaps = found.iter().zip(wanted.data()).map(|(a, b)| a.abs_diff(*b));
        assert_eq!(gaps.max(), Some(0), "{name}");
    }
}

/// Parts of a prompt as the script spells them: a count in the place of rows.
fn spelled(parts: &[ImagePart]) -> String {
    let parts = parts.iter().map(|part| match part {
        ImagePart::Text(text) => text.clone(),
        ImagePart::Rows(rows) => format!("({rows})"),
    });
    parts.collect()
}

/// Sizes and tokens exactly; of the sampled bytes one in a thousand may be one level off.
#[test]
fn published_processors_make_of_images_what_the_reference_makes() {
    for folder in FOLDERS {
        let root = fixtures().join("golden").join(folder);
        let Ok(published) = std::fs::read(root.join("published.json")) else {
            continue;
        };
        let mut published: Value = serde_json::from_slice(&published).unwrap();
        let config = open(folder).config().clone();
        published["config"]["architectures"] = config["architectures"].clone();
        for name in ["image_token_id"] {
            if published["config"][name].is_null() {
                published["config"][name] = config[name].clone();
            }
        }
        let family = VisionFamily::of(&config).unwrap();
        let vision = family.read(&published["config"], Some(&published["processor"]));
        let processor = vision.unwrap().processor;
        let bytes = std::fs::read(root.join("golden.tensors")).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let names = file.names().into_iter();
        let sizes: Vec<&str> = names.filter_map(|it| it.strip_prefix("tiles.")).collect();
        assert!(sizes.len() > 7, "{folder}");
        let (mut apart, mut all) = (0, 0);
        for name in sizes {
            let size: Vec<usize> = name.split('x').map(|it| it.parse().unwrap()).collect();
            let size = [size[0], size[1]];
            let found = processor.process(&image(size), size).unwrap();
            assert_eq!(processor.rows(size), Ok(found.rows()), "{folder} {name}");
            let text = file.tensor(&format!("text.{name}")).unwrap();
            let text = String::from_utf8(text.data().to_vec()).unwrap();
            assert_eq!(spelled(&found.parts), text, "{folder} {name}");
            let tiles = file.tensor(&format!("tiles.{name}")).unwrap();
            let tiles = tiles.data().as_chunks().0.iter();
            let tiles: Vec<usize> = tiles.map(|it| u64::from_le_bytes(*it) as usize).collect();
            let sides = found
                .tiles
                .iter()
                .flat_map(|tile| [tile.width, tile.height]);
            assert_eq!(sides.collect::<Vec<_>>(), tiles[1..], "{folder} {name}");
            let bytes = found
                .tiles
                .iter()
                .flat_map(|tile| &tile.bytes)
                .step_by(tiles[0]);
            let wanted = file.tensor(&format!("resized.{name}")).unwrap();
            assert_eq!(bytes.clone().count(), wanted.data().len());
            for (found, wanted) in bytes.zip(wanted.data()) {
                let gap = found.abs_diff(*wanted);
                assert!(gap <= 1, "{folder} {name}: {found}, {wanted}");
                apart += usize::from(gap);
                all += 1;
            }
        }
        assert!(apart * 1000 <= all, "{folder}: {apart} of {all}");
    }
}

#[test]
fn an_image_two_hundred_times_as_long_as_wide_is_the_longest() {
    let processor = QwenProcessor::published();
    assert!(processor.grid([200, 1]).is_ok());
    let refused = ImageSizeError::TooLong {
        width: 3,
        height: 601,
        most: 200,
    };
    assert_eq!(processor.grid([3, 601]), Err(refused));
    assert_eq!(processor.grid([0, 4]), Err(ImageSizeError::Empty));
}

#[test]
fn a_tower_sees_what_the_reference_sees() {
    for folder in FOLDERS {
        let golden = open(folder);
        let file = Golden::open(folder);
        for (picture, found) in features(folder).into_iter().enumerate() {
            let name = format!("features.{picture}");
            if !file.has(&name) {
                continue;
            }
            golden.check(&found.embeddings, &name, 1e-5);
            let layers = (0..).take_while(|layer| file.has(&format!("added.{layer}.{picture}")));
            assert_eq!(found.added.len(), layers.count());
            for (layer, added) in found.added.iter().enumerate() {
                golden.check(added, &format!("added.{layer}.{picture}"), 1e-5);
            }
        }
    }
}

#[test]
fn settings_that_another_processor_would_need_are_refused_by_name() {
    let patches = PatchShape {
        side: 16,
        merge: 2,
        frames: 2,
    };
    for (setting, named) in [
        (json!({"resample": 2}), "resample"),
        (json!({"patch_size": 14}), "patch_size"),
        (json!({"do_normalize": false}), "do_normalize"),
        (json!({"image_std": [0.5, 0.0, 0.5]}), "image_std"),
        (json!({"size": {"longest_edge": 4}}), "size"),
    ] {
        let flaw = ProcessorJson::read(Some(&setting)).unwrap();
        let flaw = QwenProcessor::read(&flaw, patches).unwrap_err();
        let flaw = flaw.in_file("m".as_ref()).to_string();
        assert!(flaw.contains(named), "{flaw}");
    }
}
