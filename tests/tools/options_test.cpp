#include "tools/options.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "files.h"

namespace tailor::tool {
namespace {

const std::vector<std::string> rules{"linear_mul_batch_norm", "linear_sigmoid_mul_add"};

Request parsed(const std::vector<std::string>& arguments) { return parse(arguments, rules); }

std::string refused(const std::vector<std::string>& arguments) {
  return failure_of(Exit::wrong_use, [&] { parsed(arguments); });
}

TEST(Options, Fuse) {
  const Request request = parsed({"fuse",
                                  "--rule",
                                  "linear_mul_batch_norm",
                                  "in.pt",
                                  "-o",
                                  "out.pt",
                                  "--rule=linear_sigmoid_mul_add",
                                  "--expect",
                                  "linear_mul_batch_norm=2",
                                  "--input",
                                  "float32[16,8192]",
                                  "--input",
                                  "int64[]",
                                  "--seed",
                                  "18446744073709551615",
                                  "--settle",
                                  "--report",
                                  "r.json",
                                  "--svg=g.svg",
                                  "--library",
                                  "a.so",
                                  "--device",
                                  "cpu"});
  EXPECT_EQ(request.command, Command::fuse);
  EXPECT_EQ(request.input, "in.pt");
  EXPECT_EQ(request.output, "out.pt");
  EXPECT_EQ(request.rules, rules);
  ASSERT_EQ(request.expectations.size(), 1u);
  EXPECT_EQ(request.expectations[0].rule, "linear_mul_batch_norm");
  EXPECT_EQ(request.expectations[0].count, 2u);
  EXPECT_EQ(request.inputs, (std::vector<std::string>{"float32[16,8192]", "int64[]"}));
  EXPECT_EQ(request.seed, ~std::uint64_t{0});
  EXPECT_TRUE(request.settle);
  EXPECT_TRUE(request.verify);
  EXPECT_EQ(request.report, "r.json");
  EXPECT_EQ(request.svg, "g.svg");
  EXPECT_EQ(request.libraries, std::vector<std::string>{"a.so"});
  EXPECT_EQ(request.place, Place::cpu);
}

TEST(Options, Defaults) {
  const Request request = parsed({"fuse", "in.pt", "--output", "in.pt", "--no-verify"});
  EXPECT_EQ(request.output, request.input);  // in place
  EXPECT_FALSE(request.verify);
  EXPECT_FALSE(request.settle);
  EXPECT_EQ(request.seed, 0u);
  EXPECT_EQ(request.place, Place::as_saved);
  EXPECT_EQ(parsed({"inspect", "in.pt"}).command, Command::inspect);
  EXPECT_EQ(parsed({"unfuse", "-o=out.pt", "--", "-in.pt"}).input, "-in.pt");
}

TEST(Options, HelpAndVersion) {
  EXPECT_EQ(parsed({"--help"}).command, Command::help);
  EXPECT_EQ(parsed({"help"}).topic, Command::help);
  EXPECT_EQ(parsed({"help", "fuse"}).topic, Command::fuse);
  EXPECT_EQ(parsed({"inspect", "--help"}).topic, Command::inspect);
  EXPECT_EQ(parsed({"--version"}).command, Command::version);
  const std::string text = help(Command::fuse, rules);
  for (const char* word :
       {"--output OUT", "--rule NAME ...", "--expect", "--input float32[16,8192] ...", "--input-file", "--seed",
        "--settle", "--report", "--no-verify", "--svg", "linear_sigmoid_mul_add", "Exit status: 0 done"}) {
    EXPECT_SAYS(text, word);
  }
  EXPECT_EQ(help(Command::unfuse, rules).find("--rule"), std::string::npos);
  for (const char* word : {"tailor fuse IN", "tailor inspect IN", "tailor unfuse IN", "tailor help COMMAND"}) {
    EXPECT_SAYS(help(Command::help, rules), word);
  }
}

TEST(Options, WrongUse) {
  EXPECT_SAYS(refused({}), "tailor --help");
  EXPECT_SAYS(refused({"fold"}), "no command 'fold'; there are fuse, inspect, unfuse");
  EXPECT_SAYS(refused({"help", "me"}), "no help on 'me'");
  EXPECT_SAYS(refused({"help", "fuse", "me"}), "help fuse wants nothing after it, got 'me'");
  EXPECT_SAYS(refused({"--help", "me"}), "nothing after it, got 'me'");
  EXPECT_SAYS(refused({"--version", "me"}), "nothing after it, got 'me'");
  EXPECT_SAYS(refused({"fuse"}), "wants the name of a file; see 'tailor help fuse'");
  EXPECT_SAYS(refused({"fuse", "", "-o", "out.pt"}), "fuse wants the name of a file, got ''");
  EXPECT_SAYS(refused({"fuse", "in.pt"}), "-o OUT");
  EXPECT_SAYS(refused({"unfuse", "in.pt"}), "-o OUT");
  EXPECT_SAYS(refused({"fuse", "a", "b", "-o", "c"}), "'b' besides IN");
  EXPECT_SAYS(refused({"fuse", "a", "", "-o", "c"}), "got ''");
  EXPECT_SAYS(refused({"fuse", "a", "-o"}), "wants a value for -o: OUT");
  EXPECT_SAYS(refused({"fuse", "a", "--output", ""}), "wants a value for --output: OUT");
  EXPECT_SAYS(refused({"fuse", "a", "--output", "b", "-o", "c"}), "wants -o once");
  EXPECT_SAYS(refused({"fuse", "a", "-o", "b", "--fast"}), "no option '--fast'");
  EXPECT_SAYS(refused({"inspect", "a", "-o", "b"}), "no option '-o'");
  EXPECT_SAYS(refused({"fuse", "a", "-o", "b", "--settle=1"}), "no value for --settle");
  EXPECT_SAYS(refused({"fuse", "a", "-o", "b", "--rule", "linear"}),
              "there are linear_mul_batch_norm, linear_sigmoid_mul_add");
  EXPECT_SAYS(refused({"fuse", "a", "-o", "b", "--expect", "linear=1"}), "no rule 'linear'");
  for (const char* count : {"", "-1", "+1", "1x", "0x1", " 1", "18446744073709551616"}) {
    EXPECT_SAYS(refused({"fuse", "a", "-o", "b", "--expect", std::string("linear_mul_batch_norm=") + count}),
                "wants a number");
  }
  EXPECT_SAYS(refused({"fuse", "a", "-o", "b", "--expect", "linear_mul_batch_norm"}), "NAME=COUNT");
  EXPECT_SAYS(
      refused({"fuse", "a", "-o", "b", "--expect", "linear_mul_batch_norm=1", "--expect", "linear_mul_batch_norm=1"}),
      "twice");
  EXPECT_SAYS(refused({"fuse", "a", "-o", "b", "--seed", "one"}), "wants a number");
  EXPECT_SAYS(refused({"fuse", "a", "-o", "b", "--input", "float33[2]"}), "--input: ");
  EXPECT_SAYS(refused({"fuse", "a", "-o", "b", "--input", "float32[2]", "--input-file", "x"}), "not both");
  EXPECT_SAYS(refused({"fuse", "a", "-o", "b", "--input", "float32[2]", "--no-verify"}), "leave out --no-verify");
  EXPECT_SAYS(refused({"fuse", "a", "-o", "b", "--report", "b"}), "written twice");
  EXPECT_SAYS(refused({"inspect", "a", "--svg", "a"}), "is the input");
  EXPECT_SAYS(refused({"fuse", "a", "-o", "b", "--device", "cuda"}), "knows only 'cpu'");
  EXPECT_SAYS(refused({"inspect", "a", "--report", "-"}), "'-' is no file here");
  EXPECT_EQ(parsed({"inspect", "a", "--report", "./-"}).report, "./-");
}

TEST(Options, NothingIsWrittenOverWhatIsUsed) {
  EXPECT_SAYS(refused({"fuse", "a", "-o", "./b", "--report", "b"}), "written twice");
  EXPECT_SAYS(refused({"fuse", "a", "-o", "b", "--report", "c", "--svg", ".//c"}), "written twice");
  EXPECT_SAYS(refused({"inspect", "a", "--report", "./a"}), "is the input");
  EXPECT_SAYS(refused({"unfuse", "a", "-o", "b", "--report", "./a"}), "is the input");
  EXPECT_SAYS(refused({"fuse", "a", "-o", "./x", "--input-file", "x"}), "'./x' is the file of --input-file");
  EXPECT_SAYS(refused({"fuse", "a", "-o", "b", "--report", "x", "--input-file", "x"}), "is the file of --input-file");
  EXPECT_SAYS(refused({"inspect", "a", "--library", "l", "--library", "m", "--svg", "./m"}),
              "is the file of --library");
  EXPECT_EQ(parsed({"fuse", "a", "-o", "./a"}).output, "./a");
  const Folder folder;
  put(folder / "model.pt", std::string("model"));
  ASSERT_EQ(symlink("model.pt", (folder / "link").c_str()), 0);
  EXPECT_SAYS(refused({"inspect", folder / "model.pt", "--report", folder / "link"}), "is the input");
}

}  // namespace
}  // namespace tailor::tool
