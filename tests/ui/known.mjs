// Tests what the page takes for true (web/ui/src/known.ts), its names (name.tsx), and which GPUs,
// events (choose.ts) and processes (process_rows.ts) it shows. Prints "ok".
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import assert from "node:assert/strict";

process.env.TZ = "UTC";
const folder = fileURLToPath(new URL("../../web/ui/", import.meta.url));
const { build } = createRequire(`${folder}package.json`)("esbuild");
const built = await build({
  stdin: {
    contents: ["known", "name", "choose", "words", "tenants", "process_rows"].map((file) => `export * from "./src/${file}";`).join("\n"),
    resolveDir: folder,
  },
  bundle: true, write: false, format: "esm", jsx: "automatic", jsxImportSource: "preact",
});
const ui = await import(`data:text/javascript,${encodeURIComponent(built.outputFiles[0].text)}`);

const kNoon = Date.parse("2026-11-30T12:00:00Z") / 1000;
const heard = { unix: kNoon, ms: 5000 };
const gpu = (more = {}) => ({
  index: 3, uuid: "GPU-3", name: "NVIDIA H200", policy: "assure", rule: "none", reason: "1305 MHz keeps the promise",
  read_age_seconds: 0.4, power_watts: 452, sm_clock_mhz: 1305, asked_clock_mhz: 1305, gpu_utilisation_ratio: 0.93,
  temperature_celsius: 61, expected_performance_ratio: 0.93, promised_performance_ratio: 0.9, promise: "kept",
  card: { age_seconds: 2, memory_used_bytes: 41 * 2 ** 30, memory_total_bytes: 80 * 2 ** 30, fan_ratio: 0.4, ecc_uncorrected_errors: 0,
    xid: 31, xid_text: "GPU memory page fault", xid_unix_seconds: kNoon - 600, xids: 2 },
  factory_power_limit_watts: 700, attribution: { energy_joules: 1, unallocated_watts: 79, tenants: [{ key: "a", user: "ann", energy_joules: 1, power_watts: 373 }] },
  ...more,
});
// All that a person could read as being so now.
const kNow = ["power_watts", "sm_clock_mhz", "asked_clock_mhz", "set_power_limit_watts", "gpu_utilisation_ratio",
  "memory_utilisation_ratio", "temperature_celsius", "expected_performance_ratio", "reason", "rule", "work", "attribution"];

// --- a value, its time, or not known since -------------------------------------------------------

const well = ui.shownGpu(gpu(), heard, false);
assert.ok(well.seen.holds);
assert.equal(well.power_watts, 452);
assert.equal(well.was, undefined);
assert.equal(ui.judge(well).level, "good");

const lost = ui.shownGpu(gpu({ error: "nvmlDeviceGetUUID: GPU is lost (NVML error 15)", stale: true, read_age_seconds: 95 }), heard, false, gpu());
const late = ui.shownGpu(gpu({ stale: true, read_age_seconds: 100 }), heard, false);
const quiet = ui.shownGpu(gpu({ set_power_limit_watts: 180, work: "GeMM" }), heard, true);
const never = ui.shownGpu({ index: 0, uuid: "GPU-0", name: "X", stale: true, error: "no answer" }, heard, false);
for (const each of [lost, late, quiet, never]) {
  assert.ok(!each.seen.holds);
  for (const key of kNow) assert.equal(each[key], undefined, `${key} outlives its reading`);
  assert.notEqual(ui.judge(each).level, "good");
}
// Of the card only the last Xid remains, which has its own time; and nothing while nobody answers.
const kXid = { xid: 31, xid_text: "GPU memory page fault", xid_unix_seconds: kNoon - 600 };
assert.equal(well.card.memory_used_bytes, 41 * 2 ** 30);
assert.deepEqual(lost.card, kXid);
assert.deepEqual(late.card, kXid);
assert.equal(quiet.card, undefined);
const gone = { error: "lost", stale: true, read_age_seconds: 95, card: undefined }; // as derated reports it
assert.deepEqual(ui.shownGpu(gpu(gone), heard, false, gpu()).card, kXid);
assert.ok(!("card" in ui.shownGpu(gpu(gone), heard, false)));
const cardOf = (card, ...before) => ui.shownGpu(gpu({ card }), heard, false, ...before).card;
assert.deepEqual(cardOf({ ...gpu().card, age_seconds: 15 }), kXid); // the GPU is read, the card is not
assert.deepEqual(cardOf({ ...gpu().card, age_seconds: undefined }), kXid);
assert.equal(cardOf({ age_seconds: 60, memory_used_bytes: 1 }), undefined);
assert.equal(cardOf(undefined, gpu()), undefined);
assert.equal(lost.seen.words, "not known since 11:58:25");
assert.equal(lost.was.power_watts, 452);
assert.equal(ui.judge(lost).words, "does not answer");
assert.equal(ui.why(lost), "last read 11:58:25; cannot be read: the GPU is lost");
assert.equal(late.seen.words, "not known since 11:58:20");
assert.equal(ui.judge(late).words, "not known since 11:58:20");
assert.equal(quiet.seen.words, "not known since 12:00:00");
assert.equal(quiet.policy, undefined); // who does not answer may govern no more
assert.equal(quiet.was.power_watts, 452);
assert.equal(ui.judge(quiet).words, "not known since 12:00:00");
assert.equal(never.seen.words, "not known");
// Nobody answers, and the GPU was lost before: since then.
assert.equal(ui.shownGpu(gpu({ error: "lost", stale: true, read_age_seconds: 95 }), heard, true, gpu()).seen.words, "not known since 11:58:25");

