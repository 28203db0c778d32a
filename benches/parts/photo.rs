//! A picture as large as a camera's: smooth shades, some texture, and the grain that makes a JPEG long.

use boxwright::geom::Size;
use boxwright::media::Picture;

/// The same for the same size.
pub(super) fn photo(size: Size) -> Picture {
    let mut grains = 3u64;
    let mut rgb = Vec::with_capacity(size.width as usize * size.height as usize * 3);
    for y in 0..size.height {
        for x in 0..size.width {
            let (x, y) = (x as f32, y as f32);
            let light = (x * 0.004).sin() * 50.0 + (y * 0.006).cos() * 40.0 + ((x * 0.05).sin() * (y * 0.04).sin()) * 25.0 + 128.0;
            grains = grains.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let grain = ((grains >> 33) % 13) as f32 - 6.0;
            rgb.extend([light + grain, light * 0.8 + grain, 220.0 - light * 0.6 + grain].map(|value| value as u8));
        }
    }
    Picture { size, rgb }
}
