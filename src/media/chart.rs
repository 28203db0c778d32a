//! Curves as files: the same lines as a table, as vector graphics, or as a picture.
//!
//! In:  named, coloured lines of points `(x, y)`.
//! Out: the text of a CSV or an SVG file, or pixels. Points whose value is no finite number are gaps.
//!
//! The picture is drawn at twice its size and shrunk by averaging, which smooths the lines.
//!
//! Never opens files, and knows nothing of what the lines mean.

use std::fmt::Write as _;

use super::Picture;
use super::draw;
use super::resize;
use crate::geom::Size;

/// Width and height of SVG and picture.
const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 700.0;
/// Space for title and key above, numbers below and to the left.
const LEFT: f64 = 90.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 90.0;
const BOTTOM: f64 = 60.0;

const INK: [u8; 3] = [43, 50, 59];
const GRID: [u8; 3] = [221, 225, 231];
const PAPER: [u8; 3] = [255, 255, 255];

/// Lines over one pair of axes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chart {
    pub title: String,
    pub x_name: String,
    /// A logarithmic vertical axis: values up to 0 are gaps.
    pub is_log: bool,
    pub lines: Vec<ChartLine>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChartLine {
    pub name: String,
    pub color: [u8; 3],
    /// In order of x.
    pub points: Vec<[f64; 2]>,
}

/// Where values lie on the paper.
struct Axes {
    x: [f64; 2],
    /// Logarithms where the chart is logarithmic.
    y: [f64; 2],
    is_log: bool,
}

impl Chart {
    /// A row for each x that any line has, a column for each line; a cell is empty where the line has no value.
    pub fn csv(&self) -> String {
        let mut xs: Vec<f64> = self.lines.iter().flat_map(|line| line.points.iter().map(|point| point[0])).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        let mut text = csv_cell(&self.x_name);
        for line in &self.lines {
            text.push(',');
            text.push_str(&csv_cell(&line.name));
        }
        text.push('\n');
        let mut next = vec![0; self.lines.len()];
        for x in xs {
            push(&mut text, format_args!("{x}"));
            for (line, next) in self.lines.iter().zip(&mut next) {
                text.push(',');
                // Several values at one place: the last one stands.
                let mut value = None;
                while let Some(point) = line.points.get(*next).filter(|point| point[0] <= x) {
                    value = Some(point[1]);
                    *next += 1;
                }
                if let Some(value) = value.filter(|value| value.is_finite()) {
                    push(&mut text, format_args!("{value}"));
                }
            }
            text.push('\n');
        }
        text
    }

