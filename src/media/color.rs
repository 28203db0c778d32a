//! Colour changes of training pictures: the HSV gains of the published recipe.

use super::Picture;

/// Multiplies hue, saturation and value by `gains`, in 8-bit HSV with lookup tables as the published trainer does.
pub fn shift_hsv(picture: &mut Picture, gains: [f32; 3]) {
    let _ = (picture, gains);
    todo!("media")
}