// One reading that failed is no silence: what was read 1 s ago is shown, and after 3 s it is not.
const failed = (age, ...before) => ui.shownGpu(gpu({ error: "a driver call has not come back for 0.2 s", stale: true, read_age_seconds: age, power_watts: undefined }), heard, false, ...before);
assert.ok(failed(1, gpu()).seen.holds);
assert.equal(failed(1, gpu()).power_watts, 452);
assert.ok(!failed(3, gpu()).seen.holds);
assert.equal(ui.judge(failed(3, gpu())).words, "does not answer");
assert.ok(!ui.needsAttention(failed(1)));
assert.ok(!failed(1).seen.holds);

// What was is the last that held, whoever is gone since.
const before = new Map();
const status = (...gpus) => ({ paused: false, gpus });
ui.shownGpus(status(gpu({ power_watts: 400 })), heard, false, before);
const [after] = ui.shownGpus(status(gpu({ power_watts: undefined, error: "lost", stale: true, read_age_seconds: 9 })), heard, false, before);
assert.equal(after.was.power_watts, 400);
// A reading that failed is not what was, although the one before it is shown for it.
const kept = new Map(), failing = { error: "lost", stale: true, power_watts: undefined };
ui.shownGpus(status(gpu({ power_watts: 400 })), heard, false, kept);
ui.shownGpus(status(gpu({ ...failing, read_age_seconds: 1 })), heard, false, kept);
assert.equal(ui.shownGpus(status(gpu({ ...failing, read_age_seconds: 9 })), heard, false, kept)[0].was.power_watts, 400);

assert.equal(ui.machineTime(heard, 12_500), kNoon + 7.5);
assert.equal(ui.timeOf(kNoon - 2 * 86400, kNoon), "28 Nov, 12:00:00");
assert.equal(ui.notKnown(undefined, kNoon), "not known");

// --- sums, intervals, gaps -----------------------------------------------------------------------

const sum = ui.sumOf([well, lost, well], (each) => each.power_watts);
assert.deepEqual(sum, { value: 904, known: 2, all: 3 });
assert.equal(ui.watts(ui.valueOf(sum)) + ui.ofHowMany(sum), "904\u00a0W of 2 of 3 GPUs");
assert.equal(ui.ofHowMany(ui.sumOf([well], (each) => each.power_watts)), "");
assert.equal(ui.valueOf(ui.sumOf([lost], (each) => each.power_watts)), undefined);
assert.equal(Math.round(ui.within90(63)), 104);
assert.equal(ui.within90(null), undefined);

const times = [100, 101, 102, 150, 151];
assert.deepEqual(ui.gapsOf(times, () => true, 80, 200, 1, 10), [[80, 100], [103, 150], [152, 200]]);
assert.deepEqual(ui.gapsOf(times, (i) => i < 3, 95, 110, 1, 10), []);
assert.deepEqual(ui.gapsOf([], () => true, 0, 60, 1, 10), [[0, 60]]);

