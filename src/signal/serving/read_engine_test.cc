#include "signal/serving/read_engine.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "base/text.h"
#include "signal/serving/test_engine_page.h"

namespace derate {
namespace {

// As read_engine() adds up engines of one model.
ServingState added(const std::vector<ServingState>& engines) {
  ServingState out = engines.front();
  for (std::size_t i = 1; i < engines.size(); ++i) {
    for (const EngineRole& role : engine_roles()) {
      if (role.kind == RoleKind::share) {
        out.*role.number = std::max(*(out.*role.number), *(engines[i].*role.number));
      } else if (role.number != nullptr) {
        *(out.*role.number) += *(engines[i].*role.number);
      } else {
        LatencyHistogram& sum = *(out.*role.histogram);
        const LatencyHistogram& one = *(engines[i].*role.histogram);
        for (std::size_t j = 0; j < one.counts.size(); ++j) sum.counts[j] += one.counts[j];
        sum.sum_s += one.sum_s;
      }
    }
  }
  return out;
}

EngineReading reading_of(std::string_view text, std::string_view model = "") {
  auto out = read_engine(text, nullptr, model);
  EXPECT_TRUE(out.ok()) << out.error().message;
  return out.ok() ? *std::move(out) : EngineReading{};
}

std::string refused(std::string_view text, Errc code = Errc::bad_data,
                    std::string_view model = "") {
  const auto out = read_engine(text, nullptr, model);
  if (out.ok()) return "accepted";
  EXPECT_EQ(out.error().code, code) << out.error().message;
  return out.error().message;
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (auto at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

RC_GTEST_PROP(ReadEngine, ReadsTheSumsThatWereWritten, ()) {
  const auto engines = some_engines();
  const auto reading = read_engine(VllmPage(engines, "org/model").text(), nullptr, "");
  RC_ASSERT(reading.ok());
  RC_ASSERT(reading->engine == "vLLM");
  RC_ASSERT(reading->model == "org/model");
  RC_ASSERT(reading->missing.empty());
  RC_ASSERT(reading->promise_possible);
  RC_ASSERT(reading->state == added(engines));
}

RC_GTEST_PROP(ReadEngine, OrderLabelsSpellingAndOtherSeriesChangeNothing, ()) {
  const std::string text = VllmPage(some_engines(), "m").text();
  const auto plain = read_engine(text, nullptr, "m");
  RC_ASSERT(plain.ok());
  std::vector<std::string> lines;
  for (const std::string_view each : split(text, '\n')) lines.emplace_back(each);
  std::mt19937_64 random(static_cast<std::uint64_t>(*rc::gen::inRange(0, 1 << 30)));
  std::shuffle(lines.begin(), lines.end(), random);
  std::string other = "vllm:request_success_total{model_name=\"another\"} NaN\n# a word\n";
  for (const std::string& line : lines) other += line + " \r\n";
  const auto shuffled = read_engine(other, nullptr, "");
  RC_ASSERT(shuffled.ok());
  RC_ASSERT(shuffled->state == plain->state);
  const auto relayed = read_engine(
      replaced(replaced(text, "vllm:", "vllm_"), "{", "{instance=\"10.0.0.1:8000\","), nullptr, "");
  RC_ASSERT(relayed.ok());
  RC_ASSERT(relayed->state == plain->state);
}

bool shows_no_more(const ServingState& less, const ServingState& all) {
  bool out = is_sane(less);
  for (const EngineRole& role : engine_roles()) {
    if (role.number != nullptr) {
      out = out && (!(less.*role.number) || *(less.*role.number) <= *(all.*role.number));
    } else if (const auto& cut = less.*role.histogram) {
      const LatencyHistogram& whole = *(all.*role.histogram);
      out = out && cut->edges_s == whole.edges_s && cut->sum_s <= whole.sum_s &&
            std::ranges::equal(cut->counts, whole.counts, std::less_equal<>{});
    }
  }
  return out;
}

RC_GTEST_PROP(ReadEngine, ACutPageShowsNoMoreThanTheWhole, ()) {
  const auto engines = some_engines();
  const std::string text = VllmPage(engines, "m").text();
  const auto at = static_cast<std::size_t>(*rc::gen::inRange(0, static_cast<int>(text.size())));
  // Half of the cuts are between lines, which no reader can see.
  const bool is_between = *rc::gen::arbitrary<bool>();
  const auto cut = read_engine(
      std::string_view(text).substr(0, is_between ? text.rfind('\n', at) + 1 : at), nullptr, "");
  if (cut.ok()) RC_ASSERT(shows_no_more(cut->state, added(engines)));
}

// Values with exponents: without its end 1e-05 is 1.
TEST(ReadEngine, NoCutShowsMoreThanThePage) {
  const LatencyHistogram tokens{
      .edges_s = {2e-05, 0.5}, .counts = {1, 1e+06, 3e+06}, .sum_s = 3e-05};
  ServingState engine{.running = 3, .waiting = 2, .kv_share = 1e-05};
  engine.prompt_tokens = engine.generated_tokens = engine.steps = 1e+17 / 1024;
  engine.between_tokens = engine.first_token = tokens;
  const std::vector<ServingState> engines = {engine, engine};
  const std::string text = VllmPage(engines, "m").text();
  ASSERT_EQ(reading_of(text).state, added(engines));
  for (std::size_t size = 0; size < text.size(); ++size) {
    const auto cut = read_engine(std::string_view(text).substr(0, size), nullptr, "");
    ASSERT_TRUE(!cut.ok() || shows_no_more(cut->state, added(engines))) << size;
  }
}

RC_GTEST_PROP(ReadEngine, APageWithWrongBytesIsReadSanelyOrRefused, ()) {
  std::string text = VllmPage(some_engines(), "m").text();
  for (int i = *rc::gen::inRange(1, 5); i > 0; --i)
    text[static_cast<std::size_t>(*rc::gen::inRange(0, static_cast<int>(text.size())))] =
        *rc::gen::elementOf(std::string("0919.e+-\"{}=,\n \\#"));
  const auto reading = read_engine(text, nullptr, "");
  if (reading.ok()) RC_ASSERT(is_sane(reading->state));
}

TEST(ReadEngine, APageWithoutAnEngineIsRefused) {
  EXPECT_EQ(refused("", Errc::not_found),
            "no metrics of an engine on the page: allowed are those of vLLM, SGLang, TensorRT-LLM "
            "(trtllm-serve), TensorRT-LLM (Triton), TGI, llama.cpp, Dynamo (frontend)");
  EXPECT_NE(refused("<html>\n</html>\n", Errc::not_found), "accepted");
}

TEST(ReadEngine, SeveralModelsNeedAName) {
  const std::string page =
      "vllm:num_requests_running{model_name=\"a\\\"b\"} 1\n"
      "vllm:num_requests_running{model_name=\"c\\n" +
      std::string(100, 'x') +
      "\"} 2\n"
      "vllm:num_requests_running 4\n";
  EXPECT_EQ(refused(page, Errc::invalid_argument).substr(0, 60),
            "the page is of 2 models: name one of 'a\"b', 'c\\x0axxxxxxxxxx");
  EXPECT_LT(refused(page, Errc::invalid_argument).size(), 140u);
  EXPECT_EQ(reading_of(page, "a\"b").state.running, 1);
  EXPECT_EQ(refused(page, Errc::not_found, "d").substr(0, 51),
            "model 'd' is not on the page: allowed is 'a\"b', 'c\\");
  std::string many;
  for (int i = 0; i < 20; ++i)
    many += fmt::format("vllm:num_requests_running{{model_name=\"m{}\"}} 1\n", i);
  EXPECT_TRUE(refused(many, Errc::invalid_argument).ends_with(", 'm14', 'm15' and 12 more"));
}

TEST(ReadEngine, SeriesWithoutAModelAreOfTheOnlyOne) {
  const std::string page =
      "vllm:num_requests_running{model_name=\"a\"} 1\n"
      "vllm:num_requests_waiting 4\n";
  EXPECT_EQ(reading_of(page).state.waiting, 4);
  EXPECT_EQ(reading_of(page, "a").state.waiting, 4);
  EXPECT_EQ(reading_of("llamacpp:requests_processing 2\n", "any").state.running, 2);
}

TEST(ReadEngine, ValuesHaveLimits) {
  const auto kv = [](std::string_view value) {
    return fmt::format("vllm:kv_cache_usage_perc {}\n", value);
  };
  EXPECT_EQ(reading_of(kv("1.02")).state.kv_share, 1);
  EXPECT_EQ(refused(kv("45")), "line 1: vllm:kv_cache_usage_perc 45: allowed is a share in [0, 1]");
  const auto running = [](std::string_view value) {
    return fmt::format("vllm:num_requests_running {}\n", value);
  };
  EXPECT_EQ(refused(running("-1")),
            "line 1: vllm:num_requests_running -1: allowed is a number in "
            "[0, 9007199254740992]");
  EXPECT_NE(refused(running("1e308")), "accepted");
  EXPECT_EQ(reading_of(running("-0.0")).state.running, 0);
  EXPECT_EQ(reading_of(running("9007199254740992")).state.running, 9007199254740992.0);
}

TEST(ReadEngine, ARoleWithNanIsMissing) {
  const auto reading = reading_of(
      "vllm:num_requests_running{engine=\"0\"} 3\n"
      "vllm:num_requests_running{engine=\"1\"} NaN\n"
      "vllm:num_requests_waiting 2\n");
  EXPECT_EQ(reading.state.running, std::nullopt);
  EXPECT_EQ(reading.state.waiting, 2);
  EXPECT_EQ(reading.missing.size(), 7u);
  EXPECT_EQ(std::ranges::count(reading.missing, "running requests"), 1);
  EXPECT_EQ(std::ranges::count(reading.missing, "waiting requests"), 0);
}

// A histogram of intervals between tokens of two engines with these lines for it.
std::string tokens(std::string_view lines) {
  return replaced(std::string(lines), "H", "vllm:inter_token_latency_seconds");
}

TEST(ReadEngine, HistogramsAreWhole) {
  const auto good =
      reading_of(tokens("H_bucket{le=\"10.0\"} 5\nH_bucket{le=\"+Inf\"} 6\n"
                        "H_bucket{le=\"0.5\"} 2\nH_count 600\nH_sum 31.5\n"));
  EXPECT_EQ(good.state.between_tokens,
            (LatencyHistogram{.edges_s = {0.5, 10}, .counts = {2, 5, 6}, .sum_s = 31.5}));
  const std::string name = "vllm:inter_token_latency_seconds";
  EXPECT_EQ(refused(tokens("H_bucket{le=\"1\"} 5\nH_sum 1\n")),
            "line 1: " + name +
                "_bucket is the last bucket: allowed is a last one with "
                "le=\"+Inf\"");
  EXPECT_EQ(refused(tokens("H_bucket{le=\"1\"} 5\nH_bucket{le=\"+Inf\"} 4\nH_sum 1\n")),
            "line 2: " + name +
                "_bucket 4 after 5: allowed is counts that do not fall from edge "
                "to edge");
  EXPECT_EQ(refused(tokens("H_bucket{le=\"1\"} 5\nH_bucket{le=\"1.0\"} 5\n"
                           "H_bucket{le=\"+Inf\"} 5\nH_sum 1\n")),
            "line 2: " + name + "_bucket has the edge 1 twice: allowed is each edge once");
  EXPECT_EQ(refused(tokens("H_bucket{le=\"-1\"} 5\nH_bucket{le=\"+Inf\"} 5\nH_sum 1\n")),
            "line 1: " + name +
                "_bucket has the edge '-1': allowed is le=\"SECONDS\", at least "
                "0, or le=\"+Inf\"");
  EXPECT_EQ(refused(tokens("H_bucket{le=\"+Inf\"} 5\n")),
            "line 1: " + name + "_bucket has no sum: allowed is a histogram with " + name + "_sum");
  for (const char* bad :
       {"H_bucket 5\nH_sum 1\n", "H_bucket{le=\"x\"} 5\nH_sum 1\n",
        "H_bucket{le=\"NaN\"} 5\nH_sum 1\n", "H_bucket{le=\"+Inf\"} NaN\nH_sum 1\n",
        "H_bucket{le=\"+Inf\"} -1\nH_sum 1\n", "H_bucket{le=\"+Inf\"} 1\nH_sum NaN\n",
        "H_bucket{le=\"+Inf\"} 1\nH_sum -1\n", "H_bucket{le=\"-Inf\"} 1\nH_sum 1\n",
        "H_bucket{le=\"+Inf\"} 1\nH_sum{engine=\"1\"} 1\n"})
    EXPECT_NE(refused(tokens(bad)), "accepted") << bad;
  EXPECT_EQ(
      refused(tokens("H_bucket{engine=\"0\",le=\"1\"} 1\nH_bucket{engine=\"0\",le=\"+Inf\"} 1\n"
                     "H_bucket{engine=\"1\",le=\"2\"} 1\nH_bucket{engine=\"1\",le=\"+Inf\"} 1\n"
                     "H_sum{engine=\"0\"} 1\nH_sum{engine=\"1\"} 1\n")),
      "line 3: " + name +
          "_bucket has other edges than another series of it: allowed is "
          "series of equal edges");
}

TEST(ReadEngine, OlderNamesCountWhereTheNewerAreNotThere) {
  const std::string older =
      "vllm:gpu_cache_usage_perc 0.5\n"
      "vllm:time_per_output_token_seconds_bucket{le=\"+Inf\"} 3\n"
      "vllm:time_per_output_token_seconds_sum 1\n";
  EXPECT_EQ(reading_of(older).state.kv_share, 0.5);
  EXPECT_EQ(reading_of(older).state.between_tokens->counts, std::vector<double>{3});
  const std::string newer =
      "vllm:kv_cache_usage_perc 0.25\n"
      "vllm:inter_token_latency_seconds_bucket{le=\"+Inf\"} 4\n"
      "vllm:inter_token_latency_seconds_sum 1\n";
  EXPECT_EQ(reading_of(older + newer).state.kv_share, 0.25);
  EXPECT_EQ(reading_of(older + newer).state.between_tokens->counts, std::vector<double>{4});
}

TEST(ReadEngine, SglangCountsEachRequestOnce) {
  const auto reading = reading_of(
      "sglang:num_running_reqs{dp_rank=\"0\",priority=\"\",tp_rank=\"0\"} 4\n"
      "sglang:num_running_reqs{dp_rank=\"0\",priority=\"\",tp_rank=\"1\"} 5\n"
      "sglang:num_running_reqs{dp_rank=\"0\",priority=\"1\",tp_rank=\"0\"} 3\n"
      "sglang:num_running_reqs{dp_rank=\"1\",priority=\"\",tp_rank=\"2\"} 7\n"
      "sglang:num_running_reqs{dp_rank=\"1\",priority=\"\",tp_rank=\"3\"} 6\n"
      "sglang:generation_tokens_total{priority=\"0\"} 30\n"
      "sglang:generation_tokens_total{priority=\"1\"} 40\n");
  EXPECT_EQ(reading.engine, "SGLang");
  EXPECT_TRUE(reading.promise_possible);  // its histogram comes with the first request
  EXPECT_EQ(reading.state.between_tokens, std::nullopt);
  EXPECT_EQ(reading.state.running, 5 + 7);
  EXPECT_EQ(reading.state.generated_tokens, 70);
}

TEST(ReadEngine, DynamosRequestsInFlightIncludeTheQueued) {
  const std::string running = "dynamo_frontend_inflight_requests{model=\"m\"} 12\n";
  const auto queued = [](int n) {
    return fmt::format("dynamo_frontend_queued_requests{{model=\"m\"}} {}\n", n);
  };
  EXPECT_EQ(reading_of(running + queued(3)).state.running, 9);
  EXPECT_EQ(reading_of(running + queued(3)).state.waiting, 3);
  EXPECT_EQ(reading_of(running + queued(13)).state.running, 0);
  EXPECT_EQ(reading_of(running).state.running, std::nullopt);
}

TEST(ReadEngine, TritonsGaugesAreSeriesOfOneMetric) {
  const auto reading = reading_of(
      "nv_trt_llm_request_metrics{model=\"tensorrt_llm\",request_type=\"scheduled\"} 3\n"
      "nv_trt_llm_request_metrics{model=\"tensorrt_llm\",request_type=\"max\"} 512\n"
      "nv_trt_llm_request_metrics{model=\"tensorrt_llm\",request_type=\"waiting\"} 2\n"
      "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\",model=\"tensorrt_llm\"} 6239\n"
      "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\"} 0.25\n"
      "nv_trt_llm_general_metrics{general_type=\"timestamp\"} 1700074049\n"
      "nv_trt_llm_general_metrics{general_type=\"iteration_counter\"} 77\n");
  EXPECT_EQ(reading.engine, "TensorRT-LLM (Triton)");
  EXPECT_FALSE(reading.promise_possible);
  EXPECT_EQ(reading.state.running, 3);
  EXPECT_EQ(reading.state.waiting, 2);
  EXPECT_EQ(reading.state.kv_share, 0.25);
  EXPECT_EQ(reading.state.steps, 77);
}

TEST(ReadEngine, OfSeveralEnginesTheOneWithTokensCounts) {
  const std::string tgi = "tgi_queue_size 1\ntgi_batch_current_size 1\n";
  const std::string sglang = "sglang:num_running_reqs 2\n";
  EXPECT_EQ(reading_of(tgi + sglang).engine, "TGI");
  EXPECT_EQ(reading_of(tgi + sglang +
                       "sglang:inter_token_latency_seconds_bucket{le=\"+Inf\"} 0\n"
                       "sglang:inter_token_latency_seconds_sum 0\n")
                .engine,
            "SGLang");
}

TEST(ReadEngine, AConfiguredEngineIsReadByItsNames) {
  const ConfiguredEngine configured{.model_label = "m",
                                    .between_tokens = "my_token_seconds",
                                    .running = "my_running",
                                    .steps = "my_step_seconds_count"};
  const EngineNames names = engine_names(configured);
  const std::string page =
      "vllm:num_requests_running 9\nmy_running{m=\"a\"} 2\nmy_step_seconds_count 40\n"
      "my_token_seconds_bucket{le=\"0.02\"} 3\nmy_token_seconds_bucket{le=\"+Inf\"} 4\n"
      "my_token_seconds_sum 0.125\n";
  const auto reading = read_engine(page, &names, "");
  ASSERT_TRUE(reading.ok()) << reading.error().message;
  EXPECT_EQ(reading->model, "a");
  EXPECT_EQ(reading->state.running, 2);
  EXPECT_EQ(reading->state.steps, 40);
  EXPECT_EQ(reading->state.between_tokens,
            (LatencyHistogram{.edges_s = {0.02}, .counts = {3, 4}, .sum_s = 0.125}));
  const auto none = read_engine("vllm:num_requests_running 9\n", &names, "");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().message,
            "no metrics of an engine on the page: allowed are those of the configured engine");
}

}  // namespace
}  // namespace derate
