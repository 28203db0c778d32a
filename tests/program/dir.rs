//! A folder for tests of the built program.

use std::path::PathBuf;
use std::process::{Command, Output};

/// A temporary folder with the program's own files inside, so that tests never meet each other or the user's settings.
pub(crate) struct Dir {
    temp: tempfile::TempDir,
}

impl Dir {
    pub(crate) fn new() -> Self {
        Self { temp: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_boxwright"));
        command.args(args).current_dir(self.temp.path()).env("BOXWRIGHT_HOME", self.path("home"));
        command
    }

    pub(crate) fn boxwright(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }
}
