//! How does the window look? Colours, fonts, sizes and spacing, light and dark.
//!
//! Chrome is neutral and quiet, one accent marks what is chosen or comes next; strong colours belong to the classes of
//! boxes. Panels take colours and sizes from here and name none themselves.
//!
//! The text font is Inter (assets/fonts, SIL Open Font License), with figures of equal width so that running numbers do
//! not move; egui's built-in fonts stand in for missing glyphs.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use egui::epaint::Shadow;
use egui::style::{HandleShape, ScrollStyle, WidgetVisuals};
use egui::{
    Color32, Context, CornerRadius, FontData, FontDefinitions, FontFamily, FontId, Margin, Stroke, Style, TextStyle, Theme,
    ThemePreference, Ui, Visuals, vec2,
};

use crate::media::draw;
use crate::session::ThemeChoice;

/// Corner radius of controls, and of cards.
pub const RADIUS: u8 = 6;
pub const CARD_RADIUS: u8 = 8;
/// Margin inside panels, and between cards.
pub const GAP: f32 = 12.0;

/// The named colours of one theme.
#[derive(Debug)]
pub struct Palette {
    /// Behind pictures and between cards.
    pub backdrop: Color32,
    pub panel: Color32,
    /// Cards on the backdrop.
    pub card: Color32,
    pub field: Color32,
    pub button: Color32,
    pub hover: Color32,
    pub pressed: Color32,
    pub border: Color32,
    pub strong: Color32,
    pub text: Color32,
    pub weak: Color32,
    pub faint: Color32,
    pub accent: Color32,
    pub accent_hover: Color32,
    pub on_accent: Color32,
    /// Behind what is selected.
    pub accent_soft: Color32,
    pub good: Color32,
    pub warn: Color32,
    pub bad: Color32,
    /// The three losses, and the two average precisions.
    pub curves: [Color32; 3],
    pub scores: [Color32; 2],
    /// Runs side by side.
    pub runs: [Color32; 8],
}

const fn rgb(hex: u32) -> Color32 {
    Color32::from_rgb((hex >> 16) as u8, (hex >> 8) as u8, hex as u8)
}

static DARK: Palette = Palette {
    backdrop: rgb(0x0f_1114),
    panel: rgb(0x17_1a1f),
    card: rgb(0x1b_1f25),
    field: rgb(0x10_1317),
    button: rgb(0x26_2b33),
    hover: rgb(0x2f_3540),
    pressed: rgb(0x20_252c),
    border: rgb(0x2b_3038),
    strong: rgb(0xf4_f6f8),
    text: rgb(0xd5_dae1),
    weak: rgb(0x95_9eab),
    faint: rgb(0x6d_7683),
    accent: rgb(0x4b_8df8),
    accent_hover: rgb(0x66_9efa),
    on_accent: rgb(0xff_ffff),
    accent_soft: rgb(0x1f_3253),
    good: rgb(0x3f_c48a),
    warn: rgb(0xf0_b040),
    bad: rgb(0xf2_6a6a),
    curves: [rgb(0x5b_9dff), rgb(0xf2_9e4c), rgb(0x4f_c9a4)],
    scores: [rgb(0xb0_8cff), rgb(0xff_7fa8)],
    runs: [rgb(0x5b_9dff), rgb(0xf2_9e4c), rgb(0x4f_c9a4), rgb(0xff_7fa8), rgb(0xb0_8cff), rgb(0xe6_d34a), rgb(0x6f_d3ee), rgb(0xc9_9a76)],
};

