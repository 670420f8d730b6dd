//! What looking at an image is worth: one kudos a form, three where tags are looked for, and three for each tile of
//! 512×512 where the image is made anew. Who asked pays one more for each, and another one for letting slow workers do
//! it.

use crate::protocol::job::Kudos;
use crate::protocol::legacy::interrogation::Form;

use super::price::FEE;

const SIDE: u32 = 512;

/// What a worker is paid for a form.
pub fn form_reward(form: Form, width: u32, height: u32) -> Kudos {
    let tiles = i64::from(tiles(width, height));
    let kudos = match form {
        Form::Interrogation => 3,
        form if form.post_processor().is_some() => 3 * tiles,
        _ => 1,
    };
    Kudos(kudos * 1000)
}

/// What whoever asked pays for it.
pub fn form_charge(reward: Kudos, slow_workers: bool) -> Kudos {
    let patience = if slow_workers { 1000 } else { 0 };
    Kudos(reward.0.saturating_add(FEE.0 + patience))
}

/// How many tiles cover an image. A part of one is a whole one.
pub fn tiles(width: u32, height: u32) -> u32 {
    width.div_ceil(SIDE).saturating_mul(height.div_ceil(SIDE))
}

#[cfg(test)]
mod tests {
    use super::{form_charge, form_reward, tiles};
    use crate::protocol::job::Kudos;
    use crate::protocol::legacy::interrogation::Form;

    #[test]
    fn a_form_is_paid_by_what_it_is() {
        let check =
            |form, expected| assert_eq!(form_reward(form, 1024, 513), Kudos(expected), "{form:?}");
        check(Form::Caption, 1000);
        check(Form::Nsfw, 1000);
        check(Form::Interrogation, 3000);
        check(Form::Gfpgan, 12_000);
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
