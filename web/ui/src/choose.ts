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

/** How many events these lines are of: derated folds those that follow each other and say the same. */
export const countOf = (lines: DerateEvent[]) => lines.reduce((sum, line) => sum + (line.count ?? 1), 0);

const isOf = (line: DerateEvent, gpu: string) =>
  gpu === "none" ? line.gpu === undefined && line.gpu_indices === undefined
    : String(line.gpu_index) === gpu || (line.gpu_indices ?? []).includes(Number(gpu));

export const kindsOf = (events: DerateEvent[]) => sorted(events.map((event) => event.event));

/** `gpu`: an index, or "none" for the service's own. `severity`: the least. */
export function chosenEvents(events: DerateEvent[], query: Record<string, string | undefined>): DerateEvent[] {
  const least = { info: 0, warning: 1, error: 2 };
  const wanted = least[query.severity as keyof typeof least] ?? 0;
  return events.filter((event) =>
    least[event.severity] >= wanted && (!query.kind || event.event === query.kind) &&
    (!query.gpu || isOf(event, query.gpu)) &&
    (!query.after || event.id > Number(query.after)));
}
