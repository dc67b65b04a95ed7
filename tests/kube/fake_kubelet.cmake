# The fake kubelet, where gRPC is: without it its tests are left out, and this says so.
# By name: pkg-config takes 15 s to list what they need.
find_library(GRPCXX grpc++)
find_library(PROTOBUF protobuf)
find_program(PROTOC protoc)
find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin)
if(NOT GRPCXX OR NOT PROTOBUF OR NOT PROTOC OR NOT GRPC_CPP_PLUGIN)
  message(STATUS "Kubernetes: no gRPC here, so the client is not tested against its server")
  return()
endif()
set(kube ${CMAKE_SOURCE_DIR}/tests/kube)
set(made ${CMAKE_BINARY_DIR}/fake_kubelet_made)
file(MAKE_DIRECTORY ${made})
# The two versions of the Pods API differ in the package's name.
file(READ ${kube}/pods.proto alpha)
string(REPLACE v1alpha1 v1beta1 beta "${alpha}")
file(CONFIGURE OUTPUT ${made}/pods.proto CONTENT "${alpha}" @ONLY)
file(CONFIGURE OUTPUT ${made}/pods_beta.proto CONTENT "${beta}" @ONLY)
configure_file(${kube}/pod_resources.proto ${made}/pod_resources.proto COPYONLY)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${kube}/pods.proto)
set(made_sources)
foreach(name pod_resources pods pods_beta)
  add_custom_command(
    OUTPUT ${made}/${name}.pb.cc ${made}/${name}.grpc.pb.cc
    COMMAND ${PROTOC} --proto_path=${made} --cpp_out=${made} --grpc_out=${made}
            --plugin=protoc-gen-grpc=${GRPC_CPP_PLUGIN} ${made}/${name}.proto
    DEPENDS ${made}/${name}.proto)
  list(APPEND made_sources ${made}/${name}.pb.cc ${made}/${name}.grpc.pb.cc)
endforeach()
# A process of its own without our flags: its headers warn, and a sanitizer would see half of it.
add_executable(fake_kubelet ${kube}/fake_kubelet.cc ${kube}/fake_node.cc ${made_sources})
target_include_directories(fake_kubelet PRIVATE ${made} ${kube})
set_target_properties(fake_kubelet PROPERTIES UNITY_BUILD OFF)
target_compile_options(fake_kubelet PRIVATE -O0 -g0)
target_link_libraries(fake_kubelet PRIVATE ${GRPCXX} ${PROTOBUF} grpc gpr
  absl_synchronization)
target_compile_definitions(integ_kube_test PRIVATE
  DERATE_FAKE_KUBELET="$<TARGET_FILE:fake_kubelet>")
add_dependencies(integ_kube_test fake_kubelet)
