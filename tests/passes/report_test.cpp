#include <gtest/gtest.h>

#include "tailor/tailor.h"

namespace tailor::test {
namespace {

TEST(Report, Json) {
  Report report;
  EXPECT_EQ(report.json(), "{\"tailor\": \"" + std::string(version()) + "\", \"sites\": []}");
  report.sites.push_back({"linear_mul_batch_norm", "forward", "net.py:3", true, ""});
  report.sites.push_back({"", "a.forward", "", false, "a \"quote\", a \\ and\n\x01"});
  EXPECT_EQ(report.json(),
            "{\"tailor\": \"" + std::string(version()) +
                "\", \"sites\": [{\"rule\": \"linear_mul_batch_norm\", \"method\": \"forward\", \"source\": "
                "\"net.py:3\", \"fused\": true, \"reason\": \"\"}, {\"rule\": \"\", \"method\": "
                "\"a.forward\", \"source\": \"\", \"fused\": false, \"reason\": \"a \\\"quote\\\", a \\\\ "
                "and\\u000a\\u0001\"}]}");
}

TEST(Report, JsonIsUtf8) {
  Report report;
  report.sites.push_back({"", "forward", "\u00e9\xff\xc3(\xed\xa0\x80.py:3", false, ""});
  EXPECT_NE(report.json().find("\"source\": \"\u00e9\\\\xff\\\\xc3(\\\\xed\\\\xa0\\\\x80.py:3\""), std::string::npos)
      << report.json();
}

TEST(Report, CountsTheFused) {
  Report report;
  EXPECT_EQ(report.fused(), 0u);
  report.sites.resize(3);
  report.sites[1].fused = true;
  EXPECT_EQ(report.fused(), 1u);
}

}  // namespace
}  // namespace tailor::test