    /// A whole SVG file.
    pub fn svg(&self) -> String {
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"16\" \
             fill=\"{}\">\n<rect width=\"100%\" height=\"100%\" fill=\"{}\"/>\n",
            hex(INK),
            hex(PAPER)
        );
        push(
            &mut text,
            format_args!("<text x=\"{LEFT}\" y=\"34\" font-size=\"20\" font-weight=\"bold\">{}</text>\n", escaped(&self.title)),
        );
        let axes = self.axes();
        let grid = hex(GRID);
        for (value, label) in axes.y_marks() {
            let y = axes.y_at(value);
            push(&mut text, format_args!("<path d=\"M{LEFT} {y:.1}H{}\" stroke=\"{grid}\"/>\n", WIDTH - RIGHT));
            push(&mut text, format_args!("<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>\n", LEFT - 10.0, y + 5.0));
        }
        for (value, label) in axes.x_marks() {
            let x = axes.x_at(value);
            push(&mut text, format_args!("<path d=\"M{x:.1} {TOP}V{}\" stroke=\"{grid}\"/>\n", HEIGHT - BOTTOM));
            let y = HEIGHT - BOTTOM + 22.0;
            push(&mut text, format_args!("<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{label}</text>\n"));
        }
        let (x, y) = (f64::midpoint(LEFT, WIDTH - RIGHT), HEIGHT - 12.0);
        push(&mut text, format_args!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{}</text>\n", escaped(&self.x_name)));
        let mut x = LEFT;
        for line in &self.lines {
            let (color, name) = (hex(line.color), escaped(&line.name));
            push(&mut text, format_args!("<circle cx=\"{:.0}\" cy=\"62\" r=\"6\" fill=\"{color}\"/>\n", x + 6.0));
            push(&mut text, format_args!("<text x=\"{:.0}\" y=\"68\">{name}</text>\n", x + 18.0));
            x += 44.0 + 9.0 * line.name.chars().count() as f64;
            let mut path = String::new();
            for piece in axes.pieces(line) {
                for (index, [x, y]) in piece.into_iter().enumerate() {
                    push(&mut path, format_args!("{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' }));
                }
            }
            push(&mut text, format_args!("<path d=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>\n"));
        }
        text.push_str("</svg>\n");
        text
    }

    /// The chart in pixels.
    pub fn picture(&self) -> Picture {
        const FINE: f64 = 2.0;
        const LETTERS: i64 = 4;
        let fine = |value: f64| (value * FINE).round() as i64;
        let size = Size::new((WIDTH * FINE) as u32, (HEIGHT * FINE) as u32);
        let mut picture = Picture { size, rgb: PAPER.repeat((size.width * size.height) as usize) };
        let width_of = |text: &str| draw::text_width(text, LETTERS);
        let axes = self.axes();

        draw::text(&mut picture, [fine(LEFT), fine(22.0)], &self.title, INK, LETTERS + 1);
        for (value, label) in axes.y_marks() {
            let y = axes.y_at(value) * FINE;
            draw::line(&mut picture, [LEFT * FINE, y], [(WIDTH - RIGHT) * FINE, y], GRID, 2.0);
            draw::text(&mut picture, [fine(LEFT - 10.0) - width_of(&label), y as i64 - 4 * LETTERS], &label, INK, LETTERS);
        }
        for (value, label) in axes.x_marks() {
            let x = axes.x_at(value) * FINE;
            draw::line(&mut picture, [x, TOP * FINE], [x, (HEIGHT - BOTTOM) * FINE], GRID, 2.0);
            draw::text(&mut picture, [x as i64 - width_of(&label) / 2, fine(HEIGHT - BOTTOM + 8.0)], &label, INK, LETTERS);
        }
        let middle = fine(f64::midpoint(LEFT, WIDTH - RIGHT));
        draw::text(&mut picture, [middle - width_of(&self.x_name) / 2, fine(HEIGHT - 26.0)], &self.x_name, INK, LETTERS);
        let mut x = fine(LEFT);
        for line in &self.lines {
            draw::line(&mut picture, [x as f64, 124.0], [x as f64 + 28.0, 124.0], line.color, 12.0);
            draw::text(&mut picture, [x + 44, 124 - 4 * LETTERS], &line.name, INK, LETTERS);
            x += 44 + width_of(&line.name) + 48;
            for piece in axes.pieces(line) {
                let fine_piece: Vec<[f64; 2]> = piece.into_iter().map(|point| point.map(|value| value * FINE)).collect();
                if let [point] = fine_piece.as_slice() {
                    draw::line(&mut picture, *point, *point, line.color, 10.0);
                }
                for ends in fine_piece.windows(2) {
                    draw::line(&mut picture, ends[0], ends[1], line.color, 4.0);
                }
            }
        }
        resize::resize_area(&picture, Size::new(WIDTH as u32, HEIGHT as u32))
    }

    fn axes(&self) -> Axes {
        let (mut x, mut y) = ([f64::INFINITY, f64::NEG_INFINITY], [f64::INFINITY, f64::NEG_INFINITY]);
        for point in self.lines.iter().flat_map(|line| &line.points) {
            let Some(value) = scaled(point[1], self.is_log) else { continue };
            x = [x[0].min(point[0]), x[1].max(point[0])];
            y = [y[0].min(value), y[1].max(value)];
        }
        if !self.is_log {
            // Heights can be compared where the axis begins at 0, unless the values are far from it.
            y[0] = if y[0] > 0.0 && y[0] < 0.8 * y[1] { 0.0 } else { y[0] };
        }
        let widened = |[low, high]: [f64; 2]| match high - low {
            // Nothing, or one value.
            range if !range.is_finite() => [0.0, 1.0],
            range if range <= 0.0 => [low - 0.5, high + 0.5],
            range => [low, high + 0.02 * range],
        };
        Axes { x: widened(x), y: widened(y), is_log: self.is_log }
    }
}

impl Axes {
    fn x_at(&self, value: f64) -> f64 {
        LEFT + (value - self.x[0]) / (self.x[1] - self.x[0]) * (WIDTH - LEFT - RIGHT)
    }

    /// Of a value that is scaled already.
    fn y_at(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - (value - self.y[0]) / (self.y[1] - self.y[0]) * (HEIGHT - TOP - BOTTOM)
    }

    fn x_marks(&self) -> Vec<(f64, String)> {
        round_marks(self.x, 8.0).into_iter().map(|value| (value, number(value))).collect()
    }

    fn y_marks(&self) -> Vec<(f64, String)> {
        let shown = |value: f64| if self.is_log { 10f64.powf(value) } else { value };
        round_marks(self.y, 6.0).into_iter().map(|value| (value, number(shown(value)))).collect()
    }

    /// The stretches of a line without gaps, on the paper.
    fn pieces(&self, line: &ChartLine) -> Vec<Vec<[f64; 2]>> {
        let mut pieces = vec![Vec::new()];
        for point in &line.points {
            match scaled(point[1], self.is_log) {
                Some(value) => pieces.last_mut().expect("there is always one").push([self.x_at(point[0]), self.y_at(value)]),
                None => pieces.push(Vec::new()),
            }
        }
        pieces.retain(|piece| !piece.is_empty());
        pieces
    }
}

fn scaled(value: f64, is_log: bool) -> Option<f64> {
    let value = if is_log { value.log10() } else { value };
    value.is_finite().then_some(value)
}

/// About `wanted` round numbers within a range.
fn round_marks(range: [f64; 2], wanted: f64) -> Vec<f64> {
    multiples(range, round_step((range[1] - range[0]) / wanted)).collect()
}

/// The least round step from `least` on, a positive number: 1, 2, 2.5 or 5 with a power of ten.
pub fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= least * 0.999).unwrap_or(least)
}

