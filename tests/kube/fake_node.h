// The pods of a node and the devices that they have, as a kubelet lists them over its two APIs,
// with faults. Commands change it while other threads call it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <pod_resources.pb.h>
#include <pods.pb.h>

class FakeNode {
 public:
  using Words = std::vector<std::string>;

  FakeNode();

  // Does one command (fake_kubelet.cc lists them); "ok", with numbers where it has any, or what is
  // wrong. From one thread alone.
  std::string obey(const std::string& line);
  // Calls that hang come back from then on.
  void end();

  // `api`: "v1alpha1" or "v1beta1". Adds a serialized Pod each.
  grpc::Status list_pods(const std::string& api, grpc::ServerContext& context,
                         google::protobuf::RepeatedPtrField<std::string>& out);
  grpc::Status list_devices(grpc::ServerContext& context, v1::ListPodResourcesResponse& out);

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Name = std::pair<std::string, std::string>;  // namespace, name
  struct Pod {
    Name name;
    std::string uid, phase;
    std::map<std::string, std::string> annotations = {};
    bool deleting = false;
  };
  struct Device {
    std::string container, resource, id;
  };
  struct Fault {
    std::string kind = "none";
    double seconds = 2;  // of "slow"
  };
  struct Command {
    std::size_t least, most;  // words after its name
    void (FakeNode::*run)(const Words&);
  };

  static const std::map<std::string, Command>& commands();
  void put_pod(const Words& words);
  void add_twin(const Words& words);
  void remove(const Words& words);
  void mark_deleted(const Words& words);
  void annotate(const Words& words);
  void unannotate(const Words& words);
  void add_device(const Words& words);
  void drop_devices(const Words& words);
  void set_fault(const Words& words);
  void set_resource_fault(const Words& words);
  void set_weight(const Words& words);
  void set_many(const Words& words);
  void set_api(const Words& words);
  void begin(const Words& words);
  void commit(const Words& words);
  void count(const Words& words);

  grpc::Status pass(const Fault& fault, grpc::ServerContext& context, Lock& lock);
  bool wait(double seconds, grpc::ServerContext& context, Lock& lock);
  std::string encoded(const Pod& pod) const;
  void fill(v1::PodResources& out, const Name& name) const;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false, in_batch_ = false;
  std::vector<Pod> pods_;
  std::map<Name, std::vector<Device>> devices_;
  Fault fault_, resource_fault_;
  std::string api_ = "v1alpha1";
  v1alpha1::PodSpec spec_;  // of every pod
  int asked_ = 0, asked_devices_ = 0;
  std::string said_;  // after "ok"
};