// --- words ---------------------------------------------------------------------------------------

assert.equal(ui.chip("NVIDIA GeForce RTX 4070 Laptop GPU"), "RTX 4070 Laptop");
assert.equal(ui.megahertz(1365), "1365\u00a0MHz");
assert.equal(ui.estimated(0.25, 0.221, 0.277), "25\u00a0%");
assert.equal(ui.estimated(0.25, 0.247, 0.253), "25.0\u00a0%");
assert.deepEqual(ui.limitOf(gpu({ set_power_limit_watts: 420 })), { watts: 420, factory: 700 });
assert.deepEqual(ui.limitOf(gpu({ set_power_limit_watts: 420, dry_run: true })), { watts: 700 });
assert.equal(ui.plainTrouble("nvmlDeviceSetGpuLockedClocks(1290, 1290): Insufficient Permissions (NVML error 4)"), "clock cannot be set: no permission");
const refused = ui.shownGpu(gpu({ trouble: "nvmlDeviceSetGpuLockedClocks: Insufficient Permissions", attention: "needs attention" }), heard, false);
assert.equal(ui.judge(refused).words, "clock cannot be set");
assert.equal(ui.zone(kNoon), "UTC+0");
assert.equal(ui.judge(ui.shownGpu(gpu({ policy: "power-cap", promised_performance_ratio: undefined, promise: undefined, set_power_limit_watts: 180 }), heard, false)).words, "power limit 180\u00a0W");

// A GPU that is read and reports nothing is not "only observed".
const mute = ui.shownGpu({ index: 0, uuid: "u", name: "X", read_age_seconds: 0.1 }, heard, false);
assert.equal(ui.judge(mute).words, "reports no power, no clock");

// --- attention: derated's own judgement, and silence that only the page has seen ---------------------

const kAttentions = ["does not answer", "not governed", "needs attention", "below its promise", undefined];
const kStates = [{}, { policy: undefined }, { promise: "broken", promise_below_seconds: 44 }, { promise: "below" }, { promise: "not known" },
  { trouble: "nvmlDeviceSetGpuLockedClocks: Not Supported" }, { rule: "idle" }, { dry_run: true }, { power_watts: undefined, sm_clock_mhz: undefined },
  { error: "a driver call has not come back for 2.1 s", stale: true, read_age_seconds: 2.1, power_watts: undefined }];
for (const attention of kAttentions)
  for (const state of kStates)
    for (const before of [[], [gpu()]]) {
      const shown = ui.shownGpu(gpu({ ...state, attention }), heard, false, ...before);
      assert.equal(ui.needsAttention(shown), attention !== undefined, JSON.stringify({ attention, ...state }));
    }
for (const silent of [lost, late, never]) assert.ok(ui.needsAttention(silent)); // and says why
assert.ok(!ui.needsAttention(quiet)); // of all of them: the page says that nobody answers
assert.equal(ui.judge(ui.shownGpu(gpu({ attention: "not governed", trouble: "not governed: it is used by another program" }), heard, false)).words, "not governed");

// --- figures ---------------------------------------------------------------------------------------

const GiB = 2 ** 30;
assert.equal(ui.memoryOf(41.3 * GiB, 79.6 * GiB), "41 of 80\u00a0GiB");
assert.equal(ui.memoryOf(0.6 * GiB, 15.9 * GiB), "0.6 of 16\u00a0GiB");
assert.equal(ui.memoryOf(0, 16 * GiB), "0 of 16\u00a0GiB");
assert.equal(ui.memoryOf(undefined, 16 * GiB), "– of 16\u00a0GiB");
assert.equal(ui.memoryOf(undefined, undefined), "–");
assert.equal(ui.memory(300 * 2 ** 20), "300\u00a0MiB");
assert.equal(ui.memory(null), "–");
assert.deepEqual([0, 12e3, 3.4e8, 1.25e9, 3e10].map(ui.byteRate), ["0\u00a0kB/s", "12\u00a0kB/s", "340\u00a0MB/s", "1.3\u00a0GB/s", "30\u00a0GB/s"]);
assert.deepEqual([0, 59.9, 60, 94, 599, 601, 7980, 3600, 90000, undefined].map(ui.duration),
  ["0\u00a0s", "59\u00a0s", "1\u00a0min", "1\u00a0min 34\u00a0s", "9\u00a0min 59\u00a0s", "10\u00a0min", "2\u00a0h 13\u00a0min", "1\u00a0h", "1\u00a0d 1\u00a0h", "–"]);
