// A kubelet as far as its pod-resources socket and its Pods API go, by gRPC's own server: what it
// speaks is not what we think gRPC is. It ends when its input does, so that it outlives no test.
//
//   fake_kubelet SOCKET answer N   N pods with a GPU each
//   fake_kubelet SOCKET long N     the same with the longest names
//   fake_kubelet SOCKET error      refuses, as a kubelet that is asked too often
//   fake_kubelet SOCKET hang       takes the call and does not answer
//
//   fake_kubelet PODS_SOCKET serve RESOURCES_SOCKET [FAULT]   both APIs, at first with that fault,
//   by commands on its input:
//     pod NAMESPACE NAME UID PHASE       adds it, or changes its phase; another UID replaces it
//     twin NAMESPACE NAME UID PHASE      adds another pod, whatever there is already
//     remove NAMESPACE NAME              all pods of that name, with their devices
//     deleting NAMESPACE NAME            its deletion has been requested
//     annotate NAMESPACE NAME KEY [VALUE]   VALUE in percent encoding
//     unannotate NAMESPACE NAME KEY
//     device NAMESPACE NAME CONTAINER RESOURCE DEVICE
//     undevice NAMESPACE NAME            it has no devices any more
//     fault none|hang|error|truncate|garbage|not-in-sync|slow [SECONDS]   of the Pods API
//     resource-fault ...                 the same of the pod-resources API
//     weight BYTES                       of each pod at least, in fields that nobody asks for
//     many N                             N pods of others, in place of those before
//     api v1alpha1|v1beta1               of the Pods API; the other version is not there
//     begin, end                         what is between them is seen at once
//     calls                              how often both APIs were called
//   It prints "ok" and, for calls, two numbers after each; else what is wrong.
//
//   fake_kubelet PODS_SOCKET ask       the client of one: lists pods each second, and prints the
//   code of the answer and how many there are
//   fake_kubelet PODS_SOCKET list      the same once: prints each pod as NAMESPACE/NAME UID and its
//   annotations, KEY=VALUE; exits with the code of the answer
#include <grpc/support/time.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <charconv>
#include <condition_variable>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <pod_resources.grpc.pb.h>
#include <pods.grpc.pb.h>
#include <pods_beta.grpc.pb.h>
#include "fake_node.h"

namespace {

class Lister final : public v1::PodResourcesLister::Service {
 public:
  Lister(std::string mode, int pods) : mode_(std::move(mode)), pods_(pods) {}

  grpc::Status List(grpc::ServerContext*, const v1::ListPodResourcesRequest*,
                    v1::ListPodResourcesResponse* out) override {
    if (mode_ == "error")
      return {grpc::StatusCode::RESOURCE_EXHAUSTED, "rejected by rate limit: wait"};
    if (mode_ == "hang") {
      std::unique_lock lock(mutex_);
      ended_.wait(lock, [this] { return over_; });
    }
    const std::string tail = mode_ == "long" ? std::string(240, 'x') : "";
    for (int i = 0; i < pods_; ++i) fill(*out->add_pod_resources(), i, tail);
    return grpc::Status::OK;
  }

  void end() {
    const std::lock_guard lock(mutex_);
    over_ = true;
    ended_.notify_all();
  }

 private:
  static void fill(v1::PodResources& pod, int i, const std::string& tail) {
    pod.set_name("pod-" + std::to_string(i) + tail);
    pod.set_namespace_("lab");
    v1::ContainerResources& container = *pod.add_containers();
    container.set_name("main");
    for (const int cpu : {1, 2, 300}) container.add_cpu_ids(cpu);
    v1::ContainerDevices& devices = *container.add_devices();
    devices.set_resource_name("nvidia.com/gpu");
    devices.add_device_ids("GPU-" + std::to_string(i));
    devices.mutable_topology()->add_nodes()->set_id(1);
  }

  std::string mode_;
  int pods_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
};

class Devices final : public v1::PodResourcesLister::Service {
 public:
  explicit Devices(FakeNode& node) : node_(node) {}
  grpc::Status List(grpc::ServerContext* context, const v1::ListPodResourcesRequest*,
                    v1::ListPodResourcesResponse* out) override {
    return node_.list_devices(*context, *out);
  }

