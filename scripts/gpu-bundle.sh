#!/usr/bin/env bash
# Builds what a machine with a GPU and no Rust needs to run the GPU's tests and benchmarks: programs, sample data, run.sh.
#   scripts/gpu-bundle.sh [release|dev]     makes gpu-bundle/ (ignored by git); there: gpu-bundle/run.sh [FILTER]
# `dev` is faster to build; the GPU is as fast with it, what the CPU computes is slower.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh
need_rust
need python3 python3

profile=${1:-release}
limit_mib=60
bundle=gpu-bundle

# Builds target $1 by the command that follows, and prints the path of the one program that it made.
build() {
    local target=$1
    shift
    # Errors of the compiler are rendered to stderr, messages for programs go to stdout.
    cargo "$@" --profile "$profile" --no-default-features --message-format=json-render-diagnostics | TARGET="$target" python3 -c '
import json, os, sys
target = os.environ["TARGET"]
messages = (json.loads(line) for line in sys.stdin if line.startswith("{"))
made = [m["executable"] for m in messages if m["reason"] == "compiler-artifact" and m["executable"] and m["target"]["name"] == target]
assert len(made) == 1, f"expected one program, cargo made {made}"
print(made[0])'
}
# Cargo tells tests of a profile by another command, not by its name.
program=$(build boxwright build --features cuda --bin boxwright)
tests=$(build boxwright test --no-run --features cuda,gpu-tests --lib)
network=$(build network test --no-run --features cuda,gpu-tests --test network)

rm -rf "$bundle"
mkdir -p "$bundle/tests" "$bundle/datasets"
strip -o "$bundle/boxwright" "$program"
strip -o "$bundle/gpu-tests" "$tests"
strip -o "$bundle/gpu-network" "$network"
cp -r tests/golden "$bundle/tests/"
cp -r datasets/parts "$bundle/datasets/"
cp -r kernels "$bundle/"
# Reference numbers that are too large for the repository, where they are at hand.
shared=${BOXWRIGHT_SHARED:-../shared}
for part in components forward forward_calibrated train_step; do
    if [ -d "$shared/golden/$part" ]; then
        mkdir -p "$bundle/shared/golden"
        cp -r "$shared/golden/$part" "$bundle/shared/golden/"
    fi
done
cp scripts/gpu-run.sh "$bundle/run.sh"
git rev-parse --short HEAD >"$bundle/commit"
[ -z "$(git status --porcelain)" ] || echo "with uncommitted changes" >>"$bundle/commit"

du -sh "$bundle"/* | sed 's/^/  /'
size_mib=$(du -sm "$bundle" | cut -f1)
if [ "$size_mib" -gt "$limit_mib" ]; then
    echo "error: $bundle has $size_mib MiB, more than $limit_mib" >&2
    exit 1
fi
echo "$bundle: $size_mib MiB"