static LIGHT: Palette = Palette {
    backdrop: rgb(0xee_f0f3),
    panel: rgb(0xfa_fbfc),
    card: rgb(0xff_ffff),
    field: rgb(0xff_ffff),
    button: rgb(0xed_eff2),
    hover: rgb(0xe2_e6eb),
    pressed: rgb(0xd8_dde4),
    border: rgb(0xdd_e1e7),
    strong: rgb(0x12_161c),
    text: rgb(0x2b_323b),
    weak: rgb(0x5c_6672),
    faint: rgb(0x8b_949f),
    accent: rgb(0x24_68d8),
    accent_hover: rgb(0x1c_58bc),
    on_accent: rgb(0xff_ffff),
    accent_soft: rgb(0xdb_e8fd),
    good: rgb(0x15_8052),
    warn: rgb(0xa8_6500),
    bad: rgb(0xc9_2a2a),
    curves: [rgb(0x24_68d8), rgb(0xd0_6a10), rgb(0x12_8a66)],
    scores: [rgb(0x70_47d0), rgb(0xc9_2f6b)],
    runs: [rgb(0x24_68d8), rgb(0xd0_6a10), rgb(0x12_8a66), rgb(0xc9_2f6b), rgb(0x70_47d0), rgb(0x8a_7a00), rgb(0x0e_7f9c), rgb(0x8a_5a34)],
};

/// The colours of the theme that is drawn with.
pub fn palette(ui: &Ui) -> &'static Palette {
    if ui.visuals().dark_mode { &DARK } else { &LIGHT }
}

/// The colours for files, which are looked at on white.
pub fn paper() -> &'static Palette {
    &LIGHT
}

thread_local! {
    // Of the frame that is drawn, like the style; so that every row and box need not carry them.
    static CLASS_COLORS: RefCell<Arc<BTreeMap<u32, [u8; 3]>>> = RefCell::default();
}

/// Takes the colours that were chosen for classes of the open dataset; once a frame, before anything is drawn.
pub fn follow_class_colors(colors: Option<&Arc<BTreeMap<u32, [u8; 3]>>>) {
    CLASS_COLORS.with_borrow_mut(|shown| *shown = colors.cloned().unwrap_or_default());
}

/// The colour of a class: as it was chosen, else the same as in drawn pictures.
pub fn class_color(class: usize) -> Color32 {
    let chosen = CLASS_COLORS.with_borrow(|colors| colors.get(&(class as u32)).copied());
    let [r, g, b] = chosen.unwrap_or_else(|| draw::class_color(class));
    Color32::from_rgb(r, g, b)
}

/// Black or white, whichever reads better on `background`.
pub fn ink_on(background: Color32) -> Color32 {
    let [r, g, b, _] = background.to_array().map(f32::from);
    if 0.299 * r + 0.587 * g + 0.114 * b > 140.0 { rgb(0x10_1317) } else { Color32::WHITE }
}

/// Body text, heavier.
pub fn strong() -> TextStyle {
    TextStyle::Name("strong".into())
}

/// The program's name on the first screen.
pub fn title() -> TextStyle {
    TextStyle::Name("title".into())
}

/// A number that a panel is about.
pub fn figure() -> TextStyle {
    TextStyle::Name("figure".into())
}

/// Sets fonts and both themes; once, before the first frame.
pub fn install(ctx: &Context) {
    ctx.set_fonts(fonts());
    for (theme, palette) in [(Theme::Dark, &DARK), (Theme::Light, &LIGHT)] {
        ctx.style_mut_of(theme, |style| restyle(style, palette, theme));
    }
    // Ctrl with plus and minus zooms the picture, not the window's text.
    ctx.options_mut(|options| options.zoom_with_keyboard = false);
}

/// Follows the person's choice.
pub fn choose(ctx: &Context, choice: ThemeChoice) {
    ctx.set_theme(match choice {
        ThemeChoice::System => ThemePreference::System,
        ThemeChoice::Light => ThemePreference::Light,
        ThemeChoice::Dark => ThemePreference::Dark,
    });
}

fn fonts() -> FontDefinitions {
    let mut fonts = FontDefinitions::default();
    let regular = FontData::from_static(include_bytes!("../../assets/fonts/Inter-Regular.otf"));
    let semibold = FontData::from_static(include_bytes!("../../assets/fonts/Inter-SemiBold.otf"));
    fonts.font_data.insert("Inter".to_owned(), Arc::new(regular));
    fonts.font_data.insert("Inter SemiBold".to_owned(), Arc::new(semibold));
    let built_in = fonts.families.get(&FontFamily::Proportional).cloned().unwrap_or_default();
    for (family, first) in [(FontFamily::Proportional, "Inter"), (semibold_family(), "Inter SemiBold")] {
        let mut names = vec![first.to_owned()];
        names.extend(built_in.iter().cloned());
        fonts.families.insert(family, names);
    }
    fonts
}