/// The multiples of `step` within a range, from the lowest on; at most 101.
pub fn multiples([low, high]: [f64; 2], step: f64) -> impl Iterator<Item = f64> {
    let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
    // A degenerate range would ask for numbers without end.
    (first..=last.min(first.saturating_add(100))).map(move |index| index as f64 * step)
}

/// A number with decimals without the zeros at its end.
pub fn trimmed(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// Up to four significant digits.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if !(1e-3..1e6).contains(&size) => format!("{value:.1e}"),
        size => {
            let digits = (3 - size.log10().floor() as i32).max(0) as usize;
            trimmed(&format!("{value:.digits$}")).to_owned()
        }
    }
}

fn csv_cell(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn hex([r, g, b]: [u8; 3]) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

fn push(text: &mut String, more: std::fmt::Arguments<'_>) {
    text.write_fmt(more).expect("writing to a String cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        let line = |name: &str, color, points: &[[f64; 2]]| ChartLine { name: name.to_owned(), color, points: points.to_vec() };
        Chart {
            title: "Loss & more".to_owned(),
            x_name: "step".to_owned(),
            is_log: false,
            lines: vec![
                line("box", [255, 0, 0], &[[1.0, 4.0], [2.0, 3.0], [4.0, 1.0]]),
                line("class, all", [0, 0, 255], &[[2.0, 0.5], [3.0, f64::NAN], [4.0, 0.25]]),
            ],
        }
    }

    #[test]
    fn a_table_has_a_row_for_each_place_and_gaps_where_nothing_is_known() {
        assert_eq!(chart().csv(), "step,box,\"class, all\"\n1,4,\n2,3,0.5\n3,,\n4,1,0.25\n");
        assert_eq!(Chart::default().csv(), "\n");
    }

    #[test]
    fn vector_graphics_hold_title_key_and_a_path_for_each_line() {
        let svg = chart().svg();
        assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("Loss &amp; more") && svg.contains(">class, all</text>") && svg.contains(">step</text>"));
        assert!(svg.contains("stroke=\"#ff0000\"") && svg.contains("stroke=\"#0000ff\""));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        // The gap makes two pieces of the second line.
        let blue = svg.lines().find(|line| line.contains("fill=\"none\" stroke=\"#0000ff\"")).unwrap_or_default();
        assert_eq!(blue.matches('M').count(), 2, "{blue}");
    }

    #[test]
    fn the_picture_shows_the_lines_in_their_colours() {
        let picture = chart().picture();
        assert_eq!((picture.size, picture.rgb.len()), (Size::new(1200, 700), 1200 * 700 * 3));
        for color in [[255, 0, 0], [0, 0, 255]] {
            // Below the key.
            let n = picture.rgb.chunks_exact(3).skip(1200 * 100).filter(|pixel| **pixel == color).count();
            assert!(n > 10, "{n} pixels of {color:?}");
        }
    }

    #[test]
    fn nothing_one_point_and_numbers_that_are_none_are_drawn_without_fault() {
        for is_log in [false, true] {
            for points in [vec![], vec![[3.0, 5.0]], vec![[0.0, f64::INFINITY], [1.0, f64::NAN]], vec![[0.0, 0.0], [1.0, -2.0]]] {
                let lines = vec![ChartLine { points, ..ChartLine::default() }];
                let chart = Chart { is_log, lines, ..Chart::default() };
                assert!(!chart.svg().contains("NaN"));
                assert_eq!(chart.picture().size.width, 1200);
            }
        }
    }

    #[test]
    fn marks_are_round_numbers() {
        assert_eq!(round_marks([0.0, 950.0], 8.0), [0.0, 200.0, 400.0, 600.0, 800.0]);
        assert_eq!([0.0, 0.05, 12.5, 1500.0, 0.00002].map(number), ["0", "0.05", "12.5", "1500", "2.0e-5"]);
        assert_eq!([0.03, 1.0, 2.1, 7.0].map(round_step), [0.05, 1.0, 2.5, 10.0]);
        assert_eq!(multiples([0.0, 1e9], 1.0).count(), 101);
        assert_eq!(["0.500", "2.0", "100", "-0.25"].map(trimmed), ["0.5", "2", "100", "-0.25"]);
    }
}
