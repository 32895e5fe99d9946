"""The program that prints what the kernels for Hopper would do with a problem. What they decide, ops_test asks."""
import pathlib
import subprocess
import unittest

from checks import library, main

PROGRAM = pathlib.Path(library()).with_name("hopper_plan")


def run(*words):
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, check=False)


class HopperPlanTest(unittest.TestCase):
    def verdicts(self, *words):
        done = run(*words)
        self.assertEqual((done.returncode, done.stderr), (0, ""), words)
        return dict(line.split(": ", 1) for line in done.stdout.splitlines() if not line.startswith(" "))

    def test_the_first_that_takes_it_gets_it(self):
        self.assertEqual(self.verdicts(16384, 4096, 4096), {"hopper": "takes it"})
        self.assertEqual(self.verdicts(128, 8192, 8192, "--dtype", "float32"), {"bf16x6": "takes it", "fp16x3": "another has it already"})
        self.assertEqual(self.verdicts(128, 8192, 8192, "--dtype", "float32", "--settled"),
                         {"bf16x6": "its weight is settled, and its halves are faster", "fp16x3": "takes it"})
        found = self.verdicts(300, 2048, 16384, "--dtype", "float32")
        self.assertEqual(list(found), ["bf16x6", "fp16x3"])
        self.assertEqual(list(found.values()).count("takes it"), 1, found)

    def test_what_none_takes_goes_the_other_way(self):
        found = self.verdicts(1024, 4096, 4096, "--group-width", 128)
        self.assertEqual(found, {"hopper": "its groups are not 16, 32 or 64 columns wide", "cuda": "torch's linear, and a kernel for the tail"})
        found = self.verdicts(1024, 8192, 8192, "--group-width", 128, "--dtype", "float32")
        self.assertEqual(found["linear/fp16x3"], "takes it")
        for words in ((4096, 4096, 4100), (4096, 4100, 4096)):  # results, operands
            self.assertEqual(self.verdicts(*words)["hopper"], "the rows of a matrix are not aligned to 16 bytes")
        self.assertEqual(self.verdicts(4096, 4096, 4100, "--dtype", "tf32")["hopper"], "takes it")

    def test_tiles(self):
        """The ways that there are, each once, and the one that is taken is said to take the least time."""
        for words, count in (((3144, 3456, 2560), 3), ((3272, 4032, 2752), 4), ((16384, 4096, 4096, "--group-width", 32), 4)):
            lines = [line for line in run(*words).stdout.splitlines() if "tiles of" in line]
            self.assertEqual([line.startswith("    not ") for line in lines], [False] + [True] * (count - 1), lines)
            times = [int(line.split(": ")[1].split(" us")[0]) for line in lines]
            self.assertEqual(times[0], min(times), lines)
            ways = {(line.split(" x ")[1].split(",")[0], "in turns" in line, "half as wide" in line) for line in lines}
            self.assertEqual(len(ways), count, lines)

    def test_strips_of_elements(self):
        """Where they are taken, tiles are among the other ways; where they are not, and 16 bits could be, they are."""
        for words, taken in (((16, 8192, 8192), True), ((1024, 2048, 2048), False), ((1024, 2048, 2048, "--dtype", "tf32"), None)):
            lines = [line for line in run(*words).stdout.splitlines() if line.startswith("    ")]
            self.assertEqual(self.verdicts(*words).get("hopper"), "takes it", words)
            self.assertEqual("strips of" in lines[0], taken is True, lines)
            self.assertEqual(["not strips of" in line for line in lines].count(True), 1 if taken is False else 0, lines)
            self.assertEqual(["not tiles of" in line for line in lines].count(True), {True: 4, False: 3, None: 2}[taken], lines)

    def test_a_gpu_of_slower_memory_gathers(self):
        found = [self.verdicts(16384, 4096, 4096, "--batch-statistics", "--memory", rate)["hopper"] for rate in (4900, 3350)]
        self.assertEqual(found, ["takes it", "to gather its statistics, and then to compute the tail, is faster"])

    def test_a_gpu_of_fewer_processors_takes_longer(self):
        def time(*words):
            return int(run(16384, 4096, 4096, *words).stdout.split(" us;")[0].split()[-1])
        self.assertGreater(time("--processors", 60), 2 * time())

    def test_batch_statistics(self):
        self.assertEqual(self.verdicts(1024, 8192, 8192, "--batch-statistics"), {"hopper": "takes it", "hopper_gather": "another has it already"})
        self.assertEqual(self.verdicts(32768, 4096, 4096, "--batch-statistics"),
                         {"hopper": "not all tiles of a column fit onto the processors at a time", "hopper_gather": "takes it"})
        self.assertEqual(self.verdicts(1024, 8192, 8192, "--dtype", "tf32", "--batch-statistics"),
                         {"hopper": "a tail with batch statistics comes after the whole linear", "hopper_gather": "takes it"})
        found = self.verdicts(1024, 8192, 8192, "--dtype", "float32", "--batch-statistics")
        self.assertEqual(found, {f"linear/{path}": says for path, says in self.verdicts(1024, 8192, 8192, "--dtype", "float32").items()})
        self.assertEqual(found["linear/fp16x3"], "takes it")

    def test_gradients(self):
        self.assertEqual(self.verdicts(32768, 1024, 4096, "--group-width", 64, "--gradients"), {"hopper": "takes it"})
        self.assertEqual(self.verdicts(1024, 8192, 8192, "--batch-statistics", "--gradients"),
                         {"hopper": "gradients are wanted", "hopper_gather": "takes it"})
        self.assertEqual(self.verdicts(1024, 8192, 8192, "--dtype", "float32", "--gradients"),
                         {"bf16x6": "strips do not keep the linear's result", "fp16x3": "takes it"})
        few = (64, 8192, 8192, "--dtype", "float32")
        alone = {f"linear/{path}": says for path, says in self.verdicts(*few).items()}
        self.assertEqual(self.verdicts(*few, "--gradients"), alone, "the linear by itself, which nobody asks to keep anything")

    def test_wrong_words(self):
        for number in ("x", 0, -1, 2**31, 10**20):
            self.assertIn(f"'{number}' is no number from 1 to 2147483647", run(1, 2, number).stderr)
        for words, says in (((1, 2), "three sizes"), ((0, 2, 3), "'0' is no number from 1 to 2147483647"), ((1, 2, 3, "--dtype"), "wants a value"),
                            ((1, 2, 3, "--dtype", "int8"), "there is no dtype int8"), ((1, 2, 3, "--fast"), "no option --fast"),
                            ((1, 2, 3, "--processors", 0), "'0' is no number from 1 to 2147483647"),
                            ((1, 2, 3, "--batch-statistics", "--group-width", 1), "a tail has one norm")):
            done = run(*words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertRegex(done.stderr, f"^hopper_plan: .*{says}; --help says more\n$")
        self.assertIn("TAILOR_HOPPER", run("--help").stdout)


if __name__ == "__main__":
    main()
