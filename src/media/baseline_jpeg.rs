//! A baseline JPEG at a fraction of its size, from the low frequencies of its blocks alone.
//!
//! In:  the bytes of a JPEG file and the factor by which it becomes smaller: 2, 4 or 8.
//! Out: RGB as stored; or nothing: for progressive, arithmetic, 12-bit, CMYK and RGB files, for several scans, odd sampling
//!      and damage of any kind, which a complete decoder has to judge.
//!
//! Most of the time of decoding goes into the coefficients of high frequencies. They are passed over here: a table gives
//! length and run of each, its value is never looked at. Of each block of 8 x 8 the lowest n x n frequencies are turned into
//! n x n pixels by the inverse transform of that size, which is close to averaging. Chroma that is stored at half the
//! resolution keeps twice as many frequencies a block, so that nothing is blown up.
//!
//! Source: ITU-T T.81 (JPEG), JFIF 1.02.

use crate::geom::Size;

/// Codes up to this length are found in one step.
const LOOK_BITS: u32 = 10;
/// So many bits are looked at when coefficients are passed over, and so often before more are needed.
const STEP_BITS: u32 = 12;
const STEPS_A_FILL: usize = 4;

/// Row and column of each coefficient, in the order of the file.
const ZIGZAG: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21, 28, 35, 42, 49, 56,
    57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// Whether Adobe's mark says that the colours are not the usual ones: three components are RGB then, four are no YCCK.
pub(super) fn has_other_colors(bytes: &[u8]) -> bool {
    let mut at = 2; // behind the mark of the start
    while let Some((marker, segment, after)) = segment(bytes, at) {
        match marker {
            0xEE if is_other_adobe(segment) => return true,
            0xDA => return false,
            _ => at = after,
        }
    }
    false
}

fn is_other_adobe(segment: &[u8]) -> bool {
    segment.starts_with(b"Adobe") && segment.get(11) != Some(&1)
}

/// Decodes at a fraction of the size.
pub(super) fn decode(bytes: &[u8], factor: u32) -> Option<(Size, Vec<u8>)> {
    let mut tables = Tables::default();
    let mut frame = None;
    let mut at = 2; // behind the mark of the start
    loop {
        let (marker, segment, after) = segment(bytes, at)?;
        match marker {
            0xC0 | 0xC1 => frame = Some(Frame::read(segment, factor)?),
            0xC4 => tables.read_codes(segment)?,
            0xDB => tables.read_steps(segment)?,
            0xDD => tables.restart_interval = u32::from(u16_at(segment, 0)?),
            // Adobe's mark: only the usual colours.
            0xEE if is_other_adobe(segment) => return None,
            0xDA => return scan(&bytes[after..], segment, &mut frame?, &tables),
            // Comments and the data of applications.
            0xE0..=0xEF | 0xFE => {}
            _ => return None,
        }
        at = after;
    }
}

