// Figures and judgements as words.
import type { DerateEvent, Gpu, Savings } from "./types";

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

const kBelow = 0.005; // of an estimate that is at the promise

/** What an operator should know of it first. */
export function judge(gpu: Gpu): Judgement {
  if (gpu.error) return { level: "bad", mark: "✕", words: "does not answer" };
  if (gpu.trouble)
    return {
      level: "bad", mark: "!",
      words: gpu.trouble.startsWith("not governed") ? "not governed" : "needs attention",
    };
  const expected = gpu.expected_performance_ratio, promised = gpu.promised_performance_ratio;
  if (expected != null && promised != null && expected < promised - kBelow)
    return { level: "warn", mark: "▼", words: `at ${percent(expected)}, promised ${percent(promised)}` };
  if (!gpu.policy) return { level: "idle", mark: "○", words: "only observed" };
  if (gpu.rule === "idle" || gpu.gpu_utilisation_ratio === 0)
    return { level: "idle", mark: "○", words: "idle" };
  if (promised != null) return { level: "good", mark: "✓", words: "keeps its promise" };
  return { level: "good", mark: "✓", words: "governed, promises nothing" };
}

export const isBelow = (gpu: Gpu) => judge(gpu).level === "warn";
export const needsAttention = (gpu: Gpu) => ["bad", "warn"].includes(judge(gpu).level);

/** Why its clock is what it is, without what only a log needs. */
export const why = (gpu: Gpu) =>
  (gpu.error ?? gpu.trouble ?? gpu.reason ?? unknown).replace(/^not governed: /, "");

// --- savings -------------------------------------------------------------------------------------

export interface Saved {
  used: number; // joules
  saved: number;
  low: number; // of 90 %
  high: number;
  of: number; // what the estimate is of
}

const kSd90 = 1.645;

/** Sums of the hours that begin at or after that time. */
export function savedSince(savings: Savings, since: number, gpu?: string): Saved {
  let used = 0, of = 0, highest = 0, sd = 0;
  for (const line of savings.lines) {
    if (gpu !== undefined && line.key !== gpu) continue;
    line.hour_unix_seconds.forEach((hour, i) => {
      if (hour < since) return;
      used += line.energy_joules[i] ?? 0;
      of += line.saved_of_joules[i] ?? 0;
      highest += line.saved_at_highest_joules[i] ?? 0;
      sd += line.saved_sd_joules[i] ?? 0; // curves err alike from hour to hour: docs/saving.md
    });
  }
  const saved = highest - of;
  return { used, saved, low: saved - kSd90 * sd, high: saved + kSd90 * sd, of };
}

/** Of what would have been used at the highest clock. */
export const savedShare = (saved: Saved) =>
  saved.of + saved.saved > 0 ? saved.saved / (saved.of + saved.saved) : undefined;

export const severityMark = (event: DerateEvent) =>
  ({ error: "✕", warning: "!", info: "·" })[event.severity];