fn semibold_family() -> FontFamily {
    FontFamily::Name("semibold".into())
}

fn restyle(style: &mut Style, palette: &Palette, theme: Theme) {
    let sizes = [(TextStyle::Body, 13.0), (TextStyle::Button, 13.0), (TextStyle::Small, 11.5)];
    for (text_style, size) in sizes {
        style.text_styles.insert(text_style, FontId::new(size, FontFamily::Proportional));
    }
    style.text_styles.insert(TextStyle::Monospace, FontId::new(12.0, FontFamily::Monospace));
    for (text_style, size) in [(TextStyle::Heading, 16.0), (strong(), 13.0), (title(), 28.0), (figure(), 18.0)] {
        style.text_styles.insert(text_style, FontId::new(size, semibold_family()));
    }

    let spacing = &mut style.spacing;
    spacing.item_spacing = vec2(8.0, 8.0);
    spacing.button_padding = vec2(11.0, 5.0);
    spacing.interact_size = vec2(32.0, 28.0);
    spacing.window_margin = Margin::same(16);
    spacing.menu_margin = Margin::same(6);
    spacing.combo_width = 80.0;
    spacing.slider_width = 150.0;
    spacing.slider_rail_height = 4.0;
    spacing.icon_width = 16.0;
    spacing.icon_width_inner = 9.0;
    spacing.tooltip_width = 320.0;
    spacing.scroll = ScrollStyle { bar_width: 8.0, floating_width: 4.0, ..ScrollStyle::floating() };
    style.animation_time = 0.1;
    style.interaction.tooltip_delay = 0.4;
    style.interaction.selectable_labels = false;
    style.visuals = visuals(palette, theme);
}

fn visuals(palette: &Palette, theme: Theme) -> Visuals {
    let mut visuals = theme.default_visuals();
    visuals.weak_text_color = Some(palette.weak);
    visuals.hyperlink_color = palette.accent;
    visuals.faint_bg_color = palette.accent_soft.gamma_multiply(0.25);
    visuals.extreme_bg_color = palette.field;
    visuals.text_edit_bg_color = Some(palette.field);
    visuals.code_bg_color = palette.field;
    visuals.warn_fg_color = palette.warn;
    visuals.error_fg_color = palette.bad;
    visuals.panel_fill = palette.panel;
    visuals.window_fill = palette.card;
    visuals.window_stroke = Stroke::new(1.0, palette.border);
    visuals.window_corner_radius = CornerRadius::same(10);
    visuals.menu_corner_radius = CornerRadius::same(CARD_RADIUS);
    visuals.window_shadow = Shadow { offset: [0, 8], blur: 24, spread: 0, color: Color32::from_black_alpha(70) };
    visuals.popup_shadow = Shadow { offset: [0, 4], blur: 14, spread: 0, color: Color32::from_black_alpha(60) };
    visuals.selection.bg_fill = palette.accent_soft;
    visuals.selection.stroke = Stroke::new(1.0, palette.strong);
    visuals.slider_trailing_fill = true;
    visuals.handle_shape = HandleShape::Circle;
    visuals.disabled_alpha = 0.45;

    let widgets = &mut visuals.widgets;
    let state = |weak_fill, fill, border, ink| WidgetVisuals {
        weak_bg_fill: weak_fill,
        bg_fill: fill,
        bg_stroke: Stroke::new(1.0, border),
        fg_stroke: Stroke::new(1.0, ink),
        corner_radius: CornerRadius::same(RADIUS),
        expansion: 0.0,
    };
    widgets.noninteractive = state(palette.panel, palette.panel, palette.border, palette.text);
    widgets.inactive = state(palette.button, palette.hover, palette.border, palette.text);
    widgets.hovered = state(palette.hover, palette.hover, palette.faint, palette.strong);
    widgets.active = state(palette.pressed, palette.pressed, palette.accent, palette.strong);
    widgets.open = state(palette.hover, palette.hover, palette.border, palette.strong);
    visuals
}