 private:
  FakeNode& node_;
};

// Of either version: the messages have the same fields.
template <class Service, class Request, class Response>
class Pods final : public Service {
 public:
  Pods(FakeNode& node, std::string api) : node_(node), api_(std::move(api)) {}
  grpc::Status ListPods(grpc::ServerContext* context, const Request*, Response* out) override {
    return node_.list_pods(api_, *context, *out->mutable_pods());
  }

 private:
  FakeNode& node_;
  std::string api_;
};
using AlphaPods =
    Pods<v1alpha1::Pods::Service, v1alpha1::ListPodsRequest, v1alpha1::ListPodsResponse>;
using BetaPods = Pods<v1beta1::Pods::Service, v1beta1::ListPodsRequest, v1beta1::ListPodsResponse>;

int number(std::string_view text) {
  int out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

gpr_timespec in_seconds(int seconds) {
  return gpr_time_add(gpr_now(GPR_CLOCK_REALTIME), gpr_time_from_seconds(seconds, GPR_TIMESPAN));
}

std::unique_ptr<grpc::Server> listen(const std::string& socket,
                                     const std::vector<grpc::Service*>& services) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials());
  for (grpc::Service* const service : services) builder.RegisterService(service);
  return builder.BuildAndStart();
}

int serve(const std::string& pods_socket, const std::string& resources_socket,
          const std::string& fault) {
  FakeNode node;
  node.obey("fault " + fault);
  node.obey("resource-fault " + fault);
  Devices devices(node);
  AlphaPods alpha(node, "v1alpha1");
  BetaPods beta(node, "v1beta1");
  const auto pods_server = listen(pods_socket, {&alpha, &beta});
  const auto resources_server = listen(resources_socket, {&devices});
  if (!pods_server || !resources_server) return 1;
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) std::cout << node.obey(line) << std::endl;
  node.obey("end");  // of a batch that is open
  node.end();
  const gpr_timespec soon = in_seconds(1);
  pods_server->Shutdown(soon);
  resources_server->Shutdown(soon);
  return 0;
}

grpc::Status list_pods(const std::string& socket, v1alpha1::ListPodsResponse& pods) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto stub = v1alpha1::Pods::NewStub(
      grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  context.set_deadline(in_seconds(5));
  return stub->ListPods(&context, v1alpha1::ListPodsRequest(), &pods);
}

// Until its parent ends it.
int ask(const std::string& socket) {
  for (;;) {
    v1alpha1::ListPodsResponse pods;
    const auto status = list_pods(socket, pods);
    std::cout << status.error_code() << " " << pods.pods_size() << std::endl;
    gpr_sleep_until(in_seconds(1));
  }
}

int list(const std::string& socket) {
  v1alpha1::ListPodsResponse pods;
  const auto status = list_pods(socket, pods);
  for (const std::string& bytes : pods.pods()) {
    v1alpha1::Pod pod;
    if (!pod.ParseFromString(bytes)) return 100;
    const auto& metadata = pod.metadata();
    std::cout << metadata.namespace_() << "/" << metadata.name() << " " << metadata.uid();
    for (const auto& [key, value] : metadata.annotations()) std::cout << " " << key << "=" << value;
    std::cout << "\n";
  }
  return status.error_code();
}

}  // namespace

int main(int count, char** words) {
  if (count < 3) {
    std::cerr << "usage: fake_kubelet SOCKET answer|long|error|hang|ask|list [N]\n"
                 "       fake_kubelet PODS_SOCKET serve RESOURCES_SOCKET [FAULT]\n";
    return 2;
  }
  const std::string mode = words[2];
  if (mode == "serve" && count > 3) return serve(words[1], words[3], count > 4 ? words[4] : "none");
  if (mode == "ask") return ask(words[1]);
  if (mode == "list") return list(words[1]);
  Lister lister(mode, count > 3 ? number(words[3]) : 0);
  const auto server = listen(words[1], {&lister});
  if (!server) return 1;
  std::cout << "ready" << std::endl;
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
  lister.end();
  server->Shutdown();
  return 0;
}
