#!/usr/bin/env bash
# The main job on the bundled sample dataset. Installs what is missing, builds, and opens the window; where there is no
# display it runs the same loop headless: check, fix, train, look, export. Results are in target/demo.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh

need_rust
has_display=
[ -n "${DISPLAY:-}${WAYLAND_DISPLAY:-}" ] && has_display=1
[ -n "$has_display" ] && need_window_libraries

echo "== build"
cargo build --release --quiet
boxwright=target/release/boxwright

if [ -n "$has_display" ]; then
    exec "$boxwright" datasets/parts
fi

start=$SECONDS
out=target/demo
rm -rf "$out"
mkdir -p "$out"
export BOXWRIGHT_HOME="$out/home"
step() { echo; echo "== $1  (${SECONDS}s)"; }

step "a dataset with known faults"
"$boxwright" sample "$out/broken" --images 32 --broken
step "check it: exit code 1, because there are errors"
"$boxwright" check "$out/broken" && { echo "error: the check found nothing" >&2; exit 1; }
step "fix what is safe"
"$boxwright" fix "$out/broken"
step "check the sample dataset itself"
"$boxwright" check datasets/parts
step "train yolov9-t at 160 px"
"$boxwright" train --data datasets/parts --model yolov9-t --imgsz 160 --batch 8 --epochs "${EPOCHS:-64}" --project "$out" --name train
weights="$out/train/weights/best.safetensors"
step "measure the best weights"
"$boxwright" val --data datasets/parts --weights "$weights"
step "look at detections"
"$boxwright" detect --weights "$weights" --source datasets/parts/images/val --save-img --save-txt --out "$out/detect"
step "export to ONNX"
"$boxwright" export --weights "$weights" --format onnx --out "$out/parts.onnx"
echo
echo "done in $((SECONDS - start)) s; pictures with boxes are in $out/detect"
