#!/usr/bin/env bash
# Runs the GPU's tests, then the benchmarks, and prints a short table last. Made for the folder that gpu-bundle.sh fills.
#   run.sh [FILTER…]     tests whose name contains one of these (default: cuda gpu); "none" for no tests
#   OUT=DIR              where the whole logs go (default: a folder "out" here)
#   BENCHES="a;b"        arguments of `boxwright bench`, separated by semicolons; empty for none
#   SECONDS_MAX=540      nothing new is begun after this
# Exit code 0: all tests passed and all benchmarks ran.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-$here/out}
mkdir -p "$out"
[ $# -gt 0 ] || set -- cuda gpu
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
seconds_max=${SECONDS_MAX:-540}
benches=${BENCHES-infer --model gelan-s --batch 1 --imgsz 640;train --model yolov9-t --batch 64 --imgsz 640;train --model yolov9-s --batch 64 --imgsz 640}

export BOXWRIGHT_ROOT="$here"
[ -d "$here/shared" ] && export BOXWRIGHT_SHARED="$here/shared"
# Libraries of the Python that is here; without one the program looks in the usual places.
if [ -z "${BOXWRIGHT_CUDA_PATH:-}" ]; then
    wheels=$(python3 -c 'import nvidia; print(":".join(nvidia.__path__))' 2>/dev/null) && export BOXWRIGHT_CUDA_PATH="$wheels"
fi
left() { echo $((seconds_max > SECONDS ? seconds_max - SECONDS : 1)); }
table="$out/table.txt"
echo "commit $(tr '\n' ' ' <"$here/commit" 2>/dev/null)" >"$table"
code=0

echo "== doctor"
timeout 60 "$here/boxwright" doctor 2>&1 | tee "$out/doctor.txt"

# Runs the tests of program $1 whose names contain one of the other arguments, one at a time: they share a GPU, and the log stays in order.
run_tests() {
    local program=$1 log="$out/$1.txt"
    shift
    echo "== $program"
    timeout "$(left)" "$here/$program" "$@" --test-threads=1 --nocapture >"$log" 2>&1
    local status=$?
    tail -n 3 "$log"
    local n_passed failed
    n_passed=$(grep -c '^test result: .* [0-9]* passed' "$log")
    failed=$(sed -n '/^failures:$/,$ s/^    \(.*\)$/\1/p' "$log" | sort -u)
    echo "$program: $(grep '^test result:' "$log" || echo 'ended early'), exit code $status" >>"$table"
    if [ "$n_passed" = 0 ] || [ "$status" != 0 ]; then code=1; fi
    # A test that breaks the GPU's context takes all later ones with it: try each one alone.
    for name in $failed; do
        if [ "$(left)" -le 1 ]; then echo "  $name: fails; no time to try it alone" >>"$table"; continue; fi
        local limit verdict reason
        limit=$(left)
        timeout $((limit < 60 ? limit : 60)) "$here/$program" "$name" --exact >"$temp/failed.txt" 2>&1 && verdict="passes alone" || verdict="fails alone, too"
        cat "$temp/failed.txt" >>"$out/failures.txt"
        # The first line of the panic's text.
        reason=$(grep -A 1 "panicked at" "$temp/failed.txt" | sed -n 2p | cut -c 1-300)
        echo "  $name: $verdict${reason:+: $reason}" >>"$table"
    done
    if [ "$status" != 0 ] && [ -z "$failed" ]; then
        echo "  ended early, in or after: $(grep '^test ' "$log" | tail -n 1 | cut -c 1-200)" >>"$table"
    fi
}
if [ "$1" != none ]; then
    run_tests gpu-tests "$@"
    run_tests gpu-network "$@"
fi

IFS=';' read -ra list <<<"$benches"
for arguments in "${list[@]}"; do
    echo "== bench $arguments"
    # shellcheck disable=SC2086 — the arguments are words
    timeout "$(left)" "$here/boxwright" bench $arguments --device 0 --json >"$temp/bench.json" 2>"$temp/bench.err"
    status=$?
    cat "$temp/bench.json" "$temp/bench.err" | tee -a "$out/benches.txt" | tail -n 3 | cut -c 1-600
    if [ "$status" != 0 ]; then
        code=1
        echo "bench $arguments: exit code $status: $(grep -m 1 . "$temp/bench.err" | cut -c 1-200)" >>"$table"
        continue
    fi
    python3 - "$temp/bench.json" "$arguments" >>"$table" <<'PYTHON'
import json, sys
result = [json.loads(line) for line in open(sys.argv[1]) if line.startswith("{")][-1]["result"]
keys = ["images_per_sec", "median_images_per_sec", "step_ms", "ms", "median_ms"]
print(f"bench {sys.argv[2]}: " + ", ".join(f"{key} {result[key]:.2f}" for key in keys if key in result))
PYTHON
done

echo
echo "== table (${SECONDS} s; whole logs in $out)"
cat "$table"
exit "$code"
