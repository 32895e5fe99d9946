"""The tailor command while it writes: nowhere that it must not, nothing left behind by whatever ends it, and what it shows meanwhile."""
import ctypes
import os
import pathlib
import random
import resource
import signal
import stat
import subprocess
import time
import zipfile

from checks import main
from command import COMMAND, Command

LIBC = ctypes.CDLL(None)


def without_overriding():
    """What is executed next is bound by permissions, though it be root's. Nobody else has these rights anyway."""
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        LIBC.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


class WritingTest(Command):
    def test_refuses_outputs_that_are_no_files(self):
        other = self.folder / "other"
        self.refused(6, "fuse", self.source, "-o", self.folder, says="is a folder")
        self.refused(6, "fuse", self.source, "-o", other / "x.pt", says="No such file")
        os.mkfifo(other)
        kept = dict(says="not a regular file", leaves=("model.pt", "other"))
        self.refused(6, "fuse", self.source, "-o", other, **kept)
        self.refused(6, "fuse", self.source, "-o", self.target, "--report", other, **kept)
        os.remove(other)
        try:  # a device of the test's own: if this ever failed on the machine's, it would replace that
            os.mknod(other, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        except PermissionError:
            return
        self.refused(6, "fuse", self.source, "-o", other, **kept)

    def test_link(self):
        (self.folder / "there").mkdir()
        link = self.folder / "link.pt"
        link.symlink_to("there/target.pt")
        self.done("fuse", self.source, "-o", link)
        self.assertTrue(link.is_symlink())
        self.assertTrue(stat.S_ISREG((self.folder / "there/target.pt").lstat().st_mode))
        self.assertEqual(os.listdir(self.folder / "there"), ["target.pt"])

    def test_full_disk(self):
        self.target.write_text("old")
        limit = len(self.model) // 2
        self.refused(6, "fuse", self.source, "-o", self.target, says="cannot be written: File too large", leaves=("fused.pt", "model.pt"),
                     preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        self.assertEqual(self.target.read_text(), "old")

    def test_really_full_disk(self):
        mount = self.folder / "small"
        mount.mkdir()
        if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(mount)], capture_output=True).returncode:
            self.skipTest("cannot mount a small file system here")
        self.addCleanup(subprocess.run, ["umount", str(mount)], check=True)
        self.refused(6, "fuse", self.source, "-o", mount / "fused.pt", says="No space left", leaves=("model.pt", "small"))
        self.assertEqual(os.listdir(mount), [])

    def test_read_only_folder(self):
        self.folder.chmod(0o500)
        self.addCleanup(self.folder.chmod, 0o700)
        self.refused(6, "fuse", self.source, "-o", self.target, says="its folder: Permission denied", preexec_fn=without_overriding)

    def test_standard_output_that_cannot_be_written(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([COMMAND, "fuse", self.source, "-o", self.target], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual((result.returncode, os.listdir(self.folder)), (6, ["model.pt"]), result)

    def test_signals_leave_nothing(self):
        """Ended at many moments: the old file or the new one, and no temporary file."""
        start = time.monotonic()
        self.done("fuse", self.source, "-o", self.target)
        whole = time.monotonic() - start
        chance, met = random.Random(0), 0
        for turn, number in enumerate((signal.SIGTERM, signal.SIGINT, signal.SIGKILL) * 4):
            self.target.write_text("old")
            process = subprocess.Popen([COMMAND, "fuse", self.source, "-o", self.target], stdout=subprocess.DEVNULL)
            if turn % 2:
                time.sleep(chance.uniform(0.3, 1) * whole)
            else:  # the moment that matters is a short one
                while process.poll() is None and not (there := any("tailor-tmp" in name for name in os.listdir(self.folder))):
                    time.sleep(0.0005)
                met += there
            process.send_signal(number)
            process.wait()
            left = set(os.listdir(self.folder)) - {"model.pt", "fused.pt"}
            if number == signal.SIGKILL:  # nobody can clean up after this, so the name has to say what it is
                self.assertTrue(all(name.startswith("fused.pt.tailor-tmp-") for name in left), left)
                for name in left:
                    (self.folder / name).unlink()
            else:
                self.assertEqual(left, set())
            if self.target.read_bytes() != b"old":
                self.done("inspect", self.target)
        self.assertGreater(met, 0, "no signal came while a temporary file was there")

    def test_signal_to_the_first_process(self):
        """As in a container: the kernel spares it what it does not handle itself."""
        if subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True).returncode:
            self.skipTest("cannot begin a namespace of processes here")
        start = time.monotonic()
        self.done("fuse", self.source, "-o", self.target)
        whole = time.monotonic() - start
        for when in (0.4, 0.6, 0.8):
            self.target.unlink(missing_ok=True)
            process = subprocess.Popen(["unshare", "--pid", "--fork", COMMAND, "fuse", self.source, "-o", self.target], stdout=subprocess.DEVNULL)
            time.sleep(when * whole)
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            for child in children:
                os.kill(int(child), signal.SIGTERM)
            try:
                status = process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                for child in children:
                    os.kill(int(child), signal.SIGKILL)
                process.wait()
                raise
            self.assertIn(status, (0, 128 + signal.SIGTERM))
            self.assertLessEqual(set(os.listdir(self.folder)), {"fused.pt", "model.pt"})
            if status == 0 or self.target.exists():  # ended right after it was done
                self.done("inspect", self.target)

    def test_nobody_hears_what_would_be_lost(self):
        """A record that is no module's, and messages that go nowhere: the process ends at them, and leaves no file."""
        with zipfile.ZipFile(self.source) as old, zipfile.ZipFile(self.folder / "more.pt", "w") as new:
            for name in old.namelist():
                new.writestr(name, old.read(name))
            new.writestr(old.namelist()[0].split("/")[0] + "/foreign", b"hello")
        for words in (["fuse"], ["unfuse"]):
            reader, writer = os.pipe()
            os.close(reader)
            done = subprocess.run([COMMAND, *words, self.folder / "more.pt", "-o", self.target], stdout=subprocess.DEVNULL, stderr=writer)
            os.close(writer)
            self.assertEqual((done.returncode, os.listdir(self.folder).count("fused.pt")), (-signal.SIGPIPE, 0), words)
            self.assertIn("foreign", self.run_command(*words, self.folder / "more.pt", "-o", self.target).stderr)
            self.assertEqual(sorted(os.listdir(self.folder)), ["fused.pt", "model.pt", "more.pt"])
            self.target.unlink()

    def test_progress_only_for_people(self):
        self.assertEqual(self.run_command("inspect", self.source).stderr, "")
        leader, follower = os.openpty()
        process = subprocess.Popen([COMMAND, "inspect", self.source], stdout=subprocess.DEVNULL, stderr=follower)
        os.close(follower)
        seen = b""
        try:
            while part := os.read(leader, 4096):
                seen += part
        except OSError:  # how the end of a terminal looks
            pass
        process.wait()
        os.close(leader)
        self.assertIn(b"loading", seen)


if __name__ == "__main__":
    main()
