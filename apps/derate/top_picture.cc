#include "top_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

namespace derate::cli {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool passes(const std::string& filter, const std::string& all) {
  return filter.empty() || lower(all).find(lower(filter)) != std::string::npos;
}

std::string words_of(const TopPicture& picture, const TopGpu& gpu) {
  std::string out =
      fmt::format("gpu {}\n{}\n{}\n{}\n{}\n{}\n{}\n{}", gpu.id.index, gpu.id.name, gpu.id.uuid,
                  gpu.policy, gpu.how, gpu.reason, gpu.trouble, gpu.work);
  for (const TopTenant& tenant : picture.tenants)
    if (tenant.gpu == gpu.id.index)
      out += "\n" + tenant.name + "\n" + tenant.user + "\n" + tenant.group;
  return out;
}

// What cannot be compared comes last, as what is missing does.
std::optional<double> comparable(std::optional<double> value) {
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<double> weight_of(const TopGpu& gpu, GpuOrder order) {
  switch (order) {
    case GpuOrder::index:
      return -gpu.id.index;
    case GpuOrder::power:
      return gpu.watts;
    case GpuOrder::clock:
      return gpu.clock_mhz;
    case GpuOrder::utilisation:
      return gpu.utilisation;
    case GpuOrder::loss:
      return loss_of(gpu);
    case GpuOrder::saving:
      return gpu.saving ? std::optional(gpu.saving->ratio) : std::nullopt;
  }
  return std::nullopt;
}

bool comes_before(const TopTenant& a, const TopTenant& b, TenantOrder order) {
  switch (order) {
    case TenantOrder::power:
      return comparable(a.watts) > comparable(b.watts);
    case TenantOrder::memory:
      return comparable(a.memory_bytes) > comparable(b.memory_bytes);
    case TenantOrder::gpu:
      return a.gpu < b.gpu;
    case TenantOrder::energy:
      return comparable(a.joules) > comparable(b.joules);
    case TenantOrder::user:
      return a.user.empty() != b.user.empty() ? b.user.empty() : a.user < b.user;
  }
  return false;
}

template <class Order>
Order next_of(Order order, Order last) {
  const int next = order == last ? 0 : static_cast<int>(order) + 1;
  return static_cast<Order>(next);
}

std::size_t moved(std::size_t row, std::size_t count, KeyPress::Code code, std::size_t page) {
  if (count == 0) return 0;
  using Code = KeyPress::Code;
  const std::size_t last = count - 1;
  if (code == Code::up) return row - std::min<std::size_t>(row, 1);
  if (code == Code::down) return std::min(row + 1, last);
  if (code == Code::page_up) return row - std::min(row, page);
  if (code == Code::page_down) return std::min(row + page, last);
  if (code == Code::home) return 0;
  return code == Code::end ? last : row;
}

void select_by(TopChoice& choice, KeyPress::Code code, const TopPicture& picture) {
  const std::size_t page = std::max<std::size_t>(choice.rows_on_screen, 1);
  if (choice.page == TopPage::tenants) {
    const auto shown = shown_tenants(picture, choice);
    choice.tenant_row = moved(selected_row(shown, choice), shown.size(), code, page);
    choice.tenant = shown.empty() ? "" : tenant_id(*shown[choice.tenant_row]);
    return;
  }
  const auto shown = shown_gpus(picture, choice);
  choice.gpu_row = moved(selected_row(shown, choice), shown.size(), code, page);
  choice.gpu = shown.empty() ? "" : shown[choice.gpu_row]->id.uuid;
}

void append_utf8(std::string& text, char32_t code) {
  const auto put = [&](unsigned byte) { text += static_cast<char>(byte); };
  if (code < 0x80) return put(code);
  if (code < 0x800)
    put(0xc0 | code >> 6);
  else if (code < 0x10000)
    put(0xe0 | code >> 12), put(0x80 | (code >> 6 & 0x3f));
  else
    put(0xf0 | code >> 18), put(0x80 | (code >> 12 & 0x3f)), put(0x80 | (code >> 6 & 0x3f));
  put(0x80 | (code & 0x3f));
}

// While the filter is typed every character belongs to it.
void type(TopChoice& choice, const KeyPress& pressed) {
  constexpr std::size_t kLongest = 200;
  using Code = KeyPress::Code;
  if (pressed.code == Code::enter) choice.typing = false;
  if (pressed.code == Code::escape) choice.typing = false, choice.filter.clear();
  if (pressed.code == Code::backspace) {
    while (!choice.filter.empty() && (choice.filter.back() & 0xc0) == 0x80)
      choice.filter.pop_back();
    if (!choice.filter.empty()) choice.filter.pop_back();
  }
  if (pressed.code == Code::character && choice.filter.size() < kLongest)
    append_utf8(choice.filter, pressed.character);
}

// Back to where one came from, the last step first.
void step_back(TopChoice& choice) {
  if (choice.help)
    choice.help = false;
  else if (!choice.filter.empty())
    choice.filter.clear();
  else if (!choice.tenants_only)
    choice.page = TopPage::gpus;
}

void show_page(TopChoice& choice, TopPage page, const TopPicture& picture) {
  if (choice.tenants_only) return;
  if (page == TopPage::one_gpu) select_by(choice, KeyPress::Code::none, picture);
  choice.page = choice.page == page ? TopPage::gpus : page;
}

void sort_otherwise(TopChoice& choice) {
  if (choice.page == TopPage::tenants)
    choice.tenant_order = next_of(choice.tenant_order, TenantOrder::user);
  else
    choice.gpu_order = next_of(choice.gpu_order, GpuOrder::saving);
}

// The arrows' twins on the letters.
KeyPress::Code direction_of(const KeyPress& pressed) {
  if (pressed.code != KeyPress::Code::character) return pressed.code;
  switch (pressed.character) {
    case 'j':
      return KeyPress::Code::down;
    case 'k':
      return KeyPress::Code::up;
    default:
      return pressed.code;
  }
}

}  // namespace

const char* to_string(GpuOrder order) {
  constexpr const char* kNames[] = {"GPU", "power", "clock", "utilisation", "loss", "saving"};
  return kNames[static_cast<std::size_t>(order)];
}

const char* to_string(TenantOrder order) {
  constexpr const char* kNames[] = {"power", "memory", "GPU", "energy", "user"};
  return kNames[static_cast<std::size_t>(order)];
}

std::optional<double> loss_of(const TopGpu& gpu) {
  if (gpu.policy.empty() || !gpu.expected_performance) return std::nullopt;
  return std::max(0.0, 1 - *gpu.expected_performance);
}

std::string tenant_id(const TopTenant& tenant) {
  return fmt::format("{} {}", tenant.gpu, tenant.key);
}

std::vector<const TopGpu*> shown_gpus(const TopPicture& picture, const TopChoice& choice) {
  std::vector<const TopGpu*> out;
  for (const TopGpu& gpu : picture.gpus)
    if (choice.filter.empty() || passes(choice.filter, words_of(picture, gpu))) out.push_back(&gpu);
  // By number, those that need a person come first: of many the screen has not room for all.
  const auto needs_somebody = [&](const TopGpu* gpu) {
    return choice.gpu_order == GpuOrder::index &&
           (!gpu->trouble.empty() || gpu->silent || gpu->needs_attention);
  };
  std::stable_sort(out.begin(), out.end(), [&](const TopGpu* a, const TopGpu* b) {
    const bool first = needs_somebody(a), second = needs_somebody(b);
    if (first != second) return first;
    return comparable(weight_of(*a, choice.gpu_order)) >
           comparable(weight_of(*b, choice.gpu_order));
  });
  return out;
}

std::vector<const TopTenant*> shown_tenants(const TopPicture& picture, const TopChoice& choice) {
  std::vector<const TopTenant*> out;
  for (const TopTenant& tenant : picture.tenants)
    if (passes(choice.filter, fmt::format("gpu {}\n{}\n{}\n{}", tenant.gpu, tenant.name,
                                          tenant.user, tenant.group)))
      out.push_back(&tenant);
  std::stable_sort(out.begin(), out.end(), [&](const TopTenant* a, const TopTenant* b) {
    return comes_before(*a, *b, choice.tenant_order);
  });
  return out;
}

std::size_t selected_row(const std::vector<const TopGpu*>& shown, const TopChoice& choice) {
  const auto at = std::find_if(shown.begin(), shown.end(), [&](const TopGpu* gpu) {
    return !choice.gpu.empty() && gpu->id.uuid == choice.gpu;
  });
  if (at != shown.end()) return static_cast<std::size_t>(at - shown.begin());
  return shown.empty() ? 0 : std::min(choice.gpu_row, shown.size() - 1);
}

std::size_t selected_row(const std::vector<const TopTenant*>& shown, const TopChoice& choice) {
  const auto at = std::find_if(shown.begin(), shown.end(), [&](const TopTenant* tenant) {
    return !choice.tenant.empty() && tenant_id(*tenant) == choice.tenant;
  });
  if (at != shown.end()) return static_cast<std::size_t>(at - shown.begin());
  return shown.empty() ? 0 : std::min(choice.tenant_row, shown.size() - 1);
}

bool press(TopChoice& choice, const KeyPress& pressed, const TopPicture& picture) {
  using Code = KeyPress::Code;
  if (pressed.code == Code::closed) return true;
  if (choice.typing) {
    type(choice, pressed);
    return false;
  }
  const Code direction = direction_of(pressed);
  if (direction >= Code::up && direction <= Code::end) {
    select_by(choice, direction, picture);
    return false;
  }
  if (pressed.code == Code::escape || pressed.code == Code::backspace) step_back(choice);
  if (pressed.code == Code::enter) show_page(choice, TopPage::one_gpu, picture);
  if (pressed.code != Code::character) return false;
  switch (pressed.character) {
    case 'q':
    case 'Q':
      return true;
    case 'g':
      show_page(choice, TopPage::one_gpu, picture);
      break;
    case 'p':
      show_page(choice, TopPage::tenants, picture);
      break;
    case ' ':
      choice.frozen = !choice.frozen;
      break;
    case 's':
      sort_otherwise(choice);
      break;
    case '/':
      choice.typing = true;
      break;
    case '?':
    case 'h':
      choice.help = !choice.help;
      break;
    default:
      break;
  }
  return false;
}

}  // namespace derate::cli
