//! The device of a benchmark: `cpu`, `cuda`, `cuda:1`.

use std::fmt;
use std::str::FromStr;

use candle_core::Device;

use crate::cli::Failure;
use crate::config::DeviceSetting;
use crate::hardware;
use crate::runtime::DeviceChoice;

/// The device of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Cpu,
    /// The GPU of this number.
    Cuda(usize),
}

impl Place {
    /// The value of the setting.
    pub fn setting(self) -> DeviceSetting {
        match self {
            Self::Cpu => DeviceSetting::Cpu,
            Self::Cuda(number) => DeviceSetting::Cuda(Some(number)),
        }
    }

    /// The type of random weights there.
    pub fn weight_type(self) -> &'static str {
        match self {
            Self::Cpu => "f32",
            Self::Cuda(_) => "f16",
        }
    }

    pub fn open(self) -> Result<Device, Failure> {
        match self {
            Self::Cpu => Ok(Device::Cpu),
            Self::Cuda(_) if !cfg!(feature = "cuda") => Err(Failure::unavailable(format!(
                "{self} needs CUDA, which is not in this build"
            ))
            .hint("`./test cuda` builds with CUDA")),
            Self::Cuda(number) => DeviceChoice::Cuda(number).open().map_err(|error| {
                let why = match hardware::probe().driver {
                    None => "no NVIDIA driver found".to_owned(),
                    Some(_) => error.to_string(),
                };
                Failure::unavailable(format!("opening {self} failed: {why}"))
                    .hint("`worker probe` shows the hardware of this machine")
            }),
        }
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = match text {
            "cpu" => return Ok(Self::Cpu),
            "cuda" => Ok(0),
            _ => text.strip_prefix("cuda:").unwrap_or_default().parse(),
        };
        number
            .map(Self::Cuda)
            .map_err(|_| "must be cpu, cuda or cuda:N".to_owned())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("the CPU"),
            Self::Cuda(number) => write!(f, "GPU {number}"),
        }
    }
}

/// Without the stack that candle adds when `RUST_BACKTRACE` is set.
pub fn first_line(error: &candle_core::Error) -> String {
    error
        .to_string()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_or_refused_in_words() {
        let place = |text: &str| text.parse::<Place>();
        assert_eq!(place("cpu"), Ok(Place::Cpu));
        assert_eq!(place("cuda"), Ok(Place::Cuda(0)));
        assert_eq!(place("cuda:3"), Ok(Place::Cuda(3)));
        for wrong in ["gpu", "cuda:x", "3", ""] {
            assert_eq!(place(wrong).unwrap_err(), "must be cpu, cuda or cuda:N");
        }
    }
}
