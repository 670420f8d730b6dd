//! Functions of one float without branches or calls, so that loops over them become vector instructions.

/// `e^x` to about two units in the last place; zero below -87.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    // ln 2 in two parts, the first short enough that its multiples by an exponent are exact.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    // Adding it leaves an integer in the low bits.
    const ROUNDING: f32 = 12_582_912.0;
    let clamped = x.clamp(-87.0, 88.0);
    let shifted = clamped * LOG2_E + ROUNDING;
    let exponent = shifted - ROUNDING;
    let rest = clamped - exponent * LN_2_HIGH - exponent * LN_2_LOW;
    let mut sum = 1.0 / 5040.0;
    for term in [
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ] {
        sum = sum * rest + term;
    }
    let bits = shifted.to_bits().wrapping_sub(ROUNDING.to_bits());
    let power = f32::from_bits(bits.wrapping_add(127) << 23);
    if x < -87.0 { 0.0 } else { sum * power }
}

#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    2.0 * sigmoid(2.0 * x) - 1.0
}

/// The standard normal distribution function at `x`, to 2e-7: Abramowitz and Stegun, 7.1.26.
#[inline(always)]
pub fn normal_share(x: f32) -> f32 {
    let distance = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * distance);
    let mut sum = 1.061_405_4;
    for term in [-1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6, 0.0] {
        sum = sum * t + term;
    }
    let tail = 0.5 * sum * exp(-distance * distance);
    if x > 0.0 { 1.0 - tail } else { tail }
}

/// The squared sine, which has the period pi.
#[inline(always)]
pub fn sine_squared(x: f32) -> f32 {
    // π in three parts, the first two short enough that their multiples are exact.
    const PI_HIGH: f32 = 3.140_625;
    const PI_MIDDLE: f32 = 9.670_257_6e-4;
    const PI_LOW: f32 = 6.278_329_5e-7;
    // Adding it leaves an integer in the low bits.
    const ROUNDING: f32 = 12_582_912.0;
    let turns = x * std::f32::consts::FRAC_1_PI + ROUNDING - ROUNDING;
    let rest = x - turns * PI_HIGH - turns * PI_MIDDLE - turns * PI_LOW;
    let rest = rest.clamp(-1.6, 1.6);
    let square = rest * rest;
    let mut sum = -1.0 / 39_916_800.0;
    for term in [1.0 / 362_880.0, -1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0, 1.0] {
        sum = sum * square + term;
    }
    let sine = sum * rest;
    sine * sine
}

/// `a * b + c`, in one rounding where the CPU can.
#[inline(always)]
pub fn multiply_add<const FAST: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FAST { a.mul_add(b, c) } else { a * b + c }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_near_the_real_one() {
        for step in -8700..8800 {
            let x = step as f32 / 100.0;
            let wanted = f64::from(x).exp();
            let gap = (f64::from(exp(x)) - wanted).abs() / wanted;
            assert!(gap < 4e-7, "exp({x}) is off by {gap:e}");
        }
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-1e30), 0.0);
        assert_eq!(exp(0.0), 1.0);
    }

    #[test]
    fn what_is_drawn_by_weighs_what_it_should() {
        for step in 0..=8700 {
            let x = -(step as f32) / 100.0;
            let wanted = f64::from(x).exp();
            let gap = (f64::from(exp(x)) - wanted).abs() / wanted;
            assert!(gap <= 3e-7, "exp({x}) is off by {gap:e}");
        }
    }

    #[test]
    fn sine_squared_is_near_the_real_one() {
        for step in -200_000..200_000 {
            let x = step as f32 / 200.0;
            let wanted = f64::from(x).sin().powi(2);
            let gap = (f64::from(sine_squared(x)) - wanted).abs();
            assert!(gap < 1e-6, "sin²({x}) is off by {gap:e}");
        }
    }

    #[test]
    fn tanh_is_near_the_real_one() {
        for step in -1000..1000 {
            let x = step as f32 / 100.0;
            assert!((tanh(x) - x.tanh()).abs() < 3e-7, "tanh({x})");
        }
    }
}
