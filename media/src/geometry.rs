//! Picture sizes, and the rotation that a container requests.

use serde::{Deserialize, Serialize};

/// Width and height in pixels, both at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Dimensions {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

crate::serde_checked!(Dimensions, |extent| extent.width > 0 && extent.height > 0);

impl Dimensions {
    /// Creates a picture size; `None` if a side is zero.
    pub fn new(width: u32, height: u32) -> Option<Dimensions> {
        (width > 0 && height > 0).then_some(Dimensions { width, height })
    }

    /// Returns the number of pixels.
    pub fn area(self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }

    /// Returns the size after rotation.
    pub fn rotated(self, rotation: Rotation) -> Dimensions {
        match rotation {
            Rotation::None | Rotation::Half => self,
            Rotation::Quarter | Rotation::ThreeQuarters => {
                Dimensions { width: self.height, height: self.width }
            }
        }
    }
}

/// Clockwise turn that makes the coded picture upright.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Rotation {
    /// No rotation: the coded picture is upright.
    #[default]
    None,
    /// 90 degrees clockwise.
    Quarter,
    /// 180 degrees.
    Half,
    /// 270 degrees clockwise.
    ThreeQuarters,
}

impl Rotation {
    /// Returns the rotation in clockwise degrees: 0, 90, 180 or 270.
    pub fn degrees(self) -> u16 {
        90 * self as u16
    }

    /// Returns the quarter turn nearest to `degrees` clockwise; no rotation for NaN and infinity.
    pub fn from_degrees(degrees: f64) -> Rotation {
        // For NaN and infinity the cast gives 0.
        match (degrees / 90.0).round().rem_euclid(4.0) as u8 {
            1 => Rotation::Quarter,
            2 => Rotation::Half,
            3 => Rotation::ThreeQuarters,
            _ => Rotation::None,
        }
    }
}
