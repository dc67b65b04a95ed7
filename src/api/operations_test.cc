#include "api/operations.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "api/operations_text.h"
#include "base/json.h"
#include "base/test_page.h"

namespace derate {
namespace {

const std::filesystem::path kSource = DERATE_SOURCE_DIR;

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
    if (each.changes == Changes::gpus || each.changes == Changes::all) {
      EXPECT_GE(each.role, Role::operates) << each.name;
    }
    if (each.changes != Changes::nothing) {
      EXPECT_GE(each.role, Role::user) << each.name;
    }
  }
}

// The agent has no place in the order: what is opened to it is not opened to users, and what users
// or operators may is not its.
TEST(Operations, ARoleMayWhatTheOnesBeforeItMay) {
  using enum Role;
  constexpr Role kOrder[] = {reader, user, operates, admin};
  for (const Role least : kOrder)
    for (const bool opened : {false, true}) {
      Operation operation = *find_operation("gpus");
      operation.role = least;
      operation.agent = opened;
      for (const Role role : kOrder) EXPECT_EQ(may(role, operation), role >= least);
      EXPECT_EQ(may(agent, operation), opened || least == reader);
    }
  for (const Operation& each : operations()) EXPECT_NE(each.role, agent) << each.name;
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
  const auto is_of_history = [](const Operation& each) {
    constexpr std::string_view kNames[] = {"history", "savings", "events", "why"};
    return std::find(std::begin(kNames), std::end(kNames), each.name) != std::end(kNames);
  };
  const auto is_of_config = [](const Operation& each) {
    return std::string_view(each.name).starts_with("config-");
  };
  const auto is_of_tokens = [](const Operation& each) {
    return std::string_view(each.name).starts_with("token-");
  };
  const auto is_operators = [&](const Operation& each) {
    return each.role >= Role::operates && !is_of_config(each) && !is_of_tokens(each);
  };
  const auto is_of_connections = [&](const Operation& each) {
    constexpr std::string_view kToo[] = {"gpus", "attribution", "run-release"};
    return !is_of_jobs(each) && each.role < Role::operates &&
           (!each.http || std::find(std::begin(kToo), std::end(kToo), each.name) != std::end(kToo));
  };
  const std::string begin = "<!-- operations -->\n", end = "<!-- end of operations -->\n";
  expect_part(kSource / "docs/control.md", begin, end, listed(is_operators));
  expect_part(kSource / "docs/energy.md", begin, end, listed(is_of_connections));
  expect_part(kSource / "docs/tune-jobs.md", begin, end, listed(is_of_jobs));
  expect_part(kSource / "docs/history.md", begin, end, listed(is_of_history));
  expect_part(kSource / "docs/api.md", begin, end, http_operations_markdown());
  expect_part(kSource / "docs/config.md", begin, end, listed(is_of_config));
  expect_part(kSource / "docs/api-roles.md", begin, end, listed(is_of_tokens));
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
