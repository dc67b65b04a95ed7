// Which GPUs and events are shown, and in which order: by words of the address.
import type { ShownGpu } from "./known";
import type { DerateEvent } from "./types";
import { chip, needsAttention } from "./words";

export const kOrders = ["attention", "number", "chip", "power", "performance"] as const;
export type Order = (typeof kOrders)[number];

export interface Choice {
  order: Order;
  chip?: string;
  user?: string;
  policy?: string;
  attention: boolean;
}

// A filter looks at the last that was known, so that it holds while nobody answers.
const last = (gpu: ShownGpu) => (gpu.seen.holds ? gpu : gpu.was ?? gpu);
export const usersOf = (gpu: ShownGpu) =>
  (last(gpu).attribution?.tenants ?? []).map((tenant) => tenant.user).filter((user): user is string => !!user);
const policyOf = (gpu: ShownGpu) => last(gpu).policy ?? "none";

export function choiceOf(query: Record<string, string | undefined>): Choice {
  const order = kOrders.find((each) => each === query.order) ?? "attention";
  return { order, chip: query.chip, user: query.user, policy: query.policy, attention: query.show === "attention" };
}

export const chosen = (gpus: ShownGpu[], choice: Choice) => gpus.filter((gpu) =>
  (!choice.chip || chip(gpu.name) === choice.chip) && (!choice.user || usersOf(gpu).includes(choice.user)) &&
  (!choice.policy || policyOf(gpu) === choice.policy) && (!choice.attention || needsAttention(gpu)));

/** What is not known comes last. */
export function ordered(gpus: ShownGpu[], order: Order): ShownGpu[] {
  const by: Record<Order, (gpu: ShownGpu) => number | string> = {
    attention: (gpu) => -Number(needsAttention(gpu)),
    number: () => 0,
    chip: (gpu) => chip(gpu.name),
    power: (gpu) => -(gpu.power_watts ?? -Infinity),
    performance: (gpu) => gpu.expected_performance_ratio ?? Infinity,
  };
  return [...gpus].sort((a, b) => {
    const first = by[order](a), second = by[order](b);
    return first === second ? a.index - b.index : first < second ? -1 : 1;
  });
}

const sorted = (words: string[]) => [...new Set(words)].sort();
/** What a filter can be set to. */
export const choices = (gpus: ShownGpu[]) => ({
  chip: sorted(gpus.map((gpu) => chip(gpu.name))),
  user: sorted(gpus.flatMap(usersOf)),
  policy: sorted(gpus.map(policyOf)),
});

// --- events --------------------------------------------------------------------------------------

/** Events of one kind that follow each other: a hiccup of the host is one line, not one for each GPU. */
export interface Fold {
  event: string;
  severity: DerateEvent["severity"];
  events: DerateEvent[]; // the newest first
  gpus: number;
}
const kFoldSeconds = 600; // a longer pause begins another
const kFewest = 3; // less than that are lines of their own

/** The newest first. `events` are in the order in which they happened. */
export function folded(events: DerateEvent[]): Fold[] {
  const out: Fold[] = [];
  const last = new Map<string, Fold>();
  for (const event of events) {
    const key = `${event.event} ${event.severity}`;
    const fold = last.get(key);
    if (fold && event.time_unix_seconds - fold.events[0]!.time_unix_seconds <= kFoldSeconds) {
      fold.events.unshift(event);
      continue;
    }
    const begun = { event: event.event, severity: event.severity, events: [event], gpus: 0 };
    last.set(key, begun);
    out.push(begun);
  }
  const lines = out.flatMap((fold) => (fold.events.length >= kFewest ? [fold] : fold.events.map((event) => ({ ...fold, events: [event] }))));
  for (const fold of lines) fold.gpus = new Set(fold.events.map((event) => event.gpu).filter(Boolean)).size;
  return lines.sort((a, b) => b.events[0]!.id - a.events[0]!.id);
}

export const kindsOf = (events: DerateEvent[]) => sorted(events.map((event) => event.event));

/** `gpu`: an index, or "none" for the service's own. `severity`: the least. */
export function chosenEvents(events: DerateEvent[], query: Record<string, string | undefined>): DerateEvent[] {
  const least = { info: 0, warning: 1, error: 2 };
  const wanted = least[query.severity as keyof typeof least] ?? 0;
  return events.filter((event) =>
    least[event.severity] >= wanted && (!query.kind || event.event === query.kind) &&
    (!query.gpu || (query.gpu === "none" ? event.gpu === undefined : String(event.gpu_index) === query.gpu)) &&
    (!query.after || event.id > Number(query.after)));
}