/// The marker at `at`, what belongs to it, and where the next one stands.
fn segment(bytes: &[u8], mut at: usize) -> Option<(u8, &[u8], usize)> {
    if *bytes.get(at)? != 0xFF {
        return None;
    }
    while *bytes.get(at)? == 0xFF {
        at += 1; // filling
    }
    let length = usize::from(u16_at(bytes, at + 1)?);
    let segment = bytes.get(at + 3..(at + 1).checked_add(length)?)?;
    Some((bytes[at], segment, at + 1 + length))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

#[derive(Default)]
struct Tables {
    /// By number; in the order of the file.
    steps: [Option<[f32; 64]>; 4],
    dc: [Option<Codes>; 4],
    ac: [Option<Codes>; 4],
    /// In units of the scan; 0: never.
    restart_interval: u32,
}

impl Tables {
    fn read_steps(&mut self, mut segment: &[u8]) -> Option<()> {
        while let Some((&head, rest)) = segment.split_first() {
            let is_wide = head >> 4 != 0;
            let (values, rest) = rest.split_at_checked(if is_wide { 128 } else { 64 })?;
            let mut steps = [0.0; 64];
            for (at, step) in steps.iter_mut().enumerate() {
                *step = f32::from(if is_wide { u16_at(values, 2 * at)? } else { values[at].into() });
            }
            *self.steps.get_mut(usize::from(head & 15))? = Some(steps);
            segment = rest;
        }
        Some(())
    }

    fn read_codes(&mut self, mut segment: &[u8]) -> Option<()> {
        while let Some((&head, rest)) = segment.split_first() {
            let (counts, rest) = rest.split_at_checked(16)?;
            let (symbols, rest) = rest.split_at_checked(counts.iter().map(|&n| usize::from(n)).sum())?;
            let codes = Codes::new(counts, symbols)?;
            let number = usize::from(head & 15);
            if head >> 4 == 0 {
                *self.dc.get_mut(number)? = Some(codes);
            } else {
                *self.ac.get_mut(number)? = Some(codes.with_steps());
            }
            segment = rest;
        }
        Some(())
    }
}

/// A table of Huffman codes.
struct Codes {
    /// By the next bits: length of the code (upper byte) and its symbol; 0 where the code is longer.
    short: Vec<u16>,
    /// By length: one more than the last code, moved to the upper end of 16 bits.
    ends: [u32; 17],
    /// By length: what a code of this length lies behind its place in `symbols`.
    offsets: [i32; 17],
    symbols: Vec<u8>,
    /// By the next bits: how far one gets with all coefficients that are whole in them. Empty for those of lowest frequency.
    steps: Vec<Step>,
}

/// Coefficients of high frequencies that are passed over at once.
#[derive(Clone, Copy, Default)]
struct Step {
    /// 0 where not even one is whole.
    n_bits: u8,
    n_places: u8,
    /// The block ends with it.
    is_end: bool,
}

impl Codes {
    fn new(counts: &[u8], symbols: &[u8]) -> Option<Self> {
        let mut codes =
            Self { short: vec![0; 1 << LOOK_BITS], ends: [0; 17], offsets: [0; 17], symbols: symbols.to_vec(), steps: Vec::new() };
        let (mut code, mut place) = (0u32, 0usize);
        for length in 1..=16 {
            codes.offsets[length] = place as i32 - code as i32;
            for _ in 0..counts[length - 1] {
                if length as u32 <= LOOK_BITS {
                    let n_rest = LOOK_BITS - length as u32;
                    let first = (code << n_rest) as usize;
                    codes.short.get_mut(first..first + (1 << n_rest))?.fill((length as u16) << 8 | u16::from(symbols[place]));
                }
                code += 1;
                place += 1;
            }
            if code > 1 << length {
                return None;
            }
            codes.ends[length] = code << (16 - length);
            code <<= 1;
        }
        Some(codes)
    }

    /// For coefficients, of which most are passed over.
    fn with_steps(mut self) -> Self {
        self.steps = (0..1 << STEP_BITS).map(|bits| self.step(bits)).collect();
        self
    }

    /// What these next bits hold, if they are those of high frequencies.
    fn step(&self, bits: u32) -> Step {
        let mut step = Step::default();
        loop {
            let n_left = STEP_BITS - u32::from(step.n_bits);
            let next = (bits << (32 - STEP_BITS)) << step.n_bits;
            let short = self.short[(next >> (32 - LOOK_BITS)) as usize];
            let n_bits = u32::from(short >> 8) + u32::from(short & 15);
            if short == 0 || n_bits > n_left {
                return step;
            }
            step.n_bits += n_bits as u8;
            if short as u8 == 0 {
                return Step { is_end: true, ..step };
            }
            step.n_places += (short as u8 >> 4) + 1;
            if step.n_places >= 63 {
                return step;
            }
        }
    }
}

/// What the header of the picture says, and the pixels so far.
struct Frame {
    /// Of the reduced picture.
    size: Size,
    /// Units of the scan, which hold some blocks of each component.
    n_columns: usize,
    n_rows: usize,
    components: Vec<Component>,
}

struct Component {
    id: u8,
    steps: usize,
    /// Blocks a unit.
    n_across: usize,
    n_down: usize,
    /// Pixels a block.
    width: usize,
    height: usize,
    row_len: usize,
    pixels: Vec<u8>,
}

impl Frame {
    fn read(segment: &[u8], factor: u32) -> Option<Self> {
        let (height, width) = (u32::from(u16_at(segment, 1)?), u32::from(u16_at(segment, 3)?));
        let n_components = usize::from(*segment.get(5)?);
        let entries = segment.get(6..6 + 3 * n_components)?;
        if segment[0] != 8 || width == 0 || height == 0 || !matches!(n_components, 1 | 3) {
            return None;
        }
        let sampling = |entry: &[u8]| (usize::from(entry[1] >> 4), usize::from(entry[1] & 15));
        let is_gray = n_components == 1;
        // A component alone is not interleaved: its units are single blocks, whatever it says.
        let sampling = |entry: &[u8]| if is_gray { (1, 1) } else { sampling(entry) };
        let (most_across, most_down) = entries.chunks_exact(3).map(sampling).reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)))?;
        let n_columns = width.div_ceil(8 * most_across as u32) as usize;
        let n_rows = height.div_ceil(8 * most_down as u32) as usize;
        let components = entries.chunks_exact(3).map(|entry| {
            let (n_across, n_down) = sampling(entry);
            if n_across == 0 || n_down == 0 || most_across % n_across != 0 || most_down % n_down != 0 {
                return None;
            }
            let pixels = 8 / factor as usize;
            let (width, height) = (pixels * most_across / n_across, pixels * most_down / n_down);
            // The transform knows these sizes.
            if !matches!(width, 1 | 2 | 4 | 8) || !matches!(height, 1 | 2 | 4 | 8) {
                return None;
            }
            let row_len = n_columns * n_across * width;
            let pixels = vec![0; row_len * n_rows * n_down * height];
            Some(Component { id: entry[0], steps: usize::from(entry[2]), n_across, n_down, width, height, row_len, pixels })
        });
        let components: Vec<Component> = components.collect::<Option<_>>()?;
        let ids: Vec<u8> = components.iter().map(|component| component.id).collect();
        if ids == *b"RGB" {
            return None;
        }
        Some(Self { size: Size::new(width.div_ceil(factor), height.div_ceil(factor)), n_columns, n_rows, components })
    }
}

