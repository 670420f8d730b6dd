//! Prices of interrogations: one kudos per form, three for tags, and three per tile of 512×512 for a processed image;
//! five or eight per tile of a control map, by the size of its network. The requester pays one more for each, and
//! another one for allowing slow workers.

use muster_protocol::job::Kudos;
use muster_protocol::legacy::interrogation::Form;
use muster_protocol::legacy::words::ControlType;

use super::price::FEE;

const SIDE: u32 = 512;

/// Per tile of a control map, by the cost of its preprocessor.
const NO_NETWORK: i64 = 3;
const SMALL_NETWORK: i64 = 5;
const LARGE_NETWORK: i64 = 8;

/// The worker's reward for a form, and for a control map of this kind.
pub fn form_reward(form: Form, map: Option<ControlType>, width: u32, height: u32) -> Kudos {
    let tiles = i64::from(tiles(width, height));
    let kudos = match form {
        Form::Interrogation => 3,
        Form::Annotation => map.map_or(SMALL_NETWORK, map_reward) * tiles,
        form if form.makes_image() => 3 * tiles,
        _ => 1,
    };
    Kudos(kudos * 1000)
}

/// Per tile.
fn map_reward(map: ControlType) -> i64 {
    match map {
        ControlType::Canny
        | ControlType::Scribble
        | ControlType::Binary
        | ControlType::StandardLineart
        | ControlType::ScribbleXdog
        | ControlType::Pyracanny
        | ControlType::Color
        | ControlType::Shuffle
        | ControlType::RecolorLuminance
        | ControlType::RecolorIntensity
        | ControlType::Tile
        | ControlType::TileTtplanetGuided
        | ControlType::TileTtplanetSimple => NO_NETWORK,
        ControlType::Normal
        | ControlType::MidasDepth
        | ControlType::ZoeDepth
        | ControlType::DepthAnything
        | ControlType::DepthAnythingV2
        | ControlType::OneformerAde20k
        | ControlType::OneformerCoco => LARGE_NETWORK,
        _ => SMALL_NETWORK,
    }
}

/// The requester's charge for it.
pub fn form_charge(reward: Kudos, slow_workers: bool) -> Kudos {
    let patience = if slow_workers { 1000 } else { 0 };
    Kudos(reward.0.saturating_add(FEE.0 + patience))
}

/// The number of tiles that cover an image, rounded up.
pub fn tiles(width: u32, height: u32) -> u32 {
    width.div_ceil(SIDE).saturating_mul(height.div_ceil(SIDE))
}

#[cfg(test)]
mod tests {
    use super::{form_charge, form_reward, tiles};
    use muster_protocol::job::Kudos;
    use muster_protocol::legacy::interrogation::Form;
    use muster_protocol::legacy::words::ControlType;

    #[test]
    fn a_form_is_paid_by_what_it_is() {
        let check = |form, expected| {
            let reward = form_reward(form, None, 1024, 513);
            assert_eq!(reward, Kudos(expected), "{form:?}");
        };
        check(Form::Caption, 1000);
        check(Form::Nsfw, 1000);
        check(Form::Interrogation, 3000);
        check(Form::Gfpgan, 12_000);
    }

    #[test]
    fn a_control_map_is_paid_by_what_it_takes_to_draw_it() {
        let check = |map, expected| {
            let reward = form_reward(Form::Annotation, Some(map), 1024, 513);
            assert_eq!(reward, Kudos(expected), "{map:?}");
        };
        check(ControlType::Canny, 12_000);
        check(ControlType::Tile, 12_000);
        check(ControlType::Openpose, 20_000);
        check(ControlType::NormalBae, 20_000);
        check(ControlType::Normal, 32_000);
        check(ControlType::DepthAnythingV2, 32_000);
    }

    #[test]
    fn parts_of_tiles_count() {
        let counts = [(512, 512), (513, 512), (1, 1), (u32::MAX, u32::MAX)];
        assert_eq!(
            counts.map(|(width, height)| tiles(width, height)),
            [1, 2, 1, u32::MAX]
        );
    }

    #[test]
    fn who_asks_pays_one_or_two_more() {
        assert_eq!(form_charge(Kudos(3000), false), Kudos(4000));
        assert_eq!(form_charge(Kudos(3000), true), Kudos(5000));
    }
}
