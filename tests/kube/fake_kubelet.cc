// A kubelet as far as its pod-resources socket goes, by gRPC's own server: what it speaks is not
// what we think gRPC is. It ends when its input does, so that it outlives no test.
//
//   fake_kubelet SOCKET answer N   N pods with a GPU each
//   fake_kubelet SOCKET long N     the same with the longest names
//   fake_kubelet SOCKET error      refuses, as a kubelet that is asked too often
//   fake_kubelet SOCKET hang       takes the call and does not answer
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <charconv>
#include <condition_variable>
#include <iostream>
#include <mutex>
#include <string>
#include <string_view>

#include <pod_resources.grpc.pb.h>

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

int number(std::string_view text) {
  int out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

}  // namespace

int main(int count, char** words) {
  if (count < 3) {
    std::cerr << "usage: fake_kubelet SOCKET answer|long|error|hang [N]\n";
    return 2;
  }
  Lister lister(words[2], count > 3 ? number(words[3]) : 0);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(std::string("unix:") + words[1], grpc::InsecureServerCredentials());
  builder.RegisterService(&lister);
  const auto server = builder.BuildAndStart();
  if (!server) return 1;
  std::cout << "ready" << std::endl;
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
  lister.end();
  server->Shutdown();
  return 0;
}