/// Decodes the only scan.
fn scan(data: &[u8], segment: &[u8], frame: &mut Frame, tables: &Tables) -> Option<(Size, Vec<u8>)> {
    let n = frame.components.len();
    let selectors = segment.get(1..1 + 2 * n)?;
    if usize::from(segment[0]) != n || *segment.get(1 + 2 * n..)? != [0, 63, 0] {
        return None; // a part of the components or of the frequencies
    }
    let mut decoders = Vec::new();
    for (component, selector) in frame.components.iter().zip(selectors.chunks_exact(2)) {
        if component.id != selector[0] {
            return None;
        }
        let steps = tables.steps.get(component.steps)?.as_ref()?;
        let (dc, ac) = (tables.dc.get(usize::from(selector[1] >> 4))?.as_ref()?, tables.ac.get(usize::from(selector[1] & 15))?.as_ref()?);
        decoders.push(BlockDecoder::new(steps, dc, ac, component.width, component.height));
    }
    let mut bits = Bits::new(data);
    let mut until_restart = tables.restart_interval;
    for row in 0..frame.n_rows {
        for column in 0..frame.n_columns {
            if tables.restart_interval > 0 {
                if until_restart == 0 {
                    bits.restart()?;
                    for decoder in &mut decoders {
                        decoder.dc_before = 0;
                    }
                    until_restart = tables.restart_interval;
                }
                until_restart -= 1;
            }
            for (component, decoder) in frame.components.iter_mut().zip(&mut decoders) {
                for down in 0..component.n_down {
                    for across in 0..component.n_across {
                        decoder.read(&mut bits)?;
                        let x = (column * component.n_across + across) * component.width;
                        let y = (row * component.n_down + down) * component.height;
                        decoder.transform(&mut component.pixels[y * component.row_len + x..], component.row_len);
                    }
                }
            }
        }
        if bits.is_past_end() {
            return None;
        }
    }
    Some((frame.size, rgb(frame)))
}

/// Reads the blocks of one component.
struct BlockDecoder<'a> {
    steps: &'a [f32; 64],
    dc: &'a Codes,
    ac: &'a Codes,
    width: usize,
    height: usize,
    /// By place in the file: where a coefficient lies in `low`, or 255 where it is not needed.
    places: [u8; 64],
    /// Behind the last coefficient that is needed.
    n_needed: usize,
    /// The kept coefficients, rows of `width`.
    low: [f32; 64],
    is_flat: bool,
    dc_before: i32,
    /// Inverse transforms along a row and along a column: by pixel and frequency.
    along_row: [[f32; 8]; 8],
    along_column: [[f32; 8]; 8],
}

impl<'a> BlockDecoder<'a> {
    fn new(steps: &'a [f32; 64], dc: &'a Codes, ac: &'a Codes, width: usize, height: usize) -> Self {
        let mut places = [255; 64];
        let mut n_needed = 0;
        for (at, place) in places.iter_mut().enumerate() {
            let (row, column) = (usize::from(ZIGZAG[at] / 8), usize::from(ZIGZAG[at] % 8));
            if row < height && column < width {
                *place = (row * width + column) as u8;
                n_needed = at + 1;
            }
        }
        let (along_row, along_column) = (inverse(width), inverse(height));
        Self { steps, dc, ac, width, height, places, n_needed, low: [0.0; 64], is_flat: true, dc_before: 0, along_row, along_column }
    }

