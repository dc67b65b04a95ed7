#include "store/lab_store.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "base/json.h"
#include "store/sqlite_file.h"
#include "store/sqlite_rows.h"

namespace derate {
namespace {

constexpr const char* kMigrations[] = {
    R"(CREATE TABLE note (key TEXT PRIMARY KEY, value TEXT NOT NULL);
       CREATE TABLE session (
         id INTEGER PRIMARY KEY, chip TEXT NOT NULL, cell TEXT NOT NULL,
         policy TEXT NOT NULL, repetition INTEGER NOT NULL,
         UNIQUE (chip, cell, policy, repetition));
       CREATE TABLE job (
         id INTEGER PRIMARY KEY, session INTEGER NOT NULL REFERENCES session (id),
         position INTEGER NOT NULL, app TEXT NOT NULL, error TEXT NOT NULL,
         time_seconds REAL NOT NULL, work REAL NOT NULL, work_unit TEXT NOT NULL,
         energy_joules REAL NOT NULL, sensed_energy_joules REAL, probing_seconds REAL NOT NULL,
         clock_changes INTEGER NOT NULL, policy_cpu_seconds REAL NOT NULL, start_celsius REAL,
         mean_clock_mhz REAL, activity TEXT NOT NULL);
       CREATE TABLE trace (
         job INTEGER PRIMARY KEY REFERENCES job (id), ticks BLOB NOT NULL,
         remarks TEXT NOT NULL);)",
};
constexpr SqliteSchema kSchema{0x64726c62, "the results of an experiment", kMigrations};  // "drlb"

// A tick in 13 bytes, little-endian: ms since the start (4), clock, asked clock and power in tenths
// (2 each), utilisations in percent (1 each), flags (1): bit 0 probing, 1..3 what is known.
constexpr std::size_t kTickBytes = 13;

void put(std::string& out, double value, int bytes) {
  const double most = std::pow(2.0, 8 * bytes) - 1;
  auto rest = static_cast<std::uint64_t>(std::clamp(std::round(value), 0.0, most));
  for (int i = 0; i < bytes; ++i, rest >>= 8) out += static_cast<char>(rest & 0xff);
}

double take(const unsigned char*& at, int bytes) {
  std::uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value |= static_cast<std::uint64_t>(*at++) << (8 * i);
  return static_cast<double>(value);
}

std::string packed(const std::vector<Tick>& ticks) {
  std::string out;
  out.reserve(ticks.size() * kTickBytes);
  for (const Tick& t : ticks) {
    put(out, t.time_s * 1e3, 4);
    put(out, t.clock_mhz * 10, 2);
    put(out, t.asked_mhz.value_or(0) * 10, 2);
    put(out, t.power_w * 10, 2);
    put(out, t.gpu_utilisation.value_or(0) * 100, 1);
    put(out, t.memory_utilisation.value_or(0) * 100, 1);
    put(out,
        (t.probing ? 1 : 0) + (t.asked_mhz ? 2 : 0) + (t.gpu_utilisation ? 4 : 0) +
            (t.memory_utilisation ? 8 : 0),
        1);
  }
  return out;
}

std::vector<Tick> unpacked(const void* blob, std::size_t bytes) {
  std::vector<Tick> out(bytes / kTickBytes);
  const auto* at = static_cast<const unsigned char*>(blob);
  for (Tick& t : out) {
    const auto next = [&](int size, double unit) {
      return static_cast<float>(take(at, size) / unit);
    };
    t.time_s = next(4, 1e3);
    t.clock_mhz = next(2, 10);
    const float asked = next(2, 10);
    t.power_w = next(2, 10);
    const float gpu = next(1, 100), memory = next(1, 100);
    const auto flags = static_cast<unsigned>(take(at, 1));
    t.probing = (flags & 1) != 0;
    if ((flags & 2) != 0) t.asked_mhz = asked;
    if ((flags & 4) != 0) t.gpu_utilisation = gpu;
    if ((flags & 8) != 0) t.memory_utilisation = memory;
  }
  return out;
}

std::string remarks_text(const std::vector<Remark>& remarks) {
  Json list = Json::array();
  for (const Remark& remark : remarks) list.push_back({remark.tick, remark.text});
  return json_text(list);
}

std::vector<Remark> remarks_of(const std::string& text) {
  std::vector<Remark> out;
  for (const Json& entry : parse_json(text))
    if (entry.is_array() && entry.size() == 2 && entry[0].is_number_unsigned() &&
        entry[1].is_string())
      out.push_back({entry[0].get<std::uint32_t>(), entry[1].get<std::string>()});
  return out;
}

std::string activity_text(const Activity& activity) {
  Json out = Json::object();
  for (const ActivityShare& share : activity_shares())
    if (const auto value = activity.*share.member) out[share.name] = value->value();
  return json_text(out);
}

Activity activity_of(const std::string& text) {
  const Json json = parse_json(text);
  Activity out;
  for (const ActivityShare& share : activity_shares())
    if (json.contains(share.name) && json[share.name].is_number())
      out.*share.member = Fraction(json[share.name].get<double>());
  return out;
}

constexpr const char* kJobColumns =
    "job.id, chip, cell, policy, repetition, position, app, error, time_seconds, work, "
    "energy_joules, sensed_energy_joules, probing_seconds, clock_changes, policy_cpu_seconds, "
    "start_celsius, mean_clock_mhz, activity, work_unit";

StoredJob job_of(RowReader& read) {
  StoredJob out;
  JobRecord& job = out.job;
  read.all(out.id, out.session.chip, out.session.cell, out.session.policy, out.session.repetition,
           out.position, job.app, job.error);
  job.time = from_seconds(read.next<double>());
  read.value(job.work);
  job.energy = Joules(read.next<double>());
  if (const auto joules = read.next<std::optional<double>>()) job.sensed_energy = Joules(*joules);
  job.probing = from_seconds(read.next<double>());
  read.value(job.clock_changes);
  job.policy_cpu = from_seconds(read.next<double>());
  if (const auto celsius = read.next<std::optional<double>>())
    job.temperature_at_start = Celsius(*celsius);
  if (const auto clock = read.next<std::optional<double>>()) job.mean_clock = Megahertz(*clock);
  job.activity = activity_of(read.next<std::string>());
  read.value(job.work_unit);
  return out;
}

template <class Quantity>
std::optional<double> number_of(const std::optional<Quantity>& quantity) {
  return quantity ? std::optional(quantity->value()) : std::nullopt;
}

}  // namespace

