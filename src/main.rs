//! The `boxwright` program: parses the command line and runs one command, or opens the window.

use std::process::ExitCode;

fn main() -> ExitCode {
    boxwright::cli::main()
}
