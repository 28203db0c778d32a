//! What the program remembers between starts, and where it keeps its own files.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ThemeChoice {
    #[default]
    System,
    Light,
    Dark,
}

/// Which keys do what: a preset, and what differs from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeySettings {
    /// By its name; empty for the program's own.
    pub preset: String,
    /// Keys by the action's name, such as `"NextImage": ["F", "Ctrl+Right"]`; an empty list takes all keys away.
    pub changed: BTreeMap<String, Vec<String>>,
}

/// How a person wants the label editor to be.
#[expect(clippy::struct_excessive_bools, reason = "each is a checkbox of its own")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EditorSettings {
    pub shows_crosshair: bool,
    pub shows_loupe: bool,
    pub shows_pixel_grid: bool,
    /// Corners lie between pixels only.
    pub whole_pixels: bool,
    /// A box that was drawn asks for its class.
    pub asks_class: bool,
    /// So many images get the boxes that are propagated.
    pub n_propagated: u32,
}

impl Default for EditorSettings {
    fn default() -> Self {
        Self { shows_crosshair: true, shows_loupe: true, shows_pixel_grid: true, whole_pixels: false, asks_class: false, n_propagated: 1 }
    }
}

/// So many datasets are remembered.
const MAX_RECENT: usize = 8;

/// Settings of a person on a machine. An unreadable file gives the defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    pub theme: ThemeChoice,
    /// Datasets opened lately, the last first.
    pub recent: Vec<PathBuf>,
    pub keys: KeySettings,
    pub editor: EditorSettings,
    /// Journals and receipts of fixes; never inside a dataset.
    #[serde(skip)]
    pub state_dir: PathBuf,
    /// What can be made anew, such as thumbnails.
    #[serde(skip)]
    pub cache_dir: PathBuf,
    #[serde(skip)]
    path: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        let state_dir = std::env::temp_dir().join("boxwright");
        let cache_dir = state_dir.join("cache");
        Self {
            theme: ThemeChoice::default(),
            recent: Vec::new(),
            keys: KeySettings::default(),
            editor: EditorSettings::default(),
            cache_dir,
            state_dir,
            path: None,
        }
    }
}

impl Settings {
    /// Settings of this person: below `BOXWRIGHT_HOME` if set, else in the platform's folders.
    pub fn load() -> Self {
        let home = std::env::var_os("BOXWRIGHT_HOME").map(PathBuf::from);
        let dirs = directories::ProjectDirs::from("", "", "boxwright");
        let state_dir = home.clone().or_else(|| dirs.as_ref().map(|dirs| dirs.data_local_dir().to_path_buf()));
        let cache_dir = home.as_ref().map(|home| home.join("cache")).or_else(|| dirs.as_ref().map(|dirs| dirs.cache_dir().to_path_buf()));
        let config_dir = home.or_else(|| dirs.as_ref().map(|dirs| dirs.config_dir().to_path_buf()));
        let path = config_dir.map(|dir| dir.join("settings.json"));
        let read = |path: &Path| serde_json::from_slice(&std::fs::read(path).ok()?).ok();
        let mut settings: Self = path.as_deref().and_then(read).unwrap_or_default();
        settings.path = path;
        if let Some(state_dir) = state_dir {
            settings.state_dir = state_dir;
        }
        if let Some(cache_dir) = cache_dir {
            settings.cache_dir = cache_dir;
        }
        settings
    }

    /// Settings that keep everything below one folder and are never saved; for tests.
    pub fn in_dir(dir: &Path) -> Self {
        Self { state_dir: dir.to_path_buf(), cache_dir: dir.join("cache"), ..Self::default() }
    }

    /// Where the sample dataset is drawn to.
    pub fn sample_dir(&self) -> PathBuf {
        self.state_dir.join("sample")
    }

    /// Trainings that wait.
    pub(super) fn queue_path(&self) -> PathBuf {
        self.state_dir.join("queue.json")
    }

    /// Puts a dataset first among the recent ones.
    pub(super) fn remember(&mut self, dataset: &Path) {
        self.recent.retain(|recent| recent != dataset);
        self.recent.insert(0, dataset.to_path_buf());
        self.recent.truncate(MAX_RECENT);
    }

    pub(super) fn save(&self) -> std::io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let dir = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(dir)?;
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        serde_json::to_writer_pretty(&mut file, self)?;
        file.flush()?;
        file.persist(path)?;
        Ok(())
    }
}
