#!/usr/bin/env bash
# Everything that CI checks, cheap checks first. Installs what is missing. Tests never need a GPU or a display.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh

need_rust
# The window's tests draw with Vulkan or GL on the CPU.
need_library libvulkan.so.1 libvulkan1
[ -n "$(ls /usr/share/vulkan/icd.d/*lvp* 2>/dev/null)" ] || install_packages mesa-vulkan-drivers
need_library libEGL.so.1 libegl1 libgl1-mesa-dri
# Exported files are run in ONNX Runtime, kernels are compiled with NVRTC: both are Python packages.
need python3 python3
venv=target/test-venv
if ! "$venv/bin/python" -c 'import numpy, onnx, onnxruntime, nvidia' 2>/dev/null; then
    rm -rf "$venv"
    python3 -m venv "$venv" 2>/dev/null || { install_packages python3-venv; python3 -m venv "$venv"; }
    "$venv/bin/pip" install --quiet --disable-pip-version-check numpy onnx onnxruntime nvidia-cuda-nvrtc
fi
export BOXWRIGHT_PYTHON="$PWD/$venv/bin/python"
export BOXWRIGHT_CUDA_PATH="$PWD/$venv"

step() { echo; echo "== $1  (${SECONDS}s)"; }
step "format"
cargo fmt --check
step "lints"
cargo clippy --quiet --all-targets -- -D warnings
step "lints without the window and without CUDA"
cargo clippy --quiet --no-default-features --lib --bins -- -D warnings
step "tests"
cargo test --quiet
step "docs"
RUSTDOCFLAGS="-D warnings" cargo doc --quiet --no-deps
echo
echo "all checks passed in ${SECONDS} s"
