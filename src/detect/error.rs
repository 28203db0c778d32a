//! What can go wrong in detection, and what the person can do about it.

use crate::engine::cuda::error::CudaError;
use crate::media::MediaError;
use crate::media::decode::IMAGE_EXTENSIONS;
use crate::yolo::weights::WeightsError;

#[derive(Debug, thiserror::Error)]
pub enum DetectError {
    #[error(transparent)]
    Weights(#[from] WeightsError),
    #[error(transparent)]
    Media(#[from] MediaError),
    #[error("{what} is {value}, expected {expected}")]
    Option { what: &'static str, value: String, expected: String },
    #[error(transparent)]
    Cuda(#[from] CudaError),
    #[error("there is no file or folder {path}")]
    Missing { path: String },
    #[error("no pictures at {path}")]
    NoPictures { path: String },
    #[error("{path} is a video; this version detects on pictures only")]
    Video { path: String },
    #[error("{path} is no picture, going by its name")]
    NotAPicture { path: String },
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: std::io::Error },
    #[error("cannot write {path}: {source}")]
    Write { path: String, source: std::io::Error },
    #[error("the drawn picture would replace {path}")]
    Overwrite { path: String },
    #[error("cancelled")]
    Cancelled,
}

impl DetectError {
    /// What the person can do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Weights(error) => return error.hint(),
            Self::Media(MediaError::Decode { .. }) => "open it in a viewer; if it shows, save it again as JPEG or PNG".to_owned(),
            Self::Media(MediaError::Write { .. } | MediaError::Encode { .. }) | Self::Write { .. } => {
                "check that the output folder may be written to and has space left".to_owned()
            }
            Self::Cuda(error) => return error.hint().map(str::to_owned),
            Self::Missing { .. } => "check the spelling; a pattern such as 'photos/*.jpg' belongs in quotes".to_owned(),
            Self::NoPictures { .. } | Self::NotAPicture { .. } => {
                format!(
                    "give a picture ({}), a folder that holds some, a pattern with * or ?, or a .txt file with one path a line",
                    IMAGE_EXTENSIONS.join(", ")
                )
            }
            Self::Video { path } => {
                format!(
                    "cut it into frames, then detect on the folder: mkdir frames && ffmpeg -i {} -vf fps=5 frames/%06d.jpg",
                    shell_word(path)
                )
            }
            Self::Overwrite { .. } => "choose another output folder; source pictures are never changed".to_owned(),
            Self::Media(MediaError::Io { .. }) | Self::Option { .. } | Self::Read { .. } | Self::Cancelled => return None,
        })
    }
}

/// As it must be typed.
fn shell_word(text: &str) -> String {
    let plain = |sign: char| sign.is_ascii_alphanumeric() || "/._-".contains(sign);
    if !text.is_empty() && text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::DetectError;

    #[test]
    fn the_hint_for_a_video_can_be_typed() {
        let hint = DetectError::Video { path: "my film's end.mp4".to_owned() }.hint();
        assert!(hint.is_some_and(|hint| hint.contains(r"-i 'my film'\''s end.mp4' ")));
    }
}
