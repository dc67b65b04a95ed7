// Figures and judgements as words.
import type { DerateEvent, Gpu } from "./types";

// A formatter is dear to make: 64 GPUs' figures are written anew each second.
const kNumbers = [0, 1, 2].map((digits) =>
  new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
const number = (value: number, digits: 0 | 1 | 2) =>
  kNumbers[digits]!.format(Number(value.toFixed(digits)) || 0); // no -0

export const unknown = "–";
export const watts = (value?: number | null) =>
  value == null ? unknown : `${number(value, value < 10 ? 1 : 0)}\u00a0W`;
export const megahertz = (value?: number | null) =>
  value == null ? unknown : `${number(value, 0)}\u00a0MHz`;
export const percent = (ratio?: number | null, digits: 0 | 1 | 2 = 0) =>
  ratio == null ? unknown : `${number(100 * ratio, digits)}\u00a0%`;
export const celsius = (value?: number | null) => (value == null ? unknown : `${number(value, 0)}\u00a0°C`);

/** Joules as kWh, or Wh where that is little. */
export function energy(joules?: number | null): string {
  if (joules == null) return unknown;
  const kwh = joules / 3.6e6;
  if (Math.abs(kwh) >= 1) return `${number(kwh, kwh < 100 ? 2 : 0)}\u00a0kWh`;
  const wh = kwh * 1000;
  return `${number(wh, wh !== 0 && Math.abs(wh) < 10 ? 2 : Math.abs(wh) < 100 ? 1 : 0)}\u00a0Wh`;
}

const kClock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const kDay = new Intl.DateTimeFormat("en-GB", {
  day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit",
});
export const clockTime = (unix: number) => kClock.format(unix * 1000);
export const dayTime = (unix: number) => kDay.format(unix * 1000);

/** "H200" of "NVIDIA H200", "V100-SXM2-16GB" of "Tesla V100-SXM2-16GB". */
export const chip = (name: string) => name.replace(/^(NVIDIA|Tesla) /, "");
export const gpuName = (gpu: Gpu) => `GPU ${gpu.index}`;

export type Level = "bad" | "warn" | "good" | "idle";
export interface Judgement {
  level: Level;
  mark: string; // for who does not see colours
  words: string; // five words or so
}

const seconds = (value?: number) => (value == null ? unknown : `${number(value, 0)}\u00a0s`);

/** What an operator should know of it first, by derated's own judgement (promise, attention). */
export function judge(gpu: Gpu): Judgement {
  const expected = percent(gpu.expected_performance_ratio), promised = percent(gpu.promised_performance_ratio);
  if (gpu.promise === "broken" && gpu.attention === "below its promise")
    return {
      level: "warn", mark: "▼",
      words: `at ${expected}, promised ${promised}, for ${seconds(gpu.promise_below_seconds)}`,
    };
  if (gpu.attention)
    return { level: "bad", mark: gpu.attention === "does not answer" ? "✕" : "!", words: gpu.attention };
  if (!gpu.policy) return { level: "idle", mark: "○", words: "only observed" };
  if (gpu.promise === "below")
    return { level: "idle", mark: "▽", words: `below its promise for ${seconds(gpu.promise_below_seconds)}` };
  if (gpu.rule === "idle" || gpu.gpu_utilisation_ratio === 0)
    return { level: "idle", mark: "○", words: "idle" };
  if (gpu.promise === "not known") return { level: "idle", mark: "?", words: "promise not known" };
  if (gpu.promise === "kept") return { level: "good", mark: "✓", words: "keeps its promise" };
  return { level: "good", mark: "✓", words: gpu.dry_run ? "dry run" : "governed, promises nothing" };
}

export const needsAttention = (gpu: Gpu) => gpu.attention !== undefined;

/** "4 kept, 1 broken, 1 not known": each GPU that promises something once. */
export function promises(gpus: Gpu[]): string {
  const states = ["kept", "below", "broken", "not known"] as const;
  const counts = states.map((state) => [gpus.filter((gpu) => gpu.promise === state).length, state] as const);
  return counts.filter(([count]) => count > 0).map(([count, state]) => `${count} ${state}`).join(", ") || "none given";
}

/** Why its clock is what it is, without what only a log needs. */
export const why = (gpu: Gpu) =>
  (gpu.error ?? gpu.trouble ?? gpu.reason ?? unknown).replace(/^not governed: /, "");

export const severityMark = (event: DerateEvent) =>
  ({ error: "✕", warning: "!", info: "·" })[event.severity];
