// The fleet at a glance: one tile a GPU.
import { MemoryBar } from "./card";
import { choiceOf, choices, chosen, kOrders, ordered, type Choice } from "./choose";
import { ofHowMany, sumOf, valueOf, type ShownGpu } from "./known";
import type { Query, Route } from "./live";
import { Name } from "./name";
import { biggestTenant, tenantName } from "./tenants";
import { Services } from "./services";
import type { Savings, Status } from "./types";
import {
  chip, energy, gpuName, heldByLimit, judge, limitOf, megahertz, memoryOf, needsAttention, percent, promises, unknown, watts, whole, why,
} from "./words";

/** Of the factory's limit; the one in force is a tick where it is another. */
function PowerBar({ gpu }: { gpu: ShownGpu }) {
  const limit = limitOf(gpu);
  const most = limit.factory ?? limit.watts;
  const place = (value?: number) => (most && value ? 100 * Math.min(1, Math.max(0, value / most)) : 0);
  const label = `power ${watts(gpu.power_watts)}${limit.watts ? ` of ${watts(limit.watts)}` : ", of a limit that is not reported"}` +
    (limit.factory ? `, the factory's limit is ${watts(limit.factory)}` : "");
  return (
    <svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label={label}>
      <rect class={most ? "bar-all" : "bar-none"} width="100" height="4" />
      <rect class="bar-part" width={place(gpu.power_watts)} height="4" />
      {limit.factory && <rect class="bar-tick" x={Math.min(99, place(limit.watts))} width="1" height="4" />}
    </svg>
  );
}

const was = (text: string, known: boolean) => (known ? <span class="dim was">was {text}</span> : null);

/** "41 of 80 GiB" over a thin bar, and who uses the GPU most. */
function MemoryLine({ gpu }: { gpu: ShownGpu }) {
  const { memory_used_bytes: used, memory_total_bytes: total } = gpu.card ?? {};
  return (
    <>
      {used != null && <span class="line mem"><span class="dim">memory</span> {memoryOf(used, total)}</span>}
      <MemoryBar card={gpu.card} thin />
    </>
  );
}

function Whose({ gpu }: { gpu: ShownGpu }) {
  const { tenant, others } = biggestTenant(gpu);
  if (!tenant) return null;
  return (
    <span class="whose dim">
      <Name of={tenant.user ? `${tenant.user}: ${tenantName(tenant)}` : tenantName(tenant)} />
      {others > 0 && <span class="more"> and {others} more</span>}
    </span>
  );
}

function Tile({ gpu, savings }: { gpu: ShownGpu; savings?: Savings }) {
  const judgement = judge(gpu);
  const share = savings?.lines.find((line) => line.key === gpu.uuid)?.sum.energy_saving_ratio;
  const limit = limitOf(gpu);
  const old = gpu.seen.holds ? undefined : gpu.was;
  const heat = gpu.power_watts != null && limit.watts ? Math.min(1, gpu.power_watts / limit.watts) : 0;
  return (
    <li>
      <a class={`tile ${judgement.level} ${gpu.power_watts == null ? "silent" : ""}`} href={`#/gpu/${gpu.index}`}
         style={{ "--heat": heat.toFixed(2) }}>
        <span class="tile-head">
          <b>{gpuName(gpu)}</b> <Name of={chip(gpu.name)} dim />
          {gpu.simulated && <span class="tag" title="a simulated GPU">sim</span>}
          <span aria-hidden="true" class="corner">{judgement.mark}</span>
        </span>
        <span class="verdict">
          <span aria-hidden="true" class="mark">{judgement.mark}</span> {judgement.words}
        </span>
        <span class="figures">
          <span class="big">{watts(gpu.power_watts)}</span>
          {gpu.power_watts == null ? was(watts(old?.power_watts), old?.power_watts != null)
            : <span class="dim">{limit.watts ? `of ${watts(limit.watts)}` : "no limit reported"}{limit.factory ? ` (factory's ${watts(limit.factory)})` : ""}</span>}
        </span>
        <PowerBar gpu={gpu} />
        <span class="line">
          {megahertz(gpu.sm_clock_mhz)}{" "}
          {gpu.sm_clock_mhz == null ? was(megahertz(old?.sm_clock_mhz), old?.sm_clock_mhz != null)
            : <span class="dim">{heldByLimit(gpu) ? "held down by the power limit" : `of ${megahertz(gpu.highest_sm_clock_mhz)}`}</span>}
        </span>
        <MemoryLine gpu={gpu} />
        <Whose gpu={gpu} />
        <span class="line saved">
          saved today <b>{share == null ? unknown : percent(share, 1)}</b>
        </span>
        <span class="why dim" title={whole(gpu)}><Name of={why(gpu)} /></span>
      </a>
    </li>
  );
}

