#!/bin/sh
# clang-tidy over our own files: tidy.sh SOURCE BUILD
# clang cannot read gcc's precompiled header, so its flags are taken out of the compile commands. That also shows which
# file leans on the precompiled header for an include of its own.
# Two builtins of gcc's are unknown to older clangs: __builtin_assoc_barrier, of which only the value matters here, and the
# "f16c" of kernels/cpu/isa.cpp, which has no substitute: that file is left out.
set -eu
mkdir -p "$2/tidy"
sed 's/ -Winvalid-pch -include [^ ]*//' "$2/compile_commands.json" >"$2/tidy/compile_commands.json"
cd "$1"
git ls-files -co --exclude-standard '*.cpp' | grep -v -e '^tests/install/' -e '^kernels/cpu/isa\.cpp$' |
  xargs -n 1 -P "$(nproc)" clang-tidy -p "$2/tidy" --quiet '--extra-arg=-D__builtin_assoc_barrier(x)=(x)'