struct LabStore::Database {
  std::string path;
  SQLite::Database sqlite;

  template <class F>
  auto guarded(F&& work) {
    return derate::guarded(path, std::forward<F>(work));
  }

  void add(const SessionKey& key, const std::vector<JobRecord>& jobs) {
    SQLite::Transaction all(sqlite);
    execute(sqlite, "INSERT INTO session (chip, cell, policy, repetition) VALUES (?, ?, ?, ?)",
            key.chip, key.cell, key.policy, key.repetition);
    const std::int64_t id = sqlite.getLastInsertRowid();
    for (std::size_t i = 0; i < jobs.size(); ++i) add(id, static_cast<int>(i), jobs[i]);
    all.commit();
  }

  void add(std::int64_t session, int position, const JobRecord& job) {
    execute(sqlite,
            "INSERT INTO job (session, position, app, error, time_seconds, work, energy_joules, "
            "sensed_energy_joules, probing_seconds, clock_changes, policy_cpu_seconds, "
            "start_celsius, mean_clock_mhz, activity, work_unit) VALUES "
            "(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            session, position, job.app, job.error, seconds(job.time), job.work, job.energy.value(),
            number_of(job.sensed_energy), seconds(job.probing), job.clock_changes,
            seconds(job.policy_cpu), number_of(job.temperature_at_start), number_of(job.mean_clock),
            activity_text(job.activity), job.work_unit);
    execute(sqlite, "INSERT INTO trace (job, ticks, remarks) VALUES (?, ?, ?)",
            std::int64_t{sqlite.getLastInsertRowid()}, Blob{packed(job.ticks)},
            remarks_text(job.remarks));
  }
};