assert.equal(ui.timeSeen(kNoon - 600, well), "11:50:00");

// --- names ---------------------------------------------------------------------------------------

assert.equal(ui.plainText("x\u202egpj.exe"), "x\ufffdgpj.exe");
assert.equal(ui.plainText("a\u0000b\u001b[31m\u2067c"), "a\ufffdb\ufffd[31m\ufffdc");
assert.equal(ui.plainText("e" + "\u0336".repeat(50)), "e" + "\u0336".repeat(4));
for (const honest of ["שלום", "العربية", "日本語", "😀", "naïve", "trainer-7.py"]) assert.equal(ui.plainText(honest), honest);

// --- which GPUs, in which order ------------------------------------------------------------------

const fleet = [
  ui.shownGpu(gpu({ index: 0, uuid: "a", power_watts: 100 }), heard, false),
  ui.shownGpu(gpu({ index: 1, uuid: "b", name: "Tesla V100", power_watts: 300, policy: undefined, attribution: undefined }), heard, false),
  ui.shownGpu(gpu({ index: 2, uuid: "c", error: "lost", stale: true, read_age_seconds: 9 }), heard, false),
];
const indices = (gpus) => gpus.map((each) => each.index);
assert.deepEqual(indices(ui.ordered(fleet, "attention")), [2, 0, 1]);
assert.deepEqual(indices(ui.ordered(fleet, "power")), [1, 0, 2]);
assert.deepEqual(indices(ui.ordered(fleet, "chip")), [0, 2, 1]);
const chosen = (query) => indices(ui.chosen(fleet, ui.choiceOf(query)));
assert.deepEqual(chosen({}), [0, 1, 2]);
assert.deepEqual(chosen({ chip: "V100" }), [1]);
assert.deepEqual(chosen({ user: "ann" }), [0]);
assert.deepEqual(chosen({ policy: "none" }), [1]);
assert.deepEqual(chosen({ show: "attention" }), [2]);
assert.equal(ui.choiceOf({ order: "nonsense" }).order, "attention");

// --- the processes of all GPUs -----------------------------------------------------------------------

