// Figures and judgements as words.
import { isRecent, type ShownGpu } from "./known";
import type { DerateEvent, Gpu } from "./types";

// A formatter is dear to make: 64 GPUs' figures are written anew each second.
const kNumbers = [0, 1, 2].map((digits) =>
  new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
const number = (value: number, digits: 0 | 1 | 2) =>
  kNumbers[digits]!.format(Number(value.toFixed(digits)) || 0); // no -0

export const unknown = "–";
export const watts = (value?: number | null) =>
  value == null ? unknown : `${number(value, value < 10 ? 1 : 0)}\u00a0W`;
/** As derated's reasons have it: without a separator. */
export const megahertz = (value?: number | null) =>
  value == null ? unknown : `${value.toFixed(0)}\u00a0MHz`;
export const percent = (ratio?: number | null, digits: 0 | 1 | 2 = 0) =>
  ratio == null ? unknown : `${number(100 * ratio, digits)}\u00a0%`;
/** An estimate with a digit that its interval is narrow enough for: a tenth, or whole percents. */
export const estimated = (ratio?: number | null, low?: number | null, high?: number | null) =>
  percent(ratio, low != null && high != null && high - low > 0.01 ? 0 : 1);
export const celsius = (value?: number | null) => (value == null ? unknown : `${number(value, 0)}\u00a0°C`);

/** Joules as kWh, or Wh where that is little. */
export function energy(joules?: number | null): string {
  if (joules == null) return unknown;
  const kwh = joules / 3.6e6;
  if (Math.abs(kwh) >= 1) return `${number(kwh, kwh < 100 ? 2 : 0)}\u00a0kWh`;
  const wh = kwh * 1000;
  return `${number(wh, wh !== 0 && Math.abs(wh) < 10 ? 2 : Math.abs(wh) < 100 ? 1 : 0)}\u00a0Wh`;
}

const kGib = 2 ** 30, kMib = 2 ** 20;
const gib = (value: number) => number(value / kGib, value > 0 && value < 10 * kGib ? 1 : 0);
/** As drivers count memory: in GiB, or MiB where that is little. */
export const memory = (value?: number | null) =>
  value == null ? unknown : value < kGib ? `${number(value / kMib, 0)}\u00a0MiB` : `${gib(value)}\u00a0GiB`;
/** "41 of 80 GiB". */
export function memoryOf(used?: number, total?: number): string {
  if (used == null) return total == null ? unknown : `${unknown} of ${memory(total)}`;
  return total == null ? memory(used) : `${gib(used)} of ${memory(total)}`;
}
/** Bytes a second, as vendors count links: in powers of 1000. */
export function byteRate(value?: number | null): string {
  if (value == null) return unknown;
  const [unit, name] = value >= 1e9 ? [1e9, "GB/s"] : value >= 1e6 ? [1e6, "MB/s"] : [1e3, "kB/s"];
  const shown = value / (unit as number);
  return `${number(shown, shown !== 0 && shown < 10 ? 1 : 0)}\u00a0${name}`;
}
/** "2 h 13 min", "1 min 34 s": with seconds where they are more than a tenth of it. */
export function duration(seconds?: number | null): string {
  if (seconds == null) return unknown;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1) return `${Math.floor(seconds)}\u00a0s`;
  const [days, hours] = [Math.floor(minutes / 1440), Math.floor(minutes / 60) % 24];
  const part = (value: number, unit: string) => (value > 0 ? ` ${value}\u00a0${unit}` : "");
  if (days > 0) return (part(days, "d") + part(hours, "h")).trim();
  const rest = minutes < 10 ? part(Math.floor(seconds) % 60, "s") : "";
  return (part(hours, "h") + part(minutes % 60, "min") + rest).trim();
}

const kClock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const kDay = new Intl.DateTimeFormat("en-GB", {
  day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit",
});
export const clockTime = (unix: number) => kClock.format(unix * 1000);
export const dayTime = (unix: number) => kDay.format(unix * 1000);

const kZone = new Intl.DateTimeFormat("en-GB", { timeZoneName: "longOffset" });
/** "UTC+1": the browser's, which may differ from the machine's. */
export const zone = (unix: number) =>
  (kZone.formatToParts(unix * 1000).find((part) => part.type === "timeZoneName")?.value ?? "")
    .replace("GMT", "UTC").replace(/([+-])0?(\d+):00$/, "$1$2");

/** "H200" of "NVIDIA H200", "V100-SXM2-16GB" of "Tesla V100-SXM2-16GB", "RTX 4070 Laptop". */
export const chip = (name: string) => name.replace(/^(NVIDIA |Tesla |GeForce )+/, "").replace(/ GPU$/, "");
export const gpuName = (gpu: Gpu) => `GPU ${gpu.index}`;

/** The power limit in force, and the factory's where that is another. */
export function limitOf(gpu: Gpu): { watts?: number; factory?: number } {
  const factory = gpu.factory_power_limit_watts;
  const set = gpu.dry_run ? undefined : gpu.set_power_limit_watts;
  return set !== undefined && set !== factory ? { watts: set, factory } : { watts: factory };
}

// Names of NVML's functions, and what failed: the whole message is in the title.
const kCalls: [RegExp, string][] = [
  [/nvmlDeviceSet\w*(Lock|Clock)\w*/, "clock cannot be set"],
  [/nvmlDeviceReset\w*Clock\w*/, "clock cannot be given back"],
  [/nvmlDeviceSetPowerManagementLimit\w*/, "power limit cannot be set"],
  [/nvmlDevice\w+/, "cannot be read"],
];
const kRefusals: [RegExp, string][] = [
  [/Insufficient Permissions/i, "no permission"],
  [/GPU is lost/i, "the GPU is lost"],
  [/Not Supported/i, "not supported"],
];