function Attention({ gpus, quiet }: { gpus: ShownGpu[]; quiet: boolean }) {
  const attention = gpus.filter(needsAttention);
  const unread = gpus.filter((gpu) => !gpu.seen.holds).length;
  return (
    <div class={quiet ? "" : attention.length > 0 ? "bad" : unread > 0 ? "" : "good"}>
      <dt>Needs attention</dt>
      <dd>
        {quiet ? gpus[0]?.seen.words ?? "not known"
          : attention.length === 0 ? "no GPU"
            : attention.length === 1 ? `${gpuName(attention[0]!)}: ${judge(attention[0]!).words}`
              : attention.slice(0, 4).map((gpu) => gpuName(gpu)).join(", ") +
                (attention.length > 4 ? ` and ${attention.length - 4} more` : "")}
      </dd>
    </div>
  );
}

function Promises({ gpus, quiet }: { gpus: ShownGpu[]; quiet: boolean }) {
  const broken = gpus.some((gpu) => gpu.promise === "broken");
  const kept = gpus.some((gpu) => gpu.promise) && gpus.every((gpu) => !gpu.promise || gpu.promise === "kept");
  return (
    <div class={quiet ? "" : broken ? "bad" : kept ? "good" : ""}>
      <dt>Promises of performance</dt>
      <dd>{quiet ? gpus[0]?.seen.words ?? "not known" : promises(gpus)}</dd>
    </div>
  );
}

function Headline({ gpus, savings, quiet }: { gpus: ShownGpu[]; savings?: Savings; quiet: boolean }) {
  const power = sumOf(gpus, (gpu) => gpu.power_watts);
  const before = sumOf(gpus, (gpu) => gpu.was?.power_watts);
  const today = savings?.total;
  return (
    <dl class="headline">
      <Attention gpus={gpus} quiet={quiet} />
      <Promises gpus={gpus} quiet={quiet} />
      <div>
        <dt>Saved today (estimated)</dt>
        <dd>
          {!today ? unknown : today.saved_joules != null ? energy(today.saved_joules) : "nothing yet"}
          {today?.energy_saving_ratio != null && (
            <span class="dim"> ({percent(today.energy_saving_ratio, 1)})</span>
          )}
        </dd>
      </div>
      <div>
        <dt>Power now</dt>
        <dd>{watts(valueOf(power))}<span class="whole">{ofHowMany(power)}</span>{power.known === 0 && before.known > 0 && <span class="dim"> was {watts(before.value)}</span>}</dd>
      </div>
    </dl>
  );
}

const kFilters = ["chip", "user", "policy"] as const;
const kOrderWords = {
  attention: "needs attention first", number: "by number", chip: "by chip", power: "most power first", performance: "least performance first",
};

