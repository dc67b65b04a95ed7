// Values and their times. A value that nobody has read since its answer has no time that is
// now's: the page shows "not known since HH:MM:SS" in its place, and the old value as what was.
import type { Card, Gpu, Status } from "./types";

/** When an answer came: by the clock of the machine, and by the browser's own count. */
export interface Heard {
  unix: number; // seconds since 1970
  ms: number; // of performance.now()
}
/** After so long without an answer nothing is taken for true any more. */
export const kQuietSeconds = 3;

export const ageSeconds = (heard: Heard, nowMs: number) => Math.max(0, nowMs - heard.ms) / 1000;
/** The machine's time now, in seconds since 1970. */
export const machineTime = (heard: Heard, nowMs: number) => heard.unix + ageSeconds(heard, nowMs);

const kClock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const kDay = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });
const kLongAgo = 20 * 3600; // seconds: then a time of day alone would be misread

/** "19:18:20", with the day where that is long ago. */
export const timeOf = (unix: number, nowUnix: number) =>
  (Math.abs(nowUnix - unix) > kLongAgo ? kDay : kClock).format(unix * 1000);
export const notKnown = (since: number | undefined, nowUnix: number) =>
  since === undefined ? "not known" : `not known since ${timeOf(since, nowUnix)}`;

/** Whether a GPU's values hold, and if not, when they last did. */
export interface Seen {
  holds: boolean;
  quiet: boolean; // nobody answers; else the GPU alone is not read
  since?: number; // seconds since 1970; absent: never read
  words: string; // empty while they hold
}
export interface ShownGpu extends Gpu {
  seen: Seen;
  was?: Gpu; // the last that held
}

/** A time, as short as it may be next to the GPU's last reading. */
export const timeSeen = (unix: number, gpu: ShownGpu) => timeOf(unix, gpu.seen.since ?? Date.now() / 1000);

// Fields that are true of the moment of a reading alone.
const kOfNow = [
  "power_watts", "sm_clock_mhz", "asked_clock_mhz", "set_power_limit_watts", "gpu_utilisation_ratio",
  "memory_utilisation_ratio", "temperature_celsius", "expected_performance_ratio",
  "promise_below_seconds", "work", "rule", "reason",
] as const satisfies readonly (keyof Gpu)[];
// Fields that a GPU has, whoever answers.
const kAlways = [
  "index", "uuid", "name", "simulated", "highest_sm_clock_mhz", "factory_power_limit_watts", "saved",
] as const satisfies readonly (keyof Gpu)[];

function only(gpu: Gpu, keys: readonly (keyof Gpu)[]): Gpu {
  return Object.fromEntries(keys.filter((key) => key in gpu).map((key) => [key, gpu[key]])) as unknown as Gpu;
}

const kCardSeconds = 15; // the card is read every 5 s

/** The card as it may be shown: an Xid has a time of its own, all else is of the reading. */
function shownCard(card: Card | undefined, holds: boolean): Card | undefined {
  if (!card || (holds && card.age_seconds != null && card.age_seconds < kCardSeconds)) return card;
  const { xid, xid_text, xid_unix_seconds } = card;
  return xid == null ? undefined : { xid, xid_text, xid_unix_seconds };
}
function withCard<T extends Gpu>(gpu: T): T {
  const card = shownCard(gpu.card, true);
  if (card !== gpu.card) gpu.card = card;
  return gpu;
}

export const isRecent = (gpu: Gpu) => gpu.read_age_seconds != null && gpu.read_age_seconds < kQuietSeconds;

const reads = (gpu: Gpu) => !gpu.error && !gpu.stale;

/** A GPU as it may be shown: what does not hold any more is not in it. `before`: the last that held. */
export function shownGpu(gpu: Gpu, heard: Heard, quiet: boolean, before?: Gpu): ShownGpu {
  const isRead = reads(gpu);
  const read = gpu.read_age_seconds == null ? undefined : heard.unix - gpu.read_age_seconds;
  const seenNow = { holds: true, quiet, since: read, words: "" };
  if (isRead && !quiet) return withCard({ ...gpu, seen: seenNow });
  // One reading that failed on a busy machine is no silence yet: the last is as young as any that is shown.
  if (!quiet && before && isRecent(gpu)) {
    const { attention, trouble } = gpu;
    return withCard({ ...before, attention, trouble, seen: seenNow });
  }
  const since = isRead ? heard.unix : read;
  const seen = { holds: false, quiet, since, words: notKnown(since, heard.unix) };
  if (quiet) return { ...only(gpu, kAlways), seen, was: isRead ? gpu : before };
  const out: ShownGpu = { ...gpu, seen, was: before ?? (gpu.error ? undefined : gpu) };
  for (const key of kOfNow) delete out[key];
  delete out.attribution;
  const xid = shownCard(gpu.card ?? before?.card, false); // derated reports no card of a GPU that it cannot read
  if (xid) out.card = xid;
  else delete out.card;
  return out;
}

/** All GPUs; keeps in `before` what was read, by UUID. */
export function shownGpus(status: Status, heard: Heard, quiet: boolean, before: Map<string, Gpu>): ShownGpu[] {
  return status.gpus.map((gpu) => {
    const out = shownGpu(gpu, heard, quiet, before.get(gpu.uuid));
    if (out.seen.holds && reads(gpu)) before.set(gpu.uuid, gpu);
    return out;
  });
}

/** A sum says of how many it is: what is not known is not 0. */
export interface Sum {
  value: number;
  known: number;
  all: number;
}
export function sumOf<T>(all: T[], of: (each: T) => number | null | undefined): Sum {
  const values = all.map(of).filter((value): value is number => value != null);
  return { value: values.reduce((sum, value) => sum + value, 0), known: values.length, all: all.length };
}
/** " of 7 of 8 GPUs"; empty where all are known, or none is. */
export const ofHowMany = (sum: Sum, what = "GPUs") =>
  sum.known === 0 || sum.known === sum.all ? "" : ` of ${sum.known} of ${sum.all} ${what}`;
/** The sum, if any of it is known. */
export const valueOf = (sum: Sum) => (sum.known === 0 ? undefined : sum.value);

/** The stretches of [from, to] without a value that are longer than `least` seconds. */
export function gapsOf(times: number[], known: (i: number) => boolean, from: number, to: number,
                       step: number, least: number): [begin: number, end: number][] {
  const out: [number, number][] = [];
  let end = from;
  times.forEach((time, i) => {
    if (!known(i)) return;
    if (time - end > least) out.push([end, time]);
    end = Math.max(end, time + step);
  });
  if (to - end > least) out.push([end, to]);
  return out;
}

const kSd90 = 1.645;
/** Half of the interval that is 90 % sure, of a standard deviation. */
export const within90 = (sigma?: number | null) => (sigma == null ? undefined : kSd90 * sigma);