    /// Reads one block; `None` where the data are damaged.
    fn read(&mut self, bits: &mut Bits<'_>) -> Option<()> {
        if !self.is_flat {
            self.low = [0.0; 64];
            self.is_flat = true;
        }
        bits.fill();
        let size = u32::from(bits.symbol(self.dc)?);
        if size > 11 {
            return None;
        }
        self.dc_before = self.dc_before.checked_add(bits.signed(size))?;
        self.low[0] = self.dc_before as f32 * self.steps[0];
        let mut at = 1;
        while at < self.n_needed {
            bits.fill();
            let symbol = bits.symbol(self.ac)?;
            let (run, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
            if size == 0 {
                match run {
                    0 => return Some(()), // all others are zero
                    15 => at += 16,
                    _ => return None,
                }
                continue;
            }
            at += run;
            let value = bits.signed(size);
            if at < self.n_needed && self.places[at] != 255 {
                self.low[usize::from(self.places[at])] = value as f32 * self.steps[at];
                self.is_flat = false;
            }
            at += 1;
        }
        // The rest is passed over, several coefficients in a step.
        'rest: while at < 64 {
            bits.fill();
            for _ in 0..STEPS_A_FILL {
                let step = self.ac.steps[(bits.buffer >> (64 - STEP_BITS)) as usize];
                if step.n_bits == 0 || at + usize::from(step.n_places) + usize::from(step.is_end) > 64 {
                    // A long code, or one that belongs to the next block.
                    bits.fill();
                    let symbol = bits.symbol(self.ac)?;
                    if symbol == 0 {
                        return Some(());
                    }
                    bits.skip(u32::from(symbol & 15));
                    at += usize::from(symbol >> 4) + 1;
                    continue 'rest;
                }
                bits.skip(u32::from(step.n_bits));
                at += usize::from(step.n_places);
                if step.is_end || at == 64 {
                    return Some(());
                }
            }
        }
        // A run may end behind the last coefficient only where the data are damaged.
        (at == 64).then_some(())
    }

    /// Turns the coefficients into pixels.
    fn transform(&self, pixels: &mut [u8], row_len: usize) {
        let byte = |value: f32| (value + 128.5) as u8;
        if self.is_flat {
            let value = byte(self.low[0] * self.along_row[0][0] * self.along_column[0][0]);
            for row in 0..self.height {
                pixels[row * row_len..][..self.width].fill(value);
            }
            return;
        }
        // Along the columns first: by row of pixels and column of frequencies.
        let mut half = [[0.0f32; 8]; 8];
        for (y, half) in half.iter_mut().enumerate().take(self.height) {
            for (v, low) in self.low.chunks_exact(self.width).enumerate().take(self.height) {
                for (sum, value) in half.iter_mut().zip(low) {
                    *sum += value * self.along_column[y][v];
                }
            }
        }
        for (y, half) in half.iter().enumerate().take(self.height) {
            for (x, pixel) in pixels[y * row_len..][..self.width].iter_mut().enumerate() {
                let sum: f32 = half.iter().zip(&self.along_row[x]).take(self.width).map(|(value, weight)| value * weight).sum();
                *pixel = byte(sum);
            }
        }
    }
}

/// The inverse transform of `n` frequencies, for coefficients of the transform of 8.
fn inverse(n: usize) -> [[f32; 8]; 8] {
    let mut weights = [[0.0; 8]; 8];
    for (x, weights) in weights.iter_mut().enumerate().take(n) {
        for (u, weight) in weights.iter_mut().enumerate().take(n) {
            let angle = (2 * x + 1) as f64 * u as f64 * std::f64::consts::PI / (2 * n) as f64;
            let norm = if u == 0 { 1.0 } else { std::f64::consts::SQRT_2 };
            // 1 / sqrt(n) of the transform of n, times sqrt(n / 8) between the two sizes.
            *weight = (norm * angle.cos() / 8f64.sqrt()) as f32;
        }
    }
    weights
}

/// The bits of a scan between two marks of a restart, the first one uppermost.
struct Bits<'a> {
    /// From the next restart on.
    data: &'a [u8],
    /// Without the zeros that follow each 0xFF in the file, and with zeros behind the end.
    clean: Vec<u8>,
    /// How many of them are from the file.
    n_clean: usize,
    at: usize,
    buffer: u64,
    n: u32,
}

