#include "govern/records_file.h"

#include "govern/record_json.h"

namespace derate {

Result<RecordsFile> RecordsFile::create(const std::string& path, Instant start) {
  return RecordsFile(path, TRY(TextFile::create(path)), start);
}

void RecordsFile::write_on_a_thread() {
  queue_ = std::make_shared<WriteQueue>(path_, kMostWaiting);
}

Result<void> RecordsFile::add(const Record& record) {
  std::string line = record_json(record, start_) + "\n";
  if (queue_ == nullptr) return file_->write(line);
  return queue_->put([file = file_, line = std::move(line)] { return file->write(line); });
}

}  // namespace derate
