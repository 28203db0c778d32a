# Installs what building and running need on a Debian machine, where it is missing. Sourced by demo.sh and test.sh.
#   need PROGRAM PACKAGE…   installs the packages when the program is not there
#   need_library SONAME PACKAGE…

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo "$@"; else
        echo "error: installing packages needs root: run as root, or install sudo" >&2
        exit 1
    fi
}

install_packages() {
    command -v apt-get >/dev/null || { echo "error: missing: $*" >&2; echo "hint: install these with your system's package manager" >&2; exit 1; }
    if [ -z "${apt_updated:-}" ]; then as_root apt-get update -qq; apt_updated=1; fi
    DEBIAN_FRONTEND=noninteractive as_root apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

need() { program=$1; shift; command -v "$program" >/dev/null || install_packages "$@"; }
need_library() { soname=$1; shift; /sbin/ldconfig -p | grep -qF "$soname" || install_packages "$@"; }

# Rust from the version in Cargo.toml on.
need_rust() {
    need gcc build-essential
    [ -f "$HOME/.cargo/env" ] && . "$HOME/.cargo/env"
    wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    found=$(cargo --version 2>/dev/null | cut -d' ' -f2)
    if [ -z "$found" ] || [ "$(printf '%s\n%s\n' "$wanted" "$found" | sort -V | head -n 1)" != "$wanted" ]; then
        need curl curl ca-certificates
        echo "installing Rust (rustup, for this user)…"
        curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y -q --profile minimal -c clippy -c rustfmt
        . "$HOME/.cargo/env"
    fi
}

# What a window opens at run time: X11 keyboard and cursor libraries, and a Vulkan or GL driver (Mesa's works without a GPU).
need_window_libraries() {
    need_library libxkbcommon-x11.so.0 libxkbcommon-x11-0 libxkbcommon0
    need_library libXcursor.so.1 libxcursor1
    need_library libXi.so.6 libxi6
    need_library libvulkan.so.1 libvulkan1 mesa-vulkan-drivers
    need_library libEGL.so.1 libegl1 libgl1-mesa-dri
}
