// derate-agent reads the metrics of engines that serve language models for derated, which has no
// network. derated's configuration names the pages; the readings go to derated's socket.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "api/service_requests.h"
#include "base/clock.h"
#include "base/log.h"
#include "service/scrape/engine_reading.h"
#include "service/scrape/engine_scraper.h"

namespace derate::agent {

// The newest reading of each page, between the threads that read and the one that reports.
class Readings {
 public:
  // `next`: another reading of a service, read at that moment.
  void put(ServiceReading next, Instant read);
  // Waits at most `patience` for readings that were not taken, and takes up to kMostBytes of them.
  // Their ages are those at the moment at which they are taken.
  std::vector<ServiceReading> take(Clock& clock, Duration patience);

 private:
  static constexpr std::size_t kMostBytes = 40 << 10;  // of a report: derated takes 64 KiB
  struct Entry {
    ServiceReading reading;
    Instant read{};
  };
  std::mutex mutex_;
  std::condition_variable news_;
  std::map<std::string, Entry> newest_;  // by service: those that were not taken
};

// A report of one reading of the page, as a line of JSON.
std::string read_once(const ScrapeTarget& target, Clock& clock);

// The rough size of a reading as JSON.
std::size_t size_of(const ServiceReading& reading);

struct ScrapeDuty {
  static constexpr std::size_t kMost = 16;  // pages; more are not read, which is logged
  std::vector<std::string> sockets;         // of derated: the first on which somebody listens
  Log log = {};
};

// Begins it, on threads that live as long as the process.
void start_scraping(ScrapeDuty duty);

}  // namespace derate::agent
