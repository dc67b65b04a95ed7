#include "api/operations.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "api/operations_text.h"
#include "base/json.h"

namespace derate {
namespace {

const std::filesystem::path kSource = DERATE_SOURCE_DIR;

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

// What a page has between its marks, which is `text`; with DERATE_WRITE_DOCS it is made so.
void expect_part(const std::filesystem::path& path, const std::string& begin,
                 const std::string& end, const std::string& text) {
  std::string page = contents(path);
  const auto from = page.find(begin);
  const auto to = page.find(end, from + begin.size());
  ASSERT_TRUE(from != page.npos && to != page.npos) << path << ": no " << begin;
  const auto first = from + begin.size();
  if (std::getenv("DERATE_WRITE_DOCS") != nullptr) {
    page.replace(first, to - first, text);
    std::ofstream(path) << page;
  } else {
    EXPECT_TRUE(page.substr(first, to - first) == text)
        << path << " is not as the table has it: run api_test with DERATE_WRITE_DOCS=1";
  }
}

TEST(Operations, EachHasItsNameOnceAndARequestThatIsRead) {
  std::set<std::string> names;
  for (const Operation& each : operations()) {
    EXPECT_TRUE(names.insert(each.name).second) << each.name;
    EXPECT_EQ(find_operation(each.name), &each);
    for (const FieldInfo& field : each.fields) EXPECT_NE(field.what, "") << field.key;
    for (const FieldInfo& field : each.answer) EXPECT_NE(field.what, "") << field.key;
  }
  EXPECT_EQ(names.size(), std::variant_size_v<AnyRequest>);
  EXPECT_EQ(find_operation("reboot"), nullptr);
}

TEST(Operations, WhoChangesGpusIsAtLeastAnOperator) {
  for (const Operation& each : operations()) {
    if (each.changes == Changes::gpus) {
      EXPECT_GE(each.role, Role::operates) << each.name;
    }
    if (each.changes != Changes::nothing) {
      EXPECT_GE(each.role, Role::user) << each.name;
    }
  }
}

TEST(Operations, AFieldsTypeRangeAndDefaultComeFromItsStruct) {
  const auto spec = operation<JobCreate>().fields.front();
  EXPECT_EQ(describe_type(spec), "object");
  const auto eta = std::find_if(spec.fields.begin(), spec.fields.end(),
                                [](const FieldInfo& field) { return field.key == "eta"; });
  ASSERT_NE(eta, spec.fields.end());
  EXPECT_EQ(eta->lowest, 0.0);
  EXPECT_EQ(eta->highest, 1.0);
  EXPECT_EQ(eta->absent, "0.5");
  EXPECT_EQ(operation<WindowEnd>().fields.back().absent, "true");
  EXPECT_TRUE(operation<TrialReport>().fields.front().required);
}

TEST(Operations, ThePagesHaveTheTable) {
  struct Page {
    const char* file;
    const char* prefix;
  };
  const auto listed = [](auto&& is_here) {
    std::vector<const Operation*> out;
    for (const Operation& each : operations())
      if (is_here(each)) out.push_back(&each);
    return operations_markdown(out);
  };
  const auto is_of_jobs = [](const Operation& each) {
    return std::string_view(each.name).starts_with("tune-");
  };
  const auto is_operators = [](const Operation& each) { return each.role >= Role::operates; };
  const auto is_else = [&](const Operation& each) {
    return !is_of_jobs(each) && !is_operators(each);
  };
  const std::string begin = "<!-- operations -->\n", end = "<!-- end of operations -->\n";
  expect_part(kSource / "docs/control.md", begin, end, listed(is_operators));
  expect_part(kSource / "docs/energy.md", begin, end, listed(is_else));
  expect_part(kSource / "docs/tune-jobs.md", begin, end, listed(is_of_jobs));
}

// For clients that are not built with us, and for their tests.
TEST(Operations, TheFileForClientsHasTheTable) {
  std::string lines;
  for (const Json& each : operations_json())
    lines += (lines.empty() ? "\n" : ",\n") + json_text(each);
  expect_part(kSource / "clients/operations.json", "{\"operations\": [", "\n]}\n", lines);
}

}  // namespace
}  // namespace derate
