#include "fake_node.h"

#include <grpc/support/time.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <set>

namespace {

constexpr const char* kFaults[] = {"none",    "hang",        "error", "truncate",
                                   "garbage", "not-in-sync", "slow"};

std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> out;
  for (std::size_t from = 0; from <= line.size();) {
    const std::size_t to = std::min(line.find(' ', from), line.size());
    out.push_back(line.substr(from, to - from));
    from = to + 1;
  }
  return out;
}

template <class T>
T number(const std::string& text) {
  T out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

std::string percent_decoded(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%' || i + 2 >= text.size()) {
      out += text[i];
      continue;
    }
    int byte = 0;
    std::from_chars(text.data() + i + 1, text.data() + i + 3, byte, 16);
    out += static_cast<char>(byte);
    i += 2;
  }
  return out;
}

// No field begins so: its kind is 7.
std::string garbage() { return std::string(64, '\xff'); }

v1alpha1::PodSpec spec_of_bytes(std::size_t bytes) {
  v1alpha1::PodSpec out;
  out.set_restartpolicy("Always");
  out.set_terminationgraceperiodseconds(30);
  out.set_serviceaccountname("default");
  out.set_nodename("n1");
  (*out.mutable_nodeselector())["accelerator"] = "gpu";
  v1alpha1::Container& container = *out.add_containers();
  container.set_name("main");
  container.set_image("registry.example/train:1");
  container.add_command("/bin/train");
  container.add_args("--epochs=3");
  out.add_initcontainers()->set_name("fetch");
  for (int i = 0; out.ByteSizeLong() < bytes; ++i) {
    v1alpha1::EnvVar& variable = *container.add_env();
    variable.set_name("VARIABLE_" + std::to_string(i));
    variable.set_value(std::string(200, 'v'));
  }
  return out;
}

}  // namespace

FakeNode::FakeNode() : spec_(spec_of_bytes(0)) {}

// --- commands ------------------------------------------------------------------------------------

const std::map<std::string, FakeNode::Command>& FakeNode::commands() {
  static const std::map<std::string, Command> kCommands = {
      {"pod", {4, 4, &FakeNode::put_pod}},
      {"twin", {4, 4, &FakeNode::add_twin}},
      {"remove", {2, 2, &FakeNode::remove}},
      {"deleting", {2, 2, &FakeNode::mark_deleted}},
      {"annotate", {3, 4, &FakeNode::annotate}},
      {"unannotate", {3, 3, &FakeNode::unannotate}},
      {"device", {5, 5, &FakeNode::add_device}},
      {"undevice", {2, 2, &FakeNode::drop_devices}},
      {"fault", {1, 2, &FakeNode::set_fault}},
      {"resource-fault", {1, 2, &FakeNode::set_resource_fault}},
      {"weight", {1, 1, &FakeNode::set_weight}},
      {"many", {1, 1, &FakeNode::set_many}},
      {"api", {1, 1, &FakeNode::set_api}},
      {"begin", {0, 0, &FakeNode::begin}},
      {"end", {0, 0, &FakeNode::commit}},
      {"calls", {0, 0, &FakeNode::count}},
  };
  return kCommands;
}

std::string FakeNode::obey(const std::string& line) {
  Words words = words_of(line);
  const auto found = commands().find(words.front());
  words.erase(words.begin());
  if (found == commands().end()) return "error: no such command";
  const Command& command = found->second;
  if (words.size() < command.least || words.size() > command.most)
    return "error: wrong number of words";
  // From "begin" to "end" the lock stays with this thread.
  if (!in_batch_) mutex_.lock();
  said_.clear();
  (this->*command.run)(words);
  if (!in_batch_) mutex_.unlock();
  changed_.notify_all();
  return "ok" + said_;
}

void FakeNode::begin(const Words&) { in_batch_ = true; }
void FakeNode::commit(const Words&) { in_batch_ = false; }