/** A message of the driver without its function's name: "clock cannot be set: no permission". */
export function plainTrouble(message: string): string {
  let out = message.replace(/^not governed: /, "").replace(/ \(NVML error \d+\)/, "");
  for (const [from, to] of kRefusals) out = out.replace(from, to);
  for (const [from, to] of kCalls) out = out.replace(from, to);
  return out.replace(/(cannot be (?:set|given back|read))\([^)]*\)/, "$1");
}

export type Level = "bad" | "warn" | "good" | "idle" | "plain" | "gone";
export interface Judgement {
  level: Level;
  mark: string; // for who does not see colours
  words: string; // five words or so
}

const seconds = (value?: number) => (value == null ? unknown : `${number(value, 0)}\u00a0s`);

const ofPolicy = (gpu: ShownGpu) =>
  gpu.assigned?.by === "service" ? `${gpu.policy}: the latency of ${gpu.assigned.who ?? "a service"}`
  : gpu.set_power_limit_watts != null && !gpu.dry_run ? `power limit ${watts(gpu.set_power_limit_watts)}`
    : `${gpu.policy}: nothing is promised`;

/** What an operator should know of it first, by derated's own judgement (promise, attention). */
export function judge(gpu: ShownGpu): Judgement {
  if (gpu.seen.quiet) return { level: "gone", mark: "?", words: gpu.seen.words };
  if (!gpu.seen.holds && isRecent(gpu) && !gpu.attention) return { level: "gone", mark: "?", words: gpu.seen.words };
  if (gpu.error && !isRecent(gpu)) return { level: "bad", mark: "✕", words: "does not answer" };
  if (!gpu.seen.holds && !isRecent(gpu)) return { level: "bad", mark: "✕", words: gpu.seen.words };
  const expected = percent(gpu.expected_performance_ratio), promised = percent(gpu.promised_performance_ratio);
  if (gpu.promise === "broken" && gpu.attention === "below its promise")
    return {
      level: "warn", mark: "▼",
      words: `at ${expected}, promised ${promised}, for ${seconds(gpu.promise_below_seconds)}`,
    };
  if (gpu.attention) {
    const trouble = plainTrouble(gpu.trouble ?? "").split(":")[0]!;
    return { level: "bad", mark: "!", words: trouble.includes("cannot be") ? trouble : gpu.attention };
  }
  if (gpu.power_watts == null && gpu.sm_clock_mhz == null)
    return { level: "idle", mark: "?", words: "reports no power, no clock" };
  if (!gpu.policy) return { level: "idle", mark: "○", words: "only observed" };
  if (gpu.promise === "below")
    return { level: "idle", mark: "▽", words: `below its promise for ${seconds(gpu.promise_below_seconds)}` };
  if (isIdle(gpu))
    return { level: "idle", mark: "○", words: "idle" };
  if (gpu.promise === "not known") return { level: "idle", mark: "?", words: "promise not known" };
  if (gpu.promise === "kept") return { level: "good", mark: "✓", words: "keeps its promise" };
  return { level: "plain", mark: "–", words: gpu.dry_run ? "dry run" : ofPolicy(gpu) };
}

/** derated's own judgement (`attention`), and GPUs whose silence only the page has seen. */
export const needsAttention = (gpu: ShownGpu) => ["bad", "warn"].includes(judge(gpu).level);

/** Nothing works on it. */
export const isIdle = (gpu: Gpu) => gpu.rule === "idle" || gpu.gpu_utilisation_ratio === 0;

/** "4 kept (1 idle), 1 broken, 1 not known": each GPU that promises something once. */
export function promises(gpus: Gpu[]): string {
  const states = ["kept", "below", "broken", "not known"] as const;
  const counts = states.map((state) => [gpus.filter((gpu) => gpu.promise === state).length, state] as const);
  const idle = gpus.filter((gpu) => gpu.promise === "kept" && isIdle(gpu)).length;
  const words = counts.filter(([count]) => count > 0).map(([count, state]) =>
    `${count} ${state}${state === "kept" && idle > 0 ? ` (${idle} idle)` : ""}`);
  return words.join(", ") || "none given";
}

const kHeldShare = 0.95, kHeldSteps = 20; // of the limit; MHz below the set clock

/** Whether the power limit holds the clock below what is set: the reason's clock is not reached then. */
export function heldByLimit(gpu: Gpu): boolean {
  const limit = limitOf(gpu).watts;
  if (limit == null || gpu.power_watts == null || gpu.sm_clock_mhz == null || gpu.asked_clock_mhz == null) return false;
  return gpu.power_watts >= kHeldShare * limit && gpu.sm_clock_mhz < gpu.asked_clock_mhz - kHeldSteps;
}

/** Why its clock is what it is, without what only a log needs. */
export function why(gpu: ShownGpu): string {
  const trouble = gpu.error ?? gpu.trouble;
  if (!gpu.seen.holds && !gpu.seen.quiet) {
    const last = gpu.seen.since === undefined ? "not read" : `last read ${clockTime(gpu.seen.since)}`;
    return trouble ? `${last}; ${plainTrouble(trouble)}` : last;
  }
  return trouble ? plainTrouble(trouble) : gpu.reason ?? "";
}
/** The whole of it, as derated has it. */
export const whole = (gpu: Gpu) => gpu.error ?? gpu.trouble ?? gpu.reason;

export const severityMark = (event: DerateEvent) =>
  ({ error: "✕", warning: "!", info: "·" })[event.severity];
