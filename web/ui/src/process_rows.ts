// The processes of all GPUs as rows: which of them are shown, in which order, and what they come to.
import { sumOf, valueOf, type ShownGpu, type Sum } from "./known";
import { plainText } from "./name";
import { tenantName } from "./tenants";
import type { Tenant } from "./types";

export interface Row {
  gpu: ShownGpu;
  tenant: Tenant;
  key: string;
}
/** Of GPUs that are read; of another nothing is attributed (known.ts), and its processes may have ended. */
export const rowsOf = (gpus: ShownGpu[]): Row[] => gpus.flatMap((gpu) =>
  (gpu.attribution?.tenants ?? []).map((tenant) => ({ gpu, tenant, key: `${gpu.uuid} ${tenant.key}` })));

export const programOf = ({ tenant }: Row) => tenant.process ?? tenantName(tenant);
/** The job of Slurm, or the pod with its namespace, or the container. */
export const jobOf = ({ tenant }: Row) =>
  tenant.job !== undefined ? `job ${tenant.job}`
    : tenant.pod !== undefined ? (tenant.namespace ? `${tenant.namespace}/${tenant.pod}` : tenant.pod)
      : tenant.container?.slice(0, 12);

// --- which ---------------------------------------------------------------------------------------

type Words = Record<string, string | undefined>;
const kFilters = {
  user: (row: Row) => row.tenant.user,
  job: jobOf,
  gpu: (row: Row) => String(row.gpu.index),
};
export type Filter = keyof typeof kFilters;
export const kFilterKeys = Object.keys(kFilters) as Filter[];

const textOf = (row: Row) =>
  plainText([programOf(row), row.tenant.pid, row.tenant.user, jobOf(row), row.tenant.container, row.tenant.instance, row.gpu.name]
    .filter((each) => each !== undefined).join("\n")).toLowerCase();

/** By words of the address: user, job, gpu, and `text`, which may be part of any name or number. */
export function chosenRows(rows: Row[], words: Words): Row[] {
  const text = plainText(words.text ?? "").trim().toLowerCase();
  return rows.filter((row) =>
    kFilterKeys.every((key) => !words[key] || kFilters[key](row) === words[key]) && (text === "" || textOf(row).includes(text)));
}

/** What a filter can be set to, and what it is set to. */
export function filterWords(rows: Row[], key: Filter, chosen?: string): string[] {
  const words = new Set(rows.map(kFilters[key]).filter((word): word is string => !!word));
  if (chosen) words.add(chosen);
  const all = [...words];
  return key === "gpu" ? all.sort((a, b) => Number(a) - Number(b)) : all.sort();
}

// --- in which order ------------------------------------------------------------------------------

const kColumns = {
  process: (row: Row) => programOf(row).toLowerCase(),
  gpu: (row: Row) => row.gpu.index,
  user: (row: Row) => row.tenant.user?.toLowerCase(),
  job: (row: Row) => jobOf(row)?.toLowerCase(),
  memory: (row: Row) => row.tenant.memory_bytes,
  power: (row: Row) => row.tenant.power_watts,
  share: (row: Row) => row.tenant.share_ratio,
  energy: (row: Row) => row.tenant.energy_joules,
};
export type Column = keyof typeof kColumns;
export const kColumnKeys = Object.keys(kColumns) as Column[];
// Of these the largest is looked for.
const kMostFirst: readonly Column[] = ["memory", "power", "share", "energy"];

export interface Sort {
  column: Column;
  descends: boolean;
}
export function sortOf(words: Words): Sort {
  const column = kColumnKeys.find((key) => key === words.sort) ?? "power";
  return { column, descends: kMostFirst.includes(column) !== (words.order === "reversed") };
}
/** The words of the address for a heading that was clicked: once more turns the order round. */
export function sortWords(column: Column, now: Sort): Words {
  const descends = now.column === column ? !now.descends : kMostFirst.includes(column);
  return { sort: column === "power" ? undefined : column, order: descends === kMostFirst.includes(column) ? undefined : "reversed" };
}

/** What is not known comes last, whichever way. */
export function sortedRows(rows: Row[], { column, descends }: Sort): Row[] {
  const of = kColumns[column];
  return [...rows].sort((a, b) => {
    const first = of(a), second = of(b);
    if (first == null || second == null) return Number(first == null) - Number(second == null) || a.gpu.index - b.gpu.index;
    if (first === second) return a.gpu.index - b.gpu.index || (a.tenant.pid ?? 0) - (b.tenant.pid ?? 0);
    return first < second === descends ? 1 : -1;
  });
}

// --- what they come to ---------------------------------------------------------------------------

export interface Totals {
  processes: number;
  users: number;
  gpus: number;
  power: Sum;
  memory: Sum;
}
export const totalsOf = (rows: Row[]): Totals => ({
  processes: rows.length,
  users: new Set(rows.map((row) => row.tenant.user).filter(Boolean)).size,
  gpus: new Set(rows.map((row) => row.gpu.uuid)).size,
  power: sumOf(rows, (row) => row.tenant.power_watts),
  memory: sumOf(rows, (row) => row.tenant.memory_bytes),
});
/** Power of GPUs that are read and that is no process's. */
export const nobodysWatts = (gpus: ShownGpu[]) =>
  valueOf(sumOf(gpus, (gpu) => gpu.attribution?.unallocated_watts));

/** GPUs that are read and whose processes are not known, by the reason. */
export function unknownBy(gpus: ShownGpu[]): Map<string, ShownGpu[]> {
  const out = new Map<string, ShownGpu[]>();
  for (const gpu of gpus) {
    if (!gpu.seen.holds || (gpu.attribution && (gpu.attribution.tenants.length > 0 || !gpu.attribution.reason))) continue;
    const reason = gpu.attribution?.reason ?? "derated does not split its energy";
    out.set(reason, [...(out.get(reason) ?? []), gpu]);
  }
  return out;
}