// Pods of that name and another UID go; the same UID keeps its annotations.
void FakeNode::put_pod(const Words& words) {
  const Name name{words[0], words[1]};
  std::erase_if(pods_, [&](const Pod& pod) { return pod.name == name && pod.uid != words[2]; });
  for (Pod& pod : pods_) {
    if (pod.name != name) continue;
    pod.phase = words[3];
    return;
  }
  add_twin(words);
}

void FakeNode::add_twin(const Words& words) {
  pods_.push_back({.name = {words[0], words[1]}, .uid = words[2], .phase = words[3]});
}

void FakeNode::remove(const Words& words) {
  std::erase_if(pods_, [&](const Pod& pod) { return pod.name == Name{words[0], words[1]}; });
  drop_devices(words);
}

void FakeNode::mark_deleted(const Words& words) {
  for (Pod& pod : pods_)
    if (pod.name == Name{words[0], words[1]}) pod.deleting = true;
}

void FakeNode::annotate(const Words& words) {
  for (Pod& pod : pods_)
    if (pod.name == Name{words[0], words[1]})
      pod.annotations[words[2]] = words.size() > 3 ? percent_decoded(words[3]) : "";
}

void FakeNode::unannotate(const Words& words) {
  for (Pod& pod : pods_)
    if (pod.name == Name{words[0], words[1]}) pod.annotations.erase(words[2]);
}

void FakeNode::add_device(const Words& words) {
  devices_[{words[0], words[1]}].push_back({words[2], words[3], words[4]});
}

void FakeNode::drop_devices(const Words& words) { devices_.erase({words[0], words[1]}); }

void FakeNode::set_fault(const Words& words) {
  if (std::find(std::begin(kFaults), std::end(kFaults), words[0]) == std::end(kFaults)) {
    said_ = ", but there is no such fault";
    return;
  }
  fault_ = {words[0], words.size() > 1 ? number<double>(words[1]) : 2};
}

void FakeNode::set_resource_fault(const Words& words) {
  const Fault kept = fault_;
  set_fault(words);
  resource_fault_ = std::exchange(fault_, kept);
}

void FakeNode::set_weight(const Words& words) {
  spec_ = spec_of_bytes(static_cast<std::size_t>(number<int>(words[0])));
}

// Pods of others: no key of theirs has our prefix.
void FakeNode::set_many(const Words& words) {
  std::erase_if(pods_, [](const Pod& pod) { return pod.name.first == "others"; });
  for (int i = 0; i < number<int>(words[0]); ++i) {
    char uid[40] = {};
    std::snprintf(uid, sizeof uid, "0f0f0f0f-0000-4000-8000-%012x", static_cast<unsigned>(i));
    pods_.push_back({.name = {"others", "other-" + std::to_string(i)},
                     .uid = uid,
                     .phase = "Running",
                     .annotations = {{"example.com/delta", "0.5"}}});
  }
}

void FakeNode::set_api(const Words& words) { api_ = words[0]; }

void FakeNode::count(const Words&) {
  said_ = " " + std::to_string(asked_) + " " + std::to_string(asked_devices_);
}

void FakeNode::end() {
  const std::lock_guard lock(mutex_);
  over_ = true;
  changed_.notify_all();
}

// --- answers -------------------------------------------------------------------------------------

// False: the call is over.
bool FakeNode::wait(double seconds, grpc::ServerContext& context, Lock& lock) {
  const auto now = [] { return gpr_now(GPR_CLOCK_MONOTONIC); };
  const auto milliseconds = static_cast<std::int64_t>(1000 * seconds);
  const gpr_timespec until = gpr_time_add(now(), gpr_time_from_millis(milliseconds, GPR_TIMESPAN));
  while (gpr_time_cmp(now(), until) < 0 && !over_ && !context.IsCancelled())
    changed_.wait_for(lock, std::chrono::milliseconds(20));
  return !over_ && !context.IsCancelled();
}