function Toolbar({ gpus, choice, shown, set }: { gpus: ShownGpu[]; choice: Choice; shown: number; set: (query: Query) => void }) {
  const all = choices(gpus);
  const narrowed = shown < gpus.length;
  return (
    <form class="tools" aria-label="which GPUs" onSubmit={(event) => event.preventDefault()}>
      <label>Order{" "}
        <select value={choice.order} onChange={(e) => set({ order: e.currentTarget.value === "attention" ? undefined : e.currentTarget.value })}>
          {kOrders.map((each) => <option key={each} value={each}>{kOrderWords[each]}</option>)}
        </select>
      </label>
      {kFilters.filter((key) => all[key].length > 1 || choice[key]).map((key) => (
        <label key={key}>{key[0]!.toUpperCase() + key.slice(1)}{" "}
          <select value={choice[key] ?? ""} onChange={(e) => set({ [key]: e.currentTarget.value })}>
            <option value="">all</option>
            {[...new Set([...all[key], ...(choice[key] ? [choice[key]] : [])])].map((word) => <option key={word} value={word}>{word}</option>)}
          </select>
        </label>
      ))}
      <label>
        <input type="checkbox" checked={choice.attention} onChange={(e) => set({ show: e.currentTarget.checked ? "attention" : undefined })} />{" "}
        needs attention alone
      </label>
      {narrowed && (
        <span role="status">
          {shown} of {gpus.length} GPUs{" "}
          <button type="button" onClick={() => set({ chip: undefined, user: undefined, policy: undefined, show: undefined })}>show all</button>
        </span>
      )}
    </form>
  );
}

interface Group {
  title?: string;
  gpus: ShownGpu[];
}

function groupsOf(gpus: ShownGpu[], byChip: boolean): Group[] {
  if (!byChip) return [{ gpus }];
  const out = new Map<string, ShownGpu[]>();
  for (const gpu of gpus) {
    const title = chip(gpu.name);
    out.set(title, [...(out.get(title) ?? []), gpu]);
  }
  return [...out].map(([title, members]) => ({ title, gpus: members }));
}

const kMany = 16, kDense = 32;

function Tiles({ gpus, all, byChip, savings }: { gpus: ShownGpu[]; all: number; byChip: boolean; savings?: Savings }) {
  const size = all > kDense ? "dense" : all > kMany ? "many" : "";
  return (
    <>
      {groupsOf(gpus, byChip).map((group) => (
        <section key={group.title ?? ""} aria-label={group.title ?? "GPUs"}>
          {group.title && <h2 class="group"><Name of={group.title} /> <span class="dim">{group.gpus.length}</span></h2>}
          <ul class={`tiles ${size}`}>
            {group.gpus.map((gpu) => <Tile key={gpu.uuid} gpu={gpu} savings={savings} />)}
          </ul>
        </section>
      ))}
    </>
  );
}

const kFewGpus = 4; // which need no order

interface FleetProperties {
  status: Status;
  gpus: ShownGpu[];
  savings?: Savings;
  quiet: boolean;
  route: Route;
}

export function Fleet({ status, gpus, savings, quiet, route }: FleetProperties) {
  if (status.paused && !quiet)
    return (
      <p class="empty">
        derated is paused: all GPUs are given back and closed until <code>derate resume</code>.
      </p>
    );
  if (status.asleep && !quiet)
    return (
      <p class="empty">
        Nobody uses a GPU: derated has closed them so that they power down, and keeps no history of this time. It opens
        them when a program uses one.
      </p>
    );
  if (gpus.length === 0)
    return <p class="empty">{quiet ? "Nothing is known of the GPUs now." : <>derated is opening the GPUs, or there are none: <code>derate doctor</code></>}</p>;
  const choice = choiceOf(route.query);
  const shown = ordered(chosen(gpus, choice), choice.order);
  const byChip = choice.order === "chip";
  const governed = gpus.some((gpu) => gpu.policy);
  return (
    <>
      <h1 class="sr">Fleet</h1>
      <Headline gpus={gpus} savings={savings} quiet={quiet} />
      {!governed && !quiet && (
        <p class="empty">
          No GPU is governed: nothing is saved. <code>sudo derate policy set assure</code> governs all
          of them and keeps 90 % of their performance.
        </p>
      )}
      {(gpus.length > kFewGpus || shown.length < gpus.length) &&
        <Toolbar gpus={gpus} choice={choice} shown={shown.length} set={route.set} />}
      <Tiles gpus={shown} all={gpus.length} byChip={byChip} savings={savings} />
      <Services services={status.services ?? []} quiet={quiet} />
    </>
  );
}
