// The tenants of a GPU: their names, the memory they hold, and the biggest of them.
import type { ShownGpu } from "./known";
import type { Tenant } from "./types";

/** The name that its user knows: of the job or the pod before that of the process. */
export const tenantName = (tenant: Tenant) =>
  tenant.job ?? tenant.pod ?? tenant.container ?? tenant.process ?? tenant.key;

const most = (of: (tenant: Tenant) => number | null | undefined) => (a: Tenant, b: Tenant) => (of(b) ?? -1) - (of(a) ?? -1);
const memoryFirst = most((tenant) => tenant.memory_bytes);

/** Those that hold memory, the most first. */
export const holdersOf = (gpu: ShownGpu) =>
  (gpu.attribution?.tenants ?? []).filter((tenant) => (tenant.memory_bytes ?? 0) > 0).sort(memoryFirst);

/** Who uses most of the GPU: its power, and where that is not known its memory. */
export function biggestTenant(gpu: ShownGpu): { tenant?: Tenant; others: number } {
  const tenants = [...(gpu.attribution?.tenants ?? [])].sort(memoryFirst).sort(most((tenant) => tenant.power_watts));
  return { tenant: tenants[0], others: Math.max(0, tenants.length - 1) };
}