grpc::Status FakeNode::pass(const Fault& fault, grpc::ServerContext& context, Lock& lock) {
  while (fault.kind == "hang")
    if (!wait(0.05, context, lock)) return {grpc::StatusCode::CANCELLED, "the kubelet ends"};
  if (fault.kind == "slow" && !wait(fault.seconds, context, lock))
    return {grpc::StatusCode::CANCELLED, "the kubelet ends"};
  if (fault.kind == "error")
    return {grpc::StatusCode::RESOURCE_EXHAUSTED, "rejected by rate limit: wait"};
  if (fault.kind == "not-in-sync")
    return {grpc::StatusCode::FAILED_PRECONDITION, "the kubelet has not seen its pods yet"};
  return grpc::Status::OK;
}

std::string FakeNode::encoded(const Pod& pod) const {
  v1alpha1::Pod out;
  v1alpha1::ObjectMeta& metadata = *out.mutable_metadata();
  metadata.set_name(pod.name.second);
  metadata.set_namespace_(pod.name.first);
  metadata.set_uid(pod.uid);
  metadata.set_resourceversion("12345");
  metadata.mutable_creationtimestamp()->set_seconds(1'780'000'000);
  if (pod.deleting) metadata.mutable_deletiontimestamp()->set_seconds(1'780'000'030);
  (*metadata.mutable_labels())["app"] = pod.name.second;
  for (const auto& [key, value] : pod.annotations) (*metadata.mutable_annotations())[key] = value;
  v1alpha1::OwnerReference& owner = *metadata.add_ownerreferences();
  owner.set_kind("Job");
  owner.set_name("job");
  owner.set_uid("0e0e0e0e-0000-4000-8000-000000000000");
  *out.mutable_spec() = spec_;
  out.mutable_status()->set_phase(pod.phase);
  out.mutable_status()->set_podip("10.0.0.7");
  return out.SerializeAsString();
}

grpc::Status FakeNode::list_pods(const std::string& api, grpc::ServerContext& context,
                                 google::protobuf::RepeatedPtrField<std::string>& out) {
  Lock lock(mutex_);
  if (api != api_) return {grpc::StatusCode::UNIMPLEMENTED, "unknown service " + api + ".Pods"};
  ++asked_;
  if (auto status = pass(fault_, context, lock); !status.ok()) return status;
  for (const Pod& pod : pods_) out.Add(encoded(pod));
  if (fault_.kind == "garbage") out.Add(garbage());
  if (fault_.kind != "truncate") return grpc::Status::OK;
  std::string cut = encoded({.name = {"others", "cut"}, .uid = "0d0d", .phase = "Running"});
  cut.resize(cut.size() / 2);
  out.Add(std::move(cut));
  return grpc::Status::OK;
}

void FakeNode::fill(v1::PodResources& out, const Name& name) const {
  out.set_namespace_(name.first);
  out.set_name(name.second);
  const auto found = devices_.find(name);
  if (found == devices_.end()) {
    out.add_containers()->set_name("main");
    return;
  }
  for (const Device& device : found->second) {
    v1::ContainerResources& container = *out.add_containers();
    container.set_name(device.container);
    container.add_cpu_ids(1);
    v1::ContainerDevices& devices = *container.add_devices();
    devices.set_resource_name(device.resource);
    devices.add_device_ids(device.id);
    devices.mutable_topology()->add_nodes()->set_id(0);
  }
}

grpc::Status FakeNode::list_devices(grpc::ServerContext& context,
                                    v1::ListPodResourcesResponse& out) {
  Lock lock(mutex_);
  ++asked_devices_;
  if (auto status = pass(resource_fault_, context, lock); !status.ok()) return status;
  std::set<Name> names;
  for (const Pod& pod : pods_) names.insert(pod.name);
  for (const auto& [name, devices] : devices_) names.insert(name);
  for (const Name& name : names) fill(*out.add_pod_resources(), name);
  std::string broken;
  if (resource_fault_.kind == "garbage") broken = garbage();
  if (resource_fault_.kind == "truncate") {
    v1::PodResources pod;
    fill(pod, {"others", "cut"});
    broken = pod.SerializeAsString();
    broken.resize(broken.size() / 2 + 1);
  }
  // As one more of the field `pod_resources`, behind the others.
  if (!broken.empty())
    out.GetReflection()->MutableUnknownFields(&out)->AddLengthDelimited(1, broken);
  return grpc::Status::OK;
}