LabStore::LabStore(std::unique_ptr<Database> database) : database_(std::move(database)) {}
LabStore::LabStore(LabStore&&) noexcept = default;
LabStore& LabStore::operator=(LabStore&&) noexcept = default;
LabStore::~LabStore() = default;

Result<LabStore> LabStore::create(const std::string& path) {
  return derate::guarded(path, [&] {
    auto database = std::make_unique<Database>(
        Database{path, SQLite::Database(path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE)});
    database->sqlite.setBusyTimeout(5000);
    migrate(database->sqlite, kSchema);
    return LabStore(std::move(database));
  });
}

Result<LabStore> LabStore::open(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    return Error{Errc::not_found, fmt::format("there is no '{}'", path)};
  return derate::guarded(path, [&] {
    auto database =
        std::make_unique<Database>(Database{path, SQLite::Database(path, SQLite::OPEN_READONLY)});
    database->sqlite.setBusyTimeout(5000);
    check_schema(database->sqlite, kSchema);
    return LabStore(std::move(database));
  });
}

Result<std::string> LabStore::note(const std::string& key) const {
  return database_->guarded([&] {
    SQLite::Statement row(database_->sqlite, "SELECT value FROM note WHERE key = ?");
    row.bind(1, key);
    return row.executeStep() ? row.getColumn(0).getString() : std::string();
  });
}

Result<void> LabStore::set_note(const std::string& key, const std::string& value) {
  return database_->guarded([&] {
    execute(database_->sqlite, "INSERT OR REPLACE INTO note (key, value) VALUES (?, ?)", key,
            value);
  });
}

Result<void> LabStore::add(const SessionKey& key, const std::vector<JobRecord>& jobs) {
  return database_->guarded([&] { database_->add(key, jobs); });
}

Result<std::vector<SessionKey>> LabStore::sessions() const {
  return database_->guarded([&] {
    std::vector<SessionKey> out;
    SQLite::Statement row(database_->sqlite, "SELECT chip, cell, policy, repetition FROM session");
    while (row.executeStep()) {
      SessionKey& key = out.emplace_back();
      RowReader{row}.all(key.chip, key.cell, key.policy, key.repetition);
    }
    return out;
  });
}

Result<std::vector<StoredJob>> LabStore::jobs() const {
  return database_->guarded([&] {
    std::vector<StoredJob> out;
    SQLite::Statement row(database_->sqlite,
                          fmt::format("SELECT {} FROM job JOIN session ON session.id = job.session "
                                      "ORDER BY job.id",
                                      kJobColumns));
    while (row.executeStep()) {
      RowReader read{row};
      out.push_back(job_of(read));
    }
    return out;
  });
}

Result<StoredJob> LabStore::job(std::int64_t id) const {
  auto found = TRY(database_->guarded([&]() -> std::optional<StoredJob> {
    SQLite::Statement row(
        database_->sqlite,
        fmt::format("SELECT {}, ticks, remarks FROM job JOIN session ON session.id = job.session "
                    "JOIN trace ON trace.job = job.id WHERE job.id = ?",
                    kJobColumns));
    row.bind(1, id);
    if (!row.executeStep()) return std::nullopt;
    RowReader read{row};
    StoredJob out = job_of(read);
    const auto blob = read.column();
    out.job.ticks = unpacked(blob.getBlob(), static_cast<std::size_t>(blob.getBytes()));
    out.job.remarks = remarks_of(read.next<std::string>());
    return out;
  }));
  if (!found) return Error{Errc::not_found, fmt::format("'{}' has no job {}", database_->path, id)};
  return *std::move(found);
}

}  // namespace derate
