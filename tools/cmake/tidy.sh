#!/bin/sh
# clang-tidy over our own files: tidy.sh SOURCE BUILD
# clang cannot read gcc's precompiled header, so its flags are taken out of the compile commands. That also shows which
# file leans on the precompiled header for an include of its own.
set -eu
mkdir -p "$2/tidy"
sed 's/ -Winvalid-pch -include [^ ]*//' "$2/compile_commands.json" >"$2/tidy/compile_commands.json"
cd "$1"
git ls-files -co --exclude-standard '*.cpp' | grep -v '^tests/install/' |
  xargs -n 1 -P "$(nproc)" clang-tidy -p "$2/tidy" --quiet
