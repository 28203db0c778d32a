//! Proposals on one image: how they look, which one is marked, and what deciding on them comes to.
//!
//! In:  the session's open proposals. Out: commands: an edit for what is accepted, a rejection for what is not.
//!
//! A proposal is dashed and carries its score, so that nobody takes it for a label. The marked one is the most certain until
//! another is marked; when it is decided on, the next one in its place is.

use egui::epaint::Shape;
use egui::{
    Align2, Color32, Painter, Pos2, Rect, RichText, Role, Sense, Slider, Stroke, StrokeKind, TextStyle, Ui, WidgetInfo, pos2, vec2,
};

use super::action::Action;
use super::app::View;
use super::controls::{self, counted};
use super::picture_view::Drawn;
use super::theme::{self, palette};
use super::viewport;
use crate::session::Command;
use crate::session::Proposal;
use crate::session::Session;

/// Score from which on all are accepted at once, at first.
const SURE: f32 = 0.6;

/// What is remembered between frames.
pub struct ProposalPanel {
    image: Option<usize>,
    /// Among the open proposals of the image.
    marked: usize,
    /// Score from which on all are accepted at once.
    min_score: f32,
    queue: Queue,
}

impl Default for ProposalPanel {
    fn default() -> Self {
        Self { image: None, marked: 0, min_score: SURE, queue: Queue::default() }
    }
}

/// Images in the order of their uncertainty; for one state of the proposals.
#[derive(Default)]
struct Queue {
    revision: Option<u64>,
    images: Vec<u32>,
    /// The last one that was shown by it.
    position: Option<usize>,
}

impl ProposalPanel {
    /// Whether there is something to decide on this image.
    pub fn has_any(session: &Session, image: usize) -> bool {
        !session.proposals.is_empty() && !session.open_proposals(image).is_empty()
    }

    /// Carries out an action on proposals.
    pub fn act(&mut self, action: Action, session: &Session, image: usize) -> Vec<Command> {
        self.turn_to(image);
        let open = session.open_proposals(image);
        let Some(last) = open.len().checked_sub(1) else { return Vec::new() };
        let (index, proposal) = open[self.marked.min(last)];
        match action {
            Action::AcceptProposal => {
                let edit = session.acceptance_of(std::iter::once((image, vec![proposal.label])));
                edit.map(Command::Edit).into_iter().collect()
            }
            Action::RejectProposal => vec![Command::RejectProposals { image, indices: vec![index] }],
            Action::NextProposal => {
                self.marked = (self.marked.min(last) + 1) % open.len();
                Vec::new()
            }
            Action::PreviousProposal => {
                self.marked = (self.marked.min(last) + last) % open.len();
                Vec::new()
            }
            Action::AcceptProposals => session.acceptance(std::iter::once(image), self.min_score).map(Command::Edit).into_iter().collect(),
            Action::RejectProposals => vec![Command::RejectProposals { image, indices: open.iter().map(|(index, _)| *index).collect() }],
            _ => Vec::new(),
        }
    }

    /// The edit that accepts what is certain enough, in the whole dataset.
    pub fn accept_everywhere(&self, session: &Session) -> Option<Command> {
        let n_images = session.dataset.as_ref().map_or(0, |open| open.dataset.images.len());
        session.acceptance(0..n_images, self.min_score).map(Command::Edit)
    }

    /// The next image of the queue of the uncertain, which still has something to decide on.
    pub fn next_uncertain(&mut self, session: &Session) -> Option<usize> {
        let Queue { revision, images, position } = &mut self.queue;
        // Accepting keeps the order and closes proposals: only what a detector or a rejection changes asks for a new one.
        if *revision != Some(session.proposals.revision) {
            let shown = position.and_then(|position| images.get(position)).copied();
            *images = session.uncertain_first();
            *revision = Some(session.proposals.revision);
            *position = shown.and_then(|shown| images.iter().position(|image| *image == shown));
        }
        let n = images.len();
        let start = position.map_or(0, |position| position + 1);
        let found = (0..n).map(|step| (start + step) % n).find(|&place| Self::has_any(session, images[place] as usize))?;
        *position = Some(found);
        Some(images[found] as usize)
    }

