"""The copy of the sources into which tools/faults plants its faults, and the build of that copy."""
import hashlib
import os
import pathlib
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]


class Wrong(Exception):
    """Something that is neither a caught nor a surviving fault."""


def plural(count, thing):
    return f"{count} {thing}" + ("" if count == 1 else "s")


class Workshop:
    def __init__(self, folder, options):
        self.folder, self.options = folder, options
        self.source, self.build, self.kept, self.mark = (folder / n for n in ("source", "build", "kept", "planted"))
        self.places = [folder]  # which an overlay has to cover

    def bring_up_to_date(self):
        """Copies what differs, so that what does not need not be built again."""
        listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-coz", "--exclude-standard"], capture_output=True,
                                text=True, check=True).stdout.split("\0")
        wanted = {name for name in listed if name and (ROOT / name).is_file()}
        there = {str(p.relative_to(self.source)) for p in self.source.rglob("*") if p.is_file()} if self.source.exists() else set()
        for name in there - wanted:
            if "__pycache__" not in name:
                (self.source / name).unlink()
        for name in wanted:
            target, text = self.source / name, (ROOT / name).read_bytes()
            if name in there and target.read_bytes() == text:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text)
            shutil.copymode(ROOT / name, target)
        if self.mark.exists():  # ended with a fault planted: what was built from that file is not to be trusted
            (self.source / self.mark.read_text()).touch()
            self.mark.unlink()

    def configure(self):
        if (self.build / "build.ninja").exists() and not self.options.define:
            return
        # Warnings are off: a fault may leave a variable unused. Tests need no relinking where only the library changed.
        command = ["cmake", "-G", "Ninja", "-S", self.source, "-B", self.build, "-DCMAKE_BUILD_TYPE=Faults", "-DCMAKE_CXX_FLAGS=-w",
                   "-DCMAKE_CXX_FLAGS_FAULTS=-O0 -DNDEBUG", "-DCMAKE_LINK_DEPENDS_NO_SHARED=ON", *[f"-D{d}" for d in self.options.define]]
        if subprocess.run(command, check=False).returncode:
            raise Wrong("the copy cannot be configured")

    def ninja(self, quiet=True, targets=()):
        """What the compiler said, or nothing if it could be built."""
        done = subprocess.run(["ninja", "-C", self.build, f"-j{self.options.jobs}", *targets], text=True, check=False,
                              stdout=subprocess.PIPE if quiet else None, stderr=subprocess.STDOUT if quiet else None)
        return (done.stdout or "ninja failed") if done.returncode else ""

    def outputs(self):
        for place, folders, names in os.walk(self.build):
            folders[:] = [f for f in folders if f != "torch-venv" and not re.fullmatch(r"\d+\.\d+\.\d+|CMakeTmp|faults", f)]
            for name in names:
                path = pathlib.Path(place, name)
                if not path.is_symlink() and (path.suffix in (".o", ".so", ".a") or os.access(path, os.X_OK)):
                    yield path.relative_to(self.build)

    def keep(self):
        """Remembers what was built without a fault, so that taking a fault back costs no second compilation."""
        for path in self.outputs():
            self.copy_newer(self.build / path, self.kept / path)

    def plant(self, fault):
        path = self.source / fault.file
        self.before = path.read_text(), path.stat()
        text = fault.text_with(self.before[0])
        self.mark.write_text(fault.file)
        path.write_text(text)

    def take_back(self, fault):
        for path in list(self.outputs()):
            if (self.kept / path).exists():
                self.copy_newer(self.kept / path, self.build / path)
        text, status = self.before
        path = self.source / fault.file
        path.write_text(text)
        if path.suffix not in (".cmake", ".in", ".txt"):  # those make CMake run again, as they must
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        self.mark.unlink()

    @staticmethod
    def copy_newer(source, target):
        if target.exists():
            a, b = source.stat(), target.stat()
            if (a.st_size, a.st_mtime_ns) == (b.st_size, b.st_mtime_ns):
                return
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        shutil.copy2(source, target)

    def state(self, program):
        """Of what a test program runs, to know whether it has run as it is before."""
        files = [path for path in map(pathlib.Path, program.command) if path.is_file()]
        read = {self.build / "libtailor.so", self.build / "tailor", *files}
        for file in files[1:] if program.is_python else []:
            self.add_imports(file, read)
            text = file.read_text()
            if "README" in text or "cmake" in text:
                read.update(p for p in self.source.rglob("*") if p.suffix in (".md", ".in", ".cmake") and p.name != "faults.md")
        digest = hashlib.sha256()
        for path in sorted(read):
            digest.update(str(path).encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()

    def add_imports(self, file, found):
        """The files of ours that a Python file imports, and those that they import."""
        for name in re.findall(r"^(?:from|import) (\w+)", file.read_text(), re.MULTILINE):
            for path in (file.parent / f"{name}.py", self.source / "tools" / f"{name}.py"):
                if path.exists() and path not in found:
                    found.add(path)
                    self.add_imports(path, found)


class FinishedBuild(Workshop):
    """This checkout and a build of it, instead of a copy: faults go into overlays only."""

    def __init__(self, build, options):
        super().__init__(build / "faults-in-place", options)
        self.source, self.build = ROOT, build
        self.places = [ROOT] if build.is_relative_to(ROOT) else [ROOT, build]

    def bring_up_to_date(self):
        if not (self.build / "build.ninja").exists():
            raise Wrong(f"no build in {self.build}: run cmake --workflow --preset test")

    def configure(self):
        pass

    def keep(self):
        pass
