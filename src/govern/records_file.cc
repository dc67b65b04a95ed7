#include "govern/records_file.h"

#include "govern/record_json.h"

namespace derate {

Result<RecordsFile> RecordsFile::create(const std::string& path, Instant start) {
  return RecordsFile(TRY(TextFile::create(path)), start);
}

Result<void> RecordsFile::add(const Record& record) {
  return file_.write(record_json(record, start_) + "\n");
}

}  // namespace derate