    /// Draws the list beside the image, where there is something to decide on.
    pub fn side_ui(&mut self, ui: &mut Ui, view: &mut View<'_>, image: usize) {
        self.turn_to(image);
        let session = view.session;
        let open = session.open_proposals(image);
        let Some(dataset) = session.dataset.as_ref().map(|open| &open.dataset) else { return };
        let Some(last) = open.len().checked_sub(1) else {
            // Nothing is left to decide on, unless that was a slip.
            if session.proposals.last_rejected() == Some(&dataset.images[image].path) {
                bring_back_ui(ui, view);
                ui.separator();
            }
            return;
        };
        self.marked = self.marked.min(last);
        controls::section(ui, &counted(open.len(), "proposal"));
        ui.spacing_mut().item_spacing.y = 2.0;
        egui::ScrollArea::vertical().max_height(160.0).auto_shrink([false, true]).show_rows(
            ui,
            controls::ROW_HEIGHT,
            open.len(),
            |ui, rows| {
                for place in rows {
                    let (_, proposal) = open[place];
                    let class = proposal.label.class.0 as usize;
                    let name = dataset.names.get(class).map_or("?", String::as_str);
                    if row_ui(ui, name, &proposal, place == self.marked).clicked() {
                        self.marked = place;
                    }
                }
            },
        );
        ui.add_space(6.0);
        ui.horizontal_wrapped(|ui| {
            for action in [Action::AcceptProposal, Action::RejectProposal] {
                let text = if action == Action::AcceptProposal { "Accept" } else { "Reject" };
                let response = ui.button(text).on_hover_text(action.tooltip(ui.ctx()));
                response.widget_info(|| WidgetInfo::labeled(Role::Button, true, action.title()));
                if response.clicked() {
                    view.act(action);
                }
            }
        });
        ui.horizontal(|ui| {
            controls::weak(ui, "Sure from");
            let slider = Slider::new(&mut self.min_score, 0.0..=1.0).max_decimals(2);
            controls::slider(ui, slider, "Sure from", "Score from which on proposals are accepted together", 70.0);
        });
        let n_sure = open.iter().filter(|(_, proposal)| proposal.score >= self.min_score).count();
        let reason = (n_sure == 0).then_some("No proposal has this score");
        ui.horizontal_wrapped(|ui| {
            if controls::action_button(ui, Action::AcceptProposals, reason) {
                view.act(Action::AcceptProposals);
            }
            if controls::action_button(ui, Action::RejectProposals, None) {
                view.act(Action::RejectProposals);
            }
            if session.proposals.last_rejected().is_some() {
                bring_back_ui(ui, view);
            }
        });
        ui.add_space(4.0);
        ui.separator();
    }

    /// Draws the open proposals over the picture of the image.
    pub fn paint(&self, ui: &Ui, drawn: &Drawn, session: &Session, image: usize) {
        let Some(dataset) = session.dataset.as_ref().map(|open| &open.dataset) else { return };
        let open = session.open_proposals(image);
        let marked = if self.image == Some(image) { self.marked } else { 0 };
        let clip = drawn.projection.canvas;
        let painter = ui.painter_at(clip);
        // The marked one last, above the others.
        let order = (0..open.len()).filter(|place| *place != marked).chain((marked < open.len()).then_some(marked));
        for place in order {
            let proposal = open[place].1;
            let rect = drawn.projection.screen_rect(viewport::image_rect(proposal.label.bbox, drawn.size));
            if clip.intersects(rect.expand(24.0)) {
                let class = proposal.label.class.0 as usize;
                let name = dataset.names.get(class).map_or("?", String::as_str);
                paint_proposal(ui, &painter, rect, theme::class_color(class), &format!("{name} {:.2}", proposal.score), place == marked);
            }
        }
    }

    fn turn_to(&mut self, image: usize) {
        if self.image != Some(image) {
            (self.image, self.marked) = (Some(image), 0);
        }
    }
}

fn bring_back_ui(ui: &mut Ui, view: &mut View<'_>) {
    if controls::action_button(ui, Action::BringProposalsBack, None) {
        view.act(Action::BringProposalsBack);
    }
}

fn row_ui(ui: &mut Ui, name: &str, proposal: &Proposal, is_marked: bool) -> egui::Response {
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), controls::ROW_HEIGHT), Sense::click());
    let score = format!("{:.2}", proposal.score);
    response.widget_info(|| WidgetInfo::selected(Role::Button, true, is_marked, format!("proposal {name} {score}")));
    controls::row_background(ui, rect, &response, is_marked);
    let swatch = Rect::from_center_size(pos2(rect.left() + 13.0, rect.center().y), egui::Vec2::splat(9.0));
    let color = theme::class_color(proposal.label.class.0 as usize);
    ui.painter().rect_stroke(swatch, 2.0, Stroke::new(1.5, color), StrokeKind::Inside);
    let font = TextStyle::Small.resolve(ui.style());
    let end = ui.painter().text(pos2(rect.right() - 8.0, rect.center().y), Align2::RIGHT_CENTER, score, font, palette(ui).weak);
    controls::paint_text(ui, pos2(rect.left() + 26.0, rect.center().y), end.left() - rect.left() - 34.0, RichText::new(name));
    response.on_hover_text("Mark this proposal, to accept or reject it")
}

fn paint_proposal(ui: &Ui, painter: &Painter, rect: Rect, color: Color32, tag: &str, is_marked: bool) {
    let corners: [Pos2; 5] = [rect.left_top(), rect.right_top(), rect.right_bottom(), rect.left_bottom(), rect.left_top()];
    let width = if is_marked { 2.5 } else { 1.5 };
    // Dark below the dashes, so that they are seen on pictures of their colour.
    painter.extend(Shape::dashed_line(&corners, Stroke::new(width + 1.5, Color32::from_black_alpha(130)), 7.0, 5.0));
    painter.extend(Shape::dashed_line(&corners, Stroke::new(width, color), 7.0, 5.0));
    if is_marked {
        painter.rect_filled(rect, 0.0, color.gamma_multiply(0.14));
    }
    let font = TextStyle::Small.resolve(ui.style());
    let galley = painter.layout_no_wrap(tag.to_owned(), font, Color32::WHITE);
    let size = galley.size() + vec2(8.0, 2.0);
    // Below the box, where no label has its tag.
    let at = Rect::from_min_size(pos2(rect.left(), rect.bottom() + 2.0), size);
    painter.rect(at, 3.0, Color32::from_black_alpha(190), Stroke::new(if is_marked { 1.5 } else { 0.0 }, color), StrokeKind::Inside);
    painter.galley(at.min + vec2(4.0, 1.0), galley, Color32::WHITE);
}
