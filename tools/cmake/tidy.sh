#!/bin/sh
# clang-tidy over our own files: tidy.sh SOURCE BUILD
# clang cannot read gcc's precompiled header, so its flags are taken out of the compile commands. That also shows which
# file leans on the precompiled header for an include of its own.
# Two builtins of gcc's are unknown to older clangs: __builtin_assoc_barrier, of which only the value matters here, and the
# "f16c" of kernels/cpu/isa.cpp, which has no substitute: that file is left out.
set -eu
mkdir -p "$2/tidy"
python3 - "$2" <<'END'
import json, pathlib, re, sys

build, entries = pathlib.Path(sys.argv[1]), []
for entry in json.loads((build / "compile_commands.json").read_text()):
    command, path = re.sub(r" -Winvalid-pch -include \S+", "", entry["command"]), entry["file"]
    # Tests that are compiled several as one (tests/CMakeLists.txt) are looked at one by one.
    several = re.findall(r'#include "(.+)"', pathlib.Path(path).read_text()) if "/Unity/unity_" in path else []
    entries += [entry | {"file": file, "command": command.replace(path, file)} for file in several or [path]]
(build / "tidy/compile_commands.json").write_text(json.dumps(entries))
END
cd "$1"
git ls-files -co --exclude-standard '*.cpp' | grep -v -e '^tests/install/' -e '^kernels/cpu/isa\.cpp$' |
  xargs -n 1 -P "$(nproc)" clang-tidy -p "$2/tidy" --quiet '--extra-arg=-D__builtin_assoc_barrier(x)=(x)'