/// Zeros behind the end of the data, so that a whole word can be read anywhere in it.
const N_ZEROS: usize = 8;

impl<'a> Bits<'a> {
    fn new(data: &'a [u8]) -> Self {
        let mut bits = Self { data, clean: Vec::new(), n_clean: 0, at: 0, buffer: 0, n: 0 };
        bits.take_clean();
        bits
    }

    /// Takes what comes up to the next marker.
    fn take_clean(&mut self) {
        self.clean.clear();
        loop {
            let n_plain = self.data.iter().position(|&byte| byte == 0xFF).unwrap_or(self.data.len());
            let (plain, rest) = self.data.split_at(n_plain);
            self.clean.extend_from_slice(plain);
            self.data = rest;
            let [0xFF, 0, rest @ ..] = rest else { break };
            self.clean.push(0xFF);
            self.data = rest;
        }
        self.n_clean = self.clean.len();
        self.clean.resize(self.n_clean + N_ZEROS, 0);
        (self.at, self.buffer, self.n) = (0, 0, 0);
    }

    /// At least 56 bits into the buffer; zeros behind the end. Without a branch that depends on the data.
    #[inline]
    fn fill(&mut self) {
        let at = self.at.min(self.n_clean);
        let word = self.clean[at..at + N_ZEROS].try_into().map_or(0, u64::from_be_bytes);
        self.buffer |= word >> self.n;
        self.at += (63 - self.n as usize) >> 3;
        // From 56 to 63 bits are there now.
        self.n |= 0b11_1000;
    }

    #[inline]
    fn skip(&mut self, n: u32) {
        self.buffer <<= n;
        self.n -= n;
    }

    /// The next symbol, with at least 16 bits in the buffer before it.
    #[inline]
    fn symbol(&mut self, codes: &Codes) -> Option<u8> {
        let short = codes.short[(self.buffer >> (64 - LOOK_BITS)) as usize];
        if short != 0 {
            self.skip(u32::from(short >> 8));
            return Some(short as u8);
        }
        let next = (self.buffer >> 48) as u32;
        let length = (LOOK_BITS as usize + 1..=16).find(|&length| next < codes.ends[length])?;
        let place = (next >> (16 - length)) as i32 + codes.offsets[length];
        self.skip(length as u32);
        codes.symbols.get(usize::try_from(place).ok()?).copied()
    }

    /// The next number of `size` bits (at most 15), with the sign that its first bit says.
    #[inline]
    fn signed(&mut self, size: u32) -> i32 {
        if size == 0 {
            return 0;
        }
        let value = (self.buffer >> (64 - size)) as i32;
        self.skip(size);
        if value < 1 << (size - 1) { value - (1 << size) + 1 } else { value }
    }

    /// Whether bits were used that are not there.
    fn is_past_end(&self) -> bool {
        8 * self.at > 8 * self.n_clean + self.n as usize
    }

    /// Goes on behind the next mark of a restart.
    fn restart(&mut self) -> Option<()> {
        let n_filling = self.data.iter().take_while(|&&byte| byte == 0xFF).count();
        if self.is_past_end() || n_filling == 0 || !matches!(self.data.get(n_filling), Some(0xD0..=0xD7)) {
            return None;
        }
        self.data = &self.data[n_filling + 1..];
        self.take_clean();
        Some(())
    }
}