const tenant = (key, more) => ({ key, pid: Number(key), process: "train.py", user: "ann", energy_joules: 10, ...more });
const used = (index, tenants, more = {}) => ui.shownGpu(gpu({ index, uuid: `U${index}`, attribution: { energy_joules: 1, unallocated_watts: 50, tenants }, ...more }), heard, false);
const working = [
  used(0, [tenant("11", { power_watts: 100, memory_bytes: 5 }), tenant("12", { process: "Eval", user: "bob", job: "8123", power_watts: null, memory_bytes: 9 })]),
  used(1, [tenant("13", { power_watts: 300, pod: "llm-0", namespace: "prod", memory_bytes: undefined, energy_joules: 99 })]),
  used(2, [tenant("14", { power_watts: 999 })], { error: "lost", stale: true, read_age_seconds: 9 }),
  used(3, [], { attribution: { energy_joules: 0, tenants: [], reason: "the energy counter is missing" } }),
  used(4, [], { attribution: undefined }),
  used(5, []),
];
const rows = ui.rowsOf(working);
const pids = (some) => some.map((row) => row.tenant.pid);
assert.deepEqual(pids(rows), [11, 12, 13]); // not the lost GPU's
const inOrder = (words) => pids(ui.sortedRows(rows, ui.sortOf(words)));
assert.deepEqual(inOrder({}), [13, 11, 12]);
assert.deepEqual(inOrder({ order: "reversed" }), [11, 13, 12]); // what is not known stays last
assert.deepEqual(inOrder({ sort: "memory" }), [12, 11, 13]);
assert.deepEqual(inOrder({ sort: "memory", order: "reversed" }), [11, 12, 13]);
assert.deepEqual(inOrder({ sort: "process" }), [12, 11, 13]);
assert.deepEqual(inOrder({ sort: "gpu", order: "reversed" }), [13, 11, 12]);
assert.deepEqual(inOrder({ sort: "job" }), [12, 13, 11]);
assert.deepEqual(inOrder({ sort: "nonsense" }), inOrder({}));
for (const column of ui.kColumnKeys) { // a heading that is clicked twice turns round, a third time back
  const once = ui.sortOf(ui.sortWords(column, ui.sortOf({ sort: column === "gpu" ? "user" : "gpu" })));
  const twice = ui.sortOf(ui.sortWords(column, once));
  assert.deepEqual([once.column, twice.column, twice.descends], [column, column, !once.descends]);
  assert.deepEqual(ui.sortOf(ui.sortWords(column, twice)), once);
}
const found = (words) => pids(ui.chosenRows(rows, words));
assert.deepEqual(found({ user: "ann" }), [11, 13]);
assert.deepEqual(found({ gpu: "0", user: "ann" }), [11]);
assert.deepEqual(found({ job: "prod/llm-0" }), [13]);
assert.deepEqual(found({ job: "job 8123" }), [12]);
assert.deepEqual(found({ text: " EVAL " }), [12]);
assert.deepEqual(found({ text: "13" }), [13]);
assert.deepEqual(found({ text: "nobody" }), []);
assert.deepEqual(found({ sort: "memory", order: "reversed" }), [11, 12, 13]);
assert.deepEqual(ui.filterWords(rows, "gpu"), ["0", "1"]);
assert.deepEqual(ui.filterWords(rows, "user", "carol"), ["ann", "bob", "carol"]); // one that has ended can be taken back
const totals = ui.totalsOf(rows);
assert.deepEqual([totals.processes, totals.users, totals.gpus, totals.power.value, totals.power.known], [3, 2, 2, 400, 2]);
assert.equal(ui.nobodysWatts(working), 150); // of GPUs 0, 1 and 5
assert.deepEqual([...ui.unknownBy(working)].map(([why, gpus]) => [why, indices(gpus)]),
  [["the energy counter is missing", [3]], ["derated does not split its energy", [4]]]);
assert.equal(ui.biggestTenant(working[0]).tenant.pid, 11);
assert.equal(ui.biggestTenant(working[0]).others, 1);
assert.deepEqual(ui.holdersOf(working[0]).map((each) => each.pid), [12, 11]);
assert.deepEqual(ui.holdersOf(working[2]), []);

// --- words -----

assert.equal(ui.promises([gpu(), gpu({ gpu_utilisation_ratio: 0 }), gpu({ rule: "idle" }), gpu({ promise: "not known" })]),
  "3 kept (2 idle), 1 not known");
assert.equal(ui.promises([gpu({ promise: undefined })]), "none given");
const capped = { power_watts: 690, factory_power_limit_watts: 700, asked_clock_mhz: 1545, sm_clock_mhz: 1455 };
assert.equal(ui.heldByLimit(gpu(capped)), true);
for (const other of [{ power_watts: 400 }, { sm_clock_mhz: 1545 }, { asked_clock_mhz: undefined }, { factory_power_limit_watts: undefined }])
  assert.equal(ui.heldByLimit(gpu({ ...capped, ...other })), false);

// --- events --------------------------------------------------------------------------------------

let id = 0;
const event = (time, kind, severity, index) => ({
  id: ++id, time_unix_seconds: time, event: kind, severity, gpu: index === undefined ? undefined : `GPU-${index}`, gpu_index: index, message: `${kind} ${index}`,
});
const events = [event(0, "begun", "info"), event(10, "stuck", "error", 7), event(80, "lost", "error", 3), event(90, "thermal", "warning", 3),
  // As derated folds them.
  { ...event(100, "stuck", "error"), gpu: undefined, count: 24, first_unix_seconds: 60, gpu_indices: [3, 4] }];
assert.equal(ui.countOf(events), 28);
const kinds = (query) => ui.chosenEvents(events, query).length;
assert.equal(kinds({ severity: "error" }), 3);
assert.equal(kinds({ severity: "warning" }), 4);
assert.equal(kinds({ kind: "lost" }), 1);
assert.equal(kinds({ gpu: "3" }), 3);
assert.equal(kinds({ gpu: "none" }), 1);
assert.equal(kinds({ after: String(id - 1) }), 1);
assert.equal(kinds({ severity: "nonsense" }), events.length);
console.log("ok");
