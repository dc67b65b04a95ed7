// The path of this build's libnvidia-ml.so.1, for tests.
#pragma once

namespace derate::fakenvml {

// The path of this build's libnvidia-ml.so.1, for tests; its file is written by cmake, so that a
// test's own objects are the same in every build.
extern const char* const kLibraryPath;

}  // namespace derate::fakenvml