/// The pixels of all components together, as RGB.
fn rgb(frame: &Frame) -> Vec<u8> {
    let (width, height) = (frame.size.width as usize, frame.size.height as usize);
    let mut rgb = Vec::with_capacity(width * height * 3);
    let row = |component: &Component, y: usize| component.pixels[y * component.row_len..][..width].to_vec();
    for y in 0..height {
        match &frame.components[..] {
            [luma, blue, red] => {
                let (luma, blue, red) = (row(luma, y), row(blue, y), row(red, y));
                for ((&luma, &blue), &red) in luma.iter().zip(&blue).zip(&red) {
                    let (luma, blue, red) = (f32::from(luma) + 0.5, f32::from(blue) - 128.0, f32::from(red) - 128.0);
                    rgb.push((luma + 1.402 * red) as u8);
                    rgb.push((luma - 0.344_136 * blue - 0.714_136 * red) as u8);
                    rgb.push((luma + 1.772 * blue) as u8);
                }
            }
            components => rgb.extend(components.iter().take(1).flat_map(|gray| row(gray, y)).flat_map(|gray| [gray; 3])),
        }
    }
    rgb
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use image::codecs::jpeg::JpegEncoder;

    use super::*;
    use crate::media::Picture;
    use crate::media::resize;

    /// Light, shadow and some grain.
    fn picture(width: u32, height: u32) -> image::RgbImage {
        image::RgbImage::from_fn(width, height, |x, y| {
            let grain = (x.wrapping_mul(2_654_435_761).wrapping_add(y.wrapping_mul(40_503)) >> 16) % 9;
            let light = ((x as f32 * 0.05).sin() * 50.0 + (y as f32 * 0.07).cos() * 50.0 + 120.0) as u32 + grain;
            image::Rgb([light as u8, (light * 3 / 4) as u8, (240 - light * 2 / 3) as u8])
        })
    }

    fn jpeg(picture: &image::DynamicImage, quality: u8) -> Vec<u8> {
        let mut bytes = Vec::new();
        picture.write_with_encoder(JpegEncoder::new_with_quality(&mut bytes, quality)).unwrap();
        bytes
    }

    /// Asserts that a reduced picture is close to the averages of what `media::decode` gives.
    fn check(bytes: &[u8], factor: u32, name: &str) {
        let whole = crate::media::decode::decode_bytes(bytes).unwrap();
        let Size { width, height } = whole.size;
        let (size, rgb) = decode(bytes, factor).unwrap();
        assert_eq!(size, Size::new(width.div_ceil(factor), height.div_ceil(factor)), "{name}");
        // Whole blocks: at the edge a block holds more than the picture.
        let (columns, rows) = (width / factor, height / factor);
        let inner = Size::new(columns * factor, rows * factor);
        let row = |y: usize| &whole.rgb[y * width as usize * 3..][..inner.width as usize * 3];
        let cut: Vec<u8> = (0..inner.height as usize).flat_map(row).copied().collect();
        let averaged = resize::resize_area(&Picture { size: inner, rgb: cut }, Size::new(columns, rows));
        let mut sum = 0u64;
        for y in 0..rows as usize {
            let ours = &rgb[y * size.width as usize * 3..][..columns as usize * 3];
            let theirs = &averaged.rgb[y * columns as usize * 3..][..columns as usize * 3];
            for (a, b) in ours.iter().zip(theirs) {
                assert!(a.abs_diff(*b) <= 24, "{name} / {factor}: {a} and {b} in row {y}");
                sum += u64::from(a.abs_diff(*b));
            }
        }
        let mean = sum as f64 / f64::from(columns * rows * 3);
        assert!(mean < 2.0, "{name} / {factor}: {mean} on average");
    }

    #[test]
    fn pixels_are_nearly_the_averages_of_the_whole_picture() {
        for (width, height, quality) in [(320, 240, 95), (333, 250, 75), (64, 48, 30), (1000, 16, 90)] {
            let source = image::DynamicImage::ImageRgb8(picture(width, height));
            for factor in [2, 4, 8] {
                check(&jpeg(&source, quality), factor, &format!("{width} x {height}"));
                check(&jpeg(&source.grayscale(), quality), factor, &format!("gray {width} x {height}"));
            }
        }
    }

    /// Files with chroma at half the resolution and with marks of restarts; made with Pillow 12 from sines of different
    /// lengths, 120 x 88, `save(quality=88, subsampling=2, restart_marker_blocks=3)` and the like.
    #[test]
    fn subsampled_chroma_and_restarts_are_read() {
        for name in ["jpeg_420_restart.jpg", "jpeg_422.jpg"] {
            let bytes = std::fs::read(format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
            for factor in [2, 4, 8] {
                check(&bytes, factor, name);
            }
        }
        let progressive = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/jpeg_420_progressive.jpg")).unwrap();
        assert!(decode(&progressive, 8).is_none());
    }

    #[test]
    fn damage_is_left_to_others_and_never_panics() {
        let whole = jpeg(&image::DynamicImage::ImageRgb8(picture(96, 64)), 80);
        assert!(decode(&whole, 8).is_some());
        for at in 0..whole.len() {
            for flip in [0x01, 0x10, 0xFF] {
                let mut damaged = whole.clone();
                damaged[at] ^= flip;
                let _ = decode(&damaged, 4); // some damage cannot be seen
            }
            let _ = decode(&whole[..at], 8);
        }
        let end = whole.len() - 200;
        assert!(decode(&whole[..end], 8).is_none(), "a part is missing");
    }
}
